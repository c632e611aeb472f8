"""The variance in the place of the standard deviation.

Reference: smartnoise-core issue 316, privacy fixes: the noise scale in the Gaussian mechanism should not be squared.

Ours: A number that can change by 0.5 gets Gaussian noise. The standard deviation should be 0.5, and is its square.

Neighbours: The number changes by 0.5.

Why: Noise generators take a standard deviation, accountants often a variance. Below 1, squaring makes the noise
smaller, here by half.

Repair: The standard deviation is not squared.
"""

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug
from gallery.laws import gaussian_delta

SCALE = 0.5


def noisy_number(data, runs, rng, repaired=False):
    """Return noisy numbers."""
    return data + (SCALE if repaired else SCALE**2) * rng.standard_normal((runs, 1))


BUG = make_bug(
    noisy_number,
    __doc__,
    "library",
    (0.0, 0.5),
    claims.approximate(1.0, gaussian_delta(1.0, 1.0)),
    Truths(gaussian_delta(2.0, 1.0), gaussian_delta(1.0, 1.0), "closed form"),
)
