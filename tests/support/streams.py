"""Streams with a known privacy of every prefix."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr


def laplace_stream(data, runs, rng):
    """Add Laplace noise of scale 1 to data of shape (K, d): the epsilons of the changed numbers add up."""
    return data + rng.laplace(size=(runs, *data.shape))


def smoothed_stream(data, runs, rng):
    """Return the running means of data of shape (K, 1) with Gaussian noise on the readings."""
    noisy = data[:, 0] + rng.standard_normal((runs, len(data)))
    return (np.cumsum(noisy, axis=1) / np.arange(1, len(data) + 1))[:, :, None]


def gaussian_epsilon(mu, delta):
    """Return the exact epsilon of a Gaussian shift by mu standard deviations."""

    def excess(epsilon):
        return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 0.0, mu**2 + 40 * mu) if mu > 0 and excess(0.0) > 0 else 0.0


class KnownStream(NamedTuple):
    """Gaussian noise on every step, with the exact privacy of every prefix."""

    noise: float = 1.0

    def __call__(self, data, runs, rng):
        return data + self.noise * rng.standard_normal((runs, *data.shape))

    def truth(self, first, second):
        return KnownTruth(np.cumsum(((first - second) ** 2).sum(1)) ** 0.5 / self.noise)


class KnownTruth(NamedTuple):
    """The distances of the means of every prefix, in standard deviations."""

    distances: np.ndarray

    def prefix(self, steps):
        return KnownTruth(self.distances[:steps])

    def epsilon(self, delta):
        return gaussian_epsilon(self.distances[-1], delta)
