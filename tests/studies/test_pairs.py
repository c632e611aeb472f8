"""Many pairs: what is said of shares, and the worst pair of a box."""

import math

import numpy as np
import pytest
from limits import least, most
from scipy.stats import binom

import dpverify as dpv
from dpverify.stats.binomial import clopper_pearson_lower
from dpverify.studies.pairs import share_at_least
from mechanisms import laplace

ALPHA = 0.05
COINS = {"partition": "atoms", "events": "union", "select_runs": 100, "test_runs": 200, "block": 400}


def coin(chance, runs, rng):
    return (rng.random(runs) < chance).astype(float)


def drawn_pairs(number, share, seed):
    """A share of them breaks (1, .05) by far; the others have equal laws."""
    breaks = np.random.default_rng(seed).random(number) < share
    return [(0.5, 0.98 if broken else 0.5) for broken in breaks]


@pytest.mark.parametrize("number", [5, 40, 200])
def test_the_statement_on_a_share_covers_even_in_the_worst_case(number):
    """Exact: every pair without the property is seen by mistake as often as the level allows."""
    seen = np.arange(number + 1)
    bounds = np.array([share_at_least(int(c), number, ALPHA, ALPHA) for c in seen])
    naive = np.array([float(clopper_pearson_lower(c, number, ALPHA)) for c in seen])
    missed = []
    for share in np.linspace(0, 1, 41):
        law = binom.pmf(seen, number, share + (1 - share) * ALPHA)
        assert law[bounds > share + 1e-12].sum() <= ALPHA
        missed.append(law[naive > share + 1e-12].sum())
    assert max(missed) > ALPHA  # without the charge for mistakes it would not cover


def test_at_200_pairs_the_statement_is_not_vacuous():
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        assert share - share_at_least(round(200 * share), 200, ALPHA, ALPHA) < 0.1


def test_each_pair_has_runs_of_its_own(tmp_path):
    pairs = drawn_pairs(12, 0.5, 0)
    found = dpv.verify_pairs(coin, pairs, 1.0, 0.05, folder=tmp_path, **COINS)
    breaks = [second > 0.6 for _, second in pairs]
    assert [report.refuted for report in found.reports] == breaks
    assert found.passed == 12 - sum(breaks)
    assert found.share == found.passed / 12
    assert found.share_interval[0] < found.share < found.share_interval[1]
    assert len({report.settings.seed for report in found.reports}) == 12
    assert len({report.witness.counts for report in found.reports}) > 2
    again = found.reports[3]
    assert dpv.verify(coin, *pairs[3], 1.0, 0.05, settings=again.settings) == again
    worst = found.reports[found.worst]
    assert worst.epsilon_lower == max(report.epsilon_lower for report in found.reports)
    assert 1 < found.epsilon_lower < worst.epsilon_lower
    assert f"{found.passed} of 12 pairs passed" in str(found)
    resumed = dpv.verify_pairs(coin, pairs, 1.0, 0.05, folder=tmp_path, **COINS)
    assert resumed.reports == found.reports
    assert all(report.run["resumed"] for report in resumed.reports)


def test_a_doubtful_pair_is_said_to_do_neither():
    pairs = [(np.array(0.5), np.array(second)) for second in (0.5, 0.98, 0.501)]
    found = dpv.verify_pairs(coin, pairs, 1.0, 0.05, **COINS)
    assert (found.passed, found.share, found.worst) == (1, 1 / 3, 1)
    assert str(found).endswith("doubt     both data sets are the same: nothing could tell them apart")


def test_pairs_that_can_not_be_used_are_refused():
    with pytest.raises(dpv.InputError, match="pairs: found none"):
        dpv.verify_pairs(coin, [], 1.0)
    with pytest.raises(dpv.InputError, match="epsilon: found None"):
        dpv.verify_pairs(coin, [(0.5, 0.5)], None)


@pytest.mark.slow
def test_the_statements_cover_a_known_share():
    share, seeds, number = 0.4, 200, 200
    found = [
        dpv.verify_pairs(coin, drawn_pairs(number, share, seed), 1.0, 0.05, seed=seed, **COINS) for seed in range(seeds)
    ]
    violating, bounded = (np.array([getattr(one, name) for one in found]) for name in ("violating", "bounded"))
    print("covers", (violating <= share).mean(), (bounded <= 1 - share).mean())
    print("gaps", share - np.median(violating), 1 - share - np.median(bounded))
    assert (violating <= share).sum() >= 0.95 * seeds
    assert (bounded <= 1 - share).sum() >= 0.95 * seeds
    assert share - np.median(violating) < 0.1
    assert 1 - share - np.median(bounded) < 0.1
    passing = 1 - share  # equal laws are far from the claim, and hardly ever refuted
    inside = sum(one.share_interval[0] <= passing <= one.share_interval[1] for one in found)
    assert inside >= least(seeds, 0.95)


def bump(theta):
    """The shift is largest, 1.2, at (.7, .3)."""
    return 0.0, 1.2 * math.exp(-4 * float(np.sum((theta - np.array([0.7, 0.3])) ** 2)))


def test_the_worst_pair_of_a_box_is_found_and_verified():
    box, small = [(0.0, 1.0), (0.0, 1.0)], {"select_runs": 4000, "test_runs": 8000, "events": "union"}
    found = dpv.search_pairs(laplace, bump, 0.5, bounds=box, runs=40_000, **small)
    assert bump(found.pair)[1] > 0.9 * 1.2
    assert found.report.refuted
    assert len(found.tried) > 30
    assert all(0 <= x <= 1 for point, _ in found.tried for x in point)
    assert dpv.verify(laplace, *bump(found.pair), 0.5, **small) == found.report


@pytest.mark.parametrize("box", [None, [], [(1, 0)], [(0, math.inf)], [(0, 1, 2)], 3])
def test_a_box_that_is_none_is_refused(box):
    with pytest.raises(dpv.InputError, match=r"bounds: found .* expected \(low, high\)"):
        dpv.search_pairs(laplace, bump, bounds=box, runs=10_000)


def test_too_few_runs_for_a_box_are_refused():
    with pytest.raises(dpv.InputError, match="runs: found 100; expected at least"):
        dpv.search_pairs(laplace, bump, bounds=[(0, 1), (0, 1)], runs=100)


@pytest.mark.slow
def test_searching_a_box_costs_no_false_alarms():
    """All pairs have equal laws: the best of many tries, chosen and tested on the same runs, would be refuted often."""
    seeds, small = 60, {"runs": 16_000, "select_runs": 500, "test_runs": 1000, "events": "union"}
    alarms = sum(
        dpv.search_pairs(laplace, lambda theta: (0.0, 0.0), 0, bounds=[(0, 1)], seed=s, **small).report.refuted
        for s in range(seeds)
    )
    assert alarms <= most(seeds, ALPHA)
