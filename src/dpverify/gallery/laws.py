"""Exact privacy of Gaussian and Laplace noise, alone and composed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from dpverify.gallery.entry import Truth, approximate_truth
from dpverify.stats.claims import Approximate
from dpverify.stats.laplace_loss import laplace_curve

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


def gaussian_truth(mu: float, claim: Approximate) -> Truth:
    """Return the truth of Gaussian noise for an (epsilon, delta) claim; the best event is a half-space."""
    truth = approximate_truth(lambda epsilon: gaussian_delta(mu, epsilon), claim, "closed form")
    mass = float(ndtr(mu / 2 - truth.parameter / mu))
    return Truth(truth.parameter, truth.delta, truth.how, mass)


def mu_truth(mu: float) -> Truth:
    """Return the truth of a Gaussian mechanism for a claim about mu."""
    return Truth(mu, gaussian_delta(mu, 1.0), "closed form", 0.5)


def laplace_truth(shifts: Sequence[float], claim: Approximate) -> Truth:
    """Return the truth of independent Laplace variables whose centres move by `shifts`, in units of their scales.

    Examples
    --------
    >>> from dpverify.stats.claims import pure
    >>> laplace_truth([0.5, 0.5, 0.5], pure(1.0)).parameter
    1.5
    """
    delta_at, mass = laplace_curve(tuple(shifts))
    how = "closed form" if claim.delta == 0 else "convolution"
    return approximate_truth(delta_at, claim, how, float(sum(shifts)), mass)


def discrete_truth(first: np.ndarray, second: np.ndarray, claim: Approximate, how: str = "enumeration") -> Truth:
    """Return the truth of a mechanism with finitely many outputs, from their probabilities under both data sets."""

    def delta_at(epsilon: float) -> float:
        pairs = ((first, second), (second, first))
        return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in pairs)

    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.abs(np.log(first / second))
    supremum = float(np.nanmax(loss))
    mass = float(np.maximum(first, second)[loss >= min(0.99 * supremum, LARGEST_LOSS)].sum())
    return approximate_truth(delta_at, claim, how, supremum, mass)
