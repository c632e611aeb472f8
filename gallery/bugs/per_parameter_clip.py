"""Each parameter is clipped, where the norm of all should be.

Reference: Fed-BioMed issue 1443, issues with differential privacy, which lists it among probable problems.

Ours: An update of four parameters, clipped to norm 1, with Gaussian noise of standard deviation 1.

Neighbours: A client is removed, whose update is (1, 1, 1, 1).

Why: If each of four parameters may be 1, the norm of an update may be 2. The noise is made for 1. The gap grows with
the square root of the number of parameters.

Repair: The whole update is scaled to norm 1.
"""

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.laws import gaussian_delta


def noisy_update(data, runs, rng, repaired=False):
    """Return noisy clipped updates."""
    clipped = data / max(1.0, float(np.linalg.norm(data))) if repaired else np.clip(data, -1, 1)
    return clipped + rng.standard_normal((runs, len(data)))


BUG = make_bug(
    noisy_update,
    __doc__,
    "library",
    (np.zeros(4), np.ones(4)),
    claims.approximate(1.0, gaussian_delta(1.0, 1.0)),
    Truths(gaussian_delta(2.0, 1.0), gaussian_delta(1.0, 1.0), "closed form"),
)
