"""Sums over blocks of both data sets, with a record of the blocks that they contain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from dpverify.sampling.accumulators import Accumulator
from dpverify.sampling.checkpoints import Record
from dpverify.sampling.ranges import BlockRanges
from dpverify.util.arrays import Array
from dpverify.util.intervals import merge_intervals

A = TypeVar("A", bound=Accumulator)


@dataclass
class BlockSums(Generic[A]):
    """One accumulator per data set, and the blocks that they contain.

    Attributes
    ----------
    accumulators : dict
        The accumulator of each data set, by side (0 or 1).
    done : dict
        The ranges of blocks that each accumulator contains, by side.
    is_consistent : bool
        False while a block is being added. It stays False after an interruption at that moment; the sums are then
        unusable.
    """

    accumulators: dict[int, A]
    done: dict[int, BlockRanges]
    is_consistent: bool = True

    @classmethod
    def empty(cls, sides: Sequence[int], make: Callable[[], A]) -> BlockSums[A]:
        return cls({side: make() for side in sides}, {side: [] for side in sides})

    def add(self, side: int, block: int, samples: Array, runs: int | None = None) -> None:
        """Add the samples of one block, or the first `runs` of them."""
        self.is_consistent = False
        if runs is None:
            self.accumulators[side].add(block, samples)
        else:
            self.accumulators[side].add(block, samples, runs)
        self.done[side].append((block, block + 1))
        self.is_consistent = True

    def finish(self) -> None:
        """Wait for computations on a device. If this is interrupted, some results may have been added, others not."""
        was_consistent, self.is_consistent = self.is_consistent, False
        for accumulator in self.accumulators.values():
            accumulator.finish()
        self.is_consistent = was_consistent

    def merge(self, other: BlockSums[A]) -> None:
        """Add the blocks of other sums, which must hold other blocks."""
        self.is_consistent = False
        for side, accumulator in other.accumulators.items():
            self.accumulators[side].merge(accumulator)
            self.done[side] = merge_intervals([*self.done[side], *other.done[side]])
        self.is_consistent = True

    def to_record(self) -> Record:
        """Return everything as plain data and arrays: the form for another process and for a checkpoint."""
        parts = [accumulator.to_arrays() for accumulator in self.accumulators.values()]
        done = [merge_intervals(ranges) for ranges in self.done.values()]
        head = {"sides": list(self.accumulators), "done": done, "arrays": [len(part) for part in parts]}
        return Record(head, [array for part in parts for array in part])

    def merge_record(self, record: Record) -> None:
        """Add the blocks of other sums, given as a record."""
        self.is_consistent = False
        arrays = iter(record.arrays)
        head = record.head
        for side, ranges, number in zip(head["sides"], head["done"], head["arrays"], strict=True):
            self.accumulators[side].merge_arrays([next(arrays) for _ in range(number)])
            done = [(int(start), int(stop)) for start, stop in ranges]
            self.done[side] = merge_intervals([*self.done[side], *done])
        self.is_consistent = True


class BlockAdder(Protocol):
    """Adds blocks of NumPy samples to sums, at once or while further blocks are drawn."""

    def add(self, sums: BlockSums[Any], side: int, block: int, samples: np.ndarray, /) -> None: ...

    def wait(self) -> None:
        """Wait until all blocks have been added."""
