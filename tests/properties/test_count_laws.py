"""Properties of all statements about two counts: monotonicity, symmetry and consistency.

Some properties do not hold exactly and are not tested. The order of pairs behind `epsilon_lower_bound` depends on alpha
and on delta, and the interval of p2 depends on c2. Therefore the bound is monotone in these arguments only up to a
fraction of a standard error. It is valid nevertheless.
"""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpverify.events.region import exact_scenario_size, scenario_size
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.exact import (
    claim_p_value,
    delta_lower_bound,
    epsilon_lower_bound,
    rejection_region,
)
from dpverify.stats.paper import p_values

costly = settings(max_examples=settings().max_examples // 4)
levels = st.floats(1e-9, 0.5)
claims = st.floats(0, 4)
deltas = st.sampled_from([0.0, 0.01, 0.1])


@st.composite
def two_counts(draw, most=40):
    m1, m2 = draw(st.integers(1, most)), draw(st.integers(1, most))
    return draw(st.integers(0, m1)), draw(st.integers(0, m2)), (m1, m2)


@given(st.integers(1, 10**10), st.floats(0, 1), levels, st.floats(1, 10))
def test_limits_enclose_the_share_and_are_monotone_in_count_runs_and_level(m, share, alpha, factor):
    c = int(share * m)
    low, high = clopper_pearson_lower(c, m, alpha), clopper_pearson_upper(c, m, alpha)
    assert 0 <= low <= c / m <= high <= 1
    assert clopper_pearson_upper(m - c, m, alpha) == pytest.approx(1 - low, abs=1e-9)
    assert clopper_pearson_lower(c, m, alpha / factor) <= low * (1 + 1e-9)
    assert clopper_pearson_upper(c, m, alpha / factor) >= high * (1 - 1e-9)
    assert clopper_pearson_lower(c + 1, m + 1, alpha) >= low * (1 - 1e-9)
    assert clopper_pearson_upper(c, m + 1, alpha) <= high * (1 + 1e-9)
    if c < m:
        assert clopper_pearson_lower(c + 1, m, alpha) >= low * (1 - 1e-9)
        assert clopper_pearson_upper(c + 1, m, alpha) >= high * (1 - 1e-9)


@given(two_counts(2000))
def test_p_values_are_monotone_in_the_counts_and_swap_with_the_data_sets(counts):
    c1, c2, (m1, m2) = counts
    rng = np.random.default_rng(0)
    forward, backward = p_values(c1, c2, (m1, m2), 0.0, rng)
    assert p_values(c2, c1, (m2, m1), 0.0, rng) == (backward, forward)
    more = p_values(min(c1 + 1, m1), max(c2 - 1, 0), (m1, m2), 0.0, rng)
    assert more[0] <= forward * (1 + 1e-9)
    assert more[1] >= backward * (1 - 1e-9)


@costly
@given(two_counts(), two_counts(), levels, deltas, st.none() | claims)
def test_rejection_regions_are_nested(first_pair, second_pair, alpha, delta, epsilon):
    """The validity of the bounds depends on this property, for either free parameter."""
    c1, c2, runs = first_pair
    d1, d2 = min(second_pair[0], runs[0]), min(second_pair[1], runs[1])
    ratio = None if epsilon is None else math.exp(epsilon)
    regions = [rejection_region(*pair, runs, alpha, ratio, delta) for pair in ((c1, c2), (d1, d2))]
    start = max(int(region.first_counts[0]) for region in regions)
    stop = min(int(region.first_counts[-1]) for region in regions)
    assume(start <= stop)
    offsets = [int(region.first_counts[0]) for region in regions]
    a, b = (
        region.least_counts[start - offset : stop + 1 - offset] for region, offset in zip(regions, offsets, strict=True)
    )
    assert (a <= b).all() or (a >= b).all()
    if d1 >= c1 and d2 <= c2:
        assert (b >= a).all()


@costly
@given(two_counts(), levels, deltas, claims)
def test_lower_bounds_rise_with_the_first_count(counts, alpha, delta, epsilon):
    c1, c2, (m1, m2) = counts
    assume(c1 < m1)
    # The p-value at the bound is alpha up to a relative error of 1e-5.
    tolerance = 1e-5 * rejection_region(c1, c2, (m1, m2), alpha, None, delta).standard_error
    bound, more = epsilon_lower_bound([c1, c1 + 1], c2, (m1, m2), delta, alpha)
    assert more >= bound - tolerance
    bound, more = delta_lower_bound([c1, c1 + 1], c2, (m1, m2), epsilon, alpha)
    assert more >= bound - 1e-5


@costly
@given(two_counts(), levels, deltas, claims, st.floats(0, 1))
def test_a_weaker_claim_has_the_larger_p_value(counts, alpha, delta, epsilon, more):
    p, weaker = claim_p_value(*counts, [epsilon, epsilon + more], delta, alpha)
    assert weaker >= p - 5e-4 * alpha  # the error of the certified supremum


@costly
@given(two_counts(), st.floats(1e-9, 0.2), deltas, claims)
def test_lower_bounds_lie_below_the_plug_in_estimate(counts, alpha, delta, epsilon):
    c1, c2, (m1, m2) = counts
    f1, f2 = c1 / m1, c2 / m2
    assert delta_lower_bound(*counts, epsilon, alpha) <= max(0.0, f1 - math.exp(epsilon) * f2)
    bound = epsilon_lower_bound(*counts, delta, alpha)
    assert 0 <= bound < math.inf
    assert bound == 0 or f1 - delta > f2 * math.exp(bound)


@given(st.integers(1, 6), st.integers(1, 6), levels, levels, st.floats(1, 10))
def test_a_larger_or_more_certain_region_needs_more_runs(dimension, steps, beta, gamma, factor):
    for size in (scenario_size, exact_scenario_size):
        runs = size(dimension, beta, gamma, steps)
        assert runs <= size(dimension, beta / factor, gamma, steps)
        assert runs <= size(dimension, beta, gamma / factor, steps)
        assert runs < size(dimension + 1, beta, gamma, steps)
        assert runs < size(dimension, beta, gamma, steps + 1)
    assert exact_scenario_size(dimension, beta, gamma, steps) <= scenario_size(dimension, beta, gamma, steps)
