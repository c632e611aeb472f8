"""Piecewise linear additive scores, fitted jointly over all features by logistic regression."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import scipy

from dpverify.events.partition import find_atoms, pad_rows
from dpverify.events.scores.additive import suitable_features
from dpverify.events.scores.base import Features, Score, describe_coordinates
from dpverify.events.scores.training import Learner, TrainingData
from dpverify.util.arrays import Array, array_namespace, contiguous_transpose, digitize, digitize_columns

KNOT_QUANTILES = (0.0005, 0.005, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.995, 0.9995)
RIDGE_RUNS = 5.0  # the penalty of a height has the weight of this many runs
MAX_FIT_NUMBERS = 1 << 19  # per data set
MIN_FIT_RUNS = 1000
RUNS_PER_PIECE = 1024  # of the design, so that intermediate results stay in the processor's caches
MAX_FIT_ITERATIONS = 60
LOSS_TOLERANCE = 1e-5  # relative; a smaller improvement of the loss is far below its statistical error


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
        return self.values_of_features(self.features.values(flat))

    def values_of_features(self, features: Array) -> Array:
        """Return one number per run, given its features."""
        xp = array_namespace(features)
        if xp is np and not np.isfinite(self.atoms).any():
            return self._values_without_atoms(features)
        total = 0.0
        for j, z in enumerate(contiguous_transpose(features)):
            right, share, is_atom, atom = self.locate(z, j)
            low, high = self.heights[j][right - 1], self.heights[j][right]
            total = total + xp.where(is_atom, self.atom_heights[j][atom], low + share * (high - low))
        return total  # type: ignore[return-value]

    def _values_without_atoms(self, features: np.ndarray) -> np.ndarray:
        """Return one number per run: in each piece the value at its left knot plus a slope times the distance."""
        slopes = np.pad(np.diff(self.heights) / np.diff(self.knots), ((0, 0), (1, 1)))
        left, low = (np.concatenate([table[:, :1], table], axis=1) for table in (self.knots, self.heights))
        pieces = digitize_columns(self.knots, features) + slopes.shape[1] * np.arange(len(slopes))
        values = features - left.ravel().take(pieces)
        values *= slopes.ravel().take(pieces)
        values += low.ravel().take(pieces)
        return values.sum(1)

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and its coordinates."""
        weights = np.ptp(self.heights, axis=1) + np.ptp(self.atom_heights, axis=1)
        return f"a piecewise linear score of {describe_coordinates(weights, np.arange(len(self.knots)), names)}"


def piecewise_learners(training: TrainingData) -> list[Learner]:
    """Return learners for several coordinates. For one coordinate counting is as good, and faster.

    Counting treats every coordinate separately and counts shared information twice if coordinates are dependent. A
    joint fit does not. A function that is linear between knots also extrapolates from frequent to rare values. Very
    many coordinates have more parameters than training runs are kept.
    """
    if training.dimension == 1 or not training.can_be_whitened:
        return []

    def fit(features: Features) -> list[Score]:
        return [fit_piecewise(features, *training.features_of_sides(features))]

    return [Learner(functools.partial(fit, features)) for features in suitable_features(training)]


def fit_piecewise(features: Features, first: np.ndarray, second: np.ndarray) -> Piecewise:
    """Fit the heights by penalised logistic regression of the data set on the features, of shape (runs, J)."""
    runs = max(MIN_FIT_RUNS, MAX_FIT_NUMBERS // first.shape[1])
    sides = first[:runs], second[:runs]
    initial = _with_zero_heights(features, np.concatenate(sides))
    n_heights = initial.heights.size
    signs = np.repeat([1.0, -1.0], [len(side) for side in sides])
    design = _design(initial, np.concatenate(sides), signs)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        margin = design @ parameters
        value = np.logaddexp(0.0, -margin).sum() + 0.5 * RIDGE_RUNS * (parameters @ parameters)
        gradient = RIDGE_RUNS * parameters - design.T @ scipy.special.expit(-margin)
        return value / len(margin), gradient / len(margin)

    start = np.append(_linear_heights(initial.knots, *sides), np.zeros(initial.atoms.size))
    options = {"maxiter": MAX_FIT_ITERATIONS, "ftol": LOSS_TOLERANCE}
    fitted = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return initial._replace(
        heights=fitted[:n_heights].reshape(initial.heights.shape),
        atom_heights=fitted[n_heights:].reshape(initial.atoms.shape),
    )


def _linear_heights(knots: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the heights of the linear score of features that are treated as independent, as a first guess."""
    clipped = [np.clip(side, knots[:, 0], knots[:, -1]) for side in (first, second)]
    means = [side.mean(0) for side in clipped]
    variance = (clipped[0].var(0) + clipped[1].var(0)) / 2
    slope = (means[0] - means[1]) / np.maximum(variance, np.finfo(float).tiny)
    return (slope[:, None] * (knots - (means[0] + means[1])[:, None] / 2)).ravel()


def _with_zero_heights(features: Features, pooled: np.ndarray) -> Piecewise:
    """Return the score with knots at quantiles of the features, shape (runs, J), and all heights 0."""
    columns = contiguous_transpose(pooled)
    atoms = find_atoms(pooled) if features.whiten is None else [np.zeros(0)] * len(columns)
    knots = []
    for z, values in zip(columns, atoms, strict=True):
        continuous = z[~np.isin(z, values)] if len(values) else z
        quantiles = np.unique(np.quantile(continuous, KNOT_QUANTILES)) if continuous.size else np.zeros(1)
        if quantiles.size < len(KNOT_QUANTILES):  # few distinct values: equally spaced knots
            end = max(quantiles[-1], quantiles[0] + 1)
            quantiles = np.linspace(quantiles[0], end, len(KNOT_QUANTILES))
        knots.append(quantiles)
    atom_table = pad_rows(atoms, least=1)
    heights = np.zeros((len(columns), len(KNOT_QUANTILES)))
    return Piecewise(features, np.stack(knots), heights, atom_table, np.zeros(atom_table.shape))


def _design(score: Piecewise, features: np.ndarray, signs: np.ndarray) -> scipy.sparse.csr_array:
    """Return the matrix that maps heights to the signed score of every run; `features` has shape (runs, J)."""
    runs, number = features.shape
    n_knots, n_atoms = score.knots.shape[1], score.atoms.shape[1]
    has_atoms = bool(np.isfinite(score.atoms).any())
    columns = np.zeros((runs, number, 2 + has_atoms), np.int32)
    values = np.zeros(columns.shape)
    for start in range(0, runs, RUNS_PER_PIECE):
        piece = slice(start, start + RUNS_PER_PIECE)
        left = np.clip(digitize_columns(score.knots, features[piece]), 1, n_knots - 1)
        left += n_knots * np.arange(number) - 1
        share = features[piece] - score.knots.ravel()[left]
        share /= np.diff(score.knots, append=np.inf).ravel()[left]
        np.clip(share, 0.0, 1.0, out=share)
        columns[piece, :, 0], columns[piece, :, 1] = left, left + 1
        values[piece, :, 0], values[piece, :, 1] = 1 - share, share
    if has_atoms:
        for j, z in enumerate(features.T):
            located = score.locate(np.ascontiguousarray(z), j)
            values[located.is_atom, j] = 0.0, 0.0, 1.0
            columns[:, j, 2] = np.where(located.is_atom, score.heights.size + j * n_atoms + located.atom, 0)
    values *= signs[:, None, None]
    row_ends = np.arange(runs + 1, dtype=np.int32) * np.prod(columns.shape[1:], dtype=np.int32)
    shape = (runs, score.heights.size + score.atoms.size)
    return scipy.sparse.csr_array((values.ravel(), columns.ravel(), row_ends), shape=shape)
