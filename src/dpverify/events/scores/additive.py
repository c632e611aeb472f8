"""Additive scores: a sum over features of step functions, which are log-ratios of counts in bins.

They are fitted by counting. The counts add up over blocks, so the score can use any number of training runs.

Some of the log-ratios are smooth, by penalised maximum likelihood. A log-ratio of raw counts is noisy where bins are
narrow, and coarse where they are wide. A smooth curve uses the neighbours of each bin, and its level sets need not end
at the edges of bins.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy

from dpverify.events.partition import pad_rows
from dpverify.events.scores.base import Features, SelectedLevels, describe_coordinates
from dpverify.events.scores.training import Learner, TrainingData, bin_edges
from dpverify.events.wording import coordinate_names, describe_intervals
from dpverify.util.arrays import (
    Array,
    array_namespace,
    contiguous_transpose,
    digitize,
    digitize_columns,
    evaluate_method,
    map_columns,
    take_columns,
)

ROUGHNESS_PENALTY = 1.0  # per run in a bin; multiplies half the squared second differences of the log-ratio
PRIOR_RUNS = 0.5  # runs; keeps the log-ratio finite in a bin with runs of one dataset only
MAX_NEWTON_STEPS, MAX_STEP, STEP_TOLERANCE = 12, 2.0, 1e-3
MAX_LEVELS, MIN_HEIGHT = 24, 0.05  # a step is one of so many parts of the range of the curve, or this height


def smooth_steps(
    first: np.ndarray, second: np.ndarray, edges: np.ndarray, penalty: float = ROUGHNESS_PENALTY
) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and values of step functions that follow smooth log-ratios.

    Atoms keep a value of their own: the curve is interrupted there.

    Parameters
    ----------
    first, second : ndarray of shape (features, bins)
        The counts of both datasets.
    edges : ndarray of shape (features, bins - 1)
        The sorted edges of the bins, padded with infinity.
    penalty : float
        The weight of the roughness.

    Returns
    -------
    edges : ndarray of shape (features, E)
        The sorted edges of the steps, padded with infinity.
    steps : ndarray of shape (features, E + 1)
        The values between them; the last value is repeated.
    """
    used = np.concatenate([np.ones((len(edges), 1), bool), np.isfinite(edges)], axis=1)
    is_atom = np.zeros(used.shape, bool)
    is_atom[:, 1:-1] = edges[:, :-1] == np.nextafter(edges[:, 1:], -np.inf)
    is_joined = used[:, 1:] & ~is_atom[:, 1:] & ~is_atom[:, :-1]  # each bin with the one before it
    joined = np.concatenate([np.zeros((len(edges), 1), bool), is_joined], axis=1)[used][1:]
    ratio = np.zeros(used.shape)
    ratio[used] = smooth_ratio(first[used], second[used], joined, penalty)
    rows = [_as_steps(*row) for row in zip(edges, ratio, is_joined, strict=True)]
    new_edges = pad_rows([own for own, _ in rows], least=1)
    steps = [np.pad(heights, (0, new_edges.shape[1] + 1 - len(heights)), mode="edge") for _, heights in rows]
    return new_edges, np.stack(steps)


def smooth_ratio(c1: np.ndarray, c2: np.ndarray, joined: np.ndarray, penalty: float) -> np.ndarray:
    """Return the log-ratio with the largest penalised likelihood.

    Parameters
    ----------
    c1, c2 : ndarray of shape (n,)
        The counts of both datasets.
    joined : ndarray of bool, shape (n - 1,)
        Whether each bin after the first continues the curve of the bin before it.
    penalty : float
        The weight of the squared second differences, per run.
    """
    both = (c1 + c2).astype(float)
    # Bins with few runs lie where the log-ratio changes fast, so that they are penalised less.
    fewest = np.minimum(np.minimum(both[:-2], both[1:-1]), both[2:])
    curved = penalty * (fewest + 1) * (joined[1:] & joined[:-1])
    bands = np.zeros((3, len(both)))  # of the matrix of the penalty, in the upper form of `solveh_banded`
    for k, factor in enumerate((1.0, -2.0, 1.0)):
        bands[2, k : k + len(curved)] += factor**2 * curved
    bands[1, 1:-1] -= 2 * curved
    bands[1, 2:] -= 2 * curved
    bands[0, 2:] += curved
    ratio = np.full(len(both), np.log((c1.sum() + 0.5) / (c2.sum() + 0.5)))
    for _ in range(MAX_NEWTON_STEPS):
        share = scipy.special.expit(ratio)
        gradient = c1 - both * share - PRIOR_RUNS * (share - 0.5)
        bends = curved * np.diff(ratio, 2)
        for k, factor in enumerate((1.0, -2.0, 1.0)):
            gradient[k : k + len(curved)] -= factor * bends
        matrix = bands.copy()
        matrix[2] += (both + PRIOR_RUNS) * np.maximum(share * (1 - share), np.finfo(float).eps)
        step = scipy.linalg.solveh_banded(matrix, gradient, check_finite=False)
        ratio += np.clip(step, -MAX_STEP, MAX_STEP)
        if np.abs(step).max() < STEP_TOLERANCE:
            break
    return ratio


def _as_steps(edges: np.ndarray, ratio: np.ndarray, is_joined: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the step function of one feature. Between the centres of joined bins it follows a line."""
    edges = edges[np.isfinite(edges)]
    if not edges.size:
        return edges, ratio[:1]
    ratio, is_joined = ratio[: edges.size + 1], is_joined[: edges.size]
    centres = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    height = max(np.ptp(ratio) / MAX_LEVELS, MIN_HEIGHT)
    change = np.diff(ratio)
    number = np.where(is_joined, np.maximum(np.ceil(np.abs(change) / height), 1), 1).astype(np.intp)
    bin_of = np.repeat(np.arange(edges.size), number)
    within = np.arange(bin_of.size) - np.repeat(np.cumsum(number) - number, number)
    share = (within + 0.5) / number[bin_of]
    places = centres[:-1][bin_of] + share * np.diff(centres)[bin_of]
    places = np.where(is_joined[bin_of], places, edges[bin_of])
    values = ratio[:-1][bin_of] + (within + 1) / number[bin_of] * change[bin_of]
    return places, _hold(np.append(ratio[0], values), height)


def _hold(values: np.ndarray, height: float) -> np.ndarray:
    """Return values that change only where they would be wrong by more than the height; noise then adds no steps."""
    held, result = values[0], []
    for value in values.tolist():
        if abs(value - held) > height:
            held = value
        result.append(held)
    return np.array(result)


MIN_SEGMENT_GAIN = 10.0  # nats; thousands of intervals under equal distributions rarely gain more
MAX_KEPT_INTERVALS = 2048  # bins of a segment whose intervals are kept for later segments
POOLED_BIN_COUNTS = (2, 8, 64)  # resolutions of the candidates


class Additive(NamedTuple):
    """A sum over features of step functions.

    An atom a is the bin between the number just below a and a itself.

    Attributes
    ----------
    features : Features
        The features of a run.
    coordinates : ndarray of shape (J',)
        The features with a step function that is not constant.
    edges : ndarray of shape (J', E)
        The sorted edges of the bins, padded with infinity.
    steps : ndarray of shape (J', E + 1)
        The value of the step function in each bin.
    """

    features: Features
    coordinates: np.ndarray
    edges: np.ndarray
    steps: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of edges at which a step function changes."""
        return int((self.steps[:, 1:] != self.steps[:, :-1]).sum())

    def bins(self, features: Array) -> list[Array]:
        """Return the bin of every run, for each coordinate."""
        z = contiguous_transpose(features[:, self.coordinates])
        return [digitize(edges, x) for edges, x in zip(self.edges, z, strict=True)]

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        return self.values_of_features(self.features.values(flat))

    def values_of_features(self, features: Array) -> Array:
        """Return one number per run, given its features."""
        if array_namespace(features) is np:
            cells = digitize_columns(self.edges, take_columns(features, self.coordinates))
            cells += self.steps.shape[1] * np.arange(len(self.steps))
            return self.steps.ravel().take(cells).sum(1)
        return sum(self.steps[j][bins] for j, bins in enumerate(self.bins(features)))  # type: ignore[return-value]

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and its coordinates."""
        return f"an additive score of {describe_coordinates(np.ptp(self.steps, axis=1), self.coordinates, names)}"

    def describe_level_set(self, selected: SelectedLevels, examples: np.ndarray) -> str | None:
        """Describe a union of intervals of one coordinate, or of one innovation in the unit of its coordinate."""
        unit = self.features.unit_of(int(self.coordinates[0])) if self.coordinates.size == 1 else None
        if unit is None:
            return None
        scale, shift, suffix = unit
        ends = np.concatenate([[-math.inf], scale * self.edges[0] + shift, [math.inf]])
        pieces = [
            (float(ends[i]), float(ends[i + 1]))
            for i in np.flatnonzero(selected.contains(self.steps[0]))
            if ends[i] < ends[i + 1]
        ]
        names = coordinate_names(*examples.shape[1:])
        return describe_intervals(pieces, names[int(self.coordinates[0])] + suffix)


class Binning(NamedTuple):
    """Bins of every feature. As a statistic it counts the runs in each bin.

    Attributes
    ----------
    features : Features
        The features of a run.
    edges : ndarray of shape (J, E)
        The sorted edges of the bins, padded with infinity.
    """

    features: Features
    edges: np.ndarray

    def measure(self, samples: Array) -> np.ndarray:
        """Return the counts of a block of runs, of shape (features, bins)."""
        return evaluate_method(self, "tables", samples)

    def bins(self, flat: np.ndarray) -> np.ndarray:
        """Return the bin of every feature of every run, of shape (runs, features)."""
        return digitize_columns(self.edges, self.features.values(flat))

    def tables(self, samples: Array) -> Array:
        """Return the counts as an array on the device of the samples."""
        xp, number = array_namespace(samples), self.edges.shape[1] + 1
        z = self.features.values(samples.reshape(samples.shape[0], -1))
        if xp is np:
            cells = digitize_columns(self.edges, z)
            cells += number * np.arange(len(self.edges))
            return np.bincount(cells.ravel(), minlength=self.edges.size + len(self.edges)).reshape(-1, number)
        columns = zip(self.edges, z.T, strict=True)
        return xp.stack([xp.bincount(digitize(edges, column), length=number) for edges, column in columns])


def make_binning(features: Features, values: np.ndarray, atoms: list[np.ndarray]) -> Binning:
    """Return quantile bins of features of shape (runs, J), with finer bins at both ends and one bin per atom.

    Whitened features of discrete coordinates repeat in many combinations, so they get quantile bins only.
    """

    def column_edges(column: np.ndarray, own_atoms: np.ndarray) -> np.ndarray:
        return bin_edges(np.sort(column), own_atoms, len(atoms))

    used_atoms = atoms if features.whiten is None else [np.zeros(0)] * values.shape[1]
    return Binning(features, pad_rows(map_columns(column_edges, values, used_atoms)))


def coordinate_binning(training: TrainingData) -> Binning:
    """Return the bins of the coordinates themselves."""
    return Binning(training.coordinates, pad_rows(training.edges))


def fit_additive(binning: Binning, first: np.ndarray, second: np.ndarray) -> list[Additive]:
    """Return log-ratios of the counts of a binning: of pooled bins, monotone ones, those of segments, and smooth ones.

    Few bins cannot resolve the shape of the log-ratio and many bins are noisy, so held-out runs decide. Many log-ratios
    are monotone; a monotone fit then removes most of the noise. Segments find a short interval in which the log-ratio
    is extreme although few runs lie there. Smooth ones have level sets that end between edges.
    """
    total = first[0].sum()
    tables = [
        np.stack([shrunken_ratio(c1, c2, bins, total) for c1, c2 in zip(first, second, strict=True)])
        for bins in POOLED_BIN_COUNTS
    ]
    for fit in (monotone_ratio, segmented_ratio):
        tables.append(np.stack([fit(c1, c2) for c1, c2 in zip(first, second, strict=True)]))
    all_steps = [*((binning.edges, table) for table in tables), smooth_steps(first, second, binning.edges)]
    scores: list[Additive] = []
    for i, (all_edges, steps) in enumerate(all_steps):
        if any(np.array_equal(steps, earlier) for _, earlier in all_steps[:i]):
            continue
        varying = np.flatnonzero(np.any(steps != steps[:, :1], axis=1))
        if varying.size:
            edges, heights = drop_idle_edges(all_edges[varying], steps[varying])
            scores.append(Additive(binning.features, varying, edges, heights))
    return scores


def additive_learners(training: TrainingData) -> list[Learner]:
    """Return learners on the coordinates (one coordinate, or atoms) and on the innovations (several coordinates)."""
    learners = []
    for features in suitable_features(training):
        if features.whiten is None:
            binning = coordinate_binning(training)
        else:
            binning = make_binning(features, training.features_of_pooled(features), training.atoms)
        learners.append(Learner(functools.partial(fit_additive, binning), binning))
    return learners


def suitable_features(training: TrainingData) -> list[Features]:
    """Return the features that separate scores per coordinate make sense for."""
    features = []
    if training.dimension == 1 or training.has_atoms:
        features.append(training.coordinates)
    if training.dimension > 1 and not all(map(len, training.atoms)) and (training.can_be_whitened or not features):
        features.append(training.innovations)
    return features


def shrunken_ratio(c1: np.ndarray, c2: np.ndarray, bins: int, total: int) -> np.ndarray:
    """Return log(c1/c2) with neighbouring bins pooled to shares of 1/bins, shrunken by the estimated noise."""
    both = c1 + c2
    middle = (np.cumsum(both) - both / 2) / (2 * total)
    group = np.unique(np.minimum((middle * bins).astype(int), bins - 1), return_inverse=True)[1]
    p1, p2 = (np.bincount(group, c) for c in (c1, c2))
    ratio = np.log((p1 + 0.5) / (p2 + 0.5))
    noise = 1 / (p1 + 0.5) + 1 / (p2 + 0.5)
    weight = (p1 + p2) / max((p1 + p2).sum(), 1)
    signal = 1 - (weight * noise).sum() / max((weight * ratio**2).sum(), 1e-300)
    return max(signal, 0.0) * ratio[group]


def monotone_ratio(c1: np.ndarray, c2: np.ndarray) -> np.ndarray:
    """Return the best increasing or decreasing fit of log(c1/c2), or a constant if the gain is not significant."""
    weight = (c1 + 0.5) * (c2 + 0.5) / (c1 + c2 + 1)  # one over the variance of the log-ratio
    ratio = np.log((c1 + 0.5) / (c2 + 0.5))
    fits = [scipy.optimize.isotonic_regression(ratio, weights=weight, increasing=rising).x for rising in (True, False)]
    residuals = [float((weight * (ratio - fit) ** 2).sum()) for fit in fits]
    flat = np.full(ratio.shape, np.average(ratio, weights=weight))
    best = int(np.argmin(residuals))
    gain = float((weight * (ratio - flat) ** 2).sum()) - residuals[best]
    # Under equal distributions the gain is about the logarithm of the number of bins.
    return fits[best] if gain > 2 * np.log(len(ratio)) + 6 else flat


def segmented_ratio(c1: np.ndarray, c2: np.ndarray) -> np.ndarray:
    """Return the log-ratio on segments of bins.

    A segment is divided where the gain in log-likelihood is significant, at one bin or on both sides of an interval. A
    short interval in the middle gains nothing from a division at one bin.
    """
    below1, below2 = (np.concatenate([[0], np.cumsum(c)]) for c in (c1, c2))
    ratio = np.empty(len(c1))
    segments = [(0, len(c1))]
    while segments:
        low, high = segments.pop()
        number = high - low
        start, stop = _kept_intervals(number) if number <= MAX_KEPT_INTERVALS else _intervals(number)
        inside1 = below1[low + stop] - below1[low + start]
        inside2 = below2[low + stop] - below2[low + start]
        total1, total2 = below1[high] - below1[low], below2[high] - below2[low]
        likelihood = _log_likelihood(inside1, inside2) + _log_likelihood(total1 - inside1, total2 - inside2)
        best = int(np.argmax(likelihood))
        if likelihood[best] - likelihood[0] > MIN_SEGMENT_GAIN:  # the first interval is the whole segment
            ends = np.unique([low, low + start[best], low + stop[best], high]).tolist()
            segments += itertools.pairwise(ends)
        else:
            ratio[low:high] = np.log((total1 + 0.5) / (total2 + 0.5))
    return ratio


@functools.lru_cache(maxsize=256)
def _kept_intervals(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals of a segment of usual length; those of long ones would fill the memory."""
    return _intervals(number)


def _intervals(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last edge of intervals of bins: all of them, those from the left, and of lengths 2^k."""
    starts, stops = [np.zeros(number, np.intp)], [np.arange(number, 0, -1)]
    length = 1
    while length < number:
        starts.append(np.arange(number - length + 1))
        stops.append(starts[-1] + length)
        length *= 2
    return np.concatenate(starts), np.concatenate(stops)


def _log_likelihood(c1: np.ndarray, c2: np.ndarray) -> np.ndarray:
    """Return the largest log-likelihood of these numbers of runs of both datasets."""
    return scipy.special.xlogy(c1, c1) + scipy.special.xlogy(c2, c2) - scipy.special.xlogy(c1 + c2, c1 + c2)


def drop_idle_edges(all_edges: np.ndarray, all_steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same step functions without the edges at which nothing changes."""
    rows = []
    for edges, steps in zip(all_edges, all_steps, strict=True):
        changes = (steps[1:] != steps[:-1]) & np.isfinite(edges)
        rows.append((edges[changes], np.append(steps[0], steps[1:][changes])))
    if not rows:
        return all_edges[:, :1], all_steps[:, :2]
    edges = pad_rows([edges for edges, _ in rows], least=1)
    heights = np.empty((len(rows), edges.shape[1] + 1))
    for padded, (_, steps) in zip(heights, rows, strict=True):
        padded[: len(steps)], padded[len(steps) :] = steps, steps[-1]
    return edges, heights
