"""The envelope for costs of any shape in few dimensions: boxes, each with a parabola below the cost.

On a box with middle c and half widths w, J(c + d) >= value + gradient d + sum_j bend_j d_j^2 / 2, where `bend` comes
from bounds of the Hessian over the box. Times the prior's square that is a product of normals cut to the box: a box is
chosen by its mass, each coordinate drawn by inversion (docs/method.md, section 7.3). Boxes are split where draws are
refused. One box with J >= 0 is the envelope that needs to know nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from dpverify.estimation.gibbs import Ball, Draw
from dpverify.estimation.intervals import Interval

CELLS = 1024
FAR = 4.0
KEPT = 0.6  # share of draws kept at which splitting ends


class Cut(NamedTuple):
    """exp(-e(d)) on [-half, half], e(d) = ( (d - offset)^2 / (2 tau) + gradient d + bend d^2 / 2 ) / kappa.

    A normal law cut to an interval; more than FAR deviations out in a tail an exponential law above it, since there
    neither the normal law's mass nor its inverse keeps any digits. All arrays of one shape.
    """

    mean: Any
    scale: Any
    low: Any  # the ends, in deviations from the mean
    high: Any
    least: Any  # e at its least, or in a tail at the nearer end
    mass: Any  # of exp(least - e), or of the exponential law

    @classmethod
    def of(cls, offset: Any, half: Any, gradient: Any, bend: Any, kappa: Any, tau: Any) -> Cut:
        precision = 1 / tau + bend
        mean, scale = (offset / tau - gradient) / precision, jnp.sqrt(kappa / precision)
        low, high = (-half - mean) / scale, (half - mean) / scale
        far, rate, _, ends = _tail(low, high)
        summit = jnp.where(far, jnp.clip(mean, -half, half), mean)
        least = (jnp.square(summit - offset) / (2 * tau) + (gradient + bend * summit / 2) * summit) / kappa
        below = _below(ends)
        inside = math.sqrt(2 * math.pi) * (below[1] - below[0])
        beyond = -jnp.expm1(-rate * (high - low)) / rate
        return cls(mean, scale, low, high, least, scale * jnp.where(far, beyond, inside))

    def draw(self, level: Any) -> tuple[Any, Any]:
        """A point for a uniform level, and by how much e of the law drawn from is below the e that was asked for."""
        far, rate, side, ends = _tail(self.low, self.high)
        below = _below(ends)
        inside = side * ndtri(below[0] + level * (below[1] - below[0]))
        beyond = -jnp.log1p(level * jnp.expm1(-rate * (self.high - self.low))) / rate
        out = jnp.where(far, -side * (rate + beyond), inside)
        d = self.mean + self.scale * jnp.clip(out, self.low, self.high)
        return d, jnp.where(far, jnp.square(beyond) / 2, 0.0)


def _below(x: Any) -> Any:
    """The normal law's mass below x, to all digits in the lower tail."""
    return jax.lax.erfc(-x / math.sqrt(2)) / 2


def _tail(low: Any, high: Any) -> tuple[Any, Any, Any, Any]:
    """Whether an interval lies far out, how far (at least FAR), and its ends, turned about 0 into the lower tail."""
    out = jnp.maximum(low, -high)
    turned = low + high > 0
    ends = jnp.where(turned, jnp.stack([-high, -low]), jnp.stack([low, high]))
    return out > FAR, jnp.maximum(out, FAR), jnp.where(turned, -1.0, 1.0), ends


class Cells(NamedTuple):
    middle: Any  # (C, n)
    half: Any  # (C, n)
    value: Any  # (C,); infinite: no cell
    gradient: Any  # (C, n)
    bend: Any  # (C, n), so that 1 / tau + bend > 0

    glance = False
    pending = 16

    def draw(self, m: Any, key: Any, kappa: Any, tau: Any) -> Draw:
        return self.located(m, key, kappa, tau)[0]

    def located(self, m: Any, key: Any, kappa: Any, tau: Any) -> tuple[Draw, Any]:
        """A draw, and the cell it lies in."""
        which, where = jax.random.split(key)
        cuts = Cut.of(m.T[:, None] - self.middle, self.half, self.gradient, self.bend, kappa, tau)
        least = cuts.least.sum(-1) + self.value / kappa
        mass = jnp.cumsum(cuts.mass.prod(-1) * jnp.exp(least.min(1, keepdims=True) - least), 1)
        at = jnp.sum(mass <= jax.random.uniform(which, (m.shape[1], 1), m.dtype) * mass[:, -1:], 1)
        cut = Cut(*(jnp.take_along_axis(jnp.broadcast_to(v, cuts.low.shape), at[:, None, None], 1)[:, 0] for v in cuts))
        middle, gradient, bend = (v[at] for v in (self.middle, self.gradient, self.bend))
        d, short = cut.draw(jax.random.uniform(where, middle.shape, m.dtype))
        lower = self.value[at] + jnp.sum(gradient * d + bend * d * d / 2 - kappa * short, 1)
        return Draw((middle + d).T, lower), at


def box_of(ball: Ball) -> Interval:
    return Interval(np.asarray(ball.centre)[None] - ball.radius, np.asarray(ball.centre)[None] + ball.radius)


def nonnegative(ball: Ball) -> Cells:
    """The one cell that knows nothing of the cost but that it is not negative."""
    n = len(ball.centre)
    return Cells(
        np.asarray(ball.centre)[None], np.full((1, n), ball.radius), np.zeros(1), np.zeros((1, n)), np.zeros((1, n))
    )


def padded(cells: Cells, size: int) -> Cells:
    """Cells without mass added, so that all steps have as many."""
    more = size - len(cells.value)
    widths = [((0, more),) + ((0, 0),) * (np.ndim(v) - 1) for v in cells]
    fills = (0.0, 1.0, np.inf, 0.0, 0.0)
    return Cells(*(np.pad(v, w, constant_values=f) for v, w, f in zip(cells, widths, fills, strict=True)))


def below(lo: np.ndarray, hi: np.ndarray, value: Any, gradient: Any, hessian: Interval, tau: float) -> Cells:
    """Parabolas below the cost on boxes, from its value and gradient at the middles and its Hessian over the boxes.

    Off-diagonal entries are shared out: 2 |H_jk d_j d_k| <= |H_jk| (d_j^2 w_k / w_j + d_k^2 w_j / w_k).
    """
    middle, half = (lo + hi) / 2, (hi - lo) / 2
    diagonal = np.arange(lo.shape[1])
    off = hessian.magnitude
    off[:, diagonal, diagonal] = 0.0
    bend = hessian.lo[:, diagonal, diagonal] - np.einsum("bjk,bk->bj", off, half) / half
    steep = bend > -0.5 / tau  # else the parabola would outweigh the prior: a constant instead
    drop = np.where(steep, 0.0, -bend * np.square(half) / 2).sum(1)
    value = np.asarray(value) - drop
    # lower by what evaluating J and its gradient can have rounded
    value = value - 1e-12 * (np.abs(value) + drop + (np.abs(gradient) * half).sum(1))
    return Cells(middle, half, value, np.asarray(gradient), np.where(steep, bend, 0.0))


def refined(
    ball: Ball,
    bound: Callable[[np.ndarray, np.ndarray], tuple[Cells, np.ndarray]],
    trial: Callable[[Cells], tuple[np.ndarray, ...]],
    most: int = CELLS,
) -> tuple[Cells, np.ndarray, np.ndarray]:
    """Boxes split until most draws are kept; the last trial's draws, and their probabilities of being kept.

    `bound(lo, hi)` gives the cells and, for each side of a box, what could be gained by halving it; `trial(cells)`
    some draws, the cell of each, and its probability of being kept.
    """
    lo, hi = box_of(ball)
    while True:
        cells, gain = bound(lo, hi)
        z, where, kept = trial(padded(cells, CELLS))
        if kept.mean() >= KEPT or len(lo) > most // 2:
            return cells, z, kept
        lost = np.bincount(where, 1 - kept, len(lo))
        split = np.flatnonzero(lost >= lost.sum() / (4 * len(lo)))  # at least the worst: lost.max() >= the mean
        side = gain[split].argmax(1)
        centre = (lo[split, side] + hi[split, side]) / 2
        left_hi, right_lo = hi[split].copy(), lo[split].copy()
        left_hi[np.arange(len(split)), side] = centre
        right_lo[np.arange(len(split)), side] = centre
        stay = np.setdiff1d(np.arange(len(lo)), split)
        lo, hi = np.concatenate([lo[stay], lo[split], right_lo]), np.concatenate([hi[stay], left_hi, hi[split]])
        nearest = np.clip(ball.centre, lo, hi)
        meets = np.linalg.norm(nearest - ball.centre, axis=1) <= ball.radius
        lo, hi = lo[meets], hi[meets]
