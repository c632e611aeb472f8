"""Noise that is scaled by the data.

Reference: Nissim, Raskhodnikova and Smith, Smooth sensitivity and sampling in private data analysis, 2007, on noise in
proportion to the local sensitivity.

Ours: A sum gets Laplace noise whose scale is the largest value of this dataset.

Neighbours: One value in [0, 1] is replaced; here 0.2 by 1.

Why: The largest value depends on one person. The width of the noise shows it: far from the sum the ratio of the
probabilities has no bound.

Repair: The scale is the largest value that is possible, 1.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug


def noisy_sum(data, runs, rng, repaired=False):
    """Return noisy sums."""
    return data.sum() + rng.laplace(scale=1.0 if repaired else data.max(), size=(runs, 1))


BUG = make_bug(
    noisy_sum,
    __doc__,
    "algorithm",
    (np.array([0.1, 0.2]), np.array([0.1, 1.0])),
    claims.pure(1.0),
    Truths(math.inf, 0.8, "closed form"),
)
