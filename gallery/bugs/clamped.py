"""A noisy mean that is clamped to the range of the data.

Reference: a pattern without a public thread; diffprivlib issue 20 discusses bounds that are read from the data.

Ours: The mean of values in [0, 10] gets Laplace noise and is clamped to the smallest and the largest value of this
dataset, 'because a mean cannot lie outside'.

Neighbours: One value is replaced; here the largest, 4, by 5.

Why: Clamping is harmless with public limits. Here the limit itself is published whenever the noise is large.

Repair: The limits are 0 and 10.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

SCALE = 10 / 2  # the range by the number of records, for epsilon 1


def noisy_mean(data, runs, rng, repaired=False):
    """Return clamped noisy means."""
    low, high = (0.0, 10.0) if repaired else (data.min(), data.max())
    return np.clip(data.mean() + rng.laplace(scale=SCALE, size=runs), low, high)


BUG = make_bug(
    noisy_mean,
    __doc__,
    "algorithm",
    (np.array([2.0, 4.0]), np.array([2.0, 5.0])),
    claims.pure(1.0),
    Truths(math.inf, 0.5 / SCALE, "closed form"),
)
