"""Exact draws from exp( -( |z - m|^2 / (2 tau) + J(z) ) / kappa ) on a ball, for many runs with priors m of their own.

With the data fixed, J is one function for all runs. An *envelope* is a lower bound of J that is simple enough to be
sampled together with the prior's square; a draw z from it is kept with probability exp( -(J(z) - lower(z)) / kappa ).
That is rejection sampling: the law is exact wherever the lower bound is one, and how often a draw is kept is a matter
of speed alone (docs/method.md, section 7.3). Here is the loop, and the envelope for costs that are nearly quadratic on
the ball: their own Taylor polynomial at the mode, bent down by what the third derivative allows. `cells` has the other.

Arrays of states have the runs on the *last* axis, which is what processors like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chi2

ATTEMPTS = 1 << 15  # draws a run may have tested at a step before it is given up, as NaN


class Ball(NamedTuple):
    centre: Any  # (n,)
    radius: Any

    def holds(self, z: Any) -> Any:
        return jnp.sum(jnp.square(z - self.centre[:, None]), 0) <= self.radius**2


class Draw(NamedTuple):
    z: Any  # (n, runs)
    lower: Any  # (runs,): the lower bound of J there
    slack: Any = None  # (runs,): J - lower is at most this; None: not known


class Taylor(NamedTuple):
    """J(at + d) >= value + gradient d + d' (hessian - bend) d / 2, off by at most third |d|^3 / 6 + bend |d|^2 / 2."""

    at: Any
    value: Any
    gradient: Any
    hessian: Any
    third: Any
    bend: Any
    gain: Any  # from m - at to the mean of d: (I + tau (hessian - bend))^-1
    shift: Any
    root: Any  # of the covariance

    glance = True
    pending = 64  # one run in so many is looked at again at a time: few need it

    def draw(self, m: Any, key: Any, kappa: Any, tau: Any) -> Draw:
        noise = jax.random.normal(key, m.shape, m.dtype)
        d = self.gain @ (m - self.at[:, None]) + self.root @ noise + self.shift[:, None]
        square = jnp.sum(d * d, 0)
        curved = jnp.sum(d * (self.hessian @ d), 0) - self.bend * square
        lower = self.value + self.gradient @ d + curved / 2
        return Draw(self.at[:, None] + d, lower, square * (jnp.sqrt(square) * self.third / 6 + self.bend / 2))


def taylor(
    at: np.ndarray,
    value: float,
    gradient: np.ndarray,
    hessian: np.ndarray,
    third: float,
    ball: Ball,
    prior: np.ndarray,
    kappa: float,
    tau: float,
) -> tuple[Taylor, float] | None:
    """The envelope at a point of the ball, and a bound on M = draws made / draws kept for a run with this prior.

    None where even the bent-down polynomial has no Gaussian. On the ball |d| <= reach, so that the cubic term is at
    most third |d|^3 / 6 <= bend |d|^2 / 2.
    """
    n = len(at)
    reach = float(ball.radius + np.linalg.norm(at - ball.centre))
    bend = third * reach / 3
    precision = np.eye(n) / tau + hessian - bend * np.eye(n)
    values, vectors = np.linalg.eigh(precision)
    if not (np.isfinite(bend) and values[0] > 1e-9 * np.abs(values[-1])):
        return None
    inverse = vectors / values @ vectors.T
    gain, shift = inverse / tau, -inverse @ gradient
    root = vectors * np.sqrt(kappa / values)
    # kept at least as often as E exp(-bend |d|^2 / kappa) says, less what falls outside the ball
    mean = gain @ (prior - at) + shift
    stretch = 1 + 2 * bend / values
    kept = np.exp(-bend / kappa * np.sum(np.square(vectors.T @ mean) / stretch)) / np.sqrt(np.prod(stretch))
    room = ball.radius - np.linalg.norm(at + mean - ball.centre)
    outside = chi2.sf(max(room, 0.0) ** 2 * values[0] / kappa, n)
    bound = 1 / (kept - outside) if kept > outside else np.inf
    return Taylor(at, value, gradient, hessian, third, bend, gain, shift, root), float(bound)


def keep(cost: Callable[[Any], Any], envelope: Any, ball: Ball, m: Any, key: Any, kappa: Any, tau: Any) -> Any:
    """One exact draw for each column of m; NaN where ATTEMPTS were not enough.

    Where the envelope knows its slack, all runs draw once, and most are kept at a glance: J is at most lower + slack.
    The others go in small batches of a fixed size through the full test: what waits is evaluated, what is refused
    draws again. Without a slack there is nothing to wait for: a batch draws and is tested. Tests are counted run by
    run, so that one that is given up takes nothing from the others.
    """
    runs = m.shape[1]
    size = min(runs, max(runs // envelope.pending, 64))
    values = jax.vmap(cost, in_axes=1)

    def drawn(m: Any, key: Any) -> tuple[Draw, Any]:
        where, whether = jax.random.split(key)
        return envelope.draw(m, where, kappa, tau), jax.random.uniform(whether, m.shape[1:], m.dtype)

    def kept_at_a_glance(draw: Draw, u: Any) -> Any:
        return ball.holds(draw.z) & (u < 1 - draw.slack / kappa)  # 1 - x <= exp(-x)

    lost = jnp.isnan(m[0])  # given up at an earlier step
    first, key = jax.random.split(key)
    if envelope.glance:
        draw, u = drawn(m, first)
        z, lower, pending = draw.z, draw.lower, ~lost & ~kept_at_a_glance(draw, u)
    else:
        z, lower, u, pending = m, m[0], m[0], ~lost

    def look(state: Any) -> Any:
        z, lower, u, pending, tests, key = state
        at = jnp.nonzero(pending & (tests < ATTEMPTS), size=size, fill_value=runs)[0]
        now, key = jax.random.split(key)
        fresh, fresh_u = drawn(m.at[:, at].get(mode="clip"), now)
        waiting = (v.at[..., at].get(mode="clip") for v in (z, lower, u))
        z_at, lower_at, u_at = waiting if envelope.glance else (fresh.z, fresh.lower, fresh_u)
        kept = ball.holds(z_at) & (u_at < jnp.exp((lower_at - values(z_at)) / kappa))
        done = kept | kept_at_a_glance(fresh, fresh_u) if envelope.glance else kept
        return (
            z.at[:, at].set(jnp.where(kept, z_at, fresh.z), mode="drop"),
            lower.at[at].set(jnp.where(kept, lower_at, fresh.lower), mode="drop"),
            u.at[at].set(jnp.where(kept, u_at, fresh_u), mode="drop"),
            pending.at[at].set(~done, mode="drop"),
            tests.at[at].add(1, mode="drop"),
            key,
        )

    state = (z, lower, u, pending, jnp.zeros(runs, jnp.int32), key)
    state = jax.lax.while_loop(lambda s: jnp.any(s[3] & (s[4] < ATTEMPTS)), look, state)
    return jnp.where(state[3] | lost, jnp.nan, state[0])
