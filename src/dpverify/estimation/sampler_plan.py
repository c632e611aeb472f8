"""The choice of the envelope from which the Gibbs distribution is sampled, made once for each data set.

The candidates are, in this order (docs/method.md, section 7.3): the Taylor envelope, if the third derivative has a
proved bound and few draws are rejected; boxes with quadratic lower bounds; where f or h has no interval bounds, the
single box that needs none; and, with a warning, the Taylor envelope with a third derivative that was only sampled.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.errors import DPVerifyWarning, InputError
from dpverify.estimation.box_envelope import Boxes
from dpverify.estimation.box_refinement import refined_boxes_of_all_steps
from dpverify.estimation.derivative_bounds import cost_bounds
from dpverify.estimation.gibbs_sampler import (
    MAX_ABANDONED_SHARE,
    MAX_DRAWS_PER_RUN,
    MAX_QUICK_DRAWS_PER_RUN,
    MAX_TESTS_PER_STEP,
    Ball,
    Taylor,
    taylor_envelope,
)
from dpverify.estimation.interval_arithmetic import NoBound
from dpverify.estimation.moving_horizon import (
    Problem,
    jitted_trajectory_solver,
    local_expansion,
    proximal_estimate,
    stage_cost,
)
from dpverify.util.arrays import Array, enable_x64

ENOUGH_DRAWS_PER_RUN = 4.0  # the Taylor envelope is taken at once if it needs at most so many draws per run
MIN_ACCEPTANCE_WITHOUT_BOUNDS = 0.02  # acceptance rate at which the box that needs no bounds is still used
BOUNDED_OPERATIONS = "+ - * /, powers, tanh, exp, log, sin, cos, atan2, sqrt"


class Faithfulness(NamedTuple):
    """How faithful the samples of the Gibbs distribution are: what is proved, and what is only expected.

    Parameters
    ----------
    method : {"taylor", "cells", "direct"}
        The envelope: a Taylor polynomial, boxes, or none because no rejection is needed.
    certified : bool
        True if every accepted run is proved to be an exact draw. False where a bound of the third derivative was
        estimated from samples.
    M : tuple of float
        Draws per accepted draw at each step. For "taylor" it is a bound for the prior of the deterministic trajectory,
        for "cells" an average over pilot runs. A run with an unfavourable prior needs more.
    modes : tuple of int
        Number of minima that were found at each step from several starting points in K_k. It is information only.
    """

    method: str
    certified: bool
    M: tuple[float, ...]
    modes: tuple[int, ...] = ()

    @property
    def given_up(self) -> tuple[float, ...]:
        """The expected share of abandoned runs (NaN) at each step if all runs had this M: an estimate, not a bound."""
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
    envelope: Taylor | Boxes | None  # arrays with the steps on the first axis; None where no rejection is needed
    trajectory: np.ndarray  # (K, n): the deterministic estimates
    faithfulness: Faithfulness
    remarks: tuple[str, ...] = ()


class EnvelopeChoice(NamedTuple):
    """The selected envelopes, one for each step."""

    envelopes: list[Taylor] | list[Boxes]
    method: str
    certified: bool
    draws_per_run: list[float]


class LocalExpansion(NamedTuple):
    """J, its gradient and its Hessian at one point of each step."""

    value: np.ndarray  # (K,)
    gradient: np.ndarray  # (K, n)
    hessian: np.ndarray  # (K, n, n)


def _local_minima(problem: Problem) -> Callable[[np.ndarray, np.ndarray, np.ndarray, float], Array]:
    """Return the compiled function (prior, starts, y, tau) of one step -> the minimum found from each start."""
    return functools.partial(_compiled_minima(problem.template), problem.system.parameters)


@functools.lru_cache(maxsize=64)
def _compiled_minima(template: Problem) -> Callable[..., Array]:
    def minimum(parameters: Any, prior: jax.Array, start: jax.Array, y: jax.Array, tau: float) -> jax.Array:
        cost = stage_cost(template.system.bind(parameters), template.residual_weights)
        z = proximal_estimate(lambda z: cost(z, y), prior, tau, start)
        curvature = jax.hessian(cost)(z, y) + jnp.eye(z.size) / tau
        # Newton's method does not leave a maximum or a saddle point at which it starts.
        return jnp.where(jnp.linalg.eigvalsh(curvature)[0] > 0, z, jnp.nan)

    return jax.jit(jax.vmap(minimum, in_axes=(None, None, 0, None, None)))


def plan_sampler(problem: Problem, data: np.ndarray, support: Ball, kappa: float, tau: float) -> SamplerPlan:
    """Compute everything that depends on the data alone; `support` holds the centres and radii of all steps."""
    with enable_x64():
        y = np.stack([data[k : k + problem.window + 1] for k in range(len(data) - problem.window)])
        solve = jitted_trajectory_solver(problem, "ball")
        trajectory = np.asarray(solve(y, tau, support.centre, support.radius))
        expansion = LocalExpansion(*(np.asarray(v) for v in local_expansion(problem)(trajectory, y)))
        if not all(np.isfinite(v).all() for v in expansion):
            raise InputError(
                "h: found NaN or infinity in h or its derivatives at an estimate; expected a smooth h on all of K_k; "
                "fix f or h, or choose a smaller diameter"
            )
        priors = prior_means(problem, support, trajectory)
        third, reason = _third_derivative_bounds(problem, y, support)
        choice = _choose_envelope(problem, y, support, trajectory, expansion, priors, third, kappa, tau)
        stacked = jax.tree.map(lambda *v: np.stack(v), *choice.envelopes)
    faithfulness = Faithfulness(choice.method, choice.certified, tuple(float(v) for v in choice.draws_per_run))
    remarks = _sampler_remarks(faithfulness, reason)
    for remark in remarks:
        warnings.warn(remark, DPVerifyWarning, stacklevel=2)
    return SamplerPlan(y, support, stacked, trajectory, faithfulness, remarks)


def _sampler_remarks(faithfulness: Faithfulness, reason: str) -> tuple[str, ...]:
    """Return what a report says about the sampler; `reason` explains why there is no proved bound."""
    if not faithfulness.certified:
        return (f"the bound of the third derivative behind the Gibbs sampler was sampled, not proved: {reason}",)
    return () if faithfulness.feasible else (infeasible_message(faithfulness),)


def infeasible_message(faithfulness: Faithfulness) -> str:
    """Return the message for a Gibbs distribution with a too small acceptance rate."""
    return (
        f"s: found a Gibbs distribution that can't be sampled, because one draw in {max(faithfulness.M):.2g} is "
        f"accepted; expected at most {MAX_ABANDONED_SHARE:g} of the runs to need more than {MAX_TESTS_PER_STEP} draws; "
        "choose a smaller diameter, radius or tau, or another s"
    )


def _third_derivative_bounds(problem: Problem, y: np.ndarray, support: Ball) -> tuple[np.ndarray, str]:
    """Return proved bounds of the third derivative over each K_k, infinite where there are none, and the reason."""
    lo, hi = support.centre - support.radius[:, None], support.centre + support.radius[:, None]
    try:
        third = cost_bounds(problem.system, y, problem.residual_weights, lo, hi).third
    except NoBound as operation:
        reason = f"f or h contains {operation}, which has no interval bounds; write it with {BOUNDED_OPERATIONS}"
        return np.full(len(y), np.inf), reason
    assert third is not None
    size = "too large to be useful" if np.isfinite(third).all() else "infinite"
    return third, f"its proved bounds on K_k are {size}; choose a smaller diameter, radius or tau"


def _choose_envelope(
    problem: Problem,
    y: np.ndarray,
    support: Ball,
    trajectory: np.ndarray,
    expansion: LocalExpansion,
    priors: np.ndarray,
    proved_third: np.ndarray,
    kappa: float,
    tau: float,
) -> EnvelopeChoice:
    """Choose the envelopes of all steps, in the order that the module docstring gives."""

    def taylor_choice(third: np.ndarray, certified: bool) -> EnvelopeChoice | None:
        envelopes, draws_per_run = [], []
        for k, z in enumerate(trajectory):
            ball = Ball(support.centre[k], support.radius[k])
            value, gradient, hessian = (order[k] for order in expansion)
            step = taylor_envelope(z, value, gradient, hessian, float(third[k]), ball, priors[k], kappa, tau)
            if step is None:
                return None
            envelopes.append(step[0])
            draws_per_run.append(step[1])
        return EnvelopeChoice(envelopes, "taylor", certified, draws_per_run)

    has_bounds = bool(np.isfinite(proved_third).all())
    taylor = taylor_choice(proved_third, certified=True) if has_bounds else None
    if taylor and max(taylor.draws_per_run) <= ENOUGH_DRAWS_PER_RUN:
        return taylor
    boxes, box_draws = refined_boxes_of_all_steps(problem, y, support, has_bounds, kappa, tau)
    box_choice = EnvelopeChoice(boxes, "cells", True, box_draws)
    if taylor and max(taylor.draws_per_run) <= min(max(box_draws), MAX_DRAWS_PER_RUN):
        return taylor
    if max(box_draws) <= (MAX_DRAWS_PER_RUN if has_bounds else 1 / MIN_ACCEPTANCE_WITHOUT_BOUNDS):
        return box_choice
    sampled = taylor_choice(2 * _sampled_third_derivative(problem, y, support), certified=False)
    if sampled and max(sampled.draws_per_run) < np.inf:
        return sampled
    return box_choice


def _sampled_third_derivative(problem: Problem, y: np.ndarray, support: Ball) -> np.ndarray:
    """Return the largest norm of the third derivative at 256 points of each K_k."""
    cost = stage_cost(problem.system, problem.residual_weights)
    direction = np.random.default_rng(0).standard_normal((256, support.centre.shape[1]))
    inside = direction / np.linalg.norm(direction, axis=1, keepdims=True) * np.linspace(0, 1, 256)[:, None]
    third = jax.jit(jax.vmap(jax.jacfwd(jax.hessian(cost)), in_axes=(0, None)))
    norms = []
    for centre, radius, rows in zip(support.centre, support.radius, y, strict=True):
        tensors = np.asarray(third(centre + radius * inside, rows))
        norms.append(np.sqrt(np.square(tensors).sum((1, 2, 3))).max())
    return np.array(norms)


def prior_means(problem: Problem, support: Ball, trajectory: np.ndarray) -> np.ndarray:
    """Return the prior of each step along a trajectory."""
    if problem.prior == "start":
        return support.centre
    later = [np.asarray(problem.system.f(jnp.asarray(z))) for z in trajectory[:-1]]
    return np.vstack([problem.system.start, *later])


def count_modes(problem: Problem, plan: SamplerPlan, tau: float) -> tuple[int, ...]:
    """Return the number of minima of the exponent that several starting points inside each K_k lead to."""
    support = plan.support
    priors = prior_means(problem, support, plan.trajectory)
    n, counts = support.centre.shape[1], []
    axes = 0.7 * np.vstack([np.zeros(n), np.eye(n), -np.eye(n)])
    for centre, radius, prior, rows in zip(support.centre, support.radius, priors, plan.windows, strict=True):
        starts = np.vstack([prior, centre + radius * axes])
        minima = np.asarray(_local_minima(problem)(prior, starts, rows, tau))
        minima = minima[np.linalg.norm(minima - centre, axis=1) <= radius]  # this removes NaN as well
        counts.append(len(np.unique(np.round((minima - centre) / radius, 6), axis=0)))
    return tuple(counts)
