"""Histograms of scores: how many selection runs of each data set exceed every threshold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dpverify.events.scores import Score, ScoreGroup
from dpverify.util.arrays import Array, array_namespace, evaluate_method, is_jax, is_pytree

EXTREMES_KEPT = 128  # number of values that are stored at either end
MAX_FINE_LEVELS = 1024  # levels of a score during the selection
RELATIVE_ROUNDING = 1e-9  # score values closer than this, relative to their range, are treated as equal


class Extremes(NamedTuple):
    """The lowest and the highest values, sorted: they resolve the tails of a score beyond the bins of a histogram."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Extremes:
        """Return the extremes of some values."""
        return cls.of_sorted(np.sort(values))

    @classmethod
    def of_sorted(cls, values: np.ndarray) -> Extremes:
        """Return the extremes of sorted values."""
        return cls(values[:EXTREMES_KEPT].copy(), values[-EXTREMES_KEPT:].copy())  # not views of all values

    @staticmethod
    def merge(results: Sequence[Extremes]) -> Extremes:
        """Return the extremes of all values together."""
        low, high = (Extremes.of(np.concatenate(part)) for part in zip(*results, strict=True))
        return Extremes(low.low, high.high)


class ScoreHistogram(NamedTuple):
    """The number of runs in each level of a score, and the extreme values."""

    table: np.ndarray
    extremes: Extremes

    @staticmethod
    def merge(results: Sequence[ScoreHistogram]) -> ScoreHistogram:
        """Return the histogram of all runs together."""
        table = np.sum([result.table for result in results], axis=0)
        return ScoreHistogram(table, Extremes.merge([result.extremes for result in results]))

    def to_arrays(self) -> list[np.ndarray]:
        """Return the arrays that a checkpoint stores."""
        return [self.table, *self.extremes]

    @staticmethod
    def from_arrays(arrays: Iterator[np.ndarray]) -> ScoreHistogram:
        """Return the histogram that `to_arrays` was called on."""
        return ScoreHistogram(next(arrays), Extremes(next(arrays), next(arrays)))


class BinnedScore(NamedTuple):
    """A score with fine edges. As a statistic it counts the runs between the edges."""

    score: Score
    edges: np.ndarray

    @property
    def is_pytree(self) -> bool:
        """Whether the score is plain data, so that it can be evaluated by compiled code."""
        return is_pytree(self.score)

    @property
    def result_kind(self) -> type[ScoreHistogram]:
        """The kind of the results."""
        return ScoreHistogram

    def measure(self, samples: Array) -> ScoreHistogram:
        """Return the histogram of a block of runs."""
        if is_jax(samples) and self.is_pytree:
            table, low, high = evaluate_method(self, "_on_device", samples)
            return ScoreHistogram(table, Extremes(low, high))
        return self.count(score_values(self.score, samples))

    def count(self, values: np.ndarray) -> ScoreHistogram:
        """Return the histogram of some score values."""
        values = np.sort(values)  # NumPy sorts all values faster than it searches for each of them
        ranks = np.concatenate([[0], np.searchsorted(values, self.edges, side="right"), [values.size]])
        return ScoreHistogram(ranks[1:] - ranks[:-1], Extremes.of_sorted(values))

    def _on_device(self, samples: Array) -> tuple[Array, Array, Array]:
        xp = array_namespace(samples)
        values = xp.sort(self.score.values(samples.reshape(samples.shape[0], -1)))
        # The count of a level is the difference of the ranks of its two edges among the sorted values.
        ranks = xp.searchsorted(values, self.edges, side="right")
        ends = xp.array([0]), xp.array([values.shape[0]])
        table = xp.diff(xp.concatenate([ends[0], ranks, ends[1]]))
        return table, values[:EXTREMES_KEPT], values[-EXTREMES_KEPT:]


class HistogramsKind(NamedTuple):
    """The kind of a result that consists of so many histograms."""

    number: int

    def merge(self, results: Sequence[tuple[ScoreHistogram, ...]]) -> tuple[ScoreHistogram, ...]:
        """Return the histograms of all runs together."""
        return tuple(ScoreHistogram.merge(one) for one in zip(*results, strict=True))

    def to_arrays(self, result: tuple[ScoreHistogram, ...]) -> list[np.ndarray]:
        """Return the arrays that a checkpoint stores."""
        return [array for histogram in result for array in histogram.to_arrays()]

    def from_arrays(self, arrays: Iterator[np.ndarray]) -> tuple[ScoreHistogram, ...]:
        """Return the histograms that `to_arrays` was called on."""
        return tuple(ScoreHistogram.from_arrays(arrays) for _ in range(self.number))


class BinnedScores(NamedTuple):
    """Several binned scores. As one statistic they are counted together."""

    scores: tuple[BinnedScore, ...]
    group: ScoreGroup

    @classmethod
    def of(cls, scores: Sequence[BinnedScore], known: ScoreGroup | None = None) -> BinnedScores:
        """Return the statistic of some binned scores. A known group is used again if it consists of the same scores."""
        own = tuple(binned.score for binned in scores)
        if known is None or tuple(map(id, own)) != tuple(map(id, known.scores)):
            known = ScoreGroup.of(own)
        return cls(tuple(scores), known)

    @property
    def is_pytree(self) -> bool:
        """Whether all scores are plain data."""
        return all(binned.is_pytree for binned in self.scores)

    @property
    def result_kind(self) -> HistogramsKind:
        """The kind of the results."""
        return HistogramsKind(len(self.scores))

    def measure(self, samples: Array) -> tuple[ScoreHistogram, ...]:
        """Return the histograms of a block of runs."""
        if is_jax(samples):
            return tuple(binned.measure(samples) for binned in self.scores)
        values = self.group.values(samples.reshape(len(samples), -1))
        return tuple(binned.count(own) for binned, own in zip(self.scores, values, strict=True))


class PairedHistogram(NamedTuple):
    """The histograms of one score for both data sets.

    Attributes
    ----------
    table : tuple of two ndarray
        The counts of every level.
    extremes : tuple of two Extremes
        The extreme values.
    runs : int
        The runs per data set.
    """

    table: tuple[np.ndarray, np.ndarray]
    extremes: tuple[Extremes, Extremes]
    runs: int

    @classmethod
    def of(cls, first: ScoreHistogram, second: ScoreHistogram, runs: int) -> PairedHistogram:
        """Return the pair of two histograms."""
        return cls((first.table, second.table), (first.extremes, second.extremes), runs)

    def add(self, other: PairedHistogram) -> PairedHistogram:
        """Return the histograms of the runs of both together; the edges have to be the same."""
        first, second = (
            ScoreHistogram.merge([ScoreHistogram(one.table[side], one.extremes[side]) for one in (self, other)])
            for side in (0, 1)
        )
        return PairedHistogram.of(first, second, self.runs + other.runs)

    def count_beyond(self, threshold: float, edges: np.ndarray, above: bool) -> tuple[int, int]:
        """Return how many runs of each data set lie above a threshold, or at most at it.

        The threshold is one of the edges, or a number beyond all edges in the range of the extreme values.
        """
        index = int(np.searchsorted(edges, threshold))
        if index < edges.size and edges[index] == threshold:
            at_most = [int(table[: index + 1].sum()) for table in self.table]
        elif threshold > edges[-1]:
            at_most = [self.runs - int((e.high > threshold).sum()) for e in self.extremes]
        else:
            at_most = [int((e.low <= threshold).sum()) for e in self.extremes]
        first, second = (self.runs - count if above else count for count in at_most)
        return first, second


class ThresholdCounts(NamedTuple):
    """Candidate thresholds, and how many runs of each data set lie above each of them."""

    thresholds: np.ndarray
    first: np.ndarray
    second: np.ndarray


def merge_levels(table: np.ndarray, edges: np.ndarray, finer: np.ndarray) -> np.ndarray:
    """Return the counts of the levels between some of the edges of a table; `finer` are all of its edges."""
    return np.add.reduceat(table, np.concatenate([[0], np.searchsorted(finer, edges) + 1]))


def score_values(score: Score, samples: Array) -> np.ndarray:
    """Return the score of every run as a NumPy array."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(score.values(np.asarray(samples).reshape(len(samples), -1)), float)


def midpoints(values: np.ndarray) -> np.ndarray:
    """Return the midpoints between distinct sorted values.

    Values that differ by rounding only are treated as equal: a sum in a different order must not cross a threshold.
    """
    if not values.size:
        return values
    value_range = max(values[-1] - values[0], np.finfo(float).tiny)
    distinct = np.diff(values) > RELATIVE_ROUNDING * value_range
    low, high = values[:-1][distinct], values[1:][distinct]
    return low + (high - low) / 2


def fine_edges(values: np.ndarray, most: int = MAX_FINE_LEVELS) -> np.ndarray:
    """Return edges between score values of the training runs, at equal shares and at halving shares at both ends."""
    edges = midpoints(np.sort(values))
    if edges.size > most:
        n = edges.size
        halving = 2 ** np.arange(int(np.log2(n)))
        ranks = np.unique(np.concatenate([np.arange(1, most) * n // most, halving - 1, n - halving]))
        edges = edges[ranks]
    return edges if edges.size else values[:1]


def threshold_counts(histogram: PairedHistogram, edges: np.ndarray) -> ThresholdCounts:
    """Return thresholds at the edges, and in the tails between single values, with the runs above each of them."""
    extremes, runs = histogram.extremes, histogram.runs
    # The kept extreme values are complete above `top` and below `bottom`.
    top = max(e.high[0] if e.high.size == EXTREMES_KEPT else -np.inf for e in extremes)
    bottom = min(e.low[-1] if e.low.size == EXTREMES_KEPT else np.inf for e in extremes)
    high = midpoints(np.sort(np.concatenate([e.high for e in extremes])))
    low = midpoints(np.sort(np.concatenate([e.low for e in extremes])))
    high, low = high[high >= top], low[low < bottom]
    counts = np.concatenate(
        [
            np.stack([runs - np.cumsum(table)[:-1] for table in histogram.table]),
            np.stack([e.high.size - np.searchsorted(e.high, high, side="right") for e in extremes]),
            runs - np.stack([np.searchsorted(e.low, low, side="right") for e in extremes]),
        ],
        axis=1,
    )
    return ThresholdCounts(np.concatenate([edges, high, low]), counts[0], counts[1])
