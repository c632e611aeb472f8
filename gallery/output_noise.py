"""Filtered event streams with noise at the output, and the zero-forcing equaliser.

Le Ny and Pappas, Differentially private filtering, 2014.

A stream of events passes the filter 1/(1 - 0.8 z^-1) and is released for 8 steps. Output perturbation adds Gaussian
noise of kappa times the norm of the whole impulse response. The zero-forcing equaliser adds the noise behind the
prefilter (1 - 0.8 z^-1)^(-1/2) and applies the rest of the filter afterwards.

Neighbours: One event more at one step.

Why: The claim uses the norm of the response over all times. A release that ends after 8 steps shows only a part of it,
so that an event near the end is hidden better: the loss depends on the time of the event.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import ellipk

from dpverify import claims
from gallery.entry import Case, Truth, make_entry
from gallery.laws import gaussian_truth, kappa

POLE = 0.8  # the filter is G = 1 / (1 - 0.8 z^-1)

STEPS = 8


def power_series(exponent: float, steps: int) -> np.ndarray:
    """Return the first coefficients of (1 - 0.8 z^-1)^-exponent.

    Examples
    --------
    >>> power_series(1.0, 3)
    array([1.  , 0.8 , 0.64])
    """
    coefficients = np.ones(steps)
    for k in range(1, steps):
        coefficients[k] = coefficients[k - 1] * POLE * (exponent + k - 1) / k
    return coefficients


def convolve(coefficients: np.ndarray, signals: np.ndarray) -> np.ndarray:
    """Apply a causal filter to signals in the last axis."""
    steps = signals.shape[-1]
    lag = np.subtract.outer(np.arange(steps), np.arange(steps))
    matrix = np.where(lag >= 0, coefficients[np.abs(lag)], 0.0)
    return signals @ matrix.T


@dataclass(frozen=True)
class PrivateEventFilter:
    """Release the output of the filter G: noise is added after a prefilter F, and G / F is applied afterwards.

    Attributes
    ----------
    equalised : bool
        False: F is G, so the noise is added to the output. True: F is the square root of G, which minimises the error.
    epsilon, delta : float
        The claim, which determines the noise.

    Examples
    --------
    >>> PrivateEventFilter(True, 1.0, 0.01)(np.zeros(8), 5, np.random.default_rng(0)).shape
    (5, 8)
    """

    equalised: bool
    epsilon: float
    delta: float

    @property
    def exponent(self) -> float:
        """The power of G that is the prefilter."""
        return 0.5 if self.equalised else 1.0

    @property
    def noise(self) -> float:
        """The standard deviation: kappa times the norm of the whole impulse response of the prefilter."""
        squared = 2 / np.pi * ellipk(POLE**2) if self.equalised else 1 / (1 - POLE**2)
        return kappa(self.epsilon, self.delta) * float(np.sqrt(squared))

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the noisy filtered stream."""
        steps = len(data)
        prefiltered = convolve(power_series(self.exponent, steps), data)
        noisy = prefiltered + self.noise * rng.standard_normal((runs, steps))
        return convolve(power_series(1 - self.exponent, steps), noisy) if self.equalised else noisy


def truth(mechanism: PrivateEventFilter, time: int, claim: claims.Approximate) -> Truth:
    """Return the truth for one event at a time: the part of the response before the horizon is visible."""
    response = power_series(mechanism.exponent, STEPS - time)
    return gaussian_truth(float(np.linalg.norm(response)) / mechanism.noise, claim)


FIRST = np.array([0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 1.0, 0.0])


def make_case(equalised: bool, time: int) -> Case:
    """Return the case of one more event at this time, at the claim (1, 0.01)."""
    claim = claims.approximate(1.0, 0.01)
    mechanism = PrivateEventFilter(equalised, 1.0, 0.01)
    name = f"{'zero-forcing' if equalised else 'output'}-t{time}"
    kind = "zero-forcing equaliser" if equalised else "noise at the output"
    second = FIRST + (np.arange(STEPS) == time)
    return Case(
        name, f"{kind}, event at step {time}", mechanism, (FIRST, second), claim, partial(truth, mechanism, time, claim)
    )


ENTRY = make_entry(__name__, __doc__, *(make_case(equalised, time) for equalised in (False, True) for time in (0, 6)))
