"""Bounded Laplace mechanism.

Holohan, Antonatos, Braghin and Mac Aonghusa, The bounded Laplace mechanism in differential privacy, 2020.

Laplace noise around a number is drawn again until the output lies between 0 and 20. The naive version keeps the scale
1/eps of the unbounded mechanism; the source derives a larger scale.

Neighbours: The number changes by at most 1; here from 0, the edge of the range, to 1.

Why: Drawing again divides the density by the probability of the range, which depends on the data: one half at the edge
and 1 - exp(-eps)/2 at distance 1. The ratio of these probabilities adds log(2 - exp(-eps)) to the loss, so the naive
scale gives 1.49 at the claim 1. The scale of the source solves 1/b + log(C(1)/C(0)) = eps; with it the claim holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpverify import claims
from gallery.entry import Case, Runs, Truth, approximate_truth, make_entry


@dataclass(frozen=True)
class BoundedLaplace:
    """Laplace noise, drawn again until the output lies between 0 and `top`.

    Attributes
    ----------
    scale : float
        The scale of the noise.
    top : float
        The upper end of the range.

    Examples
    --------
    >>> samples = BoundedLaplace(1.0)(0.0, 1000, np.random.default_rng(0))
    >>> bool((samples >= 0).all() and (samples <= 20).all())
    True
    """

    scale: float
    top: float = 20.0

    def inside(self, centre: float) -> float:
        """Return the probability that one draw lies in the range."""
        return 1 - 0.5 * (math.exp(-centre / self.scale) + math.exp(-(self.top - centre) / self.scale))

    def __call__(self, data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return outputs inside the range, by the inverse of the distribution function."""
        centre = float(data)
        low = 0.5 * math.exp(-centre / self.scale)  # the probability below the range
        p = low + self.inside(centre) * rng.random(runs)
        sign, tail = np.where(p < 0.5, -1.0, 1.0), np.where(p < 0.5, p, 1 - p)
        return np.clip(centre - sign * self.scale * np.log(2 * tail), 0, self.top)


def corrected_scale(epsilon: float, top: float = 20.0) -> float:
    """Return the smallest scale b with 1/b + log(C(1)/C(0)) = epsilon, where C is the probability of the range."""
    low, high = 1 / epsilon, 10 / epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if edge_loss(BoundedLaplace(middle, top)) > epsilon else (low, middle)
    return high


def edge_loss(mechanism: BoundedLaplace) -> float:
    """Return the largest loss for the data 0 and 1, which occurs at the output 0."""
    return 1 / mechanism.scale + math.log(mechanism.inside(1.0) / mechanism.inside(0.0))


def bounded_truth(mechanism: BoundedLaplace) -> Truth:
    """Return the truth for the data 0 and 1; the probability of a loss near its supremum is that of small outputs."""
    supremum, b = edge_loss(mechanism), mechanism.scale
    normaliser = math.log(mechanism.inside(1.0) / mechanism.inside(0.0))
    edges = np.linspace(0, mechanism.top, 200_001)
    middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    loss = (np.abs(middle - 1) - middle) / b + normaliser
    density = np.exp(-middle / b) / (2 * b * mechanism.inside(0.0))

    def delta_at(epsilon: float) -> float:
        forwards = np.maximum(-np.expm1(epsilon - loss), 0) * density
        backwards = np.maximum(np.exp(-loss) - math.exp(epsilon), 0) * density
        return float(max(forwards.sum(), backwards.sum()) * width)

    mass = float(density[loss >= 0.99 * supremum].sum() * width)
    return approximate_truth(delta_at, claims.pure(1.0), "closed form", supremum, mass)


def bounded_case(name: str, title: str, scale: float, corrected: bool) -> Case:
    """Return a case at the claim epsilon 1 with the data at the edge of the range."""
    mechanism = BoundedLaplace(scale)
    return Case(
        name,
        title,
        mechanism,
        (0.0, 1.0),
        claims.pure(1.0),
        partial(bounded_truth, mechanism),
        "corrected" if corrected else "control",
        full=Runs(500_000, 4_000_000),
        quick=Runs(20_000, 100_000),
    )


ENTRY = make_entry(
    __name__,
    __doc__,
    bounded_case("bounded-laplace-naive", "scale 1/eps", 1.0, False),
    bounded_case("bounded-laplace", "scale of the source", corrected_scale(1.0), True),
)
