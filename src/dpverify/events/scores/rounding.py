"""A score of rounding errors, for `learn=`: noise in double precision can show the data by its low bits.

The sum of an answer and noise is rounded to a lattice that depends on the answer, so that some outputs are possible for
one data set only. This leak is real, and it has little to do with the distribution of the noise. Therefore the score
does not compete unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpverify.events.scores.base import Features, Score
from dpverify.events.scores.interactions import PRIOR_COUNT, Interaction
from dpverify.events.scores.transformed import Transformed
from dpverify.events.scores.transforms import LowBits

LOWEST_BITS = np.arange(-60.5, -8.0)  # edges of the exponents of the lowest bits
EXPONENTS = np.arange(-26.5, 26.0)  # edges of the exponents of the values
MAX_TABLES = 4


def rounding_score(candidates: Sequence[float] = (0.0,)) -> Callable[[np.ndarray, np.ndarray], Score]:
    """Return a function for `learn=` that fits a score to the low bits of the outputs.

    Parameters
    ----------
    candidates : sequence of float, default (0.0,)
        Values from which the distance of every output is also looked at, for example the true answers.

    Returns
    -------
    callable
        Maps the training runs of both data sets to a score, which is plain data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first, second = (answer + rng.laplace(size=(4000, 1, 1)) for answer in (0.0, 1.0))
    >>> score = rounding_score()(first, second)
    >>> bool(score.values(first[:, 0]).max() > 3)  # these low bits occur with the first data set only
    True
    """
    values = np.asarray(candidates, float)

    def fit(first: np.ndarray, second: np.ndarray) -> Score:
        sides = [side.reshape(len(side), -1) for side in (first, second)]
        coordinates, own = (a.ravel() for a in np.meshgrid(np.arange(sides[0].shape[1]), values, indexing="ij"))
        counts = [_count(LowBits(coordinates, own), side) for side in sides]
        tables = np.log(counts[0] / counts[1])
        information = ((counts[0] - counts[1]) * tables).sum(1)
        kept = np.sort(np.argsort(-information, kind="stable")[:MAX_TABLES])
        edges = np.tile(np.stack([LOWEST_BITS, EXPONENTS]), (kept.size, 1, 1))
        subsets = np.stack([np.arange(kept.size), kept.size + np.arange(kept.size)], axis=1)
        identity = Features(np.zeros(2 * kept.size), None)
        return Transformed(LowBits(coordinates[kept], own[kept]), Interaction(identity, subsets, edges, tables[kept]))

    return fit


def _count(transform: LowBits, flat: np.ndarray) -> np.ndarray:
    """Return the number of runs in every joint bin of a lowest bit and an exponent, plus a prior count."""
    bits = transform.values(flat)
    number, width = len(transform.coordinates), len(EXPONENTS) + 1
    rows = []
    for r in range(number):
        cells = np.searchsorted(LOWEST_BITS, bits[:, r]) * width + np.searchsorted(EXPONENTS, bits[:, number + r])
        rows.append(np.bincount(cells, minlength=width * (len(LOWEST_BITS) + 1)) + PRIOR_COUNT)
    return np.stack(rows)
