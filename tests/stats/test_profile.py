"""P-values far below alpha, and curves of bounds on delta."""

import math

import numpy as np
import pytest

from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.exact import P_VALUE_FLOOR, claim_p_value, small_p_value
from dpverify.stats.upper import PROFILE_EPSILONS, delta_lower_curve, delta_upper_bound, delta_upper_curve

RUNS = 500


@pytest.mark.parametrize(("c1", "c2"), [(120, 118), (150, 118), (170, 118)])
def test_a_p_value_above_the_floor_is_that_of_the_test(c1, c2):
    p_value = claim_p_value(c1, c2, RUNS, 0.1, 0.0, 0.05)
    assert p_value > P_VALUE_FLOOR * 0.05
    assert small_p_value(c1, c2, RUNS, 0.1, 0.0, 0.05) == p_value


def test_a_small_p_value_is_a_level_at_which_the_test_rejects():
    p_value = small_p_value(301, 118, RUNS, 0.3, 0.0, 0.05)
    assert p_value == pytest.approx(5e-11)
    assert claim_p_value(301, 118, RUNS, 0.3, 0.0, p_value) <= p_value


@pytest.mark.parametrize("limit", [0.0, 0.08, 0.3, 0.9])
@pytest.mark.parametrize("runs", [RUNS, 100_000])
def test_a_p_value_up_to_the_limit_is_exact(runs, limit):
    c2, alpha = round(0.2 * runs), 0.05
    for c1 in np.linspace(0.2 * runs, 0.4 * runs, 12).round().astype(int).tolist():
        p_value = small_p_value(c1, c2, runs, 0.3, 0.0, alpha)
        limited = small_p_value(c1, c2, runs, 0.3, 0.0, alpha, limit)
        assert limited == p_value or min(limited, p_value) > max(limit, 2 * alpha)


def test_the_lower_curve_uses_half_of_alpha_for_each_limit():
    curve = delta_lower_curve(301, 118, RUNS, PROFILE_EPSILONS, 0.05)
    first, second = clopper_pearson_lower(301, RUNS, 0.025), clopper_pearson_upper(118, RUNS, 0.025)
    np.testing.assert_allclose(curve, [max(first - math.exp(epsilon) * second, 0) for epsilon in PROFILE_EPSILONS])


def test_the_upper_curve_is_at_least_each_single_bound():
    c1, c2 = np.array([200, 180, 120]), np.array([120, 180, 200])
    curve = delta_upper_curve(c1, c2, RUNS, PROFILE_EPSILONS, 0.05)
    single = [
        max(delta_upper_bound(a, b, RUNS, epsilon, 0.05) for a, b in ((c1, c2), (c2, c1)))
        for epsilon in PROFILE_EPSILONS.tolist()
    ]
    assert (curve >= np.array(single) - 1e-9).all()
