"""Binomial probabilities, tails and Clopper-Pearson limits (docs/method.md, section 5), and a test of independence.

The functions are vectorised over counts and probabilities. Tails come from the regularised incomplete beta function,
and from Temme's uniform asymptotic expansion where the variance is large, because the beta function is slow there. The
one-sided Clopper-Pearson limits are beta quantiles whose tail probability is checked after the inversion.

Every statement of a report assumes that runs are independent and identically distributed. If so, all arrangements of
the runs that fell into an event are equally likely, so that their numbers in blocks, and at positions within blocks,
are multivariate hypergeometric. Noise that is shared within a block makes the blocks differ too much, and noise with a
fixed seed makes the positions differ too much. `homogeneity_p_value` is an exact test of this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

MIN_EXPANSION_VARIANCE = 1000.0  # from this binomial variance on, the uniform expansion has an error below 2e-9
MAX_QUANTILE_ERROR = 1e-7  # relative error of the tail probability up to which SciPy's beta quantile is accepted
BETA_ERROR = 1e-10  # relative; the regularised incomplete beta function is more accurate than this


def _expansion_tail(count: FloatArray, runs: int, p: FloatArray, upper: bool) -> FloatArray:
    """Return `binomial_tail` of counts above 0 and below `runs + 1` by Temme's uniform expansion.

    The leading term is the normal distribution function at the signed root of the deviance; a series corrects it.
    """
    total, rest = runs + 1.0, runs + 1.0 - count
    variance = count * rest / total
    skewness, beta = (rest - count) / (total * np.sqrt(variance)), (1.0 / variance - 1.0 / total) / 12.0
    linear, quadratic = skewness**2 + 3.0 / total, skewness * (2.0 * skewness**2 + 9.0 / total)
    difference = p - count / total
    scaled = difference * total
    x, y = np.maximum(scaled / count, -1.0 + 1e-15), np.maximum(-scaled / rest, -1.0 + 1e-15)
    deviance = -2.0 * (count * (np.log1p(x) - x) + rest * (np.log1p(y) - y))
    # Beyond 39 standard deviations a tail is 0 in floating point.
    z = np.copysign(np.minimum(np.sqrt(np.maximum(deviance, 0.0)), 39.0), difference)
    square = z * z
    correction = z * linear / 12.0 - skewness / 3.0 - (square + 2.0) * quadratic / 135.0
    density = np.exp(-0.5 * square) / math.sqrt(2.0 * math.pi) * (1.0 - beta) * correction
    return scipy.special.ndtr(z) - density if upper else scipy.special.ndtr(-z) + density


def binomial_tail(count: ArrayLike, runs: int, p: ArrayLike, upper: bool = True) -> FloatArray:
    """Return a tail probability of the binomial distribution.

    Parameters
    ----------
    count : array_like
        The threshold, any whole number.
    runs : int
        The number of trials.
    p : array_like
        The probability of success, broadcast against `count`.
    upper : bool
        True for `P[Bin(runs, p) >= count]`, False for `P[Bin(runs, p) < count]`.

    Returns
    -------
    numpy.ndarray
        The probabilities, with an absolute error below 2e-9.

    Examples
    --------
    >>> float(binomial_tail(2, 2, 0.5))
    0.25
    >>> float(binomial_tail(2, 2, 0.5, upper=False))
    0.75
    """
    count, p = np.broadcast_arrays(count, p)
    if not count.ndim:
        return binomial_tail(count[None], runs, p[None], upper)[0]
    # Where the variance of a count is large, the expansion is used.
    expanded = count * (runs + 1.0 - count) >= MIN_EXPANSION_VARIANCE * (runs + 1.0)
    if expanded.all():
        return _expansion_tail(count, runs, p, upper)
    tail = np.where(count <= 0 if upper else count > runs, 1.0, 0.0)
    exact = (count > 0) & (count <= runs) & ~expanded
    # The beta function has a relative error of 1e-11 everywhere, but needs microseconds per value at large counts.
    # SciPy's bdtr is faster, but has an error of 2e-3 at 10^7 runs.
    beta_tail = scipy.special.betainc if upper else scipy.special.betaincc
    tail[exact] = beta_tail(count[exact], runs + 1.0 - count[exact], p[exact])
    tail[expanded] = _expansion_tail(count[expanded], runs, p[expanded], upper)
    return tail


@lru_cache(maxsize=64)
def _log_coefficients(runs: int) -> FloatArray:
    """Return the logarithms of the binomial coefficients for counts 0 to `runs`, and -inf for the count `runs + 1`."""
    count = np.arange(runs + 1.0)
    return np.append(-scipy.special.betaln(count + 1.0, runs - count + 1.0) - math.log(runs + 1.0), -np.inf)


def binomial_pmf(count: FloatArray, runs: int, p: FloatArray) -> FloatArray:
    """Return `P[Bin(runs, p) = count]` for counts from 0 to `runs + 1`.

    The relative error is below 1e-11 up to some thousand runs.
    """
    p = np.clip(p, 1e-300, 1.0 - 1e-16)
    return np.exp(_log_coefficients(runs)[count.astype(int)] + count * np.log(p) + (runs - count) * np.log1p(-p))


def binomial_tail_table(count: FloatArray, runs: int, p: FloatArray) -> FloatArray:
    """Return `P[Bin(runs, p) >= count]` for a table with one row of counts for each p; counts are at most `runs + 1`.

    The tails are sums of probabilities that start at the largest count, so that nothing cancels.
    """
    lowest, highest = int(count.min()), int(count.max())
    sums = binomial_pmf(np.arange(highest, lowest - 1.0, -1.0), runs, p[:, None])
    sums[:, 0] += binomial_tail(highest + 1.0, runs, p)
    return np.take_along_axis(np.cumsum(sums, axis=1), highest - count.astype(int), axis=1)


def _beta_quantile(a: FloatArray, b: FloatArray, alpha: float, upper: bool) -> FloatArray:
    """Return the point below which, or above which (`upper`), the beta distribution has probability alpha.

    SciPy's inverse is wrong for some arguments (a 1000, b 10^9). Where the tail probability at its result is not alpha,
    bisection replaces it, and the end of the last interval with the smaller tail probability is returned.
    """
    special = scipy.special
    inverse, tail = (special.betainccinv, special.betaincc) if upper else (special.betaincinv, special.betainc)
    quantile = inverse(a, b, alpha)
    wrong = ~(np.abs(tail(a, b, quantile) - alpha) <= MAX_QUANTILE_ERROR * min(alpha, 1 - alpha))
    if not wrong.any():
        return quantile
    a, b = np.broadcast_arrays(a, b)
    a, b = a[wrong], b[wrong]
    low, high = np.zeros(a.shape), np.ones(a.shape)
    middle = (low + high) / 2
    while ((middle != low) & (middle != high)).any():
        below = (tail(a, b, middle) > alpha) if upper else (tail(a, b, middle) < alpha)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        middle = (low + high) / 2
    quantile = np.array(quantile)
    quantile[wrong] = high if upper else low
    return quantile


def clopper_pearson_upper(count: ArrayLike, runs: int, alpha: float) -> FloatArray:
    """Return the one-sided upper Clopper-Pearson limit of a probability, at confidence 1 - alpha.

    Parameters
    ----------
    count : array_like
        How many of the runs were in the event.
    runs : int
        The number of runs.
    alpha : float
        The probability that the limit lies below the true probability is at most this.

    Returns
    -------
    numpy.ndarray
        The limits; a NumPy float where `count` is one number.

    Examples
    --------
    >>> round(float(clopper_pearson_upper(0, 100, 0.05)), 4)
    0.0295
    """
    count = np.asarray(count, float)
    full = count >= runs
    limit = _beta_quantile(np.where(full, 1.0, count + 1), np.where(full, 1.0, runs - count), alpha, upper=True)
    return np.where(full, 1.0, limit)[()]


def clopper_pearson_lower(count: ArrayLike, runs: int, alpha: float) -> FloatArray:
    """Return the one-sided lower Clopper-Pearson limit of a probability, at confidence 1 - alpha.

    Parameters
    ----------
    count : array_like
        How many of the runs were in the event.
    runs : int
        The number of runs.
    alpha : float
        The probability that the limit lies above the true probability is at most this.

    Returns
    -------
    numpy.ndarray
        The limits; a NumPy float where `count` is one number.

    Examples
    --------
    >>> round(float(clopper_pearson_lower(100, 100, 0.05)), 4)
    0.9705
    """
    count = np.asarray(count, float)
    empty = count <= 0
    limit = _beta_quantile(np.where(empty, 1.0, count), np.where(empty, 1.0, runs - count + 1), alpha, upper=False)
    return np.where(empty, 0.0, limit)[()]


def clopper_pearson_interval(count: int, runs: int, alpha: float) -> tuple[float, float]:
    """Return the two-sided Clopper-Pearson interval at confidence 1 - alpha, rounded outwards.

    Each limit moves outwards until its computed tail probability is below alpha / 2 by more than the error of the
    computation. So the exact tail probability is at most alpha / 2 on each side.

    Examples
    --------
    >>> low, high = clopper_pearson_interval(0, 100, 0.1)
    >>> low, round(high, 4)
    (0.0, 0.0295)
    """
    largest_tail = alpha / 2 * (1 - BETA_ERROR)
    lower = float(clopper_pearson_lower(count, runs, alpha / 2))
    step = BETA_ERROR
    while lower > 0 and scipy.special.betainc(count, runs - count + 1, lower) > largest_tail:
        lower = max(0.0, lower - step * lower * (1 - lower))
        step *= 2
    upper = float(clopper_pearson_upper(count, runs, alpha / 2))
    step = BETA_ERROR
    while upper < 1 and scipy.special.betaincc(count + 1, runs - count, upper) > largest_tail:
        upper = min(1.0, upper + step * upper * (1 - upper))
        step *= 2
    return lower, upper


MAX_P_VALUE = 1e-6  # of all tests of one report together; below it the runs are considered dependent
LEAST_DEVIATIONS = 3.0  # standard deviations; a smaller excess of the statistic is no evidence, and is not computed
LOG_TINY = -700.0  # probabilities below exp(-700) are zero in floating point
DEVIATIONS_PER_PERIOD = 64  # of a sum; a period of a Fourier transform so long wraps around nothing that matters


class _Cells(NamedTuple):
    """Cells of one size: their number, the possible counts, their log-probabilities, and terms of the statistic."""

    number: int
    counts: np.ndarray
    log_probabilities: np.ndarray
    terms: np.ndarray


def homogeneity_p_value(groups: Sequence[tuple[ArrayLike, ArrayLike]]) -> float:
    """Return an upper bound on the p-value of the hypothesis that all cells of a group have the same probability.

    The statistic is Pearson's, added up over the groups. Given the total counts of the groups, its exponential moments
    are exact: independent binomial counts with a given sum are hypergeometric, and the probability of the sum is a
    Fourier transform. Markov's inequality for the best of these moments bounds the tail (Chernoff). The bound holds for
    counts of any size, so that no cells are merged.

    Parameters
    ----------
    groups : sequence of (counts, sizes)
        For each group of cells, how many runs of each cell fell into the event, and the number of runs of each cell.
        Each group has a probability of its own.

    Returns
    -------
    float
        The bound; 1.0 if the counts vary little more than expected.

    Examples
    --------
    >>> homogeneity_p_value([([48, 52, 50, 55], [100, 100, 100, 100])])
    1.0
    >>> homogeneity_p_value([([0, 100, 0, 100], [100, 100, 100, 100])]) < 1e-6
    True
    """
    statistic = degrees = 0.0
    tables = []
    for counts, sizes in groups:
        counts, sizes = np.asarray(counts, np.int64), np.asarray(sizes, np.int64)
        runs, hits = int(sizes.sum()), int(counts.sum())
        if not 0 < hits < runs:
            continue
        counts, sizes = counts[sizes > 0], sizes[sizes > 0]
        if 2 * hits > runs:
            counts, hits = sizes - counts, runs - hits
        share = hits / runs
        statistic += float(((counts - share * sizes) ** 2 / sizes).sum() / (share * (1 - share)))
        degrees += (sizes.size - 1) * runs / (runs - 1)
        tables.append((hits, runs, sizes))
    if statistic <= degrees + LEAST_DEVIATIONS * math.sqrt(2 * degrees):
        return 1.0
    parts = [_possible_counts(hits, runs, sizes, statistic) for hits, runs, sizes in tables]
    totals = [(hits, runs) for hits, runs, _ in tables]

    def log_bound(log_rate: float) -> float:
        rate = math.exp(log_rate)
        moments = (_log_moment(cells, *total, rate) for cells, total in zip(parts, totals, strict=True))
        return sum(moments) - rate * statistic

    best = scipy.optimize.minimize_scalar(log_bound, bounds=(math.log(1e-9), 0.0), method="bounded").fun
    return math.exp(min(float(best), 0.0))


def _possible_counts(hits: int, runs: int, sizes: np.ndarray, statistic: float) -> list[_Cells]:
    """Return the distribution of the counts for each size of a cell; a term above the whole statistic counts as it."""
    cells, share = [], hits / runs
    for size, number in zip(*np.unique(sizes, return_counts=True), strict=True):
        spread = 40 * math.sqrt(size * share) + 800  # beyond it, Bernstein's inequality gives less than exp(-700)
        counts = np.arange(max(0, int(size * share - spread)), min(int(size * share + spread), size, hits) + 1)
        log_probabilities = scipy.stats.binom.logpmf(counts, size, share)
        is_possible = log_probabilities > LOG_TINY
        counts, log_probabilities = counts[is_possible], log_probabilities[is_possible]
        terms = np.minimum((counts - size * share) ** 2 / (size * share * (1 - share)), statistic)
        cells.append(_Cells(int(number), counts, log_probabilities, terms))
    return cells


def _log_moment(cells: list[_Cells], hits: int, runs: int, rate: float) -> float:
    """Return the logarithm of the mean of exp(rate * statistic), given that so many runs fell into the event."""
    deviation = math.sqrt(hits * (1 - hits / runs))
    period = 1 << math.ceil(math.log2(DEVIATIONS_PER_PERIOD * (1 + deviation)))
    transform, log_mean = np.ones(period // 2 + 1, complex), 0.0
    for number, counts, log_probabilities, terms in cells:
        weights = log_probabilities + rate * terms
        top = weights.max()
        weights = np.exp(weights - top)
        log_mean += number * (top + math.log(weights.sum()))
        # Sums that differ by a period are taken for equal, which can only enlarge the bound.
        tilted = np.bincount(counts % period, weights / weights.sum(), period)
        transform *= np.fft.rfft(tilted) ** number
    given = float(np.fft.irfft(transform, period)[hits % period])
    log_given = math.log(max(given, 0.0) + 1e-13)  # more than the rounding of the transform
    return log_mean + log_given - float(scipy.stats.binom.logpmf(hits, runs, hits / runs))
