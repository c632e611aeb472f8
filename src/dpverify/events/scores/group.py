"""Several scores that are evaluated together, so that what they have in common is computed once.

Scores of one family share their features. A kind of score with a method `combine` shares more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dpverify.events.scores.base import Features, Score
from dpverify.util.parallel import map_parallel

RUNS_PER_PIECE = 4096  # the arrays of this many runs stay small


class CombinedScores(Protocol):
    """Scores of one kind and of the same features that are evaluated together."""

    def values(self, features: np.ndarray, /) -> list[np.ndarray]:
        """Return one number per run for each score."""
        ...


class FeatureGroup(NamedTuple):
    """Scores of the same features.

    Attributes
    ----------
    features : Features
        The features.
    combined : list of (list of int, CombinedScores)
        The numbers of the scores of one kind, and these scores together, for each kind that combines its scores.
    others : list of int
        The numbers of the other scores.
    """

    features: Features
    combined: list[tuple[list[int], CombinedScores]]
    others: list[int]

    @classmethod
    def of(cls, scores: Sequence[Score], numbers: Sequence[int]) -> FeatureGroup:
        """Return the group of the scores with these numbers."""
        by_kind: dict[type, list[int]] = {}
        for i in numbers:
            by_kind.setdefault(type(scores[i]), []).append(i)
        combined, others = [], []
        for kind, own in by_kind.items():
            combine = getattr(kind, "combine", None)
            if combine is None:
                others += own
            else:
                combined.append((own, combine([scores[i] for i in own])))
        return cls(scores[numbers[0]].features, combined, others)  # type: ignore[attr-defined]


class ScoreGroup(NamedTuple):
    """Scores that are evaluated together, for NumPy arrays.

    Attributes
    ----------
    scores : tuple of Score
        The scores.
    single : tuple of int
        The numbers of the scores without features.
    by_features : tuple of FeatureGroup
        The other scores, by their features.
    """

    scores: tuple[Score, ...]
    single: tuple[int, ...]
    by_features: tuple[FeatureGroup, ...]

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
        by_features = tuple(FeatureGroup.of(scores, numbers) for numbers in members.values())
        return cls(tuple(scores), tuple(single), by_features)

    def values(self, flat: np.ndarray, in_threads: bool = False) -> list[np.ndarray]:
        """Return the values of each score, one number per run; large arrays can be divided among threads."""
        result = [np.empty(len(flat)) for _ in self.scores]

        def evaluate_piece(start: int) -> None:
            piece = slice(start, start + RUNS_PER_PIECE)
            for group in self.by_features:
                z = group.features.values(flat[piece])
                for number in group.others:
                    result[number][piece] = self.scores[number].values_of_features(z)  # type: ignore[attr-defined]
                for numbers, combined in group.combined:
                    for number, values in zip(numbers, combined.values(z), strict=True):
                        result[number][piece] = values

        with np.errstate(over="ignore", invalid="ignore"):
            for number in self.single:
                result[number] = np.asarray(self.scores[number].values(flat), float)
            starts = range(0, len(flat), RUNS_PER_PIECE) if self.by_features else ()
            map_parallel(evaluate_piece, starts, flat.size if in_threads else 0)
        return result
