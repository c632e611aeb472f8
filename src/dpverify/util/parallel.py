"""Threads for large computations with NumPy, which releases Python's global lock."""

from __future__ import annotations

import contextvars
import functools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dpverify.util.arrays import contiguous_transpose

T = TypeVar("T")
R = TypeVar("R")

MIN_NUMBERS = 1 << 18  # for fewer numbers, starting threads takes longer than it saves
MAX_THREADS = 8  # every thread needs memory for its own arrays
UNLIMITED_CORES = 1 << 30
# Where Linux shows the quota of a container and its period, in microseconds: version 2 and version 1 of cgroups.
QUOTA_FILES = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)
COLUMNS_COPIED = 32  # columns that are copied to a transpose at the same time, by each thread


def available_cores() -> int:
    """Return the number of processor cores that this process may use, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, container_cores())


@functools.cache
def container_cores() -> int:
    """Return how many cores the quota of a Linux container allows; a large number without a quota.

    The system halts a container that has used its processor time, so more threads than this are slower.

    Examples
    --------
    >>> container_cores() >= 1
    True
    """
    cores = UNLIMITED_CORES
    for files in QUOTA_FILES:  # one file, or one for the quota and one for the period
        try:
            quota, period = " ".join(Path(file).read_text() for file in files).split()
            if int(quota) > 0:  # -1 means no quota
                cores = min(cores, max(1, math.ceil(int(quota) / int(period))))
        except (OSError, ValueError, ZeroDivisionError):  # no such file, or the word "max"
            continue
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
