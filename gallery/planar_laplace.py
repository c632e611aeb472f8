"""Geo-indistinguishability: the planar Laplace mechanism.

Andrés, Bordenabe, Chatzikokolakis and Palamidessi, Geo-indistinguishability, 2013.

A position is reported with noise of density eps^2/(2 pi) exp(-eps |z - x|), here with eps 0.004 per metre. The radius
comes from the Lambert function W; one deployed implementation rounds W to six decimals.

Neighbours: Two positions at distance d; the claim is eps d, here 1 for 250 m.

Why: The loss reaches eps d only on the ray that points away from the other position, so no event of positive
probability shows exactly 1. With W rounded to six decimals the reported position lies on one of many rings around the
true position, 0.25 mm apart. An adversary who considers a candidate position measures the distance to it: for the true
position it is a multiple of the ring spacing in every run, for another position hardly ever. The event needs the
candidate position; a score that knows it is passed to the verification. Drawing the radius without rounding restores
the claim up to floating-point effects, which are far smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import gamma

from dpverify import claims
from gallery.entry import Case, Runs, Truth, approximate_truth, make_entry

EPSILON = 0.004  # per metre

FIRST, SECOND = np.array([0.0, 0.0]), np.array([250.0, 0.0])  # metres; epsilon times the distance is 1

ROUNDED_DECIMALS = 6

SMALLEST_DISTANCE = 1e-9  # to a ring, in units of the rings; smaller distances are rounding errors


@dataclass(frozen=True)
class PlanarLaplace:
    """Report a position with a density that falls as exp(-epsilon distance).

    The radius is -(W((p - 1)/e) + 1)/epsilon with the branch -1 of the Lambert function W and a uniform p; this is a
    gamma variable of shape 2.

    Attributes
    ----------
    epsilon : float
        Epsilon per metre.
    decimals : int or None
        Decimals to which W is rounded, or None.

    Examples
    --------
    >>> PlanarLaplace(0.004)(np.zeros(2), 5, np.random.default_rng(0)).shape
    (5, 2)
    """

    epsilon: float
    decimals: int | None = None

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return reported positions."""
        radius = rng.gamma(2.0, size=runs)  # epsilon times the radius: minus W minus 1
        if self.decimals is not None:
            radius = np.round(radius, self.decimals)
        angle = rng.uniform(0, 2 * np.pi, runs)
        return data + radius[:, None] / self.epsilon * np.column_stack([np.cos(angle), np.sin(angle)])


def closeness_to_rings(samples: np.ndarray) -> np.ndarray:
    """Return how close outputs are to rings around the first position: -log10 of the distance in units of the rings."""
    radius = EPSILON * 10.0**ROUNDED_DECIMALS * np.hypot(*(np.asarray(samples)[:, 0] - FIRST).T)
    return -np.log10(np.abs(radius - np.round(radius)) + SMALLEST_DISTANCE)


@cache
def planar_loss(distance: float, steps: int = 2000) -> np.ndarray:
    """Return the privacy loss of equally likely outputs, for two positions at this distance in units of 1/epsilon."""
    radius = gamma.ppf((np.arange(steps) + 0.5) / steps, 2.0)
    angle = np.pi * (np.arange(steps) + 0.5) / steps
    other = np.sqrt(radius[:, None] ** 2 + distance**2 - 2 * distance * radius[:, None] * np.cos(angle))
    return (other - radius[:, None]).ravel()


def planar_delta(epsilon: float, distance: float = 1.0) -> float:
    """Return delta of the planar Laplace mechanism for two positions at this distance in units of 1/epsilon.

    Examples
    --------
    >>> round(planar_delta(0.5), 3), round(planar_delta(0.9), 4)
    (0.123, 0.0125)
    """
    return float(np.maximum(-np.expm1(epsilon - planar_loss(distance)), 0).mean())


def truth() -> Truth:
    """Return the truth of the exact mechanism at epsilon times distance 1."""
    mass = float((planar_loss(1.0) >= 0.99).mean())
    return approximate_truth(planar_delta, claims.pure(1.0), "quadrature", 1.0, mass)


def rounded_truth() -> Truth:
    """Return the truth with a rounded radius: rings around the two positions meet in single points only."""
    return Truth(float("inf"), 1.0, "disjoint supports", 1.0)


ENTRY = make_entry(
    __name__,
    __doc__,
    Case(
        "planar-laplace",
        "radius in double precision",
        PlanarLaplace(EPSILON),
        (FIRST, SECOND),
        claims.pure(1.0),
        truth,
        full=Runs(500_000, 4_000_000),
    ),
    Case(
        "planar-laplace-rounded",
        "W rounded to six decimals",
        PlanarLaplace(EPSILON, ROUNDED_DECIMALS),
        (FIRST, SECOND),
        claims.pure(1.0),
        rounded_truth,
        role="implemented",
        events=closeness_to_rings,
    ),
    Case(
        "planar-laplace-same-score",
        "radius in double precision, tested with the same score",
        PlanarLaplace(EPSILON),
        (FIRST, SECOND),
        claims.pure(1.0),
        truth,
        role="corrected",
        events=closeness_to_rings,
    ),
)
