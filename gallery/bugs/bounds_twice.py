"""A sensitivity from the lower bound alone.

Reference: IBM differential-privacy-library issue 104 and pull request 110, sensitivity in LinearRegression.

Ours: The coefficient sum of x^2 of a private regression, with Laplace noise. Values lie in [-1, 2]. As in the thread,
the sensitivity is the square of the larger of |lower| and |lower|. The other coefficients are left out.

Neighbours: One value is replaced by another one within the bounds; here 2 by 0.

Why: The lower bound was written twice, in place of the lower and the upper one. The square of a value can change by 4,
and the noise is made for 1. Where the lower bound is 0 there is no noise at all.

Repair: The larger of |lower| and |upper|.
"""

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

LOWER, UPPER, EPSILON = -1.0, 2.0, 1.0


def noisy_coefficient(data, runs, rng, repaired=False):
    """Return noisy sums of squares."""
    sensitivity = max(abs(LOWER), abs(UPPER if repaired else LOWER)) ** 2
    return (data**2).sum() + rng.laplace(scale=sensitivity / EPSILON, size=(runs, 1))


BUG = make_bug(
    noisy_coefficient,
    __doc__,
    "library",
    (np.array([1.0, 2.0]), np.array([1.0, 0.0])),
    claims.pure(EPSILON),
    Truths(4.0, 1.0, "closed form"),
)
