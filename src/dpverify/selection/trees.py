"""An adaptive partition, which the paper names as future work: a tree that is fine where the distributions differ.

The runs are binned once. A node is evaluated for all coordinates at once, from one table of counts per coordinate, bin
and data set. Only the smaller child of a split is counted; the table of the other one is the difference to its parent.
"""

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


class BinnedRuns(NamedTuple):
    """Runs of both data sets as cells of one table of counts.

    Attributes
    ----------
    cells : ndarray of shape (runs, coordinates)
        For each coordinate of a run, the index of its bin and data set in the flat table.
    shape : tuple of int
        The shape of the table: coordinates, bins and 2.
    """

    cells: np.ndarray
    shape: tuple[int, int, int]

    def count(self, rows: np.ndarray) -> np.ndarray:
        """Return the table of some runs."""
        number = int(np.prod(self.shape))
        return np.bincount(self.cells[rows].ravel(), minlength=number).reshape(self.shape).astype(np.int32)

    def above(self, rows: np.ndarray, split: Split) -> np.ndarray:
        """Return which of these runs lie above the edge of a split."""
        bins_before = split.feature * self.shape[1] + split.edge + 1
        return self.cells[rows, split.feature] >= 2 * bins_before


class Node(NamedTuple):
    """A leaf of the growing tree that can be split: its number, its runs, their counts and its best split."""

    number: int
    rows: np.ndarray
    table: np.ndarray
    split: Split


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
    runs = bin_runs(binning, first, second)
    # The log-likelihood of a node is a sum of these terms, so that no logarithm is needed later.
    whole_numbers = np.arange(len(runs.cells) + 1.0)
    terms = whole_numbers * np.log(np.maximum(whole_numbers, 1.0))
    feature, threshold, left, right, depth = [0], [0.0], [0], [0], [0]
    heap: list[tuple[float, int, Node]] = []

    def consider(number: int, rows: np.ndarray, table: np.ndarray) -> None:
        split = find_best_split(table, len(rows), terms, least)
        if split is not None:
            heapq.heappush(heap, (-split.gain, number, Node(number, rows, table, split)))

    rows = np.arange(len(runs.cells))
    consider(0, rows, runs.count(rows))
    n_leaves = 1
    while heap and n_leaves < leaves:
        _, number, node = heapq.heappop(heap)
        split = node.split
        feature[number], threshold[number] = split.feature, float(binning.edges[split.feature, split.edge])
        left[number], right[number] = len(feature), len(feature) + 1
        above = runs.above(node.rows, split)
        children = node.rows[~above], node.rows[above]
        smaller = int(len(children[1]) < len(children[0]))
        counted = runs.count(children[smaller])
        tables = [node.table - counted] * 2
        tables[smaller] = counted
        for child, table in zip(children, tables, strict=True):
            feature.append(0)
            threshold.append(0.0)
            left.append(len(left))
            right.append(len(right))
            depth.append(depth[number] + 1)
            consider(len(feature) - 1, child, table)
        n_leaves += 1
    return make_tree(feature, threshold, left, right, max(depth))


def bin_runs(binning: Binning, first: np.ndarray, second: np.ndarray) -> BinnedRuns:
    """Return the runs of both data sets as cells of one table of counts."""
    n_coordinates, n_bins = len(binning.edges), binning.edges.shape[1] + 1
    cells = np.concatenate([binning.bins(first), binning.bins(second)]).astype(np.int32)
    cells += n_bins * np.arange(n_coordinates, dtype=np.int32)
    cells *= 2
    cells[len(first) :] += 1
    return BinnedRuns(cells, (n_coordinates, n_bins, 2))


def find_best_split(table: np.ndarray, runs: int, terms: np.ndarray, least: int) -> Split | None:
    """Return the best split of a node over all coordinates; None if no split is significant.

    Parameters
    ----------
    table : ndarray of shape (coordinates, bins, 2)
        The counts of the node.
    runs : int
        The runs of the node.
    terms : ndarray
        The terms `n log n` for the whole numbers n.
    least : int
        The smallest number of runs in a leaf.
    """
    if runs < 2 * least:
        return None
    total1, total2 = (int(total) for total in table[0].sum(axis=0))
    # Both data sets in arrays of their own: sums over an axis of length 2 are slow.
    lower1, lower2 = (np.cumsum(table[:, :-1, side], axis=1) for side in (0, 1))
    below = lower1 + lower2
    likelihood = terms.take(lower1) + terms.take(lower2)
    likelihood -= terms.take(below)
    likelihood += terms.take(total1 - lower1) + terms.take(total2 - lower2)
    likelihood -= terms.take(runs - below)
    likelihood[(below < least) | (below > runs - least)] = -np.inf
    unsplit = terms[total1] + terms[total2] - terms[runs]
    coordinate, edge = np.unravel_index(int(np.argmax(likelihood)), likelihood.shape)
    gain = float(likelihood[coordinate, edge] - unsplit)
    return Split(gain, int(coordinate), int(edge)) if gain > MIN_GAIN else None
