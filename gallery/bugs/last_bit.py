"""Randomised response that never flips the last bit.

Reference: opendp issue 2707, randomized response bitvec off-by-one error.

Ours: Every bit of a vector of four is flipped with probability 1/4. As in the thread, noise is drawn for one bit less
than there are, and the last bit gets none. The claim, 2 ln 3, is that of vectors with one bit set.

Neighbours: Any two vectors with at most one bit set; here only the first bit, or only the last.

Why: The loop that draws the noise ends one bit too early. The last bit is published as it is.

Repair: Noise is drawn for all bits.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug


def respond(data, runs, rng, repaired=False):
    """Return randomised bit vectors."""
    flips = rng.random((runs, len(data))) < 0.25
    if not repaired:
        flips[:, -1] = False
    return np.asarray(data) ^ flips


BUG = make_bug(
    respond,
    __doc__,
    "library",
    ((1, 0, 0, 0), (0, 0, 0, 1)),
    claims.pure(2 * math.log(3)),
    Truths(math.inf, 2 * math.log(3), "closed form"),
    ("bit 1", "bit 2", "bit 3", "bit 4"),
)
