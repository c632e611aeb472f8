"""The log-ratio of the probabilities of level sets, as a smooth function of how rare they are.

Events that contain few runs have noisy log-ratios, and the largest of many noisy log-ratios is a lucky one.
Neighbouring level sets have nearly the same log-ratio, though: it changes smoothly with the logarithm of the
probability. This is modelled as a Gaussian process: a straight line plus an integrated Brownian motion, whose size is
estimated from the counts. Its mean and its standard deviation, given all counts together, say more about a rare event
than the event's own counts do.

A search for the worst pair gives both datasets the same random numbers. The covariances of all counts then follow from
how many pairs of runs lie in each pair of level sets (`fit_ratio_curve`; docs/method.md, section 5.7).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy

PSEUDO_RUNS = 0.5  # added to each count: a count of 0 has a finite logarithm and a large variance
MIN_COUNT = 8  # runs of one of the datasets in a level set that is used
MAX_SHARE = 0.75  # of all runs in a level set that is used
LINE_SCALES = (10.0, 0.5)  # standard deviations of the line: at the most frequent level set, and of its slope per nat
ROUGHNESSES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # standard deviations of the change of the slope per nat
MODEL_ERROR = 1e-3  # standard deviation of a log-ratio, because no model is exact


class RatioCurve(NamedTuple):
    """The log-ratios of the level sets of a score, from rare level sets to frequent ones.

    Attributes
    ----------
    shares : ndarray
        The mean of the two probabilities of each level set.
    mean, deviation : ndarray
        Mean and standard deviation of the logarithm of the first probability divided by the second.
    counts : ndarray of shape (2, n)
        The runs of the first and of the second dataset in each level set.
    """

    shares: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    counts: np.ndarray

    def probabilities(self, deviations: float, direction: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the probabilities under the exceeding and the other dataset if the ratio deviates from its mean.

        Parameters
        ----------
        deviations : float
            How many standard deviations the log-ratio in favour of the exceeding dataset is above its mean.
        direction : int
            The exceeding dataset: 0 for the first, 1 for the second.
        """
        log_ratio = (self.mean if direction == 0 else -self.mean) + deviations * self.deviation
        other = 2 * self.shares * scipy.special.expit(-log_ratio)
        return np.minimum(2 * self.shares - other, 1.0), np.minimum(other, 1.0)


def fit_ratio_curve(table: np.ndarray) -> RatioCurve | None:
    """Return the log-ratios of the upper level sets of a score; None if no level set has enough runs.

    Parameters
    ----------
    table : ndarray of shape (n, n)
        How many pairs of runs have a score in each pair of intervals, from small scores to large ones: the first axis
        is the interval of the first dataset, the second axis that of the second.

    Examples
    --------
    >>> curve = fit_ratio_curve(np.array([[9000, 100], [300, 600]]))
    >>> curve.counts.ravel()
    array([900, 700])
    >>> bool(abs(curve.mean[0] - np.log(9 / 7)) < 0.01)
    True
    """
    runs = int(table.sum())
    sides = table.sum(axis=1), table.sum(axis=0)
    # Row 0 is the highest interval alone, and every further level set has one more interval.
    counts = np.stack([np.cumsum(side[::-1])[:-1] for side in sides])
    is_used = (counts.max(axis=0) >= MIN_COUNT) & (counts.sum(axis=0) <= 2 * MAX_SHARE * runs)
    is_used &= np.diff(counts.sum(axis=0), prepend=0) > 0
    levels = np.flatnonzero(is_used)
    if not levels.size:
        return None
    counts = counts[:, levels]
    smoothed = counts + PSEUDO_RUNS
    contains = np.arange(len(table))[::-1] <= levels[:, None]  # level set by interval
    weights = [contains / count[:, None] for count in smoothed]
    covariance = -weights[0] @ table @ weights[1].T
    covariance += covariance.T
    for weight, side in zip(weights, sides, strict=True):
        added = side.astype(float)
        added[-1] += PSEUDO_RUNS
        covariance += (weight * added) @ weight.T
    # At least one more run may lie in the level set with one of the datasets only.
    covariance += np.diag(1 / smoothed.prod(axis=0) + MODEL_ERROR**2)
    shares = smoothed.sum(axis=0) / (2 * runs + 4 * PSEUDO_RUNS)
    mean, deviation = _smooth(-np.log(shares), np.log(smoothed[0] / smoothed[1]), covariance)
    return RatioCurve(shares, mean, deviation, counts)


def _priors(rarity: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the covariance of a smooth function at these points, for every roughness."""
    distance = rarity - rarity.min()
    shorter, longer = np.minimum.outer(distance, distance), np.maximum.outer(distance, distance)
    line = LINE_SCALES[0] ** 2 + LINE_SCALES[1] ** 2 * np.multiply.outer(distance, distance)
    motion = shorter**2 * (3 * longer - shorter) / 6
    for roughness in ROUGHNESSES:
        yield line + roughness**2 * motion


def _average(
    log_likelihoods: list[float], means: list[np.ndarray], variances: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of functions that are weighted by their likelihoods."""
    weights = scipy.special.softmax(log_likelihoods)
    mean = weights @ np.array(means)
    square = weights @ (np.array(variances) + np.square(means))
    return mean, np.sqrt(np.maximum(square - mean**2, 0.0))


def _smooth(rarity: np.ndarray, values: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of a smooth function at the points where noisy values of it are known."""
    log_likelihoods, means, variances = [], [], []
    for prior in _priors(rarity):
        factor = np.linalg.cholesky(prior + covariance)
        whitened = scipy.linalg.solve_triangular(factor, np.column_stack([values, prior]), lower=True)
        own, gain = whitened[:, 0], whitened[:, 1:]
        log_likelihoods.append(-own @ own / 2 - np.log(np.diag(factor)).sum())
        means.append(own @ gain)
        variances.append(np.diag(prior) - (gain * gain).sum(axis=0))
    return _average(log_likelihoods, means, variances)
