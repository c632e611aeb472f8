"""The KL-MHE in one dimension, where its distribution is a truncated normal in closed form."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, truncnorm, uniform

from dpverify.estimation import KLMHE, Normal, System

A, C, RADIUS = 0.9, 1.5, 2.0
SYSTEM = System(A=[[A]], C=[[C]], start=(0.3,), noise=Normal(1.0))
DATA = np.array([[0.8], [0.2], [0.9], [0.1], [0.6]])
RUNS, PARTICLES = 1000, 400


def closed_form(k, s, window, discounted=True):
    """Return mu_k on f0^k(K_0): the exponent is a sum of squares, each s^(k - j + 1) times J_j of the start."""
    precision = moment = 0.0
    for j in range(k + 1):
        weight = s ** (k - j + 1) if discounted else s
        for i in range(j, j + window + 1):
            precision += weight * (C * A**i) ** 2
            moment += weight * C * A**i * DATA[i, 0]
    mean, deviation = moment / precision, precision**-0.5  # in terms of the start
    low, high = 0.3 - RADIUS, 0.3 + RADIUS
    return truncnorm((low - mean) / deviation, (high - mean) / deviation, A**k * mean, A**k * deviation)


def sample(mechanism, seed=0):
    return np.asarray(mechanism(DATA, RUNS, np.random.default_rng(seed)))[..., 0]


def limit(mechanism, data=DATA):
    """Return Kolmogorov's 99.9% limit plus 1/ESS for the bias of drawing one of finitely many weighted particles."""
    return 1.95 / np.sqrt(RUNS) + 1 / mechanism.effective(data, np.random.default_rng(9)).min()


@pytest.mark.parametrize("s", [1.0, 0.6])
def test_samples_agree_with_the_closed_form(s):
    mechanism = KLMHE(SYSTEM, 1, s, particles=PARTICLES, diameter=2 * RADIUS)
    samples = sample(mechanism)
    for k in range(4):
        assert kstest(samples[:, k], closed_form(k, s, 1).cdf).statistic < limit(mechanism)
    if s < 1:  # the entropy term discounts the past at each step; one factor s for all of it is rejected
        assert kstest(samples[:, 3], closed_form(3, s, 1, discounted=False).cdf).statistic > limit(mechanism)


def test_at_s_0_the_estimate_is_uniform_on_the_predicted_set():
    mechanism = KLMHE(SYSTEM, 1, 0.0, particles=PARTICLES, diameter=2 * RADIUS)
    samples = sample(mechanism)
    for k in range(4):
        predicted = uniform(A**k * (0.3 - RADIUS), A**k * 2 * RADIUS)
        assert kstest(samples[:, k], predicted.cdf).statistic < limit(mechanism)


def test_the_open_window_leaves_out_its_first_step():
    mechanism = KLMHE(SYSTEM, 1, 1.0, particles=PARTICLES, diameter=2 * RADIUS, span="open")
    precision = (C * A) ** 2
    mean, deviation = C * A * DATA[1, 0] / precision, precision**-0.5
    first = truncnorm((0.3 - RADIUS - mean) / deviation, (0.3 + RADIUS - mean) / deviation, mean, deviation)
    assert kstest(sample(mechanism)[:, 0], first.cdf).statistic < limit(mechanism)


def nonlinear_step(x):
    return x + 0.3 * jnp.sin(2 * x)


def test_a_nonlinear_step_accounts_for_its_change_of_volume():
    """With s = 1/2 and h = 0, mu_0 is uniform, nu = f0#mu_0 has density 1/f0', and mu_1 is its square root."""
    system = System(f=nonlinear_step, h=jnp.zeros_like, start=(0.0,), noise=Normal(1.0))
    mechanism = KLMHE(system, 0, 0.5, particles=PARTICLES, diameter=2 * RADIUS)
    samples = np.asarray(mechanism(np.zeros((2, 1)), RUNS, np.random.default_rng(0)))[:, 1, 0]
    x = np.linspace(-RADIUS, RADIUS, 20_001)
    slope = 1 + 0.6 * np.cos(2 * x)
    mass = np.cumsum(np.sqrt(1 / slope) * slope)  # density at z = f0(x), times dz = f0' dx
    z = np.asarray(x + 0.3 * np.sin(2 * x))

    def cdf(v):
        return np.interp(v, z, mass / mass[-1])

    assert kstest(samples, cdf).statistic < limit(mechanism, np.zeros((2, 1)))
    pushed = np.interp(samples, z, (x + RADIUS) / (2 * RADIUS))  # nu itself is rejected
    assert kstest(pushed, uniform.cdf).statistic > limit(mechanism, np.zeros((2, 1)))
