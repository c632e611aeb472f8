"""The exact privacy of a pair of data sets, and of every prefix, under Gaussian and under Laplace noise."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from dpverify.stats.laplace_loss import LOSS_STEP, laplace_curve


class GaussianTruth(NamedTuple):
    """The exact privacy of a pair of data sets under a linear-Gaussian mechanism.

    The outputs are N(mean, covariance) with the same covariance for both data sets. The privacy depends only on `mu`,
    the Mahalanobis distance of the two means (docs/method.md, section 6).

    Parameters
    ----------
    first, second : np.ndarray
        The means under the two data sets, of shape (K, d).
    covariance : np.ndarray
        The covariance of the flattened output, of shape (K d, K d).
    mu : float
        The Mahalanobis distance of the means.
    factor : np.ndarray or None
        A matrix F with covariance F F', of shape (K d, n); None: a factor of the covariance is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import GaussianTruth
    >>> truth = GaussianTruth(np.zeros((1, 1)), np.ones((1, 1)), np.eye(1), mu=1.0)
    >>> round(truth.delta(1.0), 4), round(truth.epsilon(0.01), 4)
    (0.1269, 2.3178)
    """

    first: np.ndarray
    second: np.ndarray
    covariance: np.ndarray
    mu: float
    factor: np.ndarray | None = None

    def prefix(self, steps: int) -> GaussianTruth:
        """Return the exact privacy of the first steps of the output.

        Examples
        --------
        >>> truth = GaussianTruth(np.zeros((2, 1)), np.ones((2, 1)), np.eye(2), mu=2**0.5)
        >>> float(truth.prefix(1).mu)
        1.0
        """
        first, second = self.first[:steps], self.second[:steps]
        covariance = self.covariance[: first.size, : first.size]
        if self.factor is None:
            values, vectors = np.linalg.eigh(self.covariance)
            factor = vectors * np.sqrt(np.maximum(values, 0.0))
        else:
            factor = self.factor
        factor, shift = factor[: first.size], (first - second).ravel()
        mu = float(np.linalg.norm(np.linalg.lstsq(factor, shift)[0])) if shift.any() else 0.0
        return GaussianTruth(first, second, covariance, mu if factor.any() or not mu else np.inf, factor)

    def delta(self, epsilon: float) -> float:
        """Return the exact delta at this epsilon, over all events; it is the same for both orders."""
        if self.mu in (0.0, np.inf):
            return float(self.mu > 0)
        a, b = self.mu / 2, epsilon / self.mu
        return float(ndtr(a - b) - np.exp(epsilon + log_ndtr(-a - b)))

    def epsilon(self, delta: float) -> float:
        """Return the exact epsilon at this delta; it is infinite at delta 0 if the means differ."""
        if self.delta(0.0) <= delta:
            return 0.0
        if delta <= 0 or self.mu == np.inf:
            return np.inf
        upper = self.mu**2 / 2 + self.mu * 40
        root: Any = brentq(lambda e: self.delta(e) - delta, 0.0, upper, xtol=1e-12)
        return float(root)


class LaplaceTruth(NamedTuple):
    """The exact privacy of a pair of data sets under independent Laplace noise, step by step.

    Parameters
    ----------
    shifts : np.ndarray
        By how much the centre of each number moves, in units of the scale of its noise, of shape (K, d).

    Examples
    --------
    >>> import numpy as np
    >>> truth = LaplaceTruth(np.array([[0.5], [0.25]]))
    >>> truth.epsilon(0.0), truth.prefix(1).epsilon(0.0)
    (0.75, 0.5)
    """

    shifts: np.ndarray

    def prefix(self, steps: int) -> LaplaceTruth:
        """Return the exact privacy of the first steps of the output."""
        return LaplaceTruth(self.shifts[:steps])

    def delta(self, epsilon: float) -> float:
        """Return delta at this epsilon; above the exact one by at most 5e-4 for each number that moves."""
        return self._curve(epsilon) if epsilon < self.shifts.sum() else 0.0

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at this delta; exact at delta 0."""
        if delta <= 0:
            return float(self.shifts.sum())
        if self.delta(0.0) <= delta:
            return 0.0
        largest = float(self.shifts.sum()) + LOSS_STEP * self.shifts.size  # losses are rounded up to bins
        root: Any = brentq(lambda epsilon: self._curve(epsilon) - delta, 0.0, largest)
        return float(root)

    def _curve(self, epsilon: float) -> float:
        """Return delta from the distribution of the sum of the privacy losses."""
        return laplace_curve(tuple(self.shifts[self.shifts > 0].tolist()))[0](epsilon)
