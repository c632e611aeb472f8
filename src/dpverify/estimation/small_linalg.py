"""Factorisations of matrices of the size of a state, for thousands of runs at once.

The algorithms are written as vector operations instead of calls of LAPACK, for two reasons. A batched LAPACK call costs
more than the few operations that a 4 x 4 matrix needs. And on a CPU it uses the same threads that execute the compiled
program, so that two blocks drawn in two threads can wait for each other forever.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

PIVOT_TOLERANCE = 1e-14  # a pivot below this fraction of its diagonal entry counts as rounding error


def cholesky_factor(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return (L, 1 / diagonal of L) with matrix = L L' and L lower triangular.

    The matrix must be positive semidefinite. A zero pivot gives a zero column and the inverse 0.
    """
    columns: list[jax.Array] = []
    inverses: list[jax.Array] = []
    for j in range(matrix.shape[0]):
        column = matrix[:, j] - sum(previous * previous[j] for previous in columns)
        positive = column[j] > PIVOT_TOLERANCE * matrix[j, j]
        inverses.append(jnp.where(positive, jax.lax.rsqrt(jnp.where(positive, column[j], 1.0)), 0.0))
        columns.append(jnp.where(jnp.arange(matrix.shape[0]) >= j, column * inverses[j], 0.0))
    return jnp.stack(columns, axis=1), jnp.stack(inverses)


def posterior_covariance(prior: jax.Array, information: jax.Array) -> jax.Array:
    """Return (prior^-1 + information)^-1, computed as L (I + L' information L)^-1 L' with prior = L L'.

    The prior covariance is not inverted, so it may be singular.
    """
    factor, _ = cholesky_factor(prior)
    inner, inverse = cholesky_factor(jnp.eye(prior.shape[0]) + factor.T @ information @ factor)
    rows: list[jax.Array] = []  # the rows of inner^-1 factor', by forward substitution
    for i in range(prior.shape[0]):
        rows.append((factor[:, i] - sum(inner[i, k] * row for k, row in enumerate(rows))) * inverse[i])
    solved = jnp.stack(rows)
    return solved.T @ solved


def log_abs_determinant(jacobian: jax.Array) -> jax.Array:
    """Return log |det jacobian|; it is infinite where the matrix is singular."""
    return -jnp.log(cholesky_factor(jacobian.T @ jacobian)[1]).sum()
