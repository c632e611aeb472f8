"""An adaptive partition, which the paper names as future work: a tree that is fine where the distributions differ."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from dpverify.events.cells import Tree, make_tree
from dpverify.events.scores.additive import Binning

MIN_GAIN = 6.0  # nats; some hundred splits under equal distributions rarely gain more


class Split(NamedTuple):
    """The best split of a node."""

    gain: float
    feature: int
    edge: int


def grow_tree(binning: Binning, first: np.ndarray, second: np.ndarray, leaves: int, least: int) -> Tree:
    """Grow a tree on training runs; the split with the largest gain in log-likelihood comes first.

    Parameters
    ----------
    binning : Binning
        Bins of the coordinates themselves, so that a leaf is a box.
    first, second : ndarray of shape (runs, coordinates)
        Training runs of both data sets.
    leaves : int
        The largest number of leaves.
    least : int
        The smallest number of training runs in a leaf.
    """
    flat = np.concatenate([first, second])
    side = np.repeat([0, 1], [len(first), len(second)])
    bins = np.stack([np.searchsorted(edges, flat[:, j]) for j, edges in enumerate(binning.edges)], axis=1)
    n_bins = binning.edges.shape[1] + 1
    feature, threshold, left, right, depth = [0], [0.0], [0], [0], [0]
    heap: list[tuple[float, int, np.ndarray, Split]] = []

    def consider(node: int, rows: np.ndarray) -> None:
        split = _best_split(bins[rows], side[rows], n_bins, least)
        if split is not None:
            heapq.heappush(heap, (-split.gain, node, rows, split))

    consider(0, np.arange(len(flat)))
    n_leaves = 1
    while heap and n_leaves < leaves:
        _, node, rows, split = heapq.heappop(heap)
        feature[node], threshold[node] = split.feature, float(binning.edges[split.feature, split.edge])
        left[node], right[node] = len(feature), len(feature) + 1
        above = bins[rows, split.feature] > split.edge
        for child in (rows[~above], rows[above]):
            feature.append(0)
            threshold.append(0.0)
            left.append(len(left))
            right.append(len(right))
            depth.append(depth[node] + 1)
            consider(len(feature) - 1, child)
        n_leaves += 1
    return make_tree(feature, threshold, left, right, max(depth))


def _best_split(bins: np.ndarray, side: np.ndarray, n_bins: int, least: int) -> Split | None:
    """Return the best split of some runs; None if no split is significant."""
    if len(bins) < 2 * least:
        return None
    best: Split | None = None
    for j in range(bins.shape[1]):
        table = np.bincount(2 * bins[:, j] + side, minlength=2 * n_bins).reshape(n_bins, 2)
        below = np.cumsum(table, axis=0)
        total = below[-1]
        lower, upper = below[:-1], total - below[:-1]
        gain = _log_likelihood(lower) + _log_likelihood(upper) - _log_likelihood(total)
        gain = np.where((lower.sum(1) >= least) & (upper.sum(1) >= least), gain, -np.inf)
        edge = int(np.argmax(gain))
        if gain[edge] > (best.gain if best else MIN_GAIN):
            best = Split(float(gain[edge]), j, edge)
    return best


def _log_likelihood(counts: np.ndarray) -> np.ndarray:
    """Return the maximum log-likelihood of the two data sets' counts in a node."""
    counts = np.asarray(counts, float)
    total = counts.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(counts > 0, counts * np.log(counts / total[..., None]), 0.0)
    return terms.sum(-1)
