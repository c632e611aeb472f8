"""Noise in proportion to a covariance that was estimated from the readings.

Reference: a pattern of adaptive filters, without a public thread.

Ours: A filter publishes estimates with Laplace noise. The scale at each step is the root mean square of the innovations
so far, and at least 1.

Neighbours: One reading changes by 4.

Why: The noise is wider after a surprising reading. Its width says that there was one.

Repair: The scale is a constant of the model, 4 for changes of this size.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.bugs.filters import STEPS, estimates, one_reading, shift

SIZE = 4.0
FIRST, SECOND = one_reading(size=SIZE)


def adapted(data, runs, rng, repaired=False):
    """Return noisy estimates."""
    states, innovations = estimates(data)
    spread = np.sqrt(np.cumsum(innovations**2) / np.arange(1, len(states) + 1))
    scale = np.full(STEPS, SIZE) if repaired else np.maximum(spread, 1.0)
    return (states + scale * rng.laplace(size=(runs, len(states))))[:, :, None]


BUG = make_bug(
    adapted,
    __doc__,
    "stream",
    (FIRST, SECOND),
    claims.pure(1.0),
    Truths(math.inf, shift(estimates(FIRST)[0], estimates(SECOND)[0]) / SIZE, "closed form"),
)
