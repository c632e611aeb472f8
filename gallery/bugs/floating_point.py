"""Laplace noise with the gaps of floating-point numbers.

Reference: Mironov, On significance of the least significant bits for differential privacy, 2012; diffprivlib issue 19
and smartnoise-core issue 242 report such noise.

Ours: The inverse of the distribution function is applied to a uniform floating-point number, and the noise is added.

Neighbours: The number changes from 0 to 1.

Why: Only some floating-point numbers can occur as noise, and adding 1 moves them. Many outputs are possible under one
dataset only. Each of them is far too rare to be found by counting; an event needs the last bits of an output.

Repair: The sum is rounded to a multiple of 2^-20, so that both datasets have the same outputs.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

GRID = 2.0**-20


def noisy_number(data, runs, rng, repaired=False):
    """Return noisy numbers."""
    uniform = rng.random((runs, 1)) - 0.5
    noisy = data - np.sign(uniform) * np.log1p(-2 * np.abs(uniform))
    return np.round(noisy / GRID) * GRID if repaired else noisy


BUG = make_bug(
    noisy_number,
    __doc__,
    "algorithm",
    (0.0, 1.0),
    claims.pure(1.0),
    Truths(math.inf, 1.0, "Mironov 2012; up to rounding"),
)
