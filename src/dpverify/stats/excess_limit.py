"""Upper confidence limits for the excess `p1 - e^epsilon p2` of a single union of cells (docs/method.md, section 5.4).

Frequent unions have a joint limit: a multiple of the standard deviation of the observed excess. The multiple is a
rigorous version of the normal quantile (`joint_quantile`). Rare unions have two separate Clopper-Pearson limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.stats.binomial import FloatArray, clopper_pearson_lower, clopper_pearson_upper

BERRY_ESSEEN = 0.56  # Shevtsova's constant for sums of independent variables with different distributions
MAX_JOINT_LEVEL = 0.25  # at larger levels the joint limit need not fall in epsilon
# A union is frequent if its joint quantile is at most this multiple of the quantile of the separate limits.
MAX_QUANTILE_RATIO = 1.05
NUISANCE_SHARE = 1 / 300  # of alpha, four times: for the limits of p1 and p2 on which the variances depend
TILTS = np.linspace(0.7, 1.6, 37)  # exponents of the tilted bound, as multiples of the normal quantile
TABLE_STEPS = np.geomspace(1e-7, 1.0, 600)
MAX_CACHED_RUNS = 1 << 16  # up to this number of runs, Clopper-Pearson limits are cached

OneSidedLimit = Callable[[ArrayLike, int, float], FloatArray]


class ExcessLimit(NamedTuple):
    """Upper confidence limits for the excess `p1 - scale p2` of unions, for every scale from 1 up.

    A limit is about all unions whose pair of counts lies on a straight line between two points, or about one pair. The
    observed excess is linear along the line, so that it is largest at an end.

    A union that is frequent under the second data set has the joint limit: the observed excess plus z standard
    deviations, both at their largest for p1 and p2 in their intervals. A rare union has two Clopper-Pearson limits at
    half of alpha each. Which of the two applies depends on p2 alone, so the choice costs nothing; where p2 may be
    either, the larger limit is taken.

    Attributes
    ----------
    share1, share2 : numpy.ndarray
        The shares of the runs of the first and of the second data set, at the lower end of the line.
    upper_share1, upper_share2 : numpy.ndarray
        The same at the upper end.
    margin1, margin2 : numpy.ndarray
        z standard deviations of the two shares, at their largest along the line.
    upper1, lower2 : numpy.ndarray
        The Clopper-Pearson limits: the upper one of p1 and the lower one of p2.
    maybe_frequent, maybe_rare : numpy.ndarray
        Whether the interval of p2 contains values for which the union is frequent, and for which it is rare.
    """

    share1: FloatArray
    share2: FloatArray
    upper_share1: FloatArray
    upper_share2: FloatArray
    margin1: FloatArray
    margin2: FloatArray
    upper1: FloatArray
    lower2: FloatArray
    maybe_frequent: np.ndarray
    maybe_rare: np.ndarray

    def excess(self, scale: float | FloatArray) -> FloatArray:
        """Return the limits of `p1 - scale p2`."""
        # The joint limit is valid for scales from 1 up only. Below 1, the larger of the limit at 1 and of the separate
        # limits is valid, and it keeps falling in the scale.
        least = np.maximum(scale, 1.0)
        ends = self.share1 - least * self.share2, self.upper_share1 - least * self.upper_share2
        joint = np.maximum(*ends) + np.hypot(self.margin1, least * self.margin2)
        separate = self.upper1 - least * self.lower2
        limit = np.maximum(np.where(self.maybe_frequent, joint, -np.inf), np.where(self.maybe_rare, separate, -np.inf))
        return np.where(scale < least, np.maximum(limit, self.upper1 - scale * self.lower2), limit)

    def ratio(self) -> FloatArray:
        """Return the largest scale at which the limit of the excess of a single pair of counts is still positive."""
        with np.errstate(divide="ignore", invalid="ignore"):
            separate = self.upper1 / self.lower2
            lead = self.share2**2 - self.margin2**2
            discriminant = (self.share1 * self.share2) ** 2 - lead * (self.share1**2 - self.margin1**2)
            root = np.sqrt(np.maximum(discriminant, 0))
            joint = np.where(lead > 0, (self.share1 * self.share2 + root) / lead, np.inf)
        return np.maximum(np.where(self.maybe_frequent, joint, 0.0), np.where(self.maybe_rare, separate, 0.0))


def joint_quantile(step: FloatArray, alpha: float, third_moment: FloatArray | None = None) -> FloatArray:
    """Return a z that a standardised sum of independent two-valued terms exceeds with probability at most alpha.

    Parameters
    ----------
    step : numpy.ndarray
        No term of the sum changes it by more than this. The sum has mean 0 and variance 1.
    alpha : float
        The level, at most `MAX_JOINT_LEVEL`.
    third_moment : numpy.ndarray, optional
        An upper bound on the sum of the third absolute moments; by default `step`, which always is one.

    Returns
    -------
    numpy.ndarray
        The smaller one of two valid quantiles. The first subtracts the error of the normal approximation (Berry and
        Esseen) from alpha. The second is Chernoff's, with the factor of Bahadur and Rao made rigorous: the same theorem
        is applied to the tilted distribution, so that the error is relative to the tail probability. It is close to the
        normal quantile at every level.

    Examples
    --------
    >>> joint_quantile(np.array([0.002, 0.002]), 0.045).round(2).tolist()
    [1.71, 1.71]
    >>> round(float(joint_quantile(np.array(0.002), 1e-6)), 2)  # the normal quantile is 4.75
    4.77
    """
    step = np.asarray(step, float)
    error = BERRY_ESSEEN * (step if third_moment is None else third_moment)
    by_normal = -scipy.special.ndtri(np.maximum(alpha - error, 0.0))
    # The tilted quantile rises with the step, so the next larger step of the table is safe.
    by_tilting = np.append(_tilted_quantiles(alpha), np.inf)[TABLE_STEPS.searchsorted(step)]
    return np.minimum(by_normal, by_tilting)


@lru_cache(maxsize=256)
def _tilted_quantiles(alpha: float) -> FloatArray:
    """Return the quantile by tilting for each of `TABLE_STEPS` (docs/method.md, section 5.4)."""
    step, tilt = TABLE_STEPS[:, None], -scipy.special.ndtri(alpha) * TILTS
    move = tilt * step
    # The cumulant generating function is at most (e^move - 1 - move)/step^2, and the tilted variance at least e^-move.
    cumulant = tilt**2 * _second_order(move)
    factor = (1.0 / (tilt * math.sqrt(2.0 * math.pi)) + 2.0 * BERRY_ESSEEN * step) * np.exp(move / 2.0)
    return ((cumulant + np.log(np.minimum(factor, 1.0)) - math.log(alpha)) / tilt).min(axis=1)


def _second_order(x: FloatArray) -> FloatArray:
    """Return `(e^x - 1 - x) / x^2`, rounded up; the series avoids cancellation for small x."""
    series = 0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 + x / 600.0)))
    return np.where(x < 0.05, series, (np.expm1(x) - x) / np.maximum(x, 0.05) ** 2) * (1.0 + 1e-12)


@lru_cache(maxsize=256)
def least_frequent_count(alpha: float) -> float:
    """Return the variance `m2 p2 (1 - p2)` of the second count from which on a union is frequent; infinite if never."""
    if alpha > MAX_JOINT_LEVEL:
        return math.inf
    most = MAX_QUANTILE_RATIO * -float(scipy.special.ndtri(alpha / 2.0))
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if float(joint_quantile(np.array(middle), alpha)) <= most else (low, middle)
    # The second condition keeps the joint limit falling in epsilon: the second count exceeds its margin.
    return max(low**-2, (1.5 * (most - float(scipy.special.ndtri(NUISANCE_SHARE * alpha)))) ** 2)


def _variance_range(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest p (1 - p) for p in [low, high]."""
    ends = low * (1 - low), high * (1 - high)
    return np.minimum(*ends), np.where((low <= 0.5) & (high >= 0.5), 0.25, np.maximum(*ends))


@lru_cache(maxsize=64)
def _limit_table(limit: OneSidedLimit, runs: int, alpha: float) -> FloatArray:
    """Return a table of limits, one for each count, that `_cached_limit` fills."""
    return np.full(runs + 1, np.nan)


def _cached_limit(limit: OneSidedLimit, counts: FloatArray, runs: int, alpha: float) -> FloatArray:
    """Return the limits of the counts; with few runs the same counts recur, so their limits are cached."""
    index = np.asarray(counts).astype(int)
    if runs > MAX_CACHED_RUNS or (index != counts).any():
        return limit(counts, runs, alpha)
    table = _limit_table(limit, runs, alpha)
    limits = table[index]
    if np.isnan(limits).any():
        missing = np.unique(index[np.isnan(limits)])
        table[missing] = limit(missing, runs, alpha)
        limits = table[index]
    return limits


def excess_limit(
    first_counts: FloatArray, second_counts: FloatArray, runs: tuple[int, int], alpha: float
) -> ExcessLimit:
    """Return the limits of unions with these counts, or with smaller counts of the first data set.

    The result does not depend on epsilon.
    """
    return segment_limit((first_counts, first_counts), (second_counts, second_counts), runs, alpha)


def segment_limit(
    first_ends: tuple[FloatArray, FloatArray],
    second_ends: tuple[FloatArray, FloatArray],
    runs: tuple[int, int],
    alpha: float,
) -> ExcessLimit:
    """Return the limits of all unions whose counts lie on straight lines, or below them in the first count.

    Parameters
    ----------
    first_ends, second_ends : pair of numpy.ndarray
        The counts at the lower and at the upper end of each line. Between the ends both counts rise. The counts of the
        first data set are rounded down along the line.
    runs : tuple of int
        The runs of the two data sets.
    alpha : float
        The level of each limit.
    """
    m1, m2 = runs
    lowest, highest = second_ends
    least_first, largest_first = (np.floor(end) for end in first_ends)
    nuisance_alpha, test_alpha = NUISANCE_SHARE * alpha, (1 - 4 * NUISANCE_SHARE) * alpha
    # One run of either data set changes the standardised excess by at most max(1, m2/m1) / sqrt(m2 v2).
    step_factor = max(1.0, m2 / m1)
    least_variance = least_frequent_count(test_alpha) * step_factor**2 / m2
    if least_variance > 0.25:  # no variance is larger than 1/4: every event is rare, whatever p1 and p2 are
        p1_upper = np.ones(np.shape(largest_first))
        p2_lower, p2_upper = np.zeros(np.shape(largest_first)), np.ones(np.shape(largest_first))
    else:
        p1_upper = _cached_limit(clopper_pearson_upper, largest_first, m1, nuisance_alpha)
        p2_lower = _cached_limit(clopper_pearson_lower, lowest, m2, nuisance_alpha)
        p2_upper = _cached_limit(clopper_pearson_upper, highest, m2, nuisance_alpha)
    # Hoeffding's limit rises by 1/m1 per run. So the joint limit does not fall in the first count, and it covers all
    # smaller first counts (docs/method.md, section 5.4).
    p1_lower = np.maximum(least_first / m1 - math.sqrt(-math.log(nuisance_alpha) / (2.0 * m1)), 0.0)
    smallest, largest = _variance_range(p2_lower, p2_upper)
    maybe_frequent, maybe_rare = largest >= least_variance, smallest < least_variance
    z = np.zeros(np.shape(maybe_frequent))
    if maybe_frequent.any():
        variance = np.clip(np.maximum(smallest[maybe_frequent], least_variance), None, 0.25)
        # The third absolute moment of one run is (1 - 2v) v with v = p (1 - p). In this form the bound is largest where
        # the first data set has no variance (docs/method.md, section 5.4).
        third_moment = np.maximum(1 - 2 * variance, 2 * m2 / (3 * m1)) / np.sqrt(m2 * variance)
        z[maybe_frequent] = joint_quantile(step_factor / np.sqrt(m2 * variance), test_alpha, third_moment)
    return ExcessLimit(
        share1=np.asarray(first_ends[0], float) / m1,
        share2=np.asarray(lowest, float) / m2,
        upper_share1=np.asarray(first_ends[1], float) / m1,
        upper_share2=np.asarray(highest, float) / m2,
        margin1=z * np.sqrt(_variance_range(np.minimum(p1_lower, p1_upper), p1_upper)[1] / m1),
        margin2=z * np.sqrt(largest / m2),
        upper1=_cached_limit(clopper_pearson_upper, largest_first, m1, test_alpha / 2),
        lower2=_cached_limit(clopper_pearson_lower, lowest, m2, test_alpha / 2),
        maybe_frequent=maybe_frequent,
        maybe_rare=maybe_rare,
    )
