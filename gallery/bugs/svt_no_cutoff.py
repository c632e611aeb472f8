"""The sparse vector technique without a limit on the number of answers.

Reference: Chen, Xiao, Zhang and Xu 2015; analysed as Algorithm 6 by Lyu, Su and Li, Understanding the sparse vector
technique, 2017.

Ours: Eight queries and a threshold get Laplace noise of scale 2; the claim is epsilon 1, as for a single answer.

Neighbours: Every query changes by at most 1; here the first four are 0 and the others 1, or the other way round.

Why: Each 'above' costs. Without a limit on their number, eight answers cost more than epsilon.

Repair: The mechanism stops at the first 'above'; the noise is 2 for the threshold and 4 for the queries.
"""

import itertools

import numpy as np

from dpverify import claims
from gallery.bugs.bug import Truths, make_bug

HALF, SCALE = 4, 2.0


def sparse_vector(data, runs, rng, repaired=False):
    """Return which queries are above the threshold."""
    scale = 2 * SCALE if repaired else SCALE
    above = data + rng.laplace(scale=scale, size=(runs, len(data))) > rng.laplace(scale=SCALE, size=(runs, 1))
    return (above & (above.cumsum(axis=1) <= 1) if repaired else above).astype(float)


def truth():
    """Return the exact epsilon: the largest log-ratio of all patterns of answers, by quadrature over the threshold."""
    t = np.linspace(-60, 60, 120_001)
    weight = np.exp(-np.abs(t) / SCALE)
    zero, one = (np.where(t < q, 1 - 0.5 * np.exp((t - q) / SCALE), 0.5 * np.exp((q - t) / SCALE)) for q in (0.0, 1.0))

    def probability(first, second, i, j):
        return (weight * first**i * (1 - first) ** (HALF - i) * second**j * (1 - second) ** (HALF - j)).sum()

    pairs = itertools.product(range(HALF + 1), repeat=2)
    return float(max(np.log(probability(zero, one, i, j) / probability(one, zero, i, j)) for i, j in pairs))


BUG = make_bug(
    sparse_vector,
    __doc__,
    "algorithm",
    (np.repeat([0.0, 1.0], HALF), np.repeat([1.0, 0.0], HALF)),
    claims.pure(1.0),
    Truths(truth(), 1.0, "quadrature; theorem", repaired_is_exact=False),
)
