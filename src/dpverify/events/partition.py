"""Partitions of the output space into cells (paper, section III and Algorithm 2).

Code 0 is the complement of the region of likely outputs, code 1 a run with a NaN or an infinite value, and codes from 2
are the cells inside the region. A code is the mixed-radix number of the cell's digits as long as it fits into 63 bits.
Otherwise it is a fixed 64-bit hash of the digits. A hash collision merges two cells of a partition that was fixed
before the test runs, so every statement stays valid.

A value that repeats among the pilot runs of one coordinate, more often than by chance, is treated as an atom and gets
its own cell, whatever the data type.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpverify.events.cells import Atoms, Bins, Box, Edges, Tree, find_atoms, make_tree, pad_rows
from dpverify.events.region import Region
from dpverify.events.wording import MAX_LISTED_PIECES, coordinate_names, describe_interval, describe_intervals
from dpverify.util.arrays import Array, array_namespace
from dpverify.util.formatting import format_cell_count, format_number

OUTSIDE, NONFINITE, FIRST_CELL = 0, 1, 2  # codes
HASHED_SIZE = 1 << 63  # the size of a partition whose codes are hashes
MAX_DRAWN_EDGES = 200
DEFAULT_GRID_RESOLUTION = 2  # bins per coordinate
DEFAULT_EQUAL_MASS_CELLS = 64


class Partition(NamedTuple):
    """The cells of a region, the complement of the region, and optionally the non-finite outputs.

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
    nonfinite : ndarray of shape ()
        1 if outputs with NaN or infinity are a cell.
    """

    region: Region
    cells: Bins | Edges | Tree
    atoms: Atoms | None
    radix: np.ndarray
    nonfinite: np.ndarray

    @property
    def size(self) -> int:
        """One more than the largest code; `HASHED_SIZE` if codes are hashes."""
        product = math.prod(int(r) for r in self.radix)
        return FIRST_CELL + product if product < HASHED_SIZE - FIRST_CELL else HASHED_SIZE

    @property
    def n_cells(self) -> int:
        """The number of cells, including the complement of the region and the cell of non-finite outputs."""
        return self.cells.count(self.atoms) + 1 + int(self.nonfinite)

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

    def interval_edges(self) -> np.ndarray | None:
        """Return numbers between which the code of a scalar output is constant; None if they are not known."""
        ends = self.region.interval_edges()
        edges = None if ends is None else self.cells.interval_edges()
        if ends is None or edges is None:
            return None
        atoms = np.zeros(0) if self.atoms is None else self.atoms.values[np.isfinite(self.atoms.values)]
        return np.unique(np.concatenate([ends, edges, np.nextafter(atoms, -np.inf), atoms]))

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
        flat = x.reshape(x.shape[0], -1)
        finite = None
        if xp is not np or self.nonfinite:
            finite = xp.isfinite(flat).all(-1)
            flat = xp.where(finite[:, None], flat, 0.0)
        inside = self.region.contains(flat.reshape(-1, *self.region.centre.shape))
        codes = FIRST_CELL + self.cells.index(flat)
        if self.atoms is not None:
            codes = codes + self.atoms.index(flat)
        codes = xp.where(inside, codes, OUTSIDE)
        return codes if finite is None else xp.where(finite, codes, NONFINITE)

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
        if self.size != HASHED_SIZE and code == NONFINITE:
            return "an output with NaN or infinity"
        box = self.box(code, examples)
        if box is None:
            return "one cell of the partition that no pilot run fell into"
        names = coordinate_names(*self.region.centre.shape)
        limits = [
            describe_interval(name, low, high)
            for name, low, high in zip(names, *box, strict=True)
            if low > -math.inf or high < math.inf
        ]
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
            if code == NONFINITE:
                others.append("output is NaN or infinite")
            elif code == OUTSIDE:
                intervals += [(-math.inf, bottom), (top, math.inf)]
            else:
                low, high = (float(limit[0]) for limit in self.box(code, examples) or ([-math.inf], [math.inf]))
                if low == high:
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


def make_partition_of(
    region: Region, cells: Bins | Edges | Tree, atoms: list[np.ndarray], nonfinite: bool
) -> Partition:
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
    return Partition(region, cells, atom_table, radix, np.array(int(nonfinite)))


def grid(region: Region, pilot: np.ndarray, resolution: int, nonfinite: bool = False) -> Partition:
    """Return the event list of the paper: `resolution` bins per coordinate, so r^d cells per step and (r^d)^K in all.

    With resolution 1 the cells are the atoms and the remaining values of every coordinate.
    """
    low, width = (region.centre - region.half).ravel(), 2 * region.half.ravel()
    with np.errstate(divide="ignore", over="ignore"):
        scale = np.where(width > 0, resolution / width, 0.0)
    scale = np.where(np.isfinite(scale), scale, 0.0)
    bins = Bins(low, scale, np.full(low.size, float(resolution - 1)), np.ones(low.size, np.int64))
    return make_partition_of(region, bins, find_atoms(pilot.reshape(len(pilot), -1)), nonfinite)


def equal_mass(
    region: Region, pilot: np.ndarray, cells: int, nonfinite: bool = False, atoms: list[np.ndarray] | None = None
) -> Partition:
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
    return make_partition_of(region, tree, find_atoms(flat) if atoms is None else atoms, nonfinite)


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


def make_partition(kind: str, region: Region, pilot: np.ndarray, resolution: int | None, nonfinite: bool) -> Partition:
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
    nonfinite : bool
        Whether outputs with NaN or infinity are a cell.
    """
    if kind == "auto":
        flat = pilot.reshape(len(pilot), -1)
        repeated_share = [np.isin(flat[:, j], values).mean() for j, values in enumerate(find_atoms(flat))]
        kind = "atoms" if min(repeated_share) > 0.5 else "equal-mass"
    if kind == "grid":
        return grid(region, pilot, resolution or DEFAULT_GRID_RESOLUTION, nonfinite)
    if kind == "atoms":
        return grid(region, pilot, 1, nonfinite)
    return equal_mass(region, pilot, resolution or DEFAULT_EQUAL_MASS_CELLS, nonfinite)
