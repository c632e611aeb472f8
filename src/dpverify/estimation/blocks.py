"""What every mechanism of this room does at its door: how many runs a block has, and a look at settings and data."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from dpverify.errors import InputError
from dpverify.estimation.system import System

NUMBERS = (int, float, np.integer, np.floating)


def device_block() -> int:
    """Runs a block: what fits a processor's caches, or what fills a GPU."""
    return 1 << (13 if jax.default_backend() == "cpu" else 18)


def recorded(system: System, data: Any, least: int = 1) -> np.ndarray:
    """`data` as an array (T + 1, measurements), or one line that says what is wrong.

    An array of NumPy: one of JAX would go to the device and back with every block, and wait for it.
    `least` is how many steps the estimator needs (window + 1 for a moving horizon).
    """
    try:
        array = np.asarray(data, float)
    except (TypeError, ValueError) as wrong:
        raise InputError(
            f"data: found {type(data).__name__}; expected an array of numbers (steps, measurements)"
        ) from wrong
    if array.ndim != 2 or array.shape[1] != system.measurements:
        raise InputError(
            f"data: found shape {array.shape}; expected (steps, {system.measurements}), one row y_k for each step; "
            "compare it with what the system's h answers"
        )
    if len(array) < least:
        raise InputError(
            f"data: found {len(array)} steps; expected at least {least}; record longer or shorten the window"
        )
    if not np.isfinite(array).all():
        raise InputError(
            "data: found NaN or infinity; expected finite measurements; fill such readings in, or cut the recording "
            "before the first"
        )
    return array


def share(name: str, value: Any, above: bool = False) -> None:
    """Refuses what is no number in [0, 1] (`above`: in (0, 1])."""
    number = isinstance(value, NUMBERS) and not isinstance(value, bool)
    if not (number and 0 <= value <= 1 and (value > 0 or not above)):
        least = "above 0, up to 1" if above else "from 0 to 1"
        raise InputError(f"{name}: found {value!r}; expected a number {least} (1: no noise)")


def whole(name: str, value: Any, least: int = 0) -> int:
    """A whole number from `least` up, NumPy's too."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InputError(f"{name}: found {value!r}; expected a whole number from {least} up")
    return int(value)


def positive(name: str, value: Any, what: str) -> None:
    if not (isinstance(value, NUMBERS) and 0 < value < np.inf):
        raise InputError(f"{name}: found {value!r}; expected a positive number, {what}")


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name}: found {value!r}; expected " + " or ".join(f'"{word}"' for word in allowed))


def measurement_weights(system: System, stated: Any) -> tuple[float, ...]:
    """One number for each measurement, on its squared residual; None: all 1."""
    number = system.measurements
    try:
        weights = tuple(float(w) for w in np.ravel(np.ones(number) if stated is None else stated))
    except (TypeError, ValueError):
        weights = ()
    if len(weights) != number or not all(0 <= w < np.inf for w in weights):
        raise InputError(f"weights: found {stated!r}; expected {number} numbers from 0 up, one for each measurement")
    return weights


@functools.partial(jax.jit, static_argnums=0)
def _estimate(estimator: Any, data: Any) -> Any:
    return estimator.estimate(data)


def finite_estimate(estimator: Any, data: Any) -> Any:
    """`estimator.estimate(data)`, the noise-free answer, or one line that names the first step that is not finite."""
    estimate = _estimate(estimator, data)
    finite = np.isfinite(np.asarray(estimate)).reshape(len(estimate), -1).all(1)
    if not finite.all():
        raise InputError(
            f"found NaN or infinity in the noise-free estimate at step {int(np.argmin(finite))}; expected f and h that "
            "stay finite around the trajectory; mend them, or compare data and start with the model"
        )
    return estimate
