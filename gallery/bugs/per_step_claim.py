"""The claim of one step for a whole trajectory.

Reference: a frequent reading of per-step guarantees, without a public thread.

Ours: A parameter is estimated at ten steps, each time with new Gaussian noise of standard deviation 1. The claim is the
epsilon and delta of one estimate.

Neighbours: The parameter changes by 1.

Why: Who sees the trajectory sees ten estimates. Their mean has a third of the noise of one.

Repair: The noise has standard deviation sqrt(10).
"""

import math

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.laws import gaussian_delta

STEPS = 10


def trajectory(data, runs, rng, repaired=False):
    """Return noisy trajectories."""
    return data + (math.sqrt(STEPS) if repaired else 1.0) * rng.standard_normal((runs, STEPS, 1))


BUG = make_bug(
    trajectory,
    __doc__,
    "stream",
    (0.0, 1.0),
    claims.approximate(1.0, gaussian_delta(1.0, 1.0)),
    Truths(gaussian_delta(math.sqrt(STEPS), 1.0), gaussian_delta(1.0, 1.0), "closed form"),
)
