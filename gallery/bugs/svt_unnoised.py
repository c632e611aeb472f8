"""A sparse vector filter that passes some values without noise.

Reference: NVFlare issue 343, SVTPrivacy might be incorrect; repaired by pull request 348.

Ours: Weights whose noisy value exceeds a noisy threshold are accepted. As in the thread, noise is added to a random
choice of the accepted weights, weights that were not accepted become zero, and the other accepted ones are published as
they are. The numbers (four weights, two of them released, epsilon 1 for each of three parts) are ours.

Neighbours: Every weight changes by at most 0.1.

Why: Accepted weights that were not chosen are neither noisy nor zero, but exact.

Repair: At most two weights are accepted, all of them get noise, and all others are zero.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

CHANGE, RELEASED, THRESHOLD = 0.1, 2, 0.45


def filter_weights(data, runs, rng, repaired=False):
    """Return filtered weights."""
    shape = runs, len(data)
    threshold = THRESHOLD + rng.laplace(scale=CHANGE, size=(runs, 1))
    accepted = data + rng.laplace(scale=2 * RELEASED * CHANGE, size=shape) > threshold
    noisy = data + rng.laplace(scale=RELEASED * CHANGE, size=shape)
    # The first accepted weights, or some at random, get noise.
    order = np.arange(len(data)) if repaired else rng.random(shape)
    rank = np.argsort(np.argsort(np.where(accepted, order, np.inf), axis=1), axis=1)
    chosen = accepted & (rank < RELEASED)
    return np.where(chosen, noisy, 0.0 if repaired else np.where(accepted, data, 0.0))


BUG = make_bug(
    filter_weights,
    __doc__,
    "library",
    (np.full(4, 0.5), np.full(4, 0.6)),
    claims.pure(3.0),
    Truths(math.inf, 3.0, "theorem", repaired_is_exact=False),
    ("weight 1", "weight 2", "weight 3", "weight 4"),
)
