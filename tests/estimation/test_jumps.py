"""Functions that jump or lie about their derivative: JAX calls a step's derivative 0, and no bound may rest on that."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quadrature import grid
from scipy.stats import binom

from dpverify.errors import InputError
from dpverify.estimation import W2MHE, System
from dpverify.estimation.derivative_bounds import cost_bounds
from dpverify.estimation.interval_arithmetic import NoBound, enclose
from dpverify.estimation.theory import gibbs_epsilon, gibbs_epsilon_within
from dpverify.util.arrays import enable_x64

START = -0.2


def stay(x):
    return x


def step(x):
    return jnp.where(x > 0, 3.0, 0.0)


def truth_value(x):
    return 3.0 * (x > 0)


def in_range(x):
    """A sensor that sees what is within .3 of (.25, 0)."""
    return jnp.where(jnp.linalg.norm(x - jnp.array([0.25, 0.0]), keepdims=True) < 0.3, 3.0, 0.0)


def smoothed(x):
    """A jump inside what makes any interval finite again."""
    return 3 * jnp.tanh(jnp.where(x > 0, 5.0, -5.0))


def two_ways(x):
    return jnp.where(x > 0, 1.0, -1.0)


def saturating(x):
    return 3 * jnp.tanh(x)


@jax.custom_jvp
def flat(x):
    return 3 * x


flat.defjvp(lambda x, dx: (3 * x[0], 0.0 * dx[0]))


def held(x):
    return 3 * jax.lax.stop_gradient(x)


def coarse(x):
    return x.astype(jnp.float32) * 3


JUMPS = {"where": step, "product": truth_value, "smoothed": smoothed}
UNBOUNDED = {"custom derivative": flat, "stopped": held, "32 bits": coarse}


def mechanism(h, f=stay, window=0, states=1):
    return W2MHE(System(f=f, h=h, start=(START,) + (0.0,) * (states - 1), lipschitz=1.0), window, 0.5, 0.05, diameter=1)


@pytest.mark.parametrize("name", JUMPS)
def test_a_jump_has_no_finite_epsilon_and_no_derivatives(name):
    known = mechanism(JUMPS[name])
    assert gibbs_epsilon(known, np.array([[3.0]]), np.array([[0.0]])) == np.inf
    assert gibbs_epsilon_within(known, 3.0, 1) == np.inf
    box = np.array([[-0.7]]), np.array([[0.3]])
    assert not np.isfinite(cost_bounds(known.system, np.full((1, 1, 1), 3.0), np.ones((1, 1)), *box).third).any()
    # and beside the jump there is nothing to complain of
    aside = cost_bounds(known.system, np.full((1, 1, 1), 3.0), np.ones((1, 1)), box[0], np.array([[-0.1]]))
    assert (aside.third < 1e-9).all()


def test_a_sensor_of_limited_range_has_no_derivatives():
    """Its norm is 0 in the box, where rounding once made it NaN and the comparison False."""
    known = mechanism(in_range, states=2)
    assert gibbs_epsilon(known, np.array([[3.0]]), np.array([[0.0]])) == np.inf
    box = np.array([[-0.7, -0.5]]), np.array([[0.3, 0.5]])
    assert not np.isfinite(cost_bounds(known.system, np.full((1, 1, 1), 3.0), np.ones((1, 1)), *box).third).any()


def test_a_jump_of_f_is_not_smoothed_away_by_h():
    known = mechanism(saturating, two_ways, window=1)
    assert gibbs_epsilon(known, np.array([[0.0], [3.0]]), np.array([[0.0], [-3.0]])) == np.inf
    assert gibbs_epsilon(mechanism(saturating, window=1), np.zeros((2, 1)), np.ones((2, 1))) < np.inf


@pytest.mark.parametrize("name", UNBOUNDED)
def test_a_derivative_that_may_be_another_is_refused(name):
    with pytest.raises(InputError, match=r"found the operation .* in f or h"):
        gibbs_epsilon_within(mechanism(UNBOUNDED[name]), 1.0, 1)


def test_a_norm_keeps_its_bound_where_it_is_0_and_nan_decides_nothing():
    with enable_x64():
        lo, hi = jnp.array([-0.3, -0.4]), jnp.array([0.3, 0.4])
        norm = enclose(jnp.linalg.norm, lo, hi)
        assert float(norm.lo) == 0.0
        assert 0.5 <= float(norm.hi) < 0.5 + 1e-9
        below = enclose(lambda x: jnp.where(jnp.sqrt(x) < 2.0, 0.0, 1.0), jnp.array([-1.0]), jnp.array([1.0]))
        assert bool(jnp.isnan(below.lo).all())
        with pytest.raises(NoBound, match="float32"):
            enclose(coarse, lo, hi)


@pytest.mark.slow
@pytest.mark.parametrize(("h", "states"), [(truth_value, 1), (in_range, 2)])
def test_the_law_across_a_jump_is_still_drawn_as_it_is(h, states):
    """With no bounds it is one cell and J >= 0. A Taylor polynomial would stay on the near side of the jump."""
    known, data, runs = mechanism(h, states=states), np.array([[3.0]]), 1 << 13
    assert known._plan(data).faithfulness.method == "cells"
    points, law = grid(known, data, 20_000 if states == 1 else 1000)
    z = np.asarray(known(data, runs, np.random.default_rng(0)))[:, 0]
    with enable_x64():
        seen, share = (np.asarray(jax.vmap(h)(jnp.asarray(v)))[:, 0] > 1 for v in (z, points))
    share = law @ share
    assert share > 0.9
    assert binom.cdf(seen.sum(), runs, share) > 1e-4
    assert binom.sf(seen.sum(), runs, share) > 1e-4
