"""Partitions of the output space, and the kinds of cells that they are made of.

A kind of cells is a rule that maps the coordinates of an output to integer digits, and digits back to boxes. A cell is
identified by one digit per coordinate (`Bins`, `Edges`) or by a single digit (`Tree`, the number of a leaf). `Atoms`
adds digits for values that have positive probability. `Partition` combines these digits into one cell code.

All kinds are NamedTuples of arrays. They are therefore pytrees for JAX and plain data for JSON, and each method works
on NumPy and on JAX arrays. `flat` always stands for outputs of shape (runs, steps * dimensions).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpverify.events.region import Region
from dpverify.events.wording import MAX_LISTED_PIECES, coordinate_names, describe_interval, describe_intervals
from dpverify.util.arrays import Array, array_namespace, contiguous_transpose, digitize, fori_loop
from dpverify.util.formatting import format_cell_count, format_number

CHANCE_ATOMS = 0.05  # the expected number of values of one coordinate that are taken for atoms by chance

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


OUTSIDE, FIRST_CELL = 0, 2  # codes
HASHED_SIZE = 1 << 63  # the size of a partition whose codes are hashes
MAX_DRAWN_EDGES = 200
DEFAULT_GRID_RESOLUTION = 2  # bins per coordinate
DEFAULT_EQUAL_MASS_CELLS = 64


class Partition(NamedTuple):
    """The cells of a region, and the complement of the region.

    Attributes
    ----------
    region : Region
        The region of likely outputs.
    cells : Bins, Edges or Tree
        The rule that divides the region.
    atoms : Atoms or None
        The values that are cells of their own.
    radix : ndarray
        The number of values of every digit: those of the cells, then those of the atoms.
    """

    region: Region
    cells: Bins | Edges | Tree
    atoms: Atoms | None
    radix: np.ndarray

    @property
    def size(self) -> int:
        """One more than the largest code; `HASHED_SIZE` if codes are hashes."""
        product = math.prod(int(r) for r in self.radix)
        return FIRST_CELL + product if product < HASHED_SIZE - FIRST_CELL else HASHED_SIZE

    @property
    def n_cells(self) -> int:
        """The number of cells, including the complement of the region."""
        return self.cells.count(self.atoms) + 1

    @property
    def n_parameters(self) -> int:
        """The number of parameters that were fitted to training runs to order the cells: none."""
        return 0

    @property
    def levels(self) -> None:
        """None: the cells are not the level sets of a score."""
        return None

    @property
    def has_boxes(self) -> bool:
        """Whether the cells are boxes in the coordinates of the output."""
        return True

    def event_complexity(self, codes: np.ndarray) -> int:
        """Return how many numbers describe the union of these cells."""
        return codes.size

    def single_cell(self, codes: np.ndarray) -> int | None:
        """Return the code if there is only one."""
        return int(codes[0]) if codes.size == 1 else None

    def coordinate_edges(self, coordinate: int) -> np.ndarray:
        """Return the first edges at which one coordinate is divided, for drawings."""
        edges = self.cells.coordinate_edges(coordinate)
        return edges[np.isfinite(edges)][:MAX_DRAWN_EDGES]

    def codes(self, x: Array) -> Array:
        """Return the cell of every run as a 64-bit integer.

        Parameters
        ----------
        x : array of shape (runs, steps, dimensions) or (runs, steps * dimensions)
            Outputs, as a NumPy or a JAX array.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # far outside the region any operation may overflow
            return self._codes(x)

    def _codes(self, x: Array) -> Array:
        xp = array_namespace(x)
        x = self.region.fill(x.reshape(-1, *self.region.centre.shape))
        flat = x.reshape(x.shape[0], -1)
        inside = self.region.contains(x)
        codes = FIRST_CELL + self.cells.index(flat)
        if self.atoms is not None:
            codes = codes + self.atoms.index(flat)
        return xp.where(inside, codes, OUTSIDE)

    def box(self, code: int, examples: np.ndarray) -> Box | None:
        """Return the lowest and highest value of each coordinate in a cell, or None if no box is known.

        The limits of a coordinate are equal if the cell holds one of its atoms. A hashed code cannot be decoded; the
        box is then taken from an example with this code, if there is one.
        """
        coordinates = self.region.centre.size
        n_cell_digits = len(self.cells.radix)
        if self.size == HASHED_SIZE:
            matching = examples[self.codes(examples) == code]
            if not len(matching):
                return None
            flat = matching[:1].reshape(1, -1)
            cell_digits = [int(digit) for digit in self.cells.digits(flat)[0]]
            atom_digits = [int(digit[0]) for digit in self.atoms.digits(flat)] if self.atoms is not None else []
        else:
            if code < FIRST_CELL:
                return None
            reversed_digits = np.unravel_index(code - FIRST_CELL, [int(r) for r in self.radix[::-1]])
            digits = [int(digit) for digit in reversed_digits[::-1]]
            cell_digits, atom_digits = digits[:n_cell_digits], digits[n_cell_digits:]
        low, high = self.cells.box(np.array(cell_digits), coordinates)
        if self.atoms is not None:
            for j, digit in enumerate(atom_digits):
                if digit:
                    coordinate = int(self.atoms.coordinates[j])
                    low[coordinate] = high[coordinate] = self.atoms.values[j, digit - 1]
        return low, high

    def describe(self, codes: np.ndarray, examples: np.ndarray) -> str:
        """Describe a union of cells. `examples` are pilot runs, which represent cells with hashed codes."""
        if codes.size == 1:
            return self._describe_cell(int(codes[0]), examples)
        if self.region.centre.size == 1 and self.size != HASHED_SIZE:
            return self._describe_on_line(codes, examples)
        return f"a union of {codes.size} of the partition's {format_cell_count(self.n_cells)} cells"

    def describe_event(self, codes: np.ndarray, examples: np.ndarray) -> str:
        """Describe the event that consists of these cells."""
        return self.describe(codes, examples)

    def _describe_cell(self, code: int, examples: np.ndarray) -> str:
        if self.size != HASHED_SIZE and code == OUTSIDE:
            return "an output outside the region of likely outputs"
        box = self.box(code, examples)
        if box is None:
            return "one cell of the partition that no pilot run fell into"
        names = coordinate_names(*self.region.centre.shape)
        limits = []
        for coordinate, (name, low, high) in enumerate(zip(names, *box, strict=True)):
            meaning = self.region.meaning(coordinate, high) if low == high else ""
            if meaning:
                limits.append(f"{name} is {meaning}")
            elif low > -math.inf or high < math.inf:
                has_nan = high == math.inf and self.region.stand_ins is not None and self.atoms is None
                limits.append(describe_interval(name, low, high) + (" or NaN" if has_nan else ""))
        if not limits:
            return "an output inside the region of likely outputs"
        most = 2 * MAX_LISTED_PIECES
        if len(limits) > most:
            limits = [*limits[:most], f"and {len(limits) - most} more"]
        return ", ".join(limits) + ("" if self.region.centre.size == 1 else " (inside the region of likely outputs)")

    def _describe_on_line(self, codes: np.ndarray, examples: np.ndarray) -> str:
        """Describe a union of cells of a scalar output: neighbouring intervals are joined."""
        bottom = float((self.region.centre - self.region.half).ravel()[0])
        top = float((self.region.centre + self.region.half).ravel()[0])
        intervals, points, others = [], [], []
        for code in codes.tolist():
            if code == OUTSIDE:
                intervals += [(-math.inf, bottom), (top, math.inf)]
            else:
                low, high = (float(limit[0]) for limit in self.box(code, examples) or ([-math.inf], [math.inf]))
                if low == high and self.region.meaning(0, low):
                    others.append(f"output is {self.region.meaning(0, low)}")
                elif low == high:
                    points.append(low)
                else:
                    intervals.append((max(low, bottom), min(high, top)))
        if points:
            most = 2 * MAX_LISTED_PIECES
            values = ", ".join(format_number(point) for point in sorted(points)[:most])
            more = f" and {len(points) - most} more values" if len(points) > most else ""
            others.insert(0, f"output = {values}{more}")
        return describe_intervals(intervals, "output", others)


def code_weights(radix: list[int] | np.ndarray) -> np.ndarray:
    """Return the weights of the digits: mixed radix if it fits into 63 bits, else the odd multipliers of a hash.

    The hash is multilinear modulo 2^64 with fixed multipliers.
    """
    sizes = [int(r) for r in radix]
    if math.prod(sizes) < HASHED_SIZE - FIRST_CELL:
        return np.array([math.prod(sizes[:j]) for j in range(len(sizes))], np.int64)
    multipliers = np.random.default_rng(0x64_70_76).integers(1 << 63, size=len(sizes), dtype=np.uint64)
    return (multipliers * np.uint64(2) + np.uint64(1)).view(np.int64)


def make_partition_of(region: Region, cells: Bins | Edges | Tree, atoms: list[np.ndarray]) -> Partition:
    """Return the partition of a region by these cells, with one list of atoms per coordinate."""
    with_atoms = [j for j, values in enumerate(atoms) if len(values)]
    cell_radix = cells.radix
    radix = np.array(cell_radix + [1 + len(atoms[j]) for j in with_atoms], np.int64)
    weights = code_weights(radix)
    atom_table = None
    if with_atoms:
        values = pad_rows([atoms[j] for j in with_atoms])
        atom_table = Atoms(np.array(with_atoms), values, weights[len(cell_radix) :])
    cells = cells.with_weights(weights[: len(cell_radix)])
    return Partition(region, cells, atom_table, radix)


def grid(region: Region, pilot: np.ndarray, resolution: int) -> Partition:
    """Return the event list of the paper: `resolution` bins per coordinate, so r^d cells per step and (r^d)^K in all.

    With resolution 1 the cells are the atoms and the remaining values of every coordinate.
    """
    low, width = (region.centre - region.half).ravel(), 2 * region.half.ravel()
    with np.errstate(divide="ignore", over="ignore"):
        scale = np.where(width > 0, resolution / width, 0.0)
    scale = np.where(np.isfinite(scale), scale, 0.0)
    bins = Bins(low, scale, np.full(low.size, float(resolution - 1)), np.ones(low.size, np.int64))
    return make_partition_of(region, bins, find_atoms(pilot.reshape(len(pilot), -1)))


def equal_mass(region: Region, pilot: np.ndarray, cells: int, atoms: list[np.ndarray] | None = None) -> Partition:
    """Return at most `cells` cells of nearly equal mass, from k-d splits at medians of the pilot runs.

    The paper outlines ellipsoids around subsets of the runs instead. These neither cover the region nor keep the
    scenario guarantee (docs/method.md, section 2.2). Each leaf is split along the coordinate in which it is longest
    relative to the spread of that coordinate. The atoms are those of the pilot runs unless they are given.
    """
    flat = pilot.reshape(len(pilot), -1)
    spread = np.ptp(flat, axis=0)
    spread = np.where(spread > 0, spread, np.inf)
    feature, threshold, left, right = [0], [0.0], [0], [0]
    level = [(0, flat)]
    depth, leaves = 0, 1
    while level and 2 * leaves <= cells:
        next_level = []
        for node, points in level:
            split = _median_split(points, spread)
            if split is None:
                continue
            feature[node], threshold[node] = split
            left[node], right[node] = len(feature), len(feature) + 1
            below = points[:, split[0]] <= split[1]
            for child in (points[below], points[~below]):
                next_level.append((len(feature), child))
                feature.append(0)
                threshold.append(0.0)
                left.append(len(left))
                right.append(len(right))
            leaves += 1
        depth += bool(next_level)
        level = next_level
    tree = make_tree(feature, threshold, left, right, depth)
    return make_partition_of(region, tree, find_atoms(flat) if atoms is None else atoms)


def _median_split(points: np.ndarray, spread: np.ndarray) -> tuple[int, float] | None:
    """Return a coordinate and the gap between values that is nearest to its median; None if no split exists."""
    if len(points) < 2:
        return None
    for coordinate in np.argsort(-np.ptp(points, axis=0) / spread, kind="stable"):
        x = np.sort(points[:, coordinate])
        gaps = np.flatnonzero(x[1:] > x[:-1])
        if gaps.size:
            i = gaps[np.argmin(np.abs(gaps + 1 - len(x) / 2))]
            middle = float(x[i] + (x[i + 1] - x[i]) / 2)
            return int(coordinate), (middle if middle < x[i + 1] else float(x[i]))
    return None


def make_partition(kind: str, region: Region, pilot: np.ndarray, resolution: int | None) -> Partition:
    """Return the partition that the settings name.

    Parameters
    ----------
    kind : {"auto", "grid", "equal-mass", "atoms"}
        "auto" means "atoms" if more than half of the values of every coordinate repeat, else "equal-mass".
    region : Region
        The region of likely outputs.
    pilot : ndarray of shape (runs, steps, dimensions)
        The finite pilot runs that the region was made from.
    resolution : int or None
        Bins per coordinate of a grid, or the number of cells of equal mass.
    """
    if kind == "auto":
        flat = pilot.reshape(len(pilot), -1)
        repeated_share = [np.isin(flat[:, j], values).mean() for j, values in enumerate(find_atoms(flat))]
        kind = "atoms" if min(repeated_share) > 0.5 else "equal-mass"
    if kind == "grid":
        return grid(region, pilot, resolution or DEFAULT_GRID_RESOLUTION)
    if kind == "atoms":
        return grid(region, pilot, 1)
    return equal_mass(region, pilot, resolution or DEFAULT_EQUAL_MASS_CELLS)
