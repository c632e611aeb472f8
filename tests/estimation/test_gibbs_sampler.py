"""Samples of the Gibbs distribution agree with closed forms and quadrature, and a wrong sampler is detected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quadrature import BANANA, CHAIN, QUADRATIC, TWO_MODES, chi_square, clipped, draw_runs, grid, rounded

from dpverify.estimation import W2MHE, System, gibbs
from dpverify.estimation.gibbs import Ball, Expansion, Faithfulness, RejectionSampler, envelope_at
from dpverify.estimation.moving_horizon import Windows, stage_cost
from dpverify.util.arrays import enable_x64

MIN_P_VALUE = 1e-4  # over five seeds, one of them in the fast tests
RUNS = 10**5


@pytest.mark.parametrize("seeds", [(0,), pytest.param(range(1, 5), marks=pytest.mark.slow)], ids=["one", "four more"])
@pytest.mark.parametrize(
    ("system", "data", "s", "tau", "radius", "bins", "method"),
    [
        (QUADRATIC, [[0.1, 0.2]], 0.9, 1.0, 0.8, 8, "taylor"),
        (BANANA, [[0.3, 0.4]], 0.7, 1.0, 1.0, 8, "prior"),
        (QUADRATIC, [[2.0, 2.0]], 0.9, 1.0, 0.3, 8, "taylor"),  # the minimum lies far outside the ball
        pytest.param(TWO_MODES, [[0.25]], 0.98, 10.0, 1.0, 64, "prior", marks=pytest.mark.slow),
    ],
    ids=["quadratic", "banana", "boundary", "two modes"],
)
def test_samples_agree_with_quadrature(system, data, s, tau, radius, bins, method, seeds):
    mechanism, data = W2MHE(system, 0, s, tau, support="wide", radius=radius), np.array(data)
    faithfulness = mechanism.faithfulness(data)  # warnings are errors in tests, so there is none
    assert faithfulness.method == method
    assert faithfulness.certified
    assert max(faithfulness.given_up) <= 1e-6
    points, probability = grid(mechanism, data, 800 if system.states == 2 else 10**5)
    for seed in seeds:
        assert chi_square(points, probability, draw_runs(mechanism, data, RUNS, seed)[:, 0], bins) >= MIN_P_VALUE


@pytest.mark.slow
def test_two_steps_have_the_right_joint_distribution():
    mechanism = W2MHE(CHAIN, 1, 0.6, 0.05, support="wide", radius=0.7)
    data = np.array([[0.5], [0.9], [0.2]])
    line = 0.7 * (2 * np.arange(1200) + 1 - 1200) / 1200
    ball = mechanism.sets(2)
    with enable_x64():
        cost = stage_cost(CHAIN, mechanism.problem.residual_weights)
        costs = [
            np.asarray(
                jax.vmap(lambda z, k=k: cost(z, Windows(data[k : k + 2], k)))(
                    jnp.asarray(ball.centre[k] + line)[:, None]
                )
            )
            for k in range(2)
        ]
        predicted = np.asarray(CHAIN.f(jnp.asarray(ball.centre[0] + line)))
    z0, z1 = ball.centre[0] + line, ball.centre[1] + line
    first = np.exp(-(np.square(z0 - CHAIN.start[0]) / (2 * mechanism.tau) + costs[0]) / mechanism.kappa)
    second = np.exp(-(np.square(z1 - predicted[:, None]) / (2 * mechanism.tau) + costs[1]) / mechanism.kappa)
    probability = first[:, None] / first.sum() * second / second.sum(1, keepdims=True)
    points = np.stack(np.meshgrid(z0, z1, indexing="ij"), -1).reshape(-1, 2)
    p = [
        chi_square(points, probability.ravel(), draw_runs(mechanism, data, RUNS, seed)[..., 0], 8) for seed in range(5)
    ]
    assert min(p) >= MIN_P_VALUE
    assert mechanism.faithfulness(data).certified


def test_one_metropolis_step_from_a_laplace_proposal_is_caught():
    mechanism, data = W2MHE(TWO_MODES, 0, 0.98, 10.0, support="wide", radius=1.0), np.array([[0.25]])
    points, probability = grid(mechanism, data, 10**5)
    rng = np.random.default_rng(0)
    mode, deviation = points[probability.argmax(), 0], np.sqrt(mechanism.kappa / (1 / mechanism.tau + 4 * 0.25))

    def log_target(z):
        return -(z**2 / (2 * mechanism.tau) + (0.25 - z**2) ** 2 / 2) / mechanism.kappa

    a, b = mode + deviation * rng.standard_normal((2, RUNS))
    log_ratio = log_target(b) - log_target(a) + (np.square(b - mode) - np.square(a - mode)) / (2 * deviation**2)
    moved = np.log(rng.random(RUNS)) < log_ratio
    assert moved.mean() > 0.5  # a high acceptance rate proves nothing
    assert chi_square(points, probability, np.where(moved, b, a)[:, None], 64) < 1e-12


def test_a_linear_system_has_its_closed_form():
    """The transitions are Gaussian: z_k given m_k is N((I/tau + H)^-1 (m_k/tau + b_k), kappa (I/tau + H)^-1)."""
    A, C, N, tau = np.array([[1.0, 0.2], [-0.1, 0.9]]), np.array([[1.0, 0.0], [0.5, -1.0]]), 2, 0.04
    system = System(A=A, C=C, start=(0.3, -0.2))
    data = np.random.default_rng(3).normal(0.2, 0.1, (6, 2))
    mechanism = W2MHE(system, N, 0.9, tau, support="wide", radius=4.0)
    maps = [C @ np.linalg.matrix_power(A, j) for j in range(N + 1)]
    P = np.eye(2) / tau + sum(G.T @ G for G in maps)
    steps = len(data) - N
    means, covariance = [], np.zeros((2 * steps, 2 * steps))
    prior, before = np.array(system.start), np.zeros((2, 2 * steps))
    for k in range(steps):
        b = sum(G.T @ data[k + j] for j, G in enumerate(maps))
        means.append(np.linalg.solve(P, prior / tau + b))
        row = np.linalg.solve(P, before / tau)  # z_k as a combination of the independent noise terms so far
        row[:, 2 * k : 2 * k + 2] += np.linalg.cholesky(mechanism.kappa * np.linalg.inv(P))
        covariance[2 * k : 2 * k + 2] = row
        prior, before = A @ means[-1], A @ row
    covariance = covariance @ covariance.T
    runs = 10**6
    z = np.asarray(mechanism(data, runs, np.random.default_rng(0))).reshape(runs, -1)
    error = (z.mean(0) - np.ravel(means)) / np.sqrt(np.diag(covariance) / runs)
    assert np.abs(error).max() < 4.5  # one of 8 means exceeds it with probability 6e-5
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2)
    assert (
        np.abs(np.cov(z.T) - covariance) / (scale / np.sqrt(runs))
    ).max() < 5.0  # one of 36 entries exceeds it with probability 2e-5
    assert max(mechanism._plan(data).faithfulness.M) < 1.01


@pytest.mark.slow
def test_without_interval_bounds_the_distribution_is_still_exact():
    """Draws from the prior need no bounds of the derivatives of f and h."""
    data = np.array([[0.2]])
    mechanism = W2MHE(
        System(f=rounded, h=clipped, start=(0.0,), lipschitz=2.0), 0, 0.5, 1.0, support="wide", radius=0.4
    )
    assert mechanism.faithfulness(data).certified
    points, probability = grid(mechanism, data, 10**5)
    assert chi_square(points, probability, draw_runs(mechanism, data, RUNS, 0)[:, 0], 64) >= MIN_P_VALUE


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "finishes"), [(16, True), (4096, False)])
def test_the_quick_sampler_has_the_draws_of_the_full_one_or_says_that_it_is_not_finished(runs, finishes):
    zero, ball = np.zeros(1), Ball(np.zeros(1), 1.0)
    # The third derivative of J(z) = z^2 / 2 is bounded by 1, which is far from tight: the squeeze test often fails.
    envelope = envelope_at(
        Expansion(zero, 0.0, zero, np.eye(1)), np.full(1, 1 / 3), np.full(1, 1 / 3), np.ones((1, 1, 1)), ball, 0.25, 1.0
    )
    with enable_x64():
        envelope, ball = jax.device_put((envelope, ball))
        sampler = RejectionSampler(lambda z: jnp.sum(z**2) / 2, envelope, ball, 0.25, 1.0, True)
        m = jnp.zeros((1, runs))
        quick, unfinished = jax.jit(sampler.draw_quickly)(m, jax.random.key(0))
        full, abandoned = jax.jit(sampler.draw)(m, jax.random.key(0))
    assert not abandoned
    assert bool(unfinished) is not finishes
    same = (np.asarray(quick) == np.asarray(full)).all(0)
    assert same.all() == finishes
    assert same.mean() > 0.5  # the runs that the quick sampler has finished stay as they are


@pytest.mark.slow
def test_a_block_that_the_quick_sampler_does_not_finish_is_drawn_by_the_full_one(monkeypatch):
    mechanism, data = W2MHE(QUADRATIC, 0, 0.9, 1.0, support="wide", radius=0.3), np.array([[0.1, 0.2]])
    full = np.asarray(mechanism(data, 4096, np.random.default_rng(0)))
    monkeypatch.setattr(Faithfulness, "mostly_squeezed", True)
    assert np.array_equal(np.asarray(mechanism(data, 4096, np.random.default_rng(0))), full)
    assert not np.array_equal(np.asarray(mechanism(data, 4096, np.random.default_rng(1))), full)


def test_the_sampler_is_compiled_ahead_for_the_block_that_is_drawn():
    """The processor takes the role of the accelerator. The ball is so large that all draws pass the squeeze test."""
    mechanism = W2MHE(QUADRATIC, 0, 0.9, 1, support="wide", radius=10.0)  # tau may be a whole number
    data = np.array([[0.1, 0.2], [0.0, -0.3], [0.4, 0.1]])
    assert mechanism.faithfulness(data).mostly_squeezed
    gibbs.compile_ahead(mechanism.problem, 64, (3, 1, 2), jax.devices("cpu")[0]).result()
    compiled = gibbs._draw_step._cache_size()
    assert np.isfinite(np.asarray(mechanism(data, 64, np.random.default_rng(0)))).all()
    assert gibbs._draw_step._cache_size() == compiled
