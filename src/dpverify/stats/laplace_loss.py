"""The privacy loss of independent Laplace variables: its distribution, and delta as a function of epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

LOSS_STEP = 5e-4  # width of a bin of the privacy loss


def laplace_loss(shift: float) -> tuple[np.ndarray, int]:
    """Return the distribution of the privacy loss of Laplace noise of scale 1 whose centre moves by `shift`.

    The loss lies in bins of width LOSS_STEP and is rounded up, so that a delta that follows from it is an upper bound
    that is nearly exact.

    Returns
    -------
    masses : array
        The probabilities of the bins.
    lowest : int
        The number of the first bin.
    """
    low, high = math.floor(-shift / LOSS_STEP), math.ceil(shift / LOSS_STEP)
    edges = np.clip(np.arange(low, high + 1) * LOSS_STEP, -shift, shift)
    # The loss is |x - shift| - |x|. It is at most l where x is at least (shift - l) / 2, for -shift <= l < shift.
    below = np.where(edges >= shift, 1.0, 0.5 * np.exp(-np.maximum(shift - edges, 0) / 2))
    return np.diff(below, prepend=0.0), low


def compose(losses: Sequence[tuple[np.ndarray, int]]) -> tuple[np.ndarray, int]:
    """Return the distribution of the sum of independent privacy losses."""
    masses, lowest = np.ones(1), 0
    for other, start in losses:
        masses, lowest = np.convolve(masses, other), lowest + start
    return masses, lowest


@cache
def laplace_curve(shifts: tuple[float, ...]) -> tuple[Callable[[float], float], float]:
    """Return delta as a function of epsilon, and the probability of a loss of at least 0.99 of the largest one.

    `shifts` are the distances by which the centres of independent Laplace variables move, in units of their scales.
    """
    masses, lowest = compose([laplace_loss(shift) for shift in shifts])
    loss = (lowest + np.arange(len(masses))) * LOSS_STEP

    def delta_at(epsilon: float) -> float:
        return float((masses * np.maximum(-np.expm1(epsilon - loss), 0)).sum())

    return delta_at, float(masses[loss >= 0.99 * sum(shifts)].sum())
