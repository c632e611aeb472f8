"""Accumulators: sums over the blocks of one data set, of counts and other statistics, or the samples themselves.

Counts are integers, extremes are order statistics, and sums of errors are exact fractions. An accumulator therefore
does not depend on the order in which blocks are added, nor on how they were distributed over workers. Accumulators in
the same process are merged directly. They are converted to arrays only for another process and for a checkpoint.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np

from dpverify.sampling.block_counts import MAX_CHECKED_BLOCKS, MAX_CHECKED_RUNS, BlockChecker, BlockCounts
from dpverify.sampling.counts import (
    MAX_DENSE_CELLS,
    Cells,
    Counts,
    DeviceTables,
    Statistic,
    Statistics,
    count_cells,
    countable_on_device,
    counts_from_table,
    dense_partition,
)
from dpverify.sampling.error_sums import ErrorSum
from dpverify.sampling.interval_counts import IntervalTables
from dpverify.util.arrays import Array

MIN_NUMBERS_PER_MERGE = 1 << 20  # results are merged when they hold more numbers than this
MAX_NUMBERS_CHECKED_TOGETHER = 1 << 15  # of the first runs of several blocks


class Accumulator(Protocol):
    """A sum over blocks of one data set."""

    @property
    def may_use_thread(self) -> bool:
        """Whether a second thread may add samples: no function of the user is called, and it can save time."""
        ...

    def add(self, block: int, samples: Any, runs: int | None = None, /) -> None:
        """Add the samples of one block, or the first `runs` of them."""
        ...

    def finish(self) -> None:
        """Wait for computations on a device and move their results to the host."""
        ...

    def merge(self, other: Self, /) -> None:
        """Add all blocks of another accumulator, which must hold other blocks and is not used afterwards."""
        ...

    def to_arrays(self) -> list[np.ndarray]:
        """Return the content as arrays: the form for another process and for a checkpoint."""
        ...

    def merge_arrays(self, arrays: list[np.ndarray], /) -> None:
        """Add all blocks of another accumulator, given as arrays."""
        ...


class SampleBuffer:
    """The samples of all added blocks. They are copied, because a mechanism may return views of one buffer."""

    may_use_thread = False  # a second thread would only copy the samples once more

    def __init__(self) -> None:
        self._blocks: dict[int, np.ndarray] = {}

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        self._blocks[block] = np.array(_first_runs(samples, runs))

    def finish(self) -> None:
        pass

    def merge(self, other: SampleBuffer) -> None:
        self._blocks.update(other._blocks)

    def blocks(self) -> list[np.ndarray]:
        """Return the samples of each block, in the order of the blocks."""
        return [self._blocks[block] for block in sorted(self._blocks)]

    def to_arrays(self) -> list[np.ndarray]:
        """Return the numbers of the blocks, the number of runs in each, and all samples."""
        if not self._blocks:
            return []
        samples = self.blocks()
        return [np.array(sorted(self._blocks)), np.array([len(one) for one in samples]), np.concatenate(samples)]

    def merge_arrays(self, arrays: list[np.ndarray]) -> None:
        if arrays:
            blocks, lengths, samples = arrays
            parts = np.split(samples, np.cumsum(lengths)[:-1])
            self._blocks.update(zip(blocks.tolist(), parts, strict=True))


class StatisticSum(Protocol):
    """The merged results of one statistic."""

    def add(self, block: int, samples: Any, runs: int | None = None, /) -> None:
        """Add the samples of one block, or the first `runs` of them."""
        ...

    def finish(self) -> None:
        """Wait for computations on a device."""

    def include(self, result: Any, /) -> None:
        """Add a result."""
        ...

    def result(self) -> Any:
        """Return the result of all blocks together."""
        ...


class ResultSum(StatisticSum):
    """The merged results of one statistic. Merging happens in batches, so memory stays proportional to one result."""

    def __init__(self, statistic: Statistic):
        self._statistic, self._kind = statistic, statistic.result_kind
        self._results: list[Any] = []
        self._batch = 1  # number of results that are kept until they are merged

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        self.include(self._statistic.measure(_first_runs(samples, runs)))

    def include(self, result: Any) -> None:
        self._results.append(result)
        if len(self._results) > self._batch:  # results of one statistic have similar sizes
            most = max(MIN_NUMBERS_PER_MERGE, 2 * self._size(self._results[0]))
            self._batch = max(most // max(self._size(result), 1), 1)
            if len(self._results) > self._batch:
                self.result()

    def result(self) -> Any:
        self._results = [self._kind.merge(self._results)]
        return self._results[0]

    def _size(self, result: Any) -> int:
        return sum(array.size for array in self._kind.to_arrays(result))


class CellSum(StatisticSum):
    """The merged counts of one partition, as a dense table; only for partitions with few cells."""

    def __init__(self, partition: Cells):
        self.partition, self._size = partition, partition.size
        self._table: np.ndarray | None = None
        self.on_device = countable_on_device(partition)

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        samples = _first_runs(samples, runs)
        if not isinstance(samples, np.ndarray):
            self.include(count_cells(self.partition, samples))
            return
        self.add_codes(self.partition.codes(samples))

    def add_codes(self, codes: np.ndarray) -> None:
        """Add runs whose cells are known."""
        table = np.bincount(codes, minlength=self._size)
        if self._table is not None:
            table += self._table
        self._table = table

    def include(self, counts: Counts) -> None:
        table = np.zeros(self._size, np.int64) if self._table is None else self._table
        table[counts.codes] += counts.counts
        self._table = table

    def result(self) -> Counts:
        return counts_from_table(np.zeros(0, np.int64) if self._table is None else self._table)


class BlockSum(StatisticSum):
    """The counts of the checked events in the first runs of each of the first blocks."""

    def __init__(self, checker: BlockChecker):
        self._checker = checker
        self._results = [checker.no_counts()]
        self._waiting: list[tuple[int, Array]] = []  # the first runs of blocks that are not counted yet
        self._waiting_numbers = 0  # of NumPy arrays

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        if block >= MAX_CHECKED_BLOCKS:
            return
        most = MAX_CHECKED_RUNS if runs is None else min(MAX_CHECKED_RUNS, runs)
        checked = _first_runs(samples, most)
        if not isinstance(samples, np.ndarray):  # reading samples on a device would wait for it
            self._waiting.append((block, checked))
            return
        # Few numbers are copied, because a mechanism may use its array again, and counted together with other blocks.
        is_small = 2 * checked.size <= MAX_NUMBERS_CHECKED_TOGETHER
        self._waiting.append((block, checked.copy() if is_small else checked))
        self._waiting_numbers += checked.size
        if self._waiting_numbers + checked.size > MAX_NUMBERS_CHECKED_TOGETHER:
            self.finish()

    def finish(self) -> None:
        while self._waiting:
            most = max(MAX_NUMBERS_CHECKED_TOGETHER // max(self._waiting[0][1].size, 1), 1)
            blocks, samples = zip(*self._waiting[:most], strict=True)
            self._count(np.array(blocks), [np.asarray(one) for one in samples])
            self._waiting = self._waiting[most:]
        self._waiting_numbers = 0

    def _count(self, blocks: np.ndarray, samples: list[np.ndarray]) -> None:
        """Count the checked events in the first runs of some blocks."""
        event, coordinates, medians = self._checker
        sizes = np.array([len(checked) for checked in samples])
        checked = np.concatenate(samples)
        codes = event.partition.codes(checked)
        if event.partition.size <= MAX_DENSE_CELLS:  # a table of all cells is much faster than a search for each code
            is_inside = np.zeros(event.partition.size, bool)
            is_inside[event.codes] = True
            inside = is_inside.take(codes)
        else:
            inside = np.isin(codes, event.codes)
        above = checked.reshape(len(checked), -1)[:, coordinates] > medians
        starts = np.append(0, np.cumsum(sizes)[:-1])
        counts = np.add.reduceat(np.column_stack([inside, above]), starts, dtype=np.int64)
        self.include(BlockCounts(blocks, sizes, counts))

    def include(self, result: BlockCounts) -> None:
        if result.blocks.size:
            self._results.append(result)

    def result(self) -> BlockCounts:
        self.finish()
        self._results = [BlockCounts.merge(self._results)]
        return self._results[0]


class CountAccumulator:
    """The merged results of all statistics, and the sum of the errors.

    For samples on a device, dense tables of counts are summed there. For scalar outputs in NumPy, partitions are
    counted together. Both are read by `finish`. Level sets of scores of the same features are found together.
    """

    def __init__(self, statistics: Statistics):
        self._statistics = statistics
        self._sums: list[StatisticSum] = [_new_sum(statistic) for statistic in statistics.statistics]
        self._device_sums = [one for one in self._sums if isinstance(one, CellSum) and one.on_device]
        self._tables = DeviceTables([cell_sum.partition for cell_sum in self._device_sums])
        cells = statistics.interval_cells
        self._interval_sums = [] if cells is None else [self._sums[number] for number in cells.numbers]
        self._intervals = None if cells is None else IntervalTables(cells)
        self._features = [
            (group, [one for one in map(self._sums.__getitem__, group.numbers) if isinstance(one, CellSum)])
            for group in statistics.feature_cells
        ]
        self._host_sums = [*self._interval_sums, *(one for _, sums in self._features for one in sums)]
        self._errors = None if statistics.error is None else ErrorSum(statistics.error)
        self._is_empty = True

    @property
    def may_use_thread(self) -> bool:
        """Whether no function of the user is called with the samples."""
        return self._statistics.is_plain

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        self._is_empty = False
        on_device = not isinstance(samples, np.ndarray)
        counted_together = self._device_sums if on_device else self._host_sums
        if on_device and self._device_sums:
            self._tables.add(samples, runs)
        elif not on_device and self._intervals is not None:
            self._intervals.add(_first_runs(samples, runs))
        for group, sums in () if on_device else self._features:
            for cell_sum, codes in zip(sums, group.codes(_first_runs(samples, runs)), strict=True):
                cell_sum.add_codes(codes)
        for result_sum in self._sums:
            if result_sum not in counted_together:
                result_sum.add(block, samples, runs)
        if self._errors is not None:
            self._errors.add(_first_runs(samples, runs))

    def finish(self) -> None:
        if self._errors is not None:
            self._errors.finish()
        for result_sum in self._sums:
            result_sum.finish()
        for result_sum, counts in zip(self._device_sums, self._tables.read(), strict=False):
            result_sum.include(counts)
        tables = [] if self._intervals is None else self._intervals.read()
        for result_sum, table in zip(self._interval_sums, tables, strict=False):
            result_sum.include(counts_from_table(table))

    def merge(self, other: CountAccumulator) -> None:
        if other._is_empty:
            return
        other.finish()
        self._is_empty = False
        if self._errors is not None and other._errors is not None:
            self._errors.merge(other._errors)
        for result_sum, more in zip(self._sums, other._sums, strict=True):
            result_sum.include(more.result())

    def to_arrays(self) -> list[np.ndarray]:
        """Return the sums of the errors as text, if there are errors, and then the arrays of all results."""
        if self._is_empty:
            return []
        arrays = []
        results = self.results()
        if self._errors is not None:
            arrays.append(self._errors.to_array())
        for statistic, result in zip(self._statistics.statistics, results, strict=True):
            arrays += statistic.result_kind.to_arrays(result)
        return arrays

    def merge_arrays(self, arrays: list[np.ndarray]) -> None:
        if not arrays:
            return
        self._is_empty = False
        rest = iter(arrays)
        if self._errors is not None:
            self._errors.merge_array(next(rest))
        for statistic, result_sum in zip(self._statistics.statistics, self._sums, strict=True):
            result_sum.include(statistic.result_kind.from_arrays(rest))

    def results(self) -> tuple[Any, ...]:
        """Return the merged result of each statistic."""
        self.finish()
        return tuple(result_sum.result() for result_sum in self._sums)

    def error(self, runs: int) -> tuple[float, float]:
        """Return the mean error and its standard error; there must be an error function."""
        assert self._errors is not None
        self.finish()
        return self._errors.mean(runs)


def _first_runs(samples: Array, runs: int | None) -> Array:
    """Return the first runs. All runs are returned as they are, because JAX would copy them."""
    return samples if runs is None or runs >= len(samples) else samples[:runs]


def _new_sum(statistic: Statistic | BlockChecker) -> StatisticSum:
    """Return an empty sum for the results of a statistic."""
    if isinstance(statistic, BlockChecker):
        return BlockSum(statistic)
    partition = dense_partition(statistic)
    return ResultSum(statistic) if partition is None else CellSum(partition)
