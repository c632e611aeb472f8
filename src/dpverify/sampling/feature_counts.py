"""Level sets of several scores of the same features, which are computed once for every block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpverify.events.scores.base import Features, Levels
from dpverify.util.arrays import digitize
from dpverify.util.hashing import fingerprint


class FeatureCells(NamedTuple):
    """Level sets of scores whose features are equal, for NumPy arrays.

    Attributes
    ----------
    features : Features
        The features.
    levels : tuple of Levels
        The level sets.
    numbers : tuple of int
        Their numbers among the given partitions.
    """

    features: Features
    levels: tuple[Levels, ...]
    numbers: tuple[int, ...]

    @classmethod
    def groups(cls, partitions: Sequence[object]) -> tuple[FeatureCells, ...]:
        """Return those of the given partitions whose features are worth sharing, in groups of at least two.

        Features are compared by value, because a resumed run reads those of each score as an object of its own.
        """
        members: dict[str, list[int]] = {}
        for number, partition in enumerate(partitions):
            score: Any = partition.score if isinstance(partition, Levels) else None
            if hasattr(score, "values_of_features") and score.features.whiten is not None:
                members.setdefault(fingerprint(score.features), []).append(number)
        groups = []
        for numbers in members.values():
            levels = tuple(one for one in (partitions[number] for number in numbers) if isinstance(one, Levels))
            if len(levels) > 1:
                first: Any = levels[0].score
                groups.append(cls(first.features, levels, tuple(numbers)))
        return tuple(groups)

    def codes(self, samples: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the level of every run, for each of the level sets."""
        with np.errstate(over="ignore", invalid="ignore"):
            features = self.features.values(samples.reshape(len(samples), -1))
            for levels in self.levels:
                score: Any = levels.score
                yield digitize(levels.edges, score.values_of_features(features))
