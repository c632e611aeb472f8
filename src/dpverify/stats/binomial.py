"""Binomial probabilities, binomial tails and Clopper-Pearson limits (docs/method.md, section 5).

The functions are vectorised over counts and probabilities. Tails come from the regularised incomplete beta function,
and from Temme's uniform asymptotic expansion where the variance is large, because the beta function is slow there. The
one-sided Clopper-Pearson limits are beta quantiles whose tail probability is checked after the inversion.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

MIN_EXPANSION_VARIANCE = 1000.0  # from this binomial variance on, the uniform expansion has an error below 2e-9
MAX_QUANTILE_ERROR = 1e-7  # relative error of the tail probability up to which SciPy's beta quantile is accepted
BETA_ERROR = 1e-10  # relative; the regularised incomplete beta function is more accurate than this
MAX_BISECTIONS = 1200  # enough to reduce [0, 1] to two adjacent doubles anywhere, subnormal numbers included


def _expansion_tail(count: FloatArray, runs: int, p: FloatArray, upper: bool) -> FloatArray:
    """Return `binomial_tail` by Temme's uniform expansion.

    The leading term is the normal distribution function at the signed root of the deviance; a series corrects it.
    """
    sign = 1 if upper else -1
    total, rest = runs + 1.0, runs + 1.0 - count
    variance = count * rest / total
    skewness, beta = (rest - count) / (total * np.sqrt(variance)), (1.0 / variance - 1.0 / total) / 12.0
    difference = p - count / total
    first = np.maximum(difference * total / count, -1.0 + 1e-15)
    second = np.maximum(-difference * total / rest, -1.0 + 1e-15)
    deviance = -2.0 * (count * (np.log1p(first) - first) + rest * (np.log1p(second) - second))
    z = np.copysign(np.minimum(np.sqrt(np.maximum(deviance, 0.0)), 39.0), difference)
    correction = -skewness / 3.0 + z * (skewness**2 + 3.0 / total) / 12.0
    correction -= skewness * (2.0 * skewness**2 + 9.0 / total) * (2.0 + z * z) / 135.0
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return scipy.special.ndtr(sign * z) - sign * density * (1.0 - beta) * correction


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
    for _ in range(MAX_BISECTIONS):
        middle = (low + high) / 2
        if ((middle == low) | (middle == high)).all():
            break
        below = (tail(a, b, middle) > alpha) if upper else (tail(a, b, middle) < alpha)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
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
