"""Lower bounds from two counts, compared with enumeration, brute force and high-precision tails."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc, betaincc
from scipy.stats import binom, norm

from dpverify.errors import InputError
from dpverify.stats import exact as regions
from dpverify.stats.binomial import binomial_pmf, binomial_tail, binomial_tail_table, clopper_pearson_interval
from dpverify.stats.exact import (
    _lower_bound,
    claim_p_value,
    delta_lower_bound,
    epsilon_lower_bound,
    is_rejected,
    largest_p_value,
    rejection_region,
    score_root,
    wilson_limit,
)

ALPHA = 0.05
EPSILONS = (0.0, 0.1, 1.0, 3.0)
# A grid, and random points that lie on no grid.
_RNG = np.random.default_rng(11)
P2 = np.r_[np.geomspace(1e-3, 0.5, 80), np.exp(_RNG.uniform(np.log(1e-3), np.log(0.5), 400)), _RNG.uniform(0, 0.5, 300)]


def largest_size(rejects, epsilon, delta, p2=P2):
    """Return the largest probability of the rejected pairs, a table over (c1, c2), on the boundary of the claim."""
    p1 = math.exp(epsilon) * p2 + delta
    p1, p2 = p1[p1 <= 1], p2[p1 <= 1]
    m1, m2 = (n - 1 for n in rejects.shape)
    first = binom.pmf(np.arange(m1 + 1), m1, p1[:, None])
    second = binom.pmf(np.arange(m2 + 1), m2, p2[:, None])
    return float(np.einsum("ni,ij,nj->n", first, rejects.astype(float), second).max())


def all_pairs(m1, m2):
    return np.arange(m1 + 1)[:, None], np.arange(m2 + 1)[None, :]


def epsilon_sizes(m1, m2, delta):
    bounds = epsilon_lower_bound(*all_pairs(m1, m2), (m1, m2), delta, ALPHA)
    assert np.all(np.isfinite(bounds))
    return [largest_size(bounds > epsilon, epsilon, delta) for epsilon in EPSILONS]


def delta_sizes(m1, m2, epsilon):
    bounds = delta_lower_bound(*all_pairs(m1, m2), (m1, m2), epsilon, ALPHA)
    return [largest_size(bounds > delta, epsilon, delta) for delta in (0.0, 0.01, 0.1)]


# The type I error, by enumeration of all pairs of counts.


@pytest.mark.parametrize("delta", [0.0, 0.01])
@pytest.mark.parametrize(("m1", "m2"), [(20, 20), (9, 24), (24, 9)])
def test_type_one_error_is_at_most_alpha(m1, m2, delta):
    assert max(epsilon_sizes(m1, m2, delta)) <= ALPHA + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 0.01])
@pytest.mark.parametrize("m", [50, 200])
def test_type_one_error_is_at_most_alpha_with_more_runs(m, delta):
    sizes = epsilon_sizes(m, m, delta)
    assert max(sizes) <= ALPHA + 1e-9
    assert max(sizes) > 0.9 * ALPHA


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize(("m1", "m2"), [(20, 20), (9, 17)])
def test_type_one_error_about_delta_is_at_most_alpha(m1, m2, epsilon):
    assert max(delta_sizes(m1, m2, epsilon)) <= ALPHA + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0])
def test_type_one_error_about_delta_is_at_most_alpha_with_more_runs(epsilon):
    assert max(delta_sizes(50, 50, epsilon)) <= ALPHA + 1e-9


def asymptotic_score(c1, c2, m):
    return score_root(c1, c2, (m, m), norm.isf(ALPHA), None, 0.0)[0]


def katz(c1, c2, m):
    if c1 == 0 or c2 == 0:
        return math.inf if c1 > 0 else -math.inf
    return math.log(c1 / c2) - norm.isf(ALPHA) * math.sqrt(1 / c1 + 1 / c2 - 2 / m)


@pytest.mark.parametrize("wrong", [asymptotic_score, katz])
def test_enumeration_detects_bounds_that_are_not_exact(wrong):
    """Negative control of the tests above: asymptotic bounds exceed alpha."""
    m = 40
    bounds = np.array([[wrong(c1, c2, m) for c2 in range(m + 1)] for c1 in range(m + 1)])
    assert max(largest_size(bounds > epsilon, epsilon, 0.0) for epsilon in EPSILONS) > ALPHA + 1e-3


# The parts of the computation, compared with brute force.


def brute_force_score(c1, c2, m1, m2, ratio, delta):
    """Return the Farrington-Manning score; bisection of the likelihood equation gives the constrained estimate."""
    low = np.full(np.broadcast(c1, c2).shape, max(0.0, -delta / ratio))
    high = np.full(low.shape, min(1.0, (1 - delta) / ratio))
    for _ in range(100):
        p = (low + high) / 2
        p1, tiny = ratio * p + delta, 1e-300
        slope = ratio * (c1 / np.maximum(p1, tiny) - (m1 - c1) / np.maximum(1 - p1, tiny))
        rises = slope + c2 / np.maximum(p, tiny) - (m2 - c2) / np.maximum(1 - p, tiny) > 0
        low, high = np.where(rises, p, low), np.where(rises, high, p)
    p = (low + high) / 2
    p1 = np.clip(ratio * p + delta, 0, 1)
    difference = c1 / m1 - ratio * c2 / m2 - delta
    variance = p1 * (1 - p1) / m1 + ratio**2 * p * (1 - p) / m2
    return np.where(np.abs(difference) < 1e-13, 0.0, difference / np.sqrt(np.maximum(variance, 1e-30)))


@pytest.mark.parametrize("epsilon_is_free", [True, False])
def test_the_region_contains_the_pairs_whose_score_reaches_the_quantile(epsilon_is_free):
    rng = np.random.default_rng(5)
    for _ in range(150):
        m1, m2 = rng.integers(1, 40, 2).tolist()
        c1, c2 = int(rng.integers(1, m1 + 1)), int(rng.integers(0, m2 + 1))
        alpha, delta, epsilon = rng.choice([0.01, 0.05, 0.3]), rng.choice([0, 0.01, 0.2]), rng.choice([0, 0.1, 1, 3])
        ratio = None if epsilon_is_free else math.exp(epsilon)
        region = rejection_region(c1, c2, (m1, m2), alpha, ratio, delta if epsilon_is_free else 0.0)
        if region.score_root == -math.inf:
            assert c1 == 0 or epsilon_is_free
            continue
        claim = (math.exp(region.score_root), delta) if epsilon_is_free else (ratio, region.score_root)
        assert brute_force_score(c1, c2, m1, m2, *claim) == pytest.approx(norm.isf(alpha), abs=1e-6)
        counts, c2s = np.arange(m1 + 1)[None, :], np.arange(m2 + 1)
        reached = brute_force_score(counts, c2s[:, None], m1, m2, *claim) >= norm.isf(alpha) - 1e-7
        least = np.where(reached.any(axis=1), reached.argmax(axis=1), m1 + 1)
        least = np.minimum.accumulate(np.where(c2s <= c2, np.minimum(least, c1), least)[::-1])[::-1]
        assert region.least_counts.tolist() == least[region.first_counts.astype(int)].tolist()


def test_the_certified_supremum_is_valid_and_tight():
    rng = np.random.default_rng(8)
    for _ in range(120):
        m1, m2 = (int(m) for m in np.exp(rng.uniform(0, 6, 2)))
        c1, c2 = int(rng.integers(1, m1 + 1)), int(rng.integers(0, m2 + 1) * rng.random() ** 2)
        alpha, delta = rng.choice([1e-6, 0.01, 0.05, 0.3]), rng.choice([0, 0.01, 0.2])
        region = rejection_region(c1, c2, (m1, m2), alpha, None, delta)
        if region.score_root == -math.inf:
            continue
        ratio = math.exp(max(0.0, region.score_root + region.standard_error * rng.normal()))
        cap = min(1.0, (1 - delta) / ratio)
        low, high = region.p2_lower, min(region.p2_upper, cap)
        p2 = low + (high - low) * np.sin(rng.uniform(0, np.pi / 2, 1500)) ** 2
        if region.p2_lower >= cap:
            p2 = np.array([region.p2_lower])
        p1 = np.where(p2 >= cap, 1.0, ratio * p2 + delta)
        inside = binom.pmf(region.first_counts, m2, p2[:, None]) * binom.sf(region.least_counts - 1, m1, p1[:, None])
        supremum = inside.sum(axis=1).max()
        p = largest_p_value(region, ratio, delta)
        assert p >= min(1.0, supremum + alpha / 1000)
        assert p <= supremum + alpha / 1000 + 5e-4 * alpha + 2e-3 * supremum  # 1500 points may miss the maximum


@pytest.mark.parametrize(
    ("runs", "delta", "claims"),
    [
        (12, 0.0, 8),
        pytest.param(20, 0.0, 60, marks=pytest.mark.slow),
        pytest.param(20, 0.01, 60, marks=pytest.mark.slow),
    ],
)
def test_p_values_rise_with_the_claim(runs, delta, claims):
    for c1, c2 in np.ndindex(runs + 1, runs + 1):
        region = rejection_region(c1, c2, (runs, runs), ALPHA, None, delta)
        p = [largest_p_value(region, math.exp(epsilon), delta) for epsilon in np.linspace(0, 3, claims)]
        assert np.all(np.diff(p) >= -1e-9)


@pytest.mark.parametrize(
    ("runs", "p", "count", "expected"),  # from 60-digit arithmetic
    [
        (30, 0.2, 9, 0.12865075391404396),
        (10**5, 0.01, 1052, 0.05172976148267215),
        (10**5, 0.01, 950, 0.9466733983488884),
        (10**5, 0.3, 30250, 0.04264219607836251),
        (10**10, 1e-07, 1052, 0.052604005268045935),
        (10**10, 0.0001, 1001645, 0.05005728692379987),
        (10**10, 0.3, 3000075000, 0.05085486087421043),
        (10**10, 0.5, 5000000000, 0.5000039894228039),
        (10**10, 0.5, 4999820000, 0.9998408975289712),
        (10**10, 0.999999, 9999990150, 0.06718643967220508),
    ],
)
def test_tails_are_accurate_at_any_number_of_runs(runs, p, count, expected):
    assert binomial_tail(count, runs, np.array(p)) == pytest.approx(expected, abs=2e-9)
    assert binomial_tail(count, runs, np.array(p), upper=False) == pytest.approx(1 - expected, abs=2e-9)


@pytest.mark.parametrize("runs", [1, 30, 1000, 8192])
def test_tables_of_probabilities_and_tails_agree_with_scipy(runs):
    count = np.unique(np.r_[np.arange(min(runs, 40) + 2.0), np.round(np.linspace(0, runs + 1, 60))])
    for p, error in ((np.array([1e-5, 0.02, 0.3, 0.97]), 1e-250), (np.array([0.0, 1.0]), 1e-11)):
        rows = np.tile(count, (len(p), 1))
        assert binomial_pmf(rows, runs, p[:, None]) == pytest.approx(
            binom.pmf(rows, runs, p[:, None]), rel=1e-9, abs=error
        )
        assert binomial_tail_table(rows, runs, p) == pytest.approx(
            binom.sf(rows - 1, runs, p[:, None]), rel=1e-9, abs=error
        )


@pytest.mark.parametrize("g", [5e-5, 1e-9])
@pytest.mark.parametrize(("count", "runs"), [(3, 20), (1000, 10**10), (5 * 10**9, 10**10), (10**7 - 1000, 10**7)])
def test_clopper_pearson_limits_hold_at_any_number_of_runs(count, runs, g):
    low, high = clopper_pearson_interval(count, runs, g)
    assert g / 2 * (1 - 1e-4) <= betainc(count, runs - count + 1, low) <= g / 2
    assert g / 2 * (1 - 1e-4) <= betaincc(count + 1, runs - count, high) <= g / 2


@pytest.mark.parametrize("alpha", [1e-300, 1e-12, 1e-9, 1e-3, 0.5, 0.999])
@pytest.mark.parametrize("runs", [1, 2, 30, 1000, 10**6, 10**10, 10**12])
def test_clopper_pearson_intervals_are_rounded_outwards(runs, alpha):
    for count in {c for c in (0, 1, 2, 1000, runs // 1000, runs // 2, runs - 1, runs) if 0 <= c <= runs}:
        low, high = clopper_pearson_interval(count, runs, alpha)
        assert 0 <= low <= count / runs <= high <= 1
        assert (low == 0) if count == 0 else betainc(count, runs - count + 1, low) <= alpha / 2
        assert (high == 1) if count == runs else betaincc(count + 1, runs - count, high) <= alpha / 2
        # One step of 1e-6 inwards the tail is larger than alpha / 2, unless the next double is farther away than that.
        inner_low, inner_high = low + 1e-6 * low * (1 - low), high - 1e-6 * high * (1 - high)
        if low > 0 and 1 - low > 1e-9:
            assert betainc(count, runs - count + 1, inner_low) > alpha / 2
        if high < 1 and 1 - high > 1e-9:
            assert betaincc(count + 1, runs - count, inner_high) > alpha / 2


# The bounds and p-values.


@pytest.mark.parametrize(
    ("p2", "true", "bound"), [(0.001, 0.5, 0.293), (0.001, 2.0, 1.827), (0.01, 1.0, 0.940), (0.3, 0.1, 0.089)]
)
def test_bounds_are_as_tight_as_in_the_table_of_the_method(p2, true, bound):
    m = 10**5
    assert epsilon_lower_bound(round(m * p2 * math.exp(true)), round(m * p2), m) == pytest.approx(bound, abs=0.002)


def test_a_small_sample_by_hand():
    assert epsilon_lower_bound(10, 0, 20) == pytest.approx(1.449, abs=0.001)
    # One run per dataset: c1 = 1, c2 = 0 has probability p1 (1 - p2), which is at most alpha - g under no claim.
    assert epsilon_lower_bound(1, 0, 1) == 0.0
    # At epsilon 0 that is p (1 - p) <= 1/4: with alpha .3 the bound is positive.
    assert claim_p_value(1, 0, 1, 0.0, alpha=0.3) == pytest.approx(0.25, abs=0.001)
    assert epsilon_lower_bound(1, 0, 1, alpha=0.3) > 0.0


@pytest.mark.parametrize("m", [1, 20, 10**5, 10**10])
def test_zero_and_full_counts(m):
    assert epsilon_lower_bound(0, 0, m) == epsilon_lower_bound(0, m, m) == epsilon_lower_bound(m, m, m) == 0.0
    assert delta_lower_bound(0, 0, m, 0.0) == delta_lower_bound(0, m, m, 1.0) == delta_lower_bound(m, m, m, 0.0) == 0.0
    assert claim_p_value(0, 0, m, 0.0) == claim_p_value(0, m, m, 1.0) == 1.0
    if m > 1:
        assert math.log(m / 10) < epsilon_lower_bound(m, 0, m) < math.log(m)
        assert 1 - 10 / m < delta_lower_bound(m, 0, m, 0.0) < 1.0


def test_the_bounds_on_epsilon_and_delta_agree():
    epsilon = epsilon_lower_bound(600, 200, 1000, 0.05)
    assert delta_lower_bound(600, 200, 1000, epsilon) == pytest.approx(0.05, abs=0.003)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_p_value_and_the_bound_agree(data):
    m1, m2 = data.draw(st.tuples(st.integers(1, 60), st.integers(1, 60)))
    c1, c2 = data.draw(st.integers(0, m1)), data.draw(st.integers(0, m2))
    delta, alpha = data.draw(st.sampled_from([0.0, 0.01, 0.3])), data.draw(st.sampled_from([1e-6, 0.05, 0.4, 0.9]))
    bound = epsilon_lower_bound(c1, c2, (m1, m2), delta, alpha)
    assert 0.0 <= bound < math.log(2000 * m2 / alpha)
    for epsilon in (0.0, bound * (1 - 1e-9), bound, bound * (1 + 1e-9), bound + 1, data.draw(st.floats(0, 200))):
        p = claim_p_value(c1, c2, (m1, m2), epsilon, delta, alpha)
        assert 0.0 < p <= 1.0
        assert (p <= alpha) == (epsilon < bound)


@pytest.mark.parametrize(("m", "c1", "c2"), [(10**6, 330_000, 300_000), (10**7, 800_000, 500_000)])
def test_blocks_of_counts_make_the_bound_slightly_smaller(m, c1, c2, monkeypatch):
    _lower_bound.cache_clear()
    rejection_region.cache_clear()
    blocked = epsilon_lower_bound(c1, c2, m)
    monkeypatch.setattr(regions, "MAX_BLOCKS", 10**6)
    _lower_bound.cache_clear()
    rejection_region.cache_clear()
    scale = rejection_region(c1, c2, (m, m), ALPHA, None, 0.0).standard_error
    assert 0.0 < epsilon_lower_bound(c1, c2, m) - blocked < 0.002 * scale
    _lower_bound.cache_clear()
    rejection_region.cache_clear()


@pytest.mark.parametrize(
    ("c1", "c2", "delta"), [(5_050_000_000, 5 * 10**9, 0.0), (2 * 10**6, 10**6, 0.0), (4 * 10**9, 10**9, 0.1)]
)
def test_large_samples_reach_the_asymptotic_bound(c1, c2, delta):
    region = rejection_region(c1, c2, (10**10, 10**10), ALPHA, None, delta)
    bound = epsilon_lower_bound(c1, c2, 10**10, delta)
    assert bound == pytest.approx(region.score_root, abs=0.01 * region.standard_error)


def test_bounds_are_deterministic_and_broadcast():
    c1, c2 = np.array([[30], [40]]), np.array([10, 12, 14])
    bounds = epsilon_lower_bound(c1, c2, 100)
    assert bounds.shape == (2, 3)
    _lower_bound.cache_clear()
    again = [[epsilon_lower_bound(a, b, 100.0) for b in (10, 12, 14)] for a in (30, 40)]
    assert bounds.tolist() == again
    assert claim_p_value([30, 31], 10, 100, [[0.0], [0.5], [1.0]]).shape == (3, 2)
    assert delta_lower_bound([], [], 100, 1.0).shape == (0,)
    for value in (epsilon_lower_bound(3, 1, 10), delta_lower_bound(3, 1, 10, 0), claim_p_value(3, 1, 10, 0)):
        assert type(value) is float
    assert type(epsilon_lower_bound(np.int64(3), np.float64(1.0), 10)) is float


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"c1": -1}, "c1 must be whole numbers from 0 to 10, the number of runs, not -1"),
        ({"c1": 11}, r"c1 must be .*, not 11"),
        ({"c2": [1, 2.5]}, r"c2 must be .*, not \[1, 2.5\]"),
        ({"c2": math.nan}, r"c2 must be .*, not nan"),
        ({"c2": "three"}, r"c2 must be .*, not 'three'"),
        ({"c1": True}, r"c1 must be .*, not True"),
        ({"runs": 0}, "runs must be a whole number from 1 to 1000000000000, or two of them"),
        ({"runs": (10, 0)}, r"runs must be .*, not \(10, 0\)"),
        ({"runs": (10, 10, 10)}, r"runs must be a whole number .* not \(10, 10, 10\)"),
        ({"runs": (2, 10)}, "c1 must be whole numbers from 0 to 2, the number of runs, not 3"),
        ({"runs": 10.5}, r"runs must be .*, not 10.5"),
        ({"runs": None}, r"runs must be .*, not None"),
        ({"alpha": 0.0}, r"alpha must be .*, not 0.0"),
        ({"alpha": 1.0}, r"alpha must be .*, not 1.0"),
        ({"alpha": math.nan}, r"alpha must be .*, not nan"),
        ({"alpha": [0.1, 0.2]}, r"alpha must be a number between 0 and 1, not \[0.1, 0.2\]"),
        ({"delta": -0.1}, r"delta must be .*, not -0.1"),
        ({"delta": 1.0}, "delta must be 0 or more and below 1, not 1.0"),
        ({"epsilon": -1e-9}, r"epsilon must be .*, not -1e-09"),
        ({"epsilon": math.inf}, "epsilon must be 0 or more and finite, not inf"),
        ({"epsilon": math.nan}, r"epsilon must be .*, not nan"),
        ({"c1": [1, 2, 3], "c2": [1, 2]}, r"found shapes \(3,\), \(2,\), \(\), \(\); expected shapes that broadcast"),
    ],
)
def test_bad_input_is_refused_with_a_message_of_one_line(changes, message):
    good = {"c1": 3, "c2": 1, "runs": 10, "epsilon": 0.5, "delta": 0.0, "alpha": 0.05}
    with pytest.raises(InputError, match=message) as caught:
        claim_p_value(**(good | changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("below", [1e-6, 1e-9, 1e-12])
def test_a_delta_just_below_the_limit_of_the_first_share_is_no_special_case(below):
    """The standard error of epsilon is huge there, so that a search by standard errors leaves the range of exp."""
    delta = wilson_limit(20, 20, norm.ppf(1e-3)) * (1 - below)
    bound = epsilon_lower_bound(20, 0, 20, delta, 1e-3)
    assert 0.0 <= bound < 100.0
    assert bound == pytest.approx(epsilon_lower_bound(20, 0, 20, delta * (1 - 1e-3), 1e-3), abs=0.02)
    region = rejection_region(20, 0, (20, 20), 1e-3, None, delta)
    if bound > 0.0:
        assert 0.9 * 1e-3 <= largest_p_value(region, math.exp(bound), delta) <= 1e-3
    else:
        assert largest_p_value(region, 1.0 + 1e-9, delta) > 1e-3


def test_a_claim_is_rejected_where_its_p_value_is_at_most_the_level():
    region = rejection_region(49_000, 18_000, (10**5, 10**5), 0.05, None, 0.0)
    decisions = set()
    for epsilon in np.linspace(0.95, 1.05, 12):
        decision = is_rejected(49_000, 18_000, 10**5, epsilon, 0.0, 0.05)
        assert decision == (largest_p_value(region, math.exp(epsilon), 0.0) <= 0.05)
        decisions.add(decision)
    assert decisions == {True, False}
