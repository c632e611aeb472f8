"""The power of the test of a claim that is a curve, by normal approximations. No certified statement depends on it."""

from __future__ import annotations

import math

import scipy

from dpverify.stats.claim_kinds import Claim

TARGET_POWER = 0.8


def runs_to_refute(p1: float, p2: float, claim: Claim, alpha: float, power: float = TARGET_POWER) -> float:
    """Return how many runs per data set refute `p1 <= boundary(p2)` with a given probability; infinite if it holds.

    Examples
    --------
    >>> from dpverify.stats.claims import gaussian
    >>> round(runs_to_refute(0.7, 0.3, gaussian(0.9), 0.05))
    995
    """
    allowed = float(claim.boundary(p2))
    if p1 <= allowed:
        return math.inf
    step = 1e-3 * min(p2, 1 - p2)
    slope = float(claim.boundary(p2 + step) - claim.boundary(p2 - step)) / (2 * step)
    under_claim = math.sqrt(allowed * (1 - allowed) + slope**2 * p2 * (1 - p2))
    true = math.sqrt(p1 * (1 - p1) + slope**2 * p2 * (1 - p2))
    return max(
        1.0, ((-scipy.special.ndtri(alpha) * under_claim + scipy.special.ndtri(power) * true) / (p1 - allowed)) ** 2
    )


def detectable_probability(runs: int, p2: float, claim: Claim, alpha: float) -> float:
    """Return the smallest p1 that so many runs refute with probability 80%; infinite where none does.

    Examples
    --------
    >>> from dpverify.stats.claims import gaussian
    >>> round(detectable_probability(995, 0.3, gaussian(0.9), 0.05), 3)
    0.7
    """
    allowed = float(claim.boundary(p2))
    if allowed >= 1 or runs_to_refute(1.0, p2, claim, alpha) > runs:
        return math.inf
    smallest = allowed + 1e-12 * (1 - allowed)

    def missing(p1: float) -> float:
        return math.log(runs_to_refute(p1, p2, claim, alpha) / runs)

    if missing(smallest) <= 0:
        return smallest
    return float(scipy.optimize.brentq(missing, smallest, 1.0, xtol=1e-15))  # type: ignore[arg-type]
