"""Whether a claim that is a curve holds over all unions of the cells of a partition (docs/method.md, section 5.10).

An upper bound on delta at one epsilon is a line above all points (P_j(E), P_i(E)) of unions E of cells. The lines at
several epsilons, which the claim determines, share alpha equally. They enclose all unions in a polygon. The claim holds
over the partition if its boundary lies above every corner of the polygon, because the boundary is concave.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpverify.stats.binomial import FloatArray
from dpverify.stats.claim_kinds import Claim
from dpverify.stats.supporting_lines import Lines, lower_envelope, with_mirror_images
from dpverify.stats.upper_bound import epsilon_upper_bound, frontier, frontier_bounds

MAX_SUPPORTING_LINES = 12
SMALLEST_PROBABILITY = 1e-4  # of an event whose supporting line is used
CORNER_ROUNDING = 1e-12  # relative, of the position of a corner


def supporting_epsilons(claim: Claim) -> FloatArray:
    """Return the epsilons at which the partition is bounded: logarithms of slopes of the claim's boundary.

    They depend on the claim alone. Negative epsilons follow from the positive ones, because both orders are bounded.

    Examples
    --------
    >>> from dpverify.stats.claims import gaussian
    >>> supporting_epsilons(gaussian(1.0)).round(1).tolist()
    [0.0, 0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.0, 2.3, 2.6, 2.9, 3.2]
    """
    q = np.geomspace(SMALLEST_PROBABILITY, 0.5, 4000)
    slopes = np.diff(claim.boundary(q)) / np.diff(q)
    epsilons, number = np.unique(np.log(np.maximum(slopes, 1.0)).round(3), return_counts=True)
    repeated = number > 1
    # A claim of few points has few slopes, apart from those at its corners.
    if repeated.sum() <= MAX_SUPPORTING_LINES and number[repeated].sum() > 0.9 * slopes.size:
        return np.unique([0.0, *epsilons[repeated]])
    return np.linspace(0.0, epsilons[-1], MAX_SUPPORTING_LINES)


def enclosing_lines(
    counts1: ArrayLike, counts2: ArrayLike, runs: int, alpha: float, epsilons: FloatArray, all_occupied: bool
) -> Lines:
    """Return lines above the points (P_j(E), P_i(E)) of all unions E of cells in both orders, at confidence 1 - alpha.

    The bound at each epsilon has an equal share of alpha, and so has the bound on epsilon at delta 0, which exists only
    if every cell of the partition was hit.
    """
    level = alpha / (len(epsilons) + 1)
    orders = [frontier(a, b, runs, level) for a, b in ((counts1, counts2), (counts2, counts1))]
    deltas = np.maximum(0.0, np.maximum(*(frontier_bounds(line, epsilons) for line in orders)))
    pure = epsilon_upper_bound(counts1, counts2, runs, 0.0, level) if all_occupied else math.inf
    if pure < math.inf:
        epsilons, deltas = np.append(epsilons, pure), np.append(deltas, 0.0)
    return lower_envelope(*with_mirror_images(epsilons, deltas))


def holds_on_partition(
    claim: Claim, counts1: ArrayLike, counts2: ArrayLike, runs: int, alpha: float, all_occupied: bool
) -> bool:
    """Return whether the claim holds for all unions of the cells, at confidence 1 - alpha.

    Parameters
    ----------
    claim : Claim
        The claim.
    counts1, counts2 : array_like
        The counts of the cells under the two data sets.
    runs : int
        The runs per data set.
    alpha : float
        The probability of an error.
    all_occupied : bool
        Whether the counts contain every cell of the partition.

    Examples
    --------
    >>> from dpverify.stats.claims import gaussian
    >>> holds_on_partition(gaussian(1.0), [60_000, 40_000], [40_000, 60_000], 100_000, 0.05, True)
    True
    >>> holds_on_partition(gaussian(0.4), [60_000, 40_000], [40_000, 60_000], 100_000, 0.05, True)
    False
    """
    first, second = np.asarray(counts1, float), np.asarray(counts2, float)
    for a, b in ((first, second), (second, first)):
        order = np.argsort(-a / np.maximum(a + b, 1.0), kind="stable")
        q, p = np.minimum(np.cumsum(b[order]) / runs, 1.0), np.cumsum(a[order]) / runs
        if (p > claim.boundary(q)).any():  # not even the observed shares satisfy the claim
            return False
    lines = enclosing_lines(counts1, counts2, runs, alpha, supporting_epsilons(claim), all_occupied)
    # The lines are cut off at 1, which makes one more corner where the flattest of them reaches it.
    full = (1.0 - lines.deltas[-1]) / math.exp(lines.epsilons[-1])
    corners = np.r_[0.0, lines.corners, min(max(full, 0.0), 1.0), 1.0]
    # A corner is the end of two lines; both are evaluated, so that the rounding of its position does no harm.
    shifted = np.clip(np.r_[corners * (1.0 - CORNER_ROUNDING), corners * (1.0 + CORNER_ROUNDING)], 0.0, 1.0)
    lowest = np.r_[lines.lowest(shifted), lines.lowest(corners)]
    return bool((lowest <= claim.boundary(np.r_[shifted, corners])).all())
