"""What moving-horizon estimators share: the cost of a window, and the deterministic estimate.

The stage cost is J_k(z) = 1/2 sum_j w |y_{k+j} - h(f0^j(z))|^2 over the window. The deterministic (proximal) estimate
minimises |z - m|^2 / (2 tau) + J_k(z), where the prior m is the prediction f0(z_{k-1}), or f0^k of the start, which is
the centre of K_k. It is then projected onto the support set K_k (docs/method.md, section 7.2).

For many datasets that are close to one, such as the runs of an input perturbation, one solution, one Hessian H and the
derivative of the gradient in the data are shared by all runs: each run starts at the linear prediction of its solution
and iterates x <- x - H^-1 gradient, with one gradient per iteration (docs/method.md, section 7.5). With the paper's
input perturbation this takes 0.15 of the time of Newton's method for every run (ratio of processor times, 6.6).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.errors import InputError
from dpverify.estimation.system import System, first_bad_row

SPANS = ("closed", "open")  # whether a window includes the measurement of its own step
PRIORS = ("carried", "start")  # whether the prior of a window follows from the estimate of the window before
MAX_NEWTON_STEPS = 60
NEWTON_TOLERANCE = 1e-14  # relative length of the last Newton step
STEP_TOLERANCE = 1e-10  # relative length of the next step at which the iteration with a shared Hessian has converged
MAX_SHARED_STEPS = 200

Cost = Callable[[jax.Array], jax.Array]


class Ball(NamedTuple):
    """The ball of points within `radius` of `centre`; arrays with one more axis hold one ball for each step."""

    centre: Any  # (n,); NumPy or JAX
    radius: Any

    def contains(self, z: jax.Array) -> jax.Array:
        """Return for each column of z (n, runs) whether it lies in the ball."""
        return jnp.sum(jnp.square(z - self.centre[:, None]), 0) <= self.radius**2


class Problem(NamedTuple):
    """The static arguments of compiled code; data, s, tau and the sets K_k are its dynamic arguments."""

    system: System
    window: int
    span: str
    weights: tuple[float, ...]
    prior: str = "carried"

    @property
    def template(self) -> Problem:
        """The problem of the system's template: a static argument of compiled code."""
        return self._replace(system=self.system.template)

    def bind(self, numbers: Any) -> Problem:
        """Return this template with the numbers of its system, which may be traced."""
        return self._replace(system=self.system.bind(numbers))

    def solve(self, shape: str, windows: Windows, tau: float, support: Ball) -> np.ndarray:
        """Return the states (K, n) at s = 1, or raise an InputError where they are not finite."""
        states = np.asarray(jitted_trajectory(self.template, shape, self.system.numbers, windows, tau, support))
        if not np.isfinite(states).all():
            raise InputError(
                f"f: found NaN or infinity in f or h at the estimate of step {first_bad_row(states)}; expected "
                "finite numbers; fix f or h, choose smaller sets K_k, or compare data and start with the model"
            )
        return states

    @property
    def residual_weights(self) -> np.ndarray:
        """The weights of all residuals of a window, (window + 1, measurements); "open" leaves out j = 0."""
        table = np.tile(self.weights, (self.window + 1, 1))
        if self.span == "open":
            table[0] = 0.0
        return table


class Windows(NamedTuple):
    """The rows that each released step k = 0, ..., T - window uses."""

    y: Any  # (K, window + 1, measurements), or without the first axis for one step; NumPy or JAX
    k: Any  # (K,): the index of the first row


def sliding_windows(data: Any, window: int) -> Windows:
    """Return the windows of a dataset (T + 1, measurements)."""
    steps, stack = len(data) - window, np.stack if isinstance(data, np.ndarray) else jnp.stack
    return Windows(stack([data[k : k + window + 1] for k in range(steps)]), np.arange(steps))  # type: ignore[operator]


def stage_cost(system: System, weights: np.ndarray) -> Callable[[jax.Array, Windows], jax.Array]:
    """Return the function J(z, rows) of a state z and one window."""

    def weighted_square(x: jax.Array, k: Any, w: jax.Array | np.ndarray, y: jax.Array) -> jax.Array:
        return jnp.sum(w * jnp.square(y - system.measure(x, k))) / 2

    def cost(z: jax.Array, rows: Windows) -> jax.Array:
        # A scan, so that the size of the compiled program does not grow with the window.
        def step(state: tuple[jax.Array, jax.Array], row: tuple[jax.Array, ...]) -> tuple[Any, None]:
            x, total = system.step(state[0], row[0] - 1), state[1]
            return (x, total + weighted_square(x, *row)), None

        y, later = rows.y, rows.k + np.arange(1, len(weights))
        first = weighted_square(z, rows.k, weights[0], y[0]) if weights[0].any() else jnp.zeros((), z.dtype)
        return jax.lax.scan(step, (z, first), (later, jnp.asarray(weights[1:]), y[1:]))[0][1]

    return cost


class NewtonState(NamedTuple):
    """State of the damped Newton iteration."""

    z: jax.Array
    value: jax.Array  # of the objective at z
    damping: jax.Array
    step_length: jax.Array  # relative length of the last accepted step; infinite after a rejected one
    count: jax.Array | int


def proximal_estimate(cost: Cost, prior: jax.Array, tau: float, start: jax.Array | None = None) -> jax.Array:
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
        less, more = jnp.where(damping > min_damping, damping / 10, 0.0), jnp.maximum(10 * damping, min_damping)
        return NewtonState(
            jnp.where(better, z + move, z),
            jnp.where(better, new_value, value),
            jnp.where(better, less, more),
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


def project(z: jax.Array, ball: Ball, shape: str) -> jax.Array:
    """Return the nearest point of a "ball", or of a "cube" whose half diagonal is the radius."""
    centre, radius = ball
    if shape == "ball":
        length = jnp.linalg.norm(z - centre)
        return jnp.where(length > radius, centre + (z - centre) * (radius / length), z)
    half = radius / np.sqrt(z.shape[0])
    return jnp.clip(z, centre - half, centre + half)


# From a prior, a window and further inputs of a step to its estimate and further outputs.
StepSolver = Callable[[jax.Array, Windows, Any], tuple[jax.Array, Any]]


def _scan(problem: Problem, shape: str, windows: Windows, support: Ball, solve: StepSolver, extra: Any = None) -> Any:
    """Return the states (K, n) and further outputs of all steps; each estimate is projected, then predicted."""

    def step(prior: jax.Array, inputs: tuple[Windows, Ball, Any]) -> tuple[jax.Array, tuple[jax.Array, Any]]:
        rows, ball, own = inputs
        z, output = solve(prior if problem.prior == "carried" else ball.centre, rows, own)
        z = project(z, ball, shape)
        return problem.system.step(z, rows.k), (z, output)

    return jax.lax.scan(step, jnp.asarray(problem.system.start, windows.y.dtype), (windows, support, extra))[1]


def trajectory(problem: Problem, shape: str, windows: Windows, tau: float, support: Ball) -> jax.Array:
    """Return the states (K, n) at s = 1: pure JAX."""
    cost = stage_cost(problem.system, problem.residual_weights)

    def solve(prior: jax.Array, rows: Windows, _: Any) -> tuple[jax.Array, None]:
        return proximal_estimate(lambda z: cost(z, rows), prior, tau), None

    return _scan(problem, shape, windows, support, solve)[0]


@functools.partial(jax.jit, static_argnums=(0, 1))
def jitted_trajectory(
    template: Problem, shape: str, numbers: Any, windows: Windows, tau: float, support: Ball
) -> jax.Array:
    """Return `trajectory`, compiled once for all members of a family of systems."""
    return trajectory(template.bind(numbers), shape, windows, tau, support)


class Reference(NamedTuple):
    """The solution of one step for the data, and its first derivatives."""

    solution: jax.Array  # (n,)
    prior: jax.Array  # (n,)
    y: jax.Array  # (window + 1, measurements)
    inverse_hessian: jax.Array  # (n, n)
    gain: jax.Array  # (n, (window + 1) * measurements): derivative of the solution in the rows

    def predict(self, prior: jax.Array, y: jax.Array, tau: float) -> jax.Array:
        """Return the solution for another prior and other rows, to first order."""
        shift = self.inverse_hessian @ (prior - self.prior) / tau
        return self.solution + shift + self.gain @ (y - self.y).reshape(-1)


def warm_started_trajectory(
    problem: Problem, shape: str, windows: Windows, tau: float, support: Ball
) -> Callable[[Windows], jax.Array]:
    """Return a function with the values of `trajectory` that is faster for datasets close to these windows."""
    cost = stage_cost(problem.system, problem.residual_weights)

    def objective(z: jax.Array, prior: jax.Array, rows: Windows) -> jax.Array:
        return jnp.sum(jnp.square(z - prior)) / (2 * tau) + cost(z, rows)

    def solve_reference(prior: jax.Array, rows: Windows, _: Any) -> tuple[jax.Array, Reference]:
        z = proximal_estimate(lambda z: cost(z, rows), prior, tau)
        inverse = jnp.linalg.inv(jax.hessian(objective)(z, prior, rows))
        slope = jax.jacfwd(lambda y: jax.grad(objective)(z, prior, rows._replace(y=y)))(rows.y)
        return z, Reference(z, prior, rows.y, inverse, -inverse @ slope.reshape(z.size, -1))

    def solve(prior: jax.Array, rows: Windows, reference: Reference) -> tuple[jax.Array, None]:
        start = reference.predict(prior, rows.y, tau)
        return _minimise(lambda z: objective(z, prior, rows), start, reference.inverse_hessian), None

    references = _scan(problem, shape, windows, support, solve_reference)[1]
    return lambda other: _scan(problem, shape, other, support, solve, references)[0]


class DescentState(NamedTuple):
    """State of the iteration with a shared Hessian."""

    z: jax.Array
    value: jax.Array  # of the objective at z
    gradient: jax.Array
    step_size: jax.Array
    count: jax.Array | int


def _minimise(objective: Cost, start: jax.Array, inverse_hessian: jax.Array) -> jax.Array:
    """Return the minimum of `objective` near `start`; NaN where the iteration does not converge."""
    value_and_gradient = jax.value_and_grad(objective)

    def unfinished(state: DescentState) -> jax.Array:
        step_length = jnp.linalg.norm(inverse_hessian @ state.gradient)
        return (step_length > STEP_TOLERANCE * (1 + jnp.linalg.norm(state.z))) & (state.count < MAX_SHARED_STEPS)

    def step(state: DescentState) -> DescentState:
        z, value, gradient, step_size, count = state
        new_z = z - step_size * (inverse_hessian @ gradient)
        new = new_z, *value_and_gradient(new_z), jnp.minimum(2 * step_size, 1.0)
        better = new[1] <= value + 1e-12 * jnp.abs(value)
        old = z, value, gradient, step_size / 2
        return DescentState(*(jnp.where(better, a, b) for a, b in zip(new, old, strict=True)), count + 1)

    state = DescentState(start, *value_and_gradient(start), jnp.ones_like(start[0]), 0)
    last = jax.lax.while_loop(unfinished, step, state)
    return jnp.where(unfinished(last._replace(count=0)), jnp.nan, last.z)
