"""Exact binomial limits for the number of errors in repeated trials, and a simple reference bound over unions."""

import math

import numpy as np
from scipy.stats import beta, binom


def most(trials: int, level: float, sure: float = 0.999) -> int:
    """Return a count that a binomial variable with probability `level` exceeds with probability at most 1 - `sure`."""
    return int(binom.ppf(sure, trials, level))


def least(trials: int, level: float, sure: float = 0.999) -> int:
    """Return a count below which a binomial variable lies with probability at most 1 - `sure`."""
    return int(binom.ppf(1 - sure, trials, level))


def box_bound(c1, c2, runs, epsilon, alpha):
    """Return the bound on delta by two separate Clopper-Pearson limits at the corners of the frontier, in one order."""
    order = np.argsort(-(np.asarray(c1) + 1e-9) / (np.asarray(c2) + 1e-9))
    a, b = np.floor(np.cumsum(np.asarray(c1, float)[order])), np.floor(np.cumsum(np.asarray(c2, float)[order]))
    upper = np.where(a >= runs, 1.0, beta.isf(alpha / 2, a + 1, np.maximum(runs - a, 1e-9)))
    lower = np.where(b <= 0, 0.0, beta.ppf(alpha / 2, np.maximum(b, 1e-9), runs - b + 1))
    return float(max(0.0, (upper - math.exp(epsilon) * lower).max()))
