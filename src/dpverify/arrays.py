"""NumPy or JAX: one code path for both, always in 64 bit, and counting where the samples are.

JAX is imported only when an array of it turns up, and its global settings are never touched: 64 bit holds inside
`wide`. Plain data that has a method `codes` (NamedTuples of arrays, hence pytrees) is evaluated under one jit per
kind, so a copy that was pickled into a worker does not compile again.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

COMPARED = 32  # edges that are compared one by one
EXTREMES = 128  # values kept at either end
DENSE = 1 << 18  # up to so many cells a table of all of them is cheaper than sorting the codes


def is_jax(x: Any) -> bool:
    jax = sys.modules.get("jax")  # an array of JAX can't exist before JAX was imported
    return jax is not None and isinstance(x, jax.Array)


def namespace(x: Any) -> Any:
    if is_jax(x):
        import jax.numpy as jnp

        return jnp
    return np


def wide(x: Any = None) -> contextlib.AbstractContextManager[Any]:
    """JAX in 64 bit inside the block; nothing to do for NumPy."""
    if x is not None and not is_jax(x):
        return contextlib.nullcontext()
    import jax

    return jax.enable_x64(True)


@functools.cache
def _jitted(kind: type) -> Any:
    import jax

    return jax.jit(lambda plain, x: plain.codes(x))


@functools.cache
def _jitted_counts(kind: type) -> Any:
    import jax
    import jax.numpy as jnp

    def counts(plain: Any, x: Any, size: int) -> Any:
        return jnp.bincount(plain.codes(x), length=size)

    return jax.jit(counts, static_argnums=2)


def codes_of(plain: Any, x: Any) -> np.ndarray:
    """`plain.codes(x)`, on the device that holds x; only the codes come to the host."""
    if not is_jax(x):
        return plain.codes(x)
    with wide(x):
        return np.asarray(_jitted(type(plain))(plain, x) if is_plain(plain) else plain.codes(x))


def is_plain(plain: Any) -> bool:
    """False where a user's own function is part of it, which can't be handed to a jit as data."""
    return getattr(plain, "is_plain", True)


def digitize(edges: Any, x: Any) -> Any:
    """The number of edges below each x (so x = edge counts as left of it), for sorted edges.

    Binary search on random x is slow on NumPy. A few edges are all compared; for more of them a guide table over equal
    steps finds the place and comparisons make it exact. Where the edges crowd it is binary search after all.
    """
    xp = namespace(x)
    if xp is not np or x.size < 4096:
        return xp.searchsorted(edges, x)
    if np.isnan(x.sum()):  # rare; NaN sorts last whatever the number of values
        return np.searchsorted(edges, x)
    if edges.size <= COMPARED:
        below = np.zeros(x.shape, np.uint8)
        for edge in edges:
            below += x > edge
        return below.astype(np.intp)
    low, high = edges[0], edges[-1]
    steps = min(64 * edges.size, 8192)
    with np.errstate(over="ignore", invalid="ignore"):
        scale = steps / (high - low)
        if not (np.isfinite(scale) and scale > 0):
            return np.searchsorted(edges, x)
        # A step of room on either side: rounding may put x one step off, never more.
        start = np.searchsorted(edges, low + (np.arange(steps) - 1) / scale)
        crowd = int((np.searchsorted(edges, low + (np.arange(steps) + 2) / scale) - start)[:-1].max(initial=0))
        if crowd > 3:
            return np.searchsorted(edges, x)
        place = (x - low) * scale
    np.maximum(place, 0, out=place)
    np.minimum(place, steps - 1, out=place)
    found = start[place.astype(np.intp)]
    padded = np.append(edges, np.inf)
    for _ in range(max(crowd, edges.size - int(start[-1]))):  # the last step reaches to the end of the line
        found += x > padded[found]
    return found


def columns(table: Any) -> Any:
    """The transpose; on NumPy with every column in one piece of memory, which is what makes passes over it fast."""
    return np.ascontiguousarray(table.T) if namespace(table) is np else table.T


SERIAL = 1 << 17  # multiplications that BLAS does without starting threads


def rows_times(x: Any, matrix: Any) -> Any:
    """`x @ matrix` for many short rows.

    Threads inside BLAS cost more here than they gain, and fight with our own workers: NumPy gets it in small pieces.
    """
    if x.shape[1] == 1:
        return x * matrix
    if namespace(x) is not np:
        return x @ matrix
    rows = max(1, SERIAL // max(matrix.size, 1))
    whole = len(x) // rows * rows
    if whole <= rows:
        return x @ matrix
    pieces = np.matmul(x[:whole].reshape(-1, rows, x.shape[1]), matrix).reshape(whole, matrix.shape[1])
    return pieces if whole == len(x) else np.concatenate([pieces, x[whole:] @ matrix])


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


def count(plain: Any, x: Any, size: int) -> Counts:
    """The runs of x in each cell of a partition of `size` cells, counted on the device where that is dense."""
    if size > DENSE or (is_jax(x) and not is_plain(plain)):
        return Counts(*np.unique(codes_of(plain, x), return_counts=True))
    if is_jax(x):
        with wide(x):
            table = np.asarray(_jitted_counts(type(plain))(plain, x, size))
    else:
        table = np.bincount(plain.codes(x), minlength=size)
    codes = np.flatnonzero(table)
    return Counts(codes, table[codes])


def occupied(*parts: Counts) -> np.ndarray:
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
        if values.size <= EXTREMES:
            values = np.sort(values)
            return cls(values, values)
        ends = np.partition(values, (EXTREMES - 1, values.size - EXTREMES))
        return cls(np.sort(ends[:EXTREMES]), np.sort(ends[-EXTREMES:]))


def merge(parts: list[Any]) -> Any:
    """The sum of what several blocks came to: counts, tables of counts, or extremes."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Counts):
        return add_counts(parts)
    if isinstance(parts[0], Extremes):
        low, high = (np.concatenate(ends) for ends in zip(*parts, strict=True))
        return Extremes(Extremes.of(low).low, Extremes.of(high).high)
    if isinstance(parts[0], tuple):
        return type(parts[0])(*(merge(list(column)) for column in zip(*parts, strict=True)))
    return np.sum(parts, axis=0)


class Adder:
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
        self._parts, self._waiting = [merge(self._parts)], 0
        return self._parts[0]


def _length(part: Any) -> int:
    return part.size if isinstance(part, np.ndarray) else part[0].size


def leaves(part: Any) -> list[np.ndarray]:
    """The arrays of a part, in order: this is how it travels, and how it is kept."""
    return [part] if isinstance(part, np.ndarray) else [leaf for item in part for leaf in leaves(item)]


def rebuild(kind: Any, arrays: Iterator[np.ndarray]) -> Any:
    """The inverse: a part of this kind, taken from the arrays; the annotations of its fields say what it is made of."""
    if kind is np.ndarray:
        return next(arrays)
    return kind(*(rebuild(inner, arrays) for inner in hints(kind).values()))


hints = functools.cache(typing.get_type_hints)


def repeat(xp: Any, times: Any, step: Any, state: Any) -> Any:
    """`step` applied so many times; under JAX the number may be traced."""
    if xp is np:
        for _ in range(int(times)):
            state = step(state)
        return state
    import jax

    return jax.lax.fori_loop(0, times, lambda _, s: step(s), state)
