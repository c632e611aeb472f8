"""Small p-values, and bounds on delta that hold at many epsilons together.

`small_p_value` repeats the exact test at smaller levels, because the p-value of one level has a lower limit. The two
curves bound delta as a function of epsilon: each curve holds as a whole at its own confidence level.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.claim_kinds import Approximate, Claim
from dpverify.stats.curve_test import curve_p_value
from dpverify.stats.lower_bound import claim_p_value, is_rejected
from dpverify.stats.upper_bound import frontier, frontier_bounds

# The p-value of the test at level alpha is never much smaller than this multiple of alpha.
P_VALUE_FLOOR = 2e-3
SMALLEST_TEST_LEVEL = 1e-12
FIRST_LEVEL_RATIO = 1000  # alpha divided by the first smaller level
LEVEL_RATIO = 10**6  # ratio of two consecutive smaller levels

MAX_EXPONENT = 700.0  # exp of more overflows

# The epsilons of a profile are fixed. Epsilons that depend on the test runs would invalidate the upper curve.
PROFILE_EPSILONS = np.array(
    [0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 12, 15], float
)


def small_p_value(c1: int, c2: int, runs: int, epsilon: float, delta: float, alpha: float, limit: float = 1.0) -> float:
    """Return a p-value of the claim `p1 <= e^epsilon p2 + delta` that can be much smaller than alpha.

    A p-value of the exact test at level alpha is at least about alpha / 700. If it reaches `P_VALUE_FLOOR * alpha`, the
    test is repeated at smaller and smaller levels while it rejects, and the last level at which it rejects is returned.
    The result is at most a level only if the test at this level rejects, so it is a valid p-value.

    Parameters
    ----------
    c1, c2 : int
        Runs in the event, under the data set that is expected to have more of them and under the other one.
    runs : int
        Runs per data set.
    epsilon, delta : float
        The claim.
    alpha : float
        Level of the test.
    limit : float
        A p-value above it and above `2 * alpha` is not computed further: the result is then some number above both.
    """
    p_value = claim_p_value(c1, c2, runs, epsilon, delta, alpha, limit)
    return repeat_at_smaller_levels(p_value, alpha, lambda level: is_rejected(c1, c2, runs, epsilon, delta, level))


def small_curve_p_value(c1: int, c2: int, runs: int, claim: Claim, alpha: float, limit: float = 1.0) -> float:
    """Return a p-value of any claim that can be much smaller than alpha, in the same way as `small_p_value`.

    For a curve the p-value is computed whatever the limit is.
    """
    if isinstance(claim, Approximate):
        return small_p_value(c1, c2, runs, claim.epsilon, claim.delta, alpha, limit)
    p_value = curve_p_value(c1, c2, (runs, runs), claim, alpha)
    return repeat_at_smaller_levels(
        p_value, alpha, lambda level: curve_p_value(c1, c2, (runs, runs), claim, level) <= level
    )


def repeat_at_smaller_levels(p_value: float, alpha: float, rejects: Callable[[float], bool]) -> float:
    """Return the p-value of a test at level alpha, or the smallest of some fixed levels at which the test rejects."""
    if p_value > P_VALUE_FLOOR * alpha:
        return p_value
    p_value = P_VALUE_FLOOR * alpha
    level = alpha / FIRST_LEVEL_RATIO
    while level >= SMALLEST_TEST_LEVEL and rejects(level):
        p_value, level = level, level / LEVEL_RATIO
    return p_value


def delta_lower_curve(c1: int, c2: int, runs: int, epsilons: np.ndarray, alpha: float) -> np.ndarray:
    """Return lower bounds on delta that hold at all epsilons together, with confidence 1 - alpha.

    One pair of Clopper-Pearson limits, each at alpha / 2, gives the bound at every epsilon.
    """
    p1, p2 = clopper_pearson_lower(c1, runs, alpha / 2), clopper_pearson_upper(c2, runs, alpha / 2)
    return np.maximum(p1 - np.exp(np.minimum(epsilons, MAX_EXPONENT)) * p2, 0.0)


def delta_upper_curve(c1: np.ndarray, c2: np.ndarray, runs: int, epsilons: np.ndarray, alpha: float) -> np.ndarray:
    """Return upper bounds on delta over unions of cells, in both orders, with confidence 1 - alpha for the whole curve.

    Each epsilon gets an equal share of alpha. Delta over unions of cells is convex in e^epsilon, so between two
    epsilons the chord in e^epsilon is an upper bound too.
    """
    lines = [frontier(a, b, runs, alpha / len(epsilons)) for a, b in ((c1, c2), (c2, c1))]
    return np.clip(np.maximum(*(frontier_bounds(line, epsilons) for line in lines)), 0.0, 1.0)
