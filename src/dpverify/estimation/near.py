"""The deterministic moving-horizon estimate for many data sets that all lie near one (docs/method.md, section 7.5).

The runs of an input perturbation differ from their data by noise, so their estimates lie near that of the data. One
solution and one Hessian a step serve all of them: each run starts there and goes on by x <- x - H^-1 gradient with H
fixed, one gradient a move. The error shrinks by |I - H^-1 H_run| each time: a handful of moves for small noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.estimation.horizon import onto, proximal, stage_cost
from dpverify.estimation.system import System

CLOSE = 1e-10  # relative length of the move that would come next
MOST = 200


def _total(cost: Callable[[Any, Any], Any], tau: Any) -> Callable[[Any, Any, Any], Any]:
    return lambda z, prior, rows: jnp.sum(jnp.square(z - prior)) / (2 * tau) + cost(z, rows)


def descend(total: Callable[[Any], Any], start: Any, inverse: Any) -> Any:
    """The minimum of `total` near `start`, in the fixed metric `inverse`; NaN where it is not reached."""
    gradient_at = jax.value_and_grad(total)

    def far(state: Any) -> Any:
        z, _, gradient, _, count = state
        return (jnp.linalg.norm(inverse @ gradient) > CLOSE * (1 + jnp.linalg.norm(z))) & (count < MOST)

    def move(state: Any) -> Any:
        z, value, gradient, size, count = state
        there = z - size * (inverse @ gradient)
        value_there, gradient_there = gradient_at(there)
        better = value_there <= value + 1e-12 * jnp.abs(value)
        return (
            jnp.where(better, there, z),
            jnp.where(better, value_there, value),
            jnp.where(better, gradient_there, gradient),
            jnp.where(better, jnp.minimum(2 * size, 1.0), size / 2),
            count + 1,
        )

    state = (start, *gradient_at(start), jnp.ones_like(start[0]), 0)
    last = jax.lax.while_loop(far, move, state)
    return jnp.where(far((*last[:4], 0)), jnp.nan, last[0])


def estimates_near(system: System, weights: np.ndarray, shape: str) -> Callable[..., Any]:
    """(y, tau, centre, radius) -> a function of other y that answers what `horizon.estimates` would: (K, states)."""
    cost = stage_cost(system, weights)

    def solved(y: Any, tau: Any, centre: Any, radius: Any) -> Callable[[Any], Any]:
        total = _total(cost, tau)

        def first(prior: Any, at: Any) -> Any:
            rows, middle, reach = at
            z = proximal(lambda z: cost(z, rows), prior, tau)
            inverse = jnp.linalg.inv(jax.hessian(total)(z, prior, rows))
            return system.f(onto(z, middle, reach, shape)), (z, inverse)

        start = jnp.asarray(system.start, y.dtype)
        _, (solution, inverses) = jax.lax.scan(first, start, (y, centre, radius))

        def trajectory(other: Any) -> Any:
            def step(prior: Any, at: Any) -> Any:
                rows, middle, reach, known, inverse = at
                z = onto(descend(lambda z: total(z, prior, rows), known, inverse), middle, reach, shape)
                return system.f(z), z

            return jax.lax.scan(step, start, (other, centre, radius, solution, inverses))[1]

        return trajectory

    return solved
