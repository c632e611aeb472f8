"""Scores for outputs that mix atoms and continuous values: one additive score per pattern of atoms.

Rare patterns share a varying-coefficient model. An output that mixes atoms and continuous values has many patterns of
atoms, and the rare patterns have few runs. Their log-ratios are often similar, though. Here the log-ratio of a row is a
sum over the features of its pattern, for example how often an atom occurs in it. Each feature has a coefficient that is
a smooth function of the continuous value. All rows together determine these functions, so that a rare pattern has a
log-ratio also where it has no runs.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import scipy

from dpverify.events.partition import Atoms, code_weights, pad_rows
from dpverify.events.scores.additive import drop_idle_edges
from dpverify.events.scores.base import Score, count_numbers
from dpverify.events.scores.training import MAX_BINS, Learner, TrainingData, quantile_edges
from dpverify.util.arrays import Array, array_namespace

KNOTS = 32  # of each coefficient
EDGES_PER_KNOT = 3  # of the step function between two knots
PENALTIES = 10.0 ** np.arange(5, -1, -1)  # of half the squared second differences of a coefficient at its knots
RIDGE = 1e-3  # keeps coefficients finite that the counts do not determine
MAX_NEWTON_STEPS, MAX_STEP, STEP_TOLERANCE = 12, 2.0, 1e-3  # of a coefficient at a knot


def varying_steps(
    first: np.ndarray, second: np.ndarray, edges: np.ndarray, features: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and values of step functions that follow a varying-coefficient model of the log-ratio.

    The coefficients have the largest penalised likelihood. The weight of the penalty is the one with the largest
    marginal likelihood.

    Parameters
    ----------
    first, second : ndarray of shape (rows, bins)
        The counts of both datasets.
    edges : ndarray of shape (rows, bins - 1)
        The sorted edges of the bins, padded with infinity.
    features : ndarray of shape (rows, features)
        What the rows have in common. One column should be constant.

    Returns
    -------
    edges : ndarray of shape (rows, E)
        The sorted edges of the steps, the same for every row.
    steps : ndarray of shape (rows, E + 1)
        The values between them.

    Examples
    --------
    Three rows whose log-ratio rises with the value, and with the number of the row:

    >>> edges = np.tile(np.linspace(-2, 2, 9), (3, 1))
    >>> odds = np.exp(np.outer([0.1, 0.2, 0.3], np.arange(10)))
    >>> features = np.array([[1.0, 0.0], [1.0, 0.5], [1.0, 1.0]])
    >>> _, steps = varying_steps(1000 * odds, np.full((3, 10), 1000.0), edges, features)
    >>> (steps[:, -1] - steps[:, 0]).round(1)
    array([0.9, 1.8, 2.7])
    """
    is_used = np.concatenate([np.ones((len(edges), 1), bool), np.isfinite(edges)], axis=1)
    centres = np.concatenate([edges[:, :1], (edges[:, 1:] + edges[:, :-1]) / 2, edges[:, -1:]], axis=1)
    last = np.isfinite(edges).sum(axis=1)
    centres[np.arange(len(edges)), last] = edges[np.arange(len(edges)), last - 1]
    row, values = np.nonzero(is_used)[0], np.where(np.isfinite(centres), centres, 0.0)[is_used]
    c1, c2 = first[is_used].astype(float), second[is_used].astype(float)
    # Knots are equidistant on the scale on which all values together are normally distributed.
    distinct, position = np.unique(values, return_inverse=True)
    mass = np.bincount(position, c1 + c2)
    scale = scipy.special.ndtri((np.cumsum(mass) - mass / 2 + 0.25) / (mass.sum() + 0.5))
    knots = np.linspace(scale[0], scale[-1], KNOTS)
    design = features[row][:, :, None] * _hat_functions(scale[position], knots)[:, None, :]
    coefficients = _fit_coefficients(design.reshape(len(row), -1), c1, c2, features.shape[1])
    places = np.linspace(scale[0], scale[-1], EDGES_PER_KNOT * KNOTS + 1)
    middles = np.concatenate([places[:1], (places[1:] + places[:-1]) / 2, places[-1:]])
    steps = features @ coefficients @ _hat_functions(middles, knots).T
    return np.tile(np.interp(places, scale, distinct), (len(edges), 1)), steps


def _fit_coefficients(design: np.ndarray, c1: np.ndarray, c2: np.ndarray, number: int) -> np.ndarray:
    """Return the values of `number` coefficients at the knots, by penalised logistic regression."""
    second_difference = np.diff(np.eye(KNOTS), 2, axis=0)
    roughness = np.kron(np.eye(number), second_difference.T @ second_difference)
    both, fitted = c1 + c2, np.zeros(design.shape[1])
    best, largest = fitted, -np.inf
    for penalty in PENALTIES:  # from a large penalty to a small one; each fit starts at the previous one
        precision = penalty * roughness + RIDGE * np.eye(len(fitted))
        for _ in range(MAX_NEWTON_STEPS):
            share = scipy.special.expit(design @ fitted)
            hessian = (design.T * (both * share * (1 - share))) @ design + precision
            step = np.linalg.solve(hessian, design.T @ (c1 - both * share) - precision @ fitted)
            fitted = fitted + np.clip(step, -MAX_STEP, MAX_STEP)
            if np.abs(step).max() < STEP_TOLERANCE:
                break
        ratio = design @ fitted
        likelihood = c1 @ ratio - both @ np.logaddexp(0.0, ratio) - fitted @ precision @ fitted / 2
        evidence = likelihood + (np.linalg.slogdet(precision)[1] - np.linalg.slogdet(hessian)[1]) / 2
        if evidence > largest:
            best, largest = fitted, evidence
    return best.reshape(number, KNOTS)


def _hat_functions(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the piecewise linear functions that are 1 at one knot and 0 at the others, one column for each knot."""
    return np.stack([np.interp(x, knots, unit) for unit in np.eye(len(knots))], axis=1)


MAX_PATTERNS = 64
MIN_RUNS_PER_PATTERN = 200
MAX_COUNTED_ATOMS = 3  # atoms whose numbers in a pattern are features of it


class Patterned(NamedTuple):
    """Step functions that depend on the pattern of a run: which coordinates hold atoms, and which atoms.

    Each row is one coordinate under one pattern.

    Attributes
    ----------
    atoms : Atoms
        The atoms that define the patterns.
    patterns : ndarray of shape (P,)
        The sorted codes of the listed patterns.
    offsets : ndarray of shape (P + 1,)
        The log-ratio of each pattern; the last one is for patterns that are not listed.
    rows : ndarray of shape (R,)
        The pattern of each row, as an index.
    coordinates : ndarray of shape (R,)
        The coordinate of each row.
    edges : ndarray of shape (R, E)
        The sorted edges of the bins, padded with infinity.
    steps : ndarray of shape (R, E + 1)
        The value of the step function in each bin.
    """

    atoms: Atoms
    patterns: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray
    coordinates: np.ndarray
    edges: np.ndarray
    steps: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of patterns and of edges at which a step function changes."""
        return self.patterns.size + int((self.steps[:, 1:] != self.steps[:, :-1]).sum())

    def pattern_of(self, flat: Array) -> Array:
        """Return the index of each run's pattern; P if it is not listed."""
        xp = array_namespace(flat)
        codes = self.atoms.index(flat)
        index = xp.clip(xp.searchsorted(self.patterns, codes), 0, self.patterns.shape[0] - 1)
        return xp.where(self.patterns[index] == codes, index, self.patterns.shape[0])

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        xp = array_namespace(flat)
        pattern = self.pattern_of(flat)
        total = self.offsets[pattern]
        for row in range(self.rows.shape[0]):
            selected, column = pattern == self.rows[row], flat[:, self.coordinates[row]]
            if xp is np:
                total[selected] += self.steps[row][np.searchsorted(self.edges[row], column[selected])]
            else:
                step = self.steps[row][xp.searchsorted(self.edges[row], column)]
                total = total + xp.where(selected, step, 0.0)
        return total

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and its coordinates."""
        return f"a score by patterns of atoms of {count_numbers(names)}"


class PatternBinning(NamedTuple):
    """Bins of every continuous coordinate for each frequent pattern. As a statistic it counts the runs in each bin.

    Attributes
    ----------
    score : Patterned
        The score with all heights 0.
    features : ndarray of shape (P, F)
        What the patterns have in common (see `pattern_features`).
    """

    score: Patterned
    features: np.ndarray

    def measure(self, samples: Array) -> np.ndarray:
        """Return one row of counts for each row of the score, and a last row for the patterns."""
        flat, score = np.asarray(samples).reshape(len(samples), -1), self.score
        pattern = score.pattern_of(flat)
        table = np.zeros((len(score.rows) + 1, max(score.steps.shape[1], len(score.offsets))), np.int64)
        for row, (index, j) in enumerate(zip(score.rows, score.coordinates, strict=True)):
            bins = np.searchsorted(score.edges[row], flat[pattern == index, j])
            table[row] = np.bincount(bins, minlength=table.shape[1])
        table[-1] = np.bincount(pattern, minlength=table.shape[1])
        return table


def fit_patterned(statistic: PatternBinning, first: np.ndarray, second: np.ndarray) -> list[Score]:
    """Return the score whose log-ratios come from one model of all rows.

    Rare patterns then have a log-ratio where they have no runs.
    """
    binning = statistic.score
    count1, count2 = (table[-1, : len(binning.offsets)] + 0.5 for table in (first, second))
    offsets = np.log(count1 / count2)
    offsets[-1] *= min(count1[-1], count2[-1]) > 1  # 0 for unlisted patterns that were not observed on both sides
    bins = binning.steps.shape[1]
    counts1, counts2 = first[:-1, :bins], second[:-1, :bins]
    edges, steps = varying_steps(counts1, counts2, binning.edges, statistic.features[binning.rows])
    varying = np.flatnonzero(np.ptp(steps, axis=1) > 0)
    rows, coordinates = binning.rows[varying], binning.coordinates[varying]
    edges, steps = drop_idle_edges(edges[varying], steps[varying] - offsets[rows][:, None])
    return [binning._replace(offsets=offsets, rows=rows, coordinates=coordinates, edges=edges, steps=steps)]


def pattern_learners(training: TrainingData) -> list[Learner]:
    """Return the learner of a patterned score if there are several patterns that leave a coordinate continuous."""
    binning = make_pattern_binning(training.pooled, training.atoms)
    return [] if binning is None else [Learner(functools.partial(fit_patterned, binning), binning)]


def make_pattern_binning(flat: np.ndarray, atoms: list[np.ndarray]) -> PatternBinning | None:
    """Return bins for the frequent patterns; None if no pattern leaves a coordinate continuous or only one exists."""
    with_atoms = [j for j, values in enumerate(atoms) if len(values)]
    if not with_atoms:
        return None
    values = pad_rows([atoms[j] for j in with_atoms])
    table = Atoms(np.array(with_atoms), values, code_weights([1 + len(atoms[j]) for j in with_atoms]))
    patterns, first_runs, pattern_of_run, counts = np.unique(
        table.index(flat), return_index=True, return_inverse=True, return_counts=True
    )
    frequent = np.sort(np.argsort(-counts, kind="stable")[:MAX_PATTERNS])
    frequent = frequent[counts[frequent] >= MIN_RUNS_PER_PATTERN]
    rows, coordinates, edges = [], [], []
    for index, pattern in enumerate(frequent):
        matching = flat[pattern_of_run == pattern]
        for j in range(flat.shape[1]):
            if not np.isin(matching[0, j], atoms[j]):  # all runs of a pattern hold atoms in the same coordinates
                rows.append(index)
                coordinates.append(j)
                edges.append(quantile_edges(np.sort(matching[:, j]), MAX_BINS))
    if not rows or patterns.size == 1:
        return None
    score = Patterned(
        table,
        patterns[frequent],
        np.zeros(frequent.size + 1),
        np.array(rows),
        np.array(coordinates),
        pad_rows(edges),
        np.zeros((len(rows), max(map(len, edges)) + 1)),
    )
    return PatternBinning(score, pattern_features(table, flat[first_runs[frequent]]))


def pattern_features(atoms: Atoms, examples: np.ndarray) -> np.ndarray:
    """Return what patterns have in common: a constant, and how often each of the most frequent atoms occurs in them.

    Parameters
    ----------
    atoms : Atoms
        The atoms that define the patterns.
    examples : ndarray of shape (P, coordinates)
        One run of each pattern.

    Returns
    -------
    ndarray of shape (P, F)
        The constant, and for each atom its number of occurrences, divided by the largest one, and the square of this.
    """
    digits = np.stack(atoms.digits(examples), axis=1)
    held = np.where(digits > 0, examples[:, atoms.coordinates], np.nan)
    values, numbers = np.unique(held[digits > 0], return_counts=True)
    counted = values[np.argsort(-numbers, kind="stable")[:MAX_COUNTED_ATOMS]]
    occurrences = (held[:, :, None] == counted).sum(axis=1)
    occurrences = occurrences[:, np.ptp(occurrences, axis=0) > 0]
    shares = occurrences / np.maximum(occurrences.max(axis=0, initial=1), 1)
    squares = shares[:, occurrences.max(axis=0, initial=0) > 1] ** 2
    return np.concatenate([np.ones((len(examples), 1)), shares, squares], axis=1)
