"""Upper confidence limits for the excess `p1 - e^epsilon p2` of a single union of cells (docs/method.md, section 5.4).

Frequent unions have a joint limit by the normal approximation, with the error bound of Berry and Esseen. Rare unions
have two separate Clopper-Pearson limits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.stats.binomial import FloatArray, clopper_pearson_lower, clopper_pearson_upper

BERRY_ESSEEN = 0.56  # Shevtsova's constant for sums of independent variables with different distributions
MAX_NORMAL_ERROR_SHARE = 0.5  # of alpha, for the error of the normal approximation; rarer events have exact limits
MAX_NORMAL_LEVEL = 0.25  # at larger levels the limit by the normal approximation need not fall in epsilon
NUISANCE_SHARE = 1 / 300  # of alpha, three times: for the limits of p1 and p2 on which the variances depend
MAX_CACHED_RUNS = 1 << 16  # up to this number of runs, Clopper-Pearson limits are cached

OneSidedLimit = Callable[[ArrayLike, int, float], FloatArray]


class ExcessLimit(NamedTuple):
    """Upper confidence limits for the excess `p1 - scale p2` of unions, for every scale from 1 up.

    A union that is frequent under the second data set has the limit by the normal approximation: the observed excess
    plus z standard deviations, both at their largest for p1 and p2 in their intervals. The error of the normal
    approximation is subtracted from alpha beforehand. A rare union has two Clopper-Pearson limits at half of alpha
    each. Which of the two applies depends on p2 alone, so the choice costs nothing; where p2 may be either, the larger
    limit is taken.

    Attributes
    ----------
    share1, share2 : numpy.ndarray
        The largest share of the runs of the first data set, and the smallest one of the second data set.
    margin1, margin2 : numpy.ndarray
        z standard deviations of the two shares.
    upper1, lower2 : numpy.ndarray
        The Clopper-Pearson limits: the upper one of p1 and the lower one of p2.
    maybe_frequent, maybe_rare : numpy.ndarray
        Whether the interval of p2 contains values for which the union is frequent, and for which it is rare.
    """

    share1: FloatArray
    share2: FloatArray
    margin1: FloatArray
    margin2: FloatArray
    upper1: FloatArray
    lower2: FloatArray
    maybe_frequent: np.ndarray
    maybe_rare: np.ndarray

    def excess(self, scale: float) -> FloatArray:
        """Return the limits of `p1 - scale p2`."""
        separate = self.upper1 - scale * self.lower2
        if scale < 1:
            # The error of the normal approximation is bounded for scales from 1 up only. The larger of these two limits
            # is valid below 1, too, and it keeps falling in the scale.
            return np.maximum(separate, self.excess(1.0))
        joint = self.share1 - scale * self.share2 + np.hypot(self.margin1, scale * self.margin2)
        return np.maximum(np.where(self.maybe_frequent, joint, -np.inf), np.where(self.maybe_rare, separate, -np.inf))

    def ratio(self) -> FloatArray:
        """Return the largest scale at which the limit of the excess is still positive."""
        with np.errstate(divide="ignore", invalid="ignore"):
            separate = self.upper1 / self.lower2
            lead = self.share2**2 - self.margin2**2
            discriminant = (self.share1 * self.share2) ** 2 - lead * (self.share1**2 - self.margin1**2)
            root = np.sqrt(np.maximum(discriminant, 0))
            joint = np.where(lead > 0, (self.share1 * self.share2 + root) / lead, np.inf)
        return np.maximum(np.where(self.maybe_frequent, joint, 0.0), np.where(self.maybe_rare, separate, 0.0))


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
    first_counts: FloatArray, lowest: FloatArray, highest: FloatArray, runs: tuple[int, int], alpha: float
) -> ExcessLimit:
    """Return the limits for unions with at most `first_counts` runs of the first data set.

    Of the second data set they have `lowest` to `highest` runs. The result does not depend on epsilon.
    """
    m1, m2 = runs
    nuisance_alpha, test_alpha = NUISANCE_SHARE * alpha, (1 - 3 * NUISANCE_SHARE) * alpha
    # The third absolute moment of one run is (1 - 2v) v with v = p (1 - p). In this form the error of the normal
    # approximation is largest where the first data set has no variance (docs/method.md, section 5.4).
    skewness = max(1.0, 2 * m2 / (3 * m1))
    # The variance of one run from which on an event is frequent.
    least_variance = (
        (BERRY_ESSEEN * skewness / (MAX_NORMAL_ERROR_SHARE * alpha)) ** 2 / m2 if alpha <= MAX_NORMAL_LEVEL else np.inf
    )
    if least_variance > 0.25:  # no variance is larger than 1/4: every event is rare, whatever p1 and p2 are
        p1_upper = np.ones(np.shape(first_counts))
        p2_lower, p2_upper = np.zeros(np.shape(first_counts)), np.ones(np.shape(first_counts))
    else:
        p1_upper = _cached_limit(clopper_pearson_upper, first_counts, m1, nuisance_alpha)
        p2_lower = _cached_limit(clopper_pearson_lower, lowest, m2, nuisance_alpha)
        p2_upper = _cached_limit(clopper_pearson_upper, highest, m2, nuisance_alpha)
    smallest, largest = _variance_range(p2_lower, p2_upper)
    maybe_frequent, maybe_rare = largest >= least_variance, smallest < least_variance
    smallest = np.clip(np.maximum(smallest, least_variance), None, 0.25)
    error = BERRY_ESSEEN * np.maximum(1 - 2 * smallest, 2 * m2 / (3 * m1)) / np.sqrt(m2 * smallest)
    with np.errstate(invalid="ignore"):
        z = np.where(maybe_frequent, -scipy.special.ndtri(np.maximum(test_alpha - error, 0.0)), 0.0)
    return ExcessLimit(
        share1=np.asarray(first_counts, float) / m1,
        share2=np.asarray(lowest, float) / m2,
        margin1=z * np.sqrt(_variance_range(np.zeros_like(p1_upper), p1_upper)[1] / m1),
        margin2=z * np.sqrt(largest / m2),
        upper1=_cached_limit(clopper_pearson_upper, first_counts, m1, test_alpha / 2),
        lower2=_cached_limit(clopper_pearson_lower, lowest, m2, test_alpha / 2),
        maybe_frequent=maybe_frequent,
        maybe_rare=maybe_rare,
    )
