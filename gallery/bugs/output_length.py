"""Randomised response whose output is as long as its input.

Reference: opendp issue 2930, BitVectorDomain should have a fixed size.

Ours: Every bit of a bit vector is flipped with probability 1/4. The claim, 2 ln 3, is that of vectors with one bit set.

Neighbours: Any two bit vectors with at most one bit set; here (1) and (0, 1).

Why: The domain does not fix the length of a vector, and the output has the length of the input. The length tells the
two vectors apart without any doubt, whatever the noise is.

Repair: All vectors are filled up with zeros to one public length.
"""

import math

from dpverify import claims
from gallery.bugs.bug import OBJECT_RUNS, Truths, make_bug

LENGTH = 2


def respond(data, runs, rng, repaired=False):
    """Return lists of randomised bits."""
    bits = data + (0,) * (LENGTH - len(data)) if repaired else data
    flips = rng.random((runs, len(bits))) < 0.25
    return [[int(bit ^ flip) for bit, flip in zip(bits, row, strict=True)] for row in flips.tolist()]


BUG = make_bug(
    respond,
    __doc__,
    "library",
    ((1,), (0, 1)),
    claims.pure(2 * math.log(3)),
    Truths(math.inf, 2 * math.log(3), "closed form"),
    runs=OBJECT_RUNS,
)
