"""Scores of a transformed output: order statistics, distances, angles, and rotations of either sign.

A transform removes what does not matter (the order of exchangeable records, the sign of a quaternion) or makes visible
what matters (the distance from the centre of a heavy-tailed distribution). Any other score is then fitted to its
result.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from dpverify.events.scores.additive import AdditiveLearner, additive_learners
from dpverify.events.scores.base import Features, Learner, Score, TrainingData, summarise
from dpverify.events.scores.moments import gaussian_learners
from dpverify.events.scores.piecewise import piecewise_learners
from dpverify.util.arrays import Array, array_namespace

MAX_TRANSFORM_RUNS = 1 << 15  # training runs per data set
MAX_SORTED_COORDINATES = 64
PERIODS = (2 * np.pi, 360.0, 1.0, 24.0)  # radians, degrees, turns, hours
WRAPPED_SHARE = 0.02  # of the period at either end, where an angle has values if it is wrapped
UNIT_TOLERANCE = 1e-6  # of the norm of a unit quaternion
EXCHANGEABLE_TOLERANCE = 6.0  # standard errors between the means of exchangeable coordinates


class Transform(Protocol):
    """A function of the output that is plain data."""

    def values(self, flat: Array, /) -> Array:
        """Return the transformed outputs, one row per run."""
        ...


class OrderStatistics(NamedTuple):
    """The sorted coordinates.

    Attributes
    ----------
    coordinates : ndarray of shape (J,)
        The coordinates.
    """

    coordinates: np.ndarray

    def values(self, flat: Array) -> Array:
        """Return the sorted coordinates of every run."""
        return array_namespace(flat).sort(flat[:, self.coordinates], axis=1)


class Distances(NamedTuple):
    """Logarithms of one plus the squared distances from some centres.

    Attributes
    ----------
    features : Features
        The features in which distances are measured.
    centres : ndarray of shape (C, F)
        The centres.
    """

    features: Features
    centres: np.ndarray

    def values(self, flat: Array) -> Array:
        """Return one number per run and centre."""
        xp, z = array_namespace(flat), self.features.values(flat)
        return xp.stack([xp.log1p(((z - centre) ** 2).sum(1)) for centre in self.centres], axis=1)


class Circular(NamedTuple):
    """The cosines and sines of angles, and all other coordinates as they are.

    Attributes
    ----------
    angles, others : ndarray of int
        The coordinates that are angles, and the others.
    frequencies : ndarray
        The factor that converts each angle to radians.
    """

    angles: np.ndarray
    others: np.ndarray
    frequencies: np.ndarray

    def values(self, flat: Array) -> Array:
        """Return cosines, sines and the other coordinates."""
        xp = array_namespace(flat)
        turned = flat[:, self.angles] * self.frequencies
        return xp.concatenate([xp.cos(turned), xp.sin(turned), flat[:, self.others]], axis=1)


class Folded(NamedTuple):
    """Unit quaternions with the sign for which they are close to an axis, and all other coordinates as they are.

    Attributes
    ----------
    quaternions : ndarray of shape (Q, 4)
        The coordinates of each quaternion.
    axes : ndarray of shape (Q, 4)
        The axis of each quaternion.
    others : ndarray of int
        The other coordinates.
    """

    quaternions: np.ndarray
    axes: np.ndarray
    others: np.ndarray

    def values(self, flat: Array) -> Array:
        """Return the quaternions with a sign that does not depend on the run, and the other coordinates."""
        xp = array_namespace(flat)
        parts = []
        for row in range(self.quaternions.shape[0]):
            q = flat[:, self.quaternions[row]]
            parts.append(q * xp.where(q @ self.axes[row] < 0, -1.0, 1.0)[:, None])
        return xp.concatenate([*parts, flat[:, self.others]], axis=1)


class Transformed(NamedTuple):
    """A score of a transformed output.

    Attributes
    ----------
    transform : OrderStatistics, Distances, Circular or Folded
        The transform.
    score : Score
        The score of the result.
    """

    transform: OrderStatistics | Distances | Circular | Folded
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
        words = {
            OrderStatistics: "the sorted coordinates",
            Distances: "distances from the centres of the data sets",
            Circular: "cosines and sines of angles",
            Folded: "quaternions up to their sign",
        }
        return f"a score of {words[type(self.transform)]} of {len(names)} coordinates"


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
        learners = [*gaussian_learners(training), *additive_learners(training), *piecewise_learners(training)]
        scores: list[Score] = []
        for learner in learners:
            tables = (None, None)
            if isinstance(learner, AdditiveLearner):
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
