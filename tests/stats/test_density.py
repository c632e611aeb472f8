"""Bounds over all events from a stated density: exact integrals, coverage beside closed forms, and wrong densities."""

import math

import numpy as np
import pytest
from limits import most
from scipy.special import ndtr

from dpverify.report.certificate import DensityCertificate
from dpverify.stats.density import delta_from_tail, find_misfit, loss_thresholds

EPSILONS = (0.0, 0.3, 1.0, 2.0)
PILOT = 600


def gaussian_delta(mu, epsilon):
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


def gaussian_losses(side, runs, rng, mu=1.0):
    return mu * rng.standard_normal(runs) + (0.5 - side) * mu**2


def laplace_losses(side, runs, rng, shifts=(0.7, 0.5)):
    """Return the log-ratios of two numbers with Laplace noise, whose densities lie at 0 and at the shifts."""
    x = rng.laplace(size=(runs, len(shifts))) + side * np.array(shifts)
    return (np.abs(x - shifts) - np.abs(x)).sum(axis=1)


def chain_losses(side, runs, rng, steps=6, ratio=0.8):
    """Return the log-ratios of a chain: each answer to a coin depends on the answer before."""
    answers = rng.random((runs, steps)) < (0.5 + (0.1 if side else -0.1))
    kept = rng.random((runs, steps)) < ratio  # an answer is released, or the one before is released again
    step = np.where(answers, math.log(0.4 / 0.6), math.log(0.6 / 0.4))
    return (kept * step).sum(axis=1)


def uniform_losses(side, runs, rng):
    """Return the log-ratios of uniform noise: one run in ten shows the dataset."""
    return np.where(rng.random(runs) < 0.1, 700.0 * (1 - 2 * side), 0.0)


def exact_delta(draw, epsilon):
    """Return delta at this epsilon from a closed form, or from so many runs that its error does not matter."""
    if draw is gaussian_losses:
        return gaussian_delta(1.0, epsilon)
    if draw is uniform_losses:
        return 0.1
    losses = draw(0, 4_000_000, np.random.default_rng(99))
    gain = np.maximum(-np.expm1(epsilon - losses), 0.0)
    return gain.mean() - 5 * gain.std() / 2000  # certainly not above the truth


def certificate(draw, seed, runs, alpha=0.05):
    """Return the certificate of some runs; without an alpha its limits are a little below the estimates."""
    rng = np.random.default_rng(seed)
    thresholds = loss_thresholds(np.abs(np.concatenate([draw(side, PILOT, rng) for side in (0, 1)])))
    alpha = alpha or 1.2 * thresholds.size  # each limit has level 0.6
    edges = np.unique(np.r_[-thresholds, thresholds])
    cells = [np.searchsorted(edges, draw(side, runs, rng)) for side in (0, 1)]
    counts = np.stack([np.bincount(own, minlength=edges.size + 1) for own in cells])
    return DensityCertificate(edges, counts[:, :, None], runs, alpha, 1e-6)


@pytest.mark.parametrize("mu", [0.05, 1.0, 4.0])
def test_the_integral_of_an_exact_tail_is_hardly_above_delta(mu):
    thresholds = loss_thresholds(np.abs(gaussian_losses(0, PILOT, np.random.default_rng(0), mu)))
    tail = ndtr(mu / 2 - thresholds / mu)
    for delta in (0.1, 1e-2, 1e-3):
        epsilon = next(e for e in np.linspace(0, 30, 30_001) if gaussian_delta(mu, e) <= delta)
        exact = gaussian_delta(mu, epsilon)
        assert exact <= delta_from_tail(thresholds, tail, epsilon) <= 1.1 * max(exact, 1e-9) + 1e-6


def misses(draw, trials, runs, alpha):
    """Return how often a bound is below the truth at one of the epsilons."""
    truth = [exact_delta(draw, epsilon) for epsilon in EPSILONS]
    found = (certificate(draw, seed, runs, alpha) for seed in range(trials))
    return sum(any(one.delta_upper(e) < d for e, d in zip(EPSILONS, truth, strict=True)) for one in found)


LAWS = [gaussian_losses, laplace_losses, chain_losses, uniform_losses]


@pytest.mark.parametrize("draw", LAWS)
def test_the_bounds_hold_at_all_epsilons_together(draw):
    assert misses(draw, 200, 500, 0.05) <= most(200, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("draw", LAWS)
def test_the_bounds_hold_for_many_seeds(draw):
    assert misses(draw, 2000, 500, 0.05) <= most(2000, 0.05)


@pytest.mark.parametrize("draw", LAWS)
def test_estimates_instead_of_limits_are_noticed(draw):
    assert misses(draw, 200, 500, None) > most(200, 0.05)


def test_the_bound_is_close_to_the_truth():
    found = [certificate(gaussian_losses, seed, 10**6) for seed in range(5)]
    assert 0.01 <= np.mean([one.delta_upper(2.3178) for one in found]) <= 0.011
    assert 1e-4 <= np.mean([one.delta_upper(3.8044) for one in found]) <= 1.5e-4
    assert 2.3178 <= found[0].epsilon_upper(0.01) <= 2.36
    assert found[0].epsilon_upper(0.0) == math.inf


def test_what_no_epsilon_removes_is_shown():
    found = certificate(uniform_losses, 0, 100_000)
    assert 0.1 <= found.delta_upper(600.0) <= found.delta_upper(0.0) <= 0.105
    assert found.epsilon_upper(0.099) == math.inf


def counted(true_scale, stated_scale, seed, runs=20_000, columns=4):
    """Count slices of the stated log-ratio of Gaussian noise, and columns of the output."""
    rng = np.random.default_rng(seed)
    edges, counts = np.arange(-3.0, 3.01, 0.1), []
    for side in (0, 1):
        x = true_scale * rng.standard_normal(runs) + side
        losses = (0.5 - x) / stated_scale**2
        cells = np.searchsorted(edges, losses) * columns + rng.integers(columns, size=runs)
        counts.append(np.bincount(cells, minlength=(edges.size + 1) * columns).reshape(-1, columns))
    return edges, np.stack(counts), runs


def test_a_right_density_is_contradicted_at_most_as_often_as_stated():
    assert sum(find_misfit(*counted(1.0, 1.0, seed), 0.2) is not None for seed in range(100)) <= most(100, 0.2)


def test_a_wrong_density_is_contradicted():
    for stated in (0.8, 1.25):
        misfit = find_misfit(*counted(1.0, stated, 0), 1e-6)
        assert misfit is not None
        assert misfit.columns == (0, 4)  # the columns say nothing here, so that a rectangle with all of them is worst


def test_a_run_where_the_density_is_zero_is_a_contradiction():
    edges, counts = np.array([0.0, 690.0]), np.zeros((2, 3, 1), int)
    counts[:, 0] = 1000
    counts[0, 2] = 5
    assert find_misfit(edges, counts, 1005, 1e-6) is None
    assert find_misfit(edges, counts[::-1], 1005, 1e-6) == (690.0, math.inf, (0, 1), (0, 5))
