"""A noisy gradient divided by a batch size that depends on the data.

Reference: opacus issues 571 and 819, privacy leakage at low sample size, and normalisation of the gradient.

Ours: One step of private gradient descent with 20 parameters: clipped gradients are added up, Gaussian noise of
standard deviation 1 is added, and the result is divided by the number of records. Here all gradients are zero.

Neighbours: One record is added: two records and three.

Why: The accounting covers the noisy sum, not the divisor. The divisor also divides the noise, so that the spread of 20
published numbers tells how many records there are, even if the added record has gradient zero.

Repair: The divisor is a public constant.
"""

import math

import numpy as np
from scipy.special import gammainc, gammaincc

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.laws import gaussian_delta

PARAMETERS = 20


def noisy_gradient(data, runs, rng, repaired=False):
    """Return noisy mean gradients."""
    total = data.sum(0) + rng.standard_normal((runs, PARAMETERS))
    return total / (2 if repaired else len(data))


def spread_delta(epsilon, large=1 / 2, small=1 / 3):
    """Return the exact delta of Gaussian vectors with two standard deviations, by their chi-square lengths."""
    d, rate = PARAMETERS / 2, 1 / small**2 - 1 / large**2
    gap = PARAMETERS * math.log(large / small)
    far, near = 2 * (gap + epsilon) / rate, 2 * (gap - epsilon) / rate
    outside = gammaincc(d, far / large**2 / 2) - math.exp(epsilon) * gammaincc(d, far / small**2 / 2)
    inside = gammainc(d, near / small**2 / 2) - math.exp(epsilon) * gammainc(d, near / large**2 / 2)
    return float(max(outside, inside))


BUG = make_bug(
    noisy_gradient,
    __doc__,
    "library",
    (np.zeros((2, PARAMETERS)), np.zeros((3, PARAMETERS))),
    claims.approximate(1.0, gaussian_delta(1.0, 1.0)),
    Truths(spread_delta(1.0), 0.0, "closed form"),
)
