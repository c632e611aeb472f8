"""A sensor that sends when its reading changes.

Reference: a pattern of event-triggered estimation, without a public thread.

Ours: A sensor sends a packet when its reading has moved by more than 0.5 since the last packet. The reading in the
packet has Laplace noise; between packets the receiver keeps the last value.

Neighbours: One reading changes by 0.2.

Why: The values are noisy, and the decision to send is not. Whether a packet arrives tells on which side of the limit a
reading was.

Repair: A packet at every step.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

LIMIT = 0.5
FIRST, SECOND = np.array([0.0, 0.4, 0.2, 0.0]), np.array([0.0, 0.6, 0.2, 0.0])


def receive(data, runs, rng, repaired=False):
    """Return whether a packet has arrived, and the value of the receiver."""
    outputs, sent, value = np.zeros((runs, len(data), 2)), -math.inf, np.zeros(runs)
    for step, reading in enumerate(data):
        if repaired or abs(reading - sent) > LIMIT:
            sent, value = reading, reading + rng.laplace(size=runs)
            outputs[:, step, 0] = 1
        outputs[:, step, 1] = value
    return outputs


BUG = make_bug(
    receive,
    __doc__,
    "stream",
    (FIRST, SECOND),
    claims.pure(1.0),
    Truths(math.inf, 0.2, "closed form"),
    ("packet", "value"),
)
