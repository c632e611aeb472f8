"""Refinement of the boxes of a `box_envelope`, guided by pilot runs (docs/method.md, section 7.3, "Cells").

Boxes are split where pilot draws are rejected, until most draws are accepted. The pilot runs decide only where boxes
are split. The sampled distribution is exact for any boxes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.estimation.box_envelope import (
    Boxes,
    bounding_box,
    nonnegativity_envelope,
    pad_boxes,
    quadratic_lower_bounds,
)
from dpverify.estimation.derivative_bounds import cost_bounds, padded_batch_size
from dpverify.estimation.gibbs_sampler import MAX_DRAWS_PER_RUN, Ball
from dpverify.estimation.moving_horizon import Problem, local_expansion, stage_cost

MAX_BOXES = 1024
TARGET_ACCEPTANCE = 0.6  # acceptance rate at which boxes are no longer split
PILOT_RUNS = 512


def refine_boxes(
    ball: Ball,
    bound: Callable[[np.ndarray, np.ndarray], tuple[Boxes, np.ndarray]],
    trial: Callable[[Boxes], tuple[np.ndarray, np.ndarray, np.ndarray]],
    max_boxes: int = MAX_BOXES,
) -> tuple[Boxes, np.ndarray, np.ndarray]:
    """Split boxes until most draws are accepted; return the boxes, the last trial draws and their acceptance.

    `bound(lo, hi)` returns the envelope and, for each side of each box, the possible gain from halving it.
    `trial(boxes)` returns draws, the box of each draw, and its probability of being accepted.
    """
    lo, hi = bounding_box(ball)
    while True:
        boxes, gain = bound(lo, hi)
        z, index, acceptance = trial(pad_boxes(boxes, MAX_BOXES))
        if acceptance.mean() >= TARGET_ACCEPTANCE or len(lo) > max_boxes // 2:
            return boxes, z, acceptance
        rejected = np.bincount(index, 1 - acceptance, len(lo))
        split = np.flatnonzero(rejected >= rejected.sum() / (4 * len(lo)))  # never empty: the maximum exceeds the mean
        side = gain[split].argmax(1)
        centre = (lo[split, side] + hi[split, side]) / 2
        left_hi, right_lo = hi[split].copy(), lo[split].copy()
        left_hi[np.arange(len(split)), side] = centre
        right_lo[np.arange(len(split)), side] = centre
        unchanged = np.setdiff1d(np.arange(len(lo)), split)
        lo = np.concatenate([lo[unchanged], lo[split], right_lo])
        hi = np.concatenate([hi[unchanged], left_hi, hi[split]])
        nearest = np.clip(ball.centre, lo, hi)
        meets_ball = np.linalg.norm(nearest - ball.centre, axis=1) <= ball.radius
        lo, hi = lo[meets_ball], hi[meets_ball]


TrialDraws = Callable[
    [Boxes, Ball, np.ndarray, np.ndarray, jax.Array, float, float], tuple[np.ndarray, np.ndarray, np.ndarray]
]


def _trial_draws(problem: Problem) -> TrialDraws:
    """Return the compiled function that draws from boxes: draws, box indices and acceptance probabilities."""
    return functools.partial(_compiled_trial(problem.template), problem.system.parameters)


@functools.lru_cache(maxsize=64)
def _compiled_trial(template: Problem) -> Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]:
    def trial(
        parameters: Any, boxes: Boxes, ball: Ball, y: jax.Array, m: jax.Array, key: jax.Array, kappa: float, tau: float
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        cost = stage_cost(template.system.bind(parameters), template.residual_weights)
        draw, index = boxes.draw_with_index(m, key, kappa, tau)
        gap = jax.vmap(lambda z: cost(z, y), in_axes=1)(draw.z) - draw.lower
        acceptance = jnp.minimum(jnp.exp(-gap / kappa), 1.0)
        return draw.z, index, jnp.where(ball.contains(draw.z), acceptance, 0.0)

    return jax.jit(trial)


def refined_boxes_of_all_steps(
    problem: Problem, y: np.ndarray, support: Ball, has_bounds: bool, kappa: float, tau: float
) -> tuple[list[Boxes], list[float]]:
    """Return the boxes of all steps and the draws per accepted draw, measured on pilot runs.

    The pilot runs decide only where boxes are split. The sampled distribution is exact for any boxes.
    """
    rng, priors = np.random.default_rng(0), np.tile(problem.system.start, (PILOT_RUNS, 1))
    max_boxes = MAX_BOXES if len(problem.system.start) <= 3 else 64  # splitting is of no use in more dimensions
    envelopes: list[Boxes] = []
    draws_per_run: list[float] = []
    for k, rows in enumerate(y):
        ball = Ball(support.centre[k], support.radius[k])
        if problem.prior == "start":
            priors = np.tile(ball.centre, (PILOT_RUNS, 1))
        boxes, z, acceptance = _refined_boxes_of_one_step(
            problem, rows, ball, priors, jax.random.key(k), max_boxes if has_bounds else None, kappa, tau
        )
        envelopes.append(boxes)
        draws_per_run.append(1 / acceptance.mean() if acceptance.any() else np.inf)
        if draws_per_run[-1] > MAX_DRAWS_PER_RUN:  # too few pilot runs are left to continue with
            remaining = len(y) - k - 1
            envelopes += [nonnegativity_envelope(ball)] * remaining
            draws_per_run += [np.inf] * remaining
            break
        resampled = z[:, rng.choice(PILOT_RUNS, PILOT_RUNS, p=acceptance / acceptance.sum())].T
        predict: Callable[..., jax.Array] = jax.vmap(problem.system.f)
        priors = np.asarray(predict(resampled))
    size = 1 << (max(len(boxes.value) for boxes in envelopes) - 1).bit_length()
    return [pad_boxes(boxes, size) for boxes in envelopes], draws_per_run


def _refined_boxes_of_one_step(
    problem: Problem,
    rows: np.ndarray,
    ball: Ball,
    priors: np.ndarray,
    key: jax.Array,
    max_boxes: int | None,
    kappa: float,
    tau: float,
) -> tuple[Boxes, np.ndarray, np.ndarray]:
    """Return the boxes of one step, trial draws and their acceptance; max_boxes None: there are no bounds."""

    def bound(lo: np.ndarray, hi: np.ndarray) -> tuple[Boxes, np.ndarray]:
        if max_boxes is None:
            return nonnegativity_envelope(ball), np.ones((1, 1))
        return _bounded_boxes(problem, rows, tau, lo, hi)

    def trial(boxes: Boxes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        z, index, acceptance = _trial_draws(problem)(boxes, ball, rows, priors.T, key, kappa, tau)
        return np.asarray(z), np.asarray(index), np.asarray(acceptance)

    return refine_boxes(ball, bound, trial, 1 if max_boxes is None else max_boxes)


def _bounded_boxes(
    problem: Problem, rows: np.ndarray, tau: float, lo: np.ndarray, hi: np.ndarray
) -> tuple[Boxes, np.ndarray]:
    """Return the envelope on these boxes, and for each side of each box the possible gain from halving it."""
    size = padded_batch_size(len(lo))
    middle = np.resize((lo + hi) / 2, (size, lo.shape[1]))
    expansion = local_expansion(problem)(middle, np.broadcast_to(rows, (size, *rows.shape)))
    value, gradient, _ = (np.asarray(v)[: len(lo)] for v in expansion)
    hessian = cost_bounds(
        problem.system, np.broadcast_to(rows, (len(lo), *rows.shape)), problem.residual_weights, lo, hi, 2
    ).hessian
    boxes = quadratic_lower_bounds(lo, hi, value, gradient, hessian, tau)
    uncertainty = hessian.magnitude
    for j in range(lo.shape[1]):  # along a side, the quadratic term already accounts for part of the curvature
        uncertainty[:, j, j] = hessian.hi[:, j, j] - boxes.curvature_bound[:, j]
    return boxes, boxes.half * np.einsum("bjk,bk->bj", uncertainty, boxes.half)
