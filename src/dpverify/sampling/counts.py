"""Counts, and how they add up: what blocks of runs come to, whoever drew them and in whatever order."""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpverify.util.arrays import array_namespace, cell_codes, enable_x64, is_jax, is_pytree

EXTREMES_KEPT = 128  # values kept at either end
MAX_DENSE_CELLS = 1 << 18  # up to so many cells a table of all of them is cheaper than sorting the codes


class Counts(NamedTuple):
    """How many runs fell into each occupied cell: sorted codes and their counts."""

    codes: np.ndarray
    counts: np.ndarray

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def of(self, codes: np.ndarray) -> np.ndarray:
        """The counts of the given cells, 0 where no run fell."""
        if not self.codes.size:
            return np.zeros(np.shape(codes), np.int64)
        at = np.minimum(np.searchsorted(self.codes, codes), self.codes.size - 1)
        return np.where(self.codes[at] == codes, self.counts[at], 0)


def is_dense(plain: Any) -> bool:
    """Whether a table of all cells can be counted on a device, under a jit."""
    return plain.size <= MAX_DENSE_CELLS and is_pytree(plain)


def counts_from_table(table: Any) -> Counts:
    table = np.asarray(table)
    codes = np.flatnonzero(table)
    return Counts(codes, table[codes])


def count_cells(plain: Any, x: Any) -> Counts:
    """The runs of x in each cell of a partition; of runs on a device, at most their codes come to the host."""
    if is_jax(x) and is_dense(plain):
        tables = DeviceTables((plain,))
        tables.add(x)
        return tables.read()[0]
    if plain.size > MAX_DENSE_CELLS or is_jax(x):
        return Counts(*np.unique(cell_codes(plain, x), return_counts=True))
    return counts_from_table(np.bincount(plain.codes(x), minlength=plain.size))


class DeviceTables:
    """Counts of dense partitions, summed on the device that holds the runs; nothing waits until they are read."""

    def __init__(self, plains: Sequence[Any]):
        self._plains, self._tables = tuple(plains), None

    def add(self, x: Any) -> None:
        import jax

        with enable_x64(x):
            if self._tables is None:
                self._tables = tuple(array_namespace(x).zeros(plain.size, np.int64) for plain in self._plains)
                self._plains = jax.device_put(self._plains)  # once, not with every block
            self._tables = _jitted_tables()(self._plains, self._tables, x)

    def read(self) -> list[Counts]:
        """What was added since the last time."""
        found = [counts_from_table(table) for table in self._tables or ()]
        self._tables = None
        return found


@functools.cache
def _jitted_tables() -> Any:
    import jax
    import jax.numpy as jnp

    def add(plains: Any, tables: Any, x: Any) -> Any:
        counted = (jnp.bincount(p.codes(x), length=t.size) for p, t in zip(plains, tables, strict=True))
        return tuple(t + c for t, c in zip(tables, counted, strict=True))

    return jax.jit(add, donate_argnums=1)


def occupied_codes(*parts: Counts) -> np.ndarray:
    """All codes that any of the counts holds, sorted."""
    codes = np.sort(np.concatenate([p.codes for p in parts]))
    return codes[np.append(True, codes[1:] != codes[:-1])] if codes.size else codes


def add_counts(parts: list[Counts]) -> Counts:
    """The sum of several counts; integers, so the order does not matter."""
    if len(parts) == 1:
        return parts[0]
    codes = np.concatenate([p.codes for p in parts] or [np.zeros(0, np.int64)])
    counts = np.concatenate([p.counts for p in parts] or [np.zeros(0, np.int64)])
    if counts.sum() <= 2 * counts.size:  # nearly every run in a cell of its own: sorting runs beats sorting indices
        return Counts(*np.unique(np.repeat(codes, counts), return_counts=True))
    distinct, place = np.unique(codes, return_inverse=True)
    total = np.zeros(distinct.size, np.int64)
    np.add.at(total, place, counts)
    return Counts(distinct, total)


class Extremes(NamedTuple):
    """The lowest and the highest values that were seen, sorted: tails finer than any table resolves."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Extremes:
        if values.size <= EXTREMES_KEPT:
            values = np.sort(values)
            return cls(values, values)
        ends = np.partition(values, (EXTREMES_KEPT - 1, values.size - EXTREMES_KEPT))
        return cls(np.sort(ends[:EXTREMES_KEPT]), np.sort(ends[-EXTREMES_KEPT:]))


def merge_results(parts: list[Any]) -> Any:
    """The sum of what several blocks came to: counts, tables of counts, or extremes."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Counts):
        return add_counts(parts)
    if isinstance(parts[0], Extremes):
        low, high = (np.concatenate(ends) for ends in zip(*parts, strict=True))
        return Extremes(Extremes.of(low).low, Extremes.of(high).high)
    if isinstance(parts[0], tuple):
        return type(parts[0])(*(merge_results(list(column)) for column in zip(*parts, strict=True)))
    return np.sum(parts, axis=0)


class RunningSum:
    """Merges parts as they arrive, in batches: memory stays within a few times what is summed."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._waiting = 0

    def add(self, part: Any) -> None:
        self._parts.append(part)
        self._waiting += _length(part)
        if self._waiting > max(1 << 20, 2 * _length(self._parts[0])):
            self.sum()

    def sum(self) -> Any:
        self._parts, self._waiting = [merge_results(self._parts)], 0
        return self._parts[0]


def _length(part: Any) -> int:
    return part.size if isinstance(part, np.ndarray) else part[0].size


def flatten_result(part: Any) -> list[np.ndarray]:
    """The arrays of a part, in order: this is how it travels, and how it is kept."""
    return [part] if isinstance(part, np.ndarray) else [leaf for item in part for leaf in flatten_result(item)]


def rebuild_result(kind: Any, arrays: Iterator[np.ndarray]) -> Any:
    """The inverse: a part of this kind, taken from the arrays; the annotations of its fields say what it is made of."""
    if kind is np.ndarray:
        return next(arrays)
    return kind(*(rebuild_result(inner, arrays) for inner in type_hints(kind).values()))


type_hints = functools.cache(typing.get_type_hints)
