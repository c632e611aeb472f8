"""Scores that are constant on the cells of a partition: the log-ratio of the counts of each cell."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.events.partition import Partition
from dpverify.events.scores.base import Levels, SelectedLevels, count_numbers
from dpverify.util.arrays import Array, array_namespace

MAX_SCORED_CELLS = 4096  # more cells are mostly noise and make a report too long
MAX_TABLE_CELLS = 1 << 14  # for fewer cells, a table of all cells is faster than a search in the listed ones


class CellScore(NamedTuple):
    """A number for each listed cell of a partition, and one number for all other cells.

    Attributes
    ----------
    partition : Partition or Levels
        The partition.
    cells : ndarray
        The sorted codes of the listed cells.
    numbers : ndarray
        The score of each listed cell.
    other : ndarray of shape ()
        The score of all other cells.
    """

    partition: Partition | Levels
    cells: np.ndarray
    numbers: np.ndarray
    other: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of listed cells, plus the fitted parameters of the partition."""
        return self.cells.size + self.partition.n_parameters

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        xp = array_namespace(flat)
        codes = self.partition.codes(flat)
        if xp is np and self.partition.size <= MAX_TABLE_CELLS:
            table = np.full(self.partition.size, self.other)
            table[self.cells] = self.numbers
            return table.take(codes)
        index = xp.clip(xp.searchsorted(self.cells, codes), 0, self.cells.shape[0] - 1)
        return xp.where(self.cells[index] == codes, self.numbers[index], self.other)

    def describe(self, names: list[str]) -> str:
        """Name the kind of score."""
        return f"a score of the cells of a partition of {count_numbers(names)}"

    def describe_level_set(self, selected: SelectedLevels, examples: np.ndarray) -> str | None:
        """Describe the union of the cells with these scores."""
        inside = selected.contains(self.numbers)
        if not selected.contains(self.other):
            return self.partition.describe(self.cells[inside], examples)
        excluded = self.cells[~inside]
        return f"any output except {self.partition.describe(excluded, examples)}" if excluded.size else "any output"


def fit_cell_score(
    partition: Partition | Levels, codes: np.ndarray, first: np.ndarray, second: np.ndarray
) -> CellScore:
    """Return the log-ratio of the counts of the cells `codes`; if there are too many, of those that differ most."""
    c1, c2 = first + 0.5, second + 0.5
    ratios = np.log(c1 / c2)
    if codes.size > MAX_SCORED_CELLS:
        standard_errors = np.sqrt(1 / c1 + 1 / c2)
        kept = np.sort(np.argsort(-np.abs(ratios) / standard_errors, kind="stable")[:MAX_SCORED_CELLS])
        codes, ratios = codes[kept], ratios[kept]
    if not codes.size:
        codes, ratios = np.zeros(1, np.int64), np.zeros(1)
    return CellScore(partition, codes, ratios, np.zeros(()))
