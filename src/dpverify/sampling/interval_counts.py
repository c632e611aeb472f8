"""Counts of several partitions of a scalar output in one pass.

The cells of many partitions of a line are unions of intervals: the region of likely outputs, cells of any kind, and the
level sets of simple scores. The intervals between the edges of all of these partitions are counted once. The counts of
every partition are sums of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dpverify.util.guide_table import VALUES_COUNTED_TOGETHER, IntervalCounter

MAX_EDGES = 4096  # for more edges, the partitions are counted one by one
MIN_VALUES_COUNTED = VALUES_COUNTED_TOGETHER  # smaller blocks are counted together


@runtime_checkable
class LineCells(Protocol):
    """A partition that knows its edges if the output is scalar."""

    @property
    def size(self) -> int: ...

    def codes(self, x: Any, /) -> Any: ...

    def interval_edges(self) -> np.ndarray | None:
        """Return numbers between which the code of an output is constant; each interval contains its upper edge.

        None is returned if the output is not scalar, or if such numbers are not known.
        """
        ...


class IntervalCells(NamedTuple):
    """Partitions whose cells are unions of the same intervals.

    Attributes
    ----------
    partitions : tuple
        The partitions.
    numbers : tuple of int
        Their numbers among the given partitions.
    edges : ndarray of shape (E,)
        The edges between the intervals.
    codes : tuple of ndarray of shape (E + 1,)
        For each partition, the code of every interval.
    """

    partitions: tuple[LineCells, ...]
    numbers: tuple[int, ...]
    edges: np.ndarray
    codes: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, partitions: Sequence[object]) -> IntervalCells | None:
        """Return those of the given partitions whose cells are unions of intervals; None if there are none."""
        edges, members = [], {}
        for number, partition in enumerate(partitions):
            own = partition.interval_edges() if isinstance(partition, LineCells) else None
            if own is not None:
                edges.append(own)
                members[number] = partition
        joined = np.unique(np.concatenate(edges)) if edges else np.zeros(0)
        if not 0 < joined.size <= MAX_EDGES:
            return None
        # The last interval has no upper edge; the number after its lower edge is an example of it.
        examples = np.append(joined, np.nextafter(joined[-1], np.inf)).reshape(-1, 1, 1)
        codes = tuple(partition.codes(examples) for partition in members.values())
        return cls(tuple(members.values()), tuple(members), joined, codes)


class IntervalTables:
    """The counts of intervals over blocks of finite numbers, and those of the cells of other numbers."""

    def __init__(self, cells: IntervalCells):
        self._cells, self._counter = cells, IntervalCounter(cells.edges)
        self._clear()

    def _clear(self) -> None:
        self._others = [np.zeros(partition.size, np.int64) for partition in self._cells.partitions]
        self._waiting: list[np.ndarray] = []
        self._is_empty = True

    def add(self, samples: np.ndarray) -> None:
        """Add the samples of one block."""
        self._is_empty = False
        finite = np.isfinite(samples[:, 0, 0])
        if not finite.all():
            for table, partition in zip(self._others, self._cells.partitions, strict=True):
                table += np.bincount(partition.codes(samples[~finite]), minlength=table.size)
            samples = samples[finite]
        x = samples.ravel()
        if x.size >= MIN_VALUES_COUNTED:
            self._counter.add(x)
            return
        self._waiting.append(x.copy())  # a mechanism may use its array again
        if len(self._waiting) * x.size >= MIN_VALUES_COUNTED:
            self._count_waiting()

    def read(self) -> list[np.ndarray]:
        """Return the table of counts of each partition since the last call; nothing if no block was added."""
        if self._is_empty:
            return []
        self._count_waiting()
        counts, tables = self._counter.read(), []
        for codes, table in zip(self._cells.codes, self._others, strict=True):
            np.add.at(table, codes, counts)
            tables.append(table)
        self._clear()
        return tables

    def _count_waiting(self) -> None:
        if self._waiting:
            self._counter.add(np.concatenate(self._waiting))
            self._waiting = []
