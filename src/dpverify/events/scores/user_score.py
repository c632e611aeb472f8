"""A score function of the user, passed as `events=` or fitted by a function that is passed as `learn=`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.util.arrays import Array, array_namespace, call_read_only

NAMES = {
    "events": "the given score",
    "learn": "the score of the given learner",
    "log_density": "the log-ratio of the stated density",
}


class UserScore(NamedTuple):
    """A function of the user. It is tested like any other score, but it is not plain data.

    Attributes
    ----------
    function : callable
        Maps outputs of shape (runs, steps, dimensions) to one number per run.
    shape : tuple of int
        Steps and dimensions of one output.
    argument : str
        The argument that the function came from.
    """

    function: Callable[[Array], Array]
    shape: tuple[int, int]
    argument: str = "events"
    is_plain_data = False  # a function cannot be passed to compiled code as data or written to a file

    @property
    def n_parameters(self) -> int:
        """0: nothing was fitted."""
        return 0

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        if not callable(self.function):
            raise InputError(
                f"{self.argument}: found only the name of the score, {self.function}; a report file does not hold the "
                "function; expected the function itself; verify again"
            )
        values = call_read_only(self.function, flat.reshape(flat.shape[0], *self.shape), self.argument)
        if values.shape != flat.shape[:1] or bool(array_namespace(values).isnan(values).any()):
            found = "NaN" if values.shape == flat.shape[:1] else f"shape {values.shape}"
            raise InputError(
                f"{self.argument}: found {found} as values of the score; expected one number per run, "
                f"shape {flat.shape[:1]}"
            )
        return values

    def check_row_by_row(self, samples: np.ndarray) -> None:
        """Refuse a score whose value for one run depends on the other runs of the same call, or on its place there.

        Such a score makes the counts of a block dependent, and the test assumes independent runs.
        """
        flat = samples.reshape(len(samples), -1)
        order, half = np.random.default_rng(0).permutation(len(flat)), len(flat) // 2
        whole = np.asarray(self.values(flat))[order]
        parts = np.concatenate([self.values(flat[part]) for part in (order[:half], order[half:]) if len(part)])
        if not np.allclose(whole, parts, rtol=1e-6, atol=1e-9 * np.abs(whole).max(initial=0.0)):
            raise InputError(
                f"{self.argument}: found a score whose values for the same runs differ between one call and two calls "
                "with the runs in another order; expected a score that maps each run on its own; do not centre, rank, "
                "pair or normalise the runs of a call"
            )

    def describe(self, names: list[str]) -> str:
        """Name the score."""
        return NAMES[self.argument]
