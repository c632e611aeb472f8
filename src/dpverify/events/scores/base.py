"""What every score kind has in common: the protocol, the linear functions of an output, and the level sets.

A score maps an output to one number that is large where the first dataset is more likely, like a log-likelihood ratio.
Its level sets are a partition of the output space like any other (docs/method.md, section 5.3). Whatever fits a score,
the tested form is plain data (a NamedTuple of arrays) that is evaluated by our own code in NumPy or JAX.

A score kind lives in one file of this package. The file holds the NamedTuple and a function that returns learners for
given training data (`training.py`). The lists in `__init__.py` name all kinds. `Linear` is here because the learners of
several kinds fit it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dpverify.events.wording import coordinate_names, describe_interval
from dpverify.util.arrays import Array, digitize, map_parallel, multiply_rows
from dpverify.util.formatting import format_number


@runtime_checkable
class Score(Protocol):
    """A fitted score. `flat` stands for outputs of shape (runs, steps * dimensions).

    A large value must mean that the first dataset is more likely: {score > t} is tested for the first dataset, and
    {score <= t} for the second.

    A kind may also define `describe_level_set(selected, examples)` (a description that is more specific than a
    threshold of the score, or None), `is_plain_data` (False if the score holds a function), and `features` with
    `values_of_features(features)` (scores with the same features are then evaluated together).
    """

    def values(self, flat: Array, /) -> Array:
        """Return one number per run."""
        ...

    @property
    def n_parameters(self) -> int:
        """How many numbers were fitted, not counting the features. More parameters are penalised during selection."""
        ...

    def describe(self, names: list[str], /) -> str:
        """Name the kind of score and the coordinates that it depends on most."""
        ...


class Features(NamedTuple):
    """The coordinates of an output, or its innovations.

    An innovation is the part of a coordinate that the earlier coordinates do not predict linearly.

    Attributes
    ----------
    mean : ndarray of shape (J,)
        Subtracted before whitening.
    whiten : ndarray of shape (F, J) or None
        The coefficients of F features: a lower triangular matrix for innovations, or a few projections. None for the
        coordinates themselves.
    """

    mean: np.ndarray
    whiten: np.ndarray | None

    def values(self, flat: Array) -> Array:
        """Return the features of every run."""
        return flat if self.whiten is None else multiply_rows(flat - self.mean, self.whiten.T)

    def unit_of(self, number: int) -> tuple[float, float, str] | None:
        """Return factor and shift from a feature to the unit of its coordinate, and what to add to its name.

        The result is the coordinate itself if the feature depends on no other one. A feature that is neither a
        coordinate nor an innovation has no such unit: None.
        """
        if self.whiten is None:
            return 1.0, 0.0, ""
        weights = self.whiten[number]
        if not weights[number] > 0 or weights[number + 1 :].any():
            return None
        scale = float(1 / weights[number])
        is_coordinate = np.count_nonzero(weights) == 1
        return (scale, float(self.mean[number]), "") if is_coordinate else (scale, 0.0, " less its prediction")


class Linear(NamedTuple):
    """A weighted sum of the coordinates.

    Attributes
    ----------
    weights : ndarray of shape (J,)
        The weight of every coordinate.
    """

    weights: np.ndarray

    @property
    def n_parameters(self) -> int:
        """The number of weights."""
        return self.weights.size

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        return multiply_rows(flat, self.weights[:, None])[:, 0]

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and its coordinates."""
        coordinates = np.arange(self.weights.size)
        return f"a linear score of {describe_coordinates(np.abs(self.weights), coordinates, names)}"

    def describe_level_set(self, selected: SelectedLevels, examples: np.ndarray) -> str | None:
        """Describe a half-line of a scalar output."""
        if self.weights.size > 1 or not self.weights[0]:
            return None
        cut = selected.threshold / float(self.weights[0])
        if selected.above == (self.weights[0] > 0):
            return describe_interval("output", cut, math.inf)
        return describe_interval("output", -math.inf, cut)


class SelectedLevels(NamedTuple):
    """Some of the level sets between sorted edges."""

    edges: np.ndarray
    codes: np.ndarray

    @property
    def above(self) -> bool:
        """Whether the event is `score > threshold`; otherwise it is `score <= threshold`."""
        return bool(self.codes[-1] == self.edges.size and self.codes.size <= self.edges.size)

    @property
    def threshold(self) -> float:
        """The edge between the selected levels and the others."""
        edge = self.codes[0] - 1 if self.above else min(self.codes[-1], self.edges.size - 1)
        return float(self.edges[edge])

    def contains(self, values: np.ndarray) -> np.ndarray:
        """Return which of these score values lie in the selected levels."""
        return np.isin(np.searchsorted(self.edges, values), self.codes)

    def compare(self, subject: str) -> str:
        """Return the comparison of a subject with the threshold in words."""
        return f"{subject} {'>' if self.above else '<='} {format_number(self.threshold)}"


class Levels(NamedTuple):
    """The level sets of a score between sorted edges: cells 0 to E, each closed above.

    Attributes
    ----------
    score : Score
        The score.
    edges : ndarray of shape (E,)
        The sorted edges.
    """

    score: Score
    edges: np.ndarray

    @property
    def size(self) -> int:
        """One more than the largest code."""
        return self.edges.shape[0] + 1

    @property
    def n_cells(self) -> int:
        """The number of level sets."""
        return self.size

    @property
    def n_parameters(self) -> int:
        """The number of fitted parameters of the score."""
        return self.score.n_parameters

    @property
    def levels(self) -> Levels:
        """These level sets. The attribute is None for partitions of another kind."""
        return self

    @property
    def has_boxes(self) -> bool:
        """Whether the cells are boxes in the coordinates of the output."""
        return False

    def join(self, other: Levels) -> Levels:
        """Return the level sets of the same score between the edges of both."""
        if np.array_equal(self.edges, other.edges):
            return self
        return Levels(self.score, np.union1d(self.edges, other.edges))

    def codes_within(self, joined: Levels) -> np.ndarray | None:
        """Return the level for every level of a joined partition; None if both are the same."""
        if np.array_equal(self.edges, joined.edges):
            return None
        return np.searchsorted(self.edges, np.append(joined.edges, np.inf))

    def event_complexity(self, codes: np.ndarray) -> int:
        """Return how many numbers describe the union of these levels."""
        return self.n_parameters

    def single_cell(self, codes: np.ndarray) -> int | None:
        """Return None: a level set is not a cell of a given partition."""
        return None

    def coordinate_edges(self, coordinate: int) -> np.ndarray:
        """Return no edges: level sets do not divide a coordinate independently of the others."""
        return np.zeros(0)

    def codes(self, x: Array) -> Array:
        """Return the level of every run."""
        flat = x.reshape(x.shape[0], -1)
        with np.errstate(over="ignore", invalid="ignore"):
            return digitize(self.edges, self.score.values(flat))

    def describe(self, codes: np.ndarray, examples: np.ndarray) -> str:
        """Describe a union of level sets as cells of a partition. `examples` only give the shape of an output."""
        names = coordinate_names(*examples.shape[1:])
        number = "one" if codes.size == 1 else f"a union of {codes.size}"
        return f"{number} of the {self.n_cells} ranges of {self.score.describe(names)}"

    def describe_event(self, codes: np.ndarray, examples: np.ndarray) -> str:
        """Describe the event that the score lies in one of these levels, in terms of the output where possible."""
        selected = SelectedLevels(self.edges, codes)
        describe_level_set = getattr(self.score, "describe_level_set", None)
        if describe_level_set is not None:
            text = describe_level_set(selected, examples)
            if text is not None:
                return text
        return selected.compare(self.score.describe(coordinate_names(*examples.shape[1:])))


def count_numbers(names: list[str]) -> str:
    """Return how many output numbers have these names, in words.

    Examples
    --------
    >>> count_numbers(["x"]), count_numbers(["x", "y"])
    ('one output number', '2 output numbers')
    """
    return "one output number" if len(names) == 1 else f"{len(names)} output numbers"


def describe_coordinates(weights: np.ndarray, coordinates: np.ndarray, names: list[str]) -> str:
    """Name the coordinates that a score depends on; of several coordinates the two with the largest weights."""
    by_weight = coordinates[np.argsort(-weights, kind="stable")]
    if weights.size == 1:
        return names[int(by_weight[0])]
    return f"{weights.size} output numbers (most weight on {', '.join(names[int(j)] for j in by_weight[:2])})"


RUNS_PER_PIECE = 4096  # the arrays of this many runs stay small


def evaluate_scores(scores: Sequence[Score], flat: np.ndarray, in_threads: bool = False) -> list[np.ndarray]:
    """Return the values of each score, one number per run; large arrays can be divided among threads.

    Features that several scores share (the same object) are computed once.
    """
    result = [np.empty(len(flat)) for _ in scores]
    sharing = [i for i, score in enumerate(scores) if hasattr(score, "values_of_features")]

    def evaluate_piece(start: int) -> None:
        piece, known = slice(start, start + RUNS_PER_PIECE), {}
        for i in sharing:
            score: Any = scores[i]
            if id(score.features) not in known:
                known[id(score.features)] = score.features.values(flat[piece])
            result[i][piece] = score.values_of_features(known[id(score.features)])

    with np.errstate(over="ignore", invalid="ignore"):
        for i in set(range(len(scores))).difference(sharing):
            result[i] = np.asarray(scores[i].values(flat), float)
        map_parallel(evaluate_piece, range(0, len(flat), RUNS_PER_PIECE), flat.size if in_threads else 0)
    return result
