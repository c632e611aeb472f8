"""Bins between sorted edges for many numbers at once, with NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

VALUES_PER_PIECE = 1 << 14  # values that are processed together, so that they stay in the processor's caches
STEPS_PER_EDGE, MAX_STEPS = 64, 8192  # of the guide table


def edge_finder(edges: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that returns the number of edges below each number, for sorted edges and no NaN.

    A number that equals an edge is not above it. Pieces of `VALUES_PER_PIECE` numbers are fastest.

    Examples
    --------
    >>> edge_finder(np.array([0.0, 1.0]))(np.array([-1.0, 0.0, 0.5, 2.0])).tolist()
    [0, 0, 1, 2]
    """
    guide = GuideTable.of(edges)
    return partial(bisect, edges) if guide is None else guide.find


class GuideTable(NamedTuple):
    """Equal steps between the lowest and the highest of many edges, which lead from a number to its edges.

    A step is a nondecreasing function of x, rounding included. An edge in a lower step is therefore below x, and an
    edge in a higher step above it. Only the edges in the step of x itself are compared with x.

    Attributes
    ----------
    low, scale : float
        The lowest edge, and one over the width of a step.
    first_edge : ndarray
        For each step, the number of edges in lower steps.
    padded : ndarray
        The edges, followed by infinity.
    comparisons : int
        The largest number of edges in one step.
    """

    low: float
    scale: float
    first_edge: np.ndarray
    padded: np.ndarray
    comparisons: int

    @classmethod
    def of(cls, edges: np.ndarray) -> GuideTable | None:
        """Return the table of sorted edges; None if bisection is faster, because many edges lie in one step."""
        steps = min(STEPS_PER_EDGE * edges.size, MAX_STEPS)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scale = float(steps / (edges[-1] - edges[0]))
        if not (math.isfinite(scale) and scale > 0):
            return None
        table = cls(float(edges[0]), scale, np.zeros(steps, np.intp), np.append(edges, np.inf), 0)
        edges_in_step = np.bincount(table._step(edges), minlength=steps)
        comparisons = int(edges_in_step.max())
        if comparisons > edges.size.bit_length():
            return None
        return table._replace(first_edge=np.cumsum(edges_in_step) - edges_in_step, comparisons=comparisons)

    def _step(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            position = np.subtract(x, self.low, dtype=np.float64)
            position *= self.scale
        return np.clip(position, 0, self.first_edge.size - 1, out=position).astype(np.intp)

    def find(self, x: np.ndarray) -> np.ndarray:
        """Return the number of edges below each x, which must not be NaN."""
        index = self.first_edge.take(self._step(x))
        for _ in range(self.comparisons):
            index += x > self.padded.take(index)
        return index


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
