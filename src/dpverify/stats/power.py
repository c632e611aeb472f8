"""The power of the test: how many runs are needed, and which violations a number of runs can detect.

The formulas are normal approximations to the score test (docs/method.md, section 5). They serve for planning; no
certified statement depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import scipy

from dpverify.errors import InputError
from dpverify.util.checks import check_delta, check_epsilon, check_probability

MAX_PLANNED_RUNS = 10**18  # more runs than this cannot be drawn in practice


class _ExcessMoments(NamedTuple):
    """Moments of the excess `f1 - e^epsilon f2 - delta` of the observed shares, for one run per data set."""

    mean: float
    deviation_under_claim: float
    true_deviation: float


def _excess_moments(p1: float, p2: float, epsilon: float, delta: float) -> _ExcessMoments:
    """Return the mean of the excess and its standard deviation, at the constrained estimates and at (p1, p2)."""
    scale = math.exp(epsilon)
    cap = min(1.0, (1 - delta) / scale)

    def likelihood_slope(q2: float) -> float:  # of the expected log-likelihood along q1 = e^epsilon q2 + delta
        q1 = scale * q2 + delta
        return scale * (p1 - q1) / (q1 * (1 - q1)) + (p2 - q2) / (q2 * (1 - q2))

    margin = 1e-12 * cap
    low, high = margin, cap - margin
    if likelihood_slope(low) <= 0:
        q2 = low
    elif likelihood_slope(high) >= 0:
        q2 = high
    else:
        q2 = _find_root(likelihood_slope, low, high)

    def deviation(first: float, second: float) -> float:
        return math.sqrt(first * (1 - first) + scale**2 * second * (1 - second))

    return _ExcessMoments(p1 - scale * p2 - delta, deviation(scale * q2 + delta, q2), deviation(p1, p2))


def power(runs: int, p1: float, p2: float, epsilon: float, delta: float = 0.0, alpha: float = 0.05) -> float:
    """Return the probability that a test with so many runs per data set refutes `p1 <= e^epsilon p2 + delta`.

    Examples
    --------
    >>> round(power(1000, 0.3, 0.1, epsilon=0.9), 2)
    0.6
    """
    excess = _excess_moments(p1, p2, epsilon, delta)
    if excess.true_deviation == 0:
        return float(excess.mean > 0)
    threshold = scipy.special.ndtri(alpha) * excess.deviation_under_claim
    z = (excess.mean * math.sqrt(runs) + threshold) / excess.true_deviation
    return float(scipy.special.ndtr(z))


def plan_runs(
    epsilon: float, true_epsilon: float, event_mass: float, delta: float = 0.0, alpha: float = 0.05, power: float = 0.8
) -> int:
    """Return how many test runs per data set refute a false claim with a given probability.

    Parameters
    ----------
    epsilon : float
        The claimed epsilon, at least 0.
    true_epsilon : float
        The true epsilon on the event, above the claimed one.
    event_mass : float
        The probability of the event under the data set for which it is more likely.
    delta : float
        The delta of the claim, and of the truth.
    alpha : float
        The level of the test.
    power : float
        The probability with which the claim is refuted.

    Returns
    -------
    int
        The number of test runs per data set, by a normal approximation.

    Raises
    ------
    InputError
        If an argument is out of its range, or if the claim is true: no number of runs refutes a true claim.

    Examples
    --------
    >>> plan_runs(epsilon=0.5, true_epsilon=1.0, event_mass=0.3)
    234
    """
    check_epsilon(epsilon)
    check_epsilon(true_epsilon, "true_epsilon")
    check_delta(delta)
    for name, value in (("alpha", alpha), ("power", power), ("event_mass", event_mass)):
        check_probability(name, value)
    if true_epsilon <= epsilon or event_mass <= delta:
        raise InputError(
            f"true_epsilon: found {true_epsilon} for a claim of {epsilon}, event_mass {event_mass} and delta {delta}; "
            "expected true_epsilon above epsilon and event_mass above delta; no number of runs refutes a true claim"
        )
    excess = _excess_moments(event_mass, (event_mass - delta) * math.exp(-true_epsilon), epsilon, delta)
    ndtri = scipy.special.ndtri
    deviation = -ndtri(alpha) * excess.deviation_under_claim + ndtri(power) * excess.true_deviation
    return max(1, math.ceil((max(0.0, deviation) / excess.mean) ** 2))


def detectable_epsilon(runs: int, p2: float, epsilon: float, delta: float, alpha: float, target: float = 0.8) -> float:
    """Return the smallest true epsilon that so many runs per data set refute with probability `target`.

    `p2` is the probability of the event under the data set for which it is less likely. The result is infinite where no
    epsilon reaches the target, and the claimed epsilon where a true claim does, which needs a level above the target.

    Examples
    --------
    >>> round(detectable_epsilon(5000, 0.1, epsilon=0.5, delta=0.0, alpha=0.05), 3)
    0.627
    """
    highest = math.log((1 - delta) / p2)
    if highest <= epsilon or power(runs, 1.0, p2, epsilon, delta, alpha) < target:
        return math.inf

    def missing_power(true_epsilon: float) -> float:
        p1 = min(1.0, math.exp(true_epsilon) * p2 + delta)
        return power(runs, p1, p2, epsilon, delta, alpha) - target

    return epsilon if missing_power(epsilon) >= 0 else _find_root(missing_power, epsilon, highest)


def _find_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a function between two points where its signs differ."""
    return float(scipy.optimize.brentq(function, low, high, xtol=1e-15))  # type: ignore[arg-type]
