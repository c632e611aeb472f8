"""The binary mechanism with noise for one node too few.

Reference: Chan, Shi and Song, Private and continual release of statistics, 2011, with noise log2(T)/epsilon as common
implementations have it; whether the paper excludes the last step is not clear to us.

Ours: Four counts; sums of the nodes of a binary tree get Laplace noise, and the running totals are published.

Neighbours: The first count changes by 1.

Why: With four counts the first one is in three nodes, a leaf, a pair and the root. Noise of scale log2(4) = 2 pays for
two of them.

Repair: Noise of scale 1 + log2(4) = 3.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

DEPTH = 2
# Running totals from the nodes: first leaf, first pair, third leaf, root.
NODES = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]])
TOTALS = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]])


def running_totals(data, runs, rng, repaired=False):
    """Return noisy running totals."""
    scale = DEPTH + 1 if repaired else DEPTH
    nodes = NODES @ data + rng.laplace(scale=scale, size=(runs, len(NODES)))
    return (nodes @ TOTALS.T)[:, :, None]


BUG = make_bug(
    running_totals,
    __doc__,
    "stream",
    (np.zeros(4), np.array([1.0, 0.0, 0.0, 0.0])),
    claims.pure(1.0),
    Truths((DEPTH + 1) / math.log2(4), 1.0, "closed form"),
)
