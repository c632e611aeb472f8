"""The stage cost and the deterministic estimate that all moving-horizon estimators share.

The stage cost is J_k(z) = 1/2 sum_j w |y_{k+j} - h(f0^j(z))|^2 over the window. The deterministic (proximal) estimate
minimises |z - m|^2 / (2 tau) + J_k(z), where the prior m is the prediction f0(z_{k-1}), or f0^k of the start, which is
the centre of K_k. It is then projected onto the support set K_k (docs/method.md, section 7.2).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.estimation.system import System
from dpverify.util.arrays import Array

SPANS = ("closed", "open")  # whether a window includes the measurement of its own step
PRIORS = ("carried", "start")  # whether the prior of a window follows from the estimate of the window before
MAX_NEWTON_STEPS = 60
NEWTON_TOLERANCE = 1e-14  # relative length of the last Newton step


def window_weights(window: int, span: str, weights: tuple[float, ...]) -> np.ndarray:
    """Return the weights of all residuals of a window, (window + 1, measurements); "open" leaves out j = 0."""
    table = np.tile(weights, (window + 1, 1))
    if span == "open":
        table[0] = 0.0
    return table


class Problem(NamedTuple):
    """The static arguments of compiled code; data, s, tau and the sets K_k are its dynamic arguments."""

    system: System
    window: int
    span: str
    weights: tuple[float, ...]
    prior: str = "carried"

    @property
    def template(self) -> Problem:
        """The problem of the system's template: the key of the caches of compiled code."""
        return self._replace(system=self.system.template)

    @property
    def residual_weights(self) -> np.ndarray:
        """The weights of all residuals of a window, (window + 1, measurements)."""
        return window_weights(self.window, self.span, self.weights)


def sliding_windows(data: jax.Array, window: int) -> jax.Array:
    """Return the rows that each released step k = 0, ..., T - window uses, (K, window + 1, measurements)."""
    return jnp.stack([data[k : k + window + 1] for k in range(len(data) - window)])


def stage_cost(system: System, weights: np.ndarray) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return the function J(z, y) of a state z and the rows y of one window."""

    def weighted_square(x: jax.Array, w: jax.Array | np.ndarray, y: jax.Array) -> jax.Array:
        return jnp.sum(w * jnp.square(y - system.h(x))) / 2

    def cost(z: jax.Array, y: jax.Array) -> jax.Array:
        # A scan, so that the size of the compiled program does not grow with the window.
        def step(
            state: tuple[jax.Array, jax.Array], row: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], None]:
            x, total = system.f(state[0]), state[1]
            return (x, total + weighted_square(x, *row)), None

        first = weighted_square(z, weights[0], y[0]) if weights[0].any() else jnp.zeros((), z.dtype)
        return jax.lax.scan(step, (z, first), (jnp.asarray(weights[1:]), y[1:]))[0][1]

    return cost


class NewtonState(NamedTuple):
    """State of the damped Newton iteration."""

    z: jax.Array
    value: jax.Array  # of the objective at z
    damping: jax.Array
    step_length: jax.Array  # relative length of the last accepted step; infinite after a rejected one
    count: jax.Array | int


def proximal_estimate(
    cost: Callable[[jax.Array], jax.Array], prior: jax.Array, tau: float, start: jax.Array | None = None
) -> jax.Array:
    """Return the z that minimises |z - prior|^2 / (2 tau) + cost(z); NaN where the objective is not finite.

    The method is a damped Newton iteration from `start`, which is the prior by default.
    """

    def objective(z: jax.Array) -> jax.Array:
        return jnp.sum(jnp.square(z - prior)) / (2 * tau) + cost(z)

    def step(state: NewtonState) -> NewtonState:
        z, value, damping, _, count = state
        gradient, hessian = jax.grad(objective)(z), jax.hessian(objective)(z)
        factor = jax.scipy.linalg.cho_factor(hessian + damping * jnp.eye(z.size), lower=True)
        move = -jax.scipy.linalg.cho_solve(factor, gradient)
        new_value = objective(z + move)
        # The factor of an indefinite matrix is NaN. The comparison is then False, and the damping increases.
        better = new_value <= value + 1e-12 * jnp.abs(value)
        length = jnp.linalg.norm(move) / (1 + jnp.linalg.norm(z))
        return NewtonState(
            jnp.where(better, z + move, z),
            jnp.where(better, new_value, value),
            jnp.where(
                better,
                jnp.where(damping > min_damping, damping / 10, 0.0),
                jnp.maximum(10 * damping, min_damping),
            ),
            jnp.where(better, length, jnp.inf),
            count + 1,
        )

    def unfinished(state: NewtonState) -> jax.Array:
        return (state.step_length > NEWTON_TOLERANCE) & (state.count < MAX_NEWTON_STEPS)

    start = prior if start is None else start
    min_damping = 1e-3 / tau
    state = NewtonState(start, objective(start), jnp.zeros_like(prior[0]), jnp.asarray(jnp.inf, prior.dtype), 0)
    last = jax.lax.while_loop(unfinished, step, state)
    return jnp.where(jnp.isfinite(last.value), last.z, jnp.nan)


def project(z: jax.Array, centre: jax.Array, radius: jax.Array, shape: str) -> jax.Array:
    """Return the nearest point of a "ball", or of a "cube" whose half diagonal is `radius`."""
    if shape == "ball":
        length = jnp.linalg.norm(z - centre)
        return jnp.where(length > radius, centre + (z - centre) * (radius / length), z)
    half = radius / np.sqrt(z.shape[0])
    return jnp.clip(z, centre - half, centre + half)


# From the windows of the data (K, window + 1, measurements), tau, and centres and radii of K_0, ..., K_{K-1} to the
# deterministic trajectory (K, states).
TrajectorySolver = Callable[[jax.Array, float, jax.Array, jax.Array], jax.Array]


def make_trajectory_solver(
    system: System, weights: np.ndarray, shape: str, priors: str = "carried"
) -> TrajectorySolver:
    """Return the function that computes the trajectory at s = 1: each estimate is projected and then predicted.

    The result is pure JAX: it can be jitted, and vmapped over the data.
    """
    cost = stage_cost(system, weights)

    def trajectory(y: jax.Array, tau: float, centre: jax.Array, radius: jax.Array) -> jax.Array:
        def step(prior: jax.Array, inputs: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            rows, step_centre, step_radius = inputs
            prior = prior if priors == "carried" else step_centre
            z = proximal_estimate(lambda z: cost(z, rows), prior, tau)
            z = project(z, step_centre, step_radius, shape)
            return system.f(z), z

        return jax.lax.scan(step, jnp.asarray(system.start, y.dtype), (y, centre, radius))[1]

    return trajectory


def jitted_trajectory_solver(problem: Problem, shape: str) -> Callable[..., jax.Array]:
    """Return the compiled solver of the deterministic trajectory."""
    return functools.partial(_compiled_solver(problem.template, shape), problem.system.parameters)


@functools.lru_cache(maxsize=64)
def _compiled_solver(template: Problem, shape: str) -> Callable[..., jax.Array]:
    def solve(parameters: Any, *arguments: jax.Array) -> jax.Array:
        system = template.system.bind(parameters)
        solver = make_trajectory_solver(system, template.residual_weights, shape, template.prior)
        return solver(*arguments)  # type: ignore[arg-type]

    return jax.jit(solve)


def local_expansion(problem: Problem) -> Callable[[np.ndarray, np.ndarray], tuple[Array, Array, Array]]:
    """Return the compiled function from points and windows of many steps to J, its gradient and its Hessian."""
    return functools.partial(_compiled_expansion(problem.template), problem.system.parameters)


@functools.lru_cache(maxsize=64)
def _compiled_expansion(template: Problem) -> Callable[..., tuple[Array, Array, Array]]:
    def expand(parameters: Any, z: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        cost = stage_cost(template.system.bind(parameters), template.residual_weights)
        return cost(z, y), jax.grad(cost)(z, y), jax.hessian(cost)(z, y)

    return jax.jit(jax.vmap(expand, in_axes=(None, 0, 0)))
