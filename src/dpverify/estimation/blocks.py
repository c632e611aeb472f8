"""What every mechanism of this room does at its door: how many runs a block has, and a look at the data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.errors import InputError
from dpverify.estimation.system import System


def device_block() -> int:
    """Runs a block: what fits a processor's caches, or what fills a GPU."""
    return 1 << (13 if jax.default_backend() == "cpu" else 18)


def recorded(system: System, data: Any, least: int = 1) -> Any:
    """`data` as a JAX array (T + 1, measurements) in the float of the moment, or one line that says what is wrong.

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
        raise InputError("data: found NaN or infinity; expected finite measurements; leave such steps out beforehand")
    return jnp.asarray(array)
