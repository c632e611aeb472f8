"""Statistics of a block of runs, and the kinds of their results: counts of cells, and tables of counts.

Each kind of result defines how results are merged and how they are converted to arrays and back. Merging is exact and
does not depend on the order. Samples on a device are counted there: only tables of counts, or at most the codes of the
cells, reach the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from dpverify.sampling.block_counts import BlockChecker
from dpverify.sampling.feature_counts import FeatureCells
from dpverify.sampling.interval_counts import IntervalCells
from dpverify.util.arrays import Array, cell_codes, enable_x64, is_pytree

MAX_COMPARED_CELLS = 1024  # up to this number of cells, a device compares each code with all of them
MAX_CELLS_BY_ROW = 64  # up to this number of cells, the codes are read once for each cell
MAX_DENSE_CELLS = 1 << 18  # for fewer cells, a table of all cells is faster than sorting the codes

R = TypeVar("R")


class Cells(Protocol):
    """A partition: it maps samples to integer codes from 0 up to below `size`."""

    @property
    def size(self) -> int: ...

    def codes(self, x: Any, /) -> Any: ...


class ResultKind(Protocol[R]):
    """A kind of block result, with the functions that merge, flatten and rebuild results of this kind."""

    def merge(self, results: Sequence[R], /) -> R: ...

    def to_arrays(self, result: R, /) -> list[np.ndarray]: ...

    def from_arrays(self, arrays: Iterator[np.ndarray], /) -> R: ...


class Statistic(Protocol):
    """A function of a block of samples whose results can be merged.

    `result_kind` is the kind of its results: it merges them, and converts them to arrays and back.
    """

    @property
    def result_kind(self) -> ResultKind[Any]: ...

    def measure(self, samples: Any, /) -> Any: ...


class Counts(NamedTuple):
    """The number of runs in each occupied cell.

    Attributes
    ----------
    codes : numpy.ndarray
        The codes of the cells, sorted.
    counts : numpy.ndarray
        The number of runs in each of these cells.
    """

    codes: np.ndarray
    counts: np.ndarray

    @property
    def total(self) -> int:
        """The number of runs."""
        return int(self.counts.sum())

    def of(self, codes: np.ndarray) -> np.ndarray:
        """Return the counts of the given cells; 0 for a cell without runs."""
        if not self.codes.size:
            return np.zeros(np.shape(codes), np.int64)
        index = np.minimum(np.searchsorted(self.codes, codes), self.codes.size - 1)
        return np.where(self.codes[index] == codes, self.counts[index], 0)

    @staticmethod
    def merge(results: Sequence[Counts]) -> Counts:
        """Return the counts of all runs together."""
        if len(results) == 1:
            return results[0]
        codes = np.concatenate([result.codes for result in results] or [np.zeros(0, np.int64)])
        counts = np.concatenate([result.counts for result in results] or [np.zeros(0, np.int64)])
        if counts.sum() <= 2 * counts.size:  # nearly all counts are 1: sorting the runs is faster than an inverse index
            return Counts(*np.unique(np.repeat(codes, counts), return_counts=True))
        distinct, index = np.unique(codes, return_inverse=True)
        total = np.zeros(distinct.size, np.int64)
        np.add.at(total, index, counts)
        return Counts(distinct, total)

    def to_arrays(self) -> list[np.ndarray]:
        return [self.codes, self.counts]

    @staticmethod
    def from_arrays(arrays: Iterator[np.ndarray]) -> Counts:
        return Counts(next(arrays), next(arrays))


class CountTable:
    """The kind of a result that is one array of counts, always of the same shape."""

    @staticmethod
    def merge(results: Sequence[np.ndarray]) -> np.ndarray:
        return results[0] if len(results) == 1 else np.sum(results, axis=0)

    @staticmethod
    def to_arrays(result: np.ndarray) -> list[np.ndarray]:
        return [result]

    @staticmethod
    def from_arrays(arrays: Iterator[np.ndarray]) -> np.ndarray:
        return next(arrays)


class Table(Protocol):
    """Computes a table of counts from a block of samples. Tables of different blocks have the same shape."""

    def measure(self, samples: Any, /) -> np.ndarray: ...


class TableCounter(NamedTuple):
    """The statistic that adds up tables of counts."""

    table: Table

    @property
    def is_pytree(self) -> bool:
        """Whether the table is plain data."""
        return is_pytree(self.table)

    @property
    def result_kind(self) -> type[CountTable]:
        return CountTable

    def measure(self, samples: Array) -> np.ndarray:
        return self.table.measure(samples)


class CellCounter(NamedTuple):
    """The statistic that counts the runs in each cell of a partition."""

    partition: Cells

    @property
    def is_pytree(self) -> bool:
        """Whether the partition is plain data."""
        return is_pytree(self.partition)

    @property
    def result_kind(self) -> type[Counts]:
        return Counts

    def measure(self, samples: Array) -> Counts:
        return count_cells(self.partition, samples)


@dataclass(frozen=True)
class Statistics:
    """What is computed from every block.

    Attributes
    ----------
    statistics : tuple of Statistic or BlockChecker
        Each gives one merged result.
    error : callable, optional
        A function from samples to one number per run, whose mean is reported.
    """

    statistics: tuple[Statistic | BlockChecker, ...]
    error: Callable[[Array], Array] | None = None

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether all statistics are plain data, so that no function of the user is called."""
        return self.error is None and all(map(is_pytree, self.statistics))

    @functools.cached_property
    def interval_cells(self) -> IntervalCells | None:
        """The partitions of a scalar output that are counted together with NumPy; None if there are none."""
        return IntervalCells.of([dense_partition(statistic) for statistic in self.statistics])

    @functools.cached_property
    def feature_cells(self) -> tuple[FeatureCells, ...]:
        """The other level sets whose features are computed together with NumPy."""
        taken = () if self.interval_cells is None else self.interval_cells.numbers
        dense = [dense_partition(statistic) for statistic in self.statistics]
        return FeatureCells.groups([None if number in taken else one for number, one in enumerate(dense)])


def dense_partition(statistic: Statistic | BlockChecker) -> Cells | None:
    """Return the partition whose cells are counted in a dense table; None for other statistics."""
    if isinstance(statistic, CellCounter) and statistic.partition.size <= MAX_DENSE_CELLS:
        return statistic.partition
    return None


def occupied_codes(*parts: Counts) -> np.ndarray:
    """Return all codes that occur in any of the counts, sorted."""
    codes = np.sort(np.concatenate([part.codes for part in parts]))
    return codes[np.append(True, codes[1:] != codes[:-1])] if codes.size else codes


def counts_from_table(table: Array) -> Counts:
    """Return the counts of the occupied cells of a dense table."""
    table = np.asarray(table)
    codes = np.flatnonzero(table)
    return Counts(codes, table[codes])


def count_cells(partition: Cells, samples: Array) -> Counts:
    """Count the runs in each cell of a partition."""
    size = partition.size
    if isinstance(samples, np.ndarray) and size <= MAX_DENSE_CELLS:
        return counts_from_table(np.bincount(partition.codes(samples), minlength=size))
    if isinstance(samples, np.ndarray) or not countable_on_device(partition):
        return Counts(*np.unique(cell_codes(partition, samples), return_counts=True))
    tables = DeviceTables((partition,))
    tables.add(samples)
    return tables.read()[0]


def countable_on_device(partition: Cells) -> bool:
    """Return whether compiled JAX code can count the cells of a partition into a dense table."""
    return partition.size <= MAX_DENSE_CELLS and is_pytree(partition)


class DeviceTables:
    """Dense tables of counts, summed on the device that holds the samples; nothing waits until they are read."""

    def __init__(self, partitions: Sequence[Cells]):
        self._partitions = tuple(partitions)
        self._tables: Any = None

    def add(self, samples: Array, runs: int | None = None) -> None:
        """Add the counts of the first `runs` samples, or of all. The number of runs does not compile a new program."""
        import jax

        with enable_x64():
            if self._tables is None:
                tables = tuple(np.zeros(partition.size, np.int64) for partition in self._partitions)
                # Once, and not with every block. Tables elsewhere would compile a program of their own.
                devices = list(samples.devices())  # type: ignore[attr-defined]
                place = devices[0] if len(devices) == 1 else None
                self._tables, self._partitions = jax.device_put((tables, self._partitions), place)
            number = len(samples) if runs is None else runs
            self._tables = _compiled_table_sums()(self._partitions, self._tables, samples, np.int32(number))

    def read(self) -> list[Counts]:
        """Return what was added since the last call."""
        counts = [counts_from_table(table) for table in self._tables or ()]
        self._tables = None
        return counts


@functools.cache
def _compiled_table_sums() -> Callable[[Any, Any, Array, Any], Any]:
    """Return the compiled function that adds the counts of the first samples to the tables of all partitions."""
    import jax
    import jax.numpy as jnp

    def count(codes: Any, size: int) -> Any:
        if size > MAX_COMPARED_CELLS:
            return jnp.zeros(size, np.int32).at[codes].add(1, mode="drop")
        # Runs that add to the same few numbers wait for each other. The barrier keeps the codes from being computed
        # once more for each cell. Sums along contiguous numbers are fast; for many cells one pass over the codes is.
        codes, cells = jax.lax.optimization_barrier(codes), jnp.arange(size, dtype=np.int32)
        if size <= MAX_CELLS_BY_ROW:
            return (cells[:, None] == codes).sum(1, dtype=np.int32)
        return (codes[:, None] == cells).sum(0, dtype=np.int32)

    def add(partitions: Any, tables: Any, samples: Any, runs: Any) -> Any:
        counted = jnp.arange(samples.shape[0], dtype=np.int32) < runs
        sums = []
        for partition, table in zip(partitions, tables, strict=True):
            codes = jnp.where(counted, partition.codes(samples).astype(np.int32), table.size)  # this size is no cell
            sums.append(table + count(codes, table.size))
        return tuple(sums)

    # Autotuning takes most of the compilation on a GPU, and does not make counting faster.
    return jax.jit(add, donate_argnums=1, compiler_options={"xla_gpu_autotune_level": 0})
