"""A private estimate beside an exact innovation.

Reference: a pattern of filter diagnostics, without a public thread.

Ours: A filter with constant gain publishes noisy estimates, and beside them the innovations, reading minus prediction,
which are used to monitor the filter.

Neighbours: One reading changes by 1.

Why: The noise is on the state, and the innovation is computed from the state without noise. Who sees it needs no
estimate.

Repair: The innovations are not published.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.bugs.filters import estimates, one_reading, shift

FIRST, SECOND = one_reading()


def monitored(data, runs, rng, repaired=False):
    """Return noisy estimates, with or without the innovations."""
    states, innovations = estimates(data)
    noisy = (states + rng.laplace(size=(runs, len(states))))[:, :, None]
    if repaired:
        return noisy
    return np.concatenate([noisy, np.broadcast_to(innovations[:, None], noisy.shape)], axis=2)


BUG = make_bug(
    monitored,
    __doc__,
    "stream",
    (FIRST, SECOND),
    claims.pure(1.0),
    Truths(math.inf, shift(estimates(FIRST)[0], estimates(SECOND)[0]), "closed form"),
    ("estimate", "innovation"),
)
