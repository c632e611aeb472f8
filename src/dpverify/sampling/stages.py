"""Stages: all blocks of the pilot, training, proposal, decision or test runs, drawn and accumulated.

A stage reads the blocks that its checkpoint already contains, draws the others with the workers of the pool, and saves
the sums from time to time and at its end, also after an error or an interruption.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import FolderError
from dpverify.sampling.accumulators import CountAccumulator, SampleBuffer
from dpverify.sampling.background import background_counter
from dpverify.sampling.block_sums import A, BlockSums
from dpverify.sampling.blocks import STAGE_WORDS, SampleSource, draw_ranges
from dpverify.sampling.checkpoints import Record
from dpverify.sampling.counts import Statistics
from dpverify.sampling.executors import WorkerPool, check_picklable, completed_tasks, next_batch_size
from dpverify.sampling.ranges import BlockQueue, BlockRange
from dpverify.util.hashing import fingerprint
from dpverify.util.intervals import merge_intervals
from dpverify.util.joined_rows import join_and_release
from dpverify.util.progress import Progress

SERIAL_TASK_SECONDS = 0.5  # target duration of a task in this process

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
    buffers = accumulate_stage(source, stage, runs, SampleBuffer, pool, progress, sides, drawn=drawn)
    blocks = [buffer.blocks() for buffer in buffers]
    lengths = [sum(map(len, own)) for own in blocks]
    parts = [block for own in blocks for block in own]
    del buffers, blocks  # `parts` alone keeps the blocks, and is emptied
    return np.split(join_and_release(parts), np.cumsum(lengths)[:-1])


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
    make = partial(CountAccumulator, statistics)
    first, second = accumulate_stage(source, stage, runs, make, pool, progress, excluded=excluded)
    error = None if statistics.error is None else (first.error(runs), second.error(runs))
    return StageResult((first.results(), second.results()), error)


def accumulate_stage(
    source: SampleSource,
    stage: str,
    runs: int,
    make: Callable[[], A],
    pool: WorkerPool,
    progress: Progress,
    sides: tuple[int, ...] = (0, 1),
    excluded: BlockKeys = (),
    drawn: Mapping[tuple[int, int], np.ndarray] | None = None,
) -> list[A]:
    """Return one accumulator per data set over the blocks of a stage.

    Parameters
    ----------
    source : SampleSource
        Draws the blocks.
    stage : str
        One of `STAGES`.
    runs : int
        The number of runs per data set; the surplus of the last block is dropped.
    make : callable
        Makes an empty accumulator.
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
    content = fingerprint((runs, sides, make), sources=False) if checkpoint.folder is not None else ""
    sums = BlockSums.empty(sides, make)
    for side in sides:
        sums.done[side] = merge_intervals(
            (block, block + 1) for excluded_side, block in excluded if excluded_side == side
        )
    excluded_runs = _count_runs(sums, source.block, runs)
    record = checkpoint.read(name)
    if record is not None:
        _restore(sums, record, content, f"{checkpoint.folder}: {name}")
    else:
        for (side, block), samples in (drawn or {}).items():
            if side in sides and block * source.block < runs:
                sums.add(side, block, samples[: runs - block * source.block])
    sums.done = {side: merge_intervals(ranges) for side, ranges in sums.done.items()}

    progress.stage(STAGE_WORDS[stage])
    finished_runs = _count_runs(sums, source.block, runs) - excluded_runs
    if record is not None:
        progress.skip(finished_runs)
    else:
        progress.include(finished_runs)
    queue = BlockQueue(-(-runs // source.block), sums.done)
    is_saved = record is not None
    if queue.left:
        progress.begin_drawing()

    def save() -> None:
        record = sums.to_record()
        checkpoint.write(name, Record({"content": content, **record.head}, record.arrays))

    try:
        for task_sums in _completed_sums(queue, source, stage, runs, make, pool):
            is_saved = False
            sums.merge(task_sums)
            progress.advance(_count_runs(task_sums, source.block, runs))
            if checkpoint.due:
                save()
                is_saved = True
    finally:
        if checkpoint.folder is not None and sums.is_consistent and not is_saved:
            save()
    return list(sums.accumulators.values())


def _count_runs(sums: BlockSums[A], block_size: int, runs: int) -> int:
    """Return the number of runs in the blocks that are done; the last block of a stage may be incomplete."""
    ranges = (block_range for side_ranges in sums.done.values() for block_range in side_ranges)
    return sum(min(stop * block_size, runs) - start * block_size for start, stop in ranges)


def _restore(sums: BlockSums[A], record: Record, content: str, where: str) -> None:
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
    queue: BlockQueue, source: SampleSource, stage: str, runs: int, make: Callable[[], A], pool: WorkerPool
) -> Iterator[BlockSums[A]]:
    """Yield the sums of each task of a stage, as they are completed."""
    if pool.executor is None:
        yield from _sums_of_this_process(queue, source, stage, runs, make)
    elif pool.shares_memory:
        for _, sums in completed_tasks(queue, partial(_draw_sums, source, stage, runs, make), pool):
            yield sums
    else:
        task = partial(_draw_record, source, stage, runs, make)
        check_picklable(task, pool)
        for block_range, record in completed_tasks(queue, task, pool):
            sums = BlockSums.empty((block_range.side,), make)
            sums.merge_record(record)
            yield sums


def _sums_of_this_process(
    queue: BlockQueue, source: SampleSource, stage: str, runs: int, make: Callable[[], A]
) -> Iterator[BlockSums[A]]:
    """Draw in this process, both data sets in turn; after an exception, yield the blocks before it first."""
    batch = 1
    with background_counter(make().may_use_thread) as counter:
        while queue.left:
            ranges = [queue.take(1) for _ in range(min(batch, queue.left))]
            sums = BlockSums.empty(sorted({block_range.side for block_range in ranges}), make)
            start = time.perf_counter()
            try:
                draw_ranges(source, stage, runs, sums, ranges, counter)
            except BaseException:
                if sums.is_consistent:
                    yield sums
                raise
            seconds = time.perf_counter() - start
            counter.choose(len(ranges), seconds)
            batch = next_batch_size(len(ranges), seconds, SERIAL_TASK_SECONDS)
            yield sums


def _draw_sums(
    source: SampleSource, stage: str, runs: int, make: Callable[[], A], block_range: BlockRange
) -> BlockSums[A]:
    """Draw one range of blocks: the task of a thread."""
    sums = BlockSums.empty((block_range.side,), make)
    draw_ranges(source, stage, runs, sums, [block_range])
    return sums


def _draw_record(source: SampleSource, stage: str, runs: int, make: Callable[[], A], block_range: BlockRange) -> Record:
    """Draw one range of blocks: the task of another process."""
    return _draw_sums(source, stage, runs, make, block_range).to_record()
