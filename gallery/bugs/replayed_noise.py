"""A service that draws the same noise again after a restart.

Reference: a pattern of seeds that are stored with the state of a service, without a public thread.

Ours: Six readings get Laplace noise of scale 1. After three of them the service restarts with the same seed, so that
the second three get the noise of the first three.

Neighbours: One reading changes by 1.

Why: Each reading is hidden, but the difference of the second and the fifth output is the difference of two readings,
without noise.

Repair: The generator goes on where it was.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.bugs.filters import one_reading


def stream(data, runs, rng, repaired=False):
    """Return noisy readings."""
    half = len(data) // 2
    noise = rng.laplace(size=(runs, len(data) if repaired else half))
    return (data + (noise if repaired else np.concatenate([noise, noise], axis=1)))[:, :, None]


BUG = make_bug(
    stream,
    __doc__,
    "stream",
    one_reading(steps=6),
    claims.pure(1.0),
    Truths(math.inf, 1.0, "closed form"),
)
