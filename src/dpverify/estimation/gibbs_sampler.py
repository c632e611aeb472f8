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
from scipy.stats import chi2

from dpverify.estimation.small_linalg import multiply_columns
from dpverify.util.arrays import first_true

MAX_TESTS_PER_STEP = 1 << 15  # tested draws after which a run is abandoned, as NaN
MAX_ABANDONED_SHARE = 1e-6  # share of runs
MAX_DRAWS_PER_RUN = MAX_TESTS_PER_STEP / math.log(1 / MAX_ABANDONED_SHARE)  # M above which more runs are abandoned


class Ball(NamedTuple):
    """The ball of points within `radius` of `centre`; arrays with one more axis hold one ball for each step."""

    centre: Any  # (n,); NumPy or JAX
    radius: Any

    def contains(self, z: jax.Array) -> jax.Array:
        """Return for each column of z (n, runs) whether it lies in the ball."""
        return jnp.sum(jnp.square(z - self.centre[:, None]), 0) <= self.radius**2


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
    outside = chi2.sf(max(margin, 0.0) ** 2 * values[0] / kappa, n)
    draws_bound = 1 / (accepted - outside) if accepted > outside else np.inf
    envelope = Taylor(point, value, gradient, hessian, third, curvature_bound, mean_gain, mean_shift, covariance_root)
    return envelope, float(draws_bound)


class RejectionState(NamedTuple):
    """State of the rejection loop; the last axis of the arrays counts the runs."""

    z: jax.Array
    lower: jax.Array
    u: jax.Array  # uniform number that decides about z
    pending: jax.Array  # whether z is not yet accepted
    tests: jax.Array  # number of tests so far
    key: jax.Array


def rejection_sample(
    cost: Callable[[jax.Array], jax.Array],
    envelope: Envelope,
    ball: Ball,
    m: jax.Array,
    key: jax.Array,
    kappa: float,
    tau: float,
) -> jax.Array:
    """Return one exact draw for each prior, the columns of m; NaN where MAX_TESTS_PER_STEP tests were not enough.

    With a squeeze test, all runs draw once, and most draws are accepted without evaluating J, because J is at most
    lower + slack. The remaining runs pass through the full test in small batches of a fixed size: a pending draw is
    tested, and a rejected one is replaced by a new draw. Without a squeeze test, every batch draws and is tested at
    once. The tests of each run are counted separately, so that an abandoned run does not affect the others.
    """
    runs = m.shape[1]
    size = min(runs, max(runs // envelope.batch_divisor, 64))
    costs = jax.vmap(cost, in_axes=1)

    def draw_with_uniform(m: jax.Array, key: jax.Array) -> tuple[Draw, jax.Array]:
        draw_key, uniform_key = jax.random.split(key)
        return envelope.draw(m, draw_key, kappa, tau), jax.random.uniform(uniform_key, m.shape[1:], m.dtype)

    def passes_squeeze_test(draw: Draw, u: jax.Array) -> jax.Array:
        assert draw.slack is not None
        return ball.contains(draw.z) & (u < 1 - draw.slack / kappa)  # 1 - x <= exp(-x)

    abandoned = jnp.isnan(m[0])  # at an earlier step
    first_key, key = jax.random.split(key)
    if envelope.has_squeeze_test:
        draw, u = draw_with_uniform(m, first_key)
        z, lower, pending = draw.z, draw.lower, ~abandoned & ~passes_squeeze_test(draw, u)
    else:
        z, lower, u, pending = m, m[0], m[0], ~abandoned

    def test_batch(state: RejectionState) -> RejectionState:
        z, lower, u, pending, tests, key = state
        batch = first_true(pending & (tests < MAX_TESTS_PER_STEP), size)
        batch_key, key = jax.random.split(key)
        new, new_u = draw_with_uniform(m.at[:, batch].get(mode="clip"), batch_key)
        waiting = (v.at[..., batch].get(mode="clip") for v in (z, lower, u))
        tested_z, tested_lower, tested_u = waiting if envelope.has_squeeze_test else (new.z, new.lower, new_u)
        accepted = ball.contains(tested_z) & (tested_u < jnp.exp((tested_lower - costs(tested_z)) / kappa))
        finished = accepted | passes_squeeze_test(new, new_u) if envelope.has_squeeze_test else accepted
        return RejectionState(
            z.at[:, batch].set(jnp.where(accepted, tested_z, new.z), mode="drop"),
            lower.at[batch].set(jnp.where(accepted, tested_lower, new.lower), mode="drop"),
            u.at[batch].set(jnp.where(accepted, tested_u, new_u), mode="drop"),
            pending.at[batch].set(~finished, mode="drop"),
            tests.at[batch].add(1, mode="drop"),
            key,
        )

    def unfinished(state: RejectionState) -> jax.Array:
        return jnp.any(state.pending & (state.tests < MAX_TESTS_PER_STEP))

    state = RejectionState(z, lower, u, pending, jnp.zeros(runs, jnp.int32), key)
    last = jax.lax.while_loop(unfinished, test_batch, state)
    return jnp.where(last.pending | abandoned, jnp.nan, last.z)
