"""The sparse vector technique without noise on the queries.

Reference: Stoddard, Chen and Machanavajjhala 2014; analysed as Algorithm 5 by Lyu, Su and Li, Understanding the sparse
vector technique, 2017.

Ours: Two queries are compared with a noisy threshold; the answers 'above' and 'below' are published.

Neighbours: Every query changes by at most 1; here (0, 1) and (1, 0).

Why: One threshold serves both queries. 'Below, above' is possible only if the second query is larger than the first, so
the answer rules out one of the two datasets.

Repair: The queries get noise, too, and the mechanism stops at the first 'above'.
"""

import math

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug


def sparse_vector(data, runs, rng, repaired=False):
    """Return which queries are above the threshold."""
    if not repaired:
        return (data > rng.laplace(size=(runs, 1))).astype(float)
    above = data + rng.laplace(scale=4.0, size=(runs, len(data))) > rng.laplace(scale=2.0, size=(runs, 1))
    return (above & (above.cumsum(axis=1) <= 1)).astype(float)


BUG = make_bug(
    sparse_vector,
    __doc__,
    "algorithm",
    (np.array([0.0, 1.0]), np.array([1.0, 0.0])),
    claims.pure(1.0),
    Truths(math.inf, 1.0, "theorem", repaired_is_exact=False),
    ("query 1 is above", "query 2 is above"),
)
