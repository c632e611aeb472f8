"""The envelope for costs of any shape in few dimensions: boxes, each with a quadratic lower bound of the cost.

On a box with middle c and half widths w, J(c + d) >= value + gradient d + sum_j curvature_bound_j d_j^2 / 2, where the
curvature bounds follow from bounds of the Hessian over the box. Together with the quadratic term of the prior this is
the exponent of a product of truncated normal distributions: a box is drawn by its mass, and each coordinate by
inversion (docs/method.md, section 7.3, "Cells"). Boxes are split where draws are rejected. One box with the bound
J >= 0 is an envelope that needs no bounds of derivatives.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from dpverify.estimation.gibbs_sampler import Ball, Draw
from dpverify.estimation.interval_arithmetic import Interval

TAIL_THRESHOLD = 4.0  # standard deviations beyond which the normal tail is replaced by an exponential distribution


class TruncatedNormal(NamedTuple):
    """exp(-e(d)) on [-half, half], e(d) = ( (d - offset)^2 / (2 tau) + gradient d + curvature d^2 / 2 ) / kappa.

    This is a truncated normal distribution. If the interval lies more than TAIL_THRESHOLD standard deviations out in
    a tail, draws come from an exponential distribution above it, because neither the mass of the normal distribution
    nor its inverse is accurate there. All arrays have the same shape.
    """

    mean: jax.Array
    scale: jax.Array
    low: jax.Array  # the ends of the interval, in standard deviations from the mean
    high: jax.Array
    min_exponent: jax.Array  # the minimum of e; in a tail, e at the nearer end
    mass: jax.Array  # the integral of exp(min_exponent - e), or that of the exponential distribution

    @classmethod
    def of(
        cls, offset: jax.Array, half: jax.Array, gradient: jax.Array, curvature: jax.Array, kappa: float, tau: float
    ) -> TruncatedNormal:
        """Return the distribution of these parameters."""
        precision = 1 / tau + curvature
        mean, scale = (offset / tau - gradient) / precision, jnp.sqrt(kappa / precision)
        low, high = (-half - mean) / scale, (half - mean) / scale
        in_tail, rate, _, ends = _tail(low, high)
        mode = jnp.where(in_tail, jnp.clip(mean, -half, half), mean)
        min_exponent = (jnp.square(mode - offset) / (2 * tau) + (gradient + curvature * mode / 2) * mode) / kappa
        cdf = _normal_cdf(ends)
        normal_mass = math.sqrt(2 * math.pi) * (cdf[1] - cdf[0])
        exponential_mass = -jnp.expm1(-rate * (high - low)) / rate
        return cls(mean, scale, low, high, min_exponent, scale * jnp.where(in_tail, exponential_mass, normal_mass))

    def draw(self, level: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the point for a uniform number, and e at it minus the exponent of the distribution drawn from."""
        in_tail, rate, side, ends = _tail(self.low, self.high)
        cdf = _normal_cdf(ends)
        normal_draw = side * ndtri(cdf[0] + level * (cdf[1] - cdf[0]))
        excess = -jnp.log1p(level * jnp.expm1(-rate * (self.high - self.low))) / rate
        deviation = jnp.where(in_tail, -side * (rate + excess), normal_draw)
        d = self.mean + self.scale * jnp.clip(deviation, self.low, self.high)
        return d, jnp.where(in_tail, jnp.square(excess) / 2, 0.0)


def _normal_cdf(x: jax.Array) -> jax.Array:
    """Return the standard normal distribution function, accurate in the lower tail."""
    return jax.lax.erfc(-x / math.sqrt(2)) / 2


def _tail(low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return whether an interval lies in a tail, how far out (at least TAIL_THRESHOLD), its side, and its ends.

    The ends are reflected into the lower tail.
    """
    distance = jnp.maximum(low, -high)
    reflected = low + high > 0
    ends = jnp.where(reflected, jnp.stack([-high, -low]), jnp.stack([low, high]))
    return distance > TAIL_THRESHOLD, jnp.maximum(distance, TAIL_THRESHOLD), jnp.where(reflected, -1.0, 1.0), ends


class Boxes(NamedTuple):
    """An envelope of B boxes, each with a quadratic lower bound of J."""

    middle: Any  # (B, n); like the other fields a NumPy array where it is computed and a JAX array where it is sampled
    half: Any  # (B, n): half widths
    value: Any  # (B,); infinite for a box without mass
    gradient: Any  # (B, n)
    curvature_bound: Any  # (B, n), such that 1 / tau + curvature_bound > 0

    has_squeeze_test = False
    batch_divisor = 16

    def draw(self, m: jax.Array, key: jax.Array, kappa: float, tau: float) -> Draw:
        """Return one draw for each column of m."""
        return self.draw_with_index(m, key, kappa, tau)[0]

    def draw_with_index(self, m: jax.Array, key: jax.Array, kappa: float, tau: float) -> tuple[Draw, jax.Array]:
        """Return one draw for each column of m, and the index of the box that it lies in."""
        box_key, point_key = jax.random.split(key)
        all_boxes = TruncatedNormal.of(
            m.T[:, None] - self.middle, self.half, self.gradient, self.curvature_bound, kappa, tau
        )
        min_exponent = all_boxes.min_exponent.sum(-1) + self.value / kappa
        relative_mass = jnp.exp(min_exponent.min(1, keepdims=True) - min_exponent)
        mass = jnp.cumsum(all_boxes.mass.prod(-1) * relative_mass, 1)
        index = jnp.sum(mass <= jax.random.uniform(box_key, (m.shape[1], 1), m.dtype) * mass[:, -1:], 1)
        shape = all_boxes.low.shape
        drawn_box = TruncatedNormal(
            *(jnp.take_along_axis(jnp.broadcast_to(v, shape), index[:, None, None], 1)[:, 0] for v in all_boxes)
        )
        middle, gradient, curvature = (v[index] for v in (self.middle, self.gradient, self.curvature_bound))
        d, excess = drawn_box.draw(jax.random.uniform(point_key, middle.shape, m.dtype))
        lower = self.value[index] + jnp.sum(gradient * d + curvature * d * d / 2 - kappa * excess, 1)
        return Draw((middle + d).T, lower), index


def bounding_box(ball: Ball) -> Interval:
    """Return the smallest box around the ball, as a batch of one."""
    return Interval(np.asarray(ball.centre)[None] - ball.radius, np.asarray(ball.centre)[None] + ball.radius)


def nonnegativity_envelope(ball: Ball) -> Boxes:
    """Return the single box whose lower bound is J >= 0."""
    n = len(ball.centre)
    return Boxes(
        np.asarray(ball.centre)[None], np.full((1, n), ball.radius), np.zeros(1), np.zeros((1, n)), np.zeros((1, n))
    )


def pad_boxes(boxes: Boxes, size: int) -> Boxes:
    """Add boxes without mass, so that all steps have the same number of boxes."""
    missing = size - len(boxes.value)
    widths = [((0, missing),) + ((0, 0),) * (np.ndim(v) - 1) for v in boxes]
    fills = (0.0, 1.0, np.inf, 0.0, 0.0)
    return Boxes(*(np.pad(v, w, constant_values=f) for v, w, f in zip(boxes, widths, fills, strict=True)))


def quadratic_lower_bounds(
    lo: np.ndarray, hi: np.ndarray, value: np.ndarray, gradient: np.ndarray, hessian: Interval, tau: float
) -> Boxes:
    """Return the envelope on boxes, from value and gradient at their middles and the Hessian over them.

    Off-diagonal entries are distributed by 2 |H_jk d_j d_k| <= |H_jk| (d_j^2 w_k / w_j + d_k^2 w_j / w_k).
    """
    middle, half = (lo + hi) / 2, (hi - lo) / 2
    diagonal = np.arange(lo.shape[1])
    off_diagonal = hessian.magnitude
    off_diagonal[:, diagonal, diagonal] = 0.0
    curvature = hessian.lo[:, diagonal, diagonal] - np.einsum("bjk,bk->bj", off_diagonal, half) / half
    # Below this bound the quadratic term would outweigh the prior; it is replaced by its minimum over the box.
    usable = curvature > -0.5 / tau
    drop = np.where(usable, 0.0, -curvature * np.square(half) / 2).sum(1)
    value = np.asarray(value) - drop
    # The bound is lowered by the possible rounding error in evaluating J and its gradient.
    value = value - 1e-12 * (np.abs(value) + drop + (np.abs(gradient) * half).sum(1))
    return Boxes(middle, half, value, np.asarray(gradient), np.where(usable, curvature, 0.0))
