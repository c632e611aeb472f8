"""The adaptive partition, the paper's future work: a tree that refines where the laws differ and mass is."""

from __future__ import annotations

import heapq

import numpy as np

from dpverify.events.partition import Tree, make_tree
from dpverify.selection.learning import Binning


def grow_tree(binning: Binning, first: np.ndarray, second: np.ndarray, leaves: int, least: int) -> Tree:
    """A tree whose splits gain most in telling the sides apart (entropy), the best split of all leaves first.

    It is grown on the training runs, refines where the laws differ and mass is, and never has a leaf with fewer than
    `least` of them. `binning` must hold the coordinates themselves, so that a leaf is a box.
    """
    flat = np.concatenate([first, second])
    side = np.repeat([0, 1], [len(first), len(second)])
    z = np.stack([np.searchsorted(e, flat[:, j]) for j, e in enumerate(binning.edges)], axis=1)
    number = binning.edges.shape[1] + 1
    feature, threshold, left, right, depth = [0], [0.0], [0], [0], [0]
    heap: list[tuple[float, int, np.ndarray, int, int]] = []

    def consider(node: int, rows: np.ndarray) -> None:
        split = _best_split(z[rows], side[rows], number, least)
        if split is not None:
            heapq.heappush(heap, (-split[0], node, rows, split[1], split[2]))

    consider(0, np.arange(len(flat)))
    count = 1
    while heap and count < leaves:
        _, node, rows, j, at = heapq.heappop(heap)
        feature[node], threshold[node] = j, float(binning.edges[j, at])
        left[node], right[node] = len(feature), len(feature) + 1
        above = z[rows, j] > at
        for child in (rows[~above], rows[above]):
            feature.append(0)
            threshold.append(0.0)
            left.append(len(left))
            right.append(len(right))
            depth.append(depth[node] + 1)
            consider(len(feature) - 1, child)
        count += 1
    return make_tree(feature, threshold, left, right, max(depth))


def _best_split(z: np.ndarray, side: np.ndarray, number: int, least: int) -> tuple[float, int, int] | None:
    """(gain, feature, edge) of the best split; None where none gains more than chance would."""
    if len(z) < 2 * least:
        return None
    best: tuple[float, int, int] | None = None
    for j in range(z.shape[1]):
        below = np.cumsum(np.bincount(2 * z[:, j] + side, minlength=2 * number).reshape(number, 2), axis=0)
        whole = below[-1]
        lower, upper = below[:-1], whole - below[:-1]
        gain = _information(lower) + _information(upper) - _information(whole)
        gain = np.where((lower.sum(1) >= least) & (upper.sum(1) >= least), gain, -np.inf)
        at = int(np.argmax(gain))
        if gain[at] > (best[0] if best else 6.0):  # nats; chance rarely gains 6 over some hundred splits
            best = float(gain[at]), j, at
    return best


def _information(counts: np.ndarray) -> np.ndarray:
    """Log-likelihood of the two sides' counts under their own share."""
    counts = np.asarray(counts, float)
    total = counts.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(counts > 0, counts * np.log(counts / total[..., None]), 0.0)
    return terms.sum(-1)
