"""Kinds of cells: rules that map the coordinates of an output to integer digits, and digits back to boxes.

A cell is identified by one digit per coordinate (`Bins`, `Edges`) or by a single digit (`Tree`, the number of a leaf).
`Atoms` adds digits for values that have positive probability. `Partition` combines these digits into one cell code.

All kinds are NamedTuples of arrays. They are therefore pytrees for JAX and plain data for JSON, and each method works
on NumPy and on JAX arrays. `flat` always stands for outputs of shape (runs, steps * dimensions).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpverify.util.arrays import Array, array_namespace, contiguous_transpose, digitize, fori_loop
from dpverify.util.exact_edges import exact_edges

CHANCE_ATOMS = 0.05  # the expected number of values of one coordinate that are taken for atoms by chance
MAX_EXACT_EDGES = 4096  # the exact edges of more bins are not computed

Box = tuple[np.ndarray, np.ndarray]  # the lowest and the highest value of every coordinate


class Atoms(NamedTuple):
    """Values with positive probability, for the coordinates that have such values.

    Attributes
    ----------
    coordinates : ndarray of shape (J,)
        The coordinates that have atoms.
    values : ndarray of shape (J, most)
        The atoms of each of these coordinates, sorted and padded with infinity.
    weights : ndarray of shape (J,)
        The weight of each digit in the code of a cell.
    """

    coordinates: np.ndarray
    values: np.ndarray
    weights: np.ndarray

    def digits(self, flat: Array) -> list[Array]:
        """Return one digit per coordinate with atoms: 0 for a value that is no atom, else the atom's rank from 1."""
        xp = array_namespace(flat)
        digits = []
        for j in range(self.values.shape[0]):
            x, values = flat[:, self.coordinates[j]], self.values[j]
            index = xp.clip(xp.searchsorted(values, x), 0, values.shape[0] - 1)
            digits.append(xp.where(values[index] == x, index + 1, 0))
        return digits

    def index(self, flat: Array) -> Array:
        """Return the weighted sum of the digits: the contribution of the atoms to the code of a cell."""
        return sum(digit * self.weights[j] for j, digit in enumerate(self.digits(flat)))  # type: ignore[return-value]


class Bins(NamedTuple):
    """Bins of equal width for every coordinate, over the box around each step's ellipsoid: the grid of the paper.

    The axes are the coordinates of the output, so a cell is a product of intervals of released values.

    Attributes
    ----------
    low : ndarray of shape (coordinates,)
        The lower end of the first bin.
    scale : ndarray of shape (coordinates,)
        One over the width of a bin; 0 for a coordinate without spread.
    top : ndarray of shape (coordinates,)
        The number of the last bin.
    weights : ndarray of shape (coordinates,)
        The weight of each digit in the code of a cell.
    """

    low: np.ndarray
    scale: np.ndarray
    top: np.ndarray
    weights: np.ndarray

    @property
    def radix(self) -> list[int]:
        """The number of values of every digit."""
        return [int(top) + 1 for top in self.top]

    def with_weights(self, weights: np.ndarray) -> Bins:
        """Return the same bins with other digit weights."""
        return self._replace(weights=weights)

    def digits(self, flat: Array) -> Array:
        """Return the bin of every coordinate, of shape (runs, coordinates)."""
        xp = array_namespace(flat)
        return xp.clip((flat - self.low) * self.scale, 0, self.top).astype(np.int64)

    def index(self, flat: Array) -> Array:
        """Return the weighted sum of the digits: the contribution of the bins to the code of a cell."""
        if self.low.shape[0] == 1:
            return self.digits(flat)[:, 0] * self.weights[0]
        return self.digits(flat) @ self.weights

    def box(self, digits: np.ndarray, coordinates: int) -> Box:
        """Return the box of a cell; the first and the last bin extend to infinity."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = self.low + np.stack([digits, digits + 1]) / self.scale
        # The region limits the first and the last bin, so they have no outer end of their own.
        low = np.where((digits > 0) & (self.scale > 0), ends[0], -np.inf)
        high = np.where((digits < self.top) & (self.scale > 0), ends[1], np.inf)
        return low, high

    def count(self, atoms: Atoms | None) -> int:
        """Return the number of cells. A coordinate takes either a value in a bin or an atom, not both."""
        per_coordinate = self.top.astype(int) + 1
        if atoms is not None:
            per_coordinate[atoms.coordinates] += np.isfinite(atoms.values).sum(1)
        return math.prod(int(number) for number in per_coordinate)

    def coordinate_edges(self, coordinate: int) -> np.ndarray:
        """Return the edges between the bins of one coordinate."""
        if self.scale[coordinate] <= 0:
            return np.zeros(0)
        return self.low[coordinate] + np.arange(1, int(self.top[coordinate]) + 1) / self.scale[coordinate]

    def interval_edges(self) -> np.ndarray | None:
        """Return the exact edges of the only coordinate, as `digits` computes them; None if there are many."""
        if self.top[0] > MAX_EXACT_EDGES:
            return None
        guess = self.coordinate_edges(0)
        return exact_edges(lambda x: (x - self.low) * self.scale >= np.arange(1, guess.size + 1), guess)


class Edges(NamedTuple):
    """Bins of unequal width for every coordinate. An atom a is the bin from the number just below a up to a.

    Attributes
    ----------
    edges : ndarray of shape (coordinates, E)
        The sorted edges of every coordinate, padded with infinity.
    weights : ndarray of shape (coordinates,)
        The weight of each digit in the code of a cell.
    """

    edges: np.ndarray
    weights: np.ndarray

    @property
    def radix(self) -> list[int]:
        """The number of values of every digit."""
        return [self.edges.shape[1] + 1] * len(self.edges)

    def with_weights(self, weights: np.ndarray) -> Edges:
        """Return the same bins with other digit weights."""
        return self._replace(weights=weights)

    def digits(self, flat: Array) -> Array:
        """Return the bin of every coordinate, of shape (runs, coordinates)."""
        return array_namespace(flat).stack(self._columns(flat), axis=1)

    def index(self, flat: Array) -> Array:
        """Return the weighted sum of the digits: the contribution of the bins to the code of a cell."""
        return sum(digits * self.weights[j] for j, digits in enumerate(self._columns(flat)))  # type: ignore[return-value]

    def _columns(self, flat: Array) -> list[Array]:
        return [digitize(edges, x) for edges, x in zip(self.edges, contiguous_transpose(flat), strict=True)]

    def box(self, digits: np.ndarray, coordinates: int) -> Box:
        """Return the box of a cell; the limits are equal where the bin holds an atom only."""
        ends = np.pad(self.edges, ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf)))
        rows = np.arange(len(digits))
        low, high = ends[rows, digits], ends[rows, digits + 1]
        return np.where(np.nextafter(low, np.inf) == high, high, low), high

    def count(self, atoms: Atoms | None) -> int:
        """Return the number of cells; digits of atoms multiply it."""
        return math.prod(self.radix) * _atom_combinations(atoms)

    def coordinate_edges(self, coordinate: int) -> np.ndarray:
        """Return the edges between the bins of one coordinate."""
        return self.edges[coordinate]

    def interval_edges(self) -> np.ndarray:
        """Return the edges of the only coordinate."""
        return self.edges[0][np.isfinite(self.edges[0])]


class Tree(NamedTuple):
    """The leaves of a binary tree with splits `x[feature] > threshold`, numbered from left to right.

    Attributes
    ----------
    feature, threshold : ndarray of shape (nodes,)
        The split of every inner node.
    left, right : ndarray of shape (nodes,)
        The children of every node; a leaf points to itself.
    leaf : ndarray of shape (nodes,)
        The number of a leaf, and -1 for an inner node.
    depth : ndarray of shape ()
        The depth of the tree.
    edges : ndarray
        All thresholds, sorted. On a single coordinate they describe the whole tree.
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    leaf: np.ndarray
    depth: np.ndarray
    edges: np.ndarray

    @property
    def radix(self) -> list[int]:
        """The number of leaves, as a list with one entry."""
        return [int(self.leaf.max()) + 1]

    def with_weights(self, weights: np.ndarray) -> Tree:
        """Return the tree itself: its single digit always has weight 1."""
        return self

    def digits(self, flat: Array) -> Array:
        """Return the leaf of every run, of shape (runs, 1)."""
        return self.index(flat)[:, None]

    def index(self, flat: Array) -> Array:
        """Return the leaf of every run."""
        if flat.shape[1] == 1:
            return digitize(self.edges, flat[:, 0])
        xp = array_namespace(flat)
        rows = xp.arange(flat.shape[0])

        def descend(node: Array) -> Array:
            right = flat[rows, self.feature[node]] > self.threshold[node]
            return xp.where(right, self.right[node], self.left[node])

        steps = xp.minimum(self.depth, len(self.leaf))
        return self.leaf[fori_loop(xp, steps, descend, xp.zeros(flat.shape[0], np.int64))]

    def box(self, digits: np.ndarray, coordinates: int) -> Box:
        """Return the box of a leaf: the splits on the path from the leaf to the root limit it."""
        low, high = np.full(coordinates, -np.inf), np.full(coordinates, np.inf)
        node = int(np.flatnonzero(self.leaf == digits[0])[0])
        for _ in range(min(int(self.depth), len(self.leaf))):
            if node == 0:
                break
            is_parent = (self.left == node) | (self.right == node) & (np.arange(len(self.left)) != node)
            parent = int(np.flatnonzero(is_parent)[0])
            feature, threshold = int(self.feature[parent]), self.threshold[parent]
            if self.left[parent] == node:
                high[feature] = min(high[feature], threshold)
            else:
                low[feature] = max(low[feature], threshold)
            node = parent
        return low, high

    def count(self, atoms: Atoms | None) -> int:
        """Return the number of cells; digits of atoms multiply it."""
        return math.prod(self.radix) * _atom_combinations(atoms)

    def coordinate_edges(self, coordinate: int) -> np.ndarray:
        """Return no edges: a tree does not divide a coordinate independently of the others."""
        return np.zeros(0)

    def interval_edges(self) -> np.ndarray:
        """Return the edges of the only coordinate."""
        return self.edges


def _atom_combinations(atoms: Atoms | None) -> int:
    if atoms is None:
        return 1
    return math.prod(1 + int(number) for number in np.isfinite(atoms.values).sum(1))


def make_tree(feature: list[int], threshold: list[float], left: list[int], right: list[int], depth: int) -> Tree:
    """Return the tree with these nodes. A leaf points to itself; leaves are numbered from left to right."""
    leaf = np.full(len(feature), -1, np.int64)
    edges = []
    stack, n_leaves = [(0, False)], 0
    while stack:  # an in-order traversal without recursion
        node, left_is_done = stack.pop()
        if left[node] == node:
            leaf[node], n_leaves = n_leaves, n_leaves + 1
        elif left_is_done:
            edges.append(threshold[node])
            stack.append((right[node], False))
        else:
            stack += [(node, True), (left[node], False)]
    return Tree(
        np.array(feature), np.array(threshold), np.array(left), np.array(right), leaf, np.array(depth), np.array(edges)
    )


def pad_rows(rows: list[np.ndarray], least: int = 0) -> np.ndarray:
    """Return sorted rows of different lengths as one table, padded with infinity to at least `least` columns."""
    table = np.full((len(rows), max([least, *map(len, rows)])), np.inf)
    for padded, row in zip(table, rows, strict=True):
        padded[: len(row)] = row
    return table


def find_atoms(flat: np.ndarray) -> list[np.ndarray]:
    """Return the values with positive probability, for each coordinate."""
    return [repeated_values(np.sort(column)) for column in contiguous_transpose(flat)]


def repeated_values(column: np.ndarray) -> np.ndarray:
    """Return the sorted values that occur more often than by chance, given one coordinate of the runs, sorted.

    Numbers of single precision or on a fine lattice repeat by chance: if `pairs` values occur exactly twice among n
    runs, about `n c^(k-1) / k!` values occur k times, `c = 2 pairs / n`. An atom occurs so often that this is below
    `CHANCE_ATOMS`. If half of the runs have a value that repeats, every repeated value is an atom.
    """
    ends = np.flatnonzero(np.append(column[1:] != column[:-1], True))
    counts = np.diff(ends, prepend=-1)
    runs, repeats = column.size, counts > 1
    if not repeats.any():
        return column[:0]
    if counts[repeats].sum() < runs / 2:
        rate, least = 2 * int((counts == 2).sum()) / runs, 2
        expected = runs * rate / 2
        while expected > CHANCE_ATOMS:
            least += 1
            expected *= rate / least
        repeats = counts >= least
    return column[ends[repeats]]
