"""Products and factorisations of matrices of the size of a state, for thousands or millions of runs at once.

The algorithms are written as vector operations instead of calls of BLAS and LAPACK, for two reasons. A batched call
costs more than the few operations that a 4 x 4 matrix needs, and it cannot be fused with the operations around it. And
on a CPU it uses the same threads that execute the compiled program, so that two blocks drawn in two threads can wait
for each other forever.

The functions on `Entries` work on single entries, so that a compiler keeps a whole matrix in registers. Their programs
grow with the third power of the number of states.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Entries = list[list[Any]]  # a matrix as rows of entries; an entry is a number, or an array with one value for each run

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


def multiply_columns(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """Return `matrix @ x` for a small matrix (rows, n) and many columns x (n, runs)."""

    def unrolled(matrix: jax.Array, x: jax.Array) -> jax.Array:
        terms = [matrix[:, j, None] * x[j] for j in range(x.shape[0])]
        return sum(terms[1:], terms[0])

    return jax.lax.platform_dependent(matrix, x, cpu=jnp.matmul, default=unrolled)


def multiply_entries(a: Entries, b: Entries) -> Entries:
    """Return the product of two matrices. Terms with a factor that is the number 0 are left out."""
    return [[_dot(row, [other[j] for other in b]) for j in range(len(b[0]))] for row in a]


def transpose_entries(a: Entries) -> Entries:
    """Return the transpose of a matrix."""
    return [list(column) for column in zip(*a, strict=True)]


def _dot(a: list[Any], b: list[Any]) -> Any:
    terms = [x * y for x, y in zip(a, b, strict=True) if not (_is_zero(x) or _is_zero(y))]
    return sum(terms[1:], terms[0]) if terms else 0.0


def _is_zero(entry: Any) -> bool:
    return isinstance(entry, float) and entry == 0.0


def cholesky_entries(matrix: Entries) -> tuple[Entries, list[Any]]:
    """Return what `cholesky_factor` returns, for a matrix given by its entries; the upper triangle is not read."""
    n = len(matrix)
    factor: Entries = [[0.0] * n for _ in range(n)]
    inverses = []
    for j in range(n):
        pivot = matrix[j][j] - _dot(factor[j][:j], factor[j][:j])
        positive = pivot > PIVOT_TOLERANCE * matrix[j][j]
        inverses.append(jnp.where(positive, jax.lax.rsqrt(jnp.where(positive, pivot, 1.0)), 0.0))
        factor[j][j] = pivot * inverses[j]
        for i in range(j + 1, n):
            factor[i][j] = (matrix[i][j] - _dot(factor[i][:j], factor[j][:j])) * inverses[j]
    return factor, inverses


def posterior_entries(prior: Entries, information: Entries) -> Entries:
    """Return what `posterior_covariance` returns, for matrices given by their entries."""
    n = len(prior)
    factor, _ = cholesky_entries(prior)
    upper = transpose_entries(factor)
    inner = multiply_entries(upper, multiply_entries(information, factor))
    for i in range(n):
        inner[i][i] = 1.0 + inner[i][i]
    inner, inverse = cholesky_entries(inner)
    solved: Entries = []  # the rows of inner^-1 factor'
    for i in range(n):
        columns = transpose_entries(solved) if solved else [[]] * n
        solved.append([(upper[i][j] - _dot(inner[i][:i], columns[j])) * inverse[i] for j in range(n)])
    lower = [[_dot(a, b) for b in transpose_entries(solved)[: i + 1]] for i, a in enumerate(transpose_entries(solved))]
    return symmetric_entries(lower)


def symmetric_entries(lower: Entries) -> Entries:
    """Return the symmetric matrix with this lower triangle."""
    n = len(lower)
    return [[lower[max(i, j)][min(i, j)] for j in range(n)] for i in range(n)]
