"""A general learner: a weighted sum of plain learners, for differences that no special family describes.

It has boosted trees and a small network on derived features, a quadratic and an additive score. Held-out runs weight
them by logistic regression. scikit-learn (the extra `learn`) fits the trees and the network. The fitted score is plain
data, which the functions of this file evaluate.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import scipy

from dpverify.errors import InputError, how_to_install
from dpverify.events.partition import pad_rows
from dpverify.events.scores.additive import coordinate_binning, fit_additive
from dpverify.events.scores.base import Features, Score, count_numbers
from dpverify.events.scores.moments import fit_gaussian
from dpverify.events.scores.training import TrainingData
from dpverify.util.arrays import Array, array_namespace, fori_loop, map_parallel, multiply_rows

MAX_GENERAL_COORDINATES = 512  # fitting the trees takes a minute for more
MAX_SORTED_COORDINATES = 30  # order and ties of more coordinates are seldom the difference, and slow down the trees
MAX_PAIRS = 24  # pairs of coordinates that have features of their own
MAX_LEARNER_NUMBERS = 1 << 22  # numbers per dataset that the learner is fitted to, which limits its time
HELD_OUT = 4  # one of so many runs is held out; an error of the weights costs less than one of the learners
ROWS_PER_PIECE = 1024  # the nodes of this many rows in all trees stay in the processor's caches


class Derived(NamedTuple):
    """The coordinates and their innovations, their order and ties, and differences and products of pairs of them.

    Attributes
    ----------
    mean, scale : ndarray of shape (J,)
        The location and the scale of every coordinate.
    innovations : Features
        The innovations.
    pairs : ndarray of shape (P, 2)
        The pairs of coordinates.
    """

    mean: np.ndarray
    scale: np.ndarray
    innovations: Features
    pairs: np.ndarray

    def values(self, flat: Array) -> Array:
        """Return the features of every run."""
        xp = array_namespace(flat)
        z = (flat - self.mean) / self.scale
        left, right = z[:, self.pairs[:, 0]], z[:, self.pairs[:, 1]]
        columns = [z, self.innovations.values(flat), left - right, left * right]
        if self.mean.shape[0] <= MAX_SORTED_COORDINATES:
            ordered = xp.sort(flat, axis=1)
            gaps = ordered[:, 1:] - ordered[:, :-1]
            columns += [(ordered - self.mean.mean()) / self.scale.mean(), gaps, (gaps == 0).sum(1)[:, None]]
        return xp.concatenate(columns, axis=1)


class Trees(NamedTuple):
    """A sum of decision trees. All arrays have one row per tree; a leaf is its own child.

    Attributes
    ----------
    feature, threshold : ndarray of shape (T, N)
        The split of every node: `z[feature] > threshold` leads to the right child.
    children : ndarray of shape (T, N, 2)
        The left and the right child.
    heights : ndarray of shape (T, N)
        The value of every leaf.
    depth : ndarray of shape ()
        The depth of the deepest tree.
    """

    feature: np.ndarray
    threshold: np.ndarray
    children: np.ndarray
    heights: np.ndarray
    depth: np.ndarray

    def values(self, z: Array) -> Array:
        """Return one number per run, given its features."""
        xp, (number, size) = array_namespace(z), self.feature.shape
        offsets, rows = size * xp.arange(number), z.shape[1] * xp.arange(z.shape[0])[:, None]
        feature, threshold = self.feature.reshape(-1), self.threshold.reshape(-1)
        children = (
            (self.children + size * np.arange(number)[:, None, None]).reshape(-1)
            if xp is np
            else (self.children.reshape(-1) + xp.repeat(offsets, 2 * size))
        )
        numbers = z.reshape(-1)

        def descend(node: Array) -> Array:
            right = numbers.take(rows + feature.take(node)) > threshold.take(node)
            return children.take(2 * node + right)

        start = xp.zeros((z.shape[0], number), offsets.dtype) + offsets
        return self.heights.reshape(-1).take(fori_loop(xp, self.depth, descend, start)).sum(1)


class Network(NamedTuple):
    """A network with two hidden layers of rectified linear units.

    Attributes
    ----------
    weights : tuple of ndarray
        The matrix of each layer.
    offsets : tuple of ndarray
        The vector that each layer adds.
    """

    weights: tuple[np.ndarray, ...]
    offsets: tuple[np.ndarray, ...]

    def values(self, z: Array) -> Array:
        """Return one number per run, given its features. The features are compressed, because tails can be heavy."""
        xp, y = array_namespace(z), array_namespace(z).arcsinh(z)
        for weights, offsets in zip(self.weights[:-1], self.offsets[:-1], strict=True):
            y = xp.maximum(multiply_rows(y, weights) + offsets, 0.0)
        return multiply_rows(y, self.weights[-1])[:, 0] + self.offsets[-1][0]


class General(NamedTuple):
    """A weighted sum of plain learners.

    Attributes
    ----------
    derived : Derived
        The features of the trees and of the network.
    trees, network : Trees, Network
        Learners on these features.
    others : tuple of Score
        Learners on the outputs themselves.
    weights : ndarray
        The weight of the trees, of the network, and of each other score.
    """

    derived: Derived
    trees: Trees
    network: Network
    others: tuple[Score, ...]
    weights: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of leaves and of weights of the network."""
        return int(np.count_nonzero(self.trees.heights)) + sum(one.size for one in self.network.weights)

    def terms(self, flat: Array) -> list[Array]:
        """Return the value of each learner."""
        z = self.derived.values(flat)
        return [self.trees.values(z), self.network.values(z), *(one.values(flat) for one in self.others)]

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        xp = array_namespace(flat)
        if xp is not np:
            return sum(weight * term for weight, term in zip(self.weights, self.terms(flat), strict=True))
        pieces = [flat[i : i + ROWS_PER_PIECE] for i in range(0, len(flat), ROWS_PER_PIECE)]
        terms = map_parallel(lambda piece: np.stack(self.terms(piece), axis=1) @ self.weights, pieces, flat.size)
        return np.concatenate(terms) if terms else np.zeros(0)

    def describe(self, names: list[str]) -> str:
        """Name the kind of score."""
        return f"a learned score (trees and a network) of {count_numbers(names)}"


def fit_general(training: TrainingData) -> list[Score]:
    """Return the general score, fitted to the kept runs; none for one coordinate, where counting is optimal."""
    if not 1 < training.dimension <= MAX_GENERAL_COORDINATES:
        return []
    try:
        import sklearn.ensemble
        import sklearn.neural_network  # noqa: F401
    except ImportError as missing:
        raise InputError(
            f'search="thorough" needs scikit-learn, which fits the general learner: {how_to_install("learn")}'
        ) from missing
    runs = min(len(training.first), len(training.second), max(1, MAX_LEARNER_NUMBERS // training.dimension))
    held_out = [side[runs - runs // HELD_OUT : runs] for side in (training.first, training.second)]
    part = training.head(runs - runs // HELD_OUT)
    derived = make_derived(part)
    z = derived.values(part.pooled)
    is_first = np.arange(len(z)) < len(part.first)
    score = General(derived, fit_trees(z, is_first), fit_network(z, is_first), _plain_scores(part), np.zeros(0))
    terms = [np.stack(score.terms(side), axis=1) for side in held_out]
    return [score._replace(weights=logistic_weights(*terms))]


def _plain_scores(training: TrainingData) -> tuple[Score, ...]:
    """Return the scores of moments, and smooth log-ratios of the counts of the coordinates."""
    moments = fit_gaussian(training)
    binning = coordinate_binning(training)
    sides = [side.reshape(-1, *training.shape) for side in (training.first, training.second)]
    counted = fit_additive(binning, *(binning.measure(side) for side in sides))
    return (*moments[-1:], *counted[-1:])


def make_derived(training: TrainingData) -> Derived:
    """Return the derived features: of all pairs, or of those whose dependence differs most."""
    sides = [training.first, training.second]
    low, middle, high = np.quantile(
        training.pooled[:: max(1, len(training.pooled) // 10_000)], (0.25, 0.5, 0.75), axis=0
    )
    scale = np.where(high > low, high - low, np.where(training.pooled.std(0) > 0, training.pooled.std(0), 1.0))
    rows, columns = np.triu_indices(training.dimension, 1)
    if rows.size > MAX_PAIRS:
        largest = np.zeros(rows.size)
        for shape in (np.asarray, np.abs, np.square):
            z1, z2 = (shape(np.arcsinh((side - middle) / scale)) for side in sides)
            z1, z2 = ((z - z.mean(0)) / np.where(z.std(0) > 0, z.std(0), 1.0) for z in (z1, z2))
            change = np.abs(z1.T @ z1 / len(z1) - z2.T @ z2 / len(z2))
            largest = np.maximum(largest, change[rows, columns])
        kept = np.sort(np.argsort(-largest, kind="stable")[:MAX_PAIRS])
        rows, columns = rows[kept], columns[kept]
    return Derived(middle, scale, training.innovations, np.stack([rows, columns], axis=1))


def fit_trees(z: np.ndarray, is_first: np.ndarray) -> Trees:
    """Fit boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=300, max_depth=6, early_stopping=True, random_state=0)
    nodes = [one[0].nodes for one in model.fit(z, is_first)._predictors]
    own = [np.arange(len(tree)) for tree in nodes]
    children = [
        [np.where(tree["is_leaf"], itself, tree[side]) for side in ("left", "right")]
        for tree, itself in zip(nodes, own, strict=True)
    ]
    feature = _as_rows([np.where(tree["is_leaf"], 0, tree["feature_idx"]) for tree in nodes]).astype(np.int64)
    threshold = pad_rows([np.where(tree["is_leaf"], 0.0, tree["num_threshold"]) for tree in nodes])
    threshold[~np.isfinite(threshold)] = np.finfo(float).max
    sides = [_as_rows([pair[side] for pair in children]) for side in (0, 1)]
    heights = _as_rows([np.where(tree["is_leaf"], tree["value"], 0.0) for tree in nodes])
    depth = max(int(tree["depth"].max()) for tree in nodes)
    return Trees(feature, threshold, np.stack(sides, axis=2).astype(np.int64), heights, np.array(depth))


def _as_rows(rows: list[np.ndarray]) -> np.ndarray:
    """Return rows of different lengths as one table, padded with zeros."""
    table = pad_rows(rows)
    return np.where(np.isfinite(table), table, 0.0)


def fit_network(z: np.ndarray, is_first: np.ndarray) -> Network:
    """Fit a network with two hidden layers of 64 units."""
    from sklearn.neural_network import MLPClassifier

    y = np.arcsinh(z)
    mean, deviation = y.mean(0), y.std(0)
    scale = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 0.0)
    model = MLPClassifier(
        (64, 64), batch_size=512, early_stopping=True, n_iter_no_change=4, max_iter=40, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the number of epochs is a limit of time
        model.fit((y - mean) * scale, is_first)
    first, *further = model.coefs_
    offsets = model.intercepts_[0] - (mean * scale) @ first
    return Network((scale[:, None] * first, *further), (offsets, *model.intercepts_[1:]))


def logistic_weights(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the weights of the columns of a logistic regression of the dataset, with a small ridge."""
    x = np.concatenate([first, second])
    scale = np.maximum(x.std(0), np.finfo(float).tiny)
    design = np.column_stack([x / scale, np.ones(len(x))])
    signs = np.repeat([1.0, -1.0], [len(first), len(second)])

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margin = signs * (design @ weights)
        gradient = weights - design.T @ (signs * scipy.special.expit(-margin))
        return np.logaddexp(0.0, -margin).sum() + weights @ weights / 2, gradient

    return scipy.optimize.minimize(loss, np.zeros(design.shape[1]), jac=True).x[:-1] / scale
