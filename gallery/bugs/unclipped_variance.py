"""A variance of data that were clipped, but not used.

Reference: smartnoise-sdk issue 622, covariance clipping bug; repaired by pull request 624.

Ours: The variance of ten values declared to lie in [0, 1], with Laplace noise for this range. As in the thread, the
values are clipped into a new array, and the variance is that of the old one. The thread is about covariances.

Neighbours: One value is replaced; here by 5, which lies outside the declared range.

Why: The sensitivity holds for clipped values only. A single value outside the range moves the variance by far more than
the noise hides.

Repair: The variance of the clipped values.
"""

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

RECORDS, EPSILON = 10, 1.0
SCALE = 1 / RECORDS / EPSILON  # the sensitivity of a variance of values in [0, 1] is 1/n
FIRST = np.linspace(0, 1, RECORDS)
SECOND = np.append(FIRST[:-1], 5.0)


def variance(data, repaired):
    """Return the variance that is published, without its noise."""
    clipped = np.clip(data, 0, 1)
    return np.var(clipped if repaired else data, ddof=1)


def noisy_variance(data, runs, rng, repaired=False):
    """Return noisy variances."""
    return variance(data, repaired) + rng.laplace(scale=SCALE, size=(runs, 1))


def truth(repaired):
    """Return the exact epsilon of the pair."""
    return float(abs(variance(SECOND, repaired) - variance(FIRST, repaired)) / SCALE)


BUG = make_bug(
    noisy_variance,
    __doc__,
    "library",
    (FIRST, SECOND),
    claims.pure(EPSILON),
    Truths(truth(False), truth(True), "closed form"),
)
