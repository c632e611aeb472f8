"""Concave boundaries as finite sets of lines, and their construction from functions (docs/method.md, section 5.10).

A line `e^epsilon q + delta` lies above the boundary of a claim exactly where the claim implies (epsilon, delta). So the
smallest of finitely many such lines is never below the boundary, and leaving out lines only raises it. A table made of
lines can therefore never refute a claim that holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpverify.errors import InputError, describe_exception
from dpverify.stats.binomial import FloatArray
from dpverify.util.checks import shorten

MAX_LINES = 2000
MAX_EVALUATIONS = 1500  # of a function of the user
MAX_PROFILE_EPSILON = 64.0
SMALL_DELTA = 1e-14  # a profile is not followed to larger epsilons than where it reaches this
# A table is refined until it lies above the function by at most this multiple of sqrt(p (1-p)), the standard deviation
# of one run. With 10^6 runs this is a fiftieth of a standard error.
TABLE_TOLERANCE = 2e-5
TABLE_NODES = np.r_[np.geomspace(1e-12, 0.5, 40), 1.0 - np.geomspace(0.5, 1e-12, 40)[1:]]
VALUE_ERROR = 1e-10  # absolute; by which the values of a function may be wrong through rounding
CURVATURE_TOLERANCE = 2 * VALUE_ERROR  # by which a function may then fail to be concave
SMALL_PROBABILITY = 1e-11  # no number of runs shows an excess of this size
QUICK_NODES = np.sort(np.r_[np.linspace(0.0, 1.0, 301), 1.0 / (1.0 + np.exp(np.linspace(-20.0, 20.0, 400)))])


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

    Applied to the complement, and with the data sets exchanged, (epsilon, delta) gives
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
