"""Piecewise linear additive scores, fitted jointly over all features by logistic regression."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array, vstack
from scipy.special import expit

from dpverify.events.partition import find_atoms, pad_rows
from dpverify.events.scores.additive import suitable_features
from dpverify.events.scores.base import Features, Learner, Score, TrainingData, describe_coordinates
from dpverify.util.arrays import Array, array_namespace, contiguous_transpose, digitize

KNOT_QUANTILES = (0.0005, 0.005, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.995, 0.9995)
RIDGE_RUNS = 5.0  # the penalty of a height has the weight of this many runs
MAX_FIT_NUMBERS = 1 << 19  # per data set
MIN_FIT_RUNS = 1000
MAX_FIT_ITERATIONS = 60


class Located(NamedTuple):
    """Where the values of one feature lie between the knots."""

    right: Array  # the knot to the right
    share: Array  # the position between the left (0) and the right (1) knot
    is_atom: Array
    atom: Array  # the index of the atom


class Piecewise(NamedTuple):
    """A sum over features of piecewise linear functions, constant beyond the outermost knots; atoms have own heights.

    Attributes
    ----------
    features : Features
        The features of a run.
    knots, heights : ndarray of shape (J, E)
        The increasing knots of each feature and the function's values there.
    atoms, atom_heights : ndarray of shape (J, A)
        The sorted atoms of each feature, padded with infinity, and the function's values there.
    """

    features: Features
    knots: np.ndarray
    heights: np.ndarray
    atoms: np.ndarray
    atom_heights: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of heights."""
        return self.heights.size + self.atom_heights.size

    def locate(self, z: Array, j: int) -> Located:
        """Locate the values of feature j between its knots."""
        xp = array_namespace(z)
        knots, atoms = self.knots[j], self.atoms[j]
        right = xp.clip(digitize(knots, z), 1, knots.shape[0] - 1)
        share = xp.clip((z - knots[right - 1]) / (knots[right] - knots[right - 1]), 0.0, 1.0)
        atom = xp.clip(xp.searchsorted(atoms, z), 0, atoms.shape[0] - 1)
        return Located(right, share, atoms[atom] == z, atom)

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        xp = array_namespace(flat)
        total = 0.0
        for j, z in enumerate(contiguous_transpose(self.features.values(flat))):
            right, share, is_atom, atom = self.locate(z, j)
            low, high = self.heights[j][right - 1], self.heights[j][right]
            total = total + xp.where(is_atom, self.atom_heights[j][atom], low + share * (high - low))
        return total  # type: ignore[return-value]

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and its coordinates."""
        weights = np.ptp(self.heights, axis=1) + np.ptp(self.atom_heights, axis=1)
        return f"a piecewise linear score of {describe_coordinates(weights, np.arange(len(self.knots)), names)}"


class PiecewiseLearner(NamedTuple):
    """Fits a piecewise linear score jointly over all features.

    Counting treats every coordinate separately and counts shared information twice if coordinates are dependent. A
    joint fit does not. A function that is linear between knots also extrapolates from frequent to rare values.
    """

    training: TrainingData
    features: Features

    @property
    def statistic(self) -> None:
        """Nothing is counted: the fit uses the kept runs."""
        return None

    def fit(self, first: np.ndarray | None, second: np.ndarray | None) -> list[Score]:
        """Return the fitted score."""
        return [fit_piecewise(self.features, self.training.first, self.training.second)]


def piecewise_learners(training: TrainingData) -> list[Learner]:
    """Return learners for several coordinates. For one coordinate counting is as good, and faster.

    Very many coordinates have more parameters than training runs are kept.
    """
    if training.dimension == 1 or not training.can_be_whitened:
        return []
    return [PiecewiseLearner(training, features) for features in suitable_features(training)]


def fit_piecewise(features: Features, first: np.ndarray, second: np.ndarray) -> Piecewise:
    """Fit the heights by penalised logistic regression of the data set on the features."""
    runs = max(MIN_FIT_RUNS, MAX_FIT_NUMBERS // first.shape[1])
    sides = [features.values(side[:runs]).T for side in (first, second)]
    initial = _with_zero_heights(features, np.concatenate(sides, axis=1))
    n_heights = initial.heights.size
    signed = [sign * _design(initial, side) for sign, side in zip((1, -1), sides, strict=True)]
    design = vstack(signed, format="csr")
    transposed = design.T.tocsr()

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        margin = design @ parameters
        value = np.logaddexp(0.0, -margin).sum() + 0.5 * RIDGE_RUNS * (parameters @ parameters)
        gradient = RIDGE_RUNS * parameters - transposed @ expit(-margin)
        return value / len(margin), gradient / len(margin)

    start = np.zeros(n_heights + initial.atoms.size)
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_FIT_ITERATIONS}).x
    return initial._replace(
        heights=fitted[:n_heights].reshape(initial.heights.shape),
        atom_heights=fitted[n_heights:].reshape(initial.atoms.shape),
    )


def _with_zero_heights(features: Features, pooled: np.ndarray) -> Piecewise:
    """Return the score with knots at quantiles of the features, shape (J, runs), and all heights 0."""
    atoms = find_atoms(pooled.T) if features.whiten is None else [np.zeros(0)] * len(pooled)
    knots = []
    for z, values in zip(pooled, atoms, strict=True):
        continuous = z[~np.isin(z, values)] if len(values) else z
        quantiles = np.unique(np.quantile(continuous, KNOT_QUANTILES)) if continuous.size else np.zeros(1)
        if quantiles.size < len(KNOT_QUANTILES):  # few distinct values: equally spaced knots
            end = max(quantiles[-1], quantiles[0] + 1)
            quantiles = np.linspace(quantiles[0], end, len(KNOT_QUANTILES))
        knots.append(quantiles)
    atom_table = pad_rows(atoms, least=1)
    heights = np.zeros((len(pooled), len(KNOT_QUANTILES)))
    return Piecewise(features, np.stack(knots), heights, atom_table, np.zeros(atom_table.shape))


def _design(score: Piecewise, features: np.ndarray) -> csr_array:
    """Return the matrix that maps heights to the score of every run; `features` has shape (J, runs)."""
    knots, atoms, entries = score.heights, score.atom_heights, []
    for j, z in enumerate(features):
        right, share, is_atom, atom = score.locate(np.ascontiguousarray(z), j)
        entries += [(j * knots.shape[1] + right - 1, np.where(is_atom, 0.0, 1 - share))]
        entries += [(j * knots.shape[1] + right, np.where(is_atom, 0.0, share))]
        if is_atom.any():
            column = knots.size + j * atoms.shape[1] + np.where(is_atom, atom, 0)
            entries += [(column, is_atom.astype(float))]
    columns, values = (np.stack(part, axis=1).ravel() for part in zip(*entries, strict=True))
    row_ends = np.arange(features.shape[1] + 1) * len(entries)
    return csr_array((values, columns, row_ends), shape=(features.shape[1], knots.size + atoms.size))
