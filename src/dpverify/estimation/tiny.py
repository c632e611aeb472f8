"""Products and roots of matrices the size of a state, for thousands of runs at once.

A batched call of LAPACK costs far more than the few dozen multiplications of a 4 x 4 matrix, so up to `TINY` they are
written out entry by entry. Each result passes a barrier: without it the compiler, which fuses what is elementwise,
computes the same entries again for everyone who reads them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

TINY = 8  # states; beyond, compiling takes longer than it saves
FLAT = 1e-14  # a pivot this small beside its entry is rounding


def _matrix(rows: list[list[Any]]) -> Any:
    flat = jnp.stack([jnp.asarray(entry, float) for row in rows for entry in row])
    return jax.lax.optimization_barrier(flat).reshape(len(rows), len(rows[0]))


def times(a: Any, b: Any) -> Any:
    """a b for two small matrices, or a matrix and a vector."""
    if b.ndim == 1:
        return times(a, b[:, None])[:, 0]
    if max(a.shape) > TINY:
        return a @ b
    inner = range(a.shape[1])
    return _matrix([[sum(a[i, k] * b[k, j] for k in inner) for j in range(b.shape[1])] for i in range(a.shape[0])])


def root(p: Any) -> tuple[Any, Any]:
    """(L, 1/diagonal) with p = L L', L lower triangular, for positive semidefinite p: a zero pivot is a zero column."""
    n = p.shape[0]
    low: list[list[Any]] = [[0.0] * n for _ in range(n)]
    inverse = []
    for j in range(n):
        pivot = p[j, j] - sum(low[j][k] * low[j][k] for k in range(j))
        positive = pivot > FLAT * p[j, j]
        inverse.append(jnp.where(positive, jax.lax.rsqrt(jnp.where(positive, pivot, 1.0)), 0.0))
        low[j][j] = pivot * inverse[j]
        for i in range(j + 1, n):
            low[i][j] = (p[i, j] - sum(low[i][k] * low[j][k] for k in range(j))) * inverse[j]
    packed = _matrix([*low, inverse])
    return packed[:n], packed[n]


def posterior(p: Any, information: Any) -> Any:
    """(p^-1 + information)^-1 without inverting p, which may be singular: L (I + L' information L)^-1 L'."""
    n = p.shape[0]
    if n > TINY:
        return jnp.linalg.solve(jnp.eye(n) + p @ information, p)
    low, _ = root(p)
    inner, inverse = root(jnp.eye(n) + times(low.T, times(information, low)))
    half: list[list[Any]] = []  # inner^-1 low', row by row
    for i in range(n):
        half.append([(low[j, i] - sum(inner[i, k] * half[k][j] for k in range(i))) * inverse[i] for j in range(n)])
    z = _matrix(half)
    return times(z.T, z)
