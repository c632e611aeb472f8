"""How many runs a question needs, and what given runs can answer (docs/method.md, section 5).

Normal approximations to the score test: they plan, they prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dpverify.errors import InputError
from dpverify.util.checks import check_delta, check_epsilon, check_level

MAX_PLANNED_RUNS = 10**18  # runs; beyond that a question has no answer in practice


def _deviations(p1: float, p2: float, epsilon: float, delta: float) -> tuple[float, float, float]:
    """The mean of f1 - e^eps f2 - delta, and its deviation for one run a side: under the claim, and in truth."""
    scale = math.exp(epsilon)
    top = min(1.0, (1 - delta) / scale)

    def slope(q2: float) -> float:  # of the expected log-likelihood along q1 = e^eps q2 + delta
        q1 = scale * q2 + delta
        return scale * (p1 - q1) / (q1 * (1 - q1)) + (p2 - q2) / (q2 * (1 - q2))

    edge = 1e-12 * top
    low, high = edge, top - edge
    q2 = low if slope(low) <= 0 else high if slope(high) >= 0 else _root(slope, low, high)
    spread = [math.sqrt(q * (1 - q) + scale**2 * r * (1 - r)) for q, r in ((scale * q2 + delta, q2), (p1, p2))]
    return p1 - scale * p2 - delta, spread[0], spread[1]


def power(runs: int, p1: float, p2: float, epsilon: float, delta: float = 0.0, alpha: float = 0.05) -> float:
    """The probability that so many runs a side refute p1 <= e^epsilon p2 + delta at level alpha."""
    mean, claimed, true = _deviations(p1, p2, epsilon, delta)
    if true == 0:
        return float(mean > 0)
    return float(ndtr((mean * math.sqrt(runs) + ndtri(alpha) * claimed) / true))


def plan_runs(
    epsilon: float, true_epsilon: float, event_mass: float, delta: float = 0.0, alpha: float = 0.05, power: float = 0.8
) -> int:
    """Test runs a side that refute (epsilon, delta) with probability `power`, if the truth is (true_epsilon, delta)
    on an event that the likelier side hits with probability `event_mass`."""
    check_epsilon(epsilon)
    check_epsilon(true_epsilon)
    check_delta(delta)
    for name, value in (("alpha", alpha), ("power", power), ("event_mass", event_mass)):
        check_level(name, value)
    if true_epsilon <= epsilon or event_mass <= delta:
        raise InputError(
            f"true_epsilon: found {true_epsilon} for a claim of {epsilon}, event_mass {event_mass} and delta {delta}; "
            "expected a truth that breaks the claim: no number of runs refutes what is true"
        )
    mean, claimed, true = _deviations(event_mass, (event_mass - delta) * math.exp(-true_epsilon), epsilon, delta)
    return max(1, math.ceil((max(0.0, -ndtri(alpha) * claimed + ndtri(power) * true) / mean) ** 2))


def detectable_epsilon(runs: int, p2: float, epsilon: float, delta: float, alpha: float, target: float = 0.8) -> float:
    """The smallest true epsilon that these runs refute with probability `target`; p2 is the other side's mass."""
    top = math.log((1 - delta) / p2)
    if top <= epsilon or power(runs, 1.0, p2, epsilon, delta, alpha) < target:
        return math.inf
    return _root(
        lambda e: power(runs, min(1.0, math.exp(e) * p2 + delta), p2, epsilon, delta, alpha) - target, epsilon, top
    )


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(function, low, high, xtol=1e-15))  # type: ignore[arg-type]
