"""One event for every prefix of an output. All of them are counted on the same runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.events.event import Event
from dpverify.events.prefix_scores import PREFIX_SCORE_KINDS, AnyPrefixScores, PrefixScore
from dpverify.events.scores import Levels
from dpverify.util.arrays import Array, array_namespace, digitize, evaluate_method, on_accelerator
from dpverify.util.column_bins import ColumnBins
from dpverify.util.serialization import nested_kinds


class ScoreTable(NamedTuple):
    """The scores of all prefixes with edges. As a statistic it counts the runs between the edges, for every prefix.

    Attributes
    ----------
    scores : AnyPrefixScores
        The scores.
    edges : ndarray of shape (K, E)
        The sorted edges of each prefix, padded with infinity.
    """

    scores: AnyPrefixScores
    edges: np.ndarray

    def measure(self, samples: Array) -> np.ndarray:
        """Return the counts of a block of runs, of shape (K, E + 1)."""
        return count_on_device(self, samples)

    def tables(self, samples: Array) -> Array:
        """Return the counts as an array on the device of the samples."""
        return count_levels(self.scores.values(samples.reshape(samples.shape[0], -1)), self.edges)


def count_on_device(table: object, samples: Array) -> np.ndarray:
    """Return `table.tables(samples)`. Samples in the memory of the processor are counted by NumPy."""
    return evaluate_method(table, "tables", samples if on_accelerator(samples) else np.asarray(samples))


def count_levels(values: Array, edges: np.ndarray) -> Array:
    """Return how many runs lie in each level, for scores of shape (runs, K) and edges of shape (K, E)."""
    xp, number = array_namespace(values), edges.shape[1] + 1
    if xp is np:
        cells = ColumnBins.of(edges).find(values) + number * np.arange(len(edges))
        return np.bincount(cells.ravel(), minlength=number * len(edges)).reshape(-1, number)
    return xp.stack(
        [xp.bincount(digitize(own, column), length=number) for own, column in zip(edges, values.T, strict=True)]
    )


class PrefixEvents(NamedTuple):
    """The events of all prefixes, frozen before the test runs, as plain data.

    The event of a prefix is {score > threshold} if the first data set is expected to fall into it more often, and
    {score <= threshold} otherwise. The level sets between the edges are the cells whose unions are bounded.

    Attributes
    ----------
    scores : tuple of scores
        The scores that were selected for at least one prefix.
    choice : ndarray of shape (K,)
        The score of each prefix.
    direction : ndarray of shape (K,)
        0 if the first data set is expected to fall into the event more often, 1 if the second is.
    threshold : ndarray of shape (K,)
        The threshold of each prefix; it is one of its edges.
    edges : ndarray of shape (K, E)
        The edges of the level sets of each prefix, padded with infinity.
    tested : ndarray of shape (K,)
        Whether the prefix has a share of alpha. A prefix without one has the bound of the prefix before it.
    """

    scores: tuple[AnyPrefixScores, ...]
    choice: np.ndarray
    direction: np.ndarray
    threshold: np.ndarray
    edges: np.ndarray
    tested: np.ndarray

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.choice)

    def values(self, flat: Array) -> Array:
        """Return the selected score of each prefix, of shape (runs, K)."""
        xp = array_namespace(flat)
        result = self.scores[0].values(flat)
        for number, scores in enumerate(self.scores[1:], 1):
            result = xp.where(self.choice == number, scores.values(flat), result)
        return result

    def measure(self, samples: Array) -> np.ndarray:
        """Return the counts of the level sets of a block of runs, of shape (K, E + 1)."""
        return count_on_device(self, samples)

    def tables(self, samples: Array) -> Array:
        """Return the counts as an array on the device of the samples."""
        return count_levels(self.values(samples.reshape(samples.shape[0], -1)), self.edges)

    def contains(self, samples: Array) -> np.ndarray:
        """Return which runs of shape (runs, K, d) fall into the event of each prefix, as an array (runs, K)."""
        x = np.asarray(samples, float)
        above = self.values(x.reshape(len(x), -1)) > self.threshold
        return above != (self.direction == 1)

    def levels(self, step: int) -> Levels:
        """Return the level sets of one prefix."""
        edges = self.edges[step]
        return Levels(PrefixScore(self.scores[int(self.choice[step])], step), edges[np.isfinite(edges)])

    def event(self, step: int) -> Event:
        """Return the event of one prefix."""
        levels = self.levels(step)
        index = int(np.searchsorted(levels.edges, self.threshold[step]))
        codes = np.arange(index + 1, levels.size) if self.direction[step] == 0 else np.arange(index + 1)
        return Event(levels, codes, int(self.direction[step]))


# The classes that the plain data of the events are made of.
PREFIX_EVENT_KINDS = tuple(
    dict.fromkeys(kind for top in (PrefixEvents, *PREFIX_SCORE_KINDS) for kind in nested_kinds(top))
)
