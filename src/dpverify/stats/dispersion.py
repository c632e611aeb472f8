"""Are runs independent from block to block? A test for over-dispersion of an event's counts.

Every statement of a report assumes that runs are independent and identically distributed. If so, the counts of a fixed
event in blocks of equal size are independent binomial variables with one common probability. A mechanism that shares
noise between the runs of a block violates this: its counts vary more from block to block than binomial counts.

The test is Pearson's chi-square test of homogeneity. Blocks are merged until the expected counts of the event and its
complement are at least 25, so that the chi-square approximation holds far in the tail.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

MIN_EXPECTED_COUNT = 25  # in every group of blocks, of the event and of its complement
MAX_P_VALUE = 1e-6  # of all tests of one report together; below it the runs are considered dependent


def homogeneity_p_value(counts: ArrayLike, sizes: ArrayLike) -> float:
    """Return the p-value of the hypothesis that all blocks have the same probability of the event.

    Parameters
    ----------
    counts : array_like of int
        How many runs of each block fell into the event, in the order of the blocks.
    sizes : array_like of int
        The number of runs of each block.

    Returns
    -------
    float
        The p-value; 1.0 if fewer than two groups of blocks reach the minimum expected count.

    Examples
    --------
    >>> round(homogeneity_p_value([48, 52, 50, 55], [100, 100, 100, 100]), 2)
    0.78
    >>> homogeneity_p_value([0, 100, 0, 100], [100, 100, 100, 100]) < 1e-6
    True
    """
    counts, sizes = np.asarray(counts, float), np.asarray(sizes, float)
    runs, hits = sizes.sum(), counts.sum()
    rarer = min(hits, runs - hits)
    if rarer < 2 * MIN_EXPECTED_COUNT:
        return 1.0
    runs_per_group = MIN_EXPECTED_COUNT * runs / rarer
    group = np.minimum((np.cumsum(sizes) - sizes) // runs_per_group, np.floor(runs / runs_per_group) - 1).astype(int)
    used, group = np.unique(group, return_inverse=True)
    if used.size < 2:
        return 1.0
    group_counts, group_sizes = np.bincount(group, counts), np.bincount(group, sizes)
    share = hits / runs
    statistic = ((group_counts - share * group_sizes) ** 2 / (group_sizes * share * (1 - share))).sum()
    return float(scipy.special.chdtrc(used.size - 1, statistic))


def pair_p_value(discordant: int, hits: int, pairs: int) -> float:
    """Return the exact p-value of independent runs, from pairs of runs of the same block.

    If all runs are independent, then, given how many of them fell into an event, all arrangements of these hits are
    equally likely. Runs that share noise agree too often, so there are too few pairs of which one run is a hit. The
    test needs few runs, where `homogeneity_p_value` has too small counts.

    Parameters
    ----------
    discordant : int
        The pairs of which exactly one run fell into the event.
    hits : int
        The runs that fell into the event.
    pairs : int
        The number of pairs.

    Examples
    --------
    >>> round(pair_p_value(1, 2, 2), 3)  # impossible counts of discordant pairs have no probability
    0.333
    >>> round(pair_p_value(0, 4, 4), 3)
    0.086
    """
    numbers = np.arange(hits % 2, min(hits, 2 * pairs - hits) + 1, 2)  # possible numbers of discordant pairs
    both = (hits - numbers) / 2
    log_ways = (
        scipy.special.gammaln(pairs + 1)
        - scipy.special.gammaln(both + 1)
        - scipy.special.gammaln(numbers + 1)
        - scipy.special.gammaln(pairs - both - numbers + 1)
        + numbers * np.log(2.0)
    )
    ways = np.exp(log_ways - log_ways.max())
    return float(min(ways[numbers <= discordant].sum() / ways.sum(), 1.0))
