"""An iterative estimator that stops when it has converged.

Reference: a pattern of optimisation-based estimation, without a public thread.

Ours: The iterates of an estimator, which halve the distance to the reading, are published with Laplace noise of scale
1. It stops when the distance is below 0.1.

Neighbours: The reading changes from 0.7 to 0.9.

Why: Every iterate is noisy, and their number is not. It is three for one reading and four for the other.

Repair: Always four iterates.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import OBJECT_RUNS, Truths, make_bug
from gallery.bugs.filters import shift

TOLERANCE, MOST = 0.1, 4


def iterates(reading, number=MOST):
    """Return the first iterates without noise."""
    return reading * (1 - 0.5 ** np.arange(1, number + 1))


def optimise(data, runs, rng, repaired=False):
    """Return lists of noisy iterates."""
    number = MOST if repaired else math.ceil(math.log2(data / TOLERANCE))
    return (iterates(data, number) + rng.laplace(size=(runs, number))).tolist()


BUG = make_bug(
    optimise,
    __doc__,
    "stream",
    (0.7, 0.9),
    claims.pure(1.0),
    Truths(math.inf, shift(iterates(0.7), iterates(0.9)), "closed form"),
    runs=OBJECT_RUNS,
)
