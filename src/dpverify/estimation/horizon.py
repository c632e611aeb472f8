"""What all moving-horizon estimators share: the stage cost, and the deterministic (proximal) estimate.

J_k(z) = 1/2 sum_j w |y_{k+j} - h(f0^j(z))|^2 over the window; the estimate minimises |z - m|^2 / (2 tau) + J_k(z), m
the prediction f0(z_{k-1}) (docs/method.md, section 7.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.estimation.system import System

SPANS = ("closed", "open")


def window_weights(window: int, span: str, weights: tuple[float, ...]) -> np.ndarray:
    """(window + 1, measurements); the open window leaves out j = 0."""
    table = np.tile(weights, (window + 1, 1))
    if span == "open":
        table[0] = 0.0
    return table


def windows(data: Any, window: int) -> Any:
    """(K, window + 1, measurements): what each released step k = 0..T - window reads."""
    return jnp.stack([data[k : k + window + 1] for k in range(len(data) - window)])


def stage_cost(system: System, weights: np.ndarray) -> Callable[[Any, Any], Any]:
    """J(z, y) with y the rows of one window."""

    def term(x: Any, w: Any, y: Any) -> Any:
        return jnp.sum(w * jnp.square(y - system.h(x))) / 2

    def cost(z: Any, y: Any) -> Any:
        def step(state: Any, at: Any) -> Any:  # a scan, so that what is compiled does not grow with the window
            x, total = system.f(state[0]), state[1]
            return (x, total + term(x, *at)), None

        first = term(z, weights[0], y[0]) if weights[0].any() else jnp.zeros((), z.dtype)
        return jax.lax.scan(step, (z, first), (jnp.asarray(weights[1:]), y[1:]))[0][1]

    return cost


def proximal(cost: Callable[[Any], Any], prior: Any, tau: Any, start: Any = None, most: int = 60) -> Any:
    """The z that minimises |z - prior|^2 / (2 tau) + cost(z), by damped Newton steps from `start` (the prior)."""

    def total(z: Any) -> Any:
        return jnp.sum(jnp.square(z - prior)) / (2 * tau) + cost(z)

    def step(state: Any) -> Any:
        z, value, damping, _, count = state
        gradient, hessian = jax.grad(total)(z), jax.hessian(total)(z)
        factor = jax.scipy.linalg.cho_factor(hessian + damping * jnp.eye(z.size), lower=True)
        move = -jax.scipy.linalg.cho_solve(factor, gradient)
        after = total(z + move)
        # a factor of an indefinite matrix is NaN, and so is what follows from it: not better, damp more
        better = after <= value + 1e-12 * jnp.abs(value)
        length = jnp.linalg.norm(move) / (1 + jnp.linalg.norm(z))
        return (
            jnp.where(better, z + move, z),
            jnp.where(better, after, value),
            jnp.where(better, jnp.where(damping > floor, damping / 10, 0.0), jnp.maximum(10 * damping, floor)),
            jnp.where(better, length, jnp.inf),
            count + 1,
        )

    start = prior if start is None else start
    floor = 1e-3 / tau
    state = (start, total(start), jnp.zeros_like(prior[0]), jnp.asarray(jnp.inf, prior.dtype), 0)
    z, value, *_ = jax.lax.while_loop(lambda s: (s[3] > 1e-14) & (s[4] < most), step, state)
    return jnp.where(jnp.isfinite(value), z, jnp.nan)


def onto(z: Any, centre: Any, radius: Any, shape: str) -> Any:
    """The nearest point of a ball, or of a cube whose half diagonal is `radius`."""
    if shape == "ball":
        length = jnp.linalg.norm(z - centre)
        return jnp.where(length > radius, centre + (z - centre) * (radius / length), z)
    half = radius / np.sqrt(z.shape[0])
    return jnp.clip(z, centre - half, centre + half)


def estimates(system: System, weights: np.ndarray, shape: str) -> Callable[..., Any]:
    """(y, tau, centre, radius) -> (K, states): the trajectory at s = 1, each step projected and carried on.

    Pure JAX: may be jitted, and vmapped over y.
    """
    cost = stage_cost(system, weights)

    def trajectory(y: Any, tau: Any, centre: Any, radius: Any) -> Any:
        def step(prior: Any, at: Any) -> Any:
            rows, middle, reach = at
            z = onto(proximal(lambda z: cost(z, rows), prior, tau), middle, reach, shape)
            return system.f(z), z

        return jax.lax.scan(step, jnp.asarray(system.start, y.dtype), (y, centre, radius))[1]

    return trajectory
