"""Noise from a generator with 256 possible seeds.

Reference: Garfinkel and Leclerc, Randomness concerns when deploying differential privacy, 2020.

Ours: A count gets Laplace noise of scale 1 from a generator that is seeded by one byte.

Neighbours: The count changes by 1.

Why: 256 seeds give 256 values of noise. Every published number is the count plus one of these, so that the two counts
have almost no output in common.

Repair: The generator is seeded by as many bits as it needs.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

NOISE = np.array([np.random.default_rng(seed).laplace() for seed in range(256)])


def noisy_count(data, runs, rng, repaired=False):
    """Return noisy counts."""
    return data + (rng.laplace(size=runs) if repaired else NOISE[rng.integers(256, size=runs)])


BUG = make_bug(
    noisy_count, __doc__, "algorithm", (0.0, 1.0), claims.pure(1.0), Truths(math.inf, 1.0, "enumeration; closed form")
)
