"""Ranges of blocks: which blocks of a stage are finished, and which remain to be drawn.

Blocks are numbered from 0 for each data set. Finished blocks are stored as sorted, disjoint ranges, so that a stage of
any number of blocks needs little memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dpverify.util.intervals import merge_intervals

BlockRanges = list[tuple[int, int]]  # (start, stop) with stop excluded; sorted, and not touching each other


class BlockRange(NamedTuple):
    """The blocks from `start` to before `stop` of the data set `side` (0 or 1)."""

    side: int
    start: int
    stop: int


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> BlockRanges:
    """Sort ranges and join those that touch or overlap."""
    return merge_intervals(ranges)


class BlockQueue:
    """The blocks of a stage that remain to be drawn.

    Parameters
    ----------
    blocks : int
        The number of blocks per data set.
    done : dict
        The finished ranges of each data set.
    """

    def __init__(self, blocks: int, done: dict[int, BlockRanges]):
        self._gaps = {side: _gaps(ranges, blocks)[::-1] for side, ranges in done.items()}  # the next gap is the last
        self._turn = list(done)
        self.left = sum(stop - start for gaps in self._gaps.values() for start, stop in gaps)

    def take(self, number: int) -> BlockRange:
        """Remove and return a range of at most `number` blocks; the data sets take turns."""
        side = self._turn.pop(0)
        while not self._gaps[side]:
            side = self._turn.pop(0)
        self._turn.append(side)
        start, gap_stop = self._gaps[side].pop()
        stop = min(gap_stop, start + number)
        if stop < gap_stop:
            self._gaps[side].append((stop, gap_stop))
        self.left -= stop - start
        return BlockRange(side, start, stop)


def _gaps(done: BlockRanges, blocks: int) -> BlockRanges:
    """Return the ranges below `blocks` that are not done."""
    gaps, start = [], 0
    for done_start, done_stop in done:
        if start < done_start:
            gaps.append((start, done_start))
        start = done_stop
    if start < blocks:
        gaps.append((start, blocks))
    return gaps
