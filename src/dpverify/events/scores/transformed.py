"""Scores of a transformed output: order statistics, distances, angles, and rotations of either sign.

A transform removes what does not matter (the order of exchangeable records, the sign of a quaternion) or makes visible
what matters (the distance from the centre of a heavy-tailed distribution). Any other score is then fitted to its
result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.events.scores.additive import additive_learners
from dpverify.events.scores.base import Score, count_numbers
from dpverify.events.scores.moments import gaussian_learners
from dpverify.events.scores.piecewise import piecewise_learners
from dpverify.events.scores.training import Learner, TrainingData, summarise
from dpverify.events.scores.transforms import Circular, Distances, Folded, LowBits, OrderStatistics
from dpverify.util.arrays import Array

MAX_TRANSFORM_RUNS = 1 << 15  # training runs per data set
MIN_BINNED_RUNS = 1 << 12  # training runs per data set; with fewer runs only moments are used
MAX_SORTED_COORDINATES = 64
PERIODS = (2 * np.pi, 360.0, 1.0, 24.0)  # radians, degrees, turns, hours
WRAPPED_SHARE = 0.02  # of the period at either end, where an angle has values if it is wrapped
UNIT_TOLERANCE = 1e-6  # of the norm of a unit quaternion
EXCHANGEABLE_TOLERANCE = 6.0  # standard errors between the means of exchangeable coordinates


class Transformed(NamedTuple):
    """A score of a transformed output.

    Attributes
    ----------
    transform : OrderStatistics, Distances, Circular, Folded or LowBits
        The transform.
    score : Score
        The score of the result.
    """

    transform: OrderStatistics | Distances | Circular | Folded | LowBits
    score: Score

    @property
    def n_parameters(self) -> int:
        """The number of parameters of the inner score."""
        return self.score.n_parameters

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        return self.score.values(self.transform.values(flat))

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and the transform."""
        return f"a score of {self.transform.describe()} of {count_numbers(names)}"


class TransformedLearner(NamedTuple):
    """Fits the usual scores to transformed outputs."""

    training: TrainingData
    transform: OrderStatistics | Distances | Circular | Folded

    @property
    def statistic(self) -> None:
        """Nothing is counted: the kept runs are enough."""
        return None

    def fit(self, first: np.ndarray | None, second: np.ndarray | None) -> list[Score]:
        """Return the fitted scores."""
        kept = [side[:MAX_TRANSFORM_RUNS] for side in (self.training.first, self.training.second)]
        sides = [self.transform.values(side) for side in kept]
        training = summarise([side[:, None] for side in sides])
        learners = gaussian_learners(training)
        if len(sides[0]) >= MIN_BINNED_RUNS:
            learners += [*additive_learners(training), *piecewise_learners(training)]
        scores: list[Score] = []
        for learner in learners:
            tables = (None, None)
            if learner.statistic is not None:
                tables = learner.statistic.measure(sides[0]), learner.statistic.measure(sides[1])
            scores += learner.fit(*tables)
        return [Transformed(self.transform, score) for score in scores]


def transformed_learners(training: TrainingData) -> list[Learner]:
    """Return learners for the transforms that suit the outputs."""
    if training.dimension == 1:
        return []
    transforms = [make_circular(training), make_folded(training), make_order(training), make_distances(training)]
    return [TransformedLearner(training, transform) for transform in transforms if transform is not None]


def make_order(training: TrainingData) -> OrderStatistics | None:
    """Return the order statistics if the coordinates of each data set look exchangeable."""
    if training.dimension > MAX_SORTED_COORDINATES:
        return None
    for side in (training.first, training.second):
        side = side[:MAX_TRANSFORM_RUNS]
        for values in (side, (side - side.mean(0)) ** 2):
            means, errors = values.mean(0), values.std(0) / np.sqrt(len(values))
            if np.ptp(means) > EXCHANGEABLE_TOLERANCE * errors.max():
                return None
    return OrderStatistics(np.arange(training.dimension))


def make_distances(training: TrainingData) -> Distances | None:
    """Return the distances from the centres of both data sets and from their middle."""
    if not training.can_be_whitened:
        return None
    centres = [side.mean(0) for side in training.clipped_innovations]
    return Distances(training.innovations, np.stack(centres))


def make_circular(training: TrainingData) -> Circular | None:
    """Return cosines and sines of the coordinates that fill a period and have values at both of its ends."""
    flat = training.pooled[:: max(1, len(training.pooled) // MAX_TRANSFORM_RUNS)]
    low, high = training.pooled.min(0), training.pooled.max(0)
    angles, frequencies = [], []
    for j in range(training.dimension):
        for period in PERIODS:
            start = 0.0 if low[j] >= 0 else -period / 2
            inside = low[j] >= start - 1e-9 and high[j] <= start + period + 1e-9
            turn = (flat[:, j] - start) / period
            if inside and (turn < WRAPPED_SHARE).any() and (turn > 1 - WRAPPED_SHARE).any():
                angles.append(j)
                frequencies.append(2 * np.pi / period)
                break
    if not angles or all(map(len, training.atoms)):
        return None
    others = np.setdiff1d(np.arange(training.dimension), angles)
    return Circular(np.array(angles), others, np.array(frequencies))


def make_folded(training: TrainingData) -> Folded | None:
    """Return quaternions of one sign if the coordinates of each step, or the first four of it, have norm 1."""
    steps, dimension = training.shape
    flat = training.pooled[:: max(1, len(training.pooled) // MAX_TRANSFORM_RUNS)]
    rows, axes = [], []
    for step in range(steps if dimension >= 4 else 0):
        for start in range(0, dimension - 3, 4):
            row = step * dimension + start + np.arange(4)
            q = flat[:, row]
            if np.abs((q**2).sum(1) - 1).max() < UNIT_TOLERANCE:
                rows.append(row)
                axes.append(np.linalg.eigh(q.T @ q)[1][:, -1])
    if not rows:
        return None
    others = np.setdiff1d(np.arange(training.dimension), np.concatenate(rows))
    return Folded(np.stack(rows), np.stack(axes), others)
