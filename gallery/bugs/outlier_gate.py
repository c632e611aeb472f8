"""A filter that rejects outliers before the noise is added.

Reference: a pattern of robust filters, without a public thread.

Ours: A filter with gain 0.5 ignores readings that differ from the prediction by more than 3. Laplace noise is made for
a change of 0.2 in one reading.

Neighbours: One reading changes by at most 0.2; here from 2.9 to 3.1.

Why: A gate is a jump. A reading of 2.9 moves the estimate by 1.45, and one of 3.1 does not move it at all; the
sensitivity of the linear filter does not hold across the gate.

Repair: Innovations are limited to 3 instead of rejected, which is continuous.
"""

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.bugs.filters import estimates, one_reading, shift

GATE, SCALE = 3.0, 0.2
FIRST, SECOND = one_reading(size=2.9)[1], one_reading(size=3.1)[1]


def gate(innovation):
    """Reject an innovation beyond the gate."""
    return innovation if abs(innovation) <= GATE else 0.0


def limit(innovation):
    """Limit an innovation to the gate."""
    return float(np.clip(innovation, -GATE, GATE))


def filtered(data, repaired):
    """Return the estimates without noise."""
    return estimates(data, correct=limit if repaired else gate)[0]


def robust_filter(data, runs, rng, repaired=False):
    """Return noisy estimates."""
    return (filtered(data, repaired) + rng.laplace(scale=SCALE, size=(runs, len(data))))[:, :, None]


def truth(repaired):
    """Return the exact epsilon of the pair."""
    return shift(filtered(FIRST, repaired), filtered(SECOND, repaired)) / SCALE


BUG = make_bug(
    robust_filter,
    __doc__,
    "stream",
    (FIRST, SECOND),
    claims.pure(1.0),
    Truths(truth(False), truth(True), "closed form"),
)
