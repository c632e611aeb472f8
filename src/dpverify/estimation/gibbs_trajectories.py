"""The compiled Gibbs sampler of all steps of the W2-MHE.

The quick sampler has no loop, which would wait for the host in each iteration on a GPU. Where its few tests are not
enough for all runs, the full sampler draws the block again. The same keys give the same draws, so that the runs that
the quick sampler has finished stay as they are, and the distribution is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dpverify.estimation.gibbs_sampler import Ball, Envelope, RejectionSampler
from dpverify.estimation.moving_horizon import Problem, stage_cost
from dpverify.estimation.validation import compiles_for_cpu

UNROLLED_STEPS = 8  # steps of the quick sampler that are compiled together, for an accelerator


def sample_trajectories(problem: Problem, quick: bool, *arguments: Any) -> jax.Array:
    """Return the released estimates (runs, K, d); `quick` tries the quick sampler first.

    The arguments are the key, the number of runs, the windows, the support, the envelope, kappa and tau.
    """
    template, parameters = problem.template, problem.system.parameters
    if quick:
        sample = _compiled_sampler(template, True, 1 if compiles_for_cpu() else UNROLLED_STEPS)
        released, unfinished = sample(parameters, *arguments)
        estimates = _by_run(released)
        if not unfinished:  # the device orders the estimates by run meanwhile, and does not stand still
            return estimates
    return _by_run(_compiled_sampler(template, False, 1)(parameters, *arguments)[0])


@jax.jit
def _by_run(released: jax.Array) -> jax.Array:
    """Return estimates (K, d, runs) with the runs on the first axis."""
    return jnp.transpose(released, (2, 0, 1))


@functools.lru_cache(maxsize=64)
def _compiled_sampler(template: Problem, quick: bool, unrolled: int) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return a function to the estimates (K, d, runs) and whether any run is unfinished.

    Only the quick sampler can leave a run unfinished.
    """

    def sample(
        parameters: Any,
        key: jax.Array,
        runs: int,
        y: jax.Array,
        support: Ball,
        envelope: Envelope,
        kappa: float,
        tau: float,
    ) -> tuple[jax.Array, jax.Array]:
        system = template.system.bind(parameters)
        cost = stage_cost(system, template.residual_weights)

        def step(m: jax.Array, inputs: tuple[jax.Array, Ball, Envelope, jax.Array]) -> tuple[jax.Array, Any]:
            rows, ball, step_envelope, step_key = inputs
            m = m if template.prior == "carried" else jnp.tile(ball.centre[:, None], runs)
            sampler = RejectionSampler(lambda z: cost(z, rows), step_envelope, ball, kappa, tau)
            z, unfinished = sampler.draw_quickly(m, step_key) if quick else (sampler.draw(m, step_key), False)
            return system.step_columns(z), (z[jnp.asarray(system.released)], unfinished)

        start = jnp.tile(jnp.asarray(system.start, y.dtype)[:, None], runs)
        keys = jax.random.split(key, len(y))
        _, (released, unfinished) = jax.lax.scan(
            step, start, (y, support, envelope, keys), unroll=min(len(y), unrolled)
        )
        return released, jnp.any(unfinished)

    return jax.jit(sample, static_argnums=2)
