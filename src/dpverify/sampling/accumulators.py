"""Accumulators: sums over the blocks of one data set, of counts and other statistics, or the samples themselves.

Counts are integers, extremes are order statistics, and sums of errors are exact fractions. An accumulator therefore
does not depend on the order in which blocks are added, nor on how they were distributed over workers. Accumulators in
the same process are merged directly. They are converted to arrays only for another process and for a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from dpverify.errors import InputError
from dpverify.sampling.counts import (
    MAX_DENSE_CELLS,
    Cells,
    Counts,
    CountTable,
    DeviceTables,
    ResultKind,
    count_cells,
    countable_on_device,
    counts_from_table,
)
from dpverify.util.arrays import Array, enable_x64, is_jax

MIN_NUMBERS_PER_MERGE = 1 << 20  # results are merged when they hold more numbers than this


class Accumulator(Protocol):
    """A sum over blocks of one data set."""

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

    def __init__(self) -> None:
        self._blocks: dict[int, np.ndarray] = {}

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        self._blocks[block] = np.array(_first_runs(samples, runs))

    def finish(self) -> None:
        pass

    def merge(self, other: SampleBuffer) -> None:
        self._blocks.update(other._blocks)

    def samples(self) -> np.ndarray:
        """Return all samples in the order of their blocks."""
        return np.concatenate([self._blocks[block] for block in sorted(self._blocks)])

    def to_arrays(self) -> list[np.ndarray]:
        """Return the numbers of the blocks, the number of runs in each, and all samples."""
        if not self._blocks:
            return []
        blocks = sorted(self._blocks)
        lengths = [len(self._blocks[block]) for block in blocks]
        return [np.array(blocks), np.array(lengths), self.samples()]

    def merge_arrays(self, arrays: list[np.ndarray]) -> None:
        if arrays:
            blocks, lengths, samples = arrays
            parts = np.split(samples, np.cumsum(lengths)[:-1])
            self._blocks.update(zip(blocks.tolist(), parts, strict=True))


class Statistic(Protocol):
    """A function of a block of samples whose results can be merged.

    `result_kind` is the kind of its results: it merges them, and converts them to arrays and back. A statistic that
    depends on the number of the block has `measure_block(block, samples)` besides. A statistic with `leading_runs` only
    uses so many runs at the beginning of a block.
    """

    @property
    def result_kind(self) -> ResultKind[Any]: ...

    def measure(self, samples: Any, /) -> Any: ...


class CellCounter(NamedTuple):
    """The statistic that counts the runs in each cell of a partition."""

    partition: Cells

    @property
    def result_kind(self) -> type[Counts]:
        return Counts

    def measure(self, samples: Array) -> Counts:
        return count_cells(self.partition, samples)


class Table(Protocol):
    """Computes a table of counts from a block of samples. Tables of different blocks have the same shape."""

    def measure(self, samples: Any, /) -> np.ndarray: ...


class TableCounter(NamedTuple):
    """The statistic that adds up tables of counts."""

    table: Table

    @property
    def result_kind(self) -> type[CountTable]:
        return CountTable

    def measure(self, samples: Array) -> np.ndarray:
        return self.table.measure(samples)


@dataclass(frozen=True)
class Statistics:
    """What is computed from every block.

    Attributes
    ----------
    statistics : tuple of Statistic
        Each gives one merged result.
    error : callable, optional
        A function from samples to one number per run, whose mean is reported.
    """

    statistics: tuple[Statistic, ...]
    error: Callable[[Array], Array] | None = None


def merge_results(
    statistics: Sequence[Statistic], first: Sequence[tuple[Any, Any]], second: Sequence[tuple[Any, Any]]
) -> list[tuple[Any, Any]]:
    """Merge the results of two sets of blocks.

    Each set has one pair of results (first data set, second data set) for every statistic.
    """
    merged = []
    for statistic, results, more in zip(statistics, first, second, strict=True):
        merge = statistic.result_kind.merge
        merged.append((merge([results[0], more[0]]), merge([results[1], more[1]])))
    return merged


class ResultSum:
    """The merged results of one statistic. Merging happens in batches, so memory stays proportional to one result."""

    on_device = False  # whether samples on a device are counted by DeviceTables instead of `add`

    def __init__(self, statistic: Statistic):
        self._statistic, self._kind = statistic, statistic.result_kind
        self._results: list[Any] = []
        self._batch = 1  # number of results that are kept until they are merged

    def add(self, block: int, samples: Array) -> None:
        measure_block = getattr(self._statistic, "measure_block", None)
        self.include(self._statistic.measure(samples) if measure_block is None else measure_block(block, samples))

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


class CellSum:
    """The merged counts of one partition, as a dense table; only for partitions with few cells."""

    def __init__(self, partition: Cells):
        self.partition, self._size = partition, partition.size
        self._table: np.ndarray | None = None
        self.on_device = countable_on_device(partition)

    def add(self, block: int, samples: Array) -> None:
        if not isinstance(samples, np.ndarray):
            self.include(count_cells(self.partition, samples))
            return
        table = np.bincount(self.partition.codes(samples), minlength=self._size)
        if self._table is not None:
            table += self._table
        self._table = table

    def include(self, counts: Counts) -> None:
        table = np.zeros(self._size, np.int64) if self._table is None else self._table
        table[counts.codes] += counts.counts
        self._table = table

    def result(self) -> Counts:
        return counts_from_table(np.zeros(0, np.int64) if self._table is None else self._table)


class CountAccumulator:
    """The merged results of all statistics, and the sums of the error and of its square.

    The sums of the error are fractions: the floating-point sum of each block is added exactly. For samples on a device,
    dense tables of counts are summed there, and the sums of errors stay there until `finish`.
    """

    def __init__(self, statistics: Statistics):
        self._statistics = statistics
        self._sums: list[ResultSum | CellSum] = [_new_sum(statistic) for statistic in statistics.statistics]
        self._device_sums = [
            result_sum for result_sum in self._sums if isinstance(result_sum, CellSum) and result_sum.on_device
        ]
        self._tables = DeviceTables([cell_sum.partition for cell_sum in self._device_sums])
        self._errors = [Fraction(0), Fraction(0)]  # the sum of the errors and the sum of their squares
        self._device_errors: list[tuple[Array, Array]] = []
        self._leading: list[tuple[ResultSum | CellSum, int, Array]] = []  # the first runs of blocks, on a device
        self._is_empty = True

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        self._is_empty = False
        on_device = not isinstance(samples, np.ndarray)
        if on_device and self._device_sums:
            self._tables.add(samples, runs)
        for statistic, result_sum in zip(self._statistics.statistics, self._sums, strict=True):
            leading = getattr(statistic, "leading_runs", None) if on_device else None
            if leading is not None:
                first = _first_runs(samples, leading if runs is None else min(leading, runs))
                self._leading.append((result_sum, block, first))
            elif not (on_device and result_sum.on_device):
                result_sum.add(block, _first_runs(samples, runs))
        if self._statistics.error is not None:
            samples = _first_runs(samples, runs)
            with enable_x64(samples):
                self._add_errors(self._statistics.error(samples), samples)

    def _add_errors(self, errors: Array, samples: Array) -> None:
        on_device = is_jax(errors)
        if not on_device:
            errors = np.asarray(errors, float)
        if errors.shape != samples.shape[:1]:
            raise InputError(f"error: found shape {errors.shape}; expected one number per run, {samples.shape[:1]}")
        sums = errors.sum(), (errors**2).sum()
        if on_device:
            self._device_errors.append(sums)
        else:
            self._include_errors(sums)

    def _include_errors(self, sums: Sequence[Array]) -> None:
        numbers = [float(number) for number in sums]
        if not all(map(math.isfinite, numbers)):  # a sum is not finite if one of the errors is not
            raise InputError(
                "error: found NaN or infinity; expected one finite number per run; check for non-finite outputs"
            )
        self._errors = [total + Fraction(number) for total, number in zip(self._errors, numbers, strict=True)]

    def finish(self) -> None:
        for sums in self._device_errors:
            self._include_errors(sums)
        self._device_errors = []
        for result_sum, block, samples in self._leading:  # reading them earlier would wait for the device
            result_sum.add(block, np.asarray(samples))
        self._leading = []
        for result_sum, counts in zip(self._device_sums, self._tables.read(), strict=False):
            result_sum.include(counts)

    def merge(self, other: CountAccumulator) -> None:
        if other._is_empty:
            return
        other.finish()
        self._is_empty = False
        self._errors = [total + more for total, more in zip(self._errors, other._errors, strict=True)]
        for result_sum, more in zip(self._sums, other._sums, strict=True):
            result_sum.include(more.result())

    def to_arrays(self) -> list[np.ndarray]:
        """Return the sums of the errors as text, if there are errors, and then the arrays of all results."""
        if self._is_empty:
            return []
        arrays = []
        results = self.results()
        if self._statistics.error is not None:
            arrays.append(np.array([str(total) for total in self._errors]))
        for statistic, result in zip(self._statistics.statistics, results, strict=True):
            arrays += statistic.result_kind.to_arrays(result)
        return arrays

    def merge_arrays(self, arrays: list[np.ndarray]) -> None:
        if not arrays:
            return
        self._is_empty = False
        rest = iter(arrays)
        if self._statistics.error is not None:
            self._errors = [
                total + Fraction(text) for total, text in zip(self._errors, next(rest).tolist(), strict=True)
            ]
        for statistic, result_sum in zip(self._statistics.statistics, self._sums, strict=True):
            result_sum.include(statistic.result_kind.from_arrays(rest))

    def results(self) -> tuple[Any, ...]:
        """Return the merged result of each statistic."""
        self.finish()
        return tuple(result_sum.result() for result_sum in self._sums)

    def error(self, runs: int) -> tuple[float, float]:
        """Return the mean error and its standard error."""
        self.finish()
        mean, mean_square = (float(total) / runs for total in self._errors)
        return mean, math.sqrt(max(mean_square - mean**2, 0.0) / max(runs - 1, 1))


def _first_runs(samples: Array, runs: int | None) -> Array:
    """Return the first runs. All runs are returned as they are, because JAX would copy them."""
    return samples if runs is None or runs >= len(samples) else samples[:runs]


def _new_sum(statistic: Statistic) -> ResultSum | CellSum:
    """Return an empty sum for the results of a statistic."""
    if isinstance(statistic, CellCounter) and statistic.partition.size <= MAX_DENSE_CELLS:
        return CellSum(statistic.partition)
    return ResultSum(statistic)
