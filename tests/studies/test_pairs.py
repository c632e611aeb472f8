"""verify_pairs: statements about the share of pairs that violate or satisfy a claim."""

import re

import numpy as np
import pytest
from limits import least
from scipy.stats import binom

import dpverify as dpv
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.stats.binomial import clopper_pearson_lower
from dpverify.studies.pairs import share_lower_bound
from mechanisms import laplace

ALPHA = 0.05
COINS = {
    "partition": "atoms",
    "events": "union",
    "select_runs": 400,
    "test_runs": 200,
    "block": 400,
    "detects": 6.0,
}


def coin(chance, runs, rng):
    return (rng.random(runs) < chance).astype(float)


def drawn_pairs(number, share, seed):
    """A share of the pairs violates (1, 0.05) clearly; the others have nearly equal distributions."""
    breaks = np.random.default_rng(seed).random(number) < share
    return [(0.1, 0.98 if broken else 0.1 + 1e-9) for broken in breaks]


@pytest.mark.parametrize(("claim", "stopped"), [(0.2, "refuted"), (1.0, "budget")])
def test_the_bound_of_a_single_pair_is_that_of_its_report(claim, stopped):
    """After an early stop, the runs in which the witness was counted have selected it, so they prove nothing."""
    settings = {"stop_early": True, "select_runs": 300, "test_runs": 500}
    many = dpv.verify_pairs(laplace, [(0.0, 1.0)], claim, **settings)
    assert many.reports[0].stopped == stopped
    assert many.epsilon_lower == many.reports[0].epsilon_lower


@pytest.mark.parametrize("number", [5, 40, 200])
def test_the_bound_of_a_share_has_its_coverage_in_the_worst_case(number):
    """Exact calculation: a pair without the property gives a positive result as often as the level allows."""
    counts = np.arange(number + 1)
    bounds = np.array([share_lower_bound(int(c), number, ALPHA, ALPHA) for c in counts])
    naive = np.array([float(clopper_pearson_lower(c, number, ALPHA)) for c in counts])
    missed = []
    for share in np.linspace(0, 1, 41):
        distribution = binom.pmf(counts, number, share + (1 - share) * ALPHA)
        assert distribution[bounds > share + 1e-12].sum() <= ALPHA
        missed.append(distribution[naive > share + 1e-12].sum())
    assert max(missed) > ALPHA  # without the correction for false positives


def test_at_200_pairs_the_bound_is_close_to_the_share():
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        assert share - share_lower_bound(round(200 * share), 200, ALPHA, ALPHA) < 0.1


def test_each_pair_has_its_own_runs(tmp_path):
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
    assert found.too_weak == ()
    worst = found.reports[found.worst]
    assert worst.epsilon_lower == max(report.epsilon_lower for report in found.reports)
    assert 1 < found.epsilon_lower < worst.epsilon_lower
    assert f"{found.passed} of 12 pairs passed" in str(found)
    resumed = dpv.verify_pairs(coin, pairs, 1.0, 0.05, folder=tmp_path, **COINS)
    assert resumed.reports == found.reports
    assert [one.provenance["job"] for one in resumed.reports] == [one.provenance["job"] for one in found.reports]


def test_a_pair_with_a_voiding_diagnostic_counts_neither_as_passed_nor_as_refuted():
    pairs = [(np.array(0.1), np.array(second)) for second in (0.1, 0.98, 0.101)]
    found = dpv.verify_pairs(coin, pairs, 1.0, 0.05, **COINS)
    assert (found.passed, found.share, found.worst) == (1, 1 / 2, 1)
    assert found.diagnostics == (Diagnostic.SAME_DATA,)
    assert str(found).splitlines()[1] == f"  No answer for 0: {Diagnostic.SAME_DATA.cause}."


def test_printed_shares_and_confidences_are_rounded_outwards():
    pairs = drawn_pairs(7, 0.5, 0)
    found = dpv.verify_pairs(coin, pairs, 1.0, 0.05, alpha=0.0125, **COINS)
    lines = {line.split(":")[0].strip(): line for line in str(found).splitlines() if ":" in line}
    low, high = (float(text) / 100 for text in re.findall(r"([\d.]+)% to ([\d.]+)%", lines["Passing"])[0])
    assert low <= found.share_interval[0]
    assert high >= found.share_interval[1]
    for name, share in (("Violating", found.violating), ("Bounded", found.holds_on_cells)):
        assert float(re.findall(r"at least ([\d.]+)%", lines[name])[0]) / 100 <= share
    assert lines["Named"].endswith("false discovery rate at most 1.25%.")
    assert all("(confidence 98.75%)" in lines[name] for name in ("Passing", "Violating", "Bounded", "Certain", "Worst"))


def test_pairs_that_are_tested_with_few_runs_do_not_pass():
    pairs = [(np.zeros(1), np.full(1, shift)) for shift in [0.5] * 9 + [2.0] * 9]
    many = dpv.verify_pairs(laplace, pairs, 1.0, select_runs=100, test_runs=50)
    assert many.passed == 0
    assert many.refuted + len(many.too_weak) == 18
    assert f"Too weak: {len(many.too_weak)} of 18 pairs" in str(many)
    enough = dpv.verify_pairs(laplace, [(np.zeros(1), np.full(1, 0.5))], 1.0, select_runs=2000, test_runs=20_000)
    assert enough.passed == 1


def test_violating_pairs_are_named_with_few_false_discoveries():
    """Of 12 pairs, 4 violate the claim clearly; over 40 seeds almost no other pair is named."""
    pairs = [(np.array(0.5), np.array(0.98 if number < 4 else 0.6)) for number in range(12)]
    found = dpv.verify_pairs(coin, pairs, 1.0, 0.05, **COINS)
    assert found.discoveries == found.certain == (0, 1, 2, 3)
    assert len(found.p_values) == 12
    assert "pairs 0, 1, 2, 3 violate the claim" in str(found)


def test_a_curve_is_tested_on_every_pair():
    pairs = [(np.array(0.5), np.array(second)) for second in (0.55, 0.98)]
    found = dpv.verify_pairs(coin, pairs, claim=dpv.claims.gaussian(1.0), **COINS)
    assert [report.refuted for report in found.reports] == [False, True]
    assert "mu 1" in str(found)


def test_no_pairs_or_no_claim_are_refused():
    with pytest.raises(dpv.InputError, match="pairs must have at least one"):
        dpv.verify_pairs(coin, [], 1.0)
    with pytest.raises(dpv.InputError, match="epsilon: found None"):
        dpv.verify_pairs(coin, [(0.5, 0.5)], None)


@pytest.mark.slow
def test_the_bounds_cover_a_known_share():
    share, seeds, number = 0.4, 200, 200
    found = [
        dpv.verify_pairs(coin, drawn_pairs(number, share, seed), 1.0, 0.05, seed=seed, **COINS) for seed in range(seeds)
    ]
    violating, bounded = (np.array([getattr(one, name) for one in found]) for name in ("violating", "holds_on_cells"))
    print("covers", (violating <= share).mean(), (bounded <= 1 - share).mean())
    print("gaps", share - np.median(violating), 1 - share - np.median(bounded))
    assert (violating <= share).sum() >= 0.95 * seeds
    assert (bounded <= 1 - share).sum() >= 0.95 * seeds
    assert share - np.median(violating) < 0.1
    assert 1 - share - np.median(bounded) < 0.1
    passing = 1 - share  # equal distributions are hardly ever refuted
    inside = sum(one.share_interval[0] <= passing <= one.share_interval[1] for one in found)
    assert inside >= least(seeds, 0.95)


def test_the_pairs_of_a_mapping_are_named():
    pairs = {"near": (0.5, 0.5), "far": (0.5, 0.98)}
    many = dpv.verify_pairs(coin, pairs, 1.0, 0.05, **COINS)
    assert many.names == ("near", "far")
    assert many.certain == (1,)
    assert "Certain: pair far violates the claim" in str(many)
    assert "Worst: pair far," in str(many)
    assert many.to_dataframe()["pair"].tolist() == ["near", "far"]
    listed = dpv.verify_pairs(coin, list(pairs.values()), 1.0, 0.05, **COINS)
    assert listed.reports == many.reports
    assert "Worst: pair 1," in str(listed)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"far": (1, 2, 3)}, r"found 3 parts as pair far; expected \(first, second\)"),
        ([(0.5, 0.5), 0.5], "found float as pair 1; expected"),
    ],
)
def test_what_is_no_pair_is_named(pairs, message):
    with pytest.raises(dpv.InputError, match=message):
        dpv.verify_pairs(coin, pairs, 1.0, **COINS)
    with pytest.raises(dpv.InputError, match=message):
        dpv.search_pairs(coin, pairs, runs=1000)
