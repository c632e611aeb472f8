"""NumPy or JAX: one code path for both, always in 64 bit, and counting where the samples are.

JAX is imported only when an array of it turns up, and its global settings are never touched: 64 bit holds inside
`wide`. Plain data that has a method `codes` (NamedTuples of arrays, hence pytrees) is evaluated under one jit per
kind, so a copy that was pickled into a worker does not compile again.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, NamedTuple

import numpy as np

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
        return np.asarray(_jitted(type(plain))(plain, x))


def digitize(edges: Any, x: Any) -> Any:
    """The number of edges below each x (so x = edge counts as left of it), for sorted edges.

    On NumPy a guide table over equal steps finds the place and comparisons make it exact: 2.5 times as fast as
    binary search on random x. Where the edges crowd into few steps it is binary search after all.
    """
    xp = namespace(x)
    if xp is not np or edges.size < 2 or x.size < 4096:
        return xp.searchsorted(edges, x)
    low, high = edges[0], edges[-1]
    steps = 16 * edges.size
    with np.errstate(over="ignore", invalid="ignore"):
        scale = steps / (high - low)
        if not (np.isfinite(scale) and scale > 0):
            return np.searchsorted(edges, x)
        # Two steps of room on the left: rounding may put x one step too far to the right, never more.
        start = np.searchsorted(edges, low + (np.arange(steps) - 2) / scale)
        crowd = int((np.searchsorted(edges, low + (np.arange(steps) + 2) / scale) - start).max())
        if crowd > 4:
            return np.searchsorted(edges, x)
        place = (x - low) * scale
    np.clip(place, 0, steps - 1, out=place)
    found = start[place.astype(np.int32)]
    padded = np.append(edges, np.inf)
    for _ in range(edges.size):
        above = x > padded[found]
        if not above.any():
            break
        found += above
    return found


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
    if size > DENSE:
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


class Adder:
    """Adds counts as they arrive, in batches: memory stays within a few times the number of occupied cells."""

    def __init__(self) -> None:
        self._parts: list[Counts] = []
        self._waiting = 0

    def add(self, part: Counts) -> None:
        self._parts.append(part)
        self._waiting += part.codes.size
        if self._waiting > max(1 << 20, 2 * self._parts[0].codes.size):
            self._parts, self._waiting = [self.sum()], 0

    def sum(self) -> Counts:
        return add_counts(self._parts)


def repeat(xp: Any, times: Any, step: Any, state: Any) -> Any:
    """`step` applied so many times; under JAX the number may be traced."""
    if xp is np:
        for _ in range(int(times)):
            state = step(state)
        return state
    import jax

    return jax.lax.fori_loop(0, times, lambda _, s: step(s), state)
