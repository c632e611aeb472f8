"""Scores from moments: the log-likelihood ratio of two Gaussian distributions.

`Linear` assumes one common covariance, `Quadratic` one covariance per data set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.events.scores.base import Features, Linear, Score, count_numbers
from dpverify.events.scores.training import Learner, TrainingData, covariance
from dpverify.util.arrays import Array, multiply_rows
from dpverify.util.exact_edges import exact_edges, quadratic_edges

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

    def interval_edges(self, edges: np.ndarray) -> np.ndarray | None:
        """Return the numbers between which the score of a scalar output lies between the same edges."""
        if self.features.mean.size != 1 or self.weights.size != 1:
            return None
        roots = quadratic_edges(float(self.weights[0]), float(self.matrix[0, 0]), edges)
        whiten = self.features.whiten
        if roots is None or not roots.size or whiten is None:
            return roots
        scale = float(whiten[0, 0])
        if not scale:
            return None

        def is_right(x: np.ndarray) -> np.ndarray:
            z = self.features.values(x[:, None])[:, 0]
            return z > roots if scale > 0 else z <= roots

        with np.errstate(over="ignore"):
            exact = exact_edges(is_right, roots / scale + self.features.mean[0])
        return None if exact is None else np.unique(exact)

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and its coordinates."""
        return f"a quadratic score of {count_numbers(names)}"


class GaussianLearner(NamedTuple):
    """Fits the linear and, in moderate dimensions, the quadratic score from the moments of the innovations."""

    training: TrainingData

    @property
    def statistic(self) -> None:
        """Nothing is counted: the kept runs give the moments."""
        return None

    def fit(self, first: np.ndarray | None, second: np.ndarray | None) -> list[Score]:
        """Return the fitted scores."""
        features = self.training.innovations
        z1, z2 = self.training.clipped_innovations
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
    """Return the log-ratio of two Gaussians with the moments of the features of both data sets."""
    ridge = RIDGE * np.eye(z1.shape[1])
    precision1, precision2 = (np.linalg.inv(covariance(z) + ridge) for z in (z1, z2))
    weights = precision1 @ z1.mean(0) - precision2 @ z2.mean(0)
    return Quadratic(features, weights, (precision2 - precision1) / 2)


def gaussian_learners(training: TrainingData) -> list[Learner]:
    """Return the learner of Gaussian log-likelihood ratios."""
    return [GaussianLearner(training)]
