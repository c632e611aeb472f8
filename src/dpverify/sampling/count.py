"""Counting: what is measured of every block of one dataset, and the sums over its blocks.

A statistic measures a block, and merges what it measured of several blocks. Its results are arrays, or tuples of
arrays. Counts are integers, extremes are order statistics, and sums of errors are rounded once. A merged result
therefore does not depend on the order in which blocks are added, nor on how they were distributed over workers. Samples
on a device are counted there: only tables of counts reach the host.

For every tested event there are two more tables: counts by block, and by position in the block modulo 64. Runs of one
call that share noise make the blocks differ, and noise with a fixed seed makes the positions differ, more than
independent runs allow (dpverify.stats.binomial). Simple events are checked too: some coordinates of the output exceed
their pilot medians. They have probability near one half, where the check is most sensitive.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpverify.errors import InputError
from dpverify.events.event import Event
from dpverify.events.partition import Partition
from dpverify.events.scores import Levels
from dpverify.stats.binomial import MAX_P_VALUE, homogeneity_p_value
from dpverify.util.arrays import Array, array_namespace, call_read_only, cell_codes, enable_x64, is_jax, is_plain_data
from dpverify.util.hashing import fingerprint

MAX_COMPARED_CELLS = 1024  # up to this number of cells, a device compares each code with all of them
MAX_CELLS_BY_ROW = 64  # up to this number of cells, the codes are read once for each cell
MAX_DENSE_CELLS = 1 << 18  # for fewer cells, a table of all cells is faster than sorting the codes
MIN_NUMBERS_PER_MERGE = 1 << 20  # results are merged when they hold more numbers than this: 8 MB
ROWS = 256  # of the table by block; further blocks are added to them. A default test has at most 128 blocks
POSITIONS = 64  # the smallest default block
MAX_CHECKED_COORDINATES = 4

NO_LEVELS = np.zeros(1, np.int64)  # the level counts of events that have none; any table can be added to it

KnownCodes = Mapping[int, np.ndarray]  # the codes of the runs of a block, by the identity of the partition


class Block(NamedTuple):
    """The samples of one block.

    Attributes
    ----------
    samples : array of shape (runs, K, d)
        The samples, on the host or on a device.
    number : int
        The number of the block.
    runs : int or None
        How many of the samples are counted, the first ones; None counts all.
    codes : dict or None
        The codes of the runs in the partitions that were counted before, by the identity of the partition; on the host.
    """

    samples: Array
    number: int = 0
    runs: int | None = None
    codes: dict[int, np.ndarray] | None = None

    @property
    def counted(self) -> Array:
        """The samples that are counted. All samples are returned as they are, because JAX would copy them."""
        return self.samples if self.runs is None or self.runs >= len(self.samples) else self.samples[: self.runs]


class Cells(Protocol):
    """A partition: it maps samples to integer codes from 0 up to below `size`."""

    @property
    def size(self) -> int: ...

    def codes(self, x: Any, /) -> Any: ...


class Statistic(Protocol):
    """What is measured of every block. A result is an array, or a tuple of results.

    `measure` may return arrays on a device that are still being computed. `merge` gets results on the host, of which
    tuples that were read from a file are lists, and returns one result for all runs. A statistic that is not plain data
    (`is_plain_data`) calls a function of the user.
    """

    def measure(self, block: Block, /) -> Any: ...

    def merge(self, results: Sequence[Any], /) -> Any: ...


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
    def merge(results: Sequence[Sequence[np.ndarray]]) -> Counts:
        """Return the counts of all runs together; a cell may occur without runs."""
        codes, counts = (np.concatenate([np.zeros(0, np.int64), *part]) for part in zip(*results, strict=True))
        if codes.size and codes.min() >= 0 and codes.max() < MAX_DENSE_CELLS:
            return counts_from_table(np.bincount(codes, counts).astype(np.int64))
        distinct, index = np.unique(codes, return_inverse=True)
        total = np.zeros(distinct.size, np.int64)
        np.add.at(total, index, counts)
        return Counts(distinct, total)


class Table(Protocol):
    """Computes a table of counts from samples. Tables of different blocks have the same shape."""

    def measure(self, samples: Any, /) -> np.ndarray: ...


class TableCounter(NamedTuple):
    """The statistic that adds up tables of counts."""

    table: Table

    def measure(self, block: Block) -> np.ndarray:
        return self.table.measure(block.counted)

    def merge(self, results: Sequence[np.ndarray]) -> np.ndarray:
        return np.sum(results, axis=0)


class CellCounter(NamedTuple):
    """The statistic that counts the runs in each cell of a partition."""

    partition: Cells
    merge = staticmethod(Counts.merge)

    def measure(self, block: Block) -> Counts:
        """Return the counts of a block. Large tables of few runs are avoided, on the host and on a device."""
        samples, size = block.samples, self.partition.size
        if is_jax(samples) and is_plain_data(self.partition) and size <= MAX_DENSE_CELLS:
            number = len(samples) if block.runs is None else block.runs  # it does not compile a new program
            with enable_x64():
                return Counts(np.arange(size), _compiled_table()(self.partition, samples, np.int32(number), size))
        codes = cell_codes(self.partition, block.counted)
        if block.codes is not None:
            block.codes[id(self.partition)] = codes
        if size > MAX_DENSE_CELLS:
            return Counts(*np.unique(codes, return_counts=True))
        return counts_from_table(np.bincount(codes))


@functools.cache
def _compiled_table() -> Callable[[Any, Array, Any, int], Any]:
    """Return the compiled function that counts the first samples in all cells of a partition."""
    import jax
    import jax.numpy as jnp

    def count(partition: Any, samples: Any, runs: Any, size: int) -> Any:
        counted = jnp.arange(samples.shape[0], dtype=np.int32) < runs
        codes = jnp.where(counted, partition.codes(samples).astype(np.int32), size)  # this size is no cell
        if size > MAX_COMPARED_CELLS:
            return jnp.zeros(size, np.int64).at[codes].add(1, mode="drop")
        # Runs that add to the same few numbers wait for each other. The barrier keeps the codes from being computed
        # once more for each cell. Sums along contiguous numbers are fast; for many cells one pass over the codes is.
        codes, cells = jax.lax.optimization_barrier(codes), jnp.arange(size, dtype=np.int32)
        if size <= MAX_CELLS_BY_ROW:
            return (cells[:, None] == codes).sum(1, dtype=np.int32)
        return (codes[:, None] == cells).sum(0, dtype=np.int32)

    # Autotuning takes most of the compilation on a GPU, and does not make counting faster.
    return jax.jit(count, static_argnums=3, compiler_options={"xla_gpu_autotune_level": 0})


class Errors(NamedTuple):
    """The sums of the errors under one dataset, and of their squares, one for each block."""

    totals: np.ndarray
    squares: np.ndarray

    def mean(self, runs: int) -> tuple[float, float]:
        """Return the mean error and its standard error."""
        mean, mean_square = (math.fsum(sums) / runs for sums in self)  # in any order of the blocks
        return mean, math.sqrt(max(mean_square - mean**2, 0.0) / max(runs - 1, 1))


MeanErrors = tuple[tuple[float, float], tuple[float, float]]  # mean and standard error, for each dataset


def mean_errors(pair: tuple[Errors, Errors], runs: int) -> MeanErrors:
    """Return the mean error of both datasets and its standard error."""
    return pair[0].mean(runs), pair[1].mean(runs)


class MeanError(NamedTuple):
    """The statistic that sums the errors; `error` maps samples to one number per run."""

    error: Callable[[Array], Array]
    is_plain_data = False

    def measure(self, block: Block) -> Errors:
        samples = block.counted
        with enable_x64(samples):
            errors = call_read_only(self.error, samples, "error")
            errors = errors if is_jax(errors) else np.asarray(errors, float)
            if errors.shape != samples.shape[:1]:
                raise InputError(f"error: found shape {errors.shape}; expected one number per run, {samples.shape[:1]}")
            return Errors(errors.sum(keepdims=True), (errors**2).sum(keepdims=True))

    def merge(self, results: Sequence[Errors]) -> Errors:
        errors = Errors(*(np.concatenate(part) for part in zip(*results, strict=True)))
        if not np.isfinite(errors).all():  # a sum is not finite if one of the errors is not
            raise InputError(
                "error: found NaN or infinity; expected one finite number per run; check for non-finite outputs"
            )
        return errors


class KeptSamples(NamedTuple):
    """The statistic that keeps the samples: the numbers of the blocks, and a tuple of their samples."""

    def measure(self, block: Block) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return a copy, because a mechanism may return views of one buffer."""
        return np.array([block.number]), (np.array(block.counted),)

    def merge(self, results: Sequence[tuple[np.ndarray, Sequence[np.ndarray]]]) -> tuple[np.ndarray, list[np.ndarray]]:
        numbers, samples = zip(*results, strict=True)
        return np.concatenate(numbers), [one for own in samples for one in own]


def occupied_codes(*parts: Counts) -> np.ndarray:
    """Return all codes that occur in any of the counts, sorted."""
    return np.unique(np.concatenate([part.codes for part in parts]))


def counts_from_table(table: Array) -> Counts:
    """Return the counts of the occupied cells of a dense table."""
    table = np.asarray(table)
    codes = np.flatnonzero(table)
    return Counts(codes, table[codes])


def count_cells(partition: Cells, samples: Array) -> Counts:
    """Count the runs in each cell of a partition."""
    accumulator = Accumulator((CellCounter(partition),))
    accumulator.add(0, samples)
    return accumulator.results()[0]


class EventTables(NamedTuple):
    """Counts that are added up over the blocks of a dataset.

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
    def merge(results: Sequence[Sequence[np.ndarray]]) -> EventTables:
        """Return the counts of all blocks together."""
        return EventTables(*(np.sum(tables, axis=0) for tables in zip(*results, strict=True)))

    def columns(self, numbers: np.ndarray) -> EventTables:
        """Return the tables of some events; number 0 is the column of all runs."""
        return self._replace(blocks=self.blocks[:, numbers], positions=self.positions[:, numbers])


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

    def indicators(self, samples: Array, known: KnownCodes, counted: Array | None = None) -> tuple[Array, Any]:
        """Return which runs fall into the event, of shape (1, runs), and no level counts."""
        xp, codes = array_namespace(samples), known.get(id(self.partition))
        codes = self.partition.codes(samples) if codes is None else codes
        inside = xp.asarray(self.is_inside)[codes] if self.is_inside.size else xp.isin(codes, self.codes)
        return inside[None], NO_LEVELS


class BlockChecker(NamedTuple):
    """The statistic that counts the checked events by block and by position in the block.

    Attributes
    ----------
    coordinates : ndarray
        The checked coordinates of the flattened output.
    medians : ndarray
        Their pilot medians.
    events : tuple
        The tested events: objects with `indicators`, which returns which runs fall into each of one or more events, and
        the level counts (`CheckedEvent`, `PrefixEvents`).
    """

    coordinates: np.ndarray
    medians: np.ndarray
    events: tuple[Any, ...]
    merge = staticmethod(EventTables.merge)

    @classmethod
    def make(cls, events: Sequence[Any], points: np.ndarray) -> BlockChecker:
        """Return the checker of some events; `points` are finite pilot runs of shape (runs, steps, dimensions)."""
        flat = points.reshape(len(points), -1)
        number = min(MAX_CHECKED_COORDINATES, flat.shape[1])
        coordinates = np.unique(np.linspace(0, flat.shape[1] - 1, number).round().astype(int))
        return cls(coordinates, np.median(flat[:, coordinates], axis=0), tuple(events))

    def measure(self, block: Block) -> EventTables:
        """Return the counts of a block."""
        row = np.int32(block.number % ROWS)
        if not is_jax(block.samples):
            return self.tables(block.counted, row, block.codes or {})
        runs = np.int32(len(block.samples) if block.runs is None else block.runs)
        tables = _compiled_tables() if is_plain_data(self) else BlockChecker.tables
        with enable_x64():
            return tables(self, block.samples, row, {}, runs)

    def tables(self, samples: Array, row: Any, known: KnownCodes, runs: Any = None) -> EventTables:
        """Return the counts of a block that belongs to a row of the table of blocks.

        Parameters
        ----------
        samples : array
            The samples of one block.
        row : int
            The row. It may be traced.
        known : mapping
            Codes that are known already.
        runs : int, optional
            How many of the samples are counted; None counts all. It may be traced.
        """
        xp, flat = array_namespace(samples), samples.reshape(samples.shape[0], -1)
        counted = None if runs is None else xp.arange(flat.shape[0]) < runs
        above = [(flat[:, j] > median)[None] for j, median in zip(self.coordinates, self.medians, strict=True)]
        events, levels = [xp.ones((1, flat.shape[0]), bool), *above], NO_LEVELS
        for one in self.events:
            inside, own = one.indicators(samples, known, counted)
            events, levels = [*events, inside], levels + own
        inside = xp.concatenate(events)
        inside = inside if counted is None else inside & counted
        padding = xp.zeros((len(inside), -inside.shape[1] % POSITIONS), bool)
        at = xp.concatenate([inside, padding], 1).reshape(len(inside), -1, POSITIONS).sum(1).T
        return EventTables((xp.arange(ROWS) == row)[:, None] * at.sum(0), at, levels)


@functools.cache
def _compiled_tables() -> Callable[..., Any]:
    import jax

    return jax.jit(BlockChecker.tables)


def runs_are_dependent(*sides: Sequence[EventTables]) -> bool:
    """Return whether an event of a dataset varies too much between blocks, or between positions, for independent runs.

    Parameters
    ----------
    *sides : sequence of EventTables
        For each dataset the tables of one or more parts of the runs. In each part the probabilities may be others.
    """
    p_values = [1.0]
    for tables in sides:
        for event in range(1, max((table.blocks.shape[1] for table in tables), default=0)):
            own = [table for table in tables if event < table.blocks.shape[1]]
            for pair in zip(*[table[:2] for table in own], strict=True):
                p_values.append(homogeneity_p_value([(table[:, event], table[:, 0]) for table in pair]))
    return min(p_values) < MAX_P_VALUE / len(p_values)


class Accumulator:
    """The results of all statistics over blocks of one dataset.

    Merging happens in batches, so memory stays proportional to one result.
    """

    def __init__(self, statistics: Sequence[Statistic]):
        self._statistics = statistics
        self._results: list[list[Any]] = [[] for _ in statistics]
        self._numbers, self._most = 0, MIN_NUMBERS_PER_MERGE  # in the results, and until they are merged

    def add(self, number: int, samples: Array, runs: int | None = None) -> None:
        """Add the samples of one block, or the first `runs` of them. Nothing waits for a computation on a device."""
        block = Block(samples, number, runs, {})
        self.merge([statistic.measure(block) for statistic in self._statistics])

    def merge(self, results: Sequence[Any]) -> None:
        """Add the results of other blocks, one for each statistic."""
        for own, result in zip(self._results, results, strict=True):
            own.append(result)
        self._numbers += _size(results)
        if self._numbers > self._most:
            self._numbers = _size(self.results())
            self._most = max(MIN_NUMBERS_PER_MERGE, 2 * self._numbers)

    def results(self) -> list[Any]:
        """Return the merged result of each statistic; empty without blocks."""
        if not all(self._results):
            return []
        jax = sys.modules.get("jax")
        on_host = self._results if jax is None else jax.device_get(self._results)  # waits for the device
        merged = [statistic.merge(own) for statistic, own in zip(self._statistics, on_host, strict=True)]
        self._results = [[result] for result in merged]
        return merged


def _size(result: Any) -> int:
    """Return how many numbers a result holds."""
    return sum(map(_size, result)) if isinstance(result, (tuple, list)) else result.size


def as_arrays(result: Any, arrays: list[np.ndarray]) -> Any:
    """Append the arrays of a result to a list, and return their places as plain data."""
    if isinstance(result, (tuple, list)):
        return [as_arrays(part, arrays) for part in result]
    arrays.append(result)
    return len(arrays) - 1


def from_arrays(places: Any, arrays: Sequence[np.ndarray]) -> Any:
    """Return a result whose tuples are lists, from what `as_arrays` returned.

    Examples
    --------
    >>> arrays = []
    >>> places = as_arrays((np.arange(2), (np.arange(3),)), arrays)
    >>> places, [part[0].tolist() if isinstance(part, list) else part.tolist() for part in from_arrays(places, arrays)]
    ([0, [1]], [[0, 1], [0, 1, 2]])
    """
    return [from_arrays(place, arrays) for place in places] if isinstance(places, list) else arrays[places]


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
        """Return the counts of both datasets for each given partition, from those of the counted ones."""
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

    They are compared by value, because a resumed run reads each of them from its folder as an object of its own. A
    function of the user has only its identity.
    """
    scores = [one if one.levels is None else one.levels.score for one in partitions]
    keys = [fingerprint(score) if is_plain_data(score) else id(score) for score in scores]
    counted: dict[str | int, Partition | Levels] = {}
    for key, one in zip(keys, partitions, strict=True):
        joined = counted.setdefault(key, one).levels
        if joined is not None and one.levels is not None:
            counted[key] = joined.join(one.levels)
    numbers = {key: number for number, key in enumerate(counted)}
    groups: list[np.ndarray | None] = []
    for key, one in zip(keys, partitions, strict=True):
        joined = counted[key].levels
        groups.append(None if one.levels is None or joined is None else one.levels.codes_within(joined))
    return JointCounting(tuple(counted.values()), tuple(numbers[key] for key in keys), tuple(groups))


def regroup(counts: Counts, group: np.ndarray) -> Counts:
    """Return the counts of coarser cells; `group` has the coarser code of every code."""
    table = np.bincount(group[counts.codes], counts.counts).astype(np.int64)
    return counts_from_table(table)
