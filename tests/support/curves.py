"""Privacy profiles and trade-off functions that are known: Gaussian noise, and the subsampled Gaussian mechanism."""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtr, ndtri

LOSS_STEP = 2e-4


def gaussian_profile(mu):
    return lambda epsilon: float(ndtr(-epsilon / mu + mu / 2) - np.exp(epsilon) * ndtr(-epsilon / mu - mu / 2))


def gaussian_tradeoff(mu):
    return lambda q: float(ndtr(ndtri(1.0 - q) - mu))


class LossDistribution(NamedTuple):
    """The sum of the privacy losses of all steps, on a grid of losses, under both datasets."""

    loss: np.ndarray
    first: np.ndarray
    second: np.ndarray

    def event(self, threshold):
        """The probabilities of {loss > threshold} under the first and under the second dataset."""
        above = self.loss > threshold
        return self.first[above].sum(), self.second[above].sum()


@cache
def subsampled_gaussian(steps=30, rate=0.1, sigma=1.0, largest=60.0):
    """The losses of the Poisson-subsampled Gaussian mechanism, by convolution of one step with itself.

    With the first dataset the output of a step is N(0, sigma^2), shifted by 1 with probability `rate`; with the second
    it is never shifted. The losses of a step are rounded to the nearest multiple of LOSS_STEP.
    """
    lowest = np.floor(np.log(1 - rate) / LOSS_STEP) * LOSS_STEP
    edges = lowest + (np.arange(round((10.0 - lowest) / LOSS_STEP) + 2) - 0.5) * LOSS_STEP
    with np.errstate(divide="ignore", invalid="ignore"):
        x = sigma**2 * np.log((np.exp(edges) - (1 - rate)) / rate) + 0.5
    x[~(x > -np.inf) | np.isnan(x)] = -np.inf
    second = np.diff(ndtr(x / sigma))
    first = (1 - rate) * second + rate * np.diff(ndtr((x - 1) / sigma))
    length = next_fast_len(round((largest - steps * lowest) / LOSS_STEP))
    sums = [np.maximum(irfft(rfft(part, length) ** steps, length), 0.0) for part in (first, second)]
    return LossDistribution(steps * lowest + np.arange(length) * LOSS_STEP, *sums)


def profile_of(distribution):
    """The privacy profile: the larger one of both orders, from sums over all losses above epsilon."""
    loss, first, second = distribution
    reverse = np.s_[::-1]
    sides = []
    for losses, mass in ((loss, first), (-loss[reverse], second[reverse])):
        above = np.cumsum(mass[reverse])[reverse], np.cumsum((mass * np.exp(-losses))[reverse])[reverse]
        sides.append((losses, *above))

    def delta(epsilon):
        values = [0.0]
        for losses, mass, other_mass in sides:
            index = np.searchsorted(losses, epsilon)
            if index < losses.size:
                values.append(mass[index] - np.exp(epsilon) * other_mass[index])
        return float(max(values))

    return delta
