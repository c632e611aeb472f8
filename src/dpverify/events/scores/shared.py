"""Scores that apply one function to every record or step and pool the results.

They find what occurs at an unknown time or in an unknown record. The function is a log-ratio of counts. All records
are counted together, so that the function is known much better than a separate one for each record.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from dpverify.events.partition import pad_rows
from dpverify.events.scores.additive import Additive, drop_idle_edges, monotone_ratio, shrunken_ratio
from dpverify.events.scores.base import Features, Linear, Score, count_numbers
from dpverify.events.scores.moments import Quadratic
from dpverify.events.scores.training import Learner, TrainingData, quantile_edges
from dpverify.util.arrays import Array, array_namespace, contiguous_transpose, digitize, take_columns

MIN_RECORDS = 3
MAX_SHARED_NUMBERS = 1 << 19  # numbers per dataset that the shared functions are fitted to
SHARED_BINS = 256
THINNING = 4  # one of so many numbers places the bins
POOLED_BINS = 48  # resolution of a function that need not be monotone
SUM = 1e-6  # the sharpness of a mean over the records
MIN_RATIO = 0.02  # of the densities of one record, where the estimate may be negative
RIDGE = 1e-6  # added to the variances, relative to their mean
MIN_VARIANCE_SHARE = 0.05  # smaller variances of a record that differs are not trusted
WINDOWS = (1, 4)  # consecutive steps whose innovations are added up
WIDTHS = (2, 3)  # numbers of consecutive coordinates that may form a record
MIN_WINDOW_RUNS = 1 << 12  # kept runs per dataset; with fewer runs only single steps are used


class Shared(NamedTuple):
    """A soft maximum, a mean or a soft minimum over records of one score of each record.

    With sharpness s and scores u of T records, the value is `log(mean(exp(s u))) / s`.

    Attributes
    ----------
    features : Features
        The features of a run.
    records : ndarray of shape (T, G)
        The features that each record consists of.
    score : Score
        The score of one record.
    sharpness : ndarray of shape ()
        1 if one record of the first dataset differs, -1 if one of the second does, about 0 for a mean.
    """

    features: Features
    records: np.ndarray
    score: Score
    sharpness: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of parameters of the score of one record."""
        return self.score.n_parameters

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        return self.values_of_features(self.features.values(flat))

    def values_of_features(self, features: Array) -> Array:
        """Return one number per run, given its features."""
        xp = array_namespace(features)
        runs, (number, columns) = features.shape[0], self.records.shape
        records = take_columns(features, self.records.reshape(-1)).reshape(runs * number, columns)
        scaled = self.sharpness * self.score.values(records).reshape(runs, number)
        largest = scaled.max(1)
        return (largest + xp.log(xp.exp(scaled - largest[:, None]).mean(1))) / self.sharpness

    def describe(self, names: list[str]) -> str:
        """Name the kind of score."""
        return f"a score with one function for all {len(self.records)} records of {count_numbers(names)}"


def fit_shared(training: TrainingData, features: Features, records: np.ndarray) -> list[Score]:
    """Return scores with one function for all records: a sum, and the log-ratio if one record of a dataset differs.

    If one of T records of a dataset differs from the others, all records together follow a mixture. The density ratio
    and the moments of the record that differs follow from those of the mixture.
    """
    number, columns = records.shape
    n_features = training.dimension if features.whiten is None else len(features.whiten)
    runs = max(1, MAX_SHARED_NUMBERS // n_features)
    sides = [
        take_columns(features.values(side[:runs]), records.ravel()).reshape(-1, columns)
        for side in (training.first, training.second)
    ]
    columns_of_sides = list(zip(*map(contiguous_transpose, sides), strict=True))
    edges = [quantile_edges(np.sort(np.concatenate(two)[::THINNING]), SHARED_BINS) for two in columns_of_sides]
    if not all(own.size for own in edges):
        return []
    ratios = _log_ratios(edges, columns_of_sides)
    moments = [(side.mean(0), side.T @ side / len(side)) for side in sides]
    scores: list[Score] = []
    for sharpness in (SUM, 1.0, -1.0):
        dilution = 1.0 if sharpness == SUM else float(number)
        inner = [_step_score(edges, rows, sharpness, dilution) for rows in ratios]
        inner += _moment_scores(moments, sharpness, dilution)
        scores += [Shared(features, records, score, np.array(sharpness)) for score in inner]
    return scores


def _log_ratios(edges: list[np.ndarray], columns: list[tuple[np.ndarray, np.ndarray]]) -> list[list[np.ndarray]]:
    """Return the log-ratios of all columns that differ: monotone ones, and those of few bins."""
    monotone, pooled = [], []
    for own, two in zip(edges, columns, strict=True):
        c1, c2 = (np.bincount(digitize(own, part), minlength=own.size + 1) for part in two)
        monotone.append(monotone_ratio(c1, c2))
        pooled.append(shrunken_ratio(c1, c2, POOLED_BINS, int(c1.sum())))
    return [rows for rows in (monotone, pooled) if any(np.ptp(row) > 0 for row in rows)]


def _step_score(edges: list[np.ndarray], ratios: list[np.ndarray], sharpness: float, dilution: float) -> Score:
    """Return the additive score of a record that differs."""
    if dilution > 1:
        undiluted = [1 + dilution * np.expm1(sharpness * ratio) for ratio in ratios]
        ratios = [sharpness * np.log(np.maximum(ratio, MIN_RATIO)) for ratio in undiluted]
    width = max(map(len, ratios))
    steps = np.stack([np.pad(ratio, (0, width - len(ratio)), mode="edge") for ratio in ratios])
    own_edges, steps = drop_idle_edges(pad_rows(edges), steps)
    return Additive(Features(np.zeros(len(steps)), None), np.arange(len(steps)), own_edges, steps)


def _moment_scores(moments: list[tuple[np.ndarray, np.ndarray]], sharpness: float, dilution: float) -> list[Score]:
    """Return the log-ratio of Gaussian records, with a common covariance and with one for each dataset.

    The moments of each dataset are the mean, and the mean of the products of the columns.
    """
    means, squares = [mean for mean, _ in moments], [square for _, square in moments]
    if dilution > 1:  # the dataset with the record that differs is a mixture with the other one
        mixed = 0 if sharpness > 0 else 1
        means[mixed] = means[1 - mixed] + dilution * (means[mixed] - means[1 - mixed])
        squares[mixed] = squares[1 - mixed] + dilution * (squares[mixed] - squares[1 - mixed])
    covariances = [square - np.outer(mean, mean) for square, mean in zip(squares, means, strict=True)]
    common = covariances[0] if dilution > 1 and sharpness < 0 else covariances[1]
    identity = np.eye(len(common))
    ridge = RIDGE * max(float(np.trace(common)), np.finfo(float).tiny) / len(common)
    scores: list[Score] = [Linear(np.linalg.solve(common + ridge * identity, means[0] - means[1]))]
    smallest = np.linalg.eigvalsh(np.linalg.solve(common + ridge * identity, covariances[0] + covariances[1] - common))
    if smallest.min() > MIN_VARIANCE_SHARE:
        precision1, precision2 = (np.linalg.inv(matrix + ridge * identity) for matrix in covariances)
        weights = precision1 @ means[0] - precision2 @ means[1]
        scores.append(Quadratic(Features(np.zeros(len(common)), None), weights, (precision2 - precision1) / 2))
    return scores


def shared_learners(training: TrainingData) -> list[Learner]:
    """Return learners whose records are the steps, or the coordinates if there is one step."""
    steps, dimension = training.shape
    records = np.arange(training.dimension).reshape(-1, dimension if steps > 1 else 1)
    if len(records) < MIN_RECORDS:
        return []
    fitted = [(training.coordinates, records)]
    if training.can_be_whitened:
        many = len(training.first) >= MIN_WINDOW_RUNS
        for window in WINDOWS if many and len(records) > 4 * max(WINDOWS) else WINDOWS[:1]:
            features = add_neighbours(training.innovations, records, window)
            fitted.append((features, records[: len(records) - window + 1]))
        for width in WIDTHS if many and records.shape[1] == 1 else ():
            if training.dimension % width == 0 and training.dimension >= MIN_RECORDS * width:
                fitted.append((training.coordinates, np.arange(training.dimension).reshape(-1, width)))
    return [Learner(functools.partial(fit_shared, training, *one)) for one in fitted]


def add_neighbours(features: Features, records: np.ndarray, window: int) -> Features:
    """Return the sums of the features of so many consecutive records."""
    if window == 1:
        return features
    assert features.whiten is not None
    sums = sum(features.whiten[records[i : len(records) - window + 1 + i].ravel()] for i in range(window))
    return Features(features.mean, np.asarray(sums) / np.sqrt(window))
