"""Executors: other processes, threads, or any `concurrent.futures.Executor` (Dask, MPI) draw blocks.

A task is a few blocks. It takes about one second, measured on the tasks before it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

from dpverify.errors import DPVerifyWarning, InputError
from dpverify.sampling.checkpoint import Checkpoint

ASSUMED_WORKERS = 4  # if an executor does not state how many workers it has
TASK_SECONDS = 1.0  # target duration: short, because an interruption loses it; long compared with its transport
SECONDS_BETWEEN_WORKER_COUNTS = 2.0  # workers of a cluster are counted again after this time
SECONDS_WITHOUT_WORKERS = 60.0  # a cluster without a worker for so long ends the run; a new worker starts in less

R = TypeVar("R")
BlockKey = tuple[int, int]  # a block, as (side, block); the first dataset is side 0


@dataclass(frozen=True)
class WorkerPool:
    """Where blocks are drawn and where finished blocks are stored.

    Attributes
    ----------
    executor : concurrent.futures.Executor or None
        Draws the blocks; None for this process.
    checkpoint : Checkpoint
        Stores the finished blocks.
    """

    executor: Executor | None = None
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    @property
    def shares_memory(self) -> bool:
        """Whether blocks are drawn in this process, so that nothing needs to be pickled."""
        return self.executor is None or isinstance(self.executor, ThreadPoolExecutor)

    @property
    def number(self) -> int:
        """The current number of workers; it may change while a cluster grows or shrinks, and may be 0."""
        if self.executor is None:
            return 1
        client = getattr(self.executor, "_client", None)  # of Dask
        if client is not None:
            try:
                return sum(client.nthreads().values())
            except Exception:  # without its scheduler the client raises what it likes
                return 0
        for attribute in ("_max_workers", "num_workers"):  # of the standard library, and of mpi4py
            number = getattr(self.executor, attribute, None)
            if number:
                return int(number)
        return ASSUMED_WORKERS


@contextlib.contextmanager
def open_pool(executor: int | Executor | None, checkpoint: Checkpoint | None = None) -> Iterator[WorkerPool]:
    """Open a pool: a number starts that many processes and ends them afterwards; an executor is used and left open."""
    checkpoint = checkpoint or Checkpoint()
    if executor is None or isinstance(executor, Executor):
        yield WorkerPool(executor, checkpoint)
    elif isinstance(executor, int) and not isinstance(executor, bool) and executor >= 1:
        if multiprocessing.current_process().daemon:
            raise InputError(
                f"executor: found {executor} in a daemonic process, which cannot start processes; expected None here"
            )
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(executor, mp_context=spawn, initializer=end_with_parent) as pool:
            try:
                yield WorkerPool(pool, checkpoint)
            except BaseException:  # the results of unfinished tasks are not needed
                for process in list((getattr(pool, "_processes", None) or {}).values()):
                    process.kill()  # a mechanism may ignore a softer signal
                raise
    else:
        raise InputError(
            f"executor: found {executor!r}; expected None, a number of processes, or a concurrent.futures.Executor"
        )


@contextlib.contextmanager
def all_devices(pool: WorkerPool, device: str) -> Iterator[WorkerPool]:
    """Use all local devices of one kind: one thread draws blocks on each of them, and their counts are added.

    A pool with an executor stays as it is. So does the pool of a mechanism without JAX, and of a process in which the
    user has selected one device (`jax_default_device`).

    Parameters
    ----------
    pool : WorkerPool
        The workers that the user has selected.
    device : str
        Where the first block was computed, for example "gpu:0"; "cpu" if it was not computed by JAX.
    """
    devices = _free_devices(device) if pool.executor is None and ":" in device else []
    if len(devices) < 2:
        yield pool
        return
    import jax

    unused: SimpleQueue[Any] = SimpleQueue()
    for one in devices:
        unused.put(one)
    contexts = []  # they are never left: the setting belongs to the thread, and ends with it

    def use_one_device() -> None:
        contexts.append(jax.default_device(unused.get()))
        contexts[-1].__enter__()

    with ThreadPoolExecutor(len(devices), initializer=use_one_device) as executor:
        yield WorkerPool(executor, pool.checkpoint)


def _free_devices(device: str) -> list[Any]:
    """Return the local devices of the same kind; none if the user has selected one."""
    import jax

    if jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        return []
    return jax.local_devices(backend=device.split(":")[0])


def end_with_parent() -> None:
    """Prepare a worker process: it ignores Ctrl-C, which its parent handles, and it ends when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def wait_for_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()


def check_picklable(work: object, pool: WorkerPool) -> None:
    """Raise an InputError if the work cannot be sent to the workers of the pool."""
    if pool.shares_memory or type(pool.executor).__module__.startswith("distributed"):
        return  # Dask uses cloudpickle, which also accepts lambdas and closures
    try:
        pickle.dumps(work)
    except Exception as problem:
        raise InputError(
            f"the mechanism, its data, error or score cannot be sent to another process ({problem}); expected objects "
            "that can be pickled; define them at the top level of a module, or wrap a function that makes the "
            "mechanism: dpverify.factory(make)"
        ) from problem


def completed_tasks(
    blocks: Sequence[BlockKey], work: Callable[[Sequence[BlockKey]], R], pool: WorkerPool
) -> Iterator[tuple[Sequence[BlockKey], R]]:
    """Yield the blocks of every task with its result, in the order of completion."""
    assert pool.executor is not None
    left, pending = list(blocks), dict[Future[tuple[float, R]], Sequence[BlockKey]]()
    workers, counted, size = pool.number, time.monotonic(), 1
    without_since: float | None = None
    try:
        while left or pending:
            most = 2 * max(workers, 1)
            while left and len(pending) < most:
                # Tasks become shorter towards the end, so that all workers are busy until then.
                number = min(size, max(1, len(left) // most))
                task, left = left[:number], left[number:]
                pending[_submit(pool.executor, work, task)] = task
            ready, _ = wait(pending, SECONDS_BETWEEN_WORKER_COUNTS, FIRST_COMPLETED)
            for future in sorted(ready, key=_has_failed):  # results are used before a failure is raised
                task = pending.pop(future)
                seconds, result = _result(future)
                size = next_task_size(len(task), seconds, TASK_SECONDS)
                yield task, result
            if time.monotonic() - counted > SECONDS_BETWEEN_WORKER_COUNTS:
                workers, counted = pool.number, time.monotonic()
                without_since = None if workers else _note_missing_workers(without_since)
    finally:
        for future in pending:
            future.cancel()


def _note_missing_workers(since: float | None) -> float:
    """Warn that a cluster has no worker, once, and end the run if this lasts; return when it was noticed."""
    if since is None:
        warnings.warn(
            f"no worker is connected to the scheduler; start one; the run ends after {SECONDS_WITHOUT_WORKERS:g} s "
            "without a worker",
            DPVerifyWarning,
            stacklevel=2,
        )
        return time.monotonic()
    if time.monotonic() - since > SECONDS_WITHOUT_WORKERS:
        raise BrokenExecutor(f"no worker was connected to the scheduler for {SECONDS_WITHOUT_WORKERS:g} s")
    return since


def next_task_size(blocks: int, seconds: float, target_seconds: float) -> int:
    """Return the number of blocks of the next task, given the duration of the last one.

    The number at most doubles, because the first task includes compilation and imports.
    """
    return max(1, min(2 * blocks, round(blocks * target_seconds / max(seconds, 1e-6))))


def _timed(work: Callable[[Sequence[BlockKey]], R], task: Sequence[BlockKey]) -> tuple[float, R]:
    """Do a task in a worker; return its duration in seconds and its result."""
    start = time.perf_counter()
    result = work(task)
    return time.perf_counter() - start, result


def _submit(
    executor: Executor, work: Callable[[Sequence[BlockKey]], R], task: Sequence[BlockKey]
) -> Future[tuple[float, R]]:
    try:
        return executor.submit(_timed, work, task)
    except RuntimeError as problem:  # the executor was shut down, or is broken
        raise BrokenExecutor(str(problem)) from problem


def _result(future: Future[R]) -> R:
    """Return the result of a task; raise BrokenExecutor if the task was lost without a failure of its own."""
    try:
        return future.result()
    except (CancelledError, OSError) as problem:
        raise BrokenExecutor(str(problem) or type(problem).__name__) from problem
    except Exception as problem:
        if type(problem).__module__.split(".")[0] == "distributed":
            raise BrokenExecutor(" ".join(str(problem).split()) or type(problem).__name__) from problem
        raise


def _has_failed(future: Future[R]) -> bool:
    return future.cancelled() or future.exception() is not None
