"""The Kalman filters agree with filterpy, with conditional means, and with closed forms of their distributions."""

import math
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from limits import most
from scipy.stats import chi2, kstest, norm

import dpverify as dpv
from dpverify.estimation import (
    GaussianTruth,
    Normal,
    PrivateEKF,
    PrivateKalman,
    System,
    oscillator,
    simulate,
)
from dpverify.estimation.ekf import RUNS_IN_CACHE
from dpverify.estimation.system import finite_estimate
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # warnings of filterpy itself
    from filterpy.kalman import ExtendedKalmanFilter, KalmanFilter

A, C = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[1.0, 0.0]])
TRACK = System(
    A=A, C=C, start=(0.0, 0.5), disturbance=Normal((0.03, 0.05)), noise=Normal(0.2), initial=Normal((1.0, 0.0))
)
FIRST = np.sin(0.3 * np.arange(6))[:, None]
SECOND = FIRST + 0.1 * (np.arange(6) == 2)[:, None]


def estimate(mechanism, data):
    with enable_x64():
        return np.asarray(finite_estimate(mechanism, jnp.asarray(data)))


def test_the_noise_free_filter_agrees_with_filterpy_on_the_papers_data():
    system = oscillator()
    data, places = simulate(system, np.random.default_rng(3)).data, system.h.places

    def h(x):
        return 100 * np.tanh(0.1 * (x[:2] - places)).reshape(-1)

    def H(x):
        slope = 10 / np.cosh(0.1 * (x[:2] - places)) ** 2
        return np.concatenate([np.hstack([np.diag(row), np.zeros((2, 2))]) for row in slope])

    oracle = ExtendedKalmanFilter(4, 20)
    oracle.x, oracle.F = np.array(system.start), np.asarray(system.A)
    oracle.P, oracle.Q = system.initial.variance * np.eye(4), np.diag(system.disturbance.variance)
    oracle.R = system.noise.variance * np.eye(20)
    expected = []
    for k, y in enumerate(data):
        if k:
            oracle.predict()
        oracle.update(y, H, h)
        expected.append(oracle.x[:2].copy())
    assert np.abs(estimate(PrivateEKF(system, 1.0), data) - expected).max() < 1e-9
    assert np.abs(estimate(PrivateEKF(system, 1.0, window=5), data) - expected[:4]).max() < 1e-9


def conditional_means(system, data, R):
    """Return E[x_k | y_0..y_k] from the joint Gaussian distribution of all states and data, without recursion."""
    n, steps = 2, len(data)
    powers = [np.linalg.matrix_power(A, k) for k in range(steps)]
    P0, Q = np.diag(system.initial.variance), np.diag(system.disturbance.variance)
    cov = np.zeros((steps * n, steps * n))
    for i in range(steps):
        for j in range(steps):
            shared = powers[i] @ P0 @ powers[j].T
            shared = shared + sum(powers[i - k] @ Q @ powers[j - k].T for k in range(1, min(i, j) + 1))
            cov[n * i : n * i + n, n * j : n * j + n] = shared
    mean = np.concatenate([power @ system.start for power in powers])
    H = np.kron(np.eye(steps), C)
    means = []
    for k in range(steps):
        past, state = slice(0, k + 1), slice(n * k, n * k + n)
        S = (H @ cov @ H.T)[past, past] + R * np.eye(k + 1)
        innovation = np.ravel(data)[past] - (H @ mean)[past]
        means.append(mean[state] + (cov @ H.T)[state, past] @ np.linalg.solve(S, innovation))
    return np.array(means)


def test_on_a_linear_system_the_ekf_is_the_kalman_filter():
    """One coordinate of the start is known exactly, so that the initial covariance is singular."""
    oracle = KalmanFilter(2, 1)
    oracle.x, oracle.F, oracle.H = np.array(TRACK.start), A, C
    oracle.P, oracle.Q = np.diag(TRACK.initial.variance), np.diag(TRACK.disturbance.variance)
    oracle.R = np.array([[0.04]])
    filtered = []
    for k, y in enumerate(FIRST):
        if k:
            oracle.predict()
        oracle.update(y)
        filtered.append(oracle.x.copy())
    means = conditional_means(TRACK, FIRST, 0.04)
    for mechanism in (PrivateEKF(TRACK, 1.0), PrivateKalman(TRACK, 0.0)):
        estimates = estimate(mechanism, FIRST)
        assert np.abs(estimates - filtered).max() < 1e-9
        assert np.abs(estimates - means).max() < 1e-9


def test_a_full_measurement_covariance_equals_whitened_measurements():
    R = np.array([[0.04, 0.03], [0.03, 0.05]])
    L = np.linalg.cholesky(R)
    twice = np.hstack([FIRST, 0.5 * FIRST])
    full = replace(TRACK, h=None, C=np.eye(2), noise=Normal(1.0))
    whitened = replace(TRACK, h=None, C=np.linalg.inv(L), noise=Normal(1.0))
    estimates = estimate(PrivateEKF(full, 1.0, measurement=R), twice)
    assert np.abs(estimates - estimate(PrivateEKF(whitened, 1.0), np.linalg.solve(L, twice.T).T)).max() < 1e-12


def test_the_private_ekf_keeps_its_bias():
    """On a linear system the output is linear in the noise, so its mean is the output for the mean noise."""
    mechanism, runs = PrivateEKF(TRACK, 0.8), 4096
    samples = np.asarray(mechanism(FIRST, runs, np.random.default_rng(0))).reshape(runs, -1)
    with enable_x64():
        shocks = jnp.full((6, 2), 0.25 / 2)
        mean = np.asarray(replace(mechanism, s_hat=1.0).filtered(jnp.asarray(FIRST), shocks)).ravel()

    def hotelling(centre):
        """Return Hotelling's statistic of the sample mean against this centre."""
        offset = samples.mean(0) - centre
        return runs * offset @ np.linalg.solve(np.cov(samples.T), offset)

    assert hotelling(mean) < chi2.ppf(0.999, samples.shape[1])
    assert hotelling(estimate(mechanism, FIRST).ravel()) > chi2.ppf(0.999, samples.shape[1])  # the noise has a mean


def test_without_noise_the_private_ekf_is_the_extended_kalman_filter():
    samples = np.asarray(PrivateEKF(TRACK, 1.0)(FIRST, 8, np.random.default_rng(0)))
    assert np.abs(samples - estimate(PrivateEKF(TRACK, 1.0), FIRST)).max() < 1e-12


@pytest.mark.parametrize("where", ["output", "input"])
def test_the_samples_have_the_stated_distribution(where):
    mechanism, runs = PrivateKalman(TRACK, 0.25, where), 8192
    truth = mechanism.truth(FIRST, SECOND)
    samples = np.asarray(mechanism(SECOND, runs, np.random.default_rng(1))).reshape(runs, -1)
    values, vectors = np.linalg.eigh(truth.covariance)
    positive = values > 1e-9 * values.max()  # with one measurement per step the covariance of two states is singular
    offset = samples - truth.second.ravel()
    assert np.abs(offset @ vectors[:, ~positive]).max(initial=0.0) < 1e-7
    white = offset @ vectors[:, positive] / np.sqrt(values[positive])
    assert kstest(np.square(white).sum(1), chi2(positive.sum()).cdf).pvalue > 1e-3
    assert kstest(white.ravel(), norm.cdf).pvalue > 1e-3
    shift = (truth.first - truth.second).ravel() @ vectors[:, positive] / np.sqrt(values[positive])
    assert np.linalg.norm(shift) == pytest.approx(truth.mu)
    along = white @ (shift / truth.mu)
    assert kstest(along, norm.cdf).pvalue > 1e-3
    assert kstest(along - truth.mu, norm.cdf).pvalue < 1e-6  # the distribution of the other dataset is rejected


def test_the_exact_privacy_depends_on_mu_and_has_the_right_limits():
    output, input_ = (PrivateKalman(TRACK, 0.25, where).truth(FIRST, SECOND) for where in ("output", "input"))
    shift = (output.first - output.second).ravel()
    assert output.mu == pytest.approx(np.linalg.norm(shift) / 0.25)
    assert input_.mu <= 0.1 / 0.25 + 1e-12  # post-processing does not reduce privacy
    assert output.delta(output.epsilon(0.01)) == pytest.approx(0.01)
    assert (output.epsilon(0.0), output.epsilon(1.0)) == (np.inf, 0.0)
    assert PrivateKalman(TRACK, 0.25).truth(FIRST, FIRST).delta(0.0) == 0.0
    assert PrivateKalman(TRACK, 0.0).truth(FIRST, SECOND).delta(9.0) == 1.0
    truth = GaussianTruth(FIRST, SECOND, np.eye(1), 1.0)
    assert truth.delta(1.0) == pytest.approx(norm.cdf(-0.5) - math.e * norm.cdf(-1.5))


# Bounds of reports against the closed form, and against the exact delta of the frozen partition.

EPSILONS = (0.0, 0.25, 0.5, 1.0, 1.5)


class Ratio:
    """The log-likelihood ratio of two Gaussians, up to a constant, as a user-defined score that is linear."""

    def __init__(self, truth):
        self.weights = np.linalg.pinv(truth.covariance, 1e-9) @ (truth.first - truth.second).ravel()
        self.distributions = [
            norm(m.ravel() @ self.weights, np.sqrt(self.weights @ truth.covariance @ self.weights))
            for m in (truth.first, truth.second)
        ]

    def __call__(self, samples):
        return samples.reshape(len(samples), -1) @ self.weights


def partition_deltas(partition, point_at, distributions):
    """Return the exact delta of the frozen cells at each epsilon; bisection finds where the cell codes change."""
    lowest = min(distribution.ppf(1e-13) for distribution in distributions)
    highest = max(distribution.isf(1e-13) for distribution in distributions)

    def codes(t):
        return np.asarray(partition.codes(point_at(np.asarray(t))))

    grid = np.linspace(lowest, highest, 20_001)
    grid_codes = codes(grid)
    changes = np.flatnonzero(grid_codes[1:] != grid_codes[:-1])
    low, high, left = grid[changes], grid[changes + 1], grid_codes[changes]
    for _ in range(40):
        middle = (low + high) / 2
        same = codes(middle) == left
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    cells = np.concatenate([grid_codes[changes], grid_codes[-1:]])
    index = np.unique(cells, return_inverse=True)[1]
    p, q = (
        np.bincount(index, np.diff(np.concatenate([[0.0], distribution.cdf(high), [1.0]])))
        for distribution in distributions
    )
    return [max(np.maximum(a - math.exp(e) * b, 0).sum() for a, b in ((p, q), (q, p))) for e in EPSILONS]


def misses(where, window, seeds):
    """Count for each epsilon how often delta_lower exceeds the truth, and delta_upper is below the exact delta."""
    scalar = window == len(FIRST) - 1
    system = replace(TRACK, released=(0,)) if scalar else TRACK
    mechanism = PrivateKalman(system, 0.1, where, window=window)
    pair = (FIRST, FIRST + 0.1 * (np.arange(6) == 0)[:, None]) if scalar else (FIRST, SECOND)
    truth = mechanism.truth(*pair)
    score = Ratio(truth)
    distributions, events, point_at = (
        score.distributions,
        score,
        lambda t: np.outer(t, score.weights / np.square(score.weights).sum()),
    )
    if scalar:  # one number is released, so that the cells of every event are intervals
        deviation = math.sqrt(truth.covariance[0, 0])
        distributions, events = [norm(m[0, 0], deviation) for m in (truth.first, truth.second)], "union"
        point_at = lambda t: np.asarray(t)  # noqa: E731
    shape = truth.first.shape
    lower, upper = np.zeros(5, int), np.zeros(5, int)
    for seed in range(seeds):
        report = dpv.verify(mechanism, *pair, events=events, seed=seed, select_runs=4096, test_runs=8192, block=4096)
        exact = partition_deltas(
            report.witness.event.partition, lambda t: point_at(t).reshape(-1, *shape), distributions
        )
        for i, epsilon in enumerate(EPSILONS):
            lower[i] += report.delta_lower(epsilon) > truth.delta(epsilon)
            upper[i] += report.on_partition.delta_upper(epsilon) < exact[i] - 1e-9
    return lower, upper, truth


def test_bounds_beside_the_closed_form():
    lower, upper, truth = misses("output", 0, 10)
    assert 0.001 < truth.delta(1.0) < 0.9
    assert lower.max() <= most(10, 0.05)
    assert upper.max() <= most(10, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["output", "input"])
@pytest.mark.parametrize("window", [0, 2, 5])
def test_bounds_beside_the_closed_form_over_many_seeds(where, window):
    lower, upper, truth = misses(where, window, 200)
    print(where, window, "mu", truth.mu, "lower", lower, "upper", upper, "allowed", most(200, 0.05))
    assert lower.max() <= most(200, 0.05)
    assert upper.max() <= most(200, 0.05)


@pytest.mark.parametrize("where", ["output", "input"])
def test_the_closed_form_of_a_prefix_is_that_of_a_shorter_output(where):
    """A causal filter of the first steps releases the prefix, so its own closed form must agree."""
    system = System(
        A=[[1.0, 0.1], [0.0, 0.9]], C=[[1.0, 0.0]], start=(0.0, 0.0), noise=Normal(0.5), initial=Normal(1.0)
    )
    mechanism = PrivateKalman(system, scale=0.7, where=where)
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(2, 6, 1))
    whole = mechanism.truth(first, second)
    for steps in (1, 3, 6):
        assert whole.prefix(steps).mu == pytest.approx(mechanism.truth(first[:steps], second[:steps]).mu, rel=1e-9)
    assert whole._replace(factor=None).prefix(3).mu == pytest.approx(whole.prefix(3).mu, rel=1e-6)
    assert mechanism.truth(first, first).prefix(2).epsilon(0.0) == 0.0


def turning_step(x):
    return jnp.stack([x[0] + 0.1 * x[1], x[1] - 0.1 * jnp.sin(x[0])])


@pytest.mark.parametrize("system", [TRACK, replace(TRACK, f=turning_step, A=None, C=None)], ids=["linear", "nonlinear"])
def test_runs_together_agree_with_one_run_after_the_other(system):
    """On a CPU few runs are filtered at a time, here in two pieces."""
    mechanism, runs = PrivateEKF(system, 0.7), RUNS_IN_CACHE + 20
    together = np.asarray(mechanism(FIRST, runs, np.random.default_rng(0)))
    with enable_x64():
        shocks = 0.3 / 0.7 * jax.random.uniform(jax_key(np.random.default_rng(0)), (runs, 6, 2))
        last = np.asarray(mechanism.noise_free.filtered(jnp.asarray(FIRST), shocks[-1]))
    np.testing.assert_allclose(together[-1], last, rtol=1e-12)
    other = np.asarray(PrivateEKF(system, 0.7, process=0.1)(FIRST, runs, np.random.default_rng(0)))
    assert np.abs(together - other).max() > 1e-3


def first_state(x):
    return jnp.tanh(2 * x[:1])


def test_columns_of_states_that_are_not_observed_are_left_out():
    class FirstState:
        observed = (0,)

        def __call__(self, x):
            return first_state(x)

    plain = replace(TRACK, f=turning_step, A=None, h=first_state, C=None)
    told = replace(plain, h=FirstState())
    assert (plain.observed, told.observed, TRACK.observed) == ((0, 1), (0,), (0,))
    runs = [np.asarray(PrivateEKF(s, 0.7)(FIRST, 16, np.random.default_rng(0))) for s in (plain, told)]
    np.testing.assert_allclose(*runs, rtol=1e-12)
