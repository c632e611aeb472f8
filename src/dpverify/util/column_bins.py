"""The bins of many columns at once: a table that is prepared once finds the bins of any number of rows."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpverify.util.arrays import (
    MAX_COMPARED_EDGES,
    MIN_SEARCHED_VALUES,
    contiguous_transpose,
    digitize,
)

STEPS = 1024  # of the guide table of one column
NUMBERS_PER_PIECE = 1 << 16  # numbers that are processed together, so that they stay in the processor's caches
MAX_STEP_EDGES = 3  # edges in one step of the guide table; columns are treated one by one where there are more
MIN_ROW_LENGTH = 8  # for fewer columns, operations along rows are slow
PREPARED_EDGES = 16  # arrays of edges whose tables are kept for the next block


class ColumnBins(NamedTuple):
    """Edges of several columns.

    A guide table over equal steps gives a starting index for each number, and comparisons make it exact.

    Attributes
    ----------
    edges : ndarray of shape (J, E)
        The sorted edges of every column, padded with infinity.
    low, scale : ndarray of shape (J,)
        The lowest edge of every column, and one over the width of a step.
    start : ndarray of shape (J * STEPS,)
        The index in `padded` of the first edge that does not lie below each step, column after column; empty if there
        is no guide table.
    padded : ndarray of shape (J * (E + 1),)
        The edges with one more infinity at the end of each column, column after column.
    comparisons : int
        How many comparisons make the index exact.
    """

    edges: np.ndarray
    low: np.ndarray
    scale: np.ndarray
    start: np.ndarray
    padded: np.ndarray
    comparisons: int

    @classmethod
    def of(cls, edges: np.ndarray) -> ColumnBins:
        """Return the prepared edges. A column with many edges within a step has no guide table, nor have few edges.

        The tables of the last few arrays are kept. An array of edges must not be changed afterwards.

        Examples
        --------
        >>> ColumnBins.of(np.array([[0.0, 1.0]])).find(np.array([[-1.0], [0.0], [0.5], [2.0]]))[:, 0].tolist()
        [0, 0, 1, 2]
        """
        return _prepare(_ByIdentity(edges))

    def find(self, x: np.ndarray) -> np.ndarray:
        """Return the number of edges below each number, for rows of shape (runs, J).

        An edge is not below itself. NaN is sorted last, as by `digitize`.
        """
        bins = np.empty(x.shape, np.intp)
        rows = max(1, NUMBERS_PER_PIECE // x.shape[1])
        find = self._find_by_table if self.start.size else self._find_by_comparison
        many_edges = not self.start.size and self.edges.shape[1] > MAX_COMPARED_EDGES
        if many_edges or (x.shape[1] < MIN_ROW_LENGTH and len(x) >= MIN_SEARCHED_VALUES):
            rows, find = max(1, len(x)), self._find_by_column
        for begin in range(0, len(x), rows):
            find(x[begin : begin + rows], bins[begin : begin + rows])
        missing = np.isnan(x)
        if missing.any():
            bins[missing] = self.edges.shape[1]
        return bins

    def _find_by_table(self, x: np.ndarray, bins: np.ndarray) -> None:
        columns = np.arange(x.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            position = x - self.low
            position *= self.scale
            # Unlike `clip`, these functions replace NaN.
            np.fmax(np.fmin(position, STEPS - 1, out=position), 0, out=position)
        step = position.astype(np.intp)
        step += columns * STEPS
        index = self.start.take(step)
        for _ in range(self.comparisons):
            index += x > self.padded.take(index)
        np.subtract(index, columns * (self.edges.shape[1] + 1), out=bins)

    def _find_by_comparison(self, x: np.ndarray, bins: np.ndarray) -> None:
        below, is_above = np.zeros(x.shape, np.uint8), np.empty(x.shape, bool)
        for column in contiguous_transpose(self.edges):
            np.greater(x, column, out=is_above)
            below += is_above.view(np.uint8)  # adding numbers of one type needs no conversion
        bins[:] = below

    def _find_by_column(self, x: np.ndarray, bins: np.ndarray) -> None:
        for j, column in enumerate(contiguous_transpose(x)):
            bins[:, j] = digitize(self.edges[j], column)


class _ByIdentity:
    """An array as the key of a cache: it equals only itself."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __hash__(self) -> int:
        return id(self.array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.array is other.array


@lru_cache(maxsize=PREPARED_EDGES)
def _prepare(key: _ByIdentity) -> ColumnBins:
    """Return the prepared edges."""
    edges = key.array
    none = ColumnBins(edges, np.zeros(0), np.zeros(0), np.zeros(0, np.intp), np.zeros(0), 0)
    if edges.shape[1] <= MAX_COMPARED_EDGES:
        return none
    low = edges[:, 0]
    high = np.where(np.isfinite(edges), edges, -np.inf).max(1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        scale = np.where(high > low, STEPS / (high - low), 1.0)  # steps of any width serve a column with one edge
    if not (np.isfinite(scale) & (scale > 0)).all():
        return none
    # A step is a nondecreasing function of x, rounding included. Only the edges in the step of x are compared with x.
    column, number = np.nonzero(np.isfinite(edges))
    position = (edges[column, number] - low[column]) * scale[column]
    step = np.clip(position, 0, STEPS - 1).astype(np.intp) + STEPS * column
    edges_in_step = np.bincount(step, minlength=STEPS * len(edges)).reshape(len(edges), STEPS)
    comparisons = int(edges_in_step.max())
    if comparisons > MAX_STEP_EDGES:
        return none
    start = np.cumsum(edges_in_step, axis=1) - edges_in_step
    padded = np.concatenate([edges, np.full((len(edges), 1), np.inf)], axis=1)
    start += padded.shape[1] * np.arange(len(edges))[:, None]
    return ColumnBins(edges, low, scale, start.ravel(), padded.ravel(), comparisons)
