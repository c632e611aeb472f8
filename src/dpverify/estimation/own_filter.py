"""A filter of the user's own, from predict and update, as a function of the whole recording."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.errors import InputError
from dpverify.util.arrays import enable_x64, is_jax
from dpverify.util.checks import check_whole_number


def first_part(state: Any) -> Any:
    """Return the first entry of a tuple, such as the mean of (mean, covariance), or what is no tuple as it is."""
    return state[0] if isinstance(state, tuple) else state


@dataclass(frozen=True)
class OwnFilter:
    """A filter of your own (UKF, observer), as a function from data (K, p) to estimates (K - window, d).

    It starts at `initial`, updates with y_0 before its first prediction, and releases the estimate after each update.
    `dpverify.adapters.perturbed` adds noise to its output or to its data. With functions in `jax.numpy`,
    `perturbed_jax` does the same for many runs at once.

    Parameters
    ----------
    predict : callable
        `predict(state)` returns the state of the filter before the next reading.
    update : callable
        `update(state, y)` returns the state of the filter after a reading.
    initial : object
        The state of the filter before the first reading: an array, or a tuple such as (mean, covariance).
    release : callable, optional
        `release(state)` returns the published vector; by default the first entry of a tuple.
    window : int
        The last `window` steps are not released.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.adapters import perturbed
    >>> from dpverify.estimation import OwnFilter
    >>> def stay(x):
    ...     return x
    >>> def move(x, y):
    ...     return x + 0.5 * (y - x)
    >>> smooth = OwnFilter(stay, move, np.zeros(1))
    >>> smooth(np.array([[2.0], [4.0]])).tolist()
    [[1.0], [2.5]]
    >>> perturbed(smooth, scale=0.1, where="input")(np.ones((4, 1)), 8, np.random.default_rng(0)).shape
    (8, 4, 1)
    """

    predict: Callable[[Any], Any]
    update: Callable[[Any, Any], Any]
    initial: Any
    release: Callable[[Any], Any] = first_part
    window: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", check_whole_number("window", self.window))

    def __call__(self, data: Any) -> Any:
        """Return the estimates: in one compiled loop for JAX arrays, in a Python loop for NumPy arrays."""
        steps = len(data) - self.window
        if steps < 1:
            raise InputError(f"data: found {len(data)} steps; expected more than the window {self.window}")
        if is_jax(data):

            def step(state: Any, y: jax.Array) -> tuple[Any, jax.Array]:
                updated = self.update(state, y)
                return self.predict(updated), self.release(updated)

            with enable_x64():
                return jax.lax.scan(step, jax.tree.map(jnp.asarray, self.initial), data[:steps])[1]
        state, estimates = self.initial, []
        for k, y in enumerate(data[:steps]):
            state = self.update(self.predict(state) if k else state, y)
            estimates.append(self.release(state))
        return np.array(estimates)
