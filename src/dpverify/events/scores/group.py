"""Several scores that are evaluated together, so that what they have in common is computed once.

Scores of one family share their features, and additive scores also share the bins of these features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpverify.events.partition import pad_rows
from dpverify.events.scores.additive import Additive
from dpverify.events.scores.base import Features, Score
from dpverify.util.column_bins import ColumnBins

RUNS_PER_PIECE = 4096  # the arrays of this many runs stay small


class SharedSteps(NamedTuple):
    """Additive scores of the same features, on common bins.

    Attributes
    ----------
    numbers : tuple of int
        The numbers of the scores in their group.
    coordinates : ndarray of shape (J',)
        The features that at least one of the scores depends on.
    bins : ColumnBins
        The edges of all scores, of shape (J', E).
    steps : list of ndarray, each of shape (J' * (E + 1),)
        For each score, the values of its step functions in the common bins, feature after feature.
    """

    numbers: tuple[int, ...]
    coordinates: np.ndarray
    bins: ColumnBins
    steps: list[np.ndarray]

    def values(self, features: np.ndarray) -> list[np.ndarray]:
        """Return one number per run for each score."""
        cells = self.bins.find(features[:, self.coordinates])
        n_features, n_edges = self.bins.edges.shape
        cells += (n_edges + 1) * np.arange(n_features)
        return [steps[cells].sum(1) for steps in self.steps]


class ScoreGroup(NamedTuple):
    """Scores that are evaluated together, for NumPy arrays.

    Attributes
    ----------
    scores : tuple of Score
        The scores.
    single : tuple of int
        The numbers of the scores without features.
    by_features : tuple of (Features, tuple of int, SharedSteps or None)
        The distinct features, the numbers of their scores except additive ones, and their additive scores.
    """

    scores: tuple[Score, ...]
    single: tuple[int, ...]
    by_features: tuple[tuple[Features, tuple[int, ...], SharedSteps | None], ...]

    @classmethod
    def of(cls, scores: Sequence[Score]) -> ScoreGroup:
        """Return the group of some scores. Features are the same if they are the same object."""
        members: dict[int, list[int]] = {}
        single = []
        for number, score in enumerate(scores):
            if hasattr(score, "values_of_features"):
                members.setdefault(id(score.features), []).append(number)  # type: ignore[attr-defined]
            else:
                single.append(number)
        by_features = []
        for numbers in members.values():
            additive = tuple(i for i in numbers if isinstance(scores[i], Additive))
            others = tuple(i for i in numbers if i not in additive)
            features: Features = scores[numbers[0]].features  # type: ignore[attr-defined]
            by_features.append((features, others, share_steps(scores, additive) if additive else None))
        return cls(tuple(scores), tuple(single), tuple(by_features))

    def values(self, flat: np.ndarray) -> list[np.ndarray]:
        """Return the values of each score, one number per run."""
        result = [np.empty(len(flat)) for _ in self.scores]
        with np.errstate(over="ignore", invalid="ignore"):
            for number in self.single:
                result[number] = np.asarray(self.scores[number].values(flat), float)
            for start in range(0, len(flat), RUNS_PER_PIECE) if self.by_features else ():
                piece = slice(start, start + RUNS_PER_PIECE)
                for features, others, shared in self.by_features:
                    z = features.values(flat[piece])
                    for number in others:
                        result[number][piece] = self.scores[number].values_of_features(z)  # type: ignore[attr-defined]
                    if shared is not None:
                        for number, values in zip(shared.numbers, shared.values(z), strict=True):
                            result[number][piece] = values
        return result


def share_steps(scores: Sequence[Score], numbers: tuple[int, ...]) -> SharedSteps:
    """Return additive scores on the union of their bins. A feature that a score does not use adds 0."""
    additive = [score for score in (scores[i] for i in numbers) if isinstance(score, Additive)]
    coordinates = np.unique(np.concatenate([score.coordinates for score in additive]))
    rows: list[list[np.ndarray]] = [[] for _ in coordinates]
    for score in additive:
        for coordinate, edges in zip(score.coordinates, score.edges, strict=True):
            rows[int(np.searchsorted(coordinates, coordinate))].append(edges[np.isfinite(edges)])
    edges = pad_rows([np.unique(np.concatenate(row)) for row in rows], least=1)
    steps = []
    for score in additive:
        table = np.zeros((len(edges), edges.shape[1] + 1))
        for coordinate, own_edges, heights in zip(score.coordinates, score.edges, score.steps, strict=True):
            row = int(np.searchsorted(coordinates, coordinate))
            table[row] = heights[np.searchsorted(own_edges, np.append(edges[row], np.inf))]
        steps.append(table.ravel())
    return SharedSteps(numbers, coordinates, ColumnBins.of(edges), steps)
