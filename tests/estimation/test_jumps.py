"""Functions with jumps or with false derivatives: JAX differentiates a step to 0, and no bound may rest on that."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quadrature import grid
from scipy.stats import binom

from dpverify.errors import InputError
from dpverify.estimation import W2MHE, System
from dpverify.estimation.bounds import Interval, NoBound, box_jet, cost_jet, enclose
from dpverify.estimation.theory import gibbs_epsilon, gibbs_epsilon_within
from dpverify.util.arrays import enable_x64

START = -0.2


def identity(x):
    return x


def step(x):
    return jnp.where(x > 0, 3.0, 0.0)


def indicator(x):
    return 3.0 * (x > 0)


def in_range(x):
    """A sensor that detects positions within 0.3 of (0.25, 0)."""
    return jnp.where(jnp.linalg.norm(x - jnp.array([0.25, 0.0]), keepdims=True) < 0.3, 3.0, 0.0)


def smoothed(x):
    """A jump inside tanh, which maps every interval to a finite one."""
    return 3 * jnp.tanh(jnp.where(x > 0, 5.0, -5.0))


def sign_step(x):
    return jnp.where(x > 0, 1.0, -1.0)


def saturating(x):
    return 3 * jnp.tanh(x)


@jax.custom_jvp
def false_derivative(x):
    return 3 * x


false_derivative.defjvp(lambda x, dx: (3 * x[0], 0.0 * dx[0]))


def stopped_gradient(x):
    return 3 * jax.lax.stop_gradient(x)


def single_precision(x):
    return x.astype(jnp.float32) * 3


JUMPS = {"where": step, "product": indicator, "smoothed": smoothed}
UNBOUNDED = {"custom derivative": false_derivative, "stopped": stopped_gradient, "32 bits": single_precision}


def mechanism(h, f=identity, window=0, states=1):
    return W2MHE(System(f=f, h=h, start=(START,) + (0.0,) * (states - 1), lipschitz=1.0), window, 0.5, 0.05, diameter=1)


@pytest.mark.parametrize("name", JUMPS)
def test_a_jump_has_no_finite_epsilon_and_no_derivatives(name):
    estimator = mechanism(JUMPS[name])
    assert gibbs_epsilon(estimator, np.array([[3.0]]), np.array([[0.0]])) == np.inf
    assert gibbs_epsilon_within(estimator, 3.0, 1) == np.inf
    assert np.isnan(third_derivative(estimator, [-0.7], [0.3])).all()
    # A box that does not contain the jump has a bound.
    assert (np.abs(third_derivative(estimator, [-0.7], [-0.1])) < 1e-9).all()


def third_derivative(estimator, lo, hi):
    box = Interval(np.array([lo]), np.array([hi]))
    return cost_jet(estimator.system, np.full((1, 1, 1), 3.0), np.ones((1, 1)), box).third.magnitude


def test_a_sensor_of_limited_range_has_no_derivatives():
    """Its norm is 0 in the box, where rounding must not make it NaN and the comparison False."""
    estimator = mechanism(in_range, states=2)
    assert gibbs_epsilon(estimator, np.array([[3.0]]), np.array([[0.0]])) == np.inf
    assert np.isnan(third_derivative(estimator, [-0.7, -0.5], [0.3, 0.5])).all()


def test_a_jump_of_f_is_not_hidden_by_a_smooth_h():
    estimator = mechanism(saturating, sign_step, window=1)
    assert gibbs_epsilon(estimator, np.array([[0.0], [3.0]]), np.array([[0.0], [-3.0]])) == np.inf
    assert gibbs_epsilon(mechanism(saturating, window=1), np.zeros((2, 1)), np.ones((2, 1))) < np.inf


@pytest.mark.parametrize("name", UNBOUNDED)
def test_a_derivative_that_may_be_false_is_an_error(name):
    with pytest.raises(InputError, match=r"found the operation .* in f or h"):
        gibbs_epsilon_within(mechanism(UNBOUNDED[name]), 1.0, 1)


def test_a_norm_is_bounded_at_0_and_a_comparison_with_nan_is_undecided():
    box = box_jet(np.array([-0.3, -0.4]), np.array([0.3, 0.4]))
    norm = enclose(jnp.linalg.norm, box).value
    assert norm.lo == 0.0
    assert 0.5 <= norm.hi < 0.5 + 1e-9
    below = enclose(lambda x: jnp.where(jnp.sqrt(x) < 2.0, 0.0, 1.0), box_jet(np.array([-1.0]), np.array([1.0])))
    assert np.isnan(below.value.lo).all()
    with pytest.raises(NoBound, match="float32"):
        enclose(single_precision, box)


@pytest.mark.slow
@pytest.mark.parametrize(("h", "states"), [(indicator, 1), (in_range, 2)])
def test_the_distribution_across_a_jump_is_sampled_exactly(h, states):
    """Without bounds draws come from the prior. A Taylor envelope would miss the other side of the jump."""
    estimator, data, runs = mechanism(h, states=states), np.array([[3.0]]), 1 << 13
    assert estimator._plan(data).faithfulness.method == "prior"
    points, probability = grid(estimator, data, 20_000 if states == 1 else 1000)
    z = np.asarray(estimator(data, runs, np.random.default_rng(0)))[:, 0]
    with enable_x64():
        detected, point_detected = (np.asarray(jax.vmap(h)(jnp.asarray(v)))[:, 0] > 1 for v in (z, points))
    share = probability @ point_detected
    assert share > 0.9
    assert binom.cdf(detected.sum(), runs, share) > 1e-4
    assert binom.sf(detected.sum(), runs, share) > 1e-4
