"""A threshold release whose delta leaves out the threshold itself.

Reference: opendp issue 2922, make_laplace_threshold and make_gaussian_threshold both report an incorrectly small delta.

Ours: Counts per key get discrete Laplace noise of scale 1, and a key is released if its noisy count reaches 5. The
claimed delta is the probability of a noisy count above 5, as the thread describes; the code is ours.

Neighbours: One person, who has a key of their own, is added.

Why: A count that equals the threshold is released, but its probability is missing in the delta: the key of one person
appears in 1.3% of the releases instead of 0.5%, and it never appears without this person.

Repair: A key is released only if its noisy count exceeds the threshold.
"""

import math

from dpverify import claims
from gallery.bugs.bug import OBJECT_RUNS, Truths, make_bug

THRESHOLD = 5


def release(data, runs, rng, repaired=False):
    """Return the released keys with their noisy counts."""
    p, counts = 1 - math.exp(-1), {key: data.count(key) for key in data}
    noisy = {key: count + rng.geometric(p, runs) - rng.geometric(p, runs) for key, count in counts.items()}
    least = THRESHOLD + repaired
    return [{key: int(row[run]) for key, row in noisy.items() if row[run] >= least} for run in range(runs)]


def tail(least):
    """Return the probability that discrete Laplace noise of scale 1 is at least this positive number."""
    return math.exp(-least) / (1 + math.exp(-1))


BUG = make_bug(
    release,
    __doc__,
    "library",
    ([], ["u3"]),
    claims.approximate(1.0, tail(THRESHOLD)),
    Truths(tail(THRESHOLD - 1), tail(THRESHOLD), "closed form"),
    runs=OBJECT_RUNS,
)
