"""Noise for an added record, claimed for a replaced one.

Reference: google differential-privacy pull request 464 and issue 378, Gaussian sensitivity for replace-one adjacency.

Ours: A sum of records clipped to [-1, 1] gets Gaussian noise of standard deviation 1. The thread is about accounting
code; this is the smallest release that it would account for.

Neighbours: One record is replaced by another one; here 1 by -1.

Why: Adding or removing a clipped record moves the sum by at most 1, but replacing it moves the sum by up to 2. The
accounting took the first number for both relations.

Repair: The noise has standard deviation 2.
"""

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.laws import gaussian_delta


def noisy_sum(data, runs, rng, repaired=False):
    """Return noisy sums of clipped records."""
    return np.clip(data, -1, 1).sum() + (2.0 if repaired else 1.0) * rng.standard_normal((runs, 1))


BUG = make_bug(
    noisy_sum,
    __doc__,
    "library",
    (np.array([0.5, 1.0]), np.array([0.5, -1.0])),
    claims.approximate(1.0, gaussian_delta(1.0, 1.0)),
    Truths(gaussian_delta(2.0, 1.0), gaussian_delta(1.0, 1.0), "closed form"),
)
