"""Upper bounds over unions of cells: the exact type I error of the limit for one union, coverage and tightness."""

import itertools
import math

import numpy as np
import pytest
from limits import box_bound, most
from scipy.stats import binom, norm

import dpverify as dpv
from dpverify.report.statements import CellBounds
from dpverify.stats.upper import ExcessLimit, excess_limit, frontier, frontier_bound, least_bounded_delta

LONG = pytest.mark.slow

ALPHA = 0.05
TRIALS = 400


def size(p1, p2, runs, epsilon, alpha=ALPHA):
    """Return the exact probability that the limit for one union lies below its true excess, by enumeration."""
    m1, m2 = runs
    columns = []
    for m, p in ((m1, p1), (m2, p2)):
        columns.append(np.arange(binom.ppf(1e-4 * alpha**2, m, p), binom.isf(1e-4 * alpha**2, m, p) + 1))
    a, b = (grid.ravel() for grid in np.meshgrid(*columns, indexing="ij"))
    weight = np.outer(binom.pmf(columns[0], m1, p1), binom.pmf(columns[1], m2, p2)).ravel()
    below = excess_limit(a, b, runs, alpha).excess(math.exp(epsilon)) < p1 - math.exp(epsilon) * p2
    return weight[below].sum()


@pytest.mark.parametrize("runs", [(50, 50), (400, 400), (400, 900)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_limit_of_one_union_has_its_size(runs, epsilon):
    for p1 in (0.001, 0.02, 0.3, 0.6, 0.97):
        for p2 in (0.001, 0.05, 0.4, 0.9):
            assert size(p1, p2, runs, epsilon) <= ALPHA + 1e-8


# From a variance of about 90 runs on (160 and 310 at the smaller levels) the joint limit is used: cases around it.
@pytest.mark.parametrize(("p1", "p2"), [(0.3, 0.07), (0.3, 0.25), (0.9, 0.5), (0.02, 0.11), (0.5, 0.12)])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, pytest.param(2.0, marks=LONG)])
@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-6])
def test_the_joint_limit_has_its_size(p1, p2, epsilon, alpha):
    assert size(p1, p2, (1500, 1500), epsilon, alpha) <= alpha * (1 + 1e-6)


@LONG
@pytest.mark.parametrize("runs", [(20, 20), (50, 50), (200, 200), (3000, 1500)])
@pytest.mark.parametrize("alpha", [0.045, 1e-3, 1e-6])
def test_the_limit_of_one_union_has_its_size_at_all_levels(runs, alpha):
    for epsilon in (0.0, 1.0, 3.0):
        for p1, p2 in itertools.product((0.001, 0.05, 0.3, 0.5, 0.9), (0.0005, 0.02, 0.1, 0.3, 0.7)):
            assert size(p1, p2, runs, epsilon, alpha) <= alpha * (1 + 1e-6)


def test_the_enumeration_detects_the_normal_quantile_without_its_error(monkeypatch):
    """Negative control of the sizes above."""
    monkeypatch.setattr("dpverify.stats.upper.joint_quantile", lambda step, alpha, *_: np.full(step.shape, 4.6))
    assert size(0.5, 0.35, (1500, 1500), 0.0, 1e-6) > 1e-6


@pytest.mark.parametrize(("alpha", "most_slack"), [(0.045, 1.75), (1e-3, 3.4), (1e-6, 5.3)])
def test_the_slack_is_close_to_the_normal_quantile_at_all_levels(alpha, most_slack):
    """The normal quantiles are 1.70, 3.09 and 4.75."""
    c1, c2 = shifted_gaussians()
    true = norm.cdf(0.5) - norm.cdf(-0.5)
    standard_error = math.sqrt(2 * norm.cdf(0.5) * norm.cdf(-0.5) / 10**6)
    slack = (dpv.delta_upper_bound(c1, c2, 10**6, 0.0, alpha) - true) / standard_error
    assert -norm.ppf(alpha) < slack + 0.1
    assert slack <= most_slack


def delta_on(p1, p2, epsilon):
    return np.maximum(p1 - math.exp(epsilon) * p2, 0).sum()


@pytest.mark.parametrize("cells", [4, 64])
@pytest.mark.parametrize("epsilon", [0, pytest.param(0.5, marks=LONG), 2])
@pytest.mark.parametrize("runs", [2000, 50_000])
def test_delta_upper_covers_the_partitions_own_delta(cells, epsilon, runs):
    rng = np.random.default_rng(5)
    p1 = rng.dirichlet(np.ones(cells))
    p2 = rng.dirichlet(np.ones(cells))
    true = delta_on(p1, p2, epsilon)
    c1, c2 = rng.multinomial(runs, p1, TRIALS), rng.multinomial(runs, p2, TRIALS)
    missed = sum(dpv.delta_upper_bound(a, b, runs, epsilon) < true for a, b in zip(c1, c2, strict=True))
    assert missed <= most(TRIALS, 0.05)


def test_the_plug_in_alone_would_miss():
    """Negative control of the coverage test above: the plug-in estimate without a margin does not cover."""
    rng = np.random.default_rng(5)
    p = np.full(4, 0.25)
    q = np.array([0.4, 0.3, 0.2, 0.1])
    c1, c2 = rng.multinomial(2000, p, TRIALS), rng.multinomial(2000, q, TRIALS)
    missed = (np.maximum(c1 / 2000 - c2 / 2000, 0).sum(1) < delta_on(p, q, 0)).sum()
    assert missed > most(TRIALS, 0.05)


@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_epsilon_upper_covers_both_orders(delta):
    rng = np.random.default_rng(6)
    p1, p2 = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.3, 0.3, 0.2, 0.2])
    grid = np.linspace(0, 3, 30_001)
    worst = np.maximum(delta_on_grid(p1, p2, grid), delta_on_grid(p2, p1, grid))
    true = grid[np.argmax(worst <= delta + 1e-12)]
    c1, c2 = rng.multinomial(1000, p1, 80), rng.multinomial(1000, p2, 80)
    bounds = [dpv.epsilon_upper_bound(a, b, 1000, delta) for a, b in zip(c1, c2, strict=True)]
    assert sum(bound < true - 1e-4 for bound in bounds) <= most(80, 0.05)
    assert np.median(bounds) < true + 0.6


@pytest.mark.parametrize("counts", [([600, 400], [400, 600]), ([1000], [1000]), ([10, 990], [10, 990])])
def test_below_the_least_delta_no_counts_give_a_bound(counts):
    least = least_bounded_delta(1000, 0.05)
    assert dpv.epsilon_upper_bound(*counts, 1000, 0.999 * least) == math.inf
    assert dpv.epsilon_upper_bound(*counts, 1000, 1.001 * least) < math.inf


def test_a_small_delta_has_the_bound_of_delta_zero_and_it_covers():
    rng = np.random.default_rng(8)
    p1, p2 = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.3, 0.3, 0.2, 0.2])
    true = math.log((0.2 - 1e-5) / 0.05)  # the last cell has the largest ratio
    bounds = []
    for a, b in zip(rng.multinomial(1000, p1, 80), rng.multinomial(1000, p2, 80), strict=True):
        part = CellBounds(a, b, np.ones(4, int), 1000, 0.05, 4, (0, 0))
        bounds.append(part.epsilon_upper(1e-5))
        assert bounds[-1] == part.epsilon_upper(0.0)
        assert part.meets_claim(dpv.claims.approximate(bounds[-1], 1e-5))
        assert not part.meets_claim(dpv.claims.approximate(bounds[-1] - 1e-9, 1e-5))
    assert sum(bound < true for bound in bounds) <= most(80, 0.05)
    assert sum(bound < true + 0.4 for bound in bounds) > most(80, 0.05)  # a larger loss is missed
    empty = CellBounds(np.array([600, 400]), np.array([400, 600]), np.ones(2, int), 1000, 0.05, 3, (0, 0))
    assert empty.epsilon_upper(1e-5) == math.inf  # a third cell has no runs


def delta_on_grid(p1, p2, epsilons):
    return np.maximum(p1[:, None] - np.exp(epsilons) * p2[:, None], 0).sum(0)


def shifted_gaussians(cells=256, runs=10**6):
    x = np.linspace(-8, 9, 200_001)
    pooled = (norm.cdf(x) + norm.cdf(x - 1)) / 2
    edges = np.concatenate([[-np.inf], np.interp(np.arange(1, cells) / cells, pooled, x), [np.inf]])
    return [np.floor(runs * np.diff(norm.cdf(edges, loc=mean))) for mean in (1, 0)]


def mcdiarmid(c1, c2, runs, epsilon, alpha):
    """Return the plug-in estimate plus the term of McDiarmid's inequality."""
    plug_in = np.maximum(c1 / runs - math.exp(epsilon) * c2 / runs, 0).sum()
    return plug_in + math.sqrt((1 + math.exp(2 * epsilon)) * math.log(1 / alpha) / (2 * runs))


def test_one_joint_limit_beats_two_separate_ones():
    """docs/method.md, section 5.4: a Gaussian shifted by 1, 256 equal-mass cells, 10^6 runs."""
    c1, c2 = shifted_gaussians()
    assert box_bound(c1, c2, 10**6, 1.0, 0.05) == pytest.approx(0.1293, abs=2e-4)
    assert mcdiarmid(c1, c2, 10**6, 1.0, 0.05) == pytest.approx(0.1306, abs=2e-4)
    assert delta_on(c1 / 1e6, c2 / 1e6, 1.0) < dpv.delta_upper_bound(c1, c2, 10**6, 1.0) < 0.1285
    # Rare events have separate limits, so the bound stays tight at large epsilon.
    assert mcdiarmid(c1, c2, 10**6, 3.0, 0.05) == pytest.approx(0.0265, abs=5e-4)
    assert delta_on(c1 / 1e6, c2 / 1e6, 3.0) < 0.0016 < dpv.delta_upper_bound(c1, c2, 10**6, 3.0) < 0.0027


@pytest.mark.parametrize("runs", [300, 30_000])
def test_the_frontier_bound_holds_between_its_nodes(runs):
    rng = np.random.default_rng(7)
    c1, c2 = rng.multinomial(runs, np.full(6, 1 / 6)), rng.multinomial(runs, rng.dirichlet(np.ones(6)))
    line = frontier(c1, c2, runs, 0.05)
    b = np.arange(runs + 1.0)
    all_limits = excess_limit(line.height(b), b, (runs, runs), 0.05)
    for epsilon in (0.0, 0.3, 1.0):
        highest = all_limits.excess(math.exp(epsilon)).max()
        bound = frontier_bound(line, epsilon)
        assert highest <= bound + 1e-12
        assert bound <= highest + 0.02 / math.sqrt(runs)


@pytest.mark.parametrize("alpha", [0.05, 1e-6])
@pytest.mark.parametrize("runs", [(40, 40), (3000, 3000), (2000, 500), (500, 2000)])
def test_the_limit_of_a_stretch_is_at_least_that_of_each_of_its_counts(runs, alpha):
    rng = np.random.default_rng(8)
    scales = np.array([[0.5], [1.0], [2.0], [50.0]])
    compared = 0
    for _ in range(10):
        c1, c2 = (rng.multinomial(m, rng.dirichlet(np.full(5, 0.7))) for m in runs)
        line = frontier(c1, c2, runs, alpha)
        corner = rng.integers(len(line.second_counts) - 1)
        begin, end = line.second_counts[corner : corner + 2]
        left, right = sorted(rng.integers(begin, end + 1, 2).astype(float))
        between = np.arange(left + 1, right)
        for limit, counts in (
            (line.stretch_limits(np.array([left]), np.array([right])), between),
            (ExcessLimit(*(column[[corner]] for column in line.segment_limits)), np.arange(begin, end + 1)),
        ):
            points = line.point_limits(counts).excess(scales)
            assert (limit.excess(scales) >= points).all()
            compared += points.size
    assert compared > 500


def test_the_frontier_bound_is_tight_at_large_epsilon():
    """The tolerance of the search is relative to the first count, not to e^epsilon times the second one."""
    assert dpv.delta_upper_bound([30_000, 70_000], [10_000, 90_000], 10**5, 12.0) < 1e-3
    bound = dpv.epsilon_upper_bound([60_000, 40_000], [30, 99_970], 10**5, 0.001)
    assert 11 < bound < 12


def test_an_empty_cell_makes_pure_epsilon_infinite():
    assert dpv.epsilon_upper_bound([5, 0], [5, 5], 10) == math.inf
    assert dpv.epsilon_upper_bound([50, 50], [50, 50], 100, 0.9) == 0


def test_the_limit_falls_in_the_scale_also_below_one():
    """The bound over all events uses negative epsilon. At large alpha the joint limit is not used."""
    line = frontier([100_000], [1000], 100_000, 0.045)
    bounds = [frontier_bound(line, epsilon) for epsilon in (-0.5, -1e-9, 0.0, 0.5)]
    assert all(a >= b for a, b in itertools.pairwise(bounds))
    assert not excess_limit(np.arange(5.0), np.arange(5.0), (10**6, 10**6), 0.4).maybe_frequent.any()
