"""A mean whose noise depends on the number of records.

Reference: smartnoise-core issues 355 and 356, derivation of the sensitivity of the mean.

Ours: The mean of values in [0, 1] with Laplace noise of scale 1/n, for the number n of records of this dataset. The
threads are about the derivation in a paper; this is the release that it would justify.

Neighbours: One record is added: one record and two.

Why: If records may be added and removed, their number is secret too. The derivation compared datasets with the present
n only. The width of the noise shows n, without any bound on epsilon in the tails.

Repair: A noisy sum and a noisy count, each with half of epsilon.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug


def noisy_mean(data, runs, rng, repaired=False):
    """Return noisy means, or noisy sums and counts."""
    if repaired:
        return np.array([data.sum(), len(data)]) + rng.laplace(scale=2.0, size=(runs, 2))
    return data.mean() + rng.laplace(scale=1 / len(data), size=(runs, 1))


BUG = make_bug(
    noisy_mean,
    __doc__,
    "library",
    (np.array([0.0]), np.array([0.0, 1.0])),
    claims.pure(1.0),
    Truths(math.inf, 1.0, "closed form"),
)
