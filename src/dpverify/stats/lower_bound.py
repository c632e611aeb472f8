"""Certified lower bounds from two counts, by the exact unconditional score test (docs/method.md, section 5.2).

`c1 ~ Bin(m1, p1)` and `c2 ~ Bin(m2, p2)` count one frozen event; the claim is `p1 <= R p2 + delta`, `R = e^epsilon`.
The rejection region of the observed pair does not depend on the claim. So its largest probability under the claim, over
p2 in a Clopper-Pearson interval at confidence `1 - alpha/1000` (Berger and Boos), rises with the claim, and the bound
is the largest claim at which it is at most alpha (Buehler).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import overload

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.stats.largest_p_value import largest_p_value
from dpverify.stats.rejection_region import rejection_region
from dpverify.util.checks import BELOW_ONE, Runs, check_array, check_counts, check_probability, runs_per_side

MAX_RUNS = 10**12  # beyond it double precision cannot distinguish a proportion near 1 from its neighbours
MAX_EPSILON = 100.0  # no larger epsilon can be certified: p1 may be 1 and p2 practically 0
MAX_SEARCH_STEPS = 200
MAX_SECANT_STEPS = 20  # after them the search bisects
LEVEL_TOLERANCE = 1e-5  # relative; the p-value at the bound lies below alpha by at most this
PointFunction = Callable[[int, int, tuple[int, int], float, float, float], float]


@lru_cache(maxsize=4096)
def _lower_bound(c1: int, c2: int, runs: tuple[int, int], alpha: float, epsilon: float | None, delta: float) -> float:
    """Return the largest rejected value of the free parameter, 0.0 if there is none.

    The free parameter is epsilon if `epsilon` is None, else delta.
    """
    ratio = None if epsilon is None else math.exp(epsilon)
    region = rejection_region(c1, c2, runs, alpha, ratio, delta)

    def p_value(value: float) -> float:
        return largest_p_value(region, *((math.exp(value), delta) if ratio is None else (ratio, value)))

    highest = MAX_EPSILON if ratio is None else 1.0
    start = min(max(region.score_root, 0.0), highest)
    return largest_rejected(p_value, alpha, start, min(region.standard_error, highest), highest)


def largest_rejected(
    p_value: Callable[[float], float], alpha: float, start: float, scale: float, high: float = math.inf
) -> float:
    """Return the largest value, from 0 up, at which a rising p-value is at most alpha; 0.0 if there is none.

    The p-value at the result is at least `(1 - 1e-5) alpha`. The search uses secants on the normal scale, where the
    p-value is nearly linear.

    Parameters
    ----------
    p_value : callable
        The p-value of a parameter, which does not fall.
    alpha : float
        The level.
    start : float
        The first value that is tried.
    scale : float
        The standard error of the parameter, roughly.
    high : float
        No larger value is rejected.

    Examples
    --------
    >>> largest = largest_rejected(lambda value: float(scipy.special.ndtr(value - 3.0)), 0.05, start=1.0, scale=1.0)
    >>> round(largest, 3)
    1.355
    """
    goal = float(scipy.special.ndtri(alpha * (1.0 - LEVEL_TOLERANCE / 2)))
    low = 0.0  # the largest rejected value so far
    value, slope = start, scale
    previous: tuple[float, float] | None = None
    for step in range(MAX_SEARCH_STEPS):
        p = p_value(value)
        if p > alpha:
            high = value
        else:
            low = value
        if high == 0.0 or alpha * (1.0 - LEVEL_TOLERANCE) <= p <= alpha or high - low <= 1e-7 * scale:
            break
        quantile = float(scipy.special.ndtri(min(max(p, 1e-300), 1.0 - 1e-15)))
        if previous is not None and (value - previous[0]) * (quantile - previous[1]) > 0.0:
            slope = (value - previous[0]) / (quantile - previous[1])
        previous = (value, quantile)
        value = value + min(max((goal - quantile) * slope, -8.0 * scale), 8.0 * scale)
        if not low < value < high or step > MAX_SECANT_STEPS:
            value = 0.0 if value <= low == 0.0 else (low + min(high, 2.0 * low + 1.0)) / 2.0
    return low


def _p_value(
    limit: float, c1: int, c2: int, runs: tuple[int, int], alpha: float, epsilon: float, delta: float
) -> float:
    """Return the p-value of one claim, which is at most alpha exactly where epsilon lies below the lower bound."""
    region = rejection_region(c1, c2, runs, alpha, None, delta)
    p = largest_p_value(region, math.exp(epsilon), delta, max(limit, 2 * alpha))
    if not alpha / 2 < p < 2 * alpha:  # far from alpha the bound agrees with the p-value
        return p
    # The bound and the p-value both come from upper bounds on one rising function. Where they disagree about alpha, the
    # difference lies within the error of these upper bounds, and either decision is valid.
    if epsilon < _lower_bound(c1, c2, runs, alpha, None, delta):
        return min(p, alpha)
    return max(p, math.nextafter(alpha, 1.0))


def is_rejected(c1: int, c2: int, runs: int, epsilon: float, delta: float, alpha: float) -> bool:
    """Return whether the test at level alpha rejects the claim `p1 <= e^epsilon p2 + delta`.

    It needs one evaluation of the test. Near alpha, `claim_p_value` also searches the lower bound.

    Examples
    --------
    >>> is_rejected(300, 100, 1000, 0.5, 0.0, 1e-3), is_rejected(300, 100, 1000, 1.0, 0.0, 1e-3)
    (True, False)
    """
    region = rejection_region(c1, c2, (runs, runs), alpha, None, delta)
    return largest_p_value(region, math.exp(min(epsilon, MAX_EPSILON)), delta, alpha) <= alpha


def score_lower_bound(c1: int, c2: int, runs: int, delta: float, alpha: float) -> float:
    """Return the lower bound on epsilon by the score test. It is close to `epsilon_lower_bound`, but not certified.

    Examples
    --------
    >>> round(score_lower_bound(300, 100, 1000, 0.0, 1e-3), 2)
    0.77
    """
    return rejection_region(c1, c2, (runs, runs), alpha, None, delta).score_root


def _vectorise(
    function: PointFunction,
    c1: ArrayLike,
    c2: ArrayLike,
    runs: Runs,
    alpha: float,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> float | np.ndarray:
    """Check the arguments, then apply a function of one pair of counts and one claim to all of them."""
    m1, m2 = runs_per_side(runs, MAX_RUNS)
    check_probability("alpha", alpha)
    first_counts, second_counts = check_counts("c1", c1, m1), check_counts("c2", c2, m2)
    deltas = check_array("delta", delta, 0.0, BELOW_ONE, "a number from 0 up and below 1")
    epsilons = check_array("epsilon", epsilon, 0.0, 1.7e308, "a finite number from 0 up")
    try:
        cases = np.broadcast(first_counts, second_counts, np.minimum(epsilons, MAX_EPSILON), deltas)
    except ValueError:
        shapes = ", ".join(str(np.shape(values)) for values in (c1, c2, epsilon, delta))
        raise InputError(
            f"c1, c2, epsilon, delta: found shapes {shapes}; expected shapes that broadcast against each other"
        ) from None
    level = float(alpha)
    results = [function(int(a), int(b), (m1, m2), level, float(e), float(d)) for a, b, e, d in cases]
    return np.array(results, dtype=float).reshape(cases.shape) if cases.ndim else results[0]


@overload
def epsilon_lower_bound(c1: float, c2: float, runs: Runs, delta: float = 0.0, alpha: float = 0.05) -> float: ...
@overload
def epsilon_lower_bound(
    c1: ArrayLike, c2: ArrayLike, runs: Runs, delta: ArrayLike = 0.0, alpha: float = 0.05
) -> np.ndarray: ...
def epsilon_lower_bound(
    c1: ArrayLike, c2: ArrayLike, runs: Runs, delta: ArrayLike = 0.0, alpha: float = 0.05
) -> float | np.ndarray:
    """Return a certified lower bound on epsilon in `p1 <= e^epsilon p2 + delta`.

    With probability at least `1 - alpha` the bound is not above the true epsilon (docs/method.md, section 5.2).

    Parameters
    ----------
    c1, c2 : array_like of int
        How many runs of the first and of the second data set were in the event. The event must be fixed before the
        runs.
    runs : number, or pair of numbers
        The runs per data set, or those of the first and of the second data set, at most 10^12.
    delta : array_like
        The delta of the claim, at least 0 and below 1. `c1`, `c2` and `delta` broadcast.
    alpha : float
        The probability of an error.

    Returns
    -------
    float or numpy.ndarray
        The bound, always finite; 0.0 where nothing is proved. Scalar arguments give a float.

    Raises
    ------
    InputError
        If an argument is out of its range, or the shapes do not broadcast.

    Examples
    --------
    >>> round(epsilon_lower_bound(300, 100, 1000), 3)
    0.926
    >>> epsilon_lower_bound([300, 100], 100, 1000, delta=0.1).round(3).tolist()
    [0.497, 0.0]
    """
    return _vectorise(
        lambda a, b, m, level, _, d: _lower_bound(a, b, m, level, None, d), c1, c2, runs, alpha, 0.0, delta
    )


@overload
def delta_lower_bound(c1: float, c2: float, runs: Runs, epsilon: float, alpha: float = 0.05) -> float: ...
@overload
def delta_lower_bound(
    c1: ArrayLike, c2: ArrayLike, runs: Runs, epsilon: ArrayLike, alpha: float = 0.05
) -> np.ndarray: ...
def delta_lower_bound(
    c1: ArrayLike, c2: ArrayLike, runs: Runs, epsilon: ArrayLike, alpha: float = 0.05
) -> float | np.ndarray:
    """Return a certified lower bound on delta in `p1 <= e^epsilon p2 + delta`, at a given epsilon.

    Each value holds at confidence `1 - alpha` on its own. Pairs of counts are ordered by delta here and by epsilon in
    `epsilon_lower_bound`, so the two may disagree about a claim that is only just refuted (docs/method.md, section
    5.2).

    Parameters
    ----------
    c1, c2 : array_like of int
        How many runs of the first and of the second data set were in the event. The event must be fixed before the
        runs.
    runs : number, or pair of numbers
        The runs per data set, or those of the first and of the second data set, at most 10^12.
    epsilon : array_like
        The epsilon of the claim, at least 0. `c1`, `c2` and `epsilon` broadcast.
    alpha : float
        The probability of an error.

    Returns
    -------
    float or numpy.ndarray
        The bound; 0.0 where nothing is proved. Scalar arguments give a float.

    Raises
    ------
    InputError
        If an argument is out of its range, or the shapes do not broadcast.

    Examples
    --------
    >>> round(delta_lower_bound(300, 100, 1000, epsilon=0.5), 3)
    0.099
    """
    return _vectorise(_lower_bound, c1, c2, runs, alpha, epsilon, 0.0)


@overload
def claim_p_value(
    c1: float, c2: float, runs: Runs, epsilon: float, delta: float = 0.0, alpha: float = 0.05, limit: float = 1.0
) -> float: ...
@overload
def claim_p_value(
    c1: ArrayLike,
    c2: ArrayLike,
    runs: Runs,
    epsilon: ArrayLike,
    delta: ArrayLike = 0.0,
    alpha: float = 0.05,
    limit: float = 1.0,
) -> np.ndarray: ...
def claim_p_value(
    c1: ArrayLike,
    c2: ArrayLike,
    runs: Runs,
    epsilon: ArrayLike,
    delta: ArrayLike = 0.0,
    alpha: float = 0.05,
    limit: float = 1.0,
) -> float | np.ndarray:
    """Return a valid p-value of the claim `p1 <= e^epsilon p2 + delta`.

    It is at most `alpha` exactly where `epsilon < epsilon_lower_bound(c1, c2, runs, delta, alpha)`. The p-value depends
    on `alpha`, which orders the pairs of counts (through `z_{1-alpha}`). A share of alpha/1000 goes to the interval of
    the nuisance parameter, so no p-value is smaller than that. For an alpha that is fixed beforehand the p-value is
    valid at every level (docs/method.md, section 5.2).

    Parameters
    ----------
    c1, c2 : array_like of int
        How many runs of the first and of the second data set were in the event. The event must be fixed before the
        runs.
    runs : number, or pair of numbers
        The runs per data set, or those of the first and of the second data set, at most 10^12.
    epsilon, delta : array_like
        The claim. `c1`, `c2`, `epsilon` and `delta` broadcast.
    alpha : float
        The level for which the test is optimised.
    limit : float
        A p-value above it and above `2 * alpha` is not computed further: the result is then some number above both.

    Returns
    -------
    float or numpy.ndarray
        The p-value, above 0 and at most 1. Scalar arguments give a float.

    Raises
    ------
    InputError
        If an argument is out of its range, or the shapes do not broadcast.

    Examples
    --------
    >>> claim_p_value(300, 100, 1000, epsilon=0.5) < 0.05 < claim_p_value(300, 100, 1000, epsilon=1.0)
    True
    """
    return _vectorise(partial(_p_value, limit), c1, c2, runs, alpha, epsilon, delta)
