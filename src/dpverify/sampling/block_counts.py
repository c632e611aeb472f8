"""Counts of single blocks, for the checks that runs are independent and that threads do not disturb each other.

The counts of a few fixed events in each block must vary like binomial counts (dpverify.stats.dispersion). The checked
events are the tested event, and for some coordinates of the output the event that the coordinate exceeds its pilot
median. The latter have probability near one half, where the check is most sensitive to noise that is shared by the runs
of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dpverify.events.event import Event
from dpverify.stats.dispersion import MAX_P_VALUE, homogeneity_p_value
from dpverify.util.arrays import is_pytree

MAX_CHECKED_BLOCKS = 256  # per data set
MAX_CHECKED_RUNS = 1024  # per block
MAX_CHECKED_COORDINATES = 4


class BlockCounts(NamedTuple):
    """The counts of the checked events in each checked block, sorted by block.

    Attributes
    ----------
    blocks : ndarray of shape (n,)
        The numbers of the blocks.
    sizes : ndarray of shape (n,)
        The number of checked runs of each block.
    counts : ndarray of shape (n, events)
        How many of them fell into each event.
    """

    blocks: np.ndarray
    sizes: np.ndarray
    counts: np.ndarray

    @staticmethod
    def merge(results: Sequence[BlockCounts]) -> BlockCounts:
        """Return the counts of all blocks together."""
        blocks, sizes, counts = (np.concatenate(column) for column in zip(*results, strict=True))
        order = np.argsort(blocks, kind="stable")
        return BlockCounts(blocks[order], sizes[order], counts[order])

    def to_arrays(self) -> list[np.ndarray]:
        return list(self)

    @staticmethod
    def from_arrays(arrays: Iterator[np.ndarray]) -> BlockCounts:
        return BlockCounts(next(arrays), next(arrays), next(arrays))

    def p_values(self) -> list[float]:
        """Return the p-value of independent runs for each event."""
        return [homogeneity_p_value(column, self.sizes) for column in self.counts.T]


class BlockChecker(NamedTuple):
    """The checked events. Accumulators count them in the first runs of the first blocks.

    Attributes
    ----------
    event : Event
        The tested event.
    coordinates : ndarray
        The checked coordinates of the flattened output.
    medians : ndarray
        Their pilot medians.
    """

    event: Event
    coordinates: np.ndarray
    medians: np.ndarray

    @classmethod
    def make(cls, event: Event, points: np.ndarray) -> BlockChecker:
        """Return the checker of an event; `points` are finite pilot runs of shape (runs, steps, dimensions)."""
        flat = points.reshape(len(points), -1)
        number = min(MAX_CHECKED_COORDINATES, flat.shape[1])
        coordinates = np.unique(np.linspace(0, flat.shape[1] - 1, number).round().astype(int))
        return cls(event, coordinates, np.median(flat[:, coordinates], axis=0))

    @property
    def is_pytree(self) -> bool:
        """Whether the event is plain data."""
        return is_pytree(self.event.partition)

    @property
    def result_kind(self) -> type[BlockCounts]:
        return BlockCounts

    def no_counts(self) -> BlockCounts:
        """Return the counts of no blocks."""
        none = np.zeros(0, np.int64)
        return BlockCounts(none, none, np.zeros((0, 1 + self.coordinates.size), np.int64))


def runs_are_dependent(first: BlockCounts, second: BlockCounts) -> bool:
    """Return whether any event of either data set varies too much from block to block for independent runs."""
    p_values = [*first.p_values(), *second.p_values()]
    return min(p_values) < MAX_P_VALUE / len(p_values)
