"""Boundaries of claims with their slopes, as the anytime test needs them (docs/method.md, 5.8).

The boundary of a claim maps a probability q of an event under one data set to the largest probability that the claim
allows under the other one. It is concave, nondecreasing, and at least q. The slope is exact, because a difference of
two values loses all digits where the boundary is much larger than q.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.stats.binomial import FloatArray
from dpverify.stats.claim_kinds import MAX_EXPONENT, Gaussian
from dpverify.stats.supporting_lines import Lines

MAX_QUANTILE = 40.0  # beyond those of all numbers strictly between 0 and 1


class Boundary(Protocol):
    """The boundary of a claim."""

    def __call__(self, q: FloatArray, /) -> FloatArray:
        """Return the largest probability that the claim allows where the other data set has q."""
        ...

    def slope(self, q: FloatArray, /) -> FloatArray:
        """Return the slope at q; at a corner, the slope of one of the two lines that meet there."""
        ...


class LineBoundary(NamedTuple):
    """The boundary of (epsilon, delta)-privacy; arrays describe several claims at once."""

    factor: FloatArray
    delta: FloatArray

    def __call__(self, q: FloatArray, /) -> FloatArray:
        """Return the boundary at q."""
        return np.minimum(1.0, self.factor * q + self.delta)

    def slope(self, q: FloatArray, /) -> FloatArray:
        """Return the slope at q."""
        return np.where(self(q) < 1.0, self.factor, 0.0)


def line_boundary(epsilon: ArrayLike, delta: ArrayLike = 0.0) -> LineBoundary:
    """Return the boundary of (epsilon, delta)-privacy.

    Examples
    --------
    >>> float(line_boundary(0.0, 0.1)(np.array(0.5)))
    0.6
    """
    return LineBoundary(np.exp(np.minimum(epsilon, MAX_EXPONENT)), np.asarray(delta, float))


class GaussianBoundary(NamedTuple):
    """The boundary of Gaussian differential privacy."""

    mu: float

    def __call__(self, q: FloatArray, /) -> FloatArray:
        """Return the boundary at q."""
        return Gaussian(self.mu).boundary(q)

    def slope(self, q: FloatArray, /) -> FloatArray:
        """Return the slope at q: the ratio of two normal densities."""
        quantile = np.clip(scipy.special.ndtri(q), -MAX_QUANTILE, MAX_QUANTILE)
        return np.where(self(q) < 1.0, np.exp(-self.mu * quantile - self.mu**2 / 2), 0.0)


class LinesBoundary(NamedTuple):
    """The lowest of several lines, at least q."""

    lines: Lines

    def __call__(self, q: FloatArray, /) -> FloatArray:
        """Return the boundary at q."""
        return np.maximum(q, self.lines.lowest(q))

    def slope(self, q: FloatArray, /) -> FloatArray:
        """Return the slope at q."""
        lowest = self.lines.lowest(q)
        slope = np.exp(self.lines.epsilons[self.lines.corners.searchsorted(q)])
        return np.where(lowest < q, 1.0, np.where(lowest < 1.0, slope, 0.0))


class BoundaryStack:
    """Several boundaries, one along the first axis."""

    def __init__(self, boundaries: Sequence[Boundary]) -> None:
        self._boundaries = boundaries

    def __call__(self, q: FloatArray, /) -> FloatArray:
        """Return the boundaries at q."""
        return np.stack([one(row) for one, row in zip(self._boundaries, self._rows(q), strict=True)])

    def slope(self, q: FloatArray, /) -> FloatArray:
        """Return the slopes at q."""
        return np.stack([one.slope(row) for one, row in zip(self._boundaries, self._rows(q), strict=True)])

    def _rows(self, q: FloatArray) -> FloatArray:
        return np.broadcast_to(q, (len(self._boundaries), *np.shape(q)[-1:]))
