"""Scores for rare leaks: outputs that are rare, lie far from all others, and show the dataset.

Scores that are fitted to all training runs miss a leak that happens in one run of ten thousand. These scores are fitted
to the training runs that lie farthest away.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.events.scores.base import Features, Linear, Score, describe_coordinates
from dpverify.events.scores.training import Learner, TrainingData
from dpverify.util.arrays import Array, array_namespace

OUTLIER_COUNTS = (16, 128)  # training runs of both datasets that count as outliers
MAX_SINGLE_COORDINATES = 4096  # of one output; more are not compared one by one
RUNS_PER_PIECE = 1024  # the arrays of this many runs stay in the processor's caches


class Extreme(NamedTuple):
    """The value of the feature that is farthest from 0, with a sign that says which dataset it points to.

    Attributes
    ----------
    features : Features
        The features z of a run.
    signs : ndarray of shape (2, J)
        For each feature 1 where its outliers belong to the first dataset, -1 where they belong to the second; first
        for negative, then for positive values.
    """

    features: Features
    signs: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of signs."""
        return self.signs.size

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        return self.values_of_features(self.features.values(flat))

    def values_of_features(self, features: Array) -> Array:
        """Return one number per run, given its features."""
        xp = array_namespace(features)
        distance = xp.abs(features)
        farthest = xp.argmax(distance, axis=1)
        rows = xp.arange(features.shape[0])
        is_positive = (features[rows, farthest] > 0).astype(np.int64)
        return xp.asarray(self.signs)[is_positive, farthest] * distance[rows, farthest]

    def describe(self, names: list[str]) -> str:
        """Name the kind of score."""
        if len(names) == 1:
            return f"the distance of {names[0]} from its centre"
        return f"the most extreme of {describe_coordinates(np.ones(len(names)), np.arange(len(names)), names)}"


def fit_outliers(training: TrainingData) -> list[Score]:
    """Return linear scores in the direction that separates the outliers, and the score of the most extreme feature."""
    features, z = training.innovations, training.pooled_innovations
    is_first = np.arange(len(z)) < len(training.first)
    scores: list[Score] = []
    if features.whiten is not None:
        distance = np.einsum("ij,ij->i", z, z)
        for number in OUTLIER_COUNTS:
            if number < len(z) // 8:
                far = np.argpartition(distance, -number)[-number:]
                means = [z[far[is_first[far] == side]].sum(0) / number for side in (True, False)]
                scores.append(Linear(features.whiten.T @ (means[0] - means[1])))
    if 1 < z.shape[1] <= MAX_SINGLE_COORDINATES:
        scores.append(Extreme(features, _outlier_signs(z, is_first, OUTLIER_COUNTS[-1])))
    return scores


def _outlier_signs(z: np.ndarray, is_first: np.ndarray, number: int) -> np.ndarray:
    """Return to which dataset the outliers of every feature belong, at either end; 1 without outliers."""
    farthest = np.concatenate([np.abs(z[i : i + RUNS_PER_PIECE]).argmax(1) for i in range(0, len(z), RUNS_PER_PIECE)])
    size = np.abs(z[np.arange(len(z)), farthest])
    number = min(number * z.shape[1], len(z) // 8)
    far = np.argpartition(size, -number)[-number:]
    is_positive = (z[far, farthest[far]] > 0).astype(np.int64)
    votes = np.zeros((2, z.shape[1]))
    # A farther outlier has more weight, because nearer ones also occur without a leak.
    np.add.at(votes, (is_positive, farthest[far]), np.where(is_first[far], 1.0, -1.0) * size[far] ** 4)
    return np.where(votes < 0, -1.0, 1.0)


def outlier_learners(training: TrainingData) -> list[Learner]:
    """Return the learner of scores for rare leaks."""
    return [Learner(lambda: fit_outliers(training))]
