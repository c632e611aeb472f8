"""A column without bounds gets no noise.

Reference: smartnoise-sdk issue 317, not specifying column bounds leaves a column with no noise; repaired by pull
request 318.

Ours: A query returns a sum and a count. The count has Laplace noise of scale 1; the sum has noise for the declared
bounds, and none if no bounds are declared.

Neighbours: One value changes by 1.

Why: Without bounds the sensitivity is unknown. The code took an unknown sensitivity for no need of noise, where it
should have refused.

Repair: Bounds are declared, here [0, 4], and each of the two numbers has half of epsilon.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

UPPER = 4.0


def query(data, runs, rng, repaired=False):
    """Return sums and noisy counts."""
    count = len(data) + rng.laplace(scale=2.0 if repaired else 1.0, size=runs)
    total = data.sum() + (rng.laplace(scale=2 * UPPER, size=runs) if repaired else np.zeros(runs))
    return np.stack([total, count], axis=1)


BUG = make_bug(
    query,
    __doc__,
    "library",
    (np.array([3.0, 1.0]), np.array([4.0, 1.0])),
    claims.pure(1.0),
    Truths(math.inf, 1 / (2 * UPPER), "closed form"),
    ("sum", "count"),
)
