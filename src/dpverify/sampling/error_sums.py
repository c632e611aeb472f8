"""The sum of the errors of all runs: the mean error under one data set, and its standard error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from dpverify.errors import InputError
from dpverify.util.arrays import Array, enable_x64, is_jax
from dpverify.util.read_only import call_read_only


class ErrorSum:
    """The sum of the errors and the sum of their squares.

    The sums are fractions: the floating-point sum of each block is added exactly. Sums on a device stay there until
    `finish`.

    Parameters
    ----------
    error : callable
        The error function of the user, from samples to one number per run.
    """

    def __init__(self, error: Callable[[Array], Array]):
        self._error = error
        self._totals = [Fraction(0), Fraction(0)]
        self._device_sums: list[tuple[Array, Array]] = []

    def add(self, samples: Array) -> None:
        """Add the errors of some samples."""
        with enable_x64(samples):
            errors = call_read_only(self._error, samples, "error")
            on_device = is_jax(errors)
            if not on_device:
                errors = np.asarray(errors, float)
            if errors.shape != samples.shape[:1]:
                raise InputError(f"error: found shape {errors.shape}; expected one number per run, {samples.shape[:1]}")
            sums = errors.sum(), (errors**2).sum()
            if on_device:
                self._device_sums.append(sums)
            else:
                self._include(sums)

    def finish(self) -> None:
        """Wait for the sums on a device."""
        for sums in self._device_sums:
            self._include(sums)
        self._device_sums = []

    def merge(self, other: ErrorSum) -> None:
        """Add another sum."""
        self._totals = [total + more for total, more in zip(self._totals, other._totals, strict=True)]

    def to_array(self) -> np.ndarray:
        """Return the fractions as text."""
        return np.array([str(total) for total in self._totals])

    def merge_array(self, texts: np.ndarray) -> None:
        """Add another sum, given as text."""
        self._totals = [total + Fraction(text) for total, text in zip(self._totals, texts.tolist(), strict=True)]

    def mean(self, runs: int) -> tuple[float, float]:
        """Return the mean error and its standard error."""
        mean, mean_square = (float(total) / runs for total in self._totals)
        return mean, math.sqrt(max(mean_square - mean**2, 0.0) / max(runs - 1, 1))

    def _include(self, sums: Sequence[Array]) -> None:
        numbers = [float(number) for number in sums]
        if not all(map(math.isfinite, numbers)):  # a sum is not finite if one of the errors is not
            raise InputError(
                "error: found NaN or infinity; expected one finite number per run; check for non-finite outputs"
            )
        self._totals = [total + Fraction(number) for total, number in zip(self._totals, numbers, strict=True)]
