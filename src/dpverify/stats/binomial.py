"""Binomial probabilities, binomial tails and Clopper-Pearson limits (docs/method.md, section 5).

The functions are vectorised over counts and probabilities. Tails come from the regularised incomplete beta function,
and from Temme's uniform asymptotic expansion where the variance is large, because the beta function is slow there. The
one-sided Clopper-Pearson limits are beta quantiles whose tail probability is checked after the inversion.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

MIN_EXPANSION_VARIANCE = 1000.0  # from this binomial variance on, the uniform expansion has an error below 2e-9
MAX_QUANTILE_ERROR = 1e-7  # relative error of the tail probability up to which SciPy's beta quantile is accepted
BETA_ERROR = 1e-10  # relative; the regularised incomplete beta function is more accurate than this
MAX_BISECTIONS = 1200  # enough to reduce [0, 1] to two adjacent doubles anywhere, subnormal numbers included


class ExpansionTerms(NamedTuple):
    """What Temme's uniform expansion of a binomial tail needs of each count, whatever the probability is.

    Attributes
    ----------
    count, rest : numpy.ndarray
        The counts, and `runs + 1` less the counts.
    mean : numpy.ndarray
        The counts divided by `runs + 1`.
    constant, linear, quadratic : numpy.ndarray
        Coefficients of the series, up to constant factors.
    scale : numpy.ndarray
        The factor of the series.
    """

    count: FloatArray
    rest: FloatArray
    mean: FloatArray
    constant: FloatArray
    linear: FloatArray
    quadratic: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, count: FloatArray, runs: int) -> ExpansionTerms:
        """Return the terms of counts above 0 and below `runs + 1`."""
        total, rest = runs + 1.0, runs + 1.0 - count
        variance = count * rest / total
        skewness, beta = (rest - count) / (total * np.sqrt(variance)), (1.0 / variance - 1.0 / total) / 12.0
        linear, quadratic = skewness**2 + 3.0 / total, skewness * (2.0 * skewness**2 + 9.0 / total)
        return cls(count, rest, count / total, -skewness / 3.0, linear, quadratic, 1.0 - beta)

    def take(self, index: np.ndarray) -> ExpansionTerms:
        """Return the terms of some of the counts."""
        return ExpansionTerms(*(term.take(index) for term in self))

    def tail(self, runs: int, p: FloatArray, upper: bool) -> FloatArray:
        """Return `binomial_tail` by the expansion.

        The leading term is the normal distribution function at the signed root of the deviance; a series corrects it.
        """
        difference = p - self.mean
        scaled = difference * (runs + 1.0)
        deviance = _log_excess(scaled, self.count)
        deviance += _log_excess(np.negative(scaled, out=scaled), self.rest)
        deviance *= -2.0
        z = np.sqrt(np.maximum(deviance, 0.0, out=deviance), out=deviance)
        z = np.copysign(np.minimum(z, 39.0, out=z), difference, out=z)
        square = z * z
        correction = np.multiply(z, self.linear, out=difference)
        correction /= 12.0
        correction += self.constant
        third = np.add(square, 2.0, out=scaled)
        third *= self.quadratic
        third /= 135.0
        correction -= third
        square *= -0.5
        density = np.exp(square, out=square)
        density /= math.sqrt(2.0 * math.pi)
        density *= self.scale
        density *= correction
        if upper:
            return np.subtract(scipy.special.ndtr(z, out=z), density, out=z)
        return scipy.special.ndtr(-z) + density


def _log_excess(scaled: FloatArray, count: FloatArray) -> FloatArray:
    """Return `count * (log(1 + x) - x)` for `x = scaled / count`."""
    x = scaled / count
    np.maximum(x, -1.0 + 1e-15, out=x)
    result = np.log1p(x)
    result -= x
    result *= count
    return result


def _is_expanded(count: FloatArray, runs: int) -> NDArray[np.bool_]:
    """Return where the variance of a count is so large that the expansion is used."""
    return count * (runs + 1.0 - count) >= MIN_EXPANSION_VARIANCE * (runs + 1.0)


class PreparedTails(NamedTuple):
    """Upper binomial tails of counts that are used with many probabilities.

    Attributes
    ----------
    counts : numpy.ndarray
        The counts.
    runs : int
        The number of trials.
    is_expanded : numpy.ndarray
        Whether the tail of each count comes from the expansion.
    terms : ExpansionTerms
        The terms of the expansion; those of any number where it is not used.
    """

    counts: FloatArray
    runs: int
    is_expanded: NDArray[np.bool_]
    terms: ExpansionTerms

    @classmethod
    def of(cls, counts: FloatArray, runs: int) -> PreparedTails:
        """Return the prepared counts."""
        is_expanded = _is_expanded(counts, runs)
        return cls(counts, runs, is_expanded, ExpansionTerms.of(np.where(is_expanded, counts, 0.5 * (runs + 1)), runs))

    def at(self, index: np.ndarray, p: FloatArray) -> FloatArray:
        """Return `binomial_tail(counts[index], runs, p)` for a p that broadcasts against the index."""
        is_expanded = self.is_expanded.take(index)
        if is_expanded.all():
            return self.terms.take(index).tail(self.runs, p, upper=True)
        if not is_expanded.any():
            return binomial_tail(self.counts[index], self.runs, p)
        tail = self.terms.take(index).tail(self.runs, p, upper=True)
        others = ~is_expanded
        tail[others] = binomial_tail(self.counts[index[others]], self.runs, np.broadcast_to(p, index.shape)[others])
        return tail


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
    expanded = _is_expanded(count, runs)
    if expanded.all():
        return ExpansionTerms.of(count, runs).tail(runs, p, upper)
    tail = np.where(count <= 0 if upper else count > runs, 1.0, 0.0)
    exact = (count > 0) & (count <= runs) & ~expanded
    # The beta function has a relative error of 1e-11 everywhere, but needs microseconds per value at large counts.
    # SciPy's bdtr is faster, but has an error of 2e-3 at 10^7 runs.
    beta_tail = scipy.special.betainc if upper else scipy.special.betaincc
    tail[exact] = beta_tail(count[exact], runs + 1.0 - count[exact], p[exact])
    tail[expanded] = ExpansionTerms.of(count[expanded], runs).tail(runs, p[expanded], upper)
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
