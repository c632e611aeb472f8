"""NumPy or JAX: one code path for both, always in 64 bit, and counting where the samples are.

JAX is imported only when an array of it turns up, and its global settings are never touched: 64 bit holds inside
`wide`. Plain data that has a method `codes` (NamedTuples of arrays, hence pytrees) is evaluated under one jit per
kind, so a copy that was pickled into a worker does not compile again.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any

import numpy as np

Array = np.ndarray  # stands for a NumPy or a JAX array: both have the methods that are used here

MAX_COMPARED_EDGES = 32  # edges that are compared one by one
VALUES_PER_PIECE = 8192  # values whose passes stay within the caches


def is_jax(x: Any) -> bool:
    jax = sys.modules.get("jax")  # an array of JAX can't exist before JAX was imported
    return jax is not None and isinstance(x, jax.Array)


def on_accelerator(x: Any) -> bool:
    """Whether x lies where the processor can't read it."""
    return is_jax(x) and any(device.platform != "cpu" for device in x.devices())


def array_namespace(x: Any) -> Any:
    if is_jax(x):
        import jax.numpy as jnp

        return jnp
    return np


def enable_x64(x: Any = None) -> contextlib.AbstractContextManager[Any]:
    """JAX in 64 bit inside the block; nothing to do for NumPy."""
    if x is not None and not is_jax(x):
        return contextlib.nullcontext()
    import jax

    return jax.enable_x64(True)


def evaluate_method(plain: Any, name: str, x: Any) -> Any:
    """`plain.name(x)` on the device that holds x; only what it comes to reaches the host."""
    if not is_jax(x):
        return getattr(plain, name)(x)
    import jax

    with enable_x64(x):
        found = _jitted(type(plain), name)(plain, x) if is_pytree(plain) else getattr(plain, name)(x)
        return jax.tree.map(np.asarray, found)


@functools.cache
def _jitted(kind: type, name: str) -> Any:
    import jax

    return jax.jit(lambda plain, x: getattr(plain, name)(x))


def cell_codes(plain: Any, x: Any) -> np.ndarray:
    return evaluate_method(plain, "codes", x)


def is_pytree(plain: Any) -> bool:
    """False where a user's own function is part of it, which can't be handed to a jit as data."""
    return getattr(plain, "is_pytree", True)


def digitize(edges: Any, x: Any) -> Any:
    """The number of edges below each x (so x = edge counts as left of it), for sorted edges.

    Binary search on random x is slow on NumPy. A few edges are all compared; for more of them a guide table over equal
    steps finds the place and comparisons make it exact. Where the edges crowd it is binary search after all.
    """
    xp = array_namespace(x)
    if xp is not np or x.size < 4096:
        return xp.searchsorted(edges, x)
    if np.isnan(x.min()):  # rare; NaN sorts last whatever the number of values
        return np.searchsorted(edges, x)
    if edges.size <= MAX_COMPARED_EDGES:
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
    padded = np.append(edges, np.inf)
    passes = max(crowd, edges.size - int(start[-1]))  # the last step reaches to the end of the line
    found = np.empty(x.shape, start.dtype)
    for at in range(0, x.size, VALUES_PER_PIECE):  # a piece at a time stays within the caches
        some = x[at : at + VALUES_PER_PIECE]
        with np.errstate(over="ignore", invalid="ignore"):
            place = (some - low) * scale
        np.clip(place, 0, steps - 1, out=place)
        here = start[place.astype(np.intp)]
        for _ in range(passes):
            here += some > padded[here]
        found[at : at + VALUES_PER_PIECE] = here
    return found


@functools.cache
def retain_freed_memory() -> None:
    """Once in a process: freed blocks stay with it, where the system's allocator learns from what it frees.

    Otherwise each block's arrays go back to the system and come again page by page, which can cost more than drawing.
    """
    np.empty((32 << 20) - (1 << 16), np.uint8)  # freed at once, and never touched


def contiguous_transpose(table: Any) -> Any:
    """The transpose; on NumPy with every column in one piece of memory, which is what makes passes over it fast."""
    return np.ascontiguousarray(table.T) if array_namespace(table) is np else table.T


SERIAL_MULTIPLICATIONS = 1 << 17  # multiplications that BLAS does without starting threads


def multiply_rows(x: Any, matrix: Any) -> Any:
    """`x @ matrix` for many short rows.

    Threads inside BLAS cost more here than they gain, and fight with our own workers: NumPy gets it in small pieces.
    """
    if x.shape[1] == 1:
        return x * matrix
    if array_namespace(x) is not np:
        return x @ matrix
    rows = max(1, SERIAL_MULTIPLICATIONS // max(matrix.size, 1))
    whole = len(x) // rows * rows
    if whole <= rows:
        return x @ matrix
    pieces = np.matmul(x[:whole].reshape(-1, rows, x.shape[1]), matrix).reshape(whole, matrix.shape[1])
    return pieces if whole == len(x) else np.concatenate([pieces, x[whole:] @ matrix])


def fori_loop(xp: Any, times: Any, step: Any, state: Any) -> Any:
    """`step` applied so many times; under JAX the number may be traced."""
    if xp is np:
        for _ in range(int(times)):
            state = step(state)
        return state
    import jax

    return jax.lax.fori_loop(0, times, lambda _, s: step(s), state)
