"""Roots of matrices the size of a state, for thousands of runs at once, written out in vector operations.

Not LAPACK: a batched call of it costs more than the few operations of a 4 x 4 matrix. Worse, on a processor it spreads
over the same threads that run the program, and two blocks drawn in two threads then wait for each other for ever.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

FLAT = 1e-14  # a pivot this small beside its entry is rounding


def root(p: Any) -> tuple[Any, Any]:
    """(L, 1/diagonal), p = L L' with L lower triangular, for positive semidefinite p: a zero pivot is a zero column."""
    columns, inverses = [], []
    for j in range(p.shape[0]):
        column = p[:, j] - sum(known * known[j] for known in columns)
        positive = column[j] > FLAT * p[j, j]
        inverses.append(jnp.where(positive, jax.lax.rsqrt(jnp.where(positive, column[j], 1.0)), 0.0))
        columns.append(jnp.where(jnp.arange(p.shape[0]) >= j, column * inverses[j], 0.0))
    return jnp.stack(columns, axis=1), jnp.stack(inverses)


def posterior(p: Any, information: Any) -> Any:
    """(p^-1 + information)^-1 without inverting p, which may be singular: L (I + L' information L)^-1 L'."""
    low, _ = root(p)
    inner, inverse = root(jnp.eye(p.shape[0]) + low.T @ information @ low)
    half: list[Any] = []  # the rows of inner^-1 low'
    for i in range(p.shape[0]):
        half.append((low[:, i] - sum(inner[i, k] * row for k, row in enumerate(half))) * inverse[i])
    z = jnp.stack(half)
    return z.T @ z


def log_volume(slope: Any) -> Any:
    """log |det slope|; infinite where it is singular."""
    return -jnp.log(root(slope.T @ slope)[1]).sum()
