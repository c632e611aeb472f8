"""Binomial laws and their tails, for many p at once (docs/method.md, section 5)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, betainccinv, betaincinv, betaln, ndtr

Array = NDArray[np.float64]

MIN_EXPANSION_VARIANCE = 1000.0  # binomial variance from which the uniform expansion is accurate to 2e-9


def expanded_tail(count: Array, runs: int, p: Array, side: int) -> Array:
    """`tail` by Temme's uniform expansion: the normal law at the signed root of the deviance, and a series."""
    total, rest = runs + 1.0, runs + 1.0 - count
    spread = count * rest / total
    skew, beta = (rest - count) / (total * np.sqrt(spread)), (1.0 / spread - 1.0 / total) / 12.0
    gap = p - count / total
    up, down = (np.maximum(x, -1.0 + 1e-15) for x in (gap * total / count, -gap * total / rest))
    deviance = -2.0 * (count * (np.log1p(up) - up) + rest * (np.log1p(down) - down))
    z = np.copysign(np.minimum(np.sqrt(np.maximum(deviance, 0.0)), 39.0), gap)
    correction = -skew / 3.0 + z * (skew**2 + 3.0 / total) / 12.0
    correction -= skew * (2.0 * skew**2 + 9.0 / total) * (2.0 + z * z) / 135.0
    return ndtr(side * z) - side * np.exp(-0.5 * z * z) * (1.0 - beta) * correction / math.sqrt(2.0 * math.pi)


def binomial_tail(count: ArrayLike, runs: int, p: Array, side: int = 1) -> Array:
    """`P[Bin(runs, p) >= count]`, or `P[Bin(runs, p) < count]` for side -1."""
    count, p = np.broadcast_arrays(count, p)
    table = np.where(count <= 0 if side > 0 else count > runs, 1.0, 0.0)
    smooth = count * (runs + 1.0 - count) >= MIN_EXPANSION_VARIANCE * (runs + 1.0)
    exact = (count > 0) & (count <= runs) & ~smooth
    # betainc keeps 1e-11 everywhere but takes microseconds at large counts; bdtr is off by 2e-3 at 10^7 runs.
    table[exact] = (betainc if side > 0 else betaincc)(count[exact], runs + 1.0 - count[exact], p[exact])
    table[smooth] = expanded_tail(count[smooth], runs, p[smooth], side)
    return table


@lru_cache(maxsize=64)
def _choices(runs: int) -> Array:
    """Logarithms of the binomial coefficients; one more, of the count that no law has."""
    count = np.arange(runs + 1.0)
    return np.append(-betaln(count + 1.0, runs - count + 1.0) - math.log(runs + 1.0), -np.inf)


def binomial_pmf(count: Array, runs: int, p: Array) -> Array:
    """`P[Bin(runs, p) = count]` for counts from 0 to `runs + 1`, to 1e-11 of it while the runs are thousands."""
    p = np.clip(p, 1e-300, 1.0 - 1e-16)
    return np.exp(_choices(runs)[count.astype(int)] + count * np.log(p) + (runs - count) * np.log1p(-p))


def binomial_tail_table(count: Array, runs: int, p: Array) -> Array:
    """`tail` for a row of counts, at most `runs + 1`, a p: sums of the law, from its far end so that none cancels."""
    low, high = int(count.min()), int(count.max())
    sums = binomial_pmf(np.arange(high, low - 1.0, -1.0), runs, p[:, None])
    sums[:, 0] += binomial_tail(high + 1.0, runs, p)
    return np.take_along_axis(np.cumsum(sums, axis=1), high - count.astype(int), axis=1)


def _beta_quantile(a: np.ndarray, b: np.ndarray, alpha: float, upper: bool) -> np.ndarray:
    """Where the beta law leaves alpha below, or above; SciPy's inverse misses at some arguments (a 1000, b 10^9)."""
    inverse, tail = (betainccinv, betaincc) if upper else (betaincinv, betainc)
    x = inverse(a, b, alpha)
    wrong = ~(np.abs(tail(a, b, x) - alpha) <= 1e-7 * min(alpha, 1 - alpha))
    if wrong.any():
        a, b = np.broadcast_arrays(a, b)
        a, b = a[wrong], b[wrong]
        mean = a / (a + b)
        low, high = np.zeros_like(mean), np.minimum(1.0, mean + 50 * np.sqrt(mean / (a + b)))
        for _ in range(100):
            middle = (low + high) / 2
            under = (tail(a, b, middle) > alpha) if upper else (tail(a, b, middle) < alpha)
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        x = np.array(x)
        x[wrong] = high if upper else low  # the side that errs outwards
    return x


def upper_limit(c: Any, runs: int, alpha: float) -> Any:
    """Clopper-Pearson, one-sided: the probability is at most this, at confidence 1 - alpha."""
    c = np.asarray(c, float)
    full = c >= runs
    limit = _beta_quantile(np.where(full, 1.0, c + 1), np.where(full, 1.0, runs - c), alpha, True)
    return np.where(full, 1.0, limit)[()]


def lower_limit(c: Any, runs: int, alpha: float) -> Any:
    """Clopper-Pearson, one-sided: the probability is at least this, at confidence 1 - alpha."""
    c = np.asarray(c, float)
    none = c <= 0
    limit = _beta_quantile(np.where(none, 1.0, c), np.where(none, 1.0, runs - c + 1), alpha, False)
    return np.where(none, 0.0, limit)[()]
