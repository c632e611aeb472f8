"""The extended Kalman filter for many runs at once, written for compiled code with the runs on the last axis.

Every entry of a covariance is an array with one value for each run. All operations of an update are then element by
element, except sums over the measurements, so that a compiler fuses them. `PrivateEKF.filtered` computes the same for
one run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpverify.estimation.jacobian_columns import value_and_columns
from dpverify.estimation.small_linalg import (
    Entries,
    multiply_entries,
    posterior_entries,
    symmetric_entries,
    transpose_entries,
)
from dpverify.estimation.system import StateMap, System

MAX_UNROLLED_STATES = 8  # the program grows with the third power of the number of states
RUNS_IN_CACHE = 128  # the measurements of so many runs stay in the cache of a processor core


def filter_runs(
    system: System, whiten: StateMap, process: np.ndarray, initial: np.ndarray, data: jax.Array, shocks: jax.Array
) -> jax.Array:
    """Return the released estimates (runs, K, d) of the filter, in which update k of a run adds shocks[run, k].

    The parameters are those of `filter_columns`, except for the order of the axes of the shocks. On a CPU few runs at a
    time are filtered, so that what is stored between two operations stays in the cache.
    """

    def filter_together(data: jax.Array, shocks: jax.Array) -> jax.Array:
        columns = jnp.transpose(shocks, (1, 2, 0))
        return jnp.transpose(filter_columns(system, whiten, process, initial, data, columns), (2, 0, 1))

    def filter_in_pieces(data: jax.Array, shocks: jax.Array) -> jax.Array:
        runs = shocks.shape[0]
        missing = -runs % RUNS_IN_CACHE
        pieces = jnp.pad(shocks, ((0, missing), (0, 0), (0, 0))).reshape(-1, RUNS_IN_CACHE, *shocks.shape[1:])
        estimates = jax.lax.map(functools.partial(filter_together, data), pieces)
        return estimates.reshape(-1, *estimates.shape[2:])[:runs]

    return jax.lax.platform_dependent(data, shocks, cpu=filter_in_pieces, default=filter_together)


def filter_columns(
    system: System, whiten: StateMap, process: np.ndarray, initial: np.ndarray, data: jax.Array, shocks: jax.Array
) -> jax.Array:
    """Return the released estimates (K, d, runs) of the filter whose update k adds shocks[k] to the state.

    Parameters
    ----------
    system : System
        The model of the data, with at most MAX_UNROLLED_STATES states.
    whiten : callable
        Turns residuals of the measurements into residuals with covariance I.
    process, initial : ndarray of shape (n, n)
        The covariances Q and P0.
    data : array of shape (steps, measurements)
        The data set.
    shocks : array of shape (K, n, runs)
        The noise of each update.
    """
    n, runs = system.states, shocks.shape[2]
    measure = _of_all_runs(lambda x: whiten(system.h(x)))
    predict = _prediction(system)

    def update_and_predict(
        prior: tuple[list[jax.Array], list[jax.Array]], y_and_shock: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[list[jax.Array], list[jax.Array]], jax.Array]:
        (x, lower), (y, shock) = prior, y_and_shock
        measured, columns = measure(jnp.stack(x))
        information, vector = _information(columns, whiten(y)[:, None] - measured)
        P = posterior_entries(_from_lower(lower, n), information)
        gain = multiply_entries(P, [[v] for v in vector])
        # The barrier prevents a compiler from computing the gain once more for each row of a later stack.
        x, lower = jax.lax.optimization_barrier(
            ([x[i] + gain[i][0] + shock[i] for i in range(n)], [P[i][j] for i in range(n) for j in range(i + 1)])
        )
        predicted, F = predict(x)
        P = multiply_entries(multiply_entries(F, _from_lower(lower, n)), transpose_entries(F))
        lower = [jnp.broadcast_to(P[i][j] + process[i, j], runs) for i in range(n) for j in range(i + 1)]
        return (predicted, lower), jnp.stack([x[i] for i in system.released])

    start = [jnp.full(runs, value) for value in system.start]
    lower = [jnp.full(runs, initial[i, j]) for i in range(n) for j in range(i + 1)]
    return jax.lax.scan(update_and_predict, (start, lower), (data[: len(shocks)], shocks))[1]


def whitener(measurement: ArrayLike | None) -> Callable[[jax.Array], jax.Array]:
    """Return the map that turns residuals with this covariance into residuals with covariance I."""
    R = np.asarray(measurement)
    if np.array_equal(R, np.diag(np.diag(R))):
        deviations = np.sqrt(np.diag(R))
        return lambda r: r / deviations
    inverse: Any = np.linalg.inv(np.linalg.cholesky(R))
    return lambda r: inverse @ r


def _prediction(system: System) -> Callable[[list[jax.Array]], tuple[list[jax.Array], Entries]]:
    """Return the map from a state to its prediction and to the Jacobian of the step, all given by their entries."""
    if system.A is not None:
        matrix = np.asarray(system.A, float).tolist()
        return lambda x: ([row[0] for row in multiply_entries(matrix, [[v] for v in x])], matrix)
    predict = _of_all_runs(system.f)

    def value_and_jacobian(x: list[jax.Array]) -> tuple[list[jax.Array], Entries]:
        predicted, columns = predict(jnp.stack(x))
        zeros = [0.0] * len(x)
        return list(predicted), transpose_entries([zeros if column is None else list(column) for column in columns])

    return value_and_jacobian


def _from_lower(lower: list[jax.Array], n: int) -> Entries:
    """Return the symmetric matrix whose lower triangle is given row by row."""
    entries = iter(lower)
    return symmetric_entries([[next(entries) for _ in range(i + 1)] for i in range(n)])


def _of_all_runs(function: StateMap) -> Callable[[jax.Array], tuple[jax.Array, list[jax.Array | None]]]:
    """Return the map from states (n, runs) to values (m, runs) and to the n columns (m, runs) of the Jacobian.

    A column that is always 0 is None.
    """
    return jax.vmap(functools.partial(value_and_columns, function), in_axes=-1, out_axes=-1)


def _information(columns: list[jax.Array | None], residual: jax.Array) -> tuple[Entries, list[Any]]:
    """Return H'H and H'r for the columns (m, runs) of H and the residual r (m, runs)."""
    rows = [*(column for column in columns if column is not None), residual]
    pairs = [(i, j) for i in range(len(rows)) for j in range(i + 1)][:-1]  # r'r is not needed

    def one_reduction(rows: list[jax.Array]) -> list[jax.Array]:
        # On an accelerator all sums are one reduction, so that h is evaluated once and nothing is stored between.
        products = [rows[i] * rows[j] for i, j in pairs]
        zero = jnp.zeros((), residual.dtype)
        return list(jax.lax.reduce(products, [zero] * len(products), _add_all, (0,)))

    def separate_sums(rows: list[jax.Array]) -> list[jax.Array]:
        rows = jax.lax.optimization_barrier(rows)  # otherwise h would be evaluated again for each sum
        return [(rows[i] * rows[j]).sum(0) for i, j in pairs]

    sums = jax.lax.platform_dependent(rows, cpu=separate_sums, default=one_reduction)
    sum_of = dict(zip(pairs, sums, strict=True))
    numbers = [i for i, column in enumerate(columns) if column is not None]
    information: Entries = [[0.0] * len(columns) for _ in columns]
    vector: list[Any] = [0.0] * len(columns)
    for a, i in enumerate(numbers):
        vector[i] = sum_of[len(numbers), a]
        for b, j in enumerate(numbers):
            information[i][j] = sum_of[max(a, b), min(a, b)]
    return information, vector


def _add_all(first: Any, second: Any) -> Any:
    return [a + b for a, b in zip(first, second, strict=True)]
