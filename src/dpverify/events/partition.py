"""Cells: plain data that turns samples into integer codes (paper, section III and Algorithm 2).

Code 0 is the complement of the region, code 1 a run with a NaN or an infinite value, codes from 2 up are the cells
inside the region. A code is mixed radix while that fits into 63 bits, else a fixed 64-bit mix of the same digits: a
collision only merges two cells of a partition that was fixed beforehand, so every statement stays true.

A value that repeats among the pilot runs of one coordinate is an atom and a cell of its own, whatever the dtype.
All of it is NamedTuples of arrays: pytrees for JAX, plain columns for JSON.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpverify.events.region import Region
from dpverify.util.arrays import array_namespace, contiguous_transpose, digitize, fori_loop

OUTSIDE, NONFINITE, FIRST_CELL = 0, 1, 2
HASHED_SIZE = 1 << 63


class Atoms(NamedTuple):
    """Repeated values of some coordinates, one row each, sorted and padded with infinity."""

    coordinates: np.ndarray  # (J,)
    values: np.ndarray  # (J, most)
    weights: np.ndarray  # (J,)

    def digits(self, flat: Any) -> list[Any]:
        """For each row 0 where the value is no atom, else its place from 1 up."""
        xp = array_namespace(flat)
        digits = []
        for j in range(self.values.shape[0]):
            x, values = flat[:, self.coordinates[j]], self.values[j]
            place = xp.clip(xp.searchsorted(values, x), 0, values.shape[0] - 1)
            digits.append(xp.where(values[place] == x, place + 1, 0))
        return digits

    def index(self, flat: Any) -> Any:
        return sum(digit * self.weights[j] for j, digit in enumerate(self.digits(flat)))


class Bins(NamedTuple):
    """Equal bins of every coordinate over the box around each step's ellipsoid: the paper's grid.

    The axes are the output's own coordinates: cells then read as intervals of what is released, and moving or
    scaling a coordinate moves and scales its bins.
    """

    low: np.ndarray  # (K*d,)
    scale: np.ndarray
    top: np.ndarray
    weights: np.ndarray

    def digits(self, flat: Any) -> Any:
        xp = array_namespace(flat)
        return xp.clip((flat - self.low) * self.scale, 0, self.top).astype(np.int64)

    def index(self, flat: Any) -> Any:
        if self.low.shape[0] == 1:
            return self.digits(flat)[:, 0] * self.weights[0]
        return self.digits(flat) @ self.weights

    def coordinate_edges(self, coordinate: int) -> np.ndarray:
        """Return the edges between the bins of one coordinate."""
        if self.scale[coordinate] <= 0:
            return np.zeros(0)
        inner = np.arange(1, int(self.top[coordinate]) + 1)
        return self.low[coordinate] + inner / self.scale[coordinate]

    def box(self, digits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(divide="ignore", invalid="ignore"):
            cuts = self.low + np.stack([digits, digits + 1]) / self.scale
        # The first and the last bin end where the region does.
        low = np.where((digits > 0) & (self.scale > 0), cuts[0], -np.inf)
        high = np.where((digits < self.top) & (self.scale > 0), cuts[1], np.inf)
        return low, high


class Edges(NamedTuple):
    """Bins of every coordinate between edges of its own; an atom a is the bin from the number just below a to a."""

    edges: np.ndarray  # (K*d, E), sorted, padded with infinity
    weights: np.ndarray

    def digits(self, flat: Any) -> Any:
        return array_namespace(flat).stack(self._digits(flat), axis=1)

    def index(self, flat: Any) -> Any:
        return sum(digits * self.weights[j] for j, digits in enumerate(self._digits(flat)))

    def _digits(self, flat: Any) -> list[Any]:
        return [digitize(edges, x) for edges, x in zip(self.edges, contiguous_transpose(flat), strict=True)]

    def coordinate_edges(self, coordinate: int) -> np.ndarray:
        """Return the edges between the bins of one coordinate."""
        return self.edges[coordinate]

    def box(self, digits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ends = np.pad(self.edges, ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf)))
        rows = np.arange(len(digits))
        low, high = ends[rows, digits], ends[rows, digits + 1]
        return np.where(np.nextafter(low, np.inf) == high, high, low), high


class Tree(NamedTuple):
    """A binary tree of splits `x[feature] > threshold`; leaves are numbered from left to right."""

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    leaf: np.ndarray  # the number of a leaf, -1 inside
    depth: np.ndarray  # ()
    edges: np.ndarray  # all thresholds, sorted: on one coordinate the tree is just these

    def index(self, flat: Any) -> Any:
        if flat.shape[1] == 1:
            return digitize(self.edges, flat[:, 0])
        xp = array_namespace(flat)
        rows = xp.arange(flat.shape[0])

        def descend(node: Any) -> Any:
            right = flat[rows, self.feature[node]] > self.threshold[node]
            return xp.where(right, self.right[node], self.left[node])

        return self.leaf[
            fori_loop(xp, xp.minimum(self.depth, len(self.leaf)), descend, xp.zeros(flat.shape[0], np.int64))
        ]

    def coordinate_edges(self, coordinate: int) -> np.ndarray:
        """Return no edges: the leaves of a tree do not cut a coordinate independently of the others."""
        return np.zeros(0)

    def box(self, leaf: int, coordinates: int) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.full(coordinates, -np.inf), np.full(coordinates, np.inf)
        node = int(np.flatnonzero(self.leaf == leaf)[0])
        for _ in range(min(int(self.depth), len(self.leaf))):
            if node == 0:
                break
            parent = int(
                np.flatnonzero((self.left == node) | (self.right == node) & (np.arange(len(self.left)) != node))[0]
            )
            f, t = int(self.feature[parent]), self.threshold[parent]
            if self.left[parent] == node:
                high[f] = min(high[f], t)
            else:
                low[f] = max(low[f], t)
            node = parent
        return low, high


class Partition(NamedTuple):
    """The cells of a region, its complement, and (where asked for) the non-finite runs."""

    region: Region
    cells: Bins | Edges | Tree
    atoms: Atoms | None
    radix: np.ndarray  # of all digits: those of the cells, then those of the atoms
    nonfinite: np.ndarray  # (), 1 where NaN and infinity are an event

    @property
    def has_boxes(self) -> bool:
        """Whether the cells are boxes in the coordinates of the output."""
        return True

    def coordinate_edges(self, coordinate: int) -> np.ndarray:
        """Return the finite edges between the bins of one coordinate; empty where there are none."""
        edges = self.cells.coordinate_edges(coordinate)
        return edges[np.isfinite(edges)][:200]

    @property
    def size(self) -> int:
        """One more than the largest code; HASHED where codes are mixed."""
        product = math.prod(int(r) for r in self.radix)
        return FIRST_CELL + product if product < HASHED_SIZE - FIRST_CELL else HASHED_SIZE

    @property
    def number(self) -> int:
        """How many cells there are: the complement of the region and the non-finite runs are cells too."""
        inside = math.prod(int(r) for r in self.radix)
        if self.atoms is not None and isinstance(self.cells, Bins):  # a coordinate is in a bin or at an atom
            bins = self.cells.top.astype(int) + 1
            bins[self.atoms.coordinates] += np.isfinite(self.atoms.values).sum(1)
            inside = math.prod(int(b) for b in bins)
        return inside + 1 + int(self.nonfinite)

    def codes(self, x: Any) -> Any:
        """The cell of every run of (runs, K, d), flat or not, as 64-bit integers; NumPy or JAX alike."""
        with np.errstate(over="ignore", invalid="ignore"):  # far outside the region anything may overflow
            return self._codes(x)

    def _codes(self, x: Any) -> Any:
        xp = array_namespace(x)
        flat = x.reshape(x.shape[0], -1)
        clean = flat
        if xp is not np or self.nonfinite:
            finite = xp.isfinite(flat).all(-1)
            clean = xp.where(finite[:, None], flat, 0.0)
        inside = self.region.contains(clean.reshape(-1, *self.region.centre.shape))
        codes = FIRST_CELL + self.cells.index(clean)
        if self.atoms is not None:
            codes = codes + self.atoms.index(clean)
        codes = xp.where(inside, codes, OUTSIDE)
        return codes if clean is flat else xp.where(finite, codes, NONFINITE)

    def box(self, code: int, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The lowest and highest value of each coordinate in a cell, equal at an atom; None where no box is known.

        A mixed code can't be taken apart: then an example that has this code stands for its cell.
        """
        if code < FIRST_CELL and self.size != HASHED_SIZE:
            return None
        coordinates = self.region.centre.size
        if self.size == HASHED_SIZE:
            found = examples[self.codes(examples) == code]
            if not len(found):
                return None
            flat = found[:1].reshape(1, -1)
            atom_digits = [int(d[0]) for d in self.atoms.digits(flat)] if self.atoms is not None else []
            cell = int(self.cells.index(flat)[0]) if isinstance(self.cells, Tree) else self.cells.digits(flat)[0]
        else:
            digits = np.unravel_index(code - FIRST_CELL, [int(r) for r in self.radix[::-1]])[::-1]
            number = 1 if isinstance(self.cells, Tree) else coordinates
            cell = int(digits[0]) if isinstance(self.cells, Tree) else np.array(digits[:number])
            atom_digits = [int(d) for d in digits[number:]]
        low, high = self.cells.box(cell, coordinates) if isinstance(self.cells, Tree) else self.cells.box(cell)  # type: ignore[arg-type]
        for j, digit in enumerate(atom_digits):
            if digit and self.atoms is not None:
                at = int(self.atoms.coordinates[j])
                low[at] = high[at] = self.atoms.values[j, digit - 1]
        return low, high


def code_weights(radix: Any) -> np.ndarray:
    """Mixed radix while it fits, else fixed odd multipliers: a multilinear hash modulo 2^64."""
    sizes = [int(r) for r in radix]
    if math.prod(sizes) < HASHED_SIZE - FIRST_CELL:
        return np.array([math.prod(sizes[:j]) for j in range(len(sizes))], np.int64)
    mix = np.random.default_rng(0x64_70_76).integers(1 << 63, size=len(sizes), dtype=np.uint64)
    return (mix * np.uint64(2) + np.uint64(1)).view(np.int64)


def pad_rows(rows: list[np.ndarray], least: int = 0) -> np.ndarray:
    """Sorted rows of different lengths as one table, filled up with infinity."""
    most = max([least, *map(len, rows)])
    return np.stack([np.pad(row, (0, most - len(row)), constant_values=np.inf) for row in rows])


def find_atoms(flat: np.ndarray) -> list[np.ndarray]:
    """For each coordinate the values that repeat among the pilot runs."""
    contiguous_transpose = (np.unique(flat[:, j], return_counts=True) for j in range(flat.shape[1]))
    return [values[counts > 1] for values, counts in contiguous_transpose]


def _assemble(region: Region, cells: Any, cell_radix: list[int], atoms: list[np.ndarray], nonfinite: bool) -> Partition:
    where = [j for j, values in enumerate(atoms) if len(values)]
    radix = np.array(cell_radix + [1 + len(atoms[j]) for j in where], np.int64)
    weights = code_weights(radix)
    rows = None
    if where:
        rows = Atoms(np.array(where), pad_rows([atoms[j] for j in where]), weights[len(cell_radix) :])
    if not isinstance(cells, Tree):
        cells = cells._replace(weights=weights[: len(cell_radix)])
    return Partition(region, cells, rows, radix, np.array(int(nonfinite)))


def grid(region: Region, pilot: np.ndarray, resolution: int, nonfinite: bool = False) -> Partition:
    """The paper's event list: `resolution` bins a coordinate, so r^d cells a step and (r^d)^K in all.

    With resolution 1 only the atoms and what lies between them are told apart.
    """
    low, width = (region.centre - region.half).ravel(), 2 * region.half.ravel()
    with np.errstate(divide="ignore", over="ignore"):
        scale = np.where(width > 0, resolution / width, 0.0)
    scale = np.where(np.isfinite(scale), scale, 0.0)
    bins = Bins(low, scale, np.full(low.size, float(resolution - 1)), np.ones(low.size, np.int64))
    return _assemble(region, bins, [resolution] * low.size, find_atoms(pilot.reshape(len(pilot), -1)), nonfinite)


def equal_mass(region: Region, pilot: np.ndarray, cells: int, nonfinite: bool = False) -> Partition:
    """k-d splits at medians of the pilot runs, to at most `cells` leaves of nearly equal mass.

    The paper's outline (ellipsoids of subsets of the runs) neither covers the region nor keeps the scenario
    guarantee: docs/method.md, section 2.2. Each leaf is split along the coordinate in which it is longest, measured
    in that coordinate's own spread.
    """
    flat = pilot.reshape(len(pilot), -1)
    spread = np.ptp(flat, axis=0)
    spread = np.where(spread > 0, spread, np.inf)
    feature, threshold, left, right = [0], [0.0], [0], [0]
    level = [(0, flat)]
    depth, leaves = 0, 1
    while level and 2 * leaves <= cells:
        following = []
        for node, points in level:
            split = _median_split(points, spread)
            if split is None:
                continue
            f, t = split
            feature[node], threshold[node] = f, t
            left[node], right[node] = len(feature), len(feature) + 1
            for child in (points[points[:, f] <= t], points[points[:, f] > t]):
                following.append((len(feature), child))
                feature.append(0)
                threshold.append(0.0)
                left.append(len(left))
                right.append(len(right))
            leaves += 1
        depth += bool(following)
        level = following
    return _assemble(
        region,
        make_tree(feature, threshold, left, right, depth),
        [leaves],
        find_atoms(flat),
        nonfinite,
    )


def partition_from_cells(region: Region, cells: Tree | Edges, nonfinite: bool) -> Partition:
    """Given cells and the complement of the region; atoms are the cells' own affair."""
    radix = [int(cells.leaf.max()) + 1] if isinstance(cells, Tree) else [cells.edges.shape[1] + 1] * len(cells.edges)
    return _assemble(region, cells, radix, [], nonfinite)


def _median_split(points: np.ndarray, spread: np.ndarray) -> tuple[int, float] | None:
    """The coordinate and the place between two values nearest to its median; None where nothing can be split."""
    if len(points) < 2:
        return None
    for f in np.argsort(-np.ptp(points, axis=0) / spread, kind="stable"):
        x = np.sort(points[:, f])
        gaps = np.flatnonzero(x[1:] > x[:-1])
        if gaps.size:
            i = gaps[np.argmin(np.abs(gaps + 1 - len(x) / 2))]
            t = float(x[i] + (x[i + 1] - x[i]) / 2)
            return int(f), (t if t < x[i + 1] else float(x[i]))
    return None


def make_tree(feature: list[int], threshold: list[float], left: list[int], right: list[int], depth: int) -> Tree:
    """Arrays of a tree whose leaves point to themselves; the leaves get their numbers from left to right."""
    leaf = np.full(len(feature), -1, np.int64)
    edges = []
    stack, count = [(0, False)], 0
    while stack:  # in order, without recursion
        node, back = stack.pop()
        if left[node] == node:
            leaf[node], count = count, count + 1
        elif back:
            edges.append(threshold[node])
            stack.append((right[node], False))
        else:
            stack += [(node, True), (left[node], False)]
    return Tree(
        np.array(feature), np.array(threshold), np.array(left), np.array(right), leaf, np.array(depth), np.array(edges)
    )


def make_partition(kind: str, region: Region, pilot: np.ndarray, resolution: int | None, nonfinite: bool) -> Partition:
    """`pilot` are finite runs (n, K, d) of the sides that the region was made from."""
    if kind == "auto":
        atoms = find_atoms(pilot.reshape(len(pilot), -1))
        held = [np.isin(pilot.reshape(len(pilot), -1)[:, j], values).mean() for j, values in enumerate(atoms)]
        kind = "atoms" if min(held) > 0.5 else "equal-mass"
    if kind == "grid":
        return grid(region, pilot, resolution or 2, nonfinite)
    if kind == "atoms":
        return grid(region, pilot, 1, nonfinite)
    return equal_mass(region, pilot, resolution or 64, nonfinite)
