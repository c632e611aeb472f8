"""Upper bounds over all unions of the cells of a partition (docs/method.md, section 5.4).

The union with the largest excess `p1 - e^epsilon p2` is unknown but fixed. So a limit that is valid for any single
union, maximised over all unions, is valid without a correction. `ExcessLimit` is that limit for one union: frequent
unions have a joint limit, a multiple of the standard deviation of the observed excess, and the multiple is a rigorous
version of the normal quantile (`joint_quantile`). Rare unions have two separate Clopper-Pearson limits. The frontier
gives the pairs of counts that a union can have at most.

An upper bound on delta at one epsilon is a line above all points (P_j(E), P_i(E)) of unions E of cells. The lines at
several epsilons, which a claim determines, share alpha equally. They enclose all unions in a polygon. A claim that is a
curve holds over the cells if its boundary lies above every corner of the polygon, because the boundary is concave
(docs/method.md, section 5.10).
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
from dpverify.stats.boundaries import MAX_EXPONENT, Curve, Lines, lower_envelope, with_mirror_images
from dpverify.util.checks import (
    Runs,
    check_count_columns,
    check_delta,
    check_epsilon,
    check_probability,
    runs_per_side,
)

BERRY_ESSEEN = 0.56  # Shevtsova's constant for sums of independent variables with different distributions
MAX_JOINT_LEVEL = 0.25  # at larger levels the joint limit need not fall in epsilon
# A union is frequent if its joint quantile is at most this multiple of the quantile of the separate limits.
MAX_QUANTILE_RATIO = 1.05
NUISANCE_SHARE = 1 / 300  # of alpha, four times: for the limits of p1 and p2 on which the variances depend
TILTS = np.linspace(0.7, 1.6, 37)  # exponents of the tilted bound, as multiples of the normal quantile
TABLE_STEPS = np.geomspace(1e-7, 1.0, 600)


class ExcessLimit(NamedTuple):
    """Upper confidence limits for the excess `p1 - scale p2` of unions, for every scale from 1 up.

    A limit is about all unions whose pair of counts lies on a straight line between two points, or about one pair. The
    observed excess is linear along the line, so that it is largest at an end.

    A union that is frequent under the second dataset has the joint limit: the observed excess plus z standard
    deviations, both at their largest for p1 and p2 in their intervals. A rare union has two Clopper-Pearson limits at
    half of alpha each. Which of the two applies depends on p2 alone, so the choice costs nothing; where p2 may be
    either, the larger limit is taken.

    Attributes
    ----------
    share1, share2 : numpy.ndarray
        The shares of the runs of the first and of the second dataset, at the lower end of the line.
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
    # The series of (e^x - 1 - x) / x^2 avoids cancellation for small x; the result is rounded up.
    series = 0.5 + move * (1.0 / 6.0 + move * (1.0 / 24.0 + move * (1.0 / 120.0 + move / 600.0)))
    second_order = np.where(move < 0.05, series, (np.expm1(move) - move) / np.maximum(move, 0.05) ** 2) * (1.0 + 1e-12)
    cumulant = tilt**2 * second_order
    factor = (1.0 / (tilt * math.sqrt(2.0 * math.pi)) + 2.0 * BERRY_ESSEEN * step) * np.exp(move / 2.0)
    return ((cumulant + np.log(np.minimum(factor, 1.0)) - math.log(alpha)) / tilt).min(axis=1)


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


def excess_limit(
    first_counts: FloatArray, second_counts: FloatArray, runs: tuple[int, int], alpha: float
) -> ExcessLimit:
    """Return the limits of unions with these counts, or with smaller counts of the first dataset.

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
        first dataset are rounded down along the line.
    runs : tuple of int
        The runs of the two datasets.
    alpha : float
        The level of each limit.
    """
    m1, m2 = runs
    lowest, highest = second_ends
    least_first, largest_first = (np.floor(end) for end in first_ends)
    nuisance_alpha, test_alpha = NUISANCE_SHARE * alpha, (1 - 4 * NUISANCE_SHARE) * alpha
    # One run of either dataset changes the standardised excess by at most max(1, m2/m1) / sqrt(m2 v2).
    step_factor = max(1.0, m2 / m1)
    least_variance = least_frequent_count(test_alpha) * step_factor**2 / m2
    if least_variance > 0.25:  # no variance is larger than 1/4: every event is rare, whatever p1 and p2 are
        p1_upper = np.ones(np.shape(largest_first))
        p2_lower, p2_upper = np.zeros(np.shape(largest_first)), np.ones(np.shape(largest_first))
    else:
        p1_upper = clopper_pearson_upper(largest_first, m1, nuisance_alpha)
        p2_lower = clopper_pearson_lower(lowest, m2, nuisance_alpha)
        p2_upper = clopper_pearson_upper(highest, m2, nuisance_alpha)
    # Hoeffding's limit rises by 1/m1 per run. So the joint limit does not fall in the first count, and it covers all
    # smaller first counts (docs/method.md, section 5.4).
    p1_lower = np.maximum(least_first / m1 - math.sqrt(-math.log(nuisance_alpha) / (2.0 * m1)), 0.0)
    smallest, largest = _variance_range(p2_lower, p2_upper)
    maybe_frequent, maybe_rare = largest >= least_variance, smallest < least_variance
    z = np.zeros(np.shape(maybe_frequent))
    if maybe_frequent.any():
        variance = np.clip(np.maximum(smallest[maybe_frequent], least_variance), None, 0.25)
        # The third absolute moment of one run is (1 - 2v) v with v = p (1 - p). In this form the bound is largest where
        # the first dataset has no variance (docs/method.md, section 5.4).
        third_moment = np.maximum(1 - 2 * variance, 2 * m2 / (3 * m1)) / np.sqrt(m2 * variance)
        z[maybe_frequent] = joint_quantile(step_factor / np.sqrt(m2 * variance), test_alpha, third_moment)
    return ExcessLimit(
        share1=np.asarray(first_ends[0], float) / m1,
        share2=np.asarray(lowest, float) / m2,
        upper_share1=np.asarray(first_ends[1], float) / m1,
        upper_share2=np.asarray(highest, float) / m2,
        margin1=z * np.sqrt(_variance_range(np.minimum(p1_lower, p1_upper), p1_upper)[1] / m1),
        margin2=z * np.sqrt(largest / m2),
        upper1=clopper_pearson_upper(largest_first, m1, test_alpha / 2),
        lower2=clopper_pearson_lower(lowest, m2, test_alpha / 2),
        maybe_frequent=maybe_frequent,
        maybe_rare=maybe_rare,
    )


MAX_LIMITS_AT_ONCE = 1 << 20  # of all epsilons together; more would need much memory


class Frontier(NamedTuple):
    """The largest first count of any union of cells as a function of its second count: a concave polyline.

    Attributes
    ----------
    first_counts, second_counts : numpy.ndarray
        The corners of the polyline.
    runs : tuple of int
        The runs of the two datasets.
    alpha : float
        The level of the limits.
    corner_limits, segment_limits : ExcessLimit
        The limits at the corners, and over the segments between them. They do not depend on epsilon.
    """

    first_counts: FloatArray
    second_counts: FloatArray
    runs: tuple[int, int]
    alpha: float
    corner_limits: ExcessLimit
    segment_limits: ExcessLimit

    def height(self, second_counts: FloatArray) -> FloatArray:
        """Return the largest first count for each second count; the factor makes up for rounding errors."""
        return np.floor(np.interp(second_counts, self.second_counts, self.first_counts) * (1 + 1e-14))

    def point_limits(self, second_counts: FloatArray) -> ExcessLimit:
        """Return the limits at some second counts."""
        return excess_limit(self.height(second_counts), second_counts, self.runs, self.alpha)

    def stretch_limits(self, left: FloatArray, right: FloatArray) -> ExcessLimit:
        """Return the limits over all second counts between `left` and `right`, both excluded, on one segment each.

        Where there is no count between them, both are included.
        """
        inner = np.minimum(left + 1, right), np.maximum(right - 1, left)
        lowest, highest = np.minimum(*inner), np.maximum(*inner)
        on_line = [
            np.where(
                lowest == highest, self.height(end), _above_line(np.interp(end, self.second_counts, self.first_counts))
            )
            for end in (lowest, highest)
        ]
        return segment_limit((on_line[0], on_line[1]), (lowest, highest), self.runs, self.alpha)


def _above_line(first_counts: FloatArray) -> FloatArray:
    """Return numbers that are safely above the points of a segment that `Frontier.height` computes with rounding."""
    return first_counts * (1 + 1e-13)


def frontier(counts1: ArrayLike, counts2: ArrayLike, runs: Runs, alpha: float) -> Frontier:
    """Return the frontier of a partition: the cells in the order of their ratio, cumulated.

    No union of cells lies above this line. Cells of equal ratio form one segment, so that the order of the cells does
    not matter.
    """
    c1, c2 = check_count_columns(counts1, counts2, runs)
    both_runs = runs_per_side(runs)
    occupied = c1 + c2 > 0
    c1, c2 = c1[occupied], c2[occupied]
    _, segment = np.unique(-c1 / (c1 + c2), return_inverse=True)
    first = np.append(0.0, np.cumsum(np.bincount(segment, c1)))
    second = np.append(0.0, np.cumsum(np.bincount(segment, c2)))
    is_highest = np.append(second[1:] > second[:-1], True)  # of several points with one second count
    first, second = first[is_highest], second[is_highest]
    corner_limits = excess_limit(first, second, both_runs, alpha)
    on_line = _above_line(first)
    segment_limits = segment_limit((on_line[:-1], on_line[1:]), (second[:-1], second[1:]), both_runs, alpha)
    return Frontier(first, second, both_runs, alpha, corner_limits, segment_limits)


def frontier_bound(line: Frontier, epsilon: float, tolerance: float = 1e-3) -> float:
    """Return the largest limit of any union: an upper bound on delta over the partition, in one order."""
    return float(frontier_bounds(line, np.array([epsilon]), tolerance)[0])


def frontier_bounds(line: Frontier, epsilons: FloatArray, tolerance: float = 1e-3) -> FloatArray:
    """Return the upper bound on delta of `frontier_bound` at each epsilon; the limits are computed once for all.

    A stretch of second counts between two evaluated ones is bounded as a whole: by the larger observed excess of its
    two ends, and the largest margin of all of its counts. Stretches are halved until none can exceed the largest limit
    so far by more than `tolerance` standard errors of the first count.
    """
    if len(epsilons) > 1 and len(epsilons) * len(line.second_counts) > MAX_LIMITS_AT_ONCE:
        parts = np.array_split(epsilons, 2)
        return np.concatenate([frontier_bounds(line, part, tolerance) for part in parts])
    # The bound falls in epsilon, so that a smaller scale is safe.
    scales = np.array([[math.exp(min(epsilon, MAX_EXPONENT))] for epsilon in epsilons])
    m1 = line.runs[0]
    left, right = line.second_counts[:-1], line.second_counts[1:]
    largest = line.corner_limits.excess(scales).max(axis=1, keepdims=True)
    bounds = line.segment_limits.excess(scales)  # a row for each epsilon, a column for each stretch
    is_open = np.ones(bounds.shape, bool)
    while True:  # each round halves all stretches
        allowance = tolerance * np.sqrt(np.clip(line.height(right) / m1, 1 / m1, 1) / m1)
        divisible = right - left > 1
        settled = (bounds <= largest + allowance) | ~divisible
        largest = np.maximum(largest, _largest_where(is_open & settled & divisible, bounds))
        is_open &= ~settled
        kept = is_open.any(axis=0)
        left, right, is_open = left[kept], right[kept], is_open[:, kept]
        if not left.size:
            return largest[:, 0]
        middle = np.floor((left + right) / 2)
        largest = np.maximum(largest, _largest_where(is_open, line.point_limits(middle).excess(scales)))
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        is_open = np.concatenate([is_open, is_open], axis=1)
        bounds = line.stretch_limits(left, right).excess(scales)


def _largest_where(mask: np.ndarray, values: FloatArray) -> FloatArray:
    """Return the largest value of each row among those that the mask selects, as a column."""
    return np.where(mask, values, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)


def delta_upper_bound(counts1: ArrayLike, counts2: ArrayLike, runs: Runs, epsilon: float, alpha: float = 0.05) -> float:
    """Return an upper bound on delta over all unions of the cells, in one order.

    With probability at least `1 - alpha`, `P1(E) <= e^epsilon P2(E) + bound` for all unions E of the cells at once
    (docs/method.md, section 5.4).

    Parameters
    ----------
    counts1, counts2 : array_like
        The counts of the cells under the first and under the second dataset. The partition must be fixed before the
        runs. Cells that no run hit may be left out.
    runs : number, or pair of numbers
        The runs per dataset, or those of the first and of the second dataset.
    epsilon : float
        At least 0.
    alpha : float
        The probability of an error.

    Returns
    -------
    float
        The bound, from 0 to 1.

    Raises
    ------
    InputError
        If an argument is out of its range.

    Examples
    --------
    >>> round(delta_upper_bound([600, 400], [400, 600], 1000, epsilon=0.0), 3)
    0.243
    """
    check_epsilon(epsilon)
    check_probability("alpha", alpha)
    return min(1.0, max(0.0, frontier_bound(frontier(counts1, counts2, runs, alpha), epsilon)))


def epsilon_upper_bound(
    counts1: ArrayLike, counts2: ArrayLike, runs: Runs, delta: float = 0.0, alpha: float = 0.05
) -> float:
    """Return an upper bound on epsilon over all unions of the cells, in both orders.

    With probability at least `1 - alpha` no union of the cells violates (bound, delta)-differential privacy. The worse
    order is unknown but fixed, so that the bound of each order at alpha needs no correction. At delta 0 a single cell
    determines the bound (docs/method.md, section 5.4).

    Parameters
    ----------
    counts1, counts2 : array_like
        The counts of the cells under the first and under the second dataset. The partition must be fixed before the
        runs. At delta 0 all cells must be given, because a cell with a count of 0 makes the bound infinite.
    runs : number, or pair of numbers
        The runs per dataset, or those of the first and of the second dataset.
    delta : float
        At least 0 and below 1.
    alpha : float
        The probability of an error.

    Returns
    -------
    float
        The bound; infinite where no epsilon is bounded.

    Raises
    ------
    InputError
        If an argument is out of its range.

    Examples
    --------
    >>> round(epsilon_upper_bound([600, 400], [400, 600], 1000), 3)
    0.499
    >>> epsilon_upper_bound([5, 0], [5, 5], 10)
    inf
    """
    check_delta(delta)
    check_probability("alpha", alpha)
    m1, m2 = runs_per_side(runs)
    if delta == 0:
        c1, c2 = check_count_columns(counts1, counts2, (m1, m2))
        forward, backward = excess_limit(c1, c2, (m1, m2), alpha), excess_limit(c2, c1, (m2, m1), alpha)
        largest_ratio = np.max(np.maximum(forward.ratio(), backward.ratio()), initial=1.0)
        return float(np.log(largest_ratio))
    forward_line = frontier(counts1, counts2, (m1, m2), alpha)
    backward_line = frontier(counts2, counts1, (m2, m1), alpha)
    forward_epsilon = smallest_epsilon(lambda epsilon: frontier_bound(forward_line, epsilon), delta)
    if forward_epsilon == math.inf:
        return forward_epsilon
    # The search in the other order starts at the first result, because only a larger value matters.
    return smallest_epsilon(lambda epsilon: frontier_bound(backward_line, epsilon), delta, forward_epsilon)


def least_bounded_delta(runs: int, alpha: float) -> float:
    """Return the delta below which `epsilon_upper_bound` is infinite at a positive delta, whatever the counts are.

    The reason is the union without any run: its probability may be as large as this under one dataset, and 0 under the
    other. Below this delta the bound at delta 0 is used instead. It holds at every delta, and the choice depends on the
    number of runs only, so that it needs no correction.

    Parameters
    ----------
    runs : int
        The runs per dataset.
    alpha : float
        The probability of an error.

    Examples
    --------
    >>> round(least_bounded_delta(1000, 0.05), 5)
    0.0037
    >>> epsilon_upper_bound([600, 400], [400, 600], 1000, delta=0.0036)
    inf
    """
    nobody = np.zeros(1)
    return float(excess_limit(nobody, nobody, (runs, runs), alpha).upper1[0])


def smallest_epsilon(bound: Callable[[float], float], delta: float, least: float = 0.0) -> float:
    """Return the smallest epsilon, from `least` up, at which a falling bound on delta is at most `delta`.

    The result is rounded up, so that the bound itself confirms it. It is infinite where the bound stays above delta.

    Examples
    --------
    >>> import math
    >>> round(smallest_epsilon(lambda epsilon: math.exp(-epsilon), 0.5), 4)
    0.6931
    """
    low, step = least, 1.0
    if bound(low) <= delta:
        return low
    while bound(high := least + step) > delta:
        low, step = high, 2 * step
        if step > MAX_EXPONENT:
            return math.inf
    increment = 1e-6 * max(high, 1e-3)
    root = scipy.optimize.brentq(lambda epsilon: bound(epsilon) - delta, low, high, xtol=increment / 4)
    result = float(root)  # type: ignore[arg-type]
    while result + increment < high:
        result += increment
        if bound(result) <= delta:
            return result
        increment *= 2
    return high


MAX_SUPPORTING_LINES = 12  # they share alpha; more of them enclose the unions no better
JOINT_LINES = 200  # of bounds that hold at all epsilons together: as many as a quick test may take
SMALLEST_PROBABILITY = 1e-4  # of an event whose supporting line is used
CORNER_ROUNDING = 1e-12  # relative, of the position of a corner


def supporting_epsilons(claim: Curve, most: int = MAX_SUPPORTING_LINES) -> FloatArray:
    """Return epsilons at which delta is bounded to test a claim: logarithms of slopes of the claim's boundary.

    They depend on the claim alone. Negative epsilons follow from the positive ones, because both orders are bounded.

    Examples
    --------
    >>> from dpverify.claims import gaussian
    >>> supporting_epsilons(gaussian(1.0)).round(1).tolist()
    [0.0, 0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.0, 2.3, 2.6, 2.9, 3.2]
    """
    q = np.geomspace(SMALLEST_PROBABILITY, 0.5, 4000)
    slopes = np.diff(claim.boundary(q)) / np.diff(q)
    epsilons, number = np.unique(np.log(np.maximum(slopes, 1.0)).round(3), return_counts=True)
    repeated = number > 1
    # A claim of few points has few slopes, apart from those at its corners.
    if repeated.sum() <= most and number[repeated].sum() > 0.9 * slopes.size:
        return np.unique([0.0, *epsilons[repeated]])
    return np.linspace(0.0, epsilons[-1], most)


def holds_on_partition(
    claim: Curve, counts1: ArrayLike, counts2: ArrayLike, runs: int, alpha: float, all_occupied: bool
) -> bool:
    """Return whether the claim holds for all unions of the cells, at confidence 1 - alpha.

    Parameters
    ----------
    claim : Curve
        The claim.
    counts1, counts2 : array_like
        The counts of the cells under the two datasets.
    runs : int
        The runs per dataset.
    alpha : float
        The probability of an error.
    all_occupied : bool
        Whether the counts contain every cell of the partition.

    Examples
    --------
    >>> from dpverify.claims import gaussian
    >>> holds_on_partition(gaussian(1.0), [60_000, 40_000], [40_000, 60_000], 100_000, 0.05, True)
    True
    >>> holds_on_partition(gaussian(0.4), [60_000, 40_000], [40_000, 60_000], 100_000, 0.05, True)
    False
    """
    epsilons = supporting_epsilons(claim)
    level = alpha / (len(epsilons) + 1)  # the bound at each epsilon has an equal share, and so has that at delta 0
    orders = [frontier(a, b, runs, level) for a, b in ((counts1, counts2), (counts2, counts1))]
    deltas = np.maximum(0.0, np.maximum(*(frontier_bounds(line, epsilons) for line in orders)))
    pure = epsilon_upper_bound(counts1, counts2, runs, 0.0, level) if all_occupied else math.inf
    if pure < math.inf:
        epsilons, deltas = np.append(epsilons, pure), np.append(deltas, 0.0)
    # These lines are above the points (P_j(E), P_i(E)) of all unions E of cells in both orders.
    return lies_above(claim, lower_envelope(*with_mirror_images(epsilons, deltas)))


def lies_above(claim: Curve, lines: Lines) -> bool:
    """Return whether the boundary of a claim lies above the lowest of some lines everywhere."""
    # The lines are cut off at 1, which makes one more corner where the flattest of them reaches it.
    full = (1.0 - lines.deltas[-1]) / math.exp(lines.epsilons[-1])
    corners = np.r_[0.0, lines.corners, min(max(full, 0.0), 1.0), 1.0]
    # A corner is the end of two lines; both are evaluated, so that the rounding of its position does no harm.
    shifted = np.clip(np.r_[corners * (1.0 - CORNER_ROUNDING), corners * (1.0 + CORNER_ROUNDING)], 0.0, 1.0)
    lowest = np.r_[lines.lowest(shifted), lines.lowest(corners)]
    return bool((lowest <= claim.boundary(np.r_[shifted, corners])).all())


def profile_allows(claim: Curve, delta_upper: Callable[[float], float]) -> bool:
    """Return whether a claim that is a curve follows from bounds on delta that hold at all epsilons together.

    Examples
    --------
    >>> from dpverify.claims import points
    >>> profile_allows(points([(0.5, 0.1), (2.0, 0.01)]), lambda epsilon: 0.15 * math.exp(-1.5 * epsilon))
    True
    >>> profile_allows(points([(0.5, 0.1), (2.0, 0.01)]), lambda epsilon: 0.15 * math.exp(-0.5 * epsilon))
    False
    """
    epsilons = supporting_epsilons(claim, JOINT_LINES)
    deltas = np.array([delta_upper(epsilon) for epsilon in epsilons.tolist()])
    return lies_above(claim, lower_envelope(*with_mirror_images(epsilons, deltas)))


# The epsilons of a profile are fixed. Epsilons that depend on the test runs would invalidate the upper curve.
PROFILE_EPSILONS = np.array(
    [0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 12, 15], float
)


def delta_lower_curve(c1: int, c2: int, runs: int, epsilons: np.ndarray, alpha: float) -> np.ndarray:
    """Return lower bounds on delta that hold at all epsilons together, with confidence 1 - alpha.

    One pair of Clopper-Pearson limits, each at alpha / 2, gives the bound at every epsilon.
    """
    p1, p2 = clopper_pearson_lower(c1, runs, alpha / 2), clopper_pearson_upper(c2, runs, alpha / 2)
    return np.maximum(p1 - np.exp(np.minimum(epsilons, MAX_EXPONENT)) * p2, 0.0)


def delta_upper_curve(c1: np.ndarray, c2: np.ndarray, runs: int, epsilons: np.ndarray, alpha: float) -> np.ndarray:
    """Return upper bounds on delta over unions of cells, in both orders, with confidence 1 - alpha for the whole curve.

    Each epsilon gets an equal share of alpha. Delta over unions of cells is convex in e^epsilon, so between two
    epsilons the chord in e^epsilon is an upper bound too.
    """
    lines = [frontier(a, b, runs, alpha / len(epsilons)) for a, b in ((c1, c2), (c2, c1))]
    return np.clip(np.maximum(*(frontier_bounds(line, epsilons) for line in lines)), 0.0, 1.0)
