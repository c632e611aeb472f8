"""Exact sampling from exp( -( |z - m|^2 / (2 tau) + J(z) ) / kappa ) on a ball, for many runs with different priors m.

With the data fixed, J is the same function for all runs. An *envelope* is a quadratic lower bound of J on the ball, so
that its sum with the term of the prior is the exponent of a Gaussian. A draw z from it is accepted with probability
exp( -(J(z) - lower(z)) / kappa ). This is rejection sampling: the distribution is exact wherever the lower bound holds,
and the acceptance rate affects the speed only (docs/method.md, section 7.3).

The envelope is the Taylor polynomial of second order at the deterministic estimate, with its curvature reduced by a
proved bound of the third derivative. Where there is no such bound, or few draws would be accepted, the envelope may
also be a constant, so that draws come from the prior and f and h need no derivatives. Where the Gaussian of a run lies
outside the ball, a multiple of |z - centre|^2 - radius^2, which is at most 0 on the ball, is added to the lower bound;
the Gaussian then touches the ball at its most likely point. Datasets for which too few draws are accepted are refused.
Arrays of states have the runs on the *last* axis, which is the faster layout.
"""

from __future__ import annotations

import functools
import itertools
import math
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import chdtrc

from dpverify.errors import InputError
from dpverify.estimation.bounds import HOW_TO_WRITE, Interval, NoBound, cost_jet
from dpverify.estimation.ekf import backward_substitution, cholesky_factor, forward_substitution
from dpverify.estimation.moving_horizon import (
    Ball,
    Cost,
    Problem,
    Windows,
    project,
    sliding_windows,
    stage_cost,
)
from dpverify.estimation.system import multiply_columns, started
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64, first_true

MIN_BATCH = 32  # runs that are tested together, at least
BATCH_DIVISOR = 8  # runs divided by those that are tested together: an iteration of the loop costs more than its runs
QUICK_BATCH_DIVISOR = 512  # runs divided by those that are tested without a loop
MAX_QUICK_DRAWS_PER_RUN = 1 + 1 / 4096  # M up to which the quick sampler is used; a small part of its batch is pending
NEW_DRAWS = 3  # draws after the first one that are tested without a loop
MAX_TESTS_PER_STEP = 1 << 15  # tested draws after which the sampler gives up
MAX_ABANDONED_SHARE = 1e-6  # share of runs
MAX_DRAWS_PER_RUN = MAX_TESTS_PER_STEP / math.log(1 / MAX_ABANDONED_SHARE)  # M above which more runs are abandoned
ENOUGH_DRAWS_PER_RUN = 4.0  # the Taylor envelope is taken at once if it needs at most so many draws per run
MULTIPLIER_STEPS = 12  # Newton steps for the multiplier of a run; any multiplier is valid, a better one is faster
OWN_NEWTON_STEPS = 1  # to the estimate of a run from that of the shared envelope, which is close to it
EDGE = 1e-3  # relative distance from the sphere up to which an estimate counts as lying on it
PILOT_RUNS = 512  # a tenth of the acceptance rate at which a set-up is refused would still show in eight steps


class Draw(NamedTuple):
    """Draws from an envelope, one for each run."""

    z: jax.Array  # (n, runs)
    lower: jax.Array  # (runs,): the lower bound of J at z
    slack: jax.Array  # (runs,): J - lower is at most this


class Envelope(NamedTuple):
    """The lower bound J(point + d) >= value + gradient d + d' hessian d / 2 on the ball.

    J exceeds it by at most the sum of excess_i d_i^2.
    """

    point: Any  # (n,); like the other fields a NumPy array where it is computed and a JAX array where it is sampled
    value: Any
    gradient: Any  # (n,)
    hessian: Any  # (n, n)
    excess: Any  # (n,); infinite where nothing is known
    mean_gain: Any  # (n, n): matrix from m - point to the mean of d: (I + tau hessian)^-1
    mean_shift: Any  # (n,)
    covariance_root: Any  # (n, n): its columns are the principal axes
    third: Any  # (n, n, n): |D^3 J[u, u, u]| <= third[|u|, |u|, |u|] on the ball

    def draw(self, m: jax.Array, key: jax.Array) -> Draw:
        """Return one draw for each prior, the columns of m (n, runs)."""
        # The barrier prevents a compiler from drawing the same noise once more for each row of the product.
        noise = jax.lax.optimization_barrier(jax.random.normal(key, m.shape, m.dtype))
        return self._draw_at(self._means(m) + multiply_columns(self.covariance_root, noise))

    def draw_on_ball(self, m: jax.Array, key: jax.Array, ball: Ball, kappa: float) -> Draw:
        """Return one draw for each prior, from a Gaussian whose centre lies in the ball."""
        noise = jax.random.normal(key, m.shape, m.dtype)
        offset, axes, v, precision, multiplier = self._on_ball(m, ball, kappa)
        v = v + jnp.sqrt(kappa / (precision + multiplier)) * noise
        draw = self._draw_at(axes @ (v - offset))
        lower = draw.lower - multiplier / 2 * (ball.radius**2 - jnp.square(v).sum(0))
        return draw._replace(lower=lower, slack=jnp.where(multiplier > 0, jnp.inf, draw.slack))

    def centres(self, m: jax.Array, ball: Ball, kappa: float) -> jax.Array:
        """Return the centres of the Gaussians from which `draw_on_ball` draws."""
        offset, axes, v, *_ = self._on_ball(m, ball, kappa)
        return self.point[:, None] + axes @ (v - offset)

    def _on_ball(self, m: jax.Array, ball: Ball, kappa: float) -> tuple[jax.Array, ...]:
        """Return the point in principal axes around the centre of the ball, these axes, the centres, and precisions."""
        deviations = jnp.linalg.norm(self.covariance_root, axis=0)[:, None]
        axes, precision = self.covariance_root / deviations.T, kappa / deviations**2
        offset = axes.T @ (self.point - ball.centre)[:, None]
        slope = precision * (axes.T @ self._means(m) + offset)  # of the exponent at the centre of the ball

        def better(_: int, multiplier: jax.Array) -> jax.Array:
            square = jnp.square(slope / (precision + multiplier))
            excess = jnp.sqrt(square.sum(0)) / ball.radius - 1  # of the length of the mean over the radius
            step = excess * square.sum(0) / (square / (precision + multiplier)).sum(0)
            return jnp.where(excess > 0, multiplier + step, multiplier)

        multiplier = jax.lax.fori_loop(0, MULTIPLIER_STEPS, better, jnp.zeros_like(m[0]))
        return offset, axes, slope / (precision + multiplier), precision, multiplier

    def _means(self, m: jax.Array) -> jax.Array:
        return multiply_columns(self.mean_gain, m - self.point[:, None]) + self.mean_shift[:, None]

    def _draw_at(self, d: jax.Array) -> Draw:
        quadratic = jnp.sum(d * multiply_columns(self.hessian, d), 0)
        lower = self.value + jnp.sum(self.gradient[:, None] * d, 0) + quadratic / 2
        return Draw(self.point[:, None] + d, lower, jnp.sum(self.excess[:, None] * d * d, 0))

    @classmethod
    def zeros(cls, steps: int, n: int) -> Envelope:
        """Return arrays of the shapes of the envelopes of all steps."""
        shapes: list[tuple[int, ...]] = [(n,), (), (n,), (n, n), (n,), (n, n), (n,), (n, n), (n, n, n)]
        return cls(*(np.zeros((steps, *shape)) for shape in shapes))


class Expansion(NamedTuple):
    """Value, gradient and Hessian of J, or of a lower bound of J, at a point of the ball."""

    point: np.ndarray
    value: Any
    gradient: np.ndarray
    hessian: np.ndarray


def envelope_at(
    expansion: Expansion,
    reduction: np.ndarray,
    excess: np.ndarray,
    third: np.ndarray,
    ball: Ball,
    kappa: float,
    tau: float,
) -> Envelope:
    """Return the envelope whose curvature is reduced by these amounts, one for each coordinate.

    Where the Gaussian would be wider than the ball or no Gaussian at all, a multiple of |z - centre|^2 - radius^2 is
    added.
    """
    point, value, gradient, hessian = expansion
    n, offset = len(point), point - ball.centre
    hessian = hessian - np.diag(reduction)
    precision = np.eye(n) / tau + hessian
    multiplier = n * kappa / ball.radius**2 - np.linalg.eigvalsh(precision)[0]
    if multiplier > 0:
        value = value - multiplier / 2 * (ball.radius**2 - offset @ offset)
        gradient, hessian = gradient + multiplier * offset, hessian + multiplier * np.eye(n)
        excess, precision = np.full(n, np.inf), precision + multiplier * np.eye(n)
    values, vectors = np.linalg.eigh(precision)
    inverse = vectors / values @ vectors.T
    root = vectors * np.sqrt(kappa / values)
    return Envelope(point, value, gradient, hessian, excess, inverse / tau, -inverse @ gradient, root, third)


def draws_bound(envelope: Envelope, ball: Ball, prior: np.ndarray, kappa: float) -> float:
    """Return a bound of M = draws per accepted draw for this prior.

    The acceptance rate is at least E exp(-sum_i excess_i d_i^2 / kappa), less the probability outside the ball.
    """
    if not np.isfinite(envelope.excess).all():
        return np.inf
    n, covariance = len(prior), envelope.covariance_root @ envelope.covariance_root.T
    mean = envelope.mean_gain @ (prior - envelope.point) + envelope.mean_shift
    stretch = np.eye(n) + 2 / kappa * covariance * envelope.excess
    exponent = mean * envelope.excess @ np.linalg.solve(stretch, mean) / kappa
    accepted = np.exp(-exponent) / np.sqrt(np.linalg.det(stretch))
    margin = max(ball.radius - np.linalg.norm(envelope.point - ball.centre + mean), 0.0)
    outside = chdtrc(n, margin**2 / np.linalg.eigvalsh(covariance)[-1])  # the upper tail of a chi-squared distribution
    return float(1 / (accepted - outside)) if accepted > outside else np.inf


def draw_from_own_envelope(cost: Cost, start: jax.Array, m: jax.Array, key: jax.Array, sampler: Any) -> Draw:
    """Return one draw for one run, from the Taylor polynomial at its own estimate, which is found from `start`.

    So few draws are rejected for any prior, however far it lies from that of the deterministic trajectory.
    """
    ball, kappa, tau, third = sampler.ball, sampler.kappa, sampler.tau, sampler.envelope.third

    def envelope(p: jax.Array) -> tuple[jax.Array, ...]:
        """Return the envelope at p without its value: gradient and precision, J's part of them, and the multiplier."""
        offset = p - ball.centre
        reach = ball.radius + jnp.abs(offset)
        hessian = jax.hessian(cost)(p) - jnp.diag(jnp.einsum("ijk,k->i", third, reach) / 3)
        gradient, precision = jax.grad(cost)(p), hessian + jnp.eye(len(p)) / tau
        slope = gradient + (p - m) / tau
        # On the sphere, the multiplier of the constrained minimum; any multiplier from 0 up is valid.
        at_edge = jnp.sum(jnp.square(offset)) > (1 - EDGE) * ball.radius**2
        multiplier = jnp.where(at_edge, jnp.maximum(-slope @ offset / ball.radius**2, 0.0), 0.0)
        # Gershgorin's bound of the smallest eigenvalue, so that the Gaussian is not wider than the ball.
        least = jnp.min(2 * jnp.diag(precision) - jnp.abs(precision).sum(1)) + multiplier
        multiplier = multiplier + jnp.maximum(len(p) * kappa / ball.radius**2 - least, 0.0)
        return slope + multiplier * offset, precision + multiplier * jnp.eye(len(p)), gradient, hessian, multiplier

    def newton(_: int, p: jax.Array) -> jax.Array:
        slope, precision, *_ = envelope(p)
        return project(p - gaussian_draw(precision, slope, jnp.zeros_like(p)), ball, "ball")

    p = jax.lax.fori_loop(0, OWN_NEWTON_STEPS, newton, project(start, ball, "ball"))
    slope, precision, gradient, hessian, multiplier = envelope(p)
    d = -gaussian_draw(precision, slope, jnp.sqrt(kappa) * jax.random.normal(key, p.shape, p.dtype))
    outside = jnp.sum(jnp.square(p + d - ball.centre)) - ball.radius**2
    lower = cost(p) + gradient @ d + d @ hessian @ d / 2 + multiplier / 2 * outside
    return Draw(p + d, lower, jnp.full((), jnp.inf))


def gaussian_draw(precision: jax.Array, slope: jax.Array, noise: jax.Array) -> jax.Array:
    """Return precision^-1 slope plus noise of covariance precision^-1, made from independent noise."""
    factor, inverse = cholesky_factor(precision)
    return backward_substitution(factor, inverse, forward_substitution(factor, inverse, slope) + noise)


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
    envelope: Envelope
    ball: Ball
    kappa: float
    tau: float
    is_smooth: bool  # whether there are bounds of the third derivatives

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
            new, new_u = self.draw_with_uniform(m.at[:, batch].get(mode="clip"), batch_key, True)
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
        first, u = self.draw_with_uniform(m, keys[1])
        pending = ~self._squeezes(first, u) & ~_is_lost(m)
        batch = first_true(pending, self._batch_size(m, QUICK_BATCH_DIVISOR))
        own_m, *waiting = (v.at[..., batch].get(mode="clip") for v in (m, first.z, first.lower, u))
        new, new_u = jax.vmap(self.draw_with_uniform, in_axes=(None, 0))(own_m, keys[2:])
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

    def draw_with_uniform(self, m: jax.Array, key: jax.Array, on_ball: bool = False) -> tuple[Draw, jax.Array]:
        """Return a draw for each prior with its uniform number; all but the first draws of a step are on the ball."""
        draw_key, uniform_key = jax.random.split(key)
        envelope = self.envelope
        if on_ball and self.is_smooth:
            starts, keys = envelope.centres(m, self.ball, self.kappa), jax.random.split(draw_key, m.shape[1])
            own = functools.partial(draw_from_own_envelope, self.cost, sampler=self)
            draw = jax.vmap(lambda start, m, key: own(start, m, key), (1, 1, 0), Draw(1, 0, 0))(starts, m, keys)  # type: ignore[arg-type]
        elif on_ball:
            draw = envelope.draw_on_ball(m, draw_key, self.ball, self.kappa)
        else:
            draw = envelope.draw(m, draw_key)
        return draw, jax.random.uniform(uniform_key, m.shape[1:], m.dtype)

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
        Draws per accepted draw at each step. Up to 4 it may be a bound for the prior of the deterministic trajectory,
        above it is an average over pilot runs. A run with an unfavourable prior needs more.
    """

    method: str
    certified: bool
    M: tuple[float, ...]

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
    """Everything that the sampler needs to know about one dataset."""

    windows: Windows
    support: Ball  # K_0, ..., K_{K-1}
    envelope: Envelope | None  # arrays with the steps on the first axis; None where no rejection is needed
    trajectory: np.ndarray  # (K, n): the deterministic estimates
    faithfulness: Faithfulness
    refusal: str = ""  # why the distribution cannot be sampled; empty where it can


def plan_sampler(problem: Problem, data: np.ndarray, support: Ball, kappa: float, tau: float) -> SamplerPlan:
    """Compute everything that depends on the data alone; `support` holds the centres and radii of all steps."""
    with enable_x64():
        windows = sliding_windows(data, problem.window)
        trajectory = problem.solve("ball", windows, tau, support)
        taylor, prior, advice = _candidates(problem, windows, support, trajectory, kappa, tau)
        method, chosen, M = "taylor", taylor, [np.inf]
        if taylor:
            priors, balls = prior_means(problem, support, trajectory), (Ball(*v) for v in zip(*support, strict=True))
            M = [draws_bound(*v, kappa) for v in zip(taylor, balls, priors, strict=True)]
        for name, candidate in (("taylor", taylor), ("prior", prior)):
            if max(M) > ENOUGH_DRAWS_PER_RUN and candidate:
                pilot = _pilot_draws_per_run(problem, windows, support, candidate, name == "taylor", kappa, tau)
                if name == "taylor" or chosen is None or max(pilot) < max(M):
                    method, chosen, M = name, candidate, pilot
    faithfulness = Faithfulness(method, True, tuple(float(v) for v in M))
    reason = "" if faithfulness.feasible else refusal(f"step {int(np.argmax(M))}", advice)
    stacked = jax.tree.map(lambda *v: np.stack(v), *(chosen or prior))
    return SamplerPlan(windows, support, stacked, trajectory, faithfulness, reason)


def _candidates(
    problem: Problem, windows: Windows, support: Ball, trajectory: np.ndarray, kappa: float, tau: float
) -> tuple[list[Envelope] | None, list[Envelope], str]:
    """Return the Taylor envelopes of all steps or None, the constant ones, and what to change if they do not suffice.

    On the ball |d_i| is at most the radius plus the distance of the estimate, so that the cubic term of J, which is
    bounded by the sum of |D^3 J_ijk d_i d_j d_k| / 6, is at most the sum of reduction_i d_i^2 / 2, because
    |d_i d_j| <= (d_i^2 + d_j^2) / 2.
    """
    (steps, n), radius = trajectory.shape, support.radius[:, None]
    balls = [Ball(*v) for v in zip(*support, strict=True)]

    def constant(lower: np.ndarray) -> list[Envelope]:
        none, unknown = (np.zeros(n), np.zeros((n, n))), (np.zeros(n), np.full(n, np.inf), np.zeros((n, n, n)))
        own = zip(balls, lower, strict=True)
        return [envelope_at(Expansion(ball.centre, v, *none), *unknown, ball, kappa, tau) for ball, v in own]

    try:
        weights, box = problem.residual_weights, Interval(support.centre - radius, support.centre + radius)
        bounds, at_estimate = (
            cost_jet(problem.system, windows.y, weights, own) for own in (box, Interval(trajectory, trajectory))
        )
    except NoBound as operation:
        advice = f"; f or h contains {operation}, which has no interval bounds: {HOW_TO_WRITE}"
        return None, constant(np.zeros(steps)), advice
    prior = constant(np.nan_to_num(bounds.value.lo, nan=0.0, posinf=0.0))
    # The axes of the derivatives come first, those of the steps last.
    value, gradient, hessian = (np.moveaxis((v.lo + v.hi) / 2, -1, 0) for v in at_estimate[:3])
    third = np.moveaxis(bounds.third.magnitude, -1, 0)
    third = sum(np.transpose(third, (0, *order)) for order in itertools.permutations((1, 2, 3))) / 6 * (1 + 1e-9)
    if not all(np.isfinite(v).all() for v in (value, gradient, hessian, third)):
        return None, prior, ""
    reduction = np.einsum("bijk,bk->bi", third, radius + np.abs(trajectory - support.centre)) / 3
    own = zip(trajectory, value, gradient, (hessian + hessian.swapaxes(1, 2)) / 2, strict=True)
    taylor = [
        envelope_at(Expansion(*v), b, b, t, ball, kappa, tau)
        for v, b, t, ball in zip(own, reduction, third, balls, strict=True)
    ]
    return taylor, prior, ""


def refusal(where: str, advice: str = "") -> str:
    """Return the message for a distribution that the sampler cannot draw from."""
    return (
        f"s: found a Gibbs distribution that can't be sampled exactly at {where}; expected at least one accepted draw "
        f"in {MAX_DRAWS_PER_RUN:.0f}; choose a smaller diameter, radius or tau, smaller weights, or another s; "
        f"W2MHE.proposed(system, data) finds values that work{advice}"
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _pilot_step(
    template: Problem, is_smooth: bool, numbers: Any, rows: Any, own: Any, kappa: float, tau: float, m: Any, key: Any
) -> tuple[jax.Array, jax.Array]:
    """Return for draws of one step the probability that each is accepted, and the priors that follow."""
    problem = template.bind(numbers)
    cost = stage_cost(problem.system, problem.residual_weights)
    sampler = RejectionSampler(lambda z: cost(z, rows), *own, kappa, tau, is_smooth)
    draw, _ = sampler.draw_with_uniform(m, key, True)
    return sampler.acceptance(draw.z, draw.lower), problem.system.step_columns(draw.z, rows.k)


def _pilot_draws_per_run(
    problem: Problem,
    windows: Windows,
    support: Ball,
    envelopes: list[Envelope],
    is_smooth: bool,
    kappa: float,
    tau: float,
) -> list[float]:
    """Return the draws per accepted draw at each step, measured on pilot runs; infinite where there are too many."""
    rng, priors = np.random.default_rng(0), np.tile(problem.system.start, (PILOT_RUNS, 1)).T
    draws_per_run: list[float] = []
    for k, envelope in enumerate(envelopes):
        rows, ball = (type(v)(*(part[k] for part in v)) for v in (windows, support))
        priors = priors if problem.prior == "carried" else np.tile(ball.centre, (PILOT_RUNS, 1)).T
        inputs = problem.system.numbers, rows, (envelope, ball), kappa, tau, priors, jax.random.key(k)
        acceptance, predicted = map(np.asarray, _pilot_step(problem.template, is_smooth, *inputs))
        if not acceptance.mean() * MAX_DRAWS_PER_RUN >= 1:  # also where J is NaN
            return draws_per_run + [np.inf] * (len(envelopes) - k)
        draws_per_run.append(1 / acceptance.mean())
        priors = predicted[:, rng.choice(PILOT_RUNS, PILOT_RUNS, p=acceptance / acceptance.sum())]
    return draws_per_run


def prior_means(problem: Problem, support: Ball, states: np.ndarray) -> np.ndarray:
    """Return the prior of each step along a trajectory."""
    if problem.prior == "start":
        return support.centre
    predicted = jax.vmap(problem.system.step)(jnp.asarray(states[:-1]), jnp.arange(len(states) - 1))
    return np.vstack([problem.system.start, predicted])


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _draw_step(
    template: Problem,
    quick: bool,
    is_smooth: bool,
    numbers: Any,
    inputs: Any,
    step: Any,
    kappa: float,
    tau: float,
    z: Any,
    lost: Any,
) -> tuple[jax.Array, jax.Array]:
    """Return the states (n, runs) of a step that follow those of the step before, and whether any run is unfinished."""
    problem = template.bind(numbers)
    rows, ball, envelope, key = jax.tree.map(lambda v: v[step], inputs)
    cost = stage_cost(problem.system, problem.residual_weights)
    if problem.prior == "carried":
        m = jnp.where(step == 0, jnp.asarray(problem.system.start)[:, None], problem.system.step_columns(z, rows.k - 1))
    else:
        m = jnp.tile(ball.centre[:, None], z.shape[1])
    sampler = RejectionSampler(lambda z: cost(z, rows), envelope, ball, kappa, tau, is_smooth)
    z, unfinished = sampler.draw_quickly(m, key) if quick else sampler.draw(m, key)
    return z, lost | unfinished


@functools.partial(jax.jit, static_argnums=1)
def _by_run(states: list[jax.Array], released: tuple[int, ...]) -> jax.Array:
    """Return the released coordinates (runs, K, d) of states (n, runs)."""
    rows = [z[i] for z in states for i in released]
    return jnp.stack(rows, axis=-1).reshape(-1, len(states), len(released))


def sample_trajectories(
    problem: Problem,
    faithfulness: Faithfulness,
    key: jax.Array,
    runs: int,
    plan: tuple[Windows, Ball, Envelope],
    kappa: float,
    tau: float,
) -> jax.Array:
    """Return the released estimates (runs, K, d), where most draws are squeezed by the quick sampler first.

    The quick sampler has no loop, which would wait for the host in each iteration on a GPU. Where its few tests are not
    enough for all runs, the full sampler draws the block again. The same keys give the same draws, so that the runs
    that the quick sampler has finished stay as they are, and the distribution is exact. One program draws a step: it is
    compiled faster than one program of all steps, and it reads the states of the step before and not their predictions,
    which would be written to memory once more.
    """
    template, numbers, steps = problem.template, problem.system.numbers, len(plan[0].k)
    inputs, is_smooth = (*plan, jax.random.split(key, steps)), faithfulness.method == "taylor"
    for is_quick in (True, False) if faithfulness.mostly_squeezed else (False,):
        # On the device of the plan, or the first step would be compiled for itself.
        z, lost = jax.device_put((jnp.zeros((problem.system.states, runs)), np.zeros((), bool)), plan[0].y.sharding)
        states = []
        for k in range(steps):
            z, lost = _draw_step(template, is_quick, is_smooth, numbers, inputs, np.int32(k), kappa, tau, z, lost)
            states.append(z)
        estimates = _by_run(states, tuple(problem.system.released))
        if not lost:  # the device orders the estimates by run meanwhile, and does not stand still
            return estimates
    raise InputError(refusal("a step whose prediction lies too far from K_k"))


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
            plan = jax.device_put(
                (Windows(np.zeros(windows), np.arange(steps)), all_space, Envelope.zeros(steps, n)), device
            )
            jax.block_until_ready(
                sample_trajectories(
                    problem,
                    Faithfulness("taylor", True, (1.0,)),
                    jax_key(np.random.default_rng(0)),
                    runs,
                    plan,
                    1.0,
                    1.0,
                )
            )

    thread = ThreadPoolExecutor(1, "dpverify-compiler")
    future = thread.submit(draw)
    thread.shutdown(wait=False)
    return future
