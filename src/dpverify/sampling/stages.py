"""Stages: all blocks of the pilot, training, proposal, decision or test runs, drawn and accumulated.

A stage reads the blocks that its checkpoint already contains, draws the others with the workers of the pool, and saves
the sums from time to time and at its end, also after an error or an interruption. A task that is interrupted is drawn
again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

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
from dpverify.sampling.count import Accumulator, KeptSamples, Statistic, as_arrays, from_arrays
from dpverify.sampling.executors import (
    TASK_SECONDS,
    BlockKey,
    WorkerPool,
    check_picklable,
    completed_tasks,
    next_task_size,
)
from dpverify.util.arrays import Array, is_jax, retain_freed_memory
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import Progress

MAX_COPIED_RUNS = 1 << 20  # a stage with at most so many runs per dataset is counted on the host
CONCURRENT_BLOCKS = 4  # per dataset, that two threads draw at the same time
CONCURRENT_SECONDS = 0.5  # the blocks are drawn repeatedly for so long: calls rarely meet on a busy machine


class StageSums:
    """The sums of a stage over its finished blocks.

    Attributes
    ----------
    accumulators : dict
        The accumulator of each dataset, by side (0 or 1).
    done : dict
        The blocks that each accumulator contains, by side.
    is_consistent : bool
        False while blocks are being added. It stays False after an interruption at that moment; the sums are then
        unusable.
    """

    def __init__(self, sides: Collection[int], statistics: Sequence[Statistic]):
        self.accumulators = {side: Accumulator(statistics) for side in sides}
        self.done: dict[int, set[int]] = {side: set() for side in sides}
        self.is_consistent = True

    def merge(self, blocks: Iterable[BlockKey], results: Mapping[int, Sequence[Any]]) -> None:
        """Add blocks that the sums do not hold, given their results for each dataset."""
        self.is_consistent = False
        for side, own in results.items():
            self.accumulators[side].merge(own)
        for side, block in blocks:
            self.done[side].add(block)
        self.is_consistent = True

    def runs(self, block_size: int, most: int) -> int:
        """Return the number of runs in the blocks; the last block of a stage may be incomplete."""
        return sum(count_runs(block, block_size, most) for done in self.done.values() for block in done)

    def to_record(self, content: str) -> Record:
        """Return everything as plain data and arrays: the form for a checkpoint."""
        arrays: list[np.ndarray] = []
        places = [as_arrays(accumulator.results(), arrays) for accumulator in self.accumulators.values()]
        for blocks in self.done.values():  # as bits, so that the file hardly grows with the number of blocks
            table = np.zeros(max(blocks, default=-1) + 1, bool)
            table[list(blocks)] = True
            arrays.append(np.packbits(table))
        done = {side: len(own) for side, own in self.done.items()}  # for people
        return Record({"content": content, "done": done, "results": places}, arrays)

    def merge_record(self, record: Record) -> None:
        """Add the blocks of other sums, given as a record."""
        places, bits = record.head["results"], record.arrays[-len(self.done) :]
        done = [np.flatnonzero(np.unpackbits(own)).tolist() for own in bits]
        results = {side: from_arrays(own, record.arrays) for side, own in zip(self.done, places, strict=True)}
        blocks = [(side, block) for side, own in zip(self.done, done, strict=True) for block in own]
        self.merge(blocks, {side: own for side, own in results.items() if own})
        for accumulator in self.accumulators.values():
            accumulator.results()  # damaged data fail here


def count_runs(block: int, block_size: int, most: int) -> int:
    """Return how many runs of a block belong to a stage of so many runs.

    Examples
    --------
    >>> [count_runs(block, 64, 100) for block in (0, 1)]
    [64, 36]
    """
    return min(block_size, most - block * block_size)


def draw_blocks(
    source: SampleSource, stage: str, runs: int, statistics: Sequence[Statistic], blocks: Sequence[BlockKey]
) -> dict[int, list[Any]]:
    """Draw blocks, in this order, and return the results of the statistics for each dataset: the task of a worker.

    The last block of a stage is cut to `runs` runs in total.
    """
    retain_freed_memory()
    sums = {side: Accumulator(statistics) for side in sorted({side for side, _ in blocks})}
    finite_flags: list[Array] = []  # of blocks on a device
    output: object = call_mechanism(source, stage, *blocks[0])
    for (side, block), following in zip(blocks, [*blocks[1:], None], strict=True):
        # JAX computes the next block while this one is counted. Other libraries might reuse the output buffer.
        ahead = following is not None and is_jax(output)
        next_output = call_mechanism(source, stage, *following) if following is not None and ahead else None
        samples = validate_block(source, stage, side, block, output, check_finite_later=True)
        on_device = is_jax(samples)
        if source.nonfinite == "error" and on_device:
            finite_flags.append(all_finite(samples))
        counted_runs = count_runs(block, source.block, runs)
        if not on_device or runs <= MAX_COPIED_RUNS:
            # Few runs are copied faster than the programs that count them on a device are compiled.
            samples = copy_runs(samples, counted_runs)
        sums[side].add(block, samples, counted_runs)
        if following is not None:
            output = next_output if ahead else call_mechanism(source, stage, *following)
    results = {side: one.results() for side, one in sums.items()}
    for (side, block), finite in zip(blocks, map(bool, finite_flags), strict=False):
        if not finite:
            draw_block(source, stage, side, block)  # raises an error that counts the runs that are not finite
            problem = InputError("found NaN or infinity; expected finite outputs; fix the mechanism")
            raise mechanism_error(source, stage, side, block, problem)
    return results


def collect_samples(
    source: SampleSource,
    stage: str,
    runs: int,
    pool: WorkerPool,
    progress: Progress,
    sides: tuple[int, ...] = (0, 1),
    drawn: Mapping[BlockKey, np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Return the samples of each dataset, in the order of their blocks; `drawn` blocks are not drawn again."""
    (kept,) = collect_statistics(source, stage, runs, (KeptSamples(),), pool, progress, (), sides, drawn)
    return [np.concatenate([samples[i] for i in np.argsort(numbers)]) for numbers, samples in kept]


def collect_statistics(
    source: SampleSource,
    stage: str,
    runs: int,
    statistics: Sequence[Statistic],
    pool: WorkerPool,
    progress: Progress,
    excluded: Collection[BlockKey] = (),
    sides: tuple[int, ...] = (0, 1),
    drawn: Mapping[BlockKey, np.ndarray] | None = None,
) -> list[tuple[Any, ...]]:
    """Return the result of each statistic over the blocks of a stage, for each dataset.

    Parameters
    ----------
    source : SampleSource
        Draws the blocks.
    stage : str
        One of `STAGES`.
    runs : int
        The number of runs per dataset; the surplus of the last block is dropped.
    statistics : sequence of Statistic
        What is computed from every block.
    pool : WorkerPool
        The workers, and the checkpoint.
    progress : Progress
        Receives the number of finished runs.
    excluded : collection
        Blocks that are left out, as (side, block).
    sides : tuple of int
        The datasets that are sampled.
    drawn : mapping, optional
        Samples of blocks that have been drawn already. They are added first, unless a checkpoint exists.

    Returns
    -------
    list of tuple
        For each statistic its results, in the order of `sides`.
    """
    checkpoint = pool.checkpoint
    name = checkpoint.step(stage)
    content = fingerprint((runs, sides, tuple(statistics)), sources=False) if checkpoint.folder is not None else ""
    sums = StageSums(sides, statistics)
    for side, block in excluded:
        sums.done[side].add(block)
    excluded_runs = sums.runs(source.block, runs)
    record = checkpoint.read(name)
    if record is not None:
        restore_sums(sums, record, content, f"{checkpoint.folder}: {name}")
    else:
        for (side, block), samples in (drawn or {}).items():
            if side in sides and block * source.block < runs:
                sums.accumulators[side].add(block, samples, count_runs(block, source.block, runs))
                sums.done[side].add(block)

    progress.skip(sums.runs(source.block, runs) - excluded_runs)
    blocks = range(-(-runs // source.block))
    left = [(side, block) for block in blocks for side in sides if block not in sums.done[side]]
    progress.stage(STAGE_WORDS[stage], is_drawn=bool(left))
    is_saved = record is not None
    try:
        for finished, results in _completed(left, partial(draw_blocks, source, stage, runs, statistics), pool):
            is_saved = False
            sums.merge(finished, results)
            progress.advance(sum(count_runs(block, source.block, runs) for _, block in finished))
            if checkpoint.due:
                checkpoint.write(name, sums.to_record(content))
                is_saved = True
    finally:
        if checkpoint.folder is not None and sums.is_consistent and not is_saved:
            checkpoint.write(name, sums.to_record(content))
    return list(zip(*(accumulator.results() for accumulator in sums.accumulators.values()), strict=True))


def restore_sums(sums: StageSums, record: Record, content: str, where: str) -> None:
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


def _completed(
    left: list[BlockKey], draw: partial[dict[int, list[Any]]], pool: WorkerPool
) -> Iterator[tuple[Sequence[BlockKey], dict[int, list[Any]]]]:
    """Yield some blocks and their results, as they are completed."""
    if pool.executor is not None:
        check_picklable(draw, pool)
        yield from completed_tasks(left, draw, pool)
        return
    number = 1
    while left:
        blocks, left = left[:number], left[number:]
        start = time.perf_counter()
        results = draw(blocks)
        number = next_task_size(len(blocks), time.perf_counter() - start, TASK_SECONDS)
        yield blocks, results


def threads_agree(source: SampleSource, pool: WorkerPool) -> bool:
    """Return False if threads disturb each other; True for other executors and for mechanisms without seeds.

    A mechanism that stores something on itself while it computes may give other runs when another thread calls it at
    the same time, for example those of the other dataset. A few blocks are drawn by two threads at once, again and
    again. They must equal the same blocks drawn alone.
    """
    if pool.executor is None or not pool.shares_memory or pool.number < 2 or not is_seeded(source.mechanism):
        return True
    alone = [[np.array(draw_block(source, "test", side, b)) for b in range(CONCURRENT_BLOCKS)] for side in (0, 1)]

    def repeats(side: int) -> bool:
        end = time.monotonic() + CONCURRENT_SECONDS
        while True:
            for block, runs in enumerate(alone[side]):
                if not np.array_equal(draw_block(source, "test", side, block), runs, equal_nan=True):
                    return False
            if time.monotonic() >= end:
                return True

    futures = [pool.executor.submit(repeats, side) for side in (0, 1)]
    return all([future.result() for future in futures])
