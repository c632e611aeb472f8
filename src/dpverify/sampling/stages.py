"""Stages: all blocks of the pilot, training, proposal, decision or test runs, drawn and accumulated.

A stage reads the blocks that its checkpoint already contains, draws the others with the workers of the pool, and saves
the sums from time to time and at its end, also after an error or an interruption.

In this process a second thread can count one block while the mechanism draws the next. NumPy computes without Python's
global lock, so that two cores share the work. The mechanism is always called in the thread that called `verify`. Only
code of dpverify runs in the second thread, on a copy of the samples.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import FolderError, InputError
from dpverify.mechanisms.outputs import all_finite
from dpverify.mechanisms.protocol import is_seeded
from dpverify.sampling.blocks import (
    STAGE_WORDS,
    SampleSource,
    call_mechanism,
    copy_runs,
    draw_block,
    mechanism_error,
    validate_block,
)
from dpverify.sampling.checkpoint import Record
from dpverify.sampling.count import Accumulator, KeptSamples, Statistics
from dpverify.sampling.executors import (
    BlockQueue,
    BlockTask,
    WorkerPool,
    check_picklable,
    completed_tasks,
    next_batch_size,
)
from dpverify.util.arrays import Array, is_jax, retain_freed_memory
from dpverify.util.hashing import fingerprint
from dpverify.util.parallel import available_cores
from dpverify.util.progress import Progress

SERIAL_TASK_SECONDS = 0.5  # target duration of a task in this process
MAX_COPIED_RUNS = 1 << 20  # a stage with at most so many runs per data set is counted on the host
# The second thread saves at most the shorter one of drawing and counting. Handing over a block takes time too.
MIN_SAVED_SECONDS = 3e-4  # per block
MIN_SAVED_SHARE = 0.15  # of the time of a block
MAX_RELATIVE_SECONDS = 1.3  # the second thread is given up if a block takes so many times as long as without it
CONCURRENT_BLOCKS = 4  # per data set, that two threads draw at the same time
CONCURRENT_SECONDS = 0.3  # fast mechanisms draw these blocks repeatedly for so long, because their calls rarely meet
MAX_CONCURRENT_SECONDS = 3.0  # a mechanism that mostly waits uses little processor time and ends here

BlockKeys = Collection[tuple[int, int]]  # blocks, as (side, block)


class StageResult(NamedTuple):
    """The merged results of a stage.

    Attributes
    ----------
    parts : tuple
        For each data set the merged result of each statistic.
    error : tuple or None
        For each data set the mean error and its standard error; None without an error function.
    """

    parts: tuple[tuple[Any, ...], tuple[Any, ...]]
    error: tuple[tuple[float, float], tuple[float, float]] | None

    @classmethod
    def of(cls, statistics: Statistics, sums: Sequence[Accumulator], runs: int) -> StageResult:
        """Return the results of the two data sets, with so many runs each."""
        first, second = (one.results() for one in sums)
        if statistics.error is None:
            return cls((first, second), None)
        return cls((first[:-1], second[:-1]), (first[-1].mean(runs), second[-1].mean(runs)))


@dataclass
class BlockSums:
    """One accumulator per data set, and the blocks that they contain.

    Attributes
    ----------
    accumulators : dict
        The accumulator of each data set, by side (0 or 1).
    done : dict
        The blocks that each accumulator contains, by side.
    is_consistent : bool
        False while a block is being added. It stays False after an interruption at that moment; the sums are then
        unusable.
    """

    accumulators: dict[int, Accumulator]
    done: dict[int, set[int]] = field(default_factory=dict)
    is_consistent: bool = True

    @classmethod
    def empty(cls, sides: Collection[int], statistics: Statistics) -> BlockSums:
        return cls({side: Accumulator(statistics) for side in sides}, {side: set() for side in sides})

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Mark the sums as inconsistent until they have changed."""
        was_consistent, self.is_consistent = self.is_consistent, False
        yield
        self.is_consistent = was_consistent

    def add(self, side: int, block: int, samples: Array, runs: int | None = None) -> None:
        """Add the samples of one block, or the first `runs` of them."""
        with self.changing():
            self.accumulators[side].add(block, samples, runs)
            self.done[side].add(block)

    def finish(self) -> None:
        """Wait for computations on a device. If this is interrupted, some results may have been added, others not."""
        with self.changing():
            for accumulator in self.accumulators.values():
                accumulator.finish()

    def merge(self, other: BlockSums) -> None:
        """Add the blocks of other sums, which must hold other blocks."""
        with self.changing():
            for side, accumulator in other.accumulators.items():
                self.accumulators[side].merge(accumulator)
                self.done[side] |= other.done[side]

    def runs(self, block_size: int, most: int) -> int:
        """Return the number of runs in the blocks; the last block of a stage may be incomplete."""
        surplus = -most % block_size
        last = (most - 1) // block_size
        return sum(len(done) * block_size - surplus * (last in done) for done in self.done.values())

    def to_record(self, content: str) -> Record:
        """Return everything as plain data and arrays: the form for a checkpoint."""
        parts = [accumulator.to_arrays() for accumulator in self.accumulators.values()]
        done = {side: len(own) for side, own in self.done.items()}  # for people
        head = {"content": content, "arrays": list(map(len, parts)), "done": done}
        blocks = [_bits(self.done[side]) for side in self.accumulators]
        return Record(head, [*blocks, *(array for part in parts for array in part)])

    def merge_record(self, record: Record) -> None:
        """Add the blocks of other sums, given as a record."""
        with self.changing():
            arrays = list(record.arrays)
            for side in self.accumulators:
                self.done[side] |= set(np.flatnonzero(np.unpackbits(arrays.pop(0))).tolist())
            for accumulator, number in zip(self.accumulators.values(), record.head["arrays"], strict=True):
                accumulator.merge_arrays(arrays[:number])
                del arrays[:number]


def _bits(blocks: set[int]) -> np.ndarray:
    """Return a set of blocks as bits, so that a file hardly grows with the number of blocks."""
    table = np.zeros(max(blocks, default=-1) + 1, bool)
    table[list(blocks)] = True
    return np.packbits(table)


class BackgroundCounter:
    """Adds blocks to sums, in a second thread if this saves time.

    The first blocks are added in this thread and timed. A block in the second thread has been added when `wait`
    returns; until then its sums are not consistent.
    """

    def __init__(self, pool: ThreadPoolExecutor | None = None):
        self._pool = pool
        self._pending: tuple[BlockSums, int, int, Future[None]] | None = None
        self._is_overlapping = False
        self._counting_seconds = 0.0  # of the blocks since the last call of `choose`, in this thread
        self._seconds_alone = np.inf  # of one block that is drawn and then counted
        self._overlapping_blocks, self._overlapping_seconds = 0, 0.0

    def add(self, sums: BlockSums, side: int, block: int, samples: Array, runs: int | None = None) -> None:
        """Add the samples of one block, or start to add them."""
        self.wait()  # a mechanism may return arrays of NumPy and of JAX in turn
        if self._pool is not None and self._is_overlapping and isinstance(samples, np.ndarray):
            # The samples are copied, because a mechanism may use its array again. The order of the numbers in memory
            # stays, because it determines the rounding of sums. The context has NumPy's error handling.
            run, copied = contextvars.copy_context().run, samples.copy(order="K")
            sums.is_consistent = False
            try:
                added = self._pool.submit(run, sums.accumulators[side].add, block, copied)
            except RuntimeError:
                # No thread can be started. The pool may keep the block, but it has no thread and is not used again.
                self._pool, sums.is_consistent = None, True
            else:
                self._pending = sums, side, block, added
                return
        start = time.perf_counter()
        sums.add(side, block, samples, runs)
        self._counting_seconds += time.perf_counter() - start

    def wait(self) -> None:
        """Wait until all blocks have been added; raise the exception of the second thread, if there was one."""
        if self._pending is not None:
            (sums, side, block, added), self._pending = self._pending, None  # interrupted, the sums stay inconsistent
            added.result()
            sums.done[side].add(block)
            sums.is_consistent = True

    def choose(self, blocks: int, seconds: float) -> None:
        """Decide for the next blocks whether the second thread is used, given the duration of the last blocks.

        A mechanism that holds Python's global lock slows the second thread down. The thread is then given up for this
        stage.
        """
        if self._is_overlapping:
            self._overlapping_blocks += blocks
            self._overlapping_seconds += seconds
            if self._overlapping_seconds > MAX_RELATIVE_SECONDS * self._seconds_alone * self._overlapping_blocks:
                self._pool = None
            return
        counting, self._counting_seconds = self._counting_seconds, 0.0
        self._seconds_alone = seconds / blocks
        saved = min(counting, seconds - counting)
        self._is_overlapping = saved > max(blocks * MIN_SAVED_SECONDS, MIN_SAVED_SHARE * seconds)


@contextlib.contextmanager
def background_counter(is_allowed: bool) -> Iterator[BackgroundCounter]:
    """Provide a counter for the blocks of a stage; its thread ends with the context."""
    if not is_allowed or available_cores() < 2:
        yield BackgroundCounter()
        return
    with ThreadPoolExecutor(1, "dpverify-counting") as pool:
        yield BackgroundCounter(pool)


def draw_blocks(
    source: SampleSource,
    stage: str,
    runs: int,
    sums: BlockSums,
    blocks: Sequence[tuple[int, int]],
    counter: BackgroundCounter,
) -> None:
    """Draw blocks, in this order, and add them to `sums`; the last block is cut to `runs` runs in total.

    After an exception `sums` contains the blocks before it, or is not consistent.
    """
    retain_freed_memory()
    finite_flags: list[Array] = []  # of blocks on a device
    try:
        output: object = call_mechanism(source, stage, *blocks[0])
        for (side, block), following in zip(blocks, [*blocks[1:], None], strict=True):
            # JAX computes the next block while this one is counted. Other libraries might reuse the output buffer.
            ahead = following is not None and type(output) is not np.ndarray and is_jax(output)
            next_output = call_mechanism(source, stage, *following) if following is not None and ahead else None
            samples = validate_block(source, stage, side, block, output, check_finite_later=True)
            if source.nonfinite == "error" and type(samples) is not np.ndarray:
                finite_flags.append(all_finite(samples))
            runs_left = runs - block * source.block
            if type(samples) is np.ndarray or runs <= MAX_COPIED_RUNS:
                # Few runs are copied faster than the programs that count them on a device are compiled.
                counter.add(sums, side, block, copy_runs(samples, runs_left))
            else:  # the samples are not cut, because each shape would compile a program of its own
                counter.add(sums, side, block, samples, min(runs_left, source.block))
            if following is not None:
                output = next_output if ahead else call_mechanism(source, stage, *following)
        counter.wait()
        sums.finish()
    except BaseException:
        with contextlib.suppress(Exception):
            counter.wait()
        was_consistent, sums.is_consistent = sums.is_consistent, False
        with contextlib.suppress(Exception):  # a second failure must not hide the first
            sums.finish()
            sums.is_consistent = was_consistent and all(finite_flags)
        raise
    for (side, block), finite in zip(blocks, map(bool, finite_flags), strict=False):
        if not finite:
            sums.is_consistent = False
            draw_block(source, stage, side, block)  # raises an error that counts the runs that are not finite
            problem = InputError("found NaN or infinity; expected finite outputs; fix the mechanism")
            raise mechanism_error(source, stage, side, block, problem)


def collect_samples(
    source: SampleSource,
    stage: str,
    runs: int,
    pool: WorkerPool,
    progress: Progress,
    sides: tuple[int, ...] = (0, 1),
    drawn: Mapping[tuple[int, int], np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Return the samples of each data set, in the order of their blocks; `drawn` blocks are not drawn again.

    The samples of the second data set follow those of the first one in memory, so that they can be joined without a
    copy (`join_rows`).
    """
    statistics = Statistics((KeptSamples(),))
    kept = [
        one.results()[0]
        for one in accumulate_stage(source, stage, runs, statistics, pool, progress, sides, drawn=drawn)
    ]
    # `parts` alone keeps the blocks, and is emptied.
    parts = [blocks.pop(block) for blocks in kept for block in sorted(blocks)]
    return np.split(join_and_release(parts), runs * np.arange(1, len(sides)))


def join_and_release(parts: list[np.ndarray]) -> np.ndarray:
    """Return the rows of all parts one after the other, and empty the list.

    Each part is released when it is copied, so that hardly more memory is needed than for the result.

    Examples
    --------
    >>> parts = [np.array([1.0, 2.0]), np.array([3.0])]
    >>> join_and_release(parts).tolist(), parts
    ([1.0, 2.0, 3.0], [])
    """
    end = sum(map(len, parts))
    joined = np.empty((end, *parts[0].shape[1:]), np.result_type(*parts))
    while parts:
        part = parts.pop()
        joined[end - len(part) : end] = part
        end -= len(part)
    return joined


def collect_statistics(
    source: SampleSource,
    stage: str,
    runs: int,
    statistics: Statistics,
    pool: WorkerPool,
    progress: Progress,
    excluded: BlockKeys = (),
) -> StageResult:
    """Return the statistics of a stage over all blocks except the `excluded` ones."""
    sums = accumulate_stage(source, stage, runs, statistics, pool, progress, excluded=excluded)
    return StageResult.of(statistics, sums, runs)


def accumulate_stage(
    source: SampleSource,
    stage: str,
    runs: int,
    statistics: Statistics,
    pool: WorkerPool,
    progress: Progress,
    sides: tuple[int, ...] = (0, 1),
    excluded: BlockKeys = (),
    drawn: Mapping[tuple[int, int], np.ndarray] | None = None,
) -> list[Accumulator]:
    """Return one accumulator per data set over the blocks of a stage.

    Parameters
    ----------
    source : SampleSource
        Draws the blocks.
    stage : str
        One of `STAGES`.
    runs : int
        The number of runs per data set; the surplus of the last block is dropped.
    statistics : Statistics
        What is computed from every block.
    pool : WorkerPool
        The workers, and the checkpoint.
    progress : Progress
        Receives the number of finished runs.
    sides : tuple of int
        The data sets that are sampled.
    excluded : collection
        Blocks that are left out, as (side, block).
    drawn : mapping, optional
        Samples of blocks that have been drawn already. They are added first, unless a checkpoint exists.

    Returns
    -------
    list
        The accumulators, in the order of `sides`.
    """
    checkpoint = pool.checkpoint
    name = checkpoint.step(stage)
    content = fingerprint((runs, sides, statistics), sources=False) if checkpoint.folder is not None else ""
    sums = BlockSums.empty(sides, statistics)
    for side, block in excluded:
        sums.done[side].add(block)
    excluded_runs = sums.runs(source.block, runs)
    record = checkpoint.read(name)
    if record is not None:
        restore_sums(sums, record, content, f"{checkpoint.folder}: {name}")
    else:
        for (side, block), samples in (drawn or {}).items():
            if side in sides and block * source.block < runs:
                sums.add(side, block, samples[: runs - block * source.block])

    progress.stage(STAGE_WORDS[stage])
    finished_runs = sums.runs(source.block, runs) - excluded_runs
    (progress.include if record is None else progress.skip)(finished_runs)
    queue = BlockQueue(-(-runs // source.block), sums.done)
    is_saved = record is not None
    if queue.left:
        progress.begin_drawing()
    try:
        for task_sums in _completed_sums(queue, source, stage, runs, statistics, pool):
            is_saved = False
            sums.merge(task_sums)
            progress.advance(task_sums.runs(source.block, runs))
            if checkpoint.due:
                checkpoint.write(name, sums.to_record(content))
                is_saved = True
    finally:
        if checkpoint.folder is not None and sums.is_consistent and not is_saved:
            checkpoint.write(name, sums.to_record(content))
    return list(sums.accumulators.values())


def restore_sums(sums: BlockSums, record: Record, content: str, where: str) -> None:
    """Add the blocks of a checkpoint, after checking that it contains the same statistics of the same runs."""
    if record.head.get("content") != content:
        raise FolderError(
            f"{where}: found counts of other cells; expected the cells of this run; "
            "resume with the versions and the kind of machine that the run was started with, or use another folder"
        )
    try:
        sums.merge_record(record)
    except MemoryError:
        raise
    except Exception as problem:  # the checksum is right, but the content is not what this version writes
        raise FolderError(
            f"{where}: damaged ({type(problem).__name__}); remove this file; its runs are drawn again"
        ) from None


def _completed_sums(
    queue: BlockQueue, source: SampleSource, stage: str, runs: int, statistics: Statistics, pool: WorkerPool
) -> Iterator[BlockSums]:
    """Yield the sums of each task of a stage, as they are completed."""
    if pool.executor is None:
        yield from _sums_of_this_process(queue, source, stage, runs, statistics)
    elif pool.shares_memory:
        for _, sums in completed_tasks(queue, partial(_draw_sums, source, stage, runs, statistics), pool):
            yield sums
    else:
        task = partial(_draw_arrays, source, stage, runs, statistics)
        check_picklable(task, pool)
        for (side, blocks), arrays in completed_tasks(queue, task, pool):
            sums = BlockSums.empty((side,), statistics)
            sums.accumulators[side].merge_arrays(arrays)
            sums.done[side].update(blocks)
            yield sums


def _sums_of_this_process(
    queue: BlockQueue, source: SampleSource, stage: str, runs: int, statistics: Statistics
) -> Iterator[BlockSums]:
    """Draw in this process, both data sets in turn; after an exception, yield the blocks before it first."""
    batch = 1
    with background_counter(statistics.is_plain) as counter:
        while queue.left:
            tasks = [queue.take(1) for _ in range(min(batch, queue.left))]
            blocks = [(task.side, block) for task in tasks for block in task.blocks]
            sums = BlockSums.empty(sorted({task.side for task in tasks}), statistics)
            start = time.perf_counter()
            try:
                draw_blocks(source, stage, runs, sums, blocks, counter)
            except BaseException:
                if sums.is_consistent:
                    yield sums
                raise
            seconds = time.perf_counter() - start
            counter.choose(len(blocks), seconds)
            batch = next_batch_size(len(blocks), seconds, SERIAL_TASK_SECONDS)
            yield sums


def _draw_sums(source: SampleSource, stage: str, runs: int, statistics: Statistics, task: BlockTask) -> BlockSums:
    """Draw some blocks: the task of a thread."""
    sums = BlockSums.empty((task.side,), statistics)
    draw_blocks(source, stage, runs, sums, [(task.side, block) for block in task.blocks], BackgroundCounter())
    return sums


def _draw_arrays(
    source: SampleSource, stage: str, runs: int, statistics: Statistics, task: BlockTask
) -> list[np.ndarray]:
    """Draw some blocks: the task of another process."""
    return _draw_sums(source, stage, runs, statistics, task).accumulators[task.side].to_arrays()


def threads_agree(source: SampleSource, pool: WorkerPool) -> bool:
    """Return False if threads disturb each other; True for other executors and for mechanisms without seeds.

    A mechanism that stores something on itself while it computes may give other runs when another thread calls it at
    the same time, for example those of the other data set. A few blocks are drawn by two threads at once. They must
    equal the same blocks drawn alone.
    """
    if pool.executor is None or not pool.shares_memory or pool.number < 2 or not is_seeded(source.mechanism):
        return True
    alone = [[np.array(draw_block(source, "test", side, b)) for b in range(CONCURRENT_BLOCKS)] for side in (0, 1)]

    def repeats(side: int) -> bool:
        # On a busy machine two threads meet rarely per second, but as often per second of processor time.
        start, cpu_start = time.monotonic(), time.process_time()
        while True:
            for block, runs in enumerate(alone[side]):
                if not np.array_equal(draw_block(source, "test", side, block), runs, equal_nan=True):
                    return False
            seconds = time.monotonic() - start
            if seconds >= MAX_CONCURRENT_SECONDS or min(seconds, time.process_time() - cpu_start) >= CONCURRENT_SECONDS:
                return True

    futures = [pool.executor.submit(repeats, side) for side in (0, 1)]
    return all([future.result() for future in futures])
