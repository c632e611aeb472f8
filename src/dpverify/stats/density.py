"""Bounds over all events from a stated density, and the test of the density (docs/method.md, section 5.13).

Let `L = log p1 - log p2` be the stated log-ratio of the two output densities. Runs of both datasets are counted in
slices of L between sorted edges that were fixed before, and in some columns, which divide the outputs in another way.

The privacy profile over all events is an integral of a tail of L: `delta_12(eps) = int_eps^inf e^(eps-t) P1(L > t) dt`.
At each of G thresholds a binomial limit at level a/G bounds the tail, so all of them hold together at level a. The
tail falls, so each limit bounds it up to the next threshold, and the integral of the steps bounds delta at all epsilons
together. The other order has the tails `P2(-L > t)`, and the two orders share a level equally.

If the density is right, every event A within the slice between the edges l and u satisfies
`e^l P2(A) <= P1(A) <= e^u P2(A)`. The test compares limits of both sides, added up over the slices, for many rectangles
of slices and columns; a rectangle in which they contradict this shows that the density is wrong.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpverify.stats.binomial import FloatArray, clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.boundaries import MAX_EXPONENT

# Successive thresholds have tails of about this ratio. A step function is then above the tail by 2.5% on average,
# about the error of 10^4 counts; the profile at delta 0.01 from 10^6 runs rests on more.
TAIL_RATIO = 1.05
TAIL_RUNS = 64  # largest losses that give the scale of the tail; their mean excess has an error of an eighth
# The tail has steps of this part of its mean excess, so that successive tails have about the same ratio as above.
TAIL_STEP = math.log(TAIL_RATIO) * 1.2
EVEN_STEPS = 130  # they cover a tail that is e^-7 of that of the largest losses; further steps grow
GROWING_STEPS = 40
STEP_GROWTH = 1.12  # the growing steps reach 100 times as far as the even ones
# Relative; a threshold lies this much above a value that many runs have, so that rounding in single precision does not
# move some of them across it.
NUDGE = 1e-6
# The first two divide a log-ratio of 0, which many runs may have, from larger ones. The others are for losses that no
# pilot run had: a step of a half costs a rare leak at most a factor e^0.5 near its epsilon, and from 8 on, where no
# claim is, steps that grow by a quarter up to the largest exponent are enough.
COMMON_THRESHOLDS = np.r_[0.0, NUDGE, 0.5 * np.arange(1, 17), 8.0 * 1.25 ** np.arange(1, 20)]


def loss_thresholds(losses: FloatArray) -> FloatArray:
    """Return thresholds of the log-ratio, from 0 up, that follow the sizes of some losses. They need not be exact.

    Parameters
    ----------
    losses : numpy.ndarray
        Absolute log-ratios of runs that are not counted later.

    Examples
    --------
    >>> thresholds = loss_thresholds(np.full(100, 2.0))
    >>> bool(thresholds[0] == 0.0), bool(2.0 < thresholds[thresholds > 2.0][0] < 2.00001)
    (True, True)
    """
    x = np.sort(losses[(losses > 0) & (losses < MAX_EXPONENT)])
    thresholds = COMMON_THRESHOLDS
    if x.size > 1:
        tail = x[-min(TAIL_RUNS, x.size // 2) :]
        survival = TAIL_RATIO ** -np.arange(0.0, math.log(x.size / tail.size) / math.log(TAIL_RATIO))
        bulk = np.interp(1.0 - survival, (np.arange(x.size) + 0.5) / x.size, x)
        growth = STEP_GROWTH ** np.maximum(np.arange(EVEN_STEPS + GROWING_STEPS) - EVEN_STEPS, 0)
        steps = (tail - tail[0]).mean() * TAIL_STEP * np.cumsum(growth)
        thresholds = np.r_[thresholds, bulk, tail[0], tail[0] + steps, tail[-1]]
    nudged = np.where(thresholds > 0, thresholds * (1.0 + NUDGE), 0.0)
    return np.unique(nudged[nudged < MAX_EXPONENT])


def tail_limits(above: FloatArray, runs: int, alpha: float) -> FloatArray:
    """Return upper limits of the probabilities of tails that hold together, with confidence 1 - alpha."""
    return clopper_pearson_upper(above, runs, alpha / len(above))


def delta_from_tail(thresholds: FloatArray, limits: FloatArray, epsilon: float) -> float:
    """Return the integral of `e^(epsilon - t)` times the limit at t from epsilon up: a bound on delta in one order.

    Between two thresholds the limit is that of the lower one. The result falls in epsilon.

    Examples
    --------
    >>> round(delta_from_tail(np.array([0.0, 1.0]), np.array([0.5, 0.0]), 0.0), 4)  # half of the runs have a loss of 1
    0.3161
    """
    start = np.maximum(thresholds, epsilon)
    end = np.maximum(np.append(thresholds[1:], np.inf), start)
    return float(((np.exp(epsilon - start) - np.exp(epsilon - end)) * limits).sum())


class Misfit(NamedTuple):
    """Runs that contradict a stated density.

    Attributes
    ----------
    low, high : float
        Their log-ratios, as stated, lie between these; infinite for the outer slices.
    columns : tuple of int
        The first column, and the one after the last.
    counts : tuple of int
        The runs of the first and of the second dataset.
    """

    low: float
    high: float
    columns: tuple[int, int]
    counts: tuple[int, int]


def find_misfit(edges: FloatArray, counts: np.ndarray, runs: int, level: float) -> Misfit | None:
    """Return the rectangle of slices and columns that contradicts the density most clearly, or None.

    If the density is right, a rectangle is returned with probability at most `level`. In a rectangle A of the slices j,
    `P1(A) <= sum_j e^(u_j) P2(A_j)` and `P2(A) <= sum_j e^(-l_j) P1(A_j)`. The left sides have a binomial limit. The
    right sides are means of a bounded number per run, for which `mean_limit` holds.

    Parameters
    ----------
    edges : numpy.ndarray
        The edges of the slices.
    counts : numpy.ndarray of shape (2, slices, columns)
        The runs of both datasets.
    runs : int
        The runs per dataset.
    level : float
        The level of all tests together.

    Examples
    --------
    >>> slices = np.array([-1.0, 0.0, 1.0])
    >>> find_misfit(slices, np.array([[[0], [400], [600], [0]], [[0], [600], [400], [0]]]), 1000, 1e-6) is None
    True
    >>> find_misfit(slices, np.array([[[0], [700], [300], [0]], [[0], [300], [700], [0]]]), 1000, 1e-6)
    Misfit(low=-1.0, high=0.0, columns=(0, 1), counts=(700, 300))
    """
    slices, columns = counts.shape[1:]
    places = dyadic_ranges(columns)
    sums = np.concatenate([np.zeros((2, slices, 1)), counts.cumsum(axis=2)], axis=2)
    first, second = sums[:, :, [stop for _, stop in places]] - sums[:, :, [start for start, _ in places]]
    low, high = np.r_[-np.inf, edges], np.r_[edges, np.inf]
    lengths = [1 << power for power in range(slices.bit_length())]
    number = 2 * len(places) * sum(-(-slices // length) for length in lengths)
    worst: tuple[float, Misfit | None] = (0.0, None)
    for length in lengths:
        ranges = np.arange(0, slices, length)
        excess = [
            _log_excess(first, second, high, ranges, runs, level / number),
            _log_excess(second, first, -low, ranges, runs, level / number),
        ]
        best = np.unravel_index(np.argmax(excess), np.shape(excess))
        if excess[best[0]][best[1:]] > worst[0]:
            start, place = int(ranges[best[1]]), places[int(best[2])]
            rows = slice(start, start + length)
            inside = tuple(int(side[rows, best[2]].sum()) for side in (first, second))
            limits = float(low[rows][0]), float(high[rows][-1])
            worst = float(excess[best[0]][best[1:]]), Misfit(*limits, place, inside)  # type: ignore[arg-type]
    return worst[1]


def _log_excess(
    first: FloatArray, second: FloatArray, exponents: FloatArray, starts: np.ndarray, runs: int, level: float
) -> FloatArray:
    """Return how far `P1(A) <= sum_j e^exponent_j P2(A_j)` is violated, on the logarithmic scale, for many A.

    A consists of the slices from one start up to the next, and of one of the columns of the two tables. Where the
    largest exponent is infinite, nothing is claimed.
    """
    largest = np.maximum.reduceat(exponents, starts)
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.exp(exponents - np.repeat(largest, np.diff(np.append(starts, exponents.size))))
    weights = np.nan_to_num(weights)[:, None]
    total = np.add.reduceat(first, starts)
    mean, square = (np.add.reduceat(weights**power * second, starts) / runs for power in (1, 2))
    with np.errstate(divide="ignore"):
        lower = np.log(clopper_pearson_lower(total, runs, level / 2))
        return lower - largest[:, None] - np.log(mean_limit(mean, square, runs, level / 2))


def mean_limit(mean: FloatArray, square: FloatArray, runs: int, level: float) -> FloatArray:
    """Return an upper confidence limit of the mean of a number from 0 to 1 (Maurer and Pontil's Bernstein bound).

    Parameters
    ----------
    mean, square : numpy.ndarray
        The means of the number and of its square over the runs.
    runs : int
        The number of independent runs.
    level : float
        The probability that the limit is below the mean of the distribution.

    Examples
    --------
    >>> round(float(mean_limit(np.array(0.1), np.array(0.05), 1000, 0.05)), 3)
    0.126
    """
    variance = np.maximum(square - mean**2, 0.0) * runs / max(runs - 1, 1)
    log = math.log(2.0 / level)
    return mean + np.sqrt(2.0 * variance * log / runs) + 7.0 * log / (3.0 * max(runs - 1, 1))


def dyadic_ranges(size: int) -> list[tuple[int, int]]:
    """Return all ranges [a, b) whose length is a power of two that divides a; the last of a length may be cut off.

    Examples
    --------
    >>> dyadic_ranges(3)
    [(0, 1), (1, 2), (2, 3), (0, 2), (2, 3), (0, 3)]
    """
    lengths = [1 << power for power in range((2 * size - 1).bit_length())]
    return [(start, min(start + length, size)) for length in lengths for start in range(0, size, length)]
