"""Exact sampling from exp( -( |z - m|^2 / (2 tau) + J(z) ) / kappa ) on a ball, for many runs with different priors m.

With the data fixed, J is the same function for all runs. An *envelope* is a lower bound of J that can be sampled
together with the quadratic term of the prior. A draw z from it is accepted with probability
exp( -(J(z) - lower(z)) / kappa ). This is rejection sampling: the distribution is exact wherever the lower bound holds,
and the acceptance rate affects the speed only (docs/method.md, section 7.3).

The envelope is the Taylor polynomial of second order at the mode, with its curvature reduced by a proved bound of the
third derivative. Where there is no such bound, or few draws would be accepted, the envelope may also be the prior: J is
at least a constant, so that f and h need no derivatives. Data sets for which neither accepts enough draws are refused.
Arrays of states have the runs on the *last* axis, which is the faster layout.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtrc

from dpverify.errors import InputError
from dpverify.estimation.bounds import HOW_TO_WRITE, NoBound, cost_bounds
from dpverify.estimation.moving_horizon import (
    Ball,
    Cost,
    Problem,
    jitted_trajectory,
    local_expansions,
    proximal_estimate,
    sliding_windows,
    stage_cost,
)
from dpverify.estimation.system import multiply_columns, started
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64, first_true

MIN_BATCH = 32  # runs that are tested together, at least
BATCH_DIVISOR = 64  # runs divided by those that are tested together: few runs need the full test
QUICK_BATCH_DIVISOR = 512  # runs divided by those that are tested without a loop
MAX_QUICK_DRAWS_PER_RUN = 1 + 1 / 4096  # M up to which the quick sampler is used; a small part of its batch is pending
NEW_DRAWS = 3  # draws after the first one that are tested without a loop
MAX_TESTS_PER_STEP = 1 << 15  # tested draws after which the sampler gives up
MAX_ABANDONED_SHARE = 1e-6  # share of runs
MAX_DRAWS_PER_RUN = MAX_TESTS_PER_STEP / math.log(1 / MAX_ABANDONED_SHARE)  # M above which more runs are abandoned
ENOUGH_DRAWS_PER_RUN = 4.0  # the Taylor envelope is taken at once if it needs at most so many draws per run
BOUNDARY = 1e-6  # relative distance from the boundary of K_k below which a point counts as lying on it
BOUNDARY_STEPS = 12  # Newton steps along the boundary; they affect the speed only, and few are needed
PILOT_RUNS = 512  # a tenth of the acceptance rate at which a set-up is refused would still show in eight steps


class Draw(NamedTuple):
    """Draws from an envelope, one for each run."""

    z: jax.Array  # (n, runs)
    lower: jax.Array  # (runs,): the lower bound of J at z
    slack: jax.Array  # (runs,): J - lower is at most this


class Taylor(NamedTuple):
    """The lower bound J(point + d) >= value + gradient d + d' (hessian - curvature_bound I) d / 2.

    J exceeds it by at most third |d|^3 / 6 + curvature_bound |d|^2 / 2.
    """

    point: Any  # (n,); like the other fields a NumPy array where it is computed and a JAX array where it is sampled
    value: Any
    gradient: Any  # (n,)
    hessian: Any  # (n, n)
    third: Any  # bound of the third derivative on the ball; infinite where there is none
    curvature_bound: Any
    mean_gain: Any  # (n, n): matrix from m - point to the mean of d: (I + tau (hessian - curvature_bound I))^-1
    mean_shift: Any  # (n,)
    covariance_root: Any  # (n, n)

    def draw(self, m: jax.Array, key: jax.Array) -> Draw:
        """Return one draw for each prior, the columns of m (n, runs)."""
        # The barrier prevents a compiler from drawing the same noise once more for each row of the product.
        noise = jax.lax.optimization_barrier(jax.random.normal(key, m.shape, m.dtype))
        mean = multiply_columns(self.mean_gain, m - self.point[:, None]) + self.mean_shift[:, None]
        d = mean + multiply_columns(self.covariance_root, noise)
        square = jnp.sum(d * d, 0)
        quadratic = jnp.sum(d * multiply_columns(self.hessian, d), 0) - self.curvature_bound * square
        lower = self.value + jnp.sum(self.gradient[:, None] * d, 0) + quadratic / 2
        slack = square * (jnp.sqrt(square) * self.third / 6 + self.curvature_bound / 2)
        return Draw(self.point[:, None] + d, lower, slack)

    @classmethod
    def zeros(cls, steps: int, n: int) -> Taylor:
        """Return arrays of the shapes of the envelopes of all steps."""
        shapes: list[tuple[int, ...]] = [(n,), (), (n,), (n, n), (), (), (n, n), (n,), (n, n)]
        return cls(*(np.zeros((steps, *shape)) for shape in shapes))


def taylor_envelope(
    expansion: tuple[np.ndarray, Any, np.ndarray, np.ndarray],
    third: float,
    ball: Ball,
    prior: np.ndarray,
    kappa: float,
    tau: float,
) -> tuple[Taylor, float] | None:
    """Return the envelope at a point of the ball, and a bound of M = draws per accepted draw for this prior.

    `expansion` holds the point and value, gradient and Hessian of J there. Returns None where the reduced polynomial
    and the prior together are not the exponent of a Gaussian. On the ball |d| <= reach, so that the cubic term is at
    most third |d|^3 / 6 <= curvature_bound |d|^2 / 2.

    At a point of the boundary the exponent may decrease outwards. As normal d <= 0 on the ball, this slope is left out
    of the lower bound; otherwise practically all draws would lie outside. There is then no squeeze test.
    """
    point, value, gradient, hessian = expansion
    n, offset = len(point), point - ball.centre
    distance = float(np.linalg.norm(offset))
    reach = float(ball.radius + distance)
    curvature_bound = third * reach / 3
    if not np.isfinite(curvature_bound):
        return None
    values, vectors = np.linalg.eigh(np.eye(n) / tau + hessian - curvature_bound * np.eye(n))
    if not values[0] > 1e-9 * np.abs(values[-1]):
        return None
    if distance > (1 - BOUNDARY) * ball.radius:
        slope = max(0.0, -float(offset @ (gradient + (point - prior) / tau)) / distance)
        value = value - slope * (max(ball.radius - distance, 0.0) + 1e-12 * reach)
        gradient, third = gradient + slope / distance * offset, np.inf
    inverse = vectors / values @ vectors.T
    mean_gain, mean_shift = inverse / tau, -inverse @ gradient
    # The acceptance rate is at least E exp(-curvature_bound |d|^2 / kappa), less the probability outside the ball.
    mean = mean_gain @ (prior - point) + mean_shift
    stretch = 1 + 2 * curvature_bound / values
    accepted = np.exp(-curvature_bound / kappa * np.sum(np.square(vectors.T @ mean) / stretch))
    accepted = accepted / np.sqrt(np.prod(stretch))
    margin = ball.radius - np.linalg.norm(offset + mean)
    outside = chdtrc(n, max(margin, 0.0) ** 2 * values[0] / kappa)  # the upper tail of a chi-squared distribution
    draws_bound = 1 / (accepted - outside) if accepted > outside else np.inf
    root = vectors * np.sqrt(kappa / values)
    envelope = Taylor(point, value, gradient, hessian, third, curvature_bound, mean_gain, mean_shift, root)
    return envelope, float(draws_bound)


def minimum_on_ball(gradient: np.ndarray, hessian: np.ndarray, offset: np.ndarray, radius: float) -> np.ndarray:
    """Return where a quadratic is least on the ball, as an offset from its centre, from its derivatives at `offset`."""

    def solution(multiplier: float) -> np.ndarray:
        return offset - np.linalg.solve(hessian + multiplier * np.eye(len(offset)), gradient + multiplier * offset)

    def excess(multiplier: float) -> float:
        return float(np.linalg.norm(solution(multiplier)) - radius)

    values = np.linalg.eigvalsh(hessian)
    low, high = max(0.0, 1e-9 * abs(values[-1]) - values[0]), max(1.0, abs(values[-1]))
    if excess(low) <= 0:
        return solution(low)
    while excess(high) > 0:
        high *= 10
    multiplier: Any = brentq(excess, low, high)
    return solution(multiplier)


def prior_envelope(lower: float, centre: np.ndarray, kappa: float, tau: float) -> Taylor:
    """Return the envelope J >= lower: draws come from the prior, and all of them need the full test."""
    n = len(centre)
    zero = np.zeros((n, n))
    return Taylor(centre, lower, zero[0], zero, np.inf, 0.0, np.eye(n), zero[0], np.sqrt(kappa * tau) * np.eye(n))


class RejectionState(NamedTuple):
    """State of the rejection loop; the last axis of the arrays counts the runs."""

    z: jax.Array
    lower: jax.Array
    u: jax.Array  # uniform number that decides about z; infinite where z was rejected
    pending: jax.Array  # whether z is not yet accepted
    tests: jax.Array  # number of tests so far
    key: jax.Array


class RejectionSampler(NamedTuple):
    """Rejection sampling of one step for many runs: `draw` is exact, and so is `draw_quickly` where it finishes."""

    cost: Cost  # J
    envelope: Taylor
    ball: Ball
    kappa: float

    def draw_quickly(self, m: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return what `draw` returns and False, or anything and True if the few tests were not enough for all runs.

        There is no loop, because a loop on a GPU waits for the host in each iteration.
        """
        state = self._first_state(m, key)
        return state.z, (state.pending | _is_lost(m)).any()

    def draw(self, m: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return one exact draw for each prior, the columns of m, and whether any run was abandoned.

        The pending runs pass through the full test in small batches of a fixed size: a pending draw is tested, and a
        rejected one is replaced by a new draw. A run is abandoned after MAX_TESTS_PER_STEP tests, as NaN.
        """
        size = self._batch_size(m, BATCH_DIVISOR)

        def unfinished(state: RejectionState) -> jax.Array:
            return jnp.any(state.pending & (state.tests < MAX_TESTS_PER_STEP))

        def test_batch(state: RejectionState) -> RejectionState:
            z, lower, u, pending, tests, key = state
            batch = first_true(pending & (tests < MAX_TESTS_PER_STEP), size)
            batch_key, key = jax.random.split(key)
            new, new_u = self._draw_with_uniform(m.at[:, batch].get(mode="clip"), batch_key)
            waiting = tuple(v.at[..., batch].get(mode="clip") for v in (z, lower, u))
            accepted = self._accepts(*waiting)
            z, lower, u = (
                v.at[..., batch].set(jnp.where(accepted, old, drawn), mode="drop")
                for v, old, drawn in zip((z, lower, u), waiting, (new.z, new.lower, new_u), strict=True)
            )
            pending = pending.at[batch].set(~(accepted | self._squeezes(new, new_u)), mode="drop")
            return RejectionState(z, lower, u, pending, tests.at[batch].add(1, mode="drop"), key)

        last = jax.lax.while_loop(unfinished, test_batch, self._first_state(m, key))
        return jnp.where(last.pending, jnp.nan, last.z), (last.pending | _is_lost(m)).any()

    def _first_state(self, m: jax.Array, key: jax.Array) -> RejectionState:
        """Return the state after one draw for each run, and a few more for a small batch of runs.

        Most draws are accepted without evaluating J, because J is at most lower + slack. The first draws that fail this
        squeeze test are tested in one batch, and each rejected one is replaced by the first of a few new draws that is
        accepted. A run that is lost stays NaN and is never pending.
        """
        keys = jax.random.split(key, 2 + NEW_DRAWS)
        first, u = self._draw_with_uniform(m, keys[1])
        pending = ~self._squeezes(first, u) & ~_is_lost(m)
        batch = first_true(pending, self._batch_size(m, QUICK_BATCH_DIVISOR))
        own_m, *waiting = (v.at[..., batch].get(mode="clip") for v in (m, first.z, first.lower, u))
        new, new_u = jax.vmap(self._draw_with_uniform, in_axes=(None, 0))(own_m, keys[2:])
        # All draws of a run are tested at once: one program for many numbers is compiled and started faster than four.
        z, lower, own_u = (
            jnp.concatenate([old[None], drawn]) for old, drawn in zip(waiting, (new.z, new.lower, new_u), strict=True)
        )
        accepted = jax.vmap(self._accepts)(z, lower, own_u)
        first_accepted = jnp.argmax(accepted, axis=0)
        z = jnp.take_along_axis(z, first_accepted[None, None], axis=0)[0]
        return RejectionState(
            first.z.at[:, batch].set(z, mode="drop"),
            first.lower,
            u.at[batch].set(jnp.inf, mode="drop"),
            pending.at[batch].set(~accepted.any(axis=0), mode="drop"),
            jnp.zeros(m.shape[1], jnp.int32),
            keys[0],
        )

    def _batch_size(self, m: jax.Array, divisor: int) -> int:
        return min(m.shape[1], max(m.shape[1] // divisor, MIN_BATCH))

    def _draw_with_uniform(self, m: jax.Array, key: jax.Array) -> tuple[Draw, jax.Array]:
        draw_key, uniform_key = jax.random.split(key)
        return self.envelope.draw(m, draw_key), jax.random.uniform(uniform_key, m.shape[1:], m.dtype)

    def _squeezes(self, draw: Draw, u: jax.Array) -> jax.Array:
        """Return which draws are accepted without evaluating J."""
        return self.ball.contains(draw.z) & (u < 1 - draw.slack / self.kappa)  # 1 - x <= exp(-x)

    def _accepts(self, z: jax.Array, lower: jax.Array, u: jax.Array) -> jax.Array:
        """Return which draws pass the full test."""
        return u < self.acceptance(z, lower)

    def acceptance(self, z: jax.Array, lower: jax.Array) -> jax.Array:
        """Return the probability that a draw passes the full test."""
        costs = jax.vmap(self.cost, in_axes=1)(z)
        return jnp.where(self.ball.contains(z), jnp.exp((lower - costs) / self.kappa), 0.0)


def _is_lost(m: jax.Array) -> jax.Array:
    """Return which priors are NaN, because the run was abandoned at an earlier step or f is not finite."""
    return jnp.isnan(m.sum(0))


class Faithfulness(NamedTuple):
    """How faithful the samples of the Gibbs distribution are: what is proved, and what is only expected.

    Parameters
    ----------
    method : {"taylor", "prior", "direct"}
        The envelope: a Taylor polynomial, the prior, or none because no rejection is needed.
    certified : bool
        Always True: every accepted run is proved to be an exact draw. What cannot be drawn exactly is refused.
    M : tuple of float
        Draws per accepted draw at each step. Up to 4 it is a bound for the prior of the deterministic trajectory, above
        an average over pilot runs. A run with an unfavourable prior needs more.
    modes : tuple of int
        Number of minima that were found at each step from several starting points in K_k. It is information only.
    """

    method: str
    certified: bool
    M: tuple[float, ...]
    modes: tuple[int, ...] = ()

    @property
    def given_up(self) -> tuple[float, ...]:
        """The expected share of abandoned runs at each step if all runs had this M: an estimate, not a bound."""
        return tuple(float((1 - 1 / v) ** MAX_TESTS_PER_STEP) for v in self.M)

    @property
    def feasible(self) -> bool:
        """Whether practically all runs finish; otherwise the mechanism refuses to sample."""
        return max(self.M) <= MAX_DRAWS_PER_RUN

    @property
    def mostly_squeezed(self) -> bool:
        """Whether the squeeze test is expected to accept so many draws that the quick sampler finishes all runs."""
        return self.method == "taylor" and max(self.M) <= MAX_QUICK_DRAWS_PER_RUN


class SamplerPlan(NamedTuple):
    """Everything that the sampler needs to know about one data set."""

    windows: np.ndarray  # (K, window + 1, measurements)
    support: Ball  # K_0, ..., K_{K-1}
    envelope: Taylor | None  # arrays with the steps on the first axis; None where no rejection is needed
    trajectory: np.ndarray  # (K, n): the deterministic estimates
    faithfulness: Faithfulness
    refusal: str = ""  # why the distribution cannot be sampled; empty where it can


def plan_sampler(problem: Problem, data: np.ndarray, support: Ball, kappa: float, tau: float) -> SamplerPlan:
    """Compute everything that depends on the data alone; `support` holds the centres and radii of all steps."""
    parameters, template = problem.system.parameters, problem.template
    with enable_x64():
        y = np.asarray(sliding_windows(data, problem.window))
        trajectory = np.asarray(jitted_trajectory(template, "ball", parameters, y, tau, support))
        expansion = [np.asarray(v) for v in local_expansions(template, parameters, trajectory, y)]
        if not all(np.isfinite(v).all() for v in expansion):
            raise InputError(
                "h: found NaN or infinity in h or its derivatives at an estimate; expected a smooth h on all of K_k; "
                "fix f or h, or choose a smaller diameter"
            )
        lower, third, advice = np.zeros(len(y)), np.full(len(y), np.inf), ""
        try:
            lo, hi = support.centre - support.radius[:, None], support.centre + support.radius[:, None]
            lower, third = cost_bounds(problem.system, y, problem.residual_weights, lo, hi)
        except NoBound as operation:
            advice = f"; f or h contains {operation}, which has no interval bounds: {HOW_TO_WRITE}"
        balls = [Ball(*v) for v in zip(*support, strict=True)]
        points, priors = trajectory, prior_means(problem, support, trajectory)
        distances = np.linalg.norm(trajectory - support.centre, axis=1)
        for _ in range(BOUNDARY_STEPS if (distances > (1 - BOUNDARY) * support.radius).any() else 0):
            precision = expansion[2] + np.eye(problem.system.states) / tau
            slopes, offsets = expansion[1] + (points - priors) / tau, points - support.centre
            if not np.isfinite(expansion[2]).all():
                break
            steps = zip(slopes, precision, offsets, support.radius, strict=True)
            points = support.centre + [minimum_on_ball(*step) for step in steps]
            expansion = [np.asarray(v) for v in local_expansions(template, parameters, points, y)]
            priors = prior_means(problem, support, points)
        steps = [
            taylor_envelope((z, *(v[k] for v in expansion)), float(third[k]), balls[k], priors[k], kappa, tau)  # type: ignore[arg-type]
            for k, z in enumerate(points)
        ]
        taylor, M = zip(*(step or (None, np.inf) for step in steps), strict=True)
        method, chosen = "taylor", list(taylor)
        if max(M) > ENOUGH_DRAWS_PER_RUN:
            draws = functools.partial(_pilot_draws_per_run, problem, y, balls, kappa=kappa, tau=tau)
            own_prior = [
                prior_envelope(float(v), ball.centre, kappa, tau) for v, ball in zip(lower, balls, strict=True)
            ]
            M, method, chosen = draws(own_prior), "prior", own_prior
            if all(steps) and max(taylor_M := draws(list(taylor))) <= max(M):
                M, method, chosen = taylor_M, "taylor", list(taylor)
        stacked = jax.tree.map(lambda *v: np.stack(v), *chosen)
    faithfulness = Faithfulness(method, True, tuple(float(v) for v in M))
    refusal = "" if faithfulness.feasible else _refusal(f"step {int(np.argmax(M))}", advice)
    return SamplerPlan(y, support, stacked, trajectory, faithfulness, refusal)


def _refusal(where: str, advice: str = "") -> str:
    """Return the message for a distribution that the sampler cannot draw from."""
    return (
        f"s: found a Gibbs distribution that can't be sampled exactly at {where}; expected at least one accepted draw "
        f"in {MAX_DRAWS_PER_RUN:.0f}; choose a smaller diameter, radius or tau, smaller weights, or another s{advice}"
    )


@functools.partial(jax.jit, static_argnums=0)
def _pilot_step(
    template: Problem, parameters: Any, envelope: Taylor, ball: Ball, rows: Any, m: Any, key: Any, kappa: float
) -> tuple[jax.Array, jax.Array]:
    """Return draws (n, runs) of one step, and the probability that each of them is accepted."""
    problem = template.bind(parameters)
    cost = stage_cost(problem.system, problem.residual_weights)
    draw = envelope.draw(m, key)
    return draw.z, RejectionSampler(lambda z: cost(z, rows), envelope, ball, kappa).acceptance(draw.z, draw.lower)


def _pilot_draws_per_run(
    problem: Problem, y: np.ndarray, balls: list[Ball], envelopes: list[Taylor], *, kappa: float, tau: float
) -> list[float]:
    """Return the draws per accepted draw at each step, measured on pilot runs; infinite where there are too many."""
    rng, priors = np.random.default_rng(0), np.tile(problem.system.start, (PILOT_RUNS, 1))
    predict: Callable[..., jax.Array] = jax.vmap(problem.system.f)
    draws_per_run: list[float] = []
    for k, (ball, envelope) in enumerate(zip(balls, envelopes, strict=True)):
        priors = priors if problem.prior == "carried" else np.tile(ball.centre, (PILOT_RUNS, 1))
        parameters = problem.system.parameters
        result = _pilot_step(problem.template, parameters, envelope, ball, y[k], priors.T, jax.random.key(k), kappa)
        z, acceptance = (np.asarray(v) for v in result)
        if not acceptance.mean() * MAX_DRAWS_PER_RUN >= 1:  # also where J is NaN
            return draws_per_run + [np.inf] * (len(y) - k)
        draws_per_run.append(1 / acceptance.mean())
        accepted = rng.choice(PILOT_RUNS, PILOT_RUNS, p=acceptance / acceptance.sum())
        priors = np.asarray(predict(z[:, accepted].T))
    return draws_per_run


def prior_means(problem: Problem, support: Ball, states: np.ndarray) -> np.ndarray:
    """Return the prior of each step along a trajectory."""
    if problem.prior == "start":
        return support.centre
    return np.vstack([problem.system.start, *(np.asarray(problem.system.f(jnp.asarray(z))) for z in states[:-1])])


@functools.partial(jax.jit, static_argnums=0)
def _local_minima(template: Problem, parameters: Any, prior: Any, starts: Any, y: Any, tau: float) -> jax.Array:
    """Return the minimum of the exponent that is found from each start; NaN where there is none."""
    problem = template.bind(parameters)
    cost = stage_cost(problem.system, problem.residual_weights)

    def minimum(start: jax.Array) -> jax.Array:
        z = proximal_estimate(lambda z: cost(z, y), prior, tau, start)
        curvature = jax.hessian(cost)(z, y) + jnp.eye(z.size) / tau
        # Newton's method does not leave a maximum or a saddle point at which it starts.
        return jnp.where(jnp.linalg.eigvalsh(curvature)[0] > 0, z, jnp.nan)

    return jax.vmap(minimum)(starts)


def count_modes(problem: Problem, plan: SamplerPlan, tau: float) -> tuple[int, ...]:
    """Return the number of minima of the exponent that several starting points inside each K_k lead to."""
    priors = prior_means(problem, plan.support, plan.trajectory)
    n, counts = plan.trajectory.shape[1], []
    axes = 0.7 * np.vstack([np.zeros(n), np.eye(n), -np.eye(n)])
    for centre, radius, prior, rows in zip(*plan.support, priors, plan.windows, strict=True):
        starts = np.vstack([prior, centre + radius * axes])
        minima = np.asarray(_local_minima(problem.template, problem.system.parameters, prior, starts, rows, tau))
        minima = minima[np.linalg.norm(minima - centre, axis=1) <= radius]  # this removes NaN as well
        counts.append(len(np.unique(np.round((minima - centre) / radius, 6), axis=0)))
    return tuple(counts)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _draw_step(
    template: Problem, quick: bool, parameters: Any, inputs: Any, step: Any, kappa: float, tau: float, z: Any, lost: Any
) -> tuple[jax.Array, jax.Array]:
    """Return the states (n, runs) of a step that follow those of the step before, and whether any run is unfinished."""
    problem = template.bind(parameters)
    rows, ball, envelope, key = jax.tree.map(lambda v: v[step], inputs)
    cost = stage_cost(problem.system, problem.residual_weights)
    if problem.prior == "carried":
        m = jnp.where(step == 0, jnp.asarray(problem.system.start)[:, None], problem.system.step_columns(z))
    else:
        m = jnp.tile(ball.centre[:, None], z.shape[1])
    sampler = RejectionSampler(lambda z: cost(z, rows), envelope, ball, kappa)
    z, unfinished = sampler.draw_quickly(m, key) if quick else sampler.draw(m, key)
    return z, lost | unfinished


@functools.partial(jax.jit, static_argnums=1)
def _by_run(states: list[jax.Array], released: tuple[int, ...]) -> jax.Array:
    """Return the released coordinates (runs, K, d) of states (n, runs)."""
    rows = [z[i] for z in states for i in released]
    return jnp.stack(rows, axis=-1).reshape(-1, len(states), len(released))


def sample_trajectories(
    problem: Problem, quick: bool, key: jax.Array, runs: int, plan: tuple[Any, Ball, Taylor], kappa: float, tau: float
) -> jax.Array:
    """Return the released estimates (runs, K, d); `quick` tries the quick sampler first.

    The quick sampler has no loop, which would wait for the host in each iteration on a GPU. Where its few tests are not
    enough for all runs, the full sampler draws the block again. The same keys give the same draws, so that the runs
    that the quick sampler has finished stay as they are, and the distribution is exact. One program draws a step: it is
    compiled faster than one program of all steps, and it reads the states of the step before and not their predictions,
    which would be written to memory once more.
    """
    template, parameters, steps = problem.template, problem.system.parameters, len(plan[0])
    inputs = *plan, jax.random.split(key, steps)
    for is_quick in (True, False) if quick else (False,):
        # On the device of the plan, or the first step would be compiled for itself.
        z, lost = jax.device_put((jnp.zeros((problem.system.states, runs)), np.zeros((), bool)), plan[0].sharding)
        states = []
        for k in range(steps):
            z, lost = _draw_step(template, is_quick, parameters, inputs, np.int32(k), kappa, tau, z, lost)
            states.append(z)
        estimates = _by_run(states, tuple(problem.system.released))
        if not lost:  # the device orders the estimates by run meanwhile, and does not stand still
            return estimates
    raise InputError(_refusal("a step whose prediction lies too far from K_k"))


@functools.lru_cache(maxsize=64)
def compile_ahead(problem: Problem, runs: int, windows: tuple[int, ...], device: Any) -> Future[Any]:
    """Compile the quick sampler of an accelerator in a thread, which draws a block from zeros; return its future.

    The plan is computed meanwhile. With a program of all steps, compiled after the plan, the first verification of a
    process took 29.1 s on an H200, and 18.6 s with programs of single steps that a thread compiles.
    """

    default = jax.config.jax_default_device  # type: ignore[attr-defined]  # part of the key of compiled programs

    def draw() -> None:
        wait([started(device)])  # the compiler would wait for the device, and could disturb its start
        with enable_x64(), jax.default_device(default):
            steps, n = windows[0], problem.system.states
            all_space = Ball(np.zeros((steps, n)), np.full(steps, np.inf))
            plan = jax.device_put((np.zeros(windows), all_space, Taylor.zeros(steps, n)), device)
            jax.block_until_ready(
                sample_trajectories(problem, True, jax_key(np.random.default_rng(0)), runs, plan, 1.0, 1.0)
            )

    thread = ThreadPoolExecutor(1, "dpverify-compiler")
    future = thread.submit(draw)
    thread.shutdown(wait=False)
    return future
