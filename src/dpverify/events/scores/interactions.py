"""Scores of a few coordinates jointly: parities and other interactions that no single coordinate shows.

A tree that splits one coordinate at a time cannot find a parity, because no first split helps. Therefore all pairs and,
in moderate dimensions, all triples of binary splits are tested directly.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from dpverify.events.partition import pad_rows
from dpverify.events.scores.base import Features, Score
from dpverify.events.scores.training import Learner, TrainingData
from dpverify.util.arrays import Array, digitize

MAX_TEST_RUNS = 1 << 14  # runs per dataset that test for interactions
MAX_TRIPLE_COORDINATES = 24
MAX_PAIR_COORDINATES = 256
MAX_SUBSETS = 8
BINS = {2: 8, 3: 4}  # bins of every coordinate, by the size of the subset; the median is an edge
FREQUENT_SHARE = 0.3  # of an atom that is a side of its own
PRIOR_COUNT = 2.0  # added to the counts of each cell


class Interaction(NamedTuple):
    """A sum over small sets of features of tables of their joint bins.

    Attributes
    ----------
    features : Features
        The features of a run.
    subsets : ndarray of shape (S, k)
        The features of each set.
    edges : ndarray of shape (S, k, E)
        The sorted edges of their bins, padded with infinity.
    tables : ndarray of shape (S, (E + 1) ** k)
        The value of each joint bin.
    """

    features: Features
    subsets: np.ndarray
    edges: np.ndarray
    tables: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of joint bins."""
        return self.tables.size

    def cells(self, features: Array, subset: int) -> Array:
        """Return the joint bin of every run, for one set of features."""
        code = 0
        for i in range(self.subsets.shape[1]):
            column = features[:, self.subsets[subset, i]]
            code = code * (self.edges.shape[2] + 1) + digitize(self.edges[subset, i], column)
        return code  # type: ignore[return-value]

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        return self.values_of_features(self.features.values(flat))

    def values_of_features(self, features: Array) -> Array:
        """Return one number per run, given its features."""
        return sum(self.tables[s][self.cells(features, s)] for s in range(self.subsets.shape[0]))  # type: ignore[return-value]

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and the coordinates of the first set."""
        together = " and ".join(names[int(j)] for j in self.subsets[0])
        return f"a score of {together} jointly" + (" and of other sets" if len(self.subsets) > 1 else "")


def fit_interactions(training: TrainingData, features: Features) -> list[Score]:
    """Return a score of the strongest set of features of each size, and of several sets without common features."""
    sides = training.features_of_sides(features)
    splits = median_splits(np.concatenate([side[:MAX_TEST_RUNS] for side in sides]))
    scores: list[Score] = []
    signs = [np.where(side[:MAX_TEST_RUNS] > splits, np.float32(1), np.float32(-1)) for side in sides]
    for subsets in (significant_pairs(*signs), significant_triples(*signs)):
        if subsets:
            chosen = disjoint(subsets)
            scores += [_fit_tables(features, chosen[:n], sides, splits) for n in {1, len(chosen)}]
    return scores


def _fit_tables(
    features: Features, subsets: list[tuple[int, ...]], sides: tuple[np.ndarray, np.ndarray], splits: np.ndarray
) -> Interaction:
    """Return the score with the log-ratios of the counts of all joint bins."""
    size = len(subsets[0])
    levels = np.arange(1, BINS[size]) / BINS[size]
    rows = []
    for j in itertools.chain.from_iterable(subsets):
        quantiles = np.quantile(np.concatenate([side[:MAX_TEST_RUNS, j] for side in sides]), levels)
        quantiles[len(levels) // 2] = splits[j]
        rows.append(np.unique(quantiles))
    edges = pad_rows(rows).reshape(len(subsets), size, -1)
    tables = np.zeros((len(subsets), (edges.shape[2] + 1) ** size))
    score = Interaction(features, np.array(subsets), edges, tables)
    for s in range(len(subsets)):
        c1, c2 = (np.bincount(score.cells(side, s), minlength=tables.shape[1]) + PRIOR_COUNT for side in sides)
        tables[s] = np.log(c1 / c2)
    return score


def median_splits(pooled: np.ndarray) -> np.ndarray:
    """Return the medians of all features, or a value between two atoms if the median is a frequent one."""
    splits = np.median(pooled, axis=0)
    for j in np.flatnonzero((pooled == splits).mean(0) > FREQUENT_SHARE):
        below = pooled[:, j] < splits[j]
        if below.any():
            splits[j] = (pooled[below, j].max() + splits[j]) / 2
    return splits


def significant_pairs(first: np.ndarray, second: np.ndarray) -> list[tuple[int, ...]]:
    """Return the pairs of columns of signs whose products have different means, the most significant first."""
    number = first.shape[1]
    statistic = first.T @ first / len(first) - second.T @ second / len(second)
    rows, columns = np.triu_indices(number, 1)
    return _strongest(statistic[rows, columns], np.stack([rows, columns], axis=1), len(first), len(second))


def significant_triples(first: np.ndarray, second: np.ndarray) -> list[tuple[int, ...]]:
    """Return the triples of columns of signs whose products have different means, the most significant first."""
    number = first.shape[1]
    if not 3 <= number <= MAX_TRIPLE_COORDINATES:
        return []
    rows, columns = np.triu_indices(number, 1)
    means = [side.T @ (side[:, rows] * side[:, columns]) / len(side) for side in (first, second)]
    third, pair = np.nonzero(np.arange(number)[:, None] > columns)
    triples = np.stack([rows[pair], columns[pair], third], axis=1)
    return _strongest((means[0] - means[1])[third, pair], triples, len(first), len(second))


def _strongest(statistic: np.ndarray, subsets: np.ndarray, n1: int, n2: int) -> list[tuple[int, ...]]:
    """Return the sets whose difference of means is larger than the maximum of so many differences by chance."""
    if not statistic.size:
        return []
    limit = (np.sqrt(2 * np.log(2 * statistic.size)) + 1) * np.sqrt(1 / n1 + 1 / n2)
    order = np.argsort(-np.abs(statistic), kind="stable")[: 8 * MAX_SUBSETS]
    return [tuple(int(j) for j in subsets[i]) for i in order if abs(statistic[i]) > limit]


def disjoint(subsets: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the first of these sets, and then each set that has no element in common with those before."""
    chosen: list[tuple[int, ...]] = []
    for subset in subsets:
        if all(set(subset).isdisjoint(other) for other in chosen) and len(chosen) < MAX_SUBSETS:
            chosen.append(subset)
    return chosen


def interaction_learners(training: TrainingData) -> list[Learner]:
    """Return the learner on the innovations, or on the coordinates if values repeat."""
    if not 2 <= training.dimension <= MAX_PAIR_COORDINATES:
        return []
    features = training.coordinates if training.has_atoms else training.innovations
    return [Learner(lambda: fit_interactions(training, features))]
