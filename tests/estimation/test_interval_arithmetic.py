"""Interval bounds contain every value, and an operation without a rule raises NoBound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpverify.estimation import oscillator, simulate
from dpverify.estimation.bounds import NoBound, cost_bounds, enclose
from dpverify.estimation.moving_horizon import Windows, stage_cost
from dpverify.util.arrays import enable_x64


def everything(x):
    a, b = x[0], x[1]
    rational = (a * b - 2 / (3 + b)) ** 3 + jnp.square(a - b) + (2 + a) ** -2
    waves = jnp.sin(3 * a) * jnp.cos(2 * b) + jnp.arctan2(b, 2 + a) + jnp.abs(4 + a)
    rising = (
        jnp.tanh(a) + jnp.exp(b) * jnp.log(3 + a) + jnp.sqrt(2 + b) + (2 + a) ** 1.5 + jnp.cosh(a) / (1 + jnp.exp(-b))
    )
    return jnp.stack([rational, waves, rising, jnp.dot(x, jnp.array([[1.0, 2.0], [0.5, -1.0]]) @ x)])


def orders(x):
    return everything(x), jax.jacfwd(everything)(x)


bounds_of_everything = jax.jit(lambda lo, hi: enclose(orders, lo, hi))
values_of_everything = jax.jit(jax.vmap(orders))


def kink(x):
    return jnp.abs(x)


@pytest.mark.parametrize("seed", range(3))
def test_an_enclosure_contains_values_and_derivatives(seed):
    rng = np.random.default_rng(seed)
    middle, half = rng.uniform(-0.8, 0.8, 2), rng.uniform(0.01, 0.2, 2)

    with enable_x64():
        boxes = bounds_of_everything(jnp.asarray(middle - half), jnp.asarray(middle + half))
        points = jnp.asarray(rng.uniform(middle - half, middle + half, (500, 2)))
        for box, values in zip(boxes, values_of_everything(points), strict=True):
            assert bool(((values >= box.lo) & (values <= box.hi)).all())
            assert bool(((box.hi - box.lo) < 60 * (1 + jnp.abs(values).max(0))).all())


def test_a_kink_has_no_bound_and_an_unknown_operation_is_named():
    with enable_x64():
        slope = enclose(jax.jacfwd(kink), jnp.array([-1.0, 2.0]), jnp.array([1.0, 3.0]))
        assert not bool(jnp.isfinite(slope.hi).all())
        with pytest.raises(NoBound, match="floor"):
            enclose(jnp.floor, jnp.zeros(1), jnp.ones(1))


def test_the_chain_rule_bounds_the_whole_stage_cost():
    system = oscillator()
    y = simulate(system, np.random.default_rng(0)).data[:4]
    weights = np.ones((4, 20))
    centre = np.array(system.start)
    lower, third, _ = cost_bounds(system, y[None], weights, centre[None] - 0.05, centre[None] + 0.05)
    with enable_x64():
        cost = stage_cost(system, weights)
        z = jnp.asarray(centre + np.random.default_rng(1).uniform(-0.05, 0.05, (200, 4)))
        value = np.asarray(jax.jit(jax.vmap(lambda z: cost(z, Windows(y, 0))))(z))
        hessian = np.asarray(jax.jit(jax.vmap(jax.hessian(lambda z: cost(z, Windows(y, 0)))))(z))
        z = np.asarray(z)
    assert 0 <= lower[0] <= value.min()
    # Hessians at two points differ by at most the bound of the third derivative times the distance.
    change = np.linalg.norm(hessian[1:] - hessian[:-1], 2, axis=(1, 2))
    assert (change <= third * np.linalg.norm(z[1:] - z[:-1], axis=1)).all()
