"""Noise on the grid of the sensor, added to values between its points.

Reference: a pattern of embedded code with integer noise, without a public thread.

Ours: A reading with decimals gets discrete Laplace noise of scale 1, which is a whole number.

Neighbours: A reading changes by at most 1; here from 0.2 to 0.7.

Why: A whole number does not change the decimals. They are published as they are.

Repair: The reading is rounded to a whole number before the noise is added.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug


def noisy_reading(data, runs, rng, repaired=False):
    """Return noisy readings."""
    p = 1 - math.exp(-1)
    noise = rng.geometric(p, runs) - rng.geometric(p, runs)
    return (np.round(data) if repaired else data) + noise


BUG = make_bug(noisy_reading, __doc__, "stream", (0.2, 0.7), claims.pure(1.0), Truths(math.inf, 1.0, "closed form"))
