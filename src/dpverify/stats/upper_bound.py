"""Upper bounds over all unions of the cells of a partition (docs/method.md, section 5.4).

The union with the largest excess `p1 - e^epsilon p2` is unknown but fixed. So a limit that is valid for any single
union, maximised over all unions, is valid without a correction. `ExcessLimit` is that limit for one union. The frontier
gives the pairs of counts that a union can have at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.stats.binomial import FloatArray
from dpverify.stats.excess_limit import ExcessLimit, excess_limit, segment_limit
from dpverify.util.checks import (
    Runs,
    check_count_columns,
    check_delta,
    check_epsilon,
    check_probability,
    runs_per_side,
)

MAX_EXPONENT = 700.0  # of e^epsilon in double precision
MAX_LIMITS_AT_ONCE = 1 << 20  # of all epsilons together; more would need much memory
MAX_REFINEMENTS = 200


class Frontier(NamedTuple):
    """The largest first count of any union of cells as a function of its second count: a concave polyline.

    Attributes
    ----------
    first_counts, second_counts : numpy.ndarray
        The corners of the polyline.
    runs : tuple of int
        The runs of the two data sets.
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
    for _ in range(MAX_REFINEMENTS):
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
    return np.maximum(largest, _largest_where(is_open, bounds))[:, 0]


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
        The counts of the cells under the first and under the second data set. The partition must be fixed before the
        runs. Cells that no run hit may be left out.
    runs : number, or pair of numbers
        The runs per data set, or those of the first and of the second data set.
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
        The counts of the cells under the first and under the second data set. The partition must be fixed before the
        runs. At delta 0 all cells must be given, because a cell with a count of 0 makes the bound infinite.
    runs : number, or pair of numbers
        The runs per data set, or those of the first and of the second data set.
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

    The reason is the union without any run: its probability may be as large as this under one data set, and 0 under the
    other. Below this delta the bound at delta 0 is used instead. It holds at every delta, and the choice depends on the
    number of runs only, so that it needs no correction.

    Parameters
    ----------
    runs : int
        The runs per data set.
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
