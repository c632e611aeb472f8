"""Probabilities of cells by numerical integration, compared with the shares of a million runs."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import binom

import dpverify as dpv
from dpverify.events.partition import FIRST_CELL, OUTSIDE, make_partition
from dpverify.events.scores import Features, Levels, Quadratic

RUNS = 10**6
LINE = (-9.0, 9.0)  # the probability outside is below 1e-18


def normal(runs, seed):
    return np.random.default_rng(seed).standard_normal((runs, 1, 2))


def integrate(intervals, breaks):
    """Return the probability of {y in intervals(x)} for two independent standard normal variables x and y."""

    def density(x):
        mass = sum(max(0.0, ndtr(high) - ndtr(low)) for low, high in intervals(x))
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * mass

    edges = np.unique(np.clip([*LINE, *breaks], *LINE))
    return sum(quad(density, a, b, epsabs=1e-10, limit=200)[0] for a, b in itertools.pairwise(edges))


def below(a, b, c):
    """Return the intervals where a y^2 + b y + c <= 0."""
    root = b * b - 4 * a * c
    if root <= 0:
        return [(-np.inf, np.inf)] if a < 0 else []
    low, high = sorted(((-b - np.sqrt(root)) / (2 * a), (-b + np.sqrt(root)) / (2 * a)))
    return [(low, high)] if a > 0 else [(-np.inf, low), (high, np.inf)]


def in_region(region, x):
    """Return the interval of y in the ellipse |A (x, y) - b| <= 1, for a given x."""
    A, b = region.A[0], region.b[0]
    u, v = A[:, 0] * x - b, A[:, 1]
    return below(v @ v, 2 * u @ v, u @ u - 1)


def cell(region, low, high, x):
    if not low[0] <= x <= high[0]:
        return []
    return [(max(a, low[1]), min(b, high[1])) for a, b in in_region(region, x)]


def agree(counts, masses):
    """Compare counts with probabilities; all comparisons together fail with probability at most 1/1000."""
    level = 1e-3 / (2 * len(masses))
    masses = np.clip(masses, 0, 1)
    assert (binom.cdf(counts, RUNS, masses) > level).all()
    assert (binom.sf(np.asarray(counts) - 1, RUNS, masses) > level).all()


@pytest.mark.parametrize("kind", ["grid", "equal-mass"])
def test_cells_of_the_plane_have_the_integrated_probability(kind):
    pilot = normal(200, 0) @ np.array([[1.0, 0.4], [0.0, 1.0]])
    region = dpv.high_likely_set(pilot)
    partition = make_partition(kind, region, pilot, 4 if kind == "grid" else 16)
    codes = np.bincount(partition.codes(normal(RUNS, 1)), minlength=partition.size)
    centre, half = region.centre[0, 0], region.half[0, 0]
    ends = [centre - half, centre + half]
    masses = [1 - integrate(lambda x: in_region(region, x), ends)]
    for code in range(FIRST_CELL, partition.size):
        low, high = partition.box(code, pilot)
        masses.append(integrate(lambda x, low=low, high=high: cell(region, low, high, x), [*ends, low[0], high[0]]))
    assert sum(masses) == pytest.approx(1, abs=1e-8)
    counts = np.append(codes[OUTSIDE], codes[FIRST_CELL:])
    assert counts.sum() == RUNS
    agree(counts, masses)


def test_level_sets_have_the_integrated_probability():
    matrix, weights = np.array([[1.0, 0.3], [0.3, -0.5]]), np.array([0.2, -0.4])
    levels = Levels(Quadratic(Features(np.zeros(2), None), weights, matrix), np.array([-1.5, -0.5, 0.0, 0.7, 3.0]))
    counts = np.bincount(levels.codes(normal(RUNS, 2)), minlength=levels.size)

    def score_below(t):
        return integrate(
            lambda x: below(
                matrix[1, 1],
                2 * matrix[0, 1] * x + weights[1],
                matrix[0, 0] * x * x + weights[0] * x - t,
            ),
            [],
        )

    distribution = [0.0, *(score_below(t) for t in levels.edges), 1.0]
    agree(counts, np.diff(distribution))


def test_the_comparison_detects_a_shift_of_a_hundredth():
    """Negative control of the tests above."""
    levels = Levels(Quadratic(Features(np.zeros(2), None), np.ones(2), np.zeros((2, 2))), np.array([0.0]))
    counts = np.bincount(levels.codes(normal(RUNS, 3) + 0.01), minlength=2)
    with pytest.raises(AssertionError):
        agree(counts, np.array([0.5, 0.5]))
