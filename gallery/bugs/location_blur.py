"""A position that is blurred anew in every report.

Reference: the question behind MeshCore issue 2984, position ambiguity for advertisements, which proposes an offset that
stays the same.

Ours: A station that does not move reports its position 20 times, each time with new Laplace noise of scale 1. The
claim, epsilon 1, is that of one report.

Neighbours: The station is 1 further east.

Why: The noise of the reports averages out. Each report costs epsilon 1, and all together 20.

Repair: One offset is drawn and kept, as the thread proposes.
"""

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

REPORTS = 20


def reports(data, runs, rng, repaired=False):
    """Return the positions of all reports."""
    offset = rng.laplace(size=(runs, 1 if repaired else REPORTS, 2))
    return np.broadcast_to(data + offset, (runs, REPORTS, 2))


BUG = make_bug(
    reports,
    __doc__,
    "stream",
    (np.array([0.0, 0.0]), np.array([1.0, 0.0])),
    claims.pure(1.0),
    Truths(float(REPORTS), 1.0, "closed form"),
    ("east", "north"),
)
