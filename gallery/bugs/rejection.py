"""Noise that is drawn again until the result is valid.

Reference: Holohan, Antonatos, Braghin and Mac Aonghusa, The bounded Laplace mechanism in differential privacy, 2018.

Ours: A number in [0, 3] gets Laplace noise of scale 1, drawn again until the result lies in [0, 3].

Neighbours: The number changes by 1; here from 0 to 1.

Why: Near the edge half of the draws are rejected, and the others become more probable. The factor depends on the number
itself, and comes on top of epsilon.

Repair: The result is moved to the nearest valid value instead, which needs no knowledge of the number.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

END = 3.0


def valid_number(data, runs, rng, repaired=False):
    """Return noisy numbers in the valid range."""
    noisy = data + rng.laplace(size=runs)
    if repaired:
        return np.clip(noisy, 0, END)
    while (outside := (noisy < 0) | (noisy > END)).any():
        noisy[outside] = data + rng.laplace(size=int(outside.sum()))
    return noisy


def accepted(x):
    """Return the probability that a draw is valid."""
    return 1 - 0.5 * math.exp(-x) - 0.5 * math.exp(x - END)


BUG = make_bug(
    valid_number,
    __doc__,
    "algorithm",
    (0.0, 1.0),
    claims.pure(1.0),
    Truths(1 + math.log(accepted(1) / accepted(0)), 1.0, "closed form"),
)
