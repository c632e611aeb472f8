"""The deterministic moving-horizon estimate for many data sets that are close to one (docs/method.md, section 7.5).

The runs of an input perturbation differ from the data by noise, so their estimates are close to that of the data. One
solution, one Hessian H and the derivative of the gradient in the data are therefore computed for the data and shared by
all runs: each run starts at the linear prediction of its solution and iterates x <- x - H^-1 gradient, with one
gradient per iteration. The error shrinks by the factor |I - H^-1 H_run| each time, so that a few iterations suffice for
small noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.estimation.moving_horizon import project, proximal_estimate, stage_cost
from dpverify.estimation.system import System

STEP_TOLERANCE = 1e-10  # relative length of the next step at which the iteration has converged
MAX_ITERATIONS = 200


class DescentState(NamedTuple):
    """State of the iteration with a fixed metric."""

    z: jax.Array
    value: jax.Array  # of the objective at z
    gradient: jax.Array
    step_size: jax.Array
    count: jax.Array | int


def minimise_with_fixed_metric(
    objective: Callable[[jax.Array], jax.Array], start: jax.Array, inverse_hessian: jax.Array
) -> jax.Array:
    """Return the minimum of `objective` near `start`; NaN where the iteration does not converge."""
    value_and_gradient = jax.value_and_grad(objective)

    def unfinished(state: DescentState) -> jax.Array:
        step_length = jnp.linalg.norm(inverse_hessian @ state.gradient)
        return (step_length > STEP_TOLERANCE * (1 + jnp.linalg.norm(state.z))) & (state.count < MAX_ITERATIONS)

    def step(state: DescentState) -> DescentState:
        z, value, gradient, step_size, count = state
        new_z = z - step_size * (inverse_hessian @ gradient)
        new_value, new_gradient = value_and_gradient(new_z)
        better = new_value <= value + 1e-12 * jnp.abs(value)
        return DescentState(
            jnp.where(better, new_z, z),
            jnp.where(better, new_value, value),
            jnp.where(better, new_gradient, gradient),
            jnp.where(better, jnp.minimum(2 * step_size, 1.0), step_size / 2),
            count + 1,
        )

    value, gradient = value_and_gradient(start)
    state = DescentState(start, value, gradient, jnp.ones_like(start[0]), 0)
    last = jax.lax.while_loop(unfinished, step, state)
    return jnp.where(unfinished(last._replace(count=0)), jnp.nan, last.z)


class Reference(NamedTuple):
    """The solution of one step for the data, and its first derivatives."""

    solution: jax.Array  # (n,)
    prior: jax.Array  # (n,)
    rows: jax.Array  # (window + 1, measurements)
    inverse_hessian: jax.Array  # (n, n)
    gain: jax.Array  # (n, (window + 1) * measurements): derivative of the solution in the rows

    def predict(self, prior: jax.Array, rows: jax.Array, tau: float) -> jax.Array:
        """Return the solution for another prior and other rows, to first order."""
        shift = self.inverse_hessian @ (prior - self.prior) / tau
        return self.solution + shift + self.gain @ (rows - self.rows).reshape(-1)


# From the windows of another data set to its deterministic trajectory (K, states).
WarmStartedSolver = Callable[[jax.Array], jax.Array]


def make_warm_started_solver(
    system: System, weights: np.ndarray, shape: str, priors: str = "carried"
) -> Callable[[jax.Array, float, jax.Array, jax.Array], WarmStartedSolver]:
    """Return a function (y, tau, centre, radius) -> solver for data sets close to y.

    The solver has the same values as `moving_horizon.make_trajectory_solver`.
    """
    cost = stage_cost(system, weights)

    def linearise(y: jax.Array, tau: float, centre: jax.Array, radius: jax.Array) -> WarmStartedSolver:
        def objective(z: jax.Array, prior: jax.Array, rows: jax.Array) -> jax.Array:
            return jnp.sum(jnp.square(z - prior)) / (2 * tau) + cost(z, rows)

        def solve_reference(
            prior: jax.Array, inputs: tuple[jax.Array, jax.Array, jax.Array]
        ) -> tuple[jax.Array, Reference]:
            rows, step_centre, step_radius = inputs
            prior = prior if priors == "carried" else step_centre
            z = proximal_estimate(lambda z: cost(z, rows), prior, tau)
            inverse = jnp.linalg.inv(jax.hessian(objective)(z, prior, rows))
            gain = -inverse @ jax.jacfwd(jax.grad(objective), argnums=2)(z, prior, rows).reshape(z.size, -1)
            return system.f(project(z, step_centre, step_radius, shape)), Reference(z, prior, rows, inverse, gain)

        start = jnp.asarray(system.start, y.dtype)
        _, references = jax.lax.scan(solve_reference, start, (y, centre, radius))

        def trajectory(other: jax.Array) -> jax.Array:
            def step(
                prior: jax.Array, inputs: tuple[jax.Array, jax.Array, jax.Array, Reference]
            ) -> tuple[jax.Array, jax.Array]:
                rows, step_centre, step_radius, reference = inputs
                prior = prior if priors == "carried" else step_centre
                z = minimise_with_fixed_metric(
                    lambda z: objective(z, prior, rows), reference.predict(prior, rows, tau), reference.inverse_hessian
                )
                z = project(z, step_centre, step_radius, shape)
                return system.f(z), z

            return jax.lax.scan(step, start, (other, centre, radius, references))[1]

        return trajectory

    return linearise
