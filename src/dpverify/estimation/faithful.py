"""Chooses, once per data set, the envelope from which the Gibbs law is drawn exactly, and says what is certain of it.

In this order (docs/method.md, section 7.3): the bent Taylor polynomial, if the third derivative is bounded and few
draws are refused; cells; where f or h has no interval bounds, the one cell that needs none; and, flagged, the Taylor
polynomial with a third derivative that was only sampled.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.errors import DPVerifyWarning, InputError
from dpverify.estimation.bounds import cost_bounds, round_size
from dpverify.estimation.cells import CELLS, Cells, below, nonnegative, padded, refined
from dpverify.estimation.gibbs import ATTEMPTS, Ball, Taylor, taylor
from dpverify.estimation.horizon import estimates, proximal, stage_cost, window_weights
from dpverify.estimation.intervals import NoBound
from dpverify.estimation.system import System
from dpverify.util.arrays import enable_x64

FEW = 4.0  # draws a run at most, for the Taylor envelope to be taken without looking further
PILOT = 512
LEAST = 0.02  # share kept with which the cell that needs no bounds is still worth its exactness
GIVEN_UP = 1e-6  # share of runs
HOPELESS = ATTEMPTS / math.log(1 / GIVEN_UP)  # M with which more than that would be given up


class Problem(NamedTuple):
    """What compiled code depends on; the data, s, tau and the sets K_k are its arguments."""

    system: System
    window: int
    span: str
    weights: tuple[float, ...]

    @property
    def table(self) -> np.ndarray:
        return window_weights(self.window, self.span, self.weights)


class Faithfulness(NamedTuple):
    """What is certain of the sampler, and what is only expected, step by step.

    `certified`: every run that is kept is an exact draw; False where a bound of the third derivative was sampled
    instead of proved. `M`: draws made for one kept, for `taylor` a bound at one prior, that of the deterministic
    trajectory, for cells an average over pilot runs: a run whose prior lies badly needs more. `given_up`: the share of
    runs that would end as NaN if all had this M, an estimate and no bound; what is really given up shows, as NaN.
    `modes`: how many minima were found from several starts inside K_k; for the reader, nothing rests on it.
    """

    method: str
    certified: bool
    M: tuple[float, ...]
    modes: tuple[int, ...] = ()

    @property
    def given_up(self) -> tuple[float, ...]:
        return tuple(float((1 - 1 / v) ** ATTEMPTS) for v in self.M)

    @property
    def reached(self) -> bool:
        """Whether runs end: else the sampler refuses to start."""
        return max(self.M) <= HOPELESS


class Plan(NamedTuple):
    y: Any  # (K, window + 1, p)
    ball: Ball
    envelope: Any  # None at s = 0 and s = 1
    trajectory: Any  # (K, n): the deterministic one
    faithfulness: Faithfulness
    remarks: tuple[str, ...] = ()


@functools.lru_cache(maxsize=64)
def jitted_estimates(problem: Problem, shape: str) -> Callable[..., Any]:
    return jax.jit(estimates(problem.system, problem.table, shape))


@functools.lru_cache(maxsize=64)
def _local(problem: Problem) -> Callable[..., Any]:
    """(z, y) of all steps -> J, gradient and Hessian."""
    cost = stage_cost(problem.system, problem.table)
    return jax.jit(jax.vmap(lambda z, y: (cost(z, y), jax.grad(cost)(z, y), jax.hessian(cost)(z, y))))


@functools.lru_cache(maxsize=64)
def _minima(problem: Problem) -> Callable[..., Any]:
    """(prior, starts, y, tau) of one step -> the minimum that each start leads to."""
    cost = stage_cost(problem.system, problem.table)

    def one(prior: Any, start: Any, y: Any, tau: Any) -> Any:
        z = proximal(lambda z: cost(z, y), prior, tau, start)
        curvature = jax.hessian(cost)(z, y) + jnp.eye(z.size) / tau
        return jnp.where(jnp.linalg.eigvalsh(curvature)[0] > 0, z, jnp.nan)  # a summit, where Newton never started

    return jax.jit(jax.vmap(one, in_axes=(None, 0, None, None)))


@functools.lru_cache(maxsize=64)
def _trial(problem: Problem) -> Callable[..., Any]:
    cost = stage_cost(problem.system, problem.table)

    def trial(cells: Cells, ball: Ball, y: Any, m: Any, key: Any, kappa: Any, tau: Any) -> Any:
        draw, where = cells.located(m, key, kappa, tau)
        gap = jax.vmap(lambda z: cost(z, y), in_axes=1)(draw.z) - draw.lower
        return draw.z, where, jnp.where(ball.holds(draw.z), jnp.minimum(jnp.exp(-gap / kappa), 1.0), 0.0)

    return jax.jit(trial)


def plan(problem: Problem, data: Any, ball: Ball, kappa: float, tau: float) -> Plan:
    """Everything that depends on the data alone; `ball` holds the centres and radii of all steps."""
    with enable_x64():
        y = np.stack([data[k : k + problem.window + 1] for k in range(len(data) - problem.window)])
        trajectory = np.asarray(jitted_estimates(problem, "ball")(y, tau, ball.centre, ball.radius))
        local = [np.asarray(v) for v in _local(problem)(trajectory, y)]
        if not all(np.isfinite(v).all() for v in local):
            raise InputError(
                "found NaN or infinity in h or its derivatives at an estimate; expected a smooth h on all of K_k; "
                "mend f or h, or choose a smaller diameter"
            )
        priors = predictions(problem.system, trajectory)
        third, missing = _third(problem, y, ball)
        envelope, method, certified, M = _choose(problem, y, ball, trajectory, local, priors, third, kappa, tau)
        stacked = jax.tree.map(lambda *v: jnp.asarray(np.stack(v)), *envelope)
    answer = Faithfulness(method, certified, tuple(float(v) for v in M))
    remarks = _remarks(answer, missing)
    for remark in remarks:
        warnings.warn(remark, DPVerifyWarning, stacklevel=2)
    return Plan(y, ball, stacked, trajectory, answer, remarks)


def _remarks(known: Faithfulness, missing: str) -> tuple[str, ...]:
    if not known.certified:
        return (f"the Gibbs law is drawn with a third derivative that was sampled, not proved: {missing}",)
    return () if known.reached else (beyond_reach(known),)


def beyond_reach(known: Faithfulness) -> str:
    return (
        f"the Gibbs law can't be drawn: one draw in {max(known.M):.2g} is kept and a run may take {ATTEMPTS}, so that "
        f"more than {GIVEN_UP:g} of them would be given up; choose a smaller diameter, radius or tau, or another s"
    )


def _third(problem: Problem, y: Any, ball: Ball) -> tuple[np.ndarray, str]:
    """Proved bounds of the third derivative over each K_k, infinite where there are none; and why there are none."""
    lo, hi = ball.centre - ball.radius[:, None], ball.centre + ball.radius[:, None]
    try:
        third = cost_bounds(problem.system, y, problem.table, lo, hi).third
    except NoBound as unknown:
        use = "+ - * /, powers, tanh, exp, log, sin, cos, atan2, sqrt"
        return np.full(len(y), np.inf), f"f or h holds {unknown}, which has no interval bounds; write it with {use}"
    large = "too large to be of use" if np.isfinite(third).all() else "infinite"
    return third, f"its bounds on K_k are {large}; choose a smaller diameter, radius or tau"


def _choose(
    problem: Problem,
    y: Any,
    ball: Ball,
    trajectory: Any,
    local: list[Any],
    priors: Any,
    proved: np.ndarray,
    kappa: float,
    tau: float,
) -> tuple[list[Any], str, bool, list[float]]:
    """Envelopes of all steps, the method, whether it is certain, and M of each step."""

    def expanded(third: np.ndarray) -> tuple[list[Taylor], list[float]] | None:
        envelopes, M = [], []
        for k, z in enumerate(trajectory):
            value, gradient, hessian = (order[k] for order in local)
            at = Ball(ball.centre[k], ball.radius[k])
            step = taylor(z, value, gradient, hessian, float(third[k]), at, priors[k], kappa, tau)
            if step is None:
                return None
            envelopes.append(step[0])
            M.append(step[1])
        return envelopes, M

    known = bool(np.isfinite(proved).all())
    steps = expanded(proved) if known else None
    if steps and max(steps[1]) <= FEW:
        return steps[0], "taylor", True, steps[1]
    cells, M = _cells(problem, y, ball, known, kappa, tau)
    if steps and max(steps[1]) <= min(max(M), HOPELESS):
        return steps[0], "taylor", True, steps[1]
    if max(M) <= (HOPELESS if known else 1 / LEAST):
        return cells, "cells", True, M
    steps = expanded(2 * _sampled_third(problem, y, ball))
    if steps and max(steps[1]) < np.inf:
        return steps[0], "taylor", False, steps[1]
    return cells, "cells", True, M


def _cells(
    problem: Problem, y: Any, ball: Ball, known: bool, kappa: float, tau: float
) -> tuple[list[Any], list[float]]:
    """Cells for all steps, and M of each, as measured on pilot runs that walk along.

    The pilots decide where boxes are split, never what is drawn: that is exact whatever the boxes are.
    """
    rng, priors = np.random.default_rng(0), np.tile(problem.system.start, (PILOT, 1))
    most = CELLS if len(problem.system.start) <= 3 else 64  # in more dimensions halving boxes leads nowhere
    chosen, M = [], []
    for k, rows in enumerate(y):
        at, key = Ball(ball.centre[k], ball.radius[k]), jax.random.key(k)

        def bound(lo: Any, hi: Any) -> tuple[Cells, np.ndarray]:
            return _bound(problem, rows, tau, lo, hi) if known else (nonnegative(at), np.ones((1, 1)))  # noqa: B023

        def trial(cells: Cells) -> tuple[np.ndarray, ...]:
            tried = _trial(problem)(cells, at, rows, priors.T, key, kappa, tau)  # noqa: B023
            return tuple(np.asarray(v) for v in tried)

        cells, z, kept = refined(at, bound, trial, most if known else 1)
        chosen.append(cells)
        M.append(1 / kept.mean() if kept.any() else np.inf)
        if M[-1] > HOPELESS:  # nothing left to walk on with
            chosen += [nonnegative(at)] * (len(y) - k - 1)
            M += [np.inf] * (len(y) - k - 1)
            break
        walked = z[:, rng.choice(PILOT, PILOT, p=kept / kept.sum())].T
        priors = np.asarray(jax.vmap(problem.system.f)(walked))
    size = 1 << (max(len(c.value) for c in chosen) - 1).bit_length()
    return [padded(c, size) for c in chosen], M


def _bound(problem: Problem, rows: Any, tau: float, lo: np.ndarray, hi: np.ndarray) -> tuple[Cells, np.ndarray]:
    size = round_size(len(lo))
    middle = np.resize((lo + hi) / 2, (size, lo.shape[1]))
    value, gradient, _ = (
        np.asarray(v)[: len(lo)] for v in _local(problem)(middle, np.broadcast_to(rows, (size, *rows.shape)))
    )
    hessian = cost_bounds(
        problem.system, np.broadcast_to(rows, (len(lo), *rows.shape)), problem.table, lo, hi, 2
    ).hessian
    cells = below(lo, hi, value, gradient, hessian, tau)
    doubt = hessian.magnitude
    for j in range(lo.shape[1]):  # of the curvature along a side, only what the parabola lacks
        doubt[:, j, j] = hessian.hi[:, j, j] - cells.bend[:, j]
    return cells, cells.half * np.einsum("bjk,bk->bj", doubt, cells.half)


def _sampled_third(problem: Problem, y: Any, ball: Ball) -> np.ndarray:
    cost = stage_cost(problem.system, problem.table)
    direction = np.random.default_rng(0).standard_normal((256, ball.centre.shape[1]))
    inside = direction / np.linalg.norm(direction, axis=1, keepdims=True) * np.linspace(0, 1, 256)[:, None]
    third = jax.jit(jax.vmap(jax.jacfwd(jax.hessian(cost)), in_axes=(0, None)))
    tensors = [np.asarray(third(c + r * inside, rows)) for c, r, rows in zip(ball.centre, ball.radius, y, strict=True)]
    return np.array([np.sqrt(np.square(t).sum((1, 2, 3))).max() for t in tensors])


def predictions(system: System, trajectory: np.ndarray) -> np.ndarray:
    """The prior of each step along a trajectory."""
    later = [np.asarray(system.f(jnp.asarray(z))) for z in trajectory[:-1]]
    return np.vstack([system.start, *later])


def count_modes(problem: Problem, known: Plan, tau: float) -> tuple[int, ...]:
    """How many minima of the whole exponent several starts inside each K_k lead to."""
    ball, y, priors = known.ball, known.y, predictions(problem.system, known.trajectory)
    n, counts = ball.centre.shape[1], []
    axes = 0.7 * np.vstack([np.zeros(n), np.eye(n), -np.eye(n)])
    for centre, radius, prior, rows in zip(ball.centre, ball.radius, priors, y, strict=True):
        found = np.asarray(_minima(problem)(prior, np.vstack([prior, centre + radius * axes]), rows, tau))
        found = found[np.linalg.norm(found - centre, axis=1) <= radius]  # NaN is nowhere
        counts.append(len(np.unique(np.round((found - centre) / radius, 6), axis=0)))
    return tuple(counts)
