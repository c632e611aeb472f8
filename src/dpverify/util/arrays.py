"""Functions that work on NumPy and on JAX arrays, in double precision, on the device that holds the samples.

JAX is imported only when one of its arrays occurs, and its global settings are never changed: double precision is
enabled inside `enable_x64` only. Plain data with a method such as `codes` (NamedTuples of arrays, hence pytrees) are
evaluated under one jit per class, so that a copy that was pickled into a worker does not compile again.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
import operator
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from dpverify.errors import InputError
from dpverify.util.formatting import one_line

Array = np.ndarray  # stands for a NumPy or a JAX array: both have the methods that are used here
State = TypeVar("State")
T = TypeVar("T")
R = TypeVar("R")

MAX_COMPARED_EDGES = 32  # up to this number of edges, all of them are compared with each value
MAX_UNROLLED_COLUMNS = 16  # of a matrix whose product is written as a sum, in compiled code
MIN_SEARCHED_VALUES = 4096  # fewer values are located by binary search
VALUES_PER_PIECE = 1 << 14  # values that are processed together, so that they stay in the processor's caches
STEPS_PER_EDGE, MAX_STEPS = 64, 8192  # of a guide table; most steps then have no edge, and the table stays in a cache
SERIAL_MULTIPLICATIONS = 1 << 18  # multiplications that OpenBLAS does without starting threads
MIN_MULTIPLIED_ROWS = 24  # fewer rows at a time would read a large matrix too often
ROWS_TRANSPOSED = 256  # rows that are copied together to a transpose
TILE_ROWS, TILE_COLUMNS = 24, 48  # rows and columns that are multiplied together
MIN_TILE_COLUMNS = 32  # of a large matrix
SUMMED_MULTIPLICATIONS = 1 << 17  # in one piece of a sum of outer products; it determines the rounding
WORD_BITS = 32  # values of a mask that are stored in one word
RETAINED_BYTES = (32 << 20) - (1 << 16)  # just below the largest threshold of the allocator of glibc


HOST_MEMORY = 1  # the code of DLPack for a device whose memory NumPy can read


def is_jax(x: object) -> bool:
    """Return whether x is a JAX array; no such array exists before JAX is imported."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def on_accelerator(x: Any) -> bool:
    """Return whether x is stored in the memory of an accelerator."""
    return is_jax(x) and any(device.platform != "cpu" for device in x.devices())


def from_tensor(x: Any) -> Any:
    """Return a tensor of another library (PyTorch, CuPy, all that know DLPack) as an array of NumPy or JAX.

    A tensor on an accelerator stays there if JAX knows the accelerator; otherwise it is copied to the host. Everything
    that is no tensor is returned as it is.
    """
    if isinstance(x, (np.ndarray, np.generic)) or not hasattr(x, "__dlpack__") or is_jax(x):
        return x
    x = x.detach() if hasattr(x, "detach") else x  # PyTorch keeps gradients
    if x.__dlpack_device__()[0] == HOST_MEMORY:
        return np.from_dlpack(x)
    try:
        import jax

        with enable_x64():
            return jax.dlpack.from_dlpack(x)
    except (ImportError, RuntimeError):  # without JAX, or JAX without this accelerator
        return np.asarray(x.cpu() if hasattr(x, "cpu") else x.get())


def array_namespace(x: object) -> Any:
    """Return `jax.numpy` for a JAX array, else `numpy`."""
    if is_jax(x):
        import jax.numpy as jnp

        return jnp
    return np


def enable_x64(x: object = None) -> contextlib.AbstractContextManager[object]:
    """Return a context in which JAX computes in double precision; it does nothing for a NumPy array x."""
    if x is not None and not is_jax(x):
        return contextlib.nullcontext()
    import jax

    return jax.enable_x64(True)


def host_device() -> contextlib.AbstractContextManager[object]:
    """Return a context in which JAX computes on the CPU, for small sequential problems such as one dataset.

    An accelerator would need longer to start the operations than the CPU to finish them, and longer to compile them.
    """
    import jax

    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # the user has disabled the CPU of JAX
        return contextlib.nullcontext()


def evaluate_method(plain: object, name: str, x: Array) -> Any:
    """Return `plain.name(x)` as NumPy arrays, computed on the device that holds x."""
    if not is_jax(x):
        return getattr(plain, name)(x)
    import jax

    with enable_x64(x):
        result = _jit_method(type(plain), name)(plain, x) if is_plain_data(plain) else getattr(plain, name)(x)
        return jax.tree.map(np.asarray, result)


@functools.cache
def _jit_method(kind: type, name: str) -> Callable[[object, Array], Any]:
    """Return a compiled method; one compilation serves all objects of a class."""
    import jax

    return jax.jit(lambda plain, x: getattr(plain, name)(x))


def cell_codes(plain: object, x: Array) -> np.ndarray:
    """Return the number of the cell of each run, for a partition or the level sets of a score."""
    return evaluate_method(plain, "codes", x)


def is_plain_data(plain: object) -> bool:
    """Return whether an object can be an argument of a jit; an object that holds a function of the user cannot.

    A class states it with `is_plain_data = False`. A NamedTuple is plain data if all of its fields are.
    """
    if not getattr(plain, "is_plain_data", True):
        return False
    return not isinstance(plain, tuple) or all(map(is_plain_data, plain))


def digitize(edges: Array, x: Array) -> Array:
    """Return the number of edges below each x, for sorted edges; a value on an edge counts as left of it.

    Binary search for one random x after another is slow with NumPy. For many values, a few edges are all compared with
    x, and more edges are found with a guide table.

    Examples
    --------
    >>> digitize(np.array([0.0, 1.0]), np.array([-1.0, 0.0, 0.5, 2.0])).tolist()
    [0, 0, 1, 2]
    """
    xp = array_namespace(x)
    if xp is not np:
        if 0 < edges.shape[0] <= MAX_COMPARED_EDGES:  # fused with the operations around it; NaN is above all edges
            return sum((~(x <= edges[i])).astype(np.int32) for i in range(edges.shape[0]))  # type: ignore[return-value]
        # One fused pass over x; the default method of JAX makes one pass for each comparison.
        return xp.searchsorted(edges, x, method="scan_unrolled")
    if x.size < MIN_SEARCHED_VALUES or not edges.size or np.isnan(x.min()):  # NaN is sorted last
        return np.searchsorted(edges, x)
    if edges.size <= MAX_COMPARED_EDGES:
        below = np.zeros(x.shape, np.uint8)
        for edge in edges:
            below += x > edge
        return below.astype(np.intp)
    found = _digitize_by_steps(edges, x)
    return np.searchsorted(edges, x) if found is None else found


def _digitize_by_steps(edges: np.ndarray, x: np.ndarray) -> np.ndarray | None:
    """Return the number of edges below each x, which is not NaN; None if bisection is faster.

    Equal steps between the first and the last edge lead from a number to its edges. A step is a nondecreasing function
    of x, rounding included. An edge in a lower step is therefore below x, and an edge in a higher step above it. Only
    the edges in the step of x itself are compared with x. Many edges in one step make bisection faster.
    """
    finite = edges[np.isfinite(edges)]
    if not finite.size:
        return None
    steps, low = min(STEPS_PER_EDGE * edges.size, MAX_STEPS), float(finite[0])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scale = float(steps / (finite[-1] - low))
        if not (math.isfinite(scale) and scale > 0):
            return None
        edges_in_step = np.bincount(np.clip((finite - low) * scale, 0, steps - 1).astype(np.intp), minlength=steps)
        if edges_in_step.max() > edges.size.bit_length():
            return None
        first_edge, padded = np.cumsum(edges_in_step) - edges_in_step, np.append(edges, np.inf)
        number = np.empty(len(x), np.intp)
        for start in range(0, len(x), VALUES_PER_PIECE):
            piece = x[start : start + VALUES_PER_PIECE]
            position = (piece - low) * scale
            index = first_edge.take(np.clip(position, 0, steps - 1, out=position).astype(np.intp))
            for _ in range(int(edges_in_step.max())):
                index += piece > padded.take(index)
            number[start : start + VALUES_PER_PIECE] = index
    return number


def digitize_columns(edges: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the number of edges below each number of a NumPy table, for edges of shape (columns, E).

    Examples
    --------
    >>> digitize_columns(np.array([[0.0, 1.0], [5.0, 6.0]]), np.array([[0.5, 0.5], [2.0, 9.0]])).tolist()
    [[1, 0], [2, 2]]
    """
    bins = np.empty(x.shape, np.intp)
    for j, column in enumerate(contiguous_transpose(x)):
        bins[:, j] = digitize(edges[j], column)
    return bins


def first_true(mask: Any, size: int) -> Any:
    """Return the positions of the first `size` true values of a JAX array, padded with its length.

    It replaces `jax.numpy.nonzero(mask, size=size)`, which adds one number per value to shared memory and is slow on a
    GPU. Here 32 values form one word. The words are located by their cumulative numbers of true values, and the bits
    in a word by bisection.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> first_true(jnp.array([False, True, True, False, True]), 2).tolist()
    [1, 2]
    >>> first_true(jnp.array([False, True]), 3).tolist()
    [1, 2, 2]
    """
    import jax
    import jax.numpy as jnp

    bits = jnp.pad(mask, (0, -mask.shape[0] % WORD_BITS)).reshape(-1, WORD_BITS).astype(jnp.uint32)
    words = (bits << jnp.arange(WORD_BITS, dtype=jnp.uint32)).sum(1, dtype=jnp.uint32)
    counts = jax.lax.population_count(words).astype(jnp.int32)
    ends = jnp.cumsum(counts, dtype=jnp.int32)
    rank = jnp.arange(size, dtype=jnp.int32)
    index = jnp.searchsorted(ends, rank, side="right", method="scan_unrolled").astype(jnp.int32)
    last = jnp.minimum(index, words.shape[0] - 1)
    word, rank_in_word = words[last], rank - (ends - counts)[last]
    bit = jnp.zeros_like(rank)
    for width in (16, 8, 4, 2, 1):
        below = jax.lax.population_count(word & jnp.uint32((1 << width) - 1)).astype(jnp.int32)
        above = rank_in_word >= below
        bit += jnp.where(above, width, 0)
        rank_in_word -= jnp.where(above, below, 0)
        word = jnp.where(above, word >> jnp.uint32(width), word)
    return jnp.where(rank < ends[-1], last * WORD_BITS + bit, mask.shape[0])


@functools.cache
def retain_freed_memory() -> None:
    """Make the allocator keep freed memory in this process, where it adapts to the size of freed blocks (glibc).

    Otherwise the arrays of each block are returned to the system and have to be mapped again page by page, which may
    take longer than drawing the samples. The array is freed at once and never written to.
    """
    np.empty(RETAINED_BYTES, np.uint8)


def contiguous_transpose(table: Array) -> Array:
    """Return the transpose; with NumPy its rows are contiguous, which makes passes over them fast.

    A transpose that is contiguous anyway is not copied.
    """
    if array_namespace(table) is not np or table.T.flags.c_contiguous:
        return table.T
    result = np.empty(table.shape[::-1], table.dtype)
    for begin in range(0, len(table), ROWS_TRANSPOSED):
        result[:, begin : begin + ROWS_TRANSPOSED] = table[begin : begin + ROWS_TRANSPOSED].T
    return result


def take_columns(x: Array, columns: Array) -> Array:
    """Return some columns of a table; with NumPy its rows stay contiguous.

    Indexing would make the columns contiguous, and then operations along rows are several times slower.

    Examples
    --------
    >>> take_columns(np.array([[1, 2, 3], [4, 5, 6]]), np.array([2, 0])).tolist()
    [[3, 1], [6, 4]]
    """
    if array_namespace(x) is not np:
        return x[:, columns]
    is_whole = np.array_equal(columns, np.arange(x.shape[1]))
    return x if is_whole else x.take(columns, axis=1)


def multiply_rows(x: Array, matrix: Array) -> Array:
    """Return `x @ matrix` for many short rows.

    With NumPy the product is computed in small pieces: for these sizes threads of BLAS are slower than none, and they
    compete with our own workers.
    """
    if x.shape[1] == 1:
        return x * matrix
    xp = array_namespace(x)
    if xp is not np:
        if max(matrix.shape) > MAX_UNROLLED_COLUMNS:
            return x @ matrix
        # Sums of few terms are fused with the operations around them.
        columns = [x[:, i, None] * matrix[i] for i in range(x.shape[1])]
        return functools.reduce(operator.add, columns)
    rows = SERIAL_MULTIPLICATIONS // max(matrix.size, 1)
    if rows < MIN_MULTIPLIED_ROWS:
        return _multiply_tiles(x, matrix)
    whole = len(x) // rows * rows
    if whole <= rows:
        return x @ matrix
    result = np.empty((len(x), matrix.shape[1]), np.result_type(x, matrix))
    pieces, products = (one[:whole].reshape(-1, rows, one.shape[1]) for one in (x, result))
    np.matmul(pieces, matrix, out=products)
    if whole < len(x):
        result[whole:] = x[whole:] @ matrix
    return result


def _multiply_tiles(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return `x @ matrix` for a large matrix, in tiles of few rows of x and few rows and columns of the matrix.

    Rows of zeros at the end of a group of columns are left out, which halves the work for a triangular matrix.
    """
    result = np.zeros((len(x), matrix.shape[1]))
    whole = len(x) // TILE_ROWS * TILE_ROWS
    pieces, sums = (one[:whole].reshape(-1, TILE_ROWS, one.shape[1]) for one in (x, result))
    number = -(-len(matrix) * TILE_ROWS * MIN_TILE_COLUMNS // SERIAL_MULTIPLICATIONS)  # of tiles that are added up
    depth = -(-len(matrix) // number)
    width = SERIAL_MULTIPLICATIONS // (TILE_ROWS * depth)
    for j in range(0, matrix.shape[1], width):
        columns = slice(j, j + width)
        length = 1 + int(np.flatnonzero(matrix[:, columns].any(axis=1)).max(initial=0))
        for i in range(0, length, depth):
            rows = slice(i, min(i + depth, length))
            tile = np.ascontiguousarray(matrix[rows, columns])
            if i == 0:
                np.matmul(pieces[:, :, rows], tile, out=sums[:, :, columns])
            else:
                sums[:, :, columns] += np.matmul(pieces[:, :, rows], tile)
            result[whole:, columns] += x[whole:, rows] @ tile
    return result


def sum_outer_products(x: np.ndarray) -> np.ndarray:
    """Return `x.T @ x` for many short rows, in small pieces like `multiply_rows`.

    Examples
    --------
    >>> sum_outer_products(np.array([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """
    runs, columns = x.shape
    rows = SUMMED_MULTIPLICATIONS // TILE_COLUMNS**2
    whole = runs // rows * rows
    pieces, rest = x[:whole].reshape(-1, rows, columns), x[whole:]
    result = np.empty((columns, columns))
    for i in range(0, columns, TILE_COLUMNS):
        left = slice(i, i + TILE_COLUMNS)
        for j in range(i, columns, TILE_COLUMNS):
            right = slice(j, j + TILE_COLUMNS)
            tile = np.matmul(pieces[:, :, left].transpose(0, 2, 1), pieces[:, :, right]).sum(0)
            tile += rest[:, left].T @ rest[:, right]
            result[left, right], result[right, left] = tile, tile.T
    return result


def fori_loop(xp: ModuleType, times: int | Array, step: Callable[[State], State], state: State) -> State:
    """Return the state after so many applications of `step`; under JAX the number may be traced."""
    if xp is np:
        for _ in range(int(times)):
            state = step(state)
        return state
    import jax

    return jax.lax.fori_loop(0, times, lambda _, current: step(current), state)


# Threads for large computations with NumPy, which releases Python's global lock.

MIN_NUMBERS = 1 << 18  # for fewer numbers, starting threads takes longer than it saves
MAX_THREADS = 8  # every thread needs memory for its own arrays
# Where Linux shows the quota of a container and its period, in microseconds: version 2 and version 1 of cgroups.
QUOTA_FILES = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)
COLUMNS_COPIED = 32  # columns that are copied to a transpose at the same time, by each thread


@functools.cache
def available_cores() -> int:
    """Return the number of processor cores that this process may use, at least 1.

    The system halts a Linux container that has used its processor time, so more threads than its quota are slower.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in QUOTA_FILES:  # one file, or one for the quota and one for the period
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # no such file, or the word "max"
            quota, period = " ".join(Path(file).read_text() for file in files).split()
            if int(quota) > 0:  # -1 means no quota
                cores = min(cores, max(1, math.ceil(int(quota) / int(period))))
    return cores


def map_parallel(function: Callable[[T], R], items: Sequence[T], numbers: int) -> list[R]:
    """Return the results of a function of each item, computed in one thread for each available core.

    Parameters
    ----------
    function : callable
        Must be safe to call from several threads. NumPy's error handling is the same in all of them.
    items : sequence
        The arguments of the function.
    numbers : int
        About how many numbers all calls read together. Few numbers are computed in this thread.

    Examples
    --------
    >>> map_parallel(abs, [-1, 2, -3], numbers=3)
    [1, 2, 3]
    """
    threads = min(available_cores(), MAX_THREADS, len(items))
    if threads < 2 or numbers < MIN_NUMBERS:
        return [function(item) for item in items]
    pool, is_interrupted = ThreadPoolExecutor(threads, "dpverify-parallel"), False
    try:
        try:
            futures = [pool.submit(contextvars.copy_context().run, function, item) for item in items]
        except RuntimeError:  # no thread can be started, for example while the interpreter ends
            return [function(item) for item in items]
        return [future.result() for future in futures]
    except Exception:
        raise
    except BaseException:  # an interruption or a time limit must not wait for the other threads
        is_interrupted = True
        raise
    finally:
        pool.shutdown(wait=not is_interrupted, cancel_futures=True)


def map_columns(function: Callable[..., R], table: np.ndarray, *others: Sequence[Any]) -> list[R]:
    """Return the results of a function of each column, contiguous, and of one item of each other sequence.

    Every thread copies few columns at a time, which needs little memory. A single column is not copied. Large tables
    are divided among threads.

    Examples
    --------
    >>> map_columns(lambda column, name: (name, column.tolist()), np.array([[1, 2], [3, 4]]), "ab")
    [('a', [1, 3]), ('b', [2, 4])]
    """

    def of_group(begin: int) -> list[R]:
        group = slice(begin, begin + COLUMNS_COPIED)
        columns = contiguous_transpose(table[:, group])
        return [function(*one) for one in zip(columns, *(other[group] for other in others), strict=True)]

    groups = map_parallel(of_group, range(0, table.shape[1], COLUMNS_COPIED), table.size)
    return [result for group in groups for result in group]


# Arrays that functions of the user may read and not change.


def read_only(value: T) -> T:
    """Return a read-only view of an array, and any other object as it is.

    Examples
    --------
    >>> read_only(np.zeros(2)).flags.writeable
    False
    """
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def call_read_only(function: Callable[[T], R], samples: T, argument: str) -> R:
    """Return the value of a function of the user for samples, which it must not change: they are used again.

    Parameters
    ----------
    function : callable
        A function of samples.
    samples : Array
        The samples.
    argument : str
        The argument that the function came from, for the message of an InputError.
    """
    try:
        return function(read_only(samples))
    except ValueError as problem:
        if "read-only" not in str(problem):
            raise
        raise InputError(
            f"{argument}: found a function that changes its argument ({one_line(problem)}); expected a function that "
            "only reads the outputs, because they are used again; change a copy, x = x.copy()"
        ) from problem
