"""Updates clipped to norm 1, with noise for a sensitivity of 0.0001.

Reference: FLIP pull request 833, Flower differential privacy, which has a note on these defaults.

Ours: An update of two weights is clipped to norm 1 and gets Gaussian noise of standard deviation
s sqrt(2 ln(1.25/delta))/epsilon with the defaults s = 1e-4, epsilon = 10 and delta = 1e-5 of the pull request.

Neighbours: Any two updates of a client; here two of opposite direction.

Why: The update of a client can change by 2, and the noise hides changes of 0.0001. The stated epsilon belongs to the
stated sensitivity, which clipping does not enforce.

Repair: The noise has standard deviation 1.1. This follows from the exact delta of Gaussian noise for a change of 2; the
formula above holds for epsilon below 1 only.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.laws import gaussian_delta

EPSILON, DELTA, SENSITIVITY, REPAIRED_NOISE = 10.0, 1e-5, 1e-4, 1.1
NOISE = SENSITIVITY * math.sqrt(2 * math.log(1.25 / DELTA)) / EPSILON


def noisy_update(data, runs, rng, repaired=False):
    """Return noisy clipped updates."""
    clipped = data / max(1.0, float(np.linalg.norm(data)))
    return clipped + (REPAIRED_NOISE if repaired else NOISE) * rng.standard_normal((runs, len(data)))


BUG = make_bug(
    noisy_update,
    __doc__,
    "library",
    (np.array([1.0, 0.0]), np.array([-1.0, 0.0])),
    claims.approximate(EPSILON, DELTA),
    Truths(1.0, gaussian_delta(2 / REPAIRED_NOISE, EPSILON), "closed form"),
    runs=(50_000, 1_000_000),  # at epsilon 10 and this level, fewer runs cannot refute any claim
)
