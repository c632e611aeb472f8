"""Bins between sorted edges for many numbers at once, with NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

VALUES_PER_PIECE = 1 << 14  # values that are processed together, so that they stay in the processor's caches
STEPS_PER_EDGE, MAX_STEPS = 64, 8192  # of the guide table
VALUES_COUNTED_TOGETHER = 1 << 16
COUNTED_STEPS_PER_EDGE, MAX_COUNTED_STEPS = 512, 16384  # narrow steps, because numbers near an edge are counted slowly
NUMBERS_IN_STEPS = 1024  # the first numbers, whose range is divided into the steps of a counter
MIN_NUMBERS_WITH_STEPS = 1 << 15  # fewer numbers are sorted
WHOLE = 2.0**52  # a sum from here up to 2^53 is a whole number, and its last bits are its distance from 2^52
WHOLE_BITS = np.array(WHOLE).view(np.int64)


def edge_finder(edges: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that returns the number of edges below each number, for sorted edges and no NaN.

    A number that equals an edge is not above it. Pieces of `VALUES_PER_PIECE` numbers are fastest.

    Examples
    --------
    >>> edge_finder(np.array([0.0, 1.0]))(np.array([-1.0, 0.0, 0.5, 2.0])).tolist()
    [0, 0, 1, 2]
    """
    guide = GuideTable.of(edges, edges[0], edges[-1], min(STEPS_PER_EDGE * edges.size, MAX_STEPS))
    return partial(bisect, edges) if guide is None else guide.find


class GuideTable(NamedTuple):
    """Equal steps of a range, which lead from a number to its edges.

    A step is a nondecreasing function of x, rounding included. An edge in a lower step is therefore below x, and an
    edge in a higher step above it. Only the edges in the step of x itself are compared with x. Numbers and edges
    outside the range belong to the first or to the last step.

    Attributes
    ----------
    scale, shift : float
        One over the width of a step, and what is added to a scaled number, so that the low end becomes 2^52.
    first_edge : ndarray
        For each step, the number of edges in lower steps.
    padded : ndarray
        The edges, followed by infinity.
    comparisons : int
        The largest number of edges in one step.
    """

    scale: float
    shift: float
    first_edge: np.ndarray
    padded: np.ndarray
    comparisons: int

    @classmethod
    def of(cls, edges: np.ndarray, low: float, high: float, steps: int) -> GuideTable | None:
        """Return the table of sorted edges with so many steps from low to high; None if they cannot be computed."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scale = float(np.float64(steps) / (high - low))
            shift = float(WHOLE - low * scale)
        if not (math.isfinite(scale) and scale > 0 and math.isfinite(shift)):
            return None
        table = cls(scale, shift, np.zeros(steps, np.intp), np.append(edges, np.inf), 0)
        edges_in_step = np.bincount(table.step(edges), minlength=steps)
        first_edge = np.cumsum(edges_in_step) - edges_in_step
        return table._replace(first_edge=first_edge, comparisons=int(edges_in_step.max()))

    def step(self, x: np.ndarray) -> np.ndarray:
        """Return the step of each x, which must not be NaN. The sum is rounded to the number of the step."""
        with np.errstate(over="ignore"):
            position = np.multiply(x, self.scale, dtype=np.float64)
            position += self.shift
        np.clip(position, WHOLE, WHOLE + (self.first_edge.size - 1), out=position)
        step = position.view(np.int64)
        step -= WHOLE_BITS
        return step

    def find(self, x: np.ndarray) -> np.ndarray:
        """Return the number of edges below each x, which must not be NaN."""
        edges = self.padded[:-1]
        if self.comparisons > edges.size.bit_length():  # many edges lie in one step, and bisection is faster
            return bisect(edges, x)
        index = self.first_edge.take(self.step(x))
        for _ in range(self.comparisons):
            index += x > self.padded.take(index)
        return index


class IntervalCounter:
    """Counts the numbers in each interval between sorted edges. An interval contains its upper edge.

    Numbers in a step of the guide table without an edge are counted by their steps. The few others are kept until they
    are enough to be sorted together. The steps divide the range of the first numbers, because some edges may be far
    from all numbers. The counts do not depend on this range.

    Examples
    --------
    >>> counter = IntervalCounter(np.array([0.0, 1.0]))
    >>> counter.add(np.array([-1.0, 0.0, 0.5, 2.0]))
    >>> counter.read().tolist()
    [2, 1, 1]
    """

    def __init__(self, edges: np.ndarray):
        self._edges = edges
        self._guide: GuideTable | None = None
        self._has_edge = np.zeros(0, bool)  # of each step
        self._clear()

    def _clear(self) -> None:
        self._table = np.zeros(self._edges.size + 1, np.int64)
        self._steps = np.zeros(self._has_edge.size, np.int64)
        self._near_edges: list[np.ndarray] = []
        self._waiting = 0  # numbers near edges that are not counted yet

    def add(self, x: np.ndarray) -> None:
        """Add numbers, none of which is NaN."""
        if self._guide is None and x.size >= MIN_NUMBERS_WITH_STEPS:
            self._choose_steps(x[:NUMBERS_IN_STEPS])
        for begin in range(0, len(x), VALUES_COUNTED_TOGETHER):
            piece = x[begin : begin + VALUES_COUNTED_TOGETHER]
            if self._guide is None:
                self._table += count_by_sorting(self._edges, piece)
                continue
            step = self._guide.step(piece)
            self._steps += np.bincount(step, minlength=self._steps.size)
            near_edges = piece.take(np.flatnonzero(self._has_edge.take(step)))
            self._near_edges.append(near_edges)
            self._waiting += near_edges.size
            if self._waiting >= VALUES_PER_PIECE:
                self._count_near_edges()

    def read(self) -> np.ndarray:
        """Return the counts since the last call."""
        if self._guide is not None:
            self._count_near_edges()
            np.add.at(self._table, self._guide.first_edge, np.where(self._has_edge, 0, self._steps))
        table = self._table
        self._clear()
        return table

    def _choose_steps(self, x: np.ndarray) -> None:
        """Divide the range of some numbers into steps, as far as it has edges."""
        edges = self._edges
        low, high = max(x.min(), edges[0]), min(x.max(), edges[-1])
        if low >= high:
            low, high = edges[0], edges[-1]
        self._guide = GuideTable.of(edges, low, high, min(COUNTED_STEPS_PER_EDGE * edges.size, MAX_COUNTED_STEPS))
        if self._guide is not None:
            self._has_edge = np.diff(self._guide.first_edge, append=edges.size) > 0
            self._steps = np.zeros(self._has_edge.size, np.int64)

    def _count_near_edges(self) -> None:
        if self._near_edges:
            self._table += count_by_sorting(self._edges, np.concatenate(self._near_edges))
            self._near_edges, self._waiting = [], 0


def count_by_sorting(edges: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the counts of the numbers in each interval between sorted edges, for no NaN.

    NumPy sorts numbers faster than it searches for each of them.
    """
    ranks = np.searchsorted(np.sort(x), edges, side="right")
    return np.diff(ranks, prepend=0, append=x.size)


def bisect(edges: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the number of edges below each x, with one comparison of all x for each halving of the edges."""
    step = 1 << (edges.size.bit_length() - 1)
    padded = np.full(2 * step - 1, np.inf)
    padded[: edges.size] = edges
    below = (x > padded[step - 1]) * step
    while step > 1:
        step //= 2
        below += (x > padded[step - 1 :].take(below)) * step
    return below
