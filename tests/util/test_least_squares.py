"""Nonnegative least squares agrees with SciPy's active-set method, and says if it does not converge."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from dpverify.events.region import nonnegative_minimum


def random_problem(seed, rows=60, columns=90):
    """Return a matrix and a target with about half of the unknowns at zero."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, columns)), rng.standard_normal(rows)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("guess", ["none", "all", "random"])
def test_it_agrees_with_an_active_set_method(seed, guess):
    matrix, target = random_problem(seed, rows=90, columns=60)
    expected = scipy.optimize.nnls(matrix, target)[0]
    start = {
        "none": np.zeros(60, bool),
        "all": np.ones(60, bool),
        "random": np.random.default_rng(seed).random(60) < 0.5,
    }[guess]
    found = nonnegative_minimum(matrix.T @ matrix, matrix.T @ target, start)
    assert found is not None
    assert 10 < np.count_nonzero(found) < 50  # the constraint matters
    assert np.allclose(found, expected, atol=1e-9)
    assert not np.allclose(np.maximum(np.linalg.lstsq(matrix, target, rcond=None)[0], 0.0), expected, atol=1e-3)


def test_a_singular_matrix_gives_an_optimum_or_nothing():
    found = {}
    for seed in range(10):
        matrix, target = random_problem(seed)
        found[seed] = nonnegative_minimum(matrix.T @ matrix, matrix.T @ target, np.zeros(90, bool))
        if found[seed] is not None:
            smallest = scipy.optimize.nnls(matrix, target)[1]
            assert np.linalg.norm(matrix @ found[seed] - target) == pytest.approx(smallest, rel=1e-6)
    assert found[0] is not None
    assert found[1] is None


def test_the_start_is_not_changed():
    start = np.array([False, True])
    nonnegative_minimum(np.eye(2), np.array([1.0, -1.0]), start)
    assert start.tolist() == [False, True]
