"""Several events that are tested together: rare leaks are found, and the shares of alpha are kept."""

import dataclasses
import math

import numpy as np
import pytest
from limits import most
from scipy.special import ndtr

import dpverify as dpv
from dpverify import claims
from dpverify.events.scores import Levels, Linear
from dpverify.report.report import divide_p_value
from dpverify.sampling.count import count_cells, count_together, counts_from_table
from dpverify.selection.objective import SelectionObjective, approximate_bound
from dpverify.selection.portfolio import choose_portfolio
from dpverify.selection.proposals import Proposal, SelectionCounts, judge, level_event
from dpverify.stats.exact import small_p_value
from mechanisms import ONE, ZERO, laplace

SMALL = {"select_runs": 2000, "test_runs": 4000}


def rare_leak(coordinates, probability):
    """Standard normal outputs; rarely the first coordinate lies far away, on a side that shows the dataset."""

    def mechanism(side, runs, rng):
        x = rng.standard_normal((runs, coordinates))
        x[rng.random(runs) < probability, 0] = 20 * (1 - 2 * side)
        return x

    return mechanism


def gaussian(data, runs, rng):
    return data + rng.standard_normal((runs, 1))


def true_delta(epsilon, shift=1.0):
    return ndtr(shift / 2 - epsilon / shift) - math.exp(epsilon) * ndtr(-shift / 2 - epsilon / shift)


@pytest.mark.parametrize("coordinates", [1, 6])
def test_a_rare_leak_is_found(coordinates):
    """One run of a thousand shows the dataset; all others have the same distribution."""
    sizes = {"select_runs": 20_000, "test_runs": 100_000}
    for seed in range(2):
        report = dpv.verify(rare_leak(coordinates, 1e-3), 0, 1, seed=seed, **sizes)
        assert report.epsilon_lower > 2
    harmless = dpv.verify(rare_leak(coordinates, 0.0), 0, 1, **sizes)
    assert harmless.epsilon_lower < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", [1, 6, 8])
def test_a_leak_in_one_of_ten_thousand_runs_is_found(coordinates):
    sizes = {"select_runs": 200_000, "test_runs": 1_000_000}
    bounds = [dpv.verify(rare_leak(coordinates, 1e-4), 0, 1, seed=s, **sizes).epsilon_lower for s in range(20)]
    assert sum(bound < 2 for bound in bounds) <= 1


def several_events():
    """A report whose selection froze more than one event."""
    reports = (dpv.verify(laplace, ZERO, ONE, 0.9, seed=seed, **SMALL) for seed in range(20))
    return next(report for report in reports if report.others)


def test_each_event_is_tested_with_its_share_of_alpha(tmp_path):
    report = several_events()
    assert sum(one.share for one in report.tested) == pytest.approx(1)
    bounds = [dpv.epsilon_lower_bound(*w.ordered, w.runs, 0.0, w.share * report.alpha) for w in report.tested]
    assert report.epsilon_lower == max(bounds) == bounds[0]
    p_values = [small_p_value(*w.ordered, w.runs, 0.9, 0.0, w.share * report.alpha) / w.share for w in report.tested]
    assert report.p_value == min(1.0, *p_values)
    assert f"best of {len(report.tested)} events chosen in advance" in str(report)
    path = tmp_path / "report.json"
    report.to_json(path)
    assert dpv.Report.from_json(path) == report
    assert report.against(0.2).tested == report.tested
    assert report.against(0.2).refuted


@pytest.mark.parametrize("epsilon", [0.5, 0.95, 1.0, 1.02, 1.5])
def test_the_p_value_is_the_smallest_one_of_all_events(epsilon):
    report = several_events().against(epsilon)
    alpha = report.alpha
    p_values = [small_p_value(*w.ordered, w.runs, epsilon, 0.0, w.share * alpha) for w in report.tested]
    divided = [divide_p_value(p, w.share, alpha) for p, w in zip(p_values, report.tested, strict=True)]
    assert report.p_value == min(divided)


def test_the_papers_preset_tests_one_event_at_the_whole_level():
    """The default tests several events of the same mechanism together (negative control)."""
    assert several_events().others
    # The thinned test, and the selection of the paper, each exclude further events by themselves.
    for changes in ({}, {"test": "exact"}, {"selection_epsilon": None, "complement": True}):
        report = dpv.verify(laplace, ZERO, ONE, settings=dpv.Settings.paper(seed=1, **changes))
        assert (report.others, report.witness.share, report.delta_events) == ((), 1.0, None), changes


@pytest.mark.slow
def test_true_claims_are_refuted_at_most_as_often_as_alpha_allows():
    """Without the shares, the best of three events would be refuted too often: the negative control."""
    refuted = uncorrected = 0
    for seed in range(150):
        report = dpv.verify(laplace, ZERO, ONE, 1.0, seed=seed, alpha=0.2, select_runs=400, test_runs=1000)
        refuted += report.refuted
        full = [dpv.epsilon_lower_bound(*w.ordered, w.runs, 0.0, 0.2) for w in report.tested]
        uncorrected += max(full) > 1.0
    assert refuted <= most(150, 0.2)
    assert uncorrected > refuted


def test_approximate_bounds_are_close_to_exact_ones():
    runs = 10**6
    for c1, c2, delta in ((100, 0, 0.0), (100, 3, 0.0), (500_000, 184_000, 0.0), (5000, 100, 1e-3)):
        objective = SelectionObjective(runs, delta, 0.05, 1.85)
        exact = dpv.epsilon_lower_bound(c1, c2, runs, delta, 0.05)
        assert float(approximate_bound(c1 / runs, c2 / runs, objective)) == pytest.approx(exact, rel=0.012)


@pytest.mark.parametrize("control", [False, True])
def test_a_rare_event_does_not_take_most_of_alpha_from_a_tight_claim(control, monkeypatch):
    """Counts of Gaussian noise with mu 1. The control compares distances from the curve, which are nearly 0."""
    if control:
        monkeypatch.setattr(SelectionObjective, "claimed_mu", 0.0)
    objective, runs = SelectionObjective(10**6, 0.0, 0.05, 1.85, claims.gaussian(1.0)), 12_500
    levels = Levels(Linear(np.ones(1)), np.array([-1.2, 2.8]))
    first, second = (counts_from_table(np.array(table)) for table in ([1385, 11_070, 45], [5117, 7382, 1]))
    decision = SelectionCounts(first, second, runs, runs)
    proposals = [
        Proposal(level_event(levels, -1.2, 0), (11_115, 7383)),
        Proposal(level_event(levels, 2.8, 0), (45, 1), is_solid=False, predicted=4e-5),
    ]
    judged = [judge(proposal, decision, objective) for proposal in proposals]
    cautious, rare = choose_portfolio(judged[0], judged, objective, 3)
    assert (rare.share > cautious.share) is control


@pytest.mark.parametrize(
    ("claim", "mu"),
    [(claims.gaussian(1.3), 1.3), (claims.profile(lambda e: true_delta(e, 1.3)), 1.3), (claims.pure(1.0), 0.0)],
)
def test_the_mu_of_a_claim(claim, mu):
    assert SelectionObjective(1000, 0.0, 0.05, 1.85, claim).claimed_mu == pytest.approx(mu, abs=1e-3)


def test_delta_has_events_of_its_own():
    """The bound on delta is close to the truth at small and large epsilons; one event for all is not."""
    report = dpv.verify(gaussian, ZERO, ONE, select_runs=50_000, test_runs=200_000)
    for epsilon in (0.0, 0.5, 1.0):
        assert 0.9 * true_delta(epsilon) < report.delta_lower(epsilon) < true_delta(epsilon)
    single = dataclasses.replace(report, delta_events=None)
    assert single.delta_lower(0.0) < 0.5 * true_delta(0.0)


@pytest.mark.slow
def test_bounds_on_delta_miss_at_most_as_often_as_alpha_allows():
    """Each epsilon on its own, and the curve as a whole. A curve without its correction is the negative control."""
    alone = {0.0: 0, 0.4: 0, 1.0: 0}
    whole = pointwise_everywhere = 0
    for seed in range(120):
        report = dpv.verify(gaussian, ZERO, ONE, seed=seed, alpha=0.2, select_runs=400, test_runs=600)
        for epsilon in alone:
            alone[epsilon] += report.delta_lower(epsilon) > true_delta(epsilon)
        truth = np.array([true_delta(epsilon) for epsilon in report.profile["eps"]])
        whole += bool((report.profile["delta_lower"] > truth).any())
        pointwise_everywhere += any(report.delta_lower(e) > true_delta(e) for e in report.delta_events.aims.epsilons)
    assert all(misses <= most(120, 0.2) for misses in alone.values())
    assert whole <= most(120, 0.2)
    assert pointwise_everywhere > max(alone.values())


def test_level_sets_of_one_score_are_counted_in_one_pass():
    rng = np.random.default_rng(0)
    samples = [rng.standard_normal((500, 1, 2)) for _ in range(2)]
    score, other = Linear(np.array([1.0, 2.0])), Linear(np.array([1.0, -1.0]))
    levels = [Levels(score, np.array([0.0, 1.0])), Levels(score, np.array([-1.0, 1.0])), Levels(other, np.zeros(1))]
    joint = count_together([*levels, levels[0]])
    assert len(joint.counted) == 2
    results = [tuple(count_cells(one, side) for side in samples) for one in joint.counted]
    for one, pair in zip([*levels, levels[0]], joint.split(results), strict=True):
        for side, counts in zip(samples, pair, strict=True):
            expected = count_cells(one, side)
            codes = np.arange(one.size)
            np.testing.assert_array_equal(counts.of(codes), expected.of(codes))
