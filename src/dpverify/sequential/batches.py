"""Batches of runs: how they are drawn, counted, recorded and checked.

The runs up to the last selection are recorded, because events are selected from them again. Later runs are only
counted, where they are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpverify.errors import FolderError
from dpverify.mechanisms.wrappers import has_fixed_block
from dpverify.sampling.accumulators import CountAccumulator
from dpverify.sampling.block_counts import BlockChecker, BlockCounts
from dpverify.sampling.blocks import FIRST_RUNS, SampleSource, fitting_block_size
from dpverify.sampling.budget import BYTES_PER_NUMBER
from dpverify.sampling.checkpoints import Record
from dpverify.sampling.context import RunContext
from dpverify.sampling.counts import CellCounter, Cells, Counts, Statistics
from dpverify.sampling.probe import blocks_repeat
from dpverify.sampling.stages import StageResult, collect_samples, collect_statistics
from dpverify.sampling.threads import threads_agree
from dpverify.sequential.schedule import COMPILED_BLOCKS, block_size
from dpverify.stats.dispersion import MAX_P_VALUE, pair_p_value

MAX_RECORDED_BYTES = 256 << 20  # per data set
COMPARED_RUNS = 64  # recorded runs of the first data set that are checked for repeated blocks

CountsPair = tuple[Counts, Counts]
MeanErrors = tuple[tuple[float, float], tuple[float, float]]


class Batches:
    """Draws batches, and keeps what is needed of them.

    Parameters
    ----------
    run : RunContext
        The verification.
    error : callable or None
        The user's error function.

    Attributes
    ----------
    samples : list of ndarray
        The recorded runs of both data sets.
    checker : BlockChecker or None
        The statistic that checks whether runs are independent; it must be set before the first batch.
    """

    def __init__(self, run: RunContext, error: Callable[[Any], Any] | None) -> None:
        self._run, self._error = run, error
        self._number = 0
        self._blocks: list[tuple[BlockCounts, BlockCounts]] = []
        self._errors: list[tuple[int, MeanErrors]] = []
        self._last: tuple[SampleSource, int] | None = None
        self._first_block = 0
        self.samples = first_samples(run)
        self.first_runs = len(self.samples[0])
        self.checker: BlockChecker | None = None

    def draw(self, size: int, partitions: Sequence[Cells], record: bool) -> list[CountsPair]:
        """Draw a batch and return its counts in each partition; `record` also keeps its runs."""
        assert self.checker is not None
        source = self._source(size)
        run = self._run
        statistics = Statistics((*(CellCounter(p) for p in partitions), self.checker), self._error)
        if record:
            samples = collect_samples(source, "test", size, run.pool, run.progress)
            result = measure(statistics, samples, source.block)
            self.samples = [np.concatenate(pair) for pair in zip(self.samples, samples, strict=True)]
        else:
            result = collect_statistics(source, "test", size, statistics, run.pool, run.progress)
        *counts, blocks = zip(*result.parts, strict=True)
        self._blocks.append(blocks)
        if result.error is not None:
            self._errors.append((size, result.error))
        self._number += 1
        self._first_block = self._first_block or source.block
        self._last = source, size
        return counts

    def _source(self, size: int) -> SampleSource:
        """Return the source of the next batch: it has a block size and random streams of its own."""
        source, shape = self._run.source, self._run.source.shape
        assert shape is not None
        block = self._run.fixed_block
        if block is None:
            compiled = COMPILED_BLOCKS if has_fixed_block(source.mechanism) else ()
            block = fitting_block_size(block_size(size, compiled), shape[0] * shape[1] * BYTES_PER_NUMBER)
        return source._replace(block=block, look=(*source.look, self._number))

    def blocks(self) -> tuple[BlockCounts, BlockCounts]:
        """Return the counts of all checked blocks, for both data sets."""
        first, second = zip(*self._blocks, strict=True)
        return BlockCounts.merge(first), BlockCounts.merge(second)

    def error(self) -> MeanErrors | None:
        """Return the mean error over all batches and its standard error, for both data sets."""
        if not self._errors:
            return None
        total = sum(size for size, _ in self._errors)
        pairs = []
        for side in (0, 1):
            mean = sum(size * errors[side][0] for size, errors in self._errors) / total
            squares = [
                size * errors[side][0] ** 2 + size * max(size - 1, 1) * errors[side][1] ** 2
                for size, errors in self._errors
            ]
            variance = max(sum(squares) / total - mean**2, 0.0)
            pairs.append((mean, math.sqrt(variance / max(total - 1, 1))))
        return pairs[0], pairs[1]

    def repeat(self) -> bool | None:
        """Return whether blocks repeat each other, from the first recorded runs; None if this is not certain yet."""
        pair = 2 * self._first_block
        runs = self.samples[0][self.first_runs :][: max(COMPARED_RUNS, pair)]
        if len(runs) < pair:
            return None
        blocks = runs[: len(runs) // pair * pair].reshape(-1, self._first_block, *runs.shape[1:])
        even, odd = np.concatenate(blocks[::2]), np.concatenate(blocks[1::2])
        if not np.array_equal(even, odd, equal_nan=True):
            return False
        return blocks_repeat(even, odd) or (False if len(runs) >= COMPARED_RUNS else None)

    def pairs_are_dependent(self) -> bool:
        """Return whether two recorded runs of one block agree too often for independent runs.

        The compared events are that a coordinate exceeds its median in the first runs. Neighbouring runs form the
        pairs; nearly all of them lie in one block.
        """
        assert self.checker is not None
        p_values = []
        for side in self.samples:
            runs = side[self.first_runs :].reshape(len(side) - self.first_runs, -1)[:, self.checker.coordinates]
            above = runs[: len(runs) // 2 * 2].reshape(-1, 2, runs.shape[1]) > self.checker.medians
            for event in np.moveaxis(above, -1, 0):
                discordant = int(np.count_nonzero(event[:, 0] != event[:, 1]))
                p_values.append(pair_p_value(discordant, int(event.sum()), len(event)))
        return min(p_values) < MAX_P_VALUE / len(p_values)

    def threads_agree(self) -> bool:
        """Return False if threads disturb each other, from blocks of the last batch that are drawn again."""
        assert self._last is not None
        assert self.checker is not None
        source, size = self._last
        return threads_agree(source, size, self.checker, self._blocks[-1], self._run.pool)


def measure(statistics: Statistics, samples: Sequence[np.ndarray], block: int) -> StageResult:
    """Return the statistics of samples that were drawn in blocks of this size."""
    sums = [CountAccumulator(statistics) for _ in samples]
    for side, accumulator in zip(samples, sums, strict=True):
        for number in range(-(-len(side) // block)):
            accumulator.add(number, side[number * block : (number + 1) * block])
    runs = len(samples[0])
    error = None if statistics.error is None else (sums[0].error(runs), sums[1].error(runs))
    return StageResult((sums[0].results(), sums[1].results()), error)


def first_samples(run: RunContext) -> list[np.ndarray]:
    """Return the first runs of both data sets, which the probe has drawn; a resumed run reads them from its folder.

    They are stored because a mechanism without seeds gives other runs when it is called again.
    """
    record = run.checkpoint.read("first")
    if record is not None:
        return list(record.arrays)
    samples = []
    for wanted in (0, 1):
        blocks = [runs for (side, _), runs in sorted(run.pilot_blocks.items()) if side == wanted]
        samples.append(np.concatenate(blocks))
    length = min(map(len, samples))
    samples = [side[:length] for side in samples]
    run.checkpoint.write("first", Record({}, samples))
    return samples


def recordable_runs(run: RunContext) -> int:
    """Return how many runs are recorded: the selection runs, or as many as fit into memory, but enough for checks."""
    assert run.source.shape is not None
    steps, dimension = run.source.shape
    most = MAX_RECORDED_BYTES // (steps * dimension * BYTES_PER_NUMBER)
    fewest = FIRST_RUNS + run.source.block + max(COMPARED_RUNS, 2 * run.source.block)
    return max(min(run.settings.select_runs, most), fewest)


def read_budgets(run: RunContext) -> tuple[int, ...]:
    """Return the test runs of the calls that this folder has seen, and store those of this call.

    The exact test is made once, at the end of the first budget. A folder therefore remembers all budgets.
    """
    record = run.checkpoint.read("budgets")
    budgets = [] if record is None else [int(budget) for budget in record.head["test_runs"]]
    requested = run.settings.test_runs
    if budgets and requested < budgets[-1]:
        raise FolderError(
            f"{run.checkpoint.folder}: found test_runs={requested}; expected at least {budgets[-1]}, the budget that "
            "this folder has already; pass at least as many, or use another folder"
        )
    if not budgets or requested > budgets[-1]:
        budgets.append(requested)
        run.checkpoint.write("budgets", Record({"test_runs": budgets}))
    return tuple(budgets)
