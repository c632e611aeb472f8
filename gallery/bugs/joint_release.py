"""Two releases of one value, accounted one at a time.

Reference: google differential-privacy issue 428, marginal accounting of jointly observed correlated releases.

Ours: Two outputs have the same value and independent Gaussian noise of standard deviation 1; the claim is that of one
of them. The thread calls this a gap in the documentation of the accounting, not an error in it, and so do we.

Neighbours: The value changes by 1.

Why: An observer sees both outputs, and their mean has less noise than each. The distance of the two outputs together is
larger by the square root of 2.

Repair: The noise has standard deviation sqrt(2), so that the claim holds for both outputs together.
"""

import math

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.laws import gaussian_delta


def two_outputs(data, runs, rng, repaired=False):
    """Return two noisy values."""
    return data + (math.sqrt(2) if repaired else 1.0) * rng.standard_normal((runs, 2))


BUG = make_bug(
    two_outputs,
    __doc__,
    "library",
    (0.0, 1.0),
    claims.approximate(1.0, gaussian_delta(1.0, 1.0)),
    Truths(gaussian_delta(math.sqrt(2), 1.0), gaussian_delta(1.0, 1.0), "closed form"),
)
