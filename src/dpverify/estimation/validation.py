"""Checks of arguments and data that all mechanisms of this package share.

Every error message is one line of the form `name: found X; expected Y; do Z`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.estimation.system import System
from dpverify.util.arrays import enable_x64, host_device
from dpverify.util.checks import is_real_number

Matrix = tuple[tuple[float, ...], ...]  # hashable, so that it can be part of a static argument


EstimatorType = TypeVar("EstimatorType", bound="Estimator")


class Estimator(Protocol):
    """A deterministic estimator, as `InputPerturbed` needs it.

    An estimator may also have the method `warm_start(data)`. It returns a function with the same values as `estimate`
    that is faster for data sets close to `data`; `InputPerturbed` uses it where it exists.
    """

    @property
    def system(self) -> System:
        """The system whose measurements are the data."""
        ...

    def estimate(self, data: jax.Array) -> jax.Array:
        """Map data (T + 1, measurements) to estimates (K, d) without noise: pure JAX, can be vmapped over data."""
        ...


def check_data(system: System, data: object, min_steps: int = 1, missing: bool = False) -> np.ndarray:
    """Return `data` as a NumPy array (T + 1, measurements), or raise an InputError.

    `min_steps` is the number of rows that the estimator needs: window + 1 for a moving horizon. `missing` allows NaN.
    The result is a NumPy array because a JAX array would be copied to the device and back with every block.
    """
    try:
        array = np.asarray(data, float)  # pyright: ignore[reportArgumentType, reportCallIssue]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"data: found {type(data).__name__}; expected an array of numbers (steps, measurements)"
        ) from error
    if array.ndim != 2 or array.shape[1] != system.measurements:
        raise InputError(
            f"data: found shape {array.shape}; expected (steps, {system.measurements}), one row y_k per step; "
            "compare it with the shape that the system's h returns"
        )
    if len(array) < min_steps:
        raise InputError(
            f"data: found {len(array)} steps; expected at least {min_steps}; record longer or shorten the window"
        )
    if not (np.isfinite(array) | (missing & np.isnan(array))).all():
        raise InputError(
            "data: found NaN or infinity; expected finite measurements; fill in such readings, or cut the recording "
            "before the first one"
        )
    return array


def check_noise_parameter(name: str, value: object, positive: bool = False) -> None:
    """Raise an InputError unless `value` is a number in [0, 1], or in (0, 1] where it must be positive."""
    if not (is_real_number(value) and 0 <= value <= 1) or (positive and value == 0):
        interval = "above 0, up to 1" if positive else "from 0 to 1"
        raise InputError(f"{name}: found {value!r}; expected a number {interval} (1: no noise)")


def check_integer(name: str, value: object, minimum: int = 0) -> int:
    """Return `value` as an int; integers of NumPy are accepted, floats are not."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < minimum:
        raise InputError(f"{name}: found {value!r}; expected a whole number from {minimum} up")
    return int(value)


def check_positive(name: str, value: object, meaning: str) -> None:
    """Raise an InputError unless `value` is a positive finite number; `meaning` ends the message."""
    if not (is_real_number(value) and value > 0):
        raise InputError(f"{name}: found {value!r}; expected a positive number, {meaning}")


def measurement_weights(system: System, weights: object) -> tuple[float, ...]:
    """Return the weight of each measurement's squared residual; None stands for weights of 1."""
    number = system.measurements
    try:
        values = tuple(float(w) for w in np.ravel(np.ones(number) if weights is None else weights))  # pyright: ignore
    except (TypeError, ValueError):
        values = ()
    if len(values) != number or not all(0 <= w < np.inf for w in values):
        raise InputError(f"weights: found {weights!r}; expected {number} numbers from 0 up, one for each measurement")
    return values


def check_covariance(
    name: str, value: ArrayLike | None, default: ArrayLike, size: int, definite: bool = False
) -> Matrix:
    """Return a covariance matrix from a number, one variance per coordinate, or a matrix; None stands for `default`.

    The matrix must be positive semidefinite, or positive definite where `definite` is True.
    """
    array = np.asarray(default if value is None else value, float)
    matrix = np.diag(np.broadcast_to(array, size)) if array.shape in ((), (size,)) else array
    if matrix.shape != (size, size) or not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        raise InputError(
            f"{name}: found shape {array.shape}; expected a finite number, {size} variances, or a symmetric "
            f"{size} x {size} matrix"
        )
    eigenvalues = np.linalg.eigvalsh(matrix)
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    if smallest < -1e-12 * max(largest, 0.0) or (definite and smallest <= 1e-13 * largest):
        kind = "positive definite covariance (a singular one has no gain)" if definite else "positive semidefinite one"
        raise InputError(f"{name}: found an eigenvalue {smallest:.3g}; expected a {kind}; pass {name}=...")
    return tuple(tuple(float(v) for v in row) for row in matrix)


def split_parameters(estimator: EstimatorType) -> tuple[EstimatorType, Any]:
    """Return an estimator as a static argument of compiled code and the numbers of its h, for `bind_parameters`.

    Estimators that differ only in these numbers have the same static argument. An estimator that is no dataclass
    stays as it is.
    """
    system = estimator.system
    if not dataclasses.is_dataclass(estimator) or system.template is system:
        return estimator, ()
    return dataclasses.replace(estimator, system=system.template), system.parameters


def bind_parameters(template: EstimatorType, parameters: Any) -> EstimatorType:
    """Return the estimator with the numbers of its h, which may be traced; nothing is checked again."""
    if isinstance(parameters, tuple) and not parameters:
        return template
    bound = copy.copy(template)
    object.__setattr__(bound, "system", template.system.bind(parameters))
    return bound


@functools.partial(jax.jit, static_argnums=0)
def _estimate(template: Estimator, parameters: Any, data: jax.Array) -> jax.Array:
    return bind_parameters(template, parameters).estimate(data)


@functools.lru_cache(maxsize=64)
def _cached_estimate(estimator: Estimator, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    """Return the estimate for a data set, given as bytes so that it can be the key of a cache."""
    with enable_x64(), host_device():
        return np.asarray(_estimate(*split_parameters(estimator), np.frombuffer(data).reshape(shape)))


def finite_estimate(estimator: Estimator, data: np.ndarray | jax.Array) -> np.ndarray:
    """Return the noise-free `estimator.estimate(data)`; raise an InputError that names the first step with NaN."""
    array = np.ascontiguousarray(data, float)
    estimate = _cached_estimate(estimator, array.shape, array.tobytes())
    finite = np.isfinite(estimate).reshape(len(estimate), -1).all(1)
    if not finite.all():
        raise InputError(
            f"data: found NaN or infinity in the noise-free estimate at step {int(np.argmin(finite))}; expected f and "
            "h that are finite around the trajectory; fix f or h, or compare data and start with the model"
        )
    return estimate
