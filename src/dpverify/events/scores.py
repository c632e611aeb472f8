"""Scores: plain data that turns samples into one number a run, high where the first data set is likelier.

Whatever learned them, what is tested is this exported form, evaluated by our own code in NumPy or JAX. The cells of a
score are its level sets (`Levels`), a partition like any other (docs/method.md, section 5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.events.partition import Atoms, Partition
from dpverify.events.region import Region
from dpverify.util.arrays import array_namespace, contiguous_transpose, digitize, multiply_rows


class Features(NamedTuple):
    """Coordinates, or innovations: what is new in each coordinate once the earlier ones are known."""

    mean: np.ndarray  # (J,)
    whiten: np.ndarray | None  # (J, J), lower triangular; None: the coordinates themselves

    def values(self, flat: Any) -> Any:
        return flat if self.whiten is None else multiply_rows(flat - self.mean, self.whiten.T)


class Linear(NamedTuple):
    weights: np.ndarray  # (J,)

    def values(self, flat: Any) -> Any:
        return multiply_rows(flat, self.weights[:, None])[:, 0]


class Quadratic(NamedTuple):
    features: Features
    weights: np.ndarray  # (J,)
    matrix: np.ndarray  # (J, J)

    def values(self, flat: Any) -> Any:
        z = self.features.values(flat)
        return ((multiply_rows(z, self.matrix) + self.weights) * z).sum(-1)


class Additive(NamedTuple):
    """A sum over coordinates of step functions: a shrunken log-ratio of counts in each bin.

    An atom a is the bin between the number just below a and a itself.
    """

    features: Features
    coordinates: np.ndarray  # (J',) those that matter
    edges: np.ndarray  # (J', E), sorted, padded with infinity
    steps: np.ndarray  # (J', E + 1)

    def bins(self, flat: Any) -> list[Any]:
        z = self.features.values(flat)
        return [
            digitize(edges, x)
            for edges, x in zip(self.edges, contiguous_transpose(z[:, self.coordinates]), strict=True)
        ]

    def values(self, flat: Any) -> Any:
        return sum(self.steps[j][bins] for j, bins in enumerate(self.bins(flat)))


class Piecewise(NamedTuple):
    """A sum of piecewise linear functions, one a coordinate, constant beyond their ends; atoms have own heights."""

    features: Features
    knots: np.ndarray  # (J, E), increasing
    heights: np.ndarray  # (J, E)
    atoms: np.ndarray  # (J, A), sorted, padded with infinity
    atom_heights: np.ndarray  # (J, A)

    def place(self, z: Any, j: int) -> tuple[Any, Any, Any, Any]:
        """For one column: the knot on the right, how far towards it, which values are atoms, and which atom."""
        xp = array_namespace(z)
        knots, atoms = self.knots[j], self.atoms[j]
        right = xp.clip(digitize(knots, z), 1, knots.shape[0] - 1)
        share = xp.clip((z - knots[right - 1]) / (knots[right] - knots[right - 1]), 0.0, 1.0)
        atom = xp.clip(xp.searchsorted(atoms, z), 0, atoms.shape[0] - 1)
        return right, share, atoms[atom] == z, atom

    def values(self, flat: Any) -> Any:
        xp = array_namespace(flat)
        total = 0.0
        for j, z in enumerate(contiguous_transpose(self.features.values(flat))):
            right, share, hit, atom = self.place(z, j)
            low, high = self.heights[j][right - 1], self.heights[j][right]
            total = total + xp.where(hit, self.atom_heights[j][atom], low + share * (high - low))
        return total


class Patterned(NamedTuple):
    """Step functions that differ from pattern to pattern: which coordinates hold atoms, and which ones.

    Each row is one coordinate under one pattern. A pattern that is not listed has the last of the offsets.
    """

    atoms: Atoms
    patterns: np.ndarray  # (P,) sorted
    offsets: np.ndarray  # (P + 1,)
    rows: np.ndarray  # (R,) place of the pattern
    coordinates: np.ndarray  # (R,)
    edges: np.ndarray  # (R, E), sorted, padded with infinity
    steps: np.ndarray  # (R, E + 1)

    def place(self, flat: Any) -> Any:
        """Which pattern each run shows; P where it is not listed."""
        xp = array_namespace(flat)
        codes = self.atoms.index(flat)
        at = xp.clip(xp.searchsorted(self.patterns, codes), 0, self.patterns.shape[0] - 1)
        return xp.where(self.patterns[at] == codes, at, self.patterns.shape[0])

    def values(self, flat: Any) -> Any:
        xp = array_namespace(flat)
        shown = self.place(flat)
        total = self.offsets[shown]
        for row in range(self.rows.shape[0]):
            here, column = shown == self.rows[row], flat[:, self.coordinates[row]]
            if xp is np:
                total[here] += self.steps[row][np.searchsorted(self.edges[row], column[here])]
            else:
                total = total + xp.where(here, self.steps[row][xp.searchsorted(self.edges[row], column)], 0.0)
        return total


class CellScore(NamedTuple):
    """A number for each cell of a partition that was seen often enough; `other` for the rest."""

    partition: Partition | Levels
    cells: np.ndarray  # sorted codes
    numbers: np.ndarray
    other: np.ndarray  # ()

    def values(self, flat: Any) -> Any:
        xp = array_namespace(flat)
        codes = self.partition.codes(flat)
        at = xp.clip(xp.searchsorted(self.cells, codes), 0, self.cells.shape[0] - 1)
        return xp.where(self.cells[at] == codes, self.numbers[at], self.other)


class UserScore(NamedTuple):
    """A callable of the user's: as good as any other in the test, but not plain data."""

    function: Callable[[Any], Any]
    shape: tuple[int, int]

    def values(self, flat: Any) -> Any:
        if not callable(self.function):
            raise InputError(
                f"the score {self.function} is not part of the report; expected it in memory: verify again"
            )
        values = self.function(flat.reshape(flat.shape[0], *self.shape))
        if values.shape != flat.shape[:1] or bool(array_namespace(values).isnan(values).any()):
            found = "NaN" if values.shape == flat.shape[:1] else f"shape {values.shape}"
            raise InputError(f"events: the score gave {found}; expected one number a run, {flat.shape[:1]}")
        return values


Score = Linear | Quadratic | Additive | Piecewise | Patterned | CellScore | UserScore


def n_parameters(score: Score) -> int:
    """How many numbers were learned: what a score may owe to luck."""
    if isinstance(score, Additive):
        return int((score.steps[:, 1:] != score.steps[:, :-1]).sum())
    if isinstance(score, Piecewise):
        return score.heights.size + score.atom_heights.size
    if isinstance(score, Patterned):
        return score.patterns.size + int((score.steps[:, 1:] != score.steps[:, :-1]).sum())
    if isinstance(score, CellScore):
        deeper = n_parameters(score.partition.score) if isinstance(score.partition, Levels) else 0
        return score.cells.size + deeper
    if isinstance(score, UserScore):
        return 0
    return score.weights.size if isinstance(score, Linear) else score.weights.size + score.matrix.size


class Levels(NamedTuple):
    """The level sets of a score between sorted edges: cells 0 to E, each closed above."""

    score: Score
    edges: np.ndarray

    @property
    def size(self) -> int:
        return self.edges.shape[0] + 1

    @property
    def number(self) -> int:
        return self.size

    @property
    def has_boxes(self) -> bool:
        """Whether the cells are boxes in the coordinates of the output."""
        return False

    def coordinate_edges(self, coordinate: int) -> np.ndarray:
        """Return no edges: a level set is not a box in the coordinates of the output."""
        return np.zeros(0)

    @property
    def is_plain(self) -> bool:
        return not isinstance(self.score, UserScore)

    def codes(self, x: Any) -> Any:
        flat = x.reshape(x.shape[0], -1)
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(self.score, Additive) and self.score.edges.shape[0] == 1:
                return digitize(self.edges, self.score.steps[0])[self.score.bins(flat)[0]]  # no need of the values
            return digitize(self.edges, self.score.values(flat))


class RegionIndicator(NamedTuple):
    """Two cells: outside and inside the region. A run that is not finite is outside."""

    region: Region

    @property
    def size(self) -> int:
        return 2

    def codes(self, x: Any) -> Any:
        # Comparisons with NaN and infinity are false, so such runs need no care.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.region.contains(x).astype(np.int64)
