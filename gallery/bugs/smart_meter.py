"""A load curve that is protected one reading at a time.

Reference: a frequent reading of 'event-level' privacy for smart meters, without a public thread.

Ours: 24 hourly readings in kilowatt hours get Laplace noise of scale 1. The claim, epsilon 1, is meant for what a
household does; it holds for one reading.

Neighbours: An appliance of one kilowatt runs from 18 to 22 o'clock, or not.

Why: An appliance changes four readings, not one. The unit of privacy is the use of the appliance, and costs 4.

Repair: Noise for four readings.
"""

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

HOURS = 4


def load_curve(data, runs, rng, repaired=False):
    """Return noisy load curves."""
    return (data + rng.laplace(scale=HOURS if repaired else 1.0, size=(runs, len(data))))[:, :, None]


BASE = np.full(24, 0.3)
WITH_APPLIANCE = np.where((np.arange(24) >= 18) & (np.arange(24) < 18 + HOURS), BASE + 1, BASE)

BUG = make_bug(
    load_curve,
    __doc__,
    "stream",
    (BASE, WITH_APPLIANCE),
    claims.pure(1.0),
    Truths(float(HOURS), 1.0, "closed form"),
    ("load",),
)
