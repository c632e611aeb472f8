"""The log-ratio of the probabilities of level sets, as a smooth function of how rare they are.

Events that contain few runs have noisy log-ratios, and the largest of many noisy log-ratios is a lucky one.
Neighbouring level sets have nearly the same log-ratio, though: it changes smoothly with the logarithm of the
probability. This is modelled as a Gaussian process: a straight line plus an integrated Brownian motion, whose size is
estimated from the counts. Its mean and its standard deviation, given all counts together, say more about a rare event
than the event's own counts do.

A search for the worst pair gives both data sets the same random numbers. The covariances of all counts then follow from
how many pairs of runs lie in each pair of level sets (`fit_ratio_curve`; docs/method.md, section 5.7).
`fit_nested_curve` treats the runs as independent. It needs the counts between one threshold and the next only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy

PSEUDO_RUNS = 0.5  # added to each count: a count of 0 has a finite logarithm and a large variance
MIN_COUNT = 8  # runs of one of the data sets in a level set that is used
MAX_SHARE = 0.75  # of all runs in a level set that is used
LINE_SCALES = (10.0, 0.5)  # standard deviations of the line: at the most frequent level set, and of its slope per nat
ROUGHNESSES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # standard deviations of the change of the slope per nat
MODEL_ERROR = 1e-3  # standard deviation of a log-ratio, because no model is exact
MAX_NEWTON_STEPS, MAX_STEP, STEP_TOLERANCE = 40, 3.0, 1e-4  # of the log-odds


class RatioCurve(NamedTuple):
    """The log-ratios of the level sets of a score, from rare level sets to frequent ones.

    Attributes
    ----------
    shares : ndarray
        The mean of the two probabilities of each level set.
    mean, deviation : ndarray
        Mean and standard deviation of the logarithm of the first probability divided by the second.
    counts : ndarray of shape (2, n)
        The runs of the first and of the second data set in each level set.
    """

    shares: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    counts: np.ndarray

    def probabilities(self, deviations: float, direction: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the probabilities under the exceeding and the other data set if the ratio deviates from its mean.

        Parameters
        ----------
        deviations : float
            How many standard deviations the log-ratio in favour of the exceeding data set is above its mean.
        direction : int
            The exceeding data set: 0 for the first, 1 for the second.
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
        is the interval of the first data set, the second axis that of the second.

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
    # At least one more run may lie in the level set with one of the data sets only.
    covariance += np.diag(1 / smoothed.prod(axis=0) + MODEL_ERROR**2)
    shares = smoothed.sum(axis=0) / (2 * runs + 4 * PSEUDO_RUNS)
    mean, deviation = _smooth(-np.log(shares), np.log(smoothed[0] / smoothed[1]), covariance)
    return RatioCurve(shares, mean, deviation, counts)


def fit_nested_curve(counts: np.ndarray, runs: int) -> RatioCurve:
    """Return the log-ratios of nested level sets from their counts alone, as if the runs were independent.

    The runs between one threshold and the next are binomial: given how many runs lie there, each of them belongs to
    the first data set with a probability whose log-odds are the log-ratio of the two densities. This log-ratio is the
    smooth function, and the log-ratios of the level sets follow from it. Counts of 0 therefore need no correction.

    Parameters
    ----------
    counts : ndarray of shape (2, n)
        The runs of both data sets in each level set, from rare level sets to frequent ones. Every level set has more
        runs than the one before.
    runs : int
        All runs per data set.

    Examples
    --------
    >>> curve = fit_nested_curve(np.array([[20, 900], [0, 700]]), 10_000)
    >>> bool(curve.mean[0] > 1), bool(abs(curve.mean[1] - np.log(9 / 7)) < 0.1)
    (True, True)
    """
    between = np.diff(counts, axis=1, prepend=0).astype(float)
    pooled = counts.sum(axis=0)
    rarity = -np.log((pooled + np.append(0, pooled[:-1])) / (4 * runs))  # of the middle of each interval
    masses, is_inside = between.sum(axis=0) / runs, np.tri(len(rarity))
    log_likelihoods, means, variances = [], [], []
    densities = np.zeros(len(rarity))
    for prior in _priors(rarity):
        fitted = _fit_log_odds(prior, between, densities)
        densities = fitted.mean
        share, rest = scipy.special.expit(densities), scipy.special.expit(-densities)  # 1 - share may be rounded to 0
        p1, p2 = np.cumsum(masses * share), np.cumsum(masses * rest)
        gradient = is_inside * (masses * share * rest) * (1 / p1 + 1 / p2)[:, None]
        log_likelihoods.append(fitted.log_likelihood)
        means.append(np.log(p1 / p2))
        variances.append(((gradient @ fitted.covariance) * gradient).sum(axis=1))
    return RatioCurve(pooled / (2 * runs), *_average(log_likelihoods, means, variances), counts)


class FittedLogOdds(NamedTuple):
    """Log-odds at some points, given binomial counts: their normal approximation, and the likelihood of the prior."""

    mean: np.ndarray
    covariance: np.ndarray
    log_likelihood: float


def _fit_log_odds(prior: np.ndarray, counts: np.ndarray, start: np.ndarray) -> FittedLogOdds:
    """Return the log-odds of binomial counts under a Gaussian prior, by Laplace's approximation.

    Parameters
    ----------
    prior : ndarray of shape (n, n)
        The covariance of the log-odds; their mean is 0.
    counts : ndarray of shape (2, n)
        How many runs of either data set there are at each point.
    start : ndarray of shape (n,)
        Where the Newton steps begin.
    """
    mean, both = start, counts.sum(axis=0)
    for _ in range(MAX_NEWTON_STEPS):
        share = scipy.special.expit(mean)
        root = np.sqrt(np.maximum(both * share * (1 - share), np.finfo(float).tiny))
        factor = np.linalg.cholesky(np.eye(len(mean)) + root[:, None] * prior * root)
        target = root**2 * mean + counts[0] - both * share
        weights = target - root * scipy.linalg.cho_solve((factor, True), root * (prior @ target))
        step = prior @ weights - mean
        largest = np.abs(step).max()
        mean = mean + step * min(1.0, MAX_STEP / max(largest, np.finfo(float).tiny))
        if largest < STEP_TOLERANCE:
            break
    gain = scipy.linalg.solve_triangular(factor, root[:, None] * prior, lower=True)
    log_likelihood = counts[0] @ mean - both @ np.logaddexp(0.0, mean) - weights @ mean / 2
    return FittedLogOdds(mean, prior - gain.T @ gain, float(log_likelihood - np.log(np.diag(factor)).sum()))


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
