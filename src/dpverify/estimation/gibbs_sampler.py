"""Exact sampling from exp( -( |z - m|^2 / (2 tau) + J(z) ) / kappa ) on a ball, for many runs with different priors m.

With the data fixed, J is the same function for all runs. An *envelope* is a lower bound of J that can be sampled
together with the quadratic term of the prior. A draw z from it is accepted with probability
exp( -(J(z) - lower(z)) / kappa ). This is rejection sampling: the distribution is exact wherever the lower bound holds,
and the acceptance rate affects the speed only (docs/method.md, section 7.3).

This module holds the sampler, and the envelope for costs that are nearly quadratic on the ball: the Taylor polynomial
of second order at the mode, with its curvature reduced by a bound of the third derivative. The other envelope is in
`box_envelope`. Arrays of states have the runs on the *last* axis, which is the faster layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import chdtrc

from dpverify.estimation.small_linalg import multiply_columns
from dpverify.util.arrays import first_true

MIN_BATCH = 32  # runs that are tested together, at least
QUICK_BATCH_DIVISOR = 512  # runs divided by those that are tested without a loop
MAX_QUICK_DRAWS_PER_RUN = 1 + 1 / 4096  # M up to which the quick sampler is used; a small part of its batch is pending
NEW_DRAWS = 3  # draws after the first one that are tested without a loop
MAX_TESTS_PER_STEP = 1 << 15  # tested draws after which a run is abandoned, as NaN
MAX_ABANDONED_SHARE = 1e-6  # share of runs
MAX_DRAWS_PER_RUN = MAX_TESTS_PER_STEP / math.log(1 / MAX_ABANDONED_SHARE)  # M above which more runs are abandoned


def float_shape(*shape: int) -> jax.ShapeDtypeStruct:
    """Return the description of an array of 64-bit floats, for code that is compiled before its arguments exist."""
    return jax.ShapeDtypeStruct(shape, np.float64)


class Ball(NamedTuple):
    """The ball of points within `radius` of `centre`; arrays with one more axis hold one ball for each step."""

    centre: Any  # (n,); NumPy or JAX
    radius: Any

    def contains(self, z: jax.Array) -> jax.Array:
        """Return for each column of z (n, runs) whether it lies in the ball."""
        return jnp.sum(jnp.square(z - self.centre[:, None]), 0) <= self.radius**2

    @classmethod
    def shapes(cls, steps: int, n: int) -> Ball:
        """Return the shapes of the balls of all steps."""
        return cls(float_shape(steps, n), float_shape(steps))


class Draw(NamedTuple):
    """Draws from an envelope, one for each run."""

    z: jax.Array  # (n, runs)
    lower: jax.Array  # (runs,): the lower bound of J at z
    slack: jax.Array | None = None  # (runs,): J - lower is at most this; None: not known


class Envelope(Protocol):
    """A lower bound of J that can be sampled together with the quadratic term of the prior."""

    @property
    def has_squeeze_test(self) -> bool:
        """Whether draws have a `slack`, so that most of them can be accepted without evaluating J."""
        ...

    @property
    def batch_divisor(self) -> int:
        """The number of runs divided by the number of them that are tested together."""
        ...

    def draw(self, m: jax.Array, key: jax.Array, kappa: float, tau: float) -> Draw:
        """Return one draw for each prior, the columns of m (n, runs)."""
        ...


class Taylor(NamedTuple):
    """The lower bound J(point + d) >= value + gradient d + d' (hessian - curvature_bound I) d / 2.

    J exceeds it by at most third |d|^3 / 6 + curvature_bound |d|^2 / 2.
    """

    point: Any  # (n,); like the other fields a NumPy array where it is computed and a JAX array where it is sampled
    value: Any
    gradient: Any  # (n,)
    hessian: Any  # (n, n)
    third: Any  # bound of the third derivative on the ball
    curvature_bound: Any
    mean_gain: Any  # (n, n): matrix from m - point to the mean of d: (I + tau (hessian - curvature_bound I))^-1
    mean_shift: Any  # (n,)
    covariance_root: Any  # (n, n)

    has_squeeze_test = True
    batch_divisor = 64  # few runs need the full test

    def draw(self, m: jax.Array, key: jax.Array, kappa: float, tau: float) -> Draw:
        """Return one draw for each column of m, with its lower bound and slack."""
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
    def shapes(cls, steps: int, n: int) -> Taylor:
        """Return the shapes of the envelopes of all steps."""
        number, vector, matrix = float_shape(steps), float_shape(steps, n), float_shape(steps, n, n)
        return cls(vector, number, vector, matrix, number, number, matrix, vector, matrix)


def taylor_envelope(
    point: np.ndarray,
    value: float,
    gradient: np.ndarray,
    hessian: np.ndarray,
    third: float,
    ball: Ball,
    prior: np.ndarray,
    kappa: float,
    tau: float,
) -> tuple[Taylor, float] | None:
    """Return the envelope at a point of the ball, and a bound of M = draws per accepted draw for this prior.

    Returns None where the reduced polynomial and the prior together are not the exponent of a Gaussian. On the ball
    |d| <= reach, so that the cubic term is at most third |d|^3 / 6 <= curvature_bound |d|^2 / 2.
    """
    n = len(point)
    reach = float(ball.radius + np.linalg.norm(point - ball.centre))
    curvature_bound = third * reach / 3
    precision = np.eye(n) / tau + hessian - curvature_bound * np.eye(n)
    values, vectors = np.linalg.eigh(precision)
    if not (np.isfinite(curvature_bound) and values[0] > 1e-9 * np.abs(values[-1])):
        return None
    inverse = vectors / values @ vectors.T
    mean_gain, mean_shift = inverse / tau, -inverse @ gradient
    covariance_root = vectors * np.sqrt(kappa / values)
    # The acceptance rate is at least E exp(-curvature_bound |d|^2 / kappa), less the probability outside the ball.
    mean = mean_gain @ (prior - point) + mean_shift
    stretch = 1 + 2 * curvature_bound / values
    accepted = np.exp(-curvature_bound / kappa * np.sum(np.square(vectors.T @ mean) / stretch))
    accepted = accepted / np.sqrt(np.prod(stretch))
    margin = ball.radius - np.linalg.norm(point + mean - ball.centre)
    outside = chdtrc(n, max(margin, 0.0) ** 2 * values[0] / kappa)  # the upper tail of a chi-squared distribution
    draws_bound = 1 / (accepted - outside) if accepted > outside else np.inf
    envelope = Taylor(point, value, gradient, hessian, third, curvature_bound, mean_gain, mean_shift, covariance_root)
    return envelope, float(draws_bound)


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

    cost: Callable[[jax.Array], jax.Array]  # J
    envelope: Envelope
    ball: Ball
    kappa: float
    tau: float

    def draw_quickly(self, m: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return what `draw` returns and False, or anything and True if the few tests were not enough for all runs.

        There is no loop, because a loop on a GPU waits for the host in each iteration.
        """
        state = self._first_state(m, key)
        return state.z, state.pending.any()

    def draw(self, m: jax.Array, key: jax.Array) -> jax.Array:
        """Return one exact draw for each prior, the columns of m; NaN where MAX_TESTS_PER_STEP tests were not enough.

        The pending runs pass through the full test in small batches of a fixed size. With a squeeze test, a pending
        draw is tested, and a rejected one is replaced by a new draw. Without a squeeze test, every batch draws and is
        tested at once. The tests of each run are counted separately, so that an abandoned run does not affect the
        others.
        """
        size = self._batch_size(m, self.envelope.batch_divisor)

        def unfinished(state: RejectionState) -> jax.Array:
            return jnp.any(state.pending & (state.tests < MAX_TESTS_PER_STEP))

        def test_batch(state: RejectionState) -> RejectionState:
            z, lower, u, pending, tests, key = state
            batch = first_true(pending & (tests < MAX_TESTS_PER_STEP), size)
            batch_key, key = jax.random.split(key)
            new, new_u = self._draw_with_uniform(m.at[:, batch].get(mode="clip"), batch_key)
            waiting = (v.at[..., batch].get(mode="clip") for v in (z, lower, u))
            tested = tuple(waiting) if self.envelope.has_squeeze_test else (new.z, new.lower, new_u)
            accepted = self._accepts(*tested)
            finished = accepted | self._squeezes(new, new_u) if self.envelope.has_squeeze_test else accepted
            z, lower, u = (
                v.at[..., batch].set(jnp.where(accepted, old, drawn), mode="drop")
                for v, old, drawn in zip((z, lower, u), tested, (new.z, new.lower, new_u), strict=True)
            )
            pending, tests = pending.at[batch].set(~finished, mode="drop"), tests.at[batch].add(1, mode="drop")
            return RejectionState(z, lower, u, pending, tests, key)

        if self.envelope.has_squeeze_test:
            state = self._first_state(m, key)
        else:
            state = RejectionState(m, m[0], m[0], ~jnp.isnan(m[0]), jnp.zeros(m.shape[1], jnp.int32), key)
        last = jax.lax.while_loop(unfinished, test_batch, state)
        return jnp.where(last.pending, jnp.nan, last.z)

    def _first_state(self, m: jax.Array, key: jax.Array) -> RejectionState:
        """Return the state after one draw for each run, and a few more for a small batch of runs.

        Most draws are accepted without evaluating J, because J is at most lower + slack. The first draws that fail this
        squeeze test are tested in one batch, and each rejected one is replaced by the first of a few new draws that is
        accepted. A run that was abandoned at an earlier step is NaN, stays NaN and is never pending.
        """
        keys = jax.random.split(key, 2 + NEW_DRAWS)
        first, u = self._draw_with_uniform(m, keys[1])
        pending = ~self._squeezes(first, u) & ~jnp.isnan(m[0])
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
        u = jax.random.uniform(uniform_key, m.shape[1:], m.dtype)
        return self.envelope.draw(m, draw_key, self.kappa, self.tau), u

    def _squeezes(self, draw: Draw, u: jax.Array) -> jax.Array:
        """Return which draws are accepted without evaluating J."""
        assert draw.slack is not None
        return self.ball.contains(draw.z) & (u < 1 - draw.slack / self.kappa)  # 1 - x <= exp(-x)

    def _accepts(self, z: jax.Array, lower: jax.Array, u: jax.Array) -> jax.Array:
        """Return which draws pass the full test."""
        costs = jax.vmap(self.cost, in_axes=1)(z)
        return self.ball.contains(z) & (u < jnp.exp((lower - costs) / self.kappa))
