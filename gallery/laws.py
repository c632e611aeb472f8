"""Exact privacy of Gaussian and Laplace noise, alone and composed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

from dpverify import claims
from gallery.entry import Truth, approximate_truth

LOSS_STEP = 5e-4  # the width of a bin of a privacy loss that has no closed form
LARGEST_LOSS = 1e300  # an infinite loss compares as larger


def kappa(epsilon: float, delta: float) -> float:
    """Return the ratio of noise to sensitivity that Le Ny and Pappas (2014) prove sufficient for (epsilon, delta).

    Examples
    --------
    >>> round(kappa(1.0, 0.01), 3)
    2.524
    """
    quantile = -float(ndtri(delta))
    return (quantile + math.sqrt(quantile**2 + 2 * epsilon)) / (2 * epsilon)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the exact delta of Gaussian noise whose mean moves by mu standard deviations.

    Examples
    --------
    >>> round(gaussian_delta(1 / kappa(1.0, 0.01), 1.0), 5)
    0.00119
    """
    if mu == 0:
        return 0.0
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def gaussian_truth(mu: float, claim: claims.Approximate) -> Truth:
    """Return the truth of Gaussian noise for an (epsilon, delta) claim; the best event is a half-space."""
    truth = approximate_truth(lambda epsilon: gaussian_delta(mu, epsilon), claim, "closed form")
    mass = float(ndtr(mu / 2 - truth.parameter / mu))
    return Truth(truth.parameter, truth.delta, truth.how, mass)


def mu_truth(mu: float) -> Truth:
    """Return the truth of a Gaussian mechanism for a claim about mu."""
    return Truth(mu, gaussian_delta(mu, 1.0), "closed form", 0.5)


@cache
def laplace_curve(shifts: tuple[float, ...]) -> tuple[Callable[[float], float], float]:
    """Return delta as a function of epsilon, and the probability of a loss of at least 0.99 of the largest one.

    `shifts` are the distances by which the centres of independent Laplace variables of scale 1 move. The losses lie in
    bins and are rounded up, so that delta is an upper bound that is nearly exact.
    """
    masses, lowest = np.ones(1), 0
    for shift in shifts:
        low, high = math.floor(-shift / LOSS_STEP), math.ceil(shift / LOSS_STEP)
        edges = np.clip(np.arange(low, high + 1) * LOSS_STEP, -shift, shift)
        # The loss is |x - shift| - |x|. It is at most l where x is at least (shift - l) / 2, for -shift <= l < shift.
        below = np.where(edges >= shift, 1.0, 0.5 * np.exp(-np.maximum(shift - edges, 0) / 2))
        masses, lowest = np.convolve(masses, np.diff(below, prepend=0.0)), lowest + low
    loss = (lowest + np.arange(len(masses))) * LOSS_STEP

    def delta_at(epsilon: float) -> float:
        return float((masses * np.maximum(-np.expm1(epsilon - loss), 0)).sum())

    return delta_at, float(masses[loss >= 0.99 * sum(shifts)].sum())


def laplace_truth(shifts: Sequence[float], claim: claims.Approximate) -> Truth:
    """Return the truth of independent Laplace variables whose centres move by `shifts`, in units of their scales.

    Examples
    --------
    >>> laplace_truth([0.5, 0.5, 0.5], claims.pure(1.0)).parameter
    1.5
    """
    delta_at, mass = laplace_curve(tuple(shifts))
    how = "closed form" if claim.delta == 0 else "convolution"
    return approximate_truth(delta_at, claim, how, float(sum(shifts)), mass)


def discrete_truth(first: np.ndarray, second: np.ndarray, claim: claims.Approximate, how: str = "enumeration") -> Truth:
    """Return the truth of a mechanism with finitely many outputs, from their probabilities under both datasets."""

    def delta_at(epsilon: float) -> float:
        pairs = ((first, second), (second, first))
        return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in pairs)

    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.abs(np.log(first / second))
    supremum = float(np.nanmax(loss))
    mass = float(np.maximum(first, second)[loss >= min(0.99 * supremum, LARGEST_LOSS)].sum())
    return approximate_truth(delta_at, claim, how, supremum, mass)
