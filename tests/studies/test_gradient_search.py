"""The search along gradients in a box of many dimensions, on functions whose maximum is known."""

import itertools

import numpy as np
import pytest
from limits import most

import dpverify as dpv
from dpverify.studies.search import BoxPlan, check_box, search_box

DIMENSION = 10
RUNS = 40 * BoxPlan.of(DIMENSION).shares
BOX = check_box([(-1.0, 1.0)] * DIMENSION)
CORNERS = np.array(list(itertools.product([-1.0, 1.0], repeat=DIMENSION)))
FUNCTIONS = 40


def climb(value, slopes):
    """Return the best point, all evaluations, and the runs that were used."""
    spent = [0]

    def estimate(point, runs):
        spent[0] += runs
        return float(value(point))

    def gradient(point, distances, runs):
        spent[0] += runs
        return slopes(point)

    return *search_box(estimate, gradient, BOX, RUNS, 0), spent[0]


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_convex_function_is_nearly_maximal_at_the_corner_that_is_found(is_exact):
    """In nine of ten quadratic functions the value is within 5% of the largest one. A random direction is no use."""
    misses = 0
    for seed in range(FUNCTIONS):
        rng = np.random.default_rng(seed)
        factor = rng.standard_normal((DIMENSION, DIMENSION)) * np.exp(-np.arange(DIMENSION) / 2)
        quadratic = factor @ factor.T
        best, _, spent = climb(
            lambda x, q=quadratic: x @ q @ x,
            lambda x, q=quadratic, rng=rng: 2 * q @ x if is_exact else rng.standard_normal(DIMENSION),
        )
        largest = np.einsum("ij,ij->i", CORNERS @ quadratic, CORNERS).max()
        misses += np.array(best) @ quadratic @ np.array(best) < 0.95 * largest
        assert spent <= RUNS
    assert (misses <= most(FUNCTIONS, 0.1)) == is_exact


def test_a_maximum_in_the_interior_is_approached():
    target = np.linspace(-0.5, 0.5, DIMENSION)
    best, evaluations, _ = climb(lambda x: -np.sum((x - target) ** 2), lambda x: -2 * (x - target))
    assert np.sum((np.array(best) - target) ** 2) < -0.5 * max(value for _, value in evaluations[:8])


def test_a_flat_function_ends_at_a_starting_point():
    _, evaluations, spent = climb(lambda x: 0.0, np.zeros_like)
    assert len(evaluations) == 8 + 3
    assert spent < RUNS


def test_too_few_runs_are_refused():
    with pytest.raises(dpv.InputError, match="runs: found 10; expected at least"):
        search_box(lambda point, runs: 0.0, lambda point, distances, runs: point, BOX, 10, 0)
