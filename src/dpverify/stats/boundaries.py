"""Boundaries of claims: the largest probability of an event, given its probability q with the other dataset.

A boundary is concave, nondecreasing and at least q (docs/method.md, section 5.10). A line `e^epsilon q + delta` lies
above the boundary of a claim exactly where the claim implies (epsilon, delta). So the smallest of finitely many such
lines is never below the boundary, and leaving out lines only raises it. A table made of lines can therefore never
refute a claim that holds.

A divergence of two output distributions is at least the divergence of the two probabilities of an event. So a claimed
Renyi divergence bounds p, given q. Every result is rounded up: a claim that holds is never violated by rounding.

The anytime test needs boundaries with their slopes. These are exact, because a difference of two values loses all
digits where the boundary is much larger than q.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.errors import InputError, describe_exception
from dpverify.stats.binomial import FloatArray
from dpverify.util.checks import BELOW_ONE, shorten

MAX_EXPONENT = 700.0  # exp of more overflows
NORMAL_ROUNDING = 1e-15  # relative error of the normal distribution function and its inverse, with a margin
MAX_LINES = 2000  # more than a table at its tolerance has; compositions of claims may have more
MAX_EVALUATIONS = 1500  # of a function of the user, which may take a millisecond
MAX_PROFILE_EPSILON = 64.0  # no number of runs shows a ratio of e^64
SMALL_DELTA = 1e-14  # a profile is not followed to larger epsilons than where it reaches this
# A table is refined until it lies above the function by at most this multiple of sqrt(p (1-p)), the standard deviation
# of one run. With 10^6 runs this is a fiftieth of a standard error.
TABLE_TOLERANCE = 2e-5
TABLE_NODES = np.r_[np.geomspace(1e-12, 0.5, 40), 1.0 - np.geomspace(0.5, 1e-12, 40)[1:]]
VALUE_ERROR = 1e-10  # absolute; by which the values of a function may be wrong through rounding
CURVATURE_TOLERANCE = 2 * VALUE_ERROR  # by which a function may then fail to be concave
SMALL_PROBABILITY = 1e-11  # no number of runs shows an excess of this size
QUICK_NODES = np.sort(np.r_[np.linspace(0.0, 1.0, 301), 1.0 / (1.0 + np.exp(np.linspace(-20.0, 20.0, 400)))])


class Curve(Protocol):
    """What the tests need of a claim."""

    def boundary(self, q: ArrayLike, /) -> FloatArray:
        """Return the largest probability that the claim allows where the other dataset has q."""
        ...


class Lines(NamedTuple):
    """Lines `e^epsilons[i] q + deltas[i]`, from the steepest to the flattest, and the points where they intersect."""

    epsilons: FloatArray
    deltas: FloatArray
    corners: FloatArray

    def lowest(self, q: FloatArray) -> FloatArray:
        """Return the smallest of the lines at each q, at most 1."""
        index = self.corners.searchsorted(q)
        return np.minimum(1.0, np.exp(self.epsilons[index]) * q + self.deltas[index])


def lower_envelope(epsilons: FloatArray, deltas: FloatArray) -> Lines:
    """Return those lines that are the lowest somewhere on [0, 1], below 1.

    Examples
    --------
    >>> lines = lower_envelope(np.array([0.0, 1.0, 1.0]), np.array([0.2, 0.0, 0.5]))
    >>> lines.epsilons.tolist(), lines.deltas.tolist(), lines.corners.round(4).tolist()
    ([1.0, 0.0], [0.0, 0.2], [0.1164])
    """
    order = np.lexsort((deltas, -epsilons))
    kept: list[tuple[float, float, float]] = []  # slope, intercept, and where the line becomes the lowest one
    chosen: list[int] = []
    for i in order:
        slope, delta, start = float(np.exp(epsilons[i])), float(deltas[i]), 0.0
        while kept:
            last_slope, last_delta, last_start = kept[-1]
            start = (delta - last_delta) / (last_slope - slope) if last_slope > slope else np.inf
            if start > last_start:
                break
            kept.pop()
            chosen.pop()
            start = 0.0
        if start < 1.0 and slope * start + delta < 1.0:
            kept.append((slope, delta, start))
            chosen.append(int(i))
    if not chosen:  # nothing is claimed: the flattest line that is given lies above 1 everywhere
        chosen = [int(order[-1])]
        kept = [(0.0, 1.0, 0.0)]
    if len(chosen) > MAX_LINES:
        index = np.unique(np.linspace(0, len(chosen) - 1, MAX_LINES).round().astype(int))
        return lower_envelope(epsilons[np.array(chosen)[index]], deltas[np.array(chosen)[index]])
    return Lines(epsilons[chosen], deltas[chosen], np.array([start for _, _, start in kept[1:]]))


def with_mirror_images(epsilons: FloatArray, deltas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return points (epsilon, delta) together with those that they imply for the complements of all events.

    Applied to the complement, and with the datasets exchanged, (epsilon, delta) gives
    `p <= e^-epsilon q + 1 - e^-epsilon (1 - delta)`.
    """
    mirrored = -np.expm1(-epsilons) + np.exp(-epsilons) * deltas
    return np.append(epsilons, -epsilons), np.append(deltas, mirrored)


def compose(outer: Lines, inner: Lines) -> Lines:
    """Return the lines of the composition of two boundaries: `e^a (e^b q + d) + c` for all pairs of lines."""
    epsilons = outer.epsilons[:, None] + inner.epsilons[None, :]
    deltas = np.exp(outer.epsilons)[:, None] * inner.deltas[None, :] + outer.deltas[:, None]
    return lower_envelope(epsilons.ravel(), deltas.ravel())


def tabulate_profile(delta_at: Callable[[float], float]) -> tuple[FloatArray, FloatArray]:
    """Return points (epsilon, delta) of a privacy profile, dense enough for `TABLE_TOLERANCE`.

    Every point is a claim of its own, so the points may be chosen freely.
    """
    values: dict[float, float] = {}

    def evaluate(epsilon: float) -> float:
        if epsilon not in values:
            try:
                delta = float(delta_at(epsilon))
            except Exception as problem:  # the function belongs to the user
                raise InputError(
                    f"profile: found {describe_exception(problem)} at epsilon {epsilon:g}; expected a function that "
                    "takes epsilon and returns one number, delta"
                ) from problem
            delta = 0.0 if -VALUE_ERROR <= delta < 0.0 else delta
            if not delta >= 0.0:
                raise InputError(
                    f"profile: found delta {shorten(delta)} at epsilon {epsilon:g}; expected a number from 0 to 1"
                )
            values[epsilon] = min(delta, 1.0)
        return values[epsilon]

    highest, previous = 1.0, evaluate(0.0)
    while (delta := evaluate(highest)) > SMALL_DELTA and delta != previous and highest < MAX_PROFILE_EPSILON:
        highest, previous = 2.0 * highest, delta
    nodes = np.linspace(0.0, highest, 33).tolist()
    pending = list(itertools.pairwise(nodes))
    while pending and len(values) < MAX_EVALUATIONS:
        refined = []
        for left, right in pending:
            middle = (left + right) / 2.0
            slope = np.exp(left)
            q = (evaluate(left) - evaluate(right)) / (np.exp(right) - slope)
            p = slope * q + evaluate(left)
            if not 0.0 < q < 1.0 or p >= 1.0:
                continue
            # A new line in the middle leaves a quarter of the excess that it removes.
            excess = p - (np.exp(middle) * q + evaluate(middle))
            if excess > 4.0 * TABLE_TOLERANCE * np.sqrt(p * (1.0 - p)) + SMALL_PROBABILITY:
                refined += [(left, middle), (middle, right)]
        pending = refined
    epsilons = np.array(sorted(values))
    return epsilons, np.array([values[epsilon] for epsilon in epsilons])


def tabulate_concave(boundary_at: Callable[[float], float]) -> tuple[FloatArray, FloatArray]:
    """Return lines `e^epsilon q + delta` that lie above a concave, nondecreasing function on [0, 1], close to it."""
    values: dict[float, float] = {}

    def evaluate(q: float) -> float:
        if q not in values:
            p = float(boundary_at(q))
            if not q - 1e-9 <= p <= 1.0 + 1e-9:
                raise InputError(
                    f"tradeoff: found f({q:g}) = {1.0 - p:g}; expected a number from 0 to {1.0 - q:g}, because a "
                    "trade-off function is at most 1 - q"
                )
            values[q] = min(1.0, p)
        return values[q]

    nodes = np.r_[0.0, TABLE_NODES, 1.0].tolist()
    pending, lines = list(itertools.pairwise(nodes)), []
    while pending:
        refined = []
        for left, right in pending:
            middle, (low, high) = (left + right) / 2.0, (evaluate(left), evaluate(right))
            p = evaluate(middle)
            excess = p - (low + high) / 2.0
            if high < low - CURVATURE_TOLERANCE or excess < -CURVATURE_TOLERANCE:
                raise InputError(
                    f"tradeoff: found values {1 - low:g}, {1 - p:g}, {1 - high:g} at {left:g}, {middle:g}, {right:g}; "
                    "expected a convex function that does not rise"
                )
            smallest = TABLE_TOLERANCE * np.sqrt(p * (1.0 - p)) / 2.0 + SMALL_PROBABILITY
            if excess > smallest and len(values) < MAX_EVALUATIONS:
                refined += [(left, middle), (middle, right)]
            else:
                lines.append((left, right, low, p, high))
        pending = refined
    return raised_chords(*np.array(lines).T)


def raised_chords(
    left: FloatArray, right: FloatArray, low: FloatArray, middle: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return lines `e^epsilon q + delta` above a concave function, one for each interval on which it rises.

    The chord over an interval lies above the function outside the interval. Inside, the function exceeds the chord by
    at most twice as much as in the middle. So each chord, raised by twice the excess in the middle, is such a line. The
    values may be wrong by `VALUE_ERROR`, which changes the slope over a short interval. A line over the left half of
    [0, 1] is therefore steeper than the chord, one over the right half is flatter, and both are raised by what the
    shorter way to 0 or 1 then costs.

    Parameters
    ----------
    left, right : numpy.ndarray
        The ends of the intervals.
    low, middle, high : numpy.ndarray
        The values of the function at the left end, in the middle and at the right end.

    Returns
    -------
    epsilons, deltas : numpy.ndarray
        The lines, and the line `q + 1` that is above every boundary.
    """
    slope_error = 2.0 * VALUE_ERROR / (right - left)
    is_left = left + right < 1.0
    slope = (high - low) / (right - left) + np.where(is_left, slope_error, -slope_error)
    lift = 2.0 * np.maximum(middle - (low + high) / 2.0, 0.0) + 5.0 * VALUE_ERROR
    lift += 2.0 * slope_error * np.where(is_left, left, 1.0 - right)
    deltas = np.where(is_left, low - slope * left, high - slope * right) + lift
    rising = slope > 0.0
    return np.append(np.log(slope[rising]), 0.0), np.append(deltas[rising], 1.0)


def lines_above(boundary: Callable[[FloatArray], FloatArray]) -> Lines:
    """Return lines above a concave boundary that is evaluated at many points at once, close to it.

    It is faster than `tabulate_concave` and less close. With 700 chords the lines exceed the boundary by at most about
    2e-4 standard deviations of one run.

    Examples
    --------
    >>> lines = lines_above(np.sqrt)
    >>> 0.0 <= float(lines.lowest(np.array(0.25))) - 0.5 < 1e-4
    True
    """
    left, right = QUICK_NODES[:-1], QUICK_NODES[1:]
    low, middle, high = (boundary(q) for q in (left, (left + right) / 2, right))
    return lower_envelope(*raised_chords(left, right, low, middle, high))


BISECTIONS = 46  # of an interval of length 1 at most
LOG_ORDERS = np.arange(-15.0, 14.5, 2.0)  # ln(order - 1) of the orders from which the search for the best one starts
# Rounds of that search: the offsets of ln(order - 1) from the best one so far, and the number of bisections.
SEARCH_ROUNDS = ((LOG_ORDERS, 28), (np.linspace(-2.0, 2.0, 17), 34), (np.linspace(-0.25, 0.25, 9), BISECTIONS))
ROUNDING = 1e-13  # relative; the results are raised by it
ROUNDING_ERROR = 4e-16  # relative; of the terms of a divergence


def gaussian_boundary(q: FloatArray, mu: float) -> FloatArray:
    """Return the largest p that Gaussian differential privacy allows.

    Examples
    --------
    >>> gaussian_boundary(np.array([0.0, 0.5, 1.0]), 1.0).round(4).tolist()
    [0.0, 0.8413, 1.0]
    """
    p = scipy.special.ndtr(scipy.special.ndtri(q) + mu) * (1.0 + NORMAL_ROUNDING)
    return np.maximum(q, np.minimum(1.0, p))


def renyi_divergence(p: FloatArray, q: FloatArray, order: FloatArray | float) -> FloatArray:
    """Return the Renyi divergence of two events with probabilities p and q, for probabilities strictly inside (0, 1).

    Examples
    --------
    >>> round(float(renyi_divergence(np.array(0.5), np.array(0.25), 2.0)), 4)
    0.2877
    """
    inside = order * np.log(p) + (1.0 - order) * np.log(q)
    outside = order * np.log1p(-p) + (1.0 - order) * np.log1p(-q)
    return np.logaddexp(inside, outside) / (order - 1.0)


@np.errstate(all="ignore")  # moments underflow to 0, whatever the caller has set
def renyi_boundary(
    q: FloatArray, order: FloatArray | float, epsilon: FloatArray | float, bisections: int = BISECTIONS
) -> FloatArray:
    """Return the largest p whose Renyi divergence of the given order from q is at most epsilon; arguments broadcast.

    Examples
    --------
    >>> renyi_boundary(np.array([0.0, 0.25, 0.9]), 2.0, 0.2877).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    q, order, epsilon = np.broadcast_arrays(q, order, epsilon)
    log_q = np.log(np.maximum(q, np.exp(-MAX_EXPONENT)))
    # One of the two terms of the divergence alone gives an upper limit of p.
    high = np.exp(np.minimum((order - 1.0) / order * (epsilon + log_q), 0.0))
    certain = (high >= 1.0) | (q >= 1.0)
    low, high = np.where(certain, 0.5, np.minimum(q, high)), np.where(certain, 0.5, high)
    inner_q = np.where(certain, 0.5, np.clip(q, np.exp(-MAX_EXPONENT), BELOW_ONE))
    inside_q, outside_q = (1.0 - order) * np.log(inner_q), (1.0 - order) * np.log1p(-inner_q)
    for _ in range(bisections):
        middle = np.clip((low + high) / 2.0, np.exp(-MAX_EXPONENT), BELOW_ONE)
        # The logarithms of the two terms of e^((order-1) divergence): of the event and of its complement.
        inside, outside = order * np.log(middle) + inside_q, order * np.log1p(-middle) + outside_q
        tolerance = ROUNDING_ERROR * (np.abs(inside) + np.abs(outside))
        allowed = np.logaddexp(inside, outside) <= (order - 1.0) * epsilon + tolerance
        low, high = np.where(allowed, middle, low), np.where(allowed, high, middle)
    p = np.where(certain, 1.0, np.minimum(1.0, high * (1.0 + ROUNDING)))
    return np.where(q <= 0.0, 0.0, p)


def zcdp_boundary(q: FloatArray, rho: float) -> FloatArray:
    """Return the largest p that rho-zero-concentrated privacy allows: for all orders a the divergence is at most rho a.

    Every order gives an upper limit of p, so the search for the best order needs no guarantee.

    Examples
    --------
    >>> zcdp_boundary(np.array([0.0, 0.3, 1.0]), 0.5).round(3).tolist()
    [0.0, 0.784, 1.0]
    """
    column = np.ravel(np.asarray(q, float))[:, None]
    best = step = np.zeros_like(column)
    p = below = middle = above = np.ones_like(column)
    for offsets, bisections in SEARCH_ROUNDS:
        log_orders = best + offsets
        orders = 1.0 + np.exp(log_orders)
        p = renyi_boundary(column, orders, rho * orders, bisections)
        index = np.clip(p.argmin(axis=1), 1, len(offsets) - 2)[:, None]
        below, middle, above = (np.take_along_axis(p, index + shift, axis=1) for shift in (-1, 0, 1))
        best, step = np.take_along_axis(log_orders, index, axis=1), offsets[1] - offsets[0]
    # The last order is the vertex of the parabola through the three best points.
    curvature = below - 2.0 * middle + above
    vertex = np.where(curvature > 0.0, (below - above) / np.where(curvature > 0.0, 2.0 * curvature, 1.0), 0.0)
    order = 1.0 + np.exp(best + step * np.clip(vertex, -1.0, 1.0))
    p = np.minimum(p.min(axis=1), renyi_boundary(column, order, rho * order)[:, 0])
    return p.reshape(np.shape(q))


MAX_QUANTILE = 40.0  # beyond those of all numbers strictly between 0 and 1


class Boundary(Protocol):
    """The boundary of a claim."""

    def __call__(self, q: FloatArray, /) -> FloatArray:
        """Return the largest probability that the claim allows where the other dataset has q."""
        ...

    def slope(self, q: FloatArray, /) -> FloatArray:
        """Return the slope at q; at a corner, the slope of one of the two lines that meet there."""
        ...


class LineBoundary(NamedTuple):
    """The boundary of (epsilon, delta)-privacy; arrays describe several claims at once."""

    factor: FloatArray
    delta: FloatArray

    def __call__(self, q: FloatArray, /) -> FloatArray:
        """Return the boundary at q."""
        return np.minimum(1.0, self.factor * q + self.delta)

    def slope(self, q: FloatArray, /) -> FloatArray:
        """Return the slope at q."""
        return np.where(self(q) < 1.0, self.factor, 0.0)


def line_boundary(epsilon: ArrayLike, delta: ArrayLike = 0.0) -> LineBoundary:
    """Return the boundary of (epsilon, delta)-privacy.

    Examples
    --------
    >>> float(line_boundary(0.0, 0.1)(np.array(0.5)))
    0.6
    """
    return LineBoundary(np.exp(np.minimum(epsilon, MAX_EXPONENT)), np.asarray(delta, float))


class GaussianBoundary(NamedTuple):
    """The boundary of Gaussian differential privacy."""

    mu: float

    def __call__(self, q: FloatArray, /) -> FloatArray:
        """Return the boundary at q."""
        return gaussian_boundary(q, self.mu)

    def slope(self, q: FloatArray, /) -> FloatArray:
        """Return the slope at q: the ratio of two normal densities."""
        quantile = np.clip(scipy.special.ndtri(q), -MAX_QUANTILE, MAX_QUANTILE)
        return np.where(self(q) < 1.0, np.exp(-self.mu * quantile - self.mu**2 / 2), 0.0)


class LinesBoundary(NamedTuple):
    """The lowest of several lines, at least q."""

    lines: Lines

    def __call__(self, q: FloatArray, /) -> FloatArray:
        """Return the boundary at q."""
        return np.maximum(q, self.lines.lowest(q))

    def slope(self, q: FloatArray, /) -> FloatArray:
        """Return the slope at q."""
        lowest = self.lines.lowest(q)
        slope = np.exp(self.lines.epsilons[self.lines.corners.searchsorted(q)])
        return np.where(lowest < q, 1.0, np.where(lowest < 1.0, slope, 0.0))


class BoundaryStack:
    """Several boundaries, one along the first axis."""

    def __init__(self, boundaries: Sequence[Boundary]) -> None:
        self._boundaries = boundaries

    def __call__(self, q: FloatArray, /) -> FloatArray:
        """Return the boundaries at q."""
        return np.stack([one(row) for one, row in zip(self._boundaries, self._rows(q), strict=True)])

    def slope(self, q: FloatArray, /) -> FloatArray:
        """Return the slopes at q."""
        return np.stack([one.slope(row) for one, row in zip(self._boundaries, self._rows(q), strict=True)])

    def _rows(self, q: FloatArray) -> FloatArray:
        return np.broadcast_to(q, (len(self._boundaries), *np.shape(q)[-1:]))
