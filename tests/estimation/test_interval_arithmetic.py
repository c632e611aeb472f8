"""Interval bounds contain every value and derivative, and an operation without a rule raises NoBound."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpverify.estimation import oscillator, simulate
from dpverify.estimation.bounds import Interval, NoBound, box_jet, cost_jet, enclose
from dpverify.estimation.moving_horizon import Windows, stage_cost
from dpverify.util.arrays import enable_x64

MATRIX = jnp.array([[1.0, 2.0], [0.5, -1.0]])
SWAPPED = jnp.array([1, 0])


def everything(x):
    a, b = x[0], x[1]
    values = [
        (a * b - 2 / (3 + b)) ** 3 + jnp.square(a - b) + (2 + a) ** -2,
        jnp.sin(3 * a) * jnp.cos(2 * b) + jnp.arctan2(b, 2 + a) + jnp.arctan2(3 + a, b) + jnp.abs(4 + a),
        jnp.tanh(a) + jnp.exp(b) * jnp.log(3 + a) + jnp.sqrt(2 + b) + (2 + a) ** 1.5 + jnp.cosh(a) / (1 + jnp.exp(-b)),
        jnp.dot(x, MATRIX @ x),
        jnp.tan(a) + jnp.arcsin(b / 2) + jnp.arccos(a / 2) + jnp.arcsinh(a) * jnp.arctan(b),
        jax.scipy.special.erf(a) * jax.nn.sigmoid(b) + jnp.expm1(a) + jnp.log1p(b + 2) + jnp.sinh(a) * jnp.exp2(b),
        jnp.clip(a, -5, 5) * jnp.where(b < 5, a, b) + jnp.linalg.norm(x + 3) + jnp.sign(a + 4),
        x[SWAPPED][0] ** 3 * jax.lax.dynamic_slice(x, (1,), (1,))[0] + jnp.cbrt(3 + a) + jnp.log2(b + 3),
    ]
    return jnp.stack(values)


def derivative(order):
    function = everything
    for _ in range(order):
        function = jax.jacfwd(function)
    return jax.jit(jax.vmap(function))


def symmetric(v):
    """Return the mean over all orders of the axes of the derivative; the bounds are for equal arguments."""
    axes = list(itertools.permutations(range(v.ndim - 1)))
    return sum(np.transpose(v, (*order, v.ndim - 1)) for order in axes) / len(axes)


@pytest.mark.parametrize("order", range(4))
def test_an_enclosure_contains_values_and_derivatives(order):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        middle, half = rng.uniform(-0.8, 0.8, 2), rng.uniform(0.01, 0.2, 2)
        bound = enclose(everything, box_jet(middle - half, middle + half))[order]
        with enable_x64():
            points = jnp.asarray(rng.uniform(middle - half, middle + half, (300, 2)))
            values = np.moveaxis(np.asarray(derivative(order)(points)), 1, -1)
        lo, hi = symmetric(bound.lo), symmetric(bound.hi)
        assert ((values >= lo - 1e-12) & (values <= hi + 1e-12)).all()
        assert (hi - lo < 200 * (1 + np.abs(values).max(0))).all()


def test_a_kink_has_a_value_and_no_derivatives_and_an_unknown_operation_is_named():
    box = box_jet(np.array([-1.0, 2.0]), np.array([1.0, 3.0]))
    for kinked in (jnp.abs, lambda x: jnp.maximum(x, 0.0)):
        jet = enclose(kinked, box)
        assert np.isfinite(jet.value.hi).all()
        assert np.isfinite(jet.first.hi).all(0).tolist() == [False, True]
    with pytest.raises(NoBound, match="floor"):
        enclose(jnp.floor, box)


def test_the_chain_rule_bounds_the_whole_stage_cost():
    system = oscillator()
    y = simulate(system, np.random.default_rng(0)).data[:4]
    weights = np.ones((4, 20))
    centre = np.array(system.start)
    jet = cost_jet(system, y[None], weights, Interval(centre[None] - 0.05, centre[None] + 0.05))
    third = np.sqrt(np.square(jet.third.magnitude[..., 0]).sum())
    with enable_x64():
        cost = stage_cost(system, weights)
        z = jnp.asarray(centre + np.random.default_rng(1).uniform(-0.05, 0.05, (200, 4)))
        value = np.asarray(jax.jit(jax.vmap(lambda z: cost(z, Windows(y, 0))))(z))
        hessian = np.asarray(jax.jit(jax.vmap(jax.hessian(lambda z: cost(z, Windows(y, 0)))))(z))
        z = np.asarray(z)
    assert 0 <= jet.value.lo[0] <= value.min()
    # Hessians at two points differ by at most the bound of the third derivative times the distance.
    change = np.linalg.norm(hessian[1:] - hessian[:-1], 2, axis=(1, 2))
    assert (change <= third * np.linalg.norm(z[1:] - z[:-1], axis=1)).all()
