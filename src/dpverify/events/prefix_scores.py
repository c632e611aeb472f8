"""Scores of all prefixes of an output at once (docs/method.md, section 5.12).

A prefix of an output consists of its first steps. The log-likelihood ratio of a prefix is the sum over its coordinates
of the log-ratios given the earlier coordinates. A kind of this module therefore computes one term per coordinate, and
the score of a prefix is the sum of the terms of its coordinates. All prefixes cost hardly more than the whole output.

Like every score, these are plain data and are evaluated with NumPy or JAX. Each kind has the methods `values(flat)`,
which maps outputs of shape (runs, steps * dimensions) to scores of shape (runs, steps), `n_parameters_at(step)` and
`describe()`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from dpverify.events.partition import pad_rows, repeated_values
from dpverify.events.scores.additive import Additive, Binning, coordinate_binning, fit_additive, make_binning
from dpverify.events.scores.base import Features
from dpverify.events.scores.moments import MAX_QUADRATIC_COORDINATES, MIN_RUNS_PER_COORDINATE, RIDGE
from dpverify.events.scores.training import TrainingData, bin_edges, clip_tails, covariance
from dpverify.util.arrays import Array, array_namespace, contiguous_transpose, evaluate_method, multiply_rows

FIXED_POINT = 1 << 20  # innovations are summed as whole multiples of 1 / FIXED_POINT, so that sums are exact
NOISE_FACTOR = 2.0  # a weight below this many times its variance, squared, is set to 0


class LinearPrefixes(NamedTuple):
    """Weighted sums of the coordinates.

    Attributes
    ----------
    weights : ndarray of shape (J, K)
        The weights of all coordinates for each prefix; those of later coordinates are 0.
    """

    weights: np.ndarray

    def values(self, flat: Array) -> Array:
        """Return the scores as an array of shape (runs, steps)."""
        return multiply_rows(flat, self.weights)

    def n_parameters_at(self, step: int) -> int:
        """Return the number of weights that are not 0."""
        return int(np.count_nonzero(self.weights[:, step]))

    def describe(self) -> str:
        """Name the kind of score."""
        return "a linear score"


class GaussianPrefixes(NamedTuple):
    """Log-likelihood ratios of two Gaussian distributions.

    Attributes
    ----------
    first, second : Features
        The innovations under each dataset: independent, with mean 0 and variance 1 if the fitted moments are right.
    membership : ndarray of shape (J, K)
        1 where a coordinate belongs to a prefix, else 0.
    """

    first: Features
    second: Features
    membership: np.ndarray

    def values(self, flat: Array) -> Array:
        """Return the scores as an array of shape (runs, steps), up to a constant for each prefix."""
        terms = self.second.values(flat) ** 2 - self.first.values(flat) ** 2
        return multiply_rows(terms, self.membership / 2)

    def n_parameters_at(self, step: int) -> int:
        """Return the number of means and covariances of both datasets."""
        coordinates = int(self.membership[:, step].sum())
        return coordinates * (coordinates + 3)

    def describe(self) -> str:
        """Name the kind of score."""
        return "a quadratic score"


class AdditivePrefixes(NamedTuple):
    """Sums over features of step functions.

    Attributes
    ----------
    score : Additive
        The score of the whole output.
    membership : ndarray of shape (J', K)
        1 where a feature with a step function belongs to a prefix, else 0.
    """

    score: Additive
    membership: np.ndarray

    def values(self, flat: Array) -> Array:
        """Return the scores as an array of shape (runs, steps)."""
        bins = self.score.bins(self.score.features.values(flat))
        terms = [steps[own] for steps, own in zip(self.score.steps, bins, strict=True)]
        return multiply_rows(array_namespace(flat).stack(terms, 1), self.membership)

    def n_parameters_at(self, step: int) -> int:
        """Return the number of edges at which a step function changes."""
        changes = (self.score.steps[:, 1:] != self.score.steps[:, :-1]).sum(1)
        return int(changes @ self.membership[:, step])

    def describe(self) -> str:
        """Name the kind of score."""
        return "an additive score"


PREFIX_SCORE_KINDS = (LinearPrefixes, GaussianPrefixes, AdditivePrefixes)
AnyPrefixScores = LinearPrefixes | GaussianPrefixes | AdditivePrefixes


class PrefixScore(NamedTuple):
    """The score of one prefix.

    Attributes
    ----------
    scores : LinearPrefixes, GaussianPrefixes or AdditivePrefixes
        The scores of all prefixes.
    step : int
        The last step of the prefix.
    """

    scores: AnyPrefixScores
    step: int

    @property
    def n_parameters(self) -> int:
        """The number of fitted parameters."""
        return self.scores.n_parameters_at(self.step)

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        return self.scores.values(flat)[:, self.step]

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and the prefix."""
        return f"{self.scores.describe()} of the steps 0 to {self.step}"


def prefix_membership(coordinates: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return for each coordinate (rows) and prefix (columns) whether it belongs to the prefix, as 1 or 0.

    Examples
    --------
    >>> prefix_membership(np.arange(4), (2, 2)).tolist()
    [[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """
    steps, dimension = shape
    return (coordinates[:, None] // dimension <= np.arange(steps)).astype(float)


class InnovationSums(NamedTuple):
    """The sums of the clipped innovations over runs. As a statistic it is a table of whole numbers, which add exactly.

    Attributes
    ----------
    features : Features
        The innovations.
    low, high : ndarray of shape (J,)
        The limits of clipping.
    """

    features: Features
    low: np.ndarray
    high: np.ndarray

    def measure(self, samples: Array) -> np.ndarray:
        """Return the sums of a block of runs, in units of 1 / FIXED_POINT."""
        return evaluate_method(self, "sums", samples)

    def sums(self, samples: Array) -> Array:
        """Return the sums as an array on the device of the samples."""
        xp = array_namespace(samples)
        z = xp.clip(self.features.values(samples.reshape(samples.shape[0], -1)), self.low, self.high)
        return xp.rint(z * FIXED_POINT).astype(np.int64).sum(0)


class LinearPrefixLearner(NamedTuple):
    """Fits linear scores: the mean difference of the innovations, from all training runs."""

    statistic: InnovationSums
    shape: tuple[int, int]
    runs: int

    def fit(self, first: np.ndarray, second: np.ndarray) -> list[AnyPrefixScores]:
        """Return two scores: with the mean differences, and with those that are distinct from noise only."""
        difference = (first - second) / (self.runs * FIXED_POINT)
        variance = 2 / self.runs  # an innovation has variance 1 under each dataset
        signal = 1 - NOISE_FACTOR * variance / np.maximum(difference**2, 1e-300)
        shrunken = difference * np.maximum(signal, 0.0)
        whiten = self.statistic.features.whiten
        scores: list[AnyPrefixScores] = []
        for weights in (difference, shrunken):
            member = weights[:, None] * prefix_membership(np.arange(weights.size), self.shape)
            scores.append(LinearPrefixes(member if whiten is None else whiten.T @ member))
        return scores


class AdditivePrefixLearner(NamedTuple):
    """Fits additive scores, from the counts of all training runs in bins."""

    statistic: Binning
    shape: tuple[int, int]

    def fit(self, first: np.ndarray, second: np.ndarray) -> list[AnyPrefixScores]:
        """Return the scores with several resolutions of the bins."""
        additive = fit_additive(self.statistic, first, second)
        return [AdditivePrefixes(score, prefix_membership(score.coordinates, self.shape)) for score in additive]


PrefixLearner = LinearPrefixLearner | AdditivePrefixLearner


def prefix_learners(training: TrainingData, shape: tuple[int, int], runs: int) -> list[PrefixLearner]:
    """Return the learners that count all training runs.

    Parameters
    ----------
    training : TrainingData
        The training runs that are kept in memory.
    shape : tuple of int
        Steps and dimensions of one output.
    runs : int
        The number of training runs per dataset.
    """
    z = training.pooled_innovations
    clipped = clip_tails(z)
    sums = InnovationSums(training.innovations, clipped.min(0), clipped.max(0))
    learners: list[PrefixLearner] = [LinearPrefixLearner(sums, shape, runs)]
    binnings = [make_binning(training.innovations, z, training.atoms)]
    if training.has_atoms:
        binnings.append(coordinate_binning(training))
    differences = difference_binning(training, shape)
    if differences is not None:
        binnings.append(differences)
    return [*learners, *(AdditivePrefixLearner(binning, shape) for binning in binnings)]


def difference_binning(training: TrainingData, shape: tuple[int, int]) -> Binning | None:
    """Return bins of the differences between consecutive steps if such differences repeat, else None.

    A mechanism that releases its last output again has differences of 0.
    """
    matrix = np.eye(training.dimension) - np.eye(training.dimension, k=-shape[1])
    features = Features(np.zeros(training.dimension), matrix)
    columns = [np.sort(column) for column in contiguous_transpose(features.values(training.pooled))]
    atoms = [repeated_values(column) for column in columns]
    if not any(values.size for values in atoms[shape[1] :]):
        return None
    rows = [bin_edges(column, values, len(atoms)) for column, values in zip(columns, atoms, strict=True)]
    return Binning(features, pad_rows(rows))


def gaussian_prefixes(training: TrainingData, shape: tuple[int, int]) -> list[AnyPrefixScores]:
    """Return the quadratic score, from the moments of the kept training runs, or nothing in large dimensions."""
    features, dimension = training.innovations, training.dimension
    z1, z2 = training.clipped_innovations
    enough = min(len(z1), len(z2)) > MIN_RUNS_PER_COORDINATE * dimension
    if features.whiten is None or dimension > MAX_QUADRATIC_COORDINATES or not enough:
        return []

    def fit(z: np.ndarray) -> Features:
        factor = np.linalg.cholesky(covariance(z) + RIDGE * np.eye(dimension))
        whiten = scipy.linalg.solve_triangular(factor, features.whiten, lower=True)
        centre = features.mean + scipy.linalg.solve_triangular(features.whiten, z.mean(0), lower=True)
        return Features(centre, whiten)

    assert features.whiten is not None
    return [GaussianPrefixes(fit(z1), fit(z2), prefix_membership(np.arange(dimension), shape))]
