"""Varying-coefficient models of log-ratios: rows that share their shape."""

import numpy as np
import pytest
from scipy.special import expit

from dpverify.events.partition import Atoms
from dpverify.events.scores.additive import smooth_steps
from dpverify.events.scores.patterned import pattern_features, varying_steps

ROWS = 6
FEATURES = np.stack([np.ones(ROWS), np.arange(ROWS) / (ROWS - 1)], axis=1)


def true_ratio(row, x):
    """The log-ratio rises with the row, more steeply for small values."""
    return 0.1 * (row + 1) * expit(-2 * x) - 0.1


def draw_counts(seed, runs=200_000):
    """Return counts of both datasets in bins, and the edges of the bins. Each row has a fifth of the runs before."""
    rng = np.random.default_rng(seed)
    edges = np.tile(np.linspace(-3, 3, 25), (ROWS, 1))
    centres = np.concatenate([edges[0, :1], (edges[0, 1:] + edges[0, :-1]) / 2, edges[0, -1:]])
    both = rng.poisson(runs * 0.2 ** np.arange(ROWS)[:, None] * np.exp(-(centres**2) / 2) / 10)
    first = rng.binomial(both, expit(true_ratio(np.arange(ROWS)[:, None], centres)))
    return first, both - first, edges


def error_of_rare_row(edges, steps):
    """Return the mean squared error of the log-ratio of the row with the fewest runs."""
    x = np.linspace(-2, 2, 41)
    values = steps[-1][np.searchsorted(edges[-1], x)]
    return np.mean((values - true_ratio(ROWS - 1, x)) ** 2)


def test_rare_rows_learn_from_frequent_ones():
    """Row by row, the error is many times as large: the control."""
    shared, alone = [], []
    for seed in range(5):
        first, second, edges = draw_counts(seed)
        shared.append(error_of_rare_row(*varying_steps(first, second, edges, FEATURES)))
        alone.append(error_of_rare_row(*smooth_steps(first, second, edges)))
    assert max(shared) < 0.02
    assert np.median(shared) < 0.2 * np.median(alone)


def test_rows_with_equal_features_have_equal_log_ratios():
    """Without the feature of the row all rows have the same log-ratio."""
    first, second, edges = draw_counts(0)
    _, steps = varying_steps(first, second, edges, FEATURES[:, :1])
    np.testing.assert_allclose(steps, steps[:1].repeat(ROWS, axis=0))


def test_padded_edges_are_not_used():
    first, second, edges = draw_counts(1)
    expected = varying_steps(first, second, edges, FEATURES)
    padded = [np.pad(first, ((0, 0), (0, 2))), np.pad(second, ((0, 0), (0, 2)))]
    actual = varying_steps(*padded, np.pad(edges, ((0, 0), (0, 2)), constant_values=np.inf), FEATURES)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("count", [0, 1])
def test_rows_without_runs_are_finite(count):
    first, second, edges = draw_counts(2)
    first[-1], second[-1] = count, 0
    assert np.isfinite(varying_steps(first, second, edges, FEATURES)[1]).all()


def test_features_count_the_atoms_of_a_pattern():
    atoms = Atoms(np.arange(3), np.array([[-2.0, -1.0]] * 3), np.array([1, 3, 9]))
    examples = np.array([[0.5, -1.0, -1.0], [-2.0, 0.7, -1.0], [-2.0, -2.0, 0.1]])
    features = pattern_features(atoms, examples)
    np.testing.assert_allclose(features[:, 0], 1.0)
    columns = features[:, 1:].T.tolist()
    assert [0.0, 0.5, 1.0] in columns  # the number of atoms -2, divided by the largest one
    assert [1.0, 0.5, 0.0] in columns  # the number of atoms -1
    assert [0.0, 0.25, 1.0] in columns  # a square
