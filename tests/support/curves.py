"""Privacy profiles and trade-off functions that are known: Gaussian noise, and the subsampled Gaussian mechanism."""

import numpy as np
from scipy.special import ndtr, ndtri

LOSS_STEP = 1e-4
TAIL = 1e-14


def gaussian_profile(mu):
    return lambda epsilon: float(ndtr(-epsilon / mu + mu / 2) - np.exp(epsilon) * ndtr(-epsilon / mu - mu / 2))


def gaussian_tradeoff(mu):
    return lambda q: float(ndtr(ndtri(1.0 - q) - mu))
