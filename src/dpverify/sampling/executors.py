"""Who draws, and what: this process, other processes, or any `concurrent.futures.Executor` (threads, Dask, MPI).

The work of a stage is a plan of blocks; a task is a span of them that takes about a second.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
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
from typing import Any

from dpverify.errors import InputError
from dpverify.sampling.checkpoints import Checkpoint
from dpverify.util.intervals import merge_intervals

ASSUMED_WORKERS = 4  # workers that an executor is taken to have if it does not say
TASK_SECONDS = 1.0  # about so long is one task: short enough to lose, long enough to pay for its way
SERIAL_TASK_SECONDS = 0.25  # the same without an executor, where JAX draws ahead
SECONDS_BETWEEN_WORKER_COUNTS = 2.0  # seconds after which the workers are counted again


@dataclass(frozen=True)
class WorkerPool:
    """An executor (None: this process, block by block), and where finished blocks are kept."""

    executor: Executor | None = None
    store: Checkpoint = field(default_factory=Checkpoint)

    @property
    def number(self) -> int:
        """How many there are now: clusters grow and shrink."""
        if self.executor is None:
            return 1
        client = getattr(self.executor, "_client", None)  # Dask's executor
        if client is not None:
            return max(1, sum(client.nthreads().values()))
        known = (getattr(self.executor, name, None) for name in ("_max_workers", "num_workers"))  # ours; mpi4py's
        return next((int(number) for number in known if number), ASSUMED_WORKERS)


@contextlib.contextmanager
def open_pool(executor: int | Executor | None, store: Checkpoint | None = None) -> Iterator[WorkerPool]:
    """A number becomes that many spawned processes, ended at the end; an executor is used and left open."""
    store = store or Checkpoint()
    if executor is None or isinstance(executor, Executor):
        yield WorkerPool(executor, store)
    elif isinstance(executor, int) and not isinstance(executor, bool) and executor >= 1:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(executor, mp_context=spawn, initializer=_follow_parent) as pool:
            try:
                yield WorkerPool(pool, store)
            except BaseException:  # nobody waits for what is half drawn
                for process in list((getattr(pool, "_processes", None) or {}).values()):
                    process.terminate()
                raise
    else:
        raise InputError(
            f"executor: found {executor!r}; expected None, a number of processes, or a concurrent.futures.Executor"
        )


def _follow_parent() -> None:
    """A worker leaves the keyboard to its parent, and ends with it, even where the parent was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def check_picklable(work: Any, workers: WorkerPool) -> None:
    """Before work goes to another process: one line now instead of a broken pool later."""
    if workers.executor is None or isinstance(workers.executor, ThreadPoolExecutor):
        return
    if type(workers.executor).__module__.startswith("distributed"):
        return  # Dask brings cloudpickle, which takes lambdas and closures too
    try:
        pickle.dumps(work)
    except Exception as problem:
        raise InputError(
            f"the mechanism, its data, error or score can't be sent to another process ({problem}); expected what "
            "pickles; define it at the top of a module, or wrap what builds a mechanism: dpverify.factory(make)"
        ) from problem


BlockRanges = list[tuple[int, int]]  # blocks that are done: sorted, from .. to, apart from each other


def merge_ranges(spans: BlockRanges) -> BlockRanges:
    """Sorted, and those that touch made one."""
    return merge_intervals(spans)


class BlockQueue:
    """The blocks of a stage that are left to draw: both sides in turn, as many at once as asked for."""

    def __init__(self, blocks: int, done: dict[int, BlockRanges]):
        ends = [(blocks, blocks)]
        self._gaps = {
            side: [(a, b) for (_, a), (b, _) in zip([(0, 0), *spans], spans + ends, strict=True) if a < b][::-1]
            for side, spans in done.items()
        }
        self._turn = list(done)
        self.left = sum(b - a for gaps in self._gaps.values() for a, b in gaps)

    def take(self, number: int) -> tuple[int, int, int]:
        """(side, start, stop)."""
        side = self._turn.pop(0)
        while not self._gaps[side]:
            side = self._turn.pop(0)
        self._turn.append(side)
        start, end = self._gaps[side].pop()
        stop = min(end, start + number)
        if stop < end:
            self._gaps[side].append((stop, end))
        self.left -= stop - start
        return side, start, stop


def completed_ranges(
    plan: BlockQueue, task: Callable[..., Any], workers: WorkerPool, ahead: bool = False
) -> Iterator[tuple[tuple[int, int, int], Any]]:
    """Every span of the plan with what it came to, in the order they are finished; without an executor, block by block.

    What can be drawn ahead gets several blocks at once there too, so that JAX never waits for the host.
    """
    if workers.executor is None:
        batch = 1
        while plan.left:
            span = plan.take(batch)
            seconds, arrays = task(*span)
            batch = _next_batch(span, seconds, SERIAL_TASK_SECONDS) if ahead else 1
            yield span, arrays
        return
    pending: dict[Future[Any], tuple[int, int, int]] = {}
    number, counted, batch = workers.number, time.monotonic(), 1
    try:
        while plan.left or pending:
            while plan.left and len(pending) < 2 * number:
                span = plan.take(min(batch, max(1, plan.left // (2 * number))))  # all have work until the end
                pending[_submit(workers.executor, task, *span)] = span
            ready, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in sorted(ready, key=_failed):  # what went well is kept before a failure is raised
                span = pending.pop(future)
                seconds, arrays = _result(future)
                batch = _next_batch(span, seconds, TASK_SECONDS)
                yield span, arrays
            if time.monotonic() - counted > SECONDS_BETWEEN_WORKER_COUNTS:
                number, counted = workers.number, time.monotonic()
    finally:
        for future in pending:
            future.cancel()


def _next_batch(span: tuple[int, int, int], seconds: float, wanted: float) -> int:
    """How many blocks the next task takes, from how long one took; at most doubling, since a first one compiles."""
    _, start, stop = span
    return max(1, min(2 * (stop - start), round((stop - start) * wanted / max(seconds, 1e-6))))


def _submit(executor: Executor, function: Any, *arguments: Any) -> Future[Any]:
    try:
        return executor.submit(function, *arguments)
    except RuntimeError as problem:  # shut down, or broken
        raise BrokenExecutor(str(problem)) from problem


def _result(future: Future[Any]) -> Any:
    """What a task came to; BrokenExecutor where it was lost on the way, and not by the fault of the task."""
    try:
        return future.result()
    except (CancelledError, OSError) as problem:
        raise BrokenExecutor(str(problem) or type(problem).__name__) from problem
    except Exception as problem:
        if type(problem).__module__.split(".")[0] == "distributed":
            raise BrokenExecutor(" ".join(str(problem).split()) or type(problem).__name__) from problem
        raise


def _failed(future: Future[Any]) -> bool:
    return future.cancelled() or future.exception() is not None
