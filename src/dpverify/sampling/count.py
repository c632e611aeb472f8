"""Counting: what is measured of every block of one dataset, and the sums over its blocks.

Counts are integers, extremes are order statistics, and sums of errors are exact fractions. A sum therefore does not
depend on the order in which blocks are added, nor on how they were distributed over workers. Sums in the same process
are merged directly. They are converted to arrays only for another process and for a checkpoint. Samples on a device are
counted there: only tables of counts, or at most the codes of the cells, reach the host.

For every tested event there are two more tables: counts by block, and by position in the block modulo 64. Runs of one
call that share noise make the blocks differ, and noise with a fixed seed makes the positions differ, more than
independent runs allow (dpverify.stats.binomial). Simple events are checked too: some coordinates of the output exceed
their pilot medians. They have probability near one half, where the check is most sensitive.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from dpverify.errors import InputError
from dpverify.events.event import Event
from dpverify.events.partition import Partition
from dpverify.events.scores import Levels
from dpverify.stats.binomial import MAX_P_VALUE, homogeneity_p_value
from dpverify.util.arrays import Array, array_namespace, cell_codes, enable_x64, is_jax, is_plain_data
from dpverify.util.hashing import fingerprint
from dpverify.util.read_only import call_read_only

MAX_COMPARED_CELLS = 1024  # up to this number of cells, a device compares each code with all of them
MAX_CELLS_BY_ROW = 64  # up to this number of cells, the codes are read once for each cell
MAX_DENSE_CELLS = 1 << 18  # for fewer cells, a table of all cells is faster than sorting the codes
MIN_NUMBERS_PER_MERGE = 1 << 20  # results are merged when they hold more numbers than this
ROWS = 256  # of the table by block; further blocks are added to them. A default test has at most 128 blocks
POSITIONS = 64  # the smallest default block
MAX_CHECKED_COORDINATES = 4
MAX_SUMMED_BYTES = 255  # truth values whose sum fits into a byte

NO_LEVELS = np.zeros(1, np.int64)  # the level counts of events that have none; any table can be added to it

R = TypeVar("R")
KnownCodes = Mapping[int, np.ndarray]  # the codes of the runs of a block, by the identity of the partition


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
    def is_plain_data(self) -> bool:
        """Whether the table is plain data."""
        return is_plain_data(self.table)

    @property
    def result_kind(self) -> type[CountTable]:
        return CountTable

    def measure(self, samples: Array) -> np.ndarray:
        return self.table.measure(samples)


class CellCounter(NamedTuple):
    """The statistic that counts the runs in each cell of a partition."""

    partition: Cells

    @property
    def is_plain_data(self) -> bool:
        """Whether the partition is plain data."""
        return is_plain_data(self.partition)

    @property
    def result_kind(self) -> type[Counts]:
        return Counts

    def measure(self, samples: Array) -> Counts:
        return count_cells(self.partition, samples)


class Errors(NamedTuple):
    """The sum of the errors of all runs under one dataset, and the sum of their squares."""

    total: Fraction
    squares: Fraction

    @staticmethod
    def merge(results: Sequence[Errors]) -> Errors:
        return Errors(*(sum(parts, Fraction(0)) for parts in zip(*results, strict=True)))

    def to_arrays(self) -> list[np.ndarray]:
        """Return the fractions as text."""
        return [np.array([str(total) for total in self])]

    @staticmethod
    def from_arrays(arrays: Iterator[np.ndarray]) -> Errors:
        return Errors(*map(Fraction, next(arrays).tolist()))

    def mean(self, runs: int) -> tuple[float, float]:
        """Return the mean error and its standard error."""
        mean, mean_square = (float(total) / runs for total in self)
        return mean, math.sqrt(max(mean_square - mean**2, 0.0) / max(runs - 1, 1))


class MeanError(NamedTuple):
    """The statistic that sums the errors; `error` maps samples to one number per run."""

    error: Callable[[Array], Array]

    @property
    def result_kind(self) -> type[Errors]:
        return Errors


class KeptSamples(NamedTuple):
    """The statistic that keeps the samples; its result has the samples of each block."""

    is_plain_data = False  # a second thread would only copy the samples once more

    @property
    def result_kind(self) -> type[KeptSamples]:
        return KeptSamples

    @staticmethod
    def to_arrays(blocks: dict[int, np.ndarray]) -> list[np.ndarray]:
        """Return the numbers of the blocks, the number of runs in each, and all samples."""
        samples = list(blocks.values())
        return [np.array(list(blocks)), np.array(list(map(len, samples))), np.concatenate(samples)]

    @staticmethod
    def from_arrays(arrays: Iterator[np.ndarray]) -> dict[int, np.ndarray]:
        blocks, lengths, samples = next(arrays), next(arrays), next(arrays)
        return dict(zip(blocks.tolist(), np.split(samples, np.cumsum(lengths)[:-1]), strict=True))


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

    @property
    def all(self) -> tuple[Any, ...]:
        """The statistics, and the errors as the last one."""
        return self.statistics if self.error is None else (*self.statistics, MeanError(self.error))

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether all statistics are plain data, so that no function of the user is called."""
        return self.error is None and all(map(is_plain_data, self.statistics))


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
    if partition.size > MAX_DENSE_CELLS:
        return Counts(*np.unique(cell_codes(partition, samples), return_counts=True))
    cells = CellSum(CellCounter(partition))
    cells.add(0, samples)
    cells.finish()
    return cells.result()


class EventTables(NamedTuple):
    """Counts that are added up over the blocks of a data set.

    Attributes
    ----------
    blocks : ndarray of shape (ROWS, 1 + events)
        In each block, modulo the number of rows: all runs, and the runs in each event.
    positions : ndarray of shape (POSITIONS, 1 + events)
        The same at each position in the block, modulo the number of positions.
    levels : ndarray
        The level counts of the events that have them.
    """

    blocks: np.ndarray
    positions: np.ndarray
    levels: np.ndarray

    @staticmethod
    def merge(results: Sequence[EventTables]) -> EventTables:
        """Return the counts of all blocks together."""
        first, *others = results
        return functools.reduce(lambda a, b: EventTables(*(x + y for x, y in zip(a, b, strict=True))), others, first)

    def columns(self, numbers: np.ndarray) -> EventTables:
        """Return the tables of some events; number 0 is the column of all runs."""
        return self._replace(blocks=self.blocks[:, numbers], positions=self.positions[:, numbers])

    def to_arrays(self) -> list[np.ndarray]:
        return list(self)

    @staticmethod
    def from_arrays(arrays: Iterator[np.ndarray]) -> EventTables:
        return EventTables(next(arrays), next(arrays), next(arrays))


class CheckedEvent(NamedTuple):
    """A tested event, with a table of its cells.

    Attributes
    ----------
    partition : Partition or Levels
        The partition.
    codes : ndarray
        The sorted codes of the cells in the event.
    is_inside : ndarray of bool
        Whether each cell is in the event; empty if there are too many cells.
    """

    partition: Partition | Levels
    codes: np.ndarray
    is_inside: np.ndarray

    @classmethod
    def of(cls, event: Event) -> CheckedEvent:
        """Return an event in this form."""
        size = event.partition.size
        is_inside = np.isin(np.arange(size), event.codes) if size <= MAX_DENSE_CELLS else np.zeros(0, bool)
        return cls(event.partition, event.codes, is_inside)

    @property
    def steps(self) -> int:
        """1: there is one event."""
        return 1

    @property
    def is_plain_data(self) -> bool:
        """Whether the event is plain data."""
        return is_plain_data(self.partition)

    def indicators(self, samples: Array, known: KnownCodes, counted: Array | None = None) -> tuple[Array, Any]:
        """Return which runs fall into the event, of shape (1, runs), and no level counts."""
        xp, codes = array_namespace(samples), known.get(id(self.partition))
        codes = self.partition.codes(samples) if codes is None else codes
        inside = xp.asarray(self.is_inside)[codes] if self.is_inside.size else xp.isin(codes, self.codes)
        return inside[None], NO_LEVELS


class BlockChecker(NamedTuple):
    """The checked events. Accumulators count them in all runs.

    Attributes
    ----------
    coordinates : ndarray
        The checked coordinates of the flattened output.
    medians : ndarray
        Their pilot medians.
    events : tuple
        The tested events: objects with `steps`, the number of their events, and `indicators`, which returns which runs
        fall into each of them and the level counts (`CheckedEvent`, `PrefixEvents`).
    """

    coordinates: np.ndarray
    medians: np.ndarray
    events: tuple[Any, ...]

    @classmethod
    def make(cls, events: Sequence[Any], points: np.ndarray) -> BlockChecker:
        """Return the checker of some events; `points` are finite pilot runs of shape (runs, steps, dimensions)."""
        flat = points.reshape(len(points), -1)
        number = min(MAX_CHECKED_COORDINATES, flat.shape[1])
        coordinates = np.unique(np.linspace(0, flat.shape[1] - 1, number).round().astype(int))
        return cls(coordinates, np.median(flat[:, coordinates], axis=0), tuple(events))

    @property
    def is_plain_data(self) -> bool:
        """Whether all events are plain data."""
        return all(map(is_plain_data, self.events))

    @property
    def result_kind(self) -> type[EventTables]:
        return EventTables

    def no_counts(self) -> EventTables:
        """Return the counts of no blocks."""
        number = 1 + self.coordinates.size + sum(events.steps for events in self.events)
        return EventTables(np.zeros((ROWS, number), np.int64), np.zeros((POSITIONS, number), np.int64), NO_LEVELS)

    def measure(self, samples: Array, known: KnownCodes, runs: Any = None) -> tuple[Array, Array]:
        """Return the number of runs at each position, in all and in each event, and the level counts of the events.

        Parameters
        ----------
        samples : array
            The samples of one block.
        known : mapping
            Codes that are known already.
        runs : int, optional
            How many of the samples are counted; None counts all. It may be traced.
        """
        xp, flat = array_namespace(samples), samples.reshape(samples.shape[0], -1)
        counted = None if runs is None else xp.arange(flat.shape[0]) < runs
        above = [(flat[:, j] > median)[None] for j, median in zip(self.coordinates, self.medians, strict=True)]
        rows, levels = [xp.ones((1, flat.shape[0]), bool), *above], NO_LEVELS
        for events in self.events:
            inside, own = events.indicators(samples, known, counted)
            rows, levels = [*rows, inside], levels + own
        return xp.concatenate([count_positions(row if counted is None else row & counted) for row in rows]).T, levels


def count_positions(inside: Array) -> Array:
    """Return the number of true values at each position modulo 64, for each row of an array (events, runs).

    Examples
    --------
    >>> count_positions(np.array([[True, False] * 64]))[0, :4].tolist()
    [2, 0, 2, 0]
    """
    xp, surplus = array_namespace(inside), -inside.shape[1] % POSITIONS
    if surplus:
        inside = xp.concatenate([inside, xp.zeros((len(inside), surplus), bool)], 1)
    pieces = inside.reshape(len(inside), -1, POSITIONS)
    if xp is not np:
        return pieces.sum(1)
    starts = range(0, pieces.shape[1], MAX_SUMMED_BYTES)
    sums = [pieces[:, i : i + MAX_SUMMED_BYTES].view(np.uint8).sum(1, dtype=np.uint8) for i in starts]
    return np.sum(sums, axis=0, dtype=np.int64)


def runs_are_dependent(*sides: Sequence[EventTables]) -> bool:
    """Return whether an event of a data set varies too much between blocks, or between positions, for independent runs.

    Parameters
    ----------
    *sides : sequence of EventTables
        For each data set the tables of one or more parts of the runs. In each part the probabilities may be others.
    """
    p_values = [1.0]
    for tables in sides:
        for event in range(1, max((table.blocks.shape[1] for table in tables), default=0)):
            own = [table for table in tables if event < table.blocks.shape[1]]
            for pair in zip(*[table[:2] for table in own], strict=True):
                p_values.append(homogeneity_p_value([(table[:, event], table[:, 0]) for table in pair]))
    return min(p_values) < MAX_P_VALUE / len(p_values)


# Sums over the blocks of one dataset.


def _first_runs(samples: Array, runs: int | None) -> Array:
    """Return the first runs. All runs are returned as they are, because JAX would copy them."""
    return samples if runs is None or runs >= len(samples) else samples[:runs]


class ResultSum:
    """The merged results of one statistic. Merging happens in batches, so memory stays proportional to one result."""

    def __init__(self, statistic: Any):
        self.statistic, self.kind = statistic, statistic.result_kind
        self._results: list[Any] = []
        self._numbers, self._most = 0, MIN_NUMBERS_PER_MERGE  # in the results, and until they are merged

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        """Add the samples of one block, or the first `runs` of them."""
        self.include(self.statistic.measure(_first_runs(samples, runs)))

    def finish(self) -> None:
        """Wait for computations on a device and move their results to the host."""

    def include(self, result: Any) -> None:
        """Add a result."""
        self._results.append(result)
        self._numbers += self._size(result)
        if self._numbers > self._most:
            self._numbers = self._size(self.result())
            self._most = max(MIN_NUMBERS_PER_MERGE, 2 * self._numbers)

    def result(self) -> Any:
        """Return the result of all blocks together."""
        self._results = [self.kind.merge(self._results)]
        return self._results[0]

    def _size(self, result: Any) -> int:
        return sum(array.size for array in self.kind.to_arrays(result))


class CellSum(ResultSum):
    """The merged counts of one partition with few cells, as a table.

    The counts of samples on a device are summed there.
    """

    def __init__(self, counter: CellCounter):
        super().__init__(counter)
        self.partition = counter.partition
        self.codes: np.ndarray | None = None  # of the last block
        self._table = np.zeros(self.partition.size, np.int64)
        self._device: tuple[Any, Any] | None = None  # the table and the partition on the device

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        if isinstance(samples, np.ndarray) or not is_plain_data(self.partition):
            self.codes = cell_codes(self.partition, _first_runs(samples, runs))
            self._table += np.bincount(self.codes, minlength=self._table.size)
            return
        import jax

        with enable_x64():
            if self._device is None:
                # Once, and not with every block. A table elsewhere would compile a program of its own.
                devices = list(samples.devices())  # type: ignore[attr-defined]
                content = np.zeros_like(self._table), self.partition
                self._device = jax.device_put(content, devices[0] if len(devices) == 1 else None)
            table, partition = self._device
            number = len(samples) if runs is None else runs  # it does not compile a new program
            self._device = _compiled_table_sum()(partition, table, samples, np.int32(number)), partition

    def finish(self) -> None:
        if self._device is not None:
            table, self._device = np.asarray(self._device[0]), None
            self._table += table

    def include(self, result: Counts) -> None:
        self._table[result.codes] += result.counts

    def result(self) -> Counts:
        return counts_from_table(self._table)


@functools.cache
def _compiled_table_sum() -> Callable[[Any, Any, Array, Any], Any]:
    """Return the compiled function that adds the counts of the first samples to the table of a partition."""
    import jax
    import jax.numpy as jnp

    def add(partition: Any, table: Any, samples: Any, runs: Any) -> Any:
        size = table.size
        counted = jnp.arange(samples.shape[0], dtype=np.int32) < runs
        codes = jnp.where(counted, partition.codes(samples).astype(np.int32), size)  # this size is no cell
        if size > MAX_COMPARED_CELLS:
            return table + jnp.zeros(size, np.int32).at[codes].add(1, mode="drop")
        # Runs that add to the same few numbers wait for each other. The barrier keeps the codes from being computed
        # once more for each cell. Sums along contiguous numbers are fast; for many cells one pass over the codes is.
        codes, cells = jax.lax.optimization_barrier(codes), jnp.arange(size, dtype=np.int32)
        if size <= MAX_CELLS_BY_ROW:
            return table + (cells[:, None] == codes).sum(1, dtype=np.int32)
        return table + (codes[:, None] == cells).sum(0, dtype=np.int32)

    # Autotuning takes most of the compilation on a GPU, and does not make counting faster.
    return jax.jit(add, donate_argnums=1, compiler_options={"xla_gpu_autotune_level": 0})


class EventSum(ResultSum):
    """The counts of the checked events by block and by position in the block.

    `cells` have added the same samples before; the codes that they found are used again.
    """

    def __init__(self, checker: BlockChecker, cells: Sequence[CellSum] = ()):
        super().__init__(checker)
        self._cells, self._tables = cells, checker.no_counts()
        self._waiting: list[tuple[int, Any]] = []  # what a device has counted, or is still counting

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        if isinstance(samples, np.ndarray):
            known = {id(one.partition): one.codes for one in self._cells if one.codes is not None}
            self._add_tables(block, *self.statistic.measure(_first_runs(samples, runs), known))
            return
        number = len(samples) if runs is None else min(runs, len(samples))
        measure = _compiled_measure() if self.statistic.is_plain_data else BlockChecker.measure
        with enable_x64():  # nothing waits for the result
            self._waiting.append((block, measure(self.statistic, samples, {}, np.int32(number))))

    def _add_tables(self, block: int, positions: np.ndarray, levels: np.ndarray) -> None:
        blocks, at_positions, at_levels = self._tables
        blocks[block % ROWS] += positions.sum(0)
        at_positions += positions
        self._tables = EventTables(blocks, at_positions, at_levels + levels)

    def finish(self) -> None:
        for block, tables in self._waiting:
            self._add_tables(block, *map(np.asarray, tables))
        self._waiting = []

    def include(self, result: EventTables) -> None:
        self._tables = EventTables.merge([self._tables, result])

    def result(self) -> EventTables:
        return self._tables


@functools.cache
def _compiled_measure() -> Callable[..., Any]:
    import jax

    return jax.jit(BlockChecker.measure)


class ErrorSum(ResultSum):
    """The sums of the errors. The floating-point sum of each block is added exactly; sums on a device stay there."""

    def __init__(self, errors: MeanError):
        super().__init__(errors)
        self._total = Errors(Fraction(0), Fraction(0))
        self._waiting: list[tuple[Array, Array]] = []

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        samples = _first_runs(samples, runs)
        with enable_x64(samples):
            errors = call_read_only(self.statistic.error, samples, "error")
            errors = errors if is_jax(errors) else np.asarray(errors, float)
            if errors.shape != samples.shape[:1]:
                raise InputError(f"error: found shape {errors.shape}; expected one number per run, {samples.shape[:1]}")
            self._waiting.append((errors.sum(), (errors**2).sum()))
        if not is_jax(errors):
            self.finish()

    def finish(self) -> None:
        for sums in self._waiting:
            numbers = [float(number) for number in sums]
            if not all(map(math.isfinite, numbers)):  # a sum is not finite if one of the errors is not
                raise InputError(
                    "error: found NaN or infinity; expected one finite number per run; check for non-finite outputs"
                )
            self.include(Errors(*map(Fraction, numbers)))
        self._waiting = []

    def include(self, result: Errors) -> None:
        self._total = Errors.merge([self._total, result])

    def result(self) -> Errors:
        return self._total


class SampleSum(ResultSum):
    """The samples of all added blocks. They are copied, because a mechanism may return views of one buffer."""

    def __init__(self, statistic: KeptSamples):
        super().__init__(statistic)
        self._blocks: dict[int, np.ndarray] = {}

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        self._blocks[block] = np.array(_first_runs(samples, runs))

    def include(self, result: dict[int, np.ndarray]) -> None:
        self._blocks.update(result)

    def result(self) -> dict[int, np.ndarray]:
        return self._blocks


class Accumulator:
    """The sums of all statistics over blocks of one dataset."""

    def __init__(self, statistics: Statistics):
        self._sums: list[ResultSum] = []
        for statistic in statistics.all:
            cells = [one for one in self._sums if isinstance(one, CellSum)]
            if isinstance(statistic, BlockChecker):
                self._sums.append(EventSum(statistic, cells))
            elif isinstance(statistic, MeanError):
                self._sums.append(ErrorSum(statistic))
            elif isinstance(statistic, CellCounter) and statistic.partition.size <= MAX_DENSE_CELLS:
                self._sums.append(CellSum(statistic))
            elif isinstance(statistic, KeptSamples):
                self._sums.append(SampleSum(statistic))
            else:
                self._sums.append(ResultSum(statistic))
        self._is_empty = True

    def add(self, block: int, samples: Array, runs: int | None = None) -> None:
        """Add the samples of one block, or the first `runs` of them."""
        self._is_empty = False
        for one in self._sums:
            one.add(block, samples, runs)

    def finish(self) -> None:
        """Wait for computations on a device and move their results to the host."""
        for one in self._sums:
            one.finish()

    def merge(self, other: Accumulator) -> None:
        """Add all blocks of another accumulator, which must hold other blocks and is not used afterwards."""
        if not other._is_empty:
            self._is_empty = False
            for one, result in zip(self._sums, other.results(), strict=True):
                one.include(result)

    def to_arrays(self) -> list[np.ndarray]:
        """Return the content as arrays: the form for another process and for a checkpoint."""
        if self._is_empty:
            return []
        parts = zip(self._sums, self.results(), strict=True)
        return [array for one, result in parts for array in one.kind.to_arrays(result)]

    def merge_arrays(self, arrays: Sequence[np.ndarray]) -> None:
        """Add all blocks of another accumulator, given as arrays."""
        if len(arrays):
            self._is_empty, rest = False, iter(arrays)
            for one in self._sums:
                one.include(one.kind.from_arrays(rest))

    def results(self) -> tuple[Any, ...]:
        """Return the merged result of each statistic; the last one is that of the errors, if there are any."""
        self.finish()
        return tuple(one.result() for one in self._sums)


# Several partitions that are counted in one pass.


class JointCounting(NamedTuple):
    """Partitions that are counted together: level sets of one score are found with a single evaluation of the score.

    Attributes
    ----------
    counted : tuple of partitions
        What is counted.
    source : tuple of int
        For each given partition, the number of the counted one.
    groups : tuple of ndarray or None
        For each given partition, its code for every code of the counted one; None if both are the same.
    """

    counted: tuple[Partition | Levels, ...]
    source: tuple[int, ...]
    groups: tuple[np.ndarray | None, ...]

    def split(self, results: Sequence[tuple[Counts, Counts]]) -> list[tuple[Counts, Counts]]:
        """Return the counts of both data sets for each given partition, from those of the counted ones."""
        pairs = []
        for number, group in zip(self.source, self.groups, strict=True):
            pair = results[number]
            pairs.append(pair if group is None else (regroup(pair[0], group), regroup(pair[1], group)))
        return pairs

    def event(self, number: int, event: Event) -> Event:
        """Return an event of the given partition as a union of cells of the counted one."""
        group, counted = self.groups[number], self.counted[self.source[number]]
        codes = event.codes if group is None else np.flatnonzero(np.isin(group, event.codes))
        return Event(counted, codes, event.direction)


def count_together(partitions: Sequence[Partition | Levels]) -> JointCounting:
    """Return how partitions are counted together; equal partitions, and level sets of equal scores, are joined.

    They are compared by value, because a resumed run reads each of them from its folder as an object of its own.
    """
    keys = [_key(one) for one in partitions]
    counted: dict[str | int, Partition | Levels] = {}
    for key, one in zip(keys, partitions, strict=True):
        joined = counted.setdefault(key, one).levels
        if joined is not None and one.levels is not None:
            counted[key] = joined.join(one.levels)
    numbers = {key: number for number, key in enumerate(counted)}
    groups = [_group(one, counted[key]) for key, one in zip(keys, partitions, strict=True)]
    return JointCounting(tuple(counted.values()), tuple(numbers[key] for key in keys), tuple(groups))


def _key(partition: Partition | Levels) -> str | int:
    """Return what partitions that are counted together have in common; a function of the user has only its identity."""
    counted = partition if partition.levels is None else partition.levels.score
    return fingerprint(counted) if is_plain_data(partition) else id(counted)


def _group(one: Partition | Levels, joined: Partition | Levels) -> np.ndarray | None:
    """Return the code of a partition for every code of the counted one; None if both are the same."""
    if one.levels is None or joined.levels is None:
        return None
    return one.levels.codes_within(joined.levels)


def regroup(counts: Counts, group: np.ndarray) -> Counts:
    """Return the counts of coarser cells; `group` has the coarser code of every code."""
    table = np.bincount(group[counts.codes], counts.counts).astype(np.int64)
    return counts_from_table(table)
