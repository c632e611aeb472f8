"""Scores from moments: the log-likelihood ratio of two Gaussian distributions.

`Linear` assumes one common covariance, `Quadratic` one covariance per dataset.

Scores from the covariances of many coordinates: a few projections, or a banded matrix.

The full covariances of hundreds of coordinates have more parameters than the training runs can determine. Two kinds of
structure are common. A few directions have different variances, or each coordinate depends on the ones shortly before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.events.scores.base import Features, Linear, Score, count_numbers
from dpverify.events.scores.training import Learner, TrainingData, clip_tails, covariance
from dpverify.util.arrays import Array, multiply_rows

MAX_QUADRATIC_COORDINATES = 64
MIN_RUNS_PER_COORDINATE = 10  # for a covariance
RIDGE = 1e-6  # added to the variances of the whitened features


class Quadratic(NamedTuple):
    """A quadratic function of the features.

    Attributes
    ----------
    features : Features
        The features z of a run.
    weights : ndarray of shape (J,)
        The linear coefficients.
    matrix : ndarray of shape (J, J)
        The quadratic coefficients.
    """

    features: Features
    weights: np.ndarray
    matrix: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of coefficients."""
        return self.weights.size + self.matrix.size

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        return self.values_of_features(self.features.values(flat))

    def values_of_features(self, features: Array) -> Array:
        """Return one number per run, given its features."""
        return ((multiply_rows(features, self.matrix) + self.weights) * features).sum(-1)

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and its coordinates."""
        return f"a quadratic score of {count_numbers(names)}"


def fit_gaussian(training: TrainingData) -> list[Score]:
    """Return the linear and, in moderate dimensions, the quadratic score from the moments of the innovations."""
    features = training.innovations
    z1, z2 = training.clipped_innovations
    difference = z1.mean(0) - z2.mean(0)
    if features.whiten is None:  # very many coordinates: their correlation is not used
        variance = (z1.var(0) + z2.var(0)) / 2
        return [Linear(np.divide(difference, variance, out=np.zeros_like(variance), where=variance > 0))]
    scores: list[Score] = [Linear(features.whiten.T @ difference)]
    dimension = z1.shape[1]
    if dimension <= MAX_QUADRATIC_COORDINATES and min(len(z1), len(z2)) > MIN_RUNS_PER_COORDINATE * dimension:
        scores.append(fit_quadratic(features, z1, z2))
    return scores


def fit_quadratic(features: Features, z1: np.ndarray, z2: np.ndarray) -> Quadratic:
    """Return the log-ratio of two Gaussians with the moments of the features of both datasets."""
    ridge = RIDGE * np.eye(z1.shape[1])
    precision1, precision2 = (np.linalg.inv(covariance(z) + ridge) for z in (z1, z2))
    weights = precision1 @ z1.mean(0) - precision2 @ z2.mean(0)
    return Quadratic(features, weights, (precision2 - precision1) / 2)


def gaussian_learners(training: TrainingData) -> list[Learner]:
    """Return the learner of Gaussian log-likelihood ratios."""
    return [Learner(lambda: fit_gaussian(training))]


MIN_COVARIANCE_RUNS = 2  # training runs per coordinate and dataset
MAX_DIRECTIONS = 24
LAGS = (1, 4)  # earlier steps on which a step depends
EDGE_MARGIN = 1.15  # by which an eigenvalue has to exceed the largest one that noise explains
SUFFICIENT_RUNS = 1 << 14  # training runs per dataset that estimate a covariance


class Banded(NamedTuple):
    """A quadratic function in which only coordinates that are close to each other are multiplied.

    Attributes
    ----------
    mean : ndarray of shape (J,)
        Subtracted from the coordinates.
    weights : ndarray of shape (J,)
        The linear coefficients.
    bands : ndarray of shape (B, J)
        The coefficient of the product of coordinate j and coordinate j - b, in row b.
    """

    mean: np.ndarray
    weights: np.ndarray
    bands: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of distinct coefficients."""
        return int(np.unique(self.bands).size + np.unique(self.weights).size)

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        y = flat - self.mean
        total = (y * (y * self.bands[0] + self.weights)).sum(-1)
        for b in range(1, self.bands.shape[0]):
            total = total + (y[:, b:] * y[:, :-b] * self.bands[b, b:]).sum(-1)
        return total

    def describe(self, names: list[str]) -> str:
        """Name the kind of score."""
        return f"a quadratic score of neighbouring coordinates of {len(names)}"


def fit_covariances(training: TrainingData) -> list[Score]:
    """Return the quadratic scores with few parameters that the covariances of the kept runs support."""
    scores: list[Score] = []
    features = different_directions(training)
    if features is not None:
        scores.append(fit_quadratic(features, *training.features_of_sides(features)))
    steps, dimension = training.shape
    if steps > 2:
        sides = [clip_tails(side[:SUFFICIENT_RUNS]) for side in (training.first, training.second)]
        moments = [(side.mean(0), covariance(side)) for side in sides]
        for lag in LAGS:
            scores.append(fit_banded(moments, lag * dimension + dimension - 1))
        averaged = [average_steps(*moment, dimension) for moment in moments]
        scores.append(fit_banded(averaged, LAGS[-1] * dimension + dimension - 1))
    return scores


def different_directions(training: TrainingData) -> Features | None:
    """Return the projections whose variances differ by more than noise explains; None if there are none."""
    z1, z2 = training.clipped_innovations
    runs = min(len(z1), len(z2))
    difference = covariance(z1) - covariance(z2)
    values, vectors = np.linalg.eigh(difference)
    # The largest eigenvalue of the difference of two sample covariances of white noise (free probability).
    share = z1.shape[1] / runs
    edge = EDGE_MARGIN * (2 * np.sqrt(2 * share) + 2 * share)
    kept = np.argsort(-np.abs(values), kind="stable")[:MAX_DIRECTIONS]
    kept = kept[np.abs(values[kept]) > edge]
    whiten = training.innovations.whiten
    if not kept.size or whiten is None:
        return None
    mean = z1.mean(0) - z2.mean(0)  # the direction in which the means differ
    directions = np.vstack([vectors[:, kept].T, mean / max(float(np.linalg.norm(mean)), 1e-300)])
    return Features(training.innovations.mean, directions @ whiten)


def fit_banded(moments: list[tuple[np.ndarray, np.ndarray]], bandwidth: int) -> Banded:
    """Return the log-ratio of two Gaussians, in each of which a coordinate depends on the few before it."""
    (mean1, first), (mean2, second) = moments
    mean = (mean1 + mean2) / 2
    bands1, bands2 = (banded_precision(matrix, bandwidth) for matrix in (first, second))
    half = (mean1 - mean2) / 2
    weights = multiply_bands(bands1, half) + multiply_bands(bands2, half)
    bands = (bands2 - bands1) / 2
    bands[1:] *= 2  # both triangles
    return Banded(mean, weights, bands)


def banded_precision(matrix: np.ndarray, bandwidth: int) -> np.ndarray:
    """Return the bands of the precision matrix if every coordinate depends on so many coordinates before it."""
    number = len(matrix)
    bandwidth = min(bandwidth, number - 1)
    # Row j of `near` holds the coordinates j - bandwidth to j; those before the first one are replaced by white noise.
    near = np.arange(number)[:, None] + np.arange(-bandwidth, 1)
    outside = near < 0
    blocks = matrix[np.maximum(near, 0)[:, :, None], np.maximum(near, 0)[:, None, :]]
    blocks[outside[:, :, None] | outside[:, None, :]] = 0.0
    diagonal = np.arange(bandwidth + 1)
    scale = np.diag(matrix).mean() or 1.0
    blocks[:, diagonal, diagonal] += np.where(outside, scale, RIDGE * scale)
    unit = np.zeros((number, bandwidth + 1, 1))
    unit[:, -1] = 1.0
    last = np.linalg.solve(blocks, unit)[:, :, 0]  # the last column of the inverse of each block
    rows = last / np.sqrt(last[:, -1:])  # coefficients of the innovation, over its standard deviation
    bands = np.zeros((bandwidth + 1, number))
    for b in range(bandwidth + 1):
        for i in range(b, bandwidth + 1):
            product = rows[:, i] * rows[:, i - b]  # contributes to coordinate j - bandwidth + i
            shift = bandwidth - i
            bands[b, : number - shift] += product[shift:]
    return bands


def multiply_bands(bands: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the product of a symmetric banded matrix and a vector."""
    result = bands[0] * x
    for b in range(1, len(bands)):
        result[b:] += bands[b, b:] * x[:-b]
        result[:-b] += bands[b, b:] * x[b:]
    return result


def average_steps(mean: np.ndarray, matrix: np.ndarray, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the moments averaged over steps, as for a stationary process."""
    steps = len(mean) // dimension
    blocks = matrix.reshape(steps, dimension, steps, dimension).transpose(0, 2, 1, 3)
    averaged = np.zeros_like(blocks)
    for lag in range(min(steps, LAGS[-1] + 1)):
        later, earlier = np.arange(lag, steps), np.arange(steps - lag)
        block = blocks[later, earlier].mean(0)
        averaged[later, earlier] = block
        averaged[earlier, later] = block.T
    return np.tile(mean.reshape(steps, dimension).mean(0), steps), averaged.transpose(0, 2, 1, 3).reshape(matrix.shape)


def covariance_learners(training: TrainingData) -> list[Learner]:
    """Return the learner if the full quadratic score does not apply, and there are enough runs for covariances."""
    runs = min(len(training.first), len(training.second))
    fits = training.can_be_whitened and runs > MIN_COVARIANCE_RUNS * training.dimension
    is_large = training.dimension > MAX_QUADRATIC_COORDINATES
    return [Learner(lambda: fit_covariances(training))] if fits and is_large else []
