"""Training of scores: the kept training runs, their features and bins, and the protocol of a learner."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dpverify.errors import InputError
from dpverify.events.partition import repeated_values
from dpverify.events.scores.base import Features, Score
from dpverify.util.arrays import Array, contiguous_transpose, map_columns, sum_outer_products

DISCRETE_CHECK_RUNS = 1 << 14  # runs that are checked for repeated values
MAX_WHITENED_COORDINATES = 1024  # a covariance of more coordinates needs too much memory, and more runs than are kept
MAX_MAGNITUDE = 1e150  # of the numbers of an output whose covariance is computed
CLIPPED_SHARE = 0.005  # of the runs at either end: heavy tails have no moments
MAX_BINS = 64  # per coordinate
MAX_BINS_SINGLE_COORDINATE = 512
TAIL_RUNS = 32  # runs in the outermost bins
GAP_WIDTH, MAX_GAPS = 8.0, 8  # bins that are so many times wider than the median bin on either side are divided
MAX_QUANTILE_RUNS = 1 << 14  # runs that place the limits of clipping


class CountedStatistic(Protocol):
    """A table of counts of a block of runs. Tables of different blocks add up."""

    def measure(self, samples: Array, /) -> np.ndarray: ...


class Learner(NamedTuple):
    """Fits scores of one kind to training runs.

    Attributes
    ----------
    fit : callable
        Returns the fitted scores. With a statistic its arguments are the sums over the runs of the first and of the
        second dataset, otherwise it has none.
    statistic : CountedStatistic or None
        What is counted over all training runs, also those that do not fit into memory.
    """

    fit: Callable[..., Sequence[Score]]
    statistic: CountedStatistic | None = None


@dataclass(frozen=True)
class TrainingData:
    """Finite training runs that are kept in memory.

    Attributes
    ----------
    first, second : ndarray of shape (runs, coordinates)
        The runs of each dataset.
    pooled : ndarray of shape (runs, coordinates)
        The runs of both datasets.
    atoms : list of ndarray
        The values with positive probability, for each coordinate.
    edges : list of ndarray
        The edges of the bins of each coordinate.
    shape : tuple of int
        Steps and dimensions of one output.
    """

    first: np.ndarray
    second: np.ndarray
    pooled: np.ndarray
    atoms: list[np.ndarray]
    edges: list[np.ndarray]
    shape: tuple[int, int]

    @property
    def dimension(self) -> int:
        """The number of coordinates of one output."""
        return self.pooled.shape[1]

    @property
    def has_atoms(self) -> bool:
        """Whether values repeat in any coordinate."""
        return any(map(len, self.atoms))

    @functools.cached_property
    def is_discrete(self) -> bool:
        """Whether all values repeat."""
        columns = zip(self.pooled.T, self.atoms, strict=True)
        return all(np.isin(column[:DISCRETE_CHECK_RUNS], values).all() for column, values in columns)

    @property
    def coordinates(self) -> Features:
        """The coordinates themselves as features."""
        return Features(np.zeros(self.dimension), None)

    @functools.cached_property
    def innovations(self) -> Features:
        """The innovations as features; the coordinates themselves if there are very many.

        Threads that fit scores read the cached properties. Python 3.11 locks them, so a cached property must not wait
        for threads that read another one.
        """
        return fit_innovations(self.first, self.second) if self.can_be_whitened else self.coordinates

    @property
    def can_be_whitened(self) -> bool:
        """Whether the covariance of all coordinates is used."""
        return self.dimension <= MAX_WHITENED_COORDINATES

    @functools.cached_property
    def clipped_innovations(self) -> tuple[np.ndarray, np.ndarray]:
        """The innovations of both datasets, clipped at extreme quantiles."""
        first, second = self.features_of_sides(self.innovations)
        return clip_tails(first), clip_tails(second)

    @functools.cached_property
    def pooled_innovations(self) -> np.ndarray:
        """The innovations of the runs of both datasets."""
        return self.innovations.values(self.pooled)

    def head(self, runs: int) -> TrainingData:
        """Return the first runs of both datasets, with the same innovations."""
        first, second = self.first[:runs], self.second[:runs]
        part = TrainingData(first, second, np.concatenate([first, second]), self.atoms, self.edges, self.shape)
        part.__dict__["innovations"] = self.innovations  # the cached property
        return part

    def features_of_pooled(self, features: Features) -> np.ndarray:
        """Return the features of the runs of both datasets."""
        return self.pooled_innovations if features is self.innovations else features.values(self.pooled)

    def features_of_sides(self, features: Features) -> tuple[np.ndarray, np.ndarray]:
        """Return the features of the runs of each dataset."""
        pooled, runs = self.features_of_pooled(features), len(self.first)
        return (pooled, pooled) if self.first is self.pooled else (pooled[:runs], pooled[runs:])


ScoreFamily = Callable[[TrainingData], list[Learner]]


def summarise(samples: list[np.ndarray], is_coupled: bool = False) -> TrainingData:
    """Return the kept training runs of both datasets, which are finite.

    Parameters
    ----------
    samples : list of ndarray
        The runs of both datasets.
    is_coupled : bool
        Whether the runs of both datasets have the same random numbers. A value that occurs in both of them is then no
        sign of an atom, so that atoms are looked for in the first half of the one and the second half of the other.
    """
    *_, steps, dimension = (1, *samples[0].shape[1:])
    sides = [x.reshape(len(x), -1) for x in samples]
    pooled, runs = np.concatenate(sides), len(sides[0])
    independent = np.s_[runs // 2 : runs + runs // 2] if is_coupled else np.s_[:]
    divided = _divide_coordinates(pooled, independent)
    return TrainingData(pooled[:runs], pooled[runs:], pooled, *divided, (steps, dimension))


def _divide_coordinates(flat: np.ndarray, independent: slice = np.s_[:]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the atoms and the edges of the bins of every coordinate; atoms are looked for in the independent runs."""

    def divide(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ordered = np.sort(column)
        looked_at = column[independent]
        atoms = repeated_values(ordered if looked_at.size == column.size else np.sort(looked_at))
        return atoms, bin_edges(ordered, atoms, flat.shape[1])

    atoms, edges = zip(*map_columns(divide, flat), strict=True)
    return list(atoms), list(edges)


def bin_edges(column: np.ndarray, atoms: np.ndarray, n_features: int) -> np.ndarray:
    """Return quantile edges of one sorted feature, finer at both ends, with one bin per atom.

    All values must be given if there are atoms.
    """
    number = MAX_BINS_SINGLE_COORDINATE if n_features == 1 else MAX_BINS
    if not atoms.size:
        return quantile_edges(column, number)
    assert isinstance(column, np.ndarray)
    continuous = column[~np.isin(column, atoms)]
    return np.unique(np.concatenate([atoms, np.nextafter(atoms, -np.inf), quantile_edges(continuous, number)]))


def quantile_edges(x: np.ndarray, number: int) -> np.ndarray:
    """Return edges between order statistics of sorted values: at equal shares, at doubling shares from the ends, and
    at small shares in wide gaps between the frequent values.
    """
    if not x.size:
        return np.zeros(0)
    doubling = TAIL_RUNS * 2 ** np.arange(max(1, int(np.log2(max(x.size / number / TAIL_RUNS, 1))) + 1))
    equal = np.arange(number + 1) * x.size // number
    ranks = np.concatenate([equal, doubling, x.size - doubling, _ranks_in_gaps(x, equal)])
    ranks = ranks[(ranks > 0) & (ranks < x.size)]
    below, above = x[np.stack([ranks - 1, ranks])]
    return np.unique(below + (above - below) / 2)


def _ranks_in_gaps(x: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return ranks that divide the bins that are much wider than others, except the outermost ones."""
    if x.size // len(ranks) < 2 * TAIL_RUNS:
        return np.zeros(0, np.intp)
    widths = np.diff(x[np.minimum(ranks, x.size - 1)])
    wide = np.flatnonzero(widths[1:-1] > GAP_WIDTH * np.median(widths)) + 1
    # A bin in the tail of a distribution has neighbours of similar width on one side.
    gaps = [i for i in wide if widths[i] > GAP_WIDTH * max(np.median(widths[:i]), np.median(widths[i + 1 :]))]
    return np.concatenate([np.arange(ranks[i], ranks[i + 1], TAIL_RUNS) for i in gaps[:MAX_GAPS]] or [ranks[:0]])


def clip_tails(flat: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Clip each coordinate at its extreme quantiles, so that moments exist for heavy tails; `out` can be `flat`."""
    thinned = contiguous_transpose(flat[:: max(1, len(flat) // MAX_QUANTILE_RUNS)])
    is_copy = thinned.base is None
    low, high = np.quantile(thinned, [CLIPPED_SHARE, 1 - CLIPPED_SHARE], axis=1, overwrite_input=is_copy)
    return np.clip(flat, low, high, out=out)


def covariance(flat: np.ndarray) -> np.ndarray:
    """Return the covariance of the coordinates."""
    return sum_outer_products(flat - flat.mean(0)) / max(len(flat) - 1, 1)


def fit_innovations(first: np.ndarray, second: np.ndarray) -> Features:
    """Whiten with the Cholesky factor of the pooled covariance, in the order of time.

    Each dataset is centred at its own mean for the covariance.
    """
    clipped = np.concatenate([first, second])
    clip_tails(clipped, out=clipped)
    largest = max(float(clipped.max()), -float(clipped.min()))
    if largest > MAX_MAGNITUDE:
        raise InputError(
            f"mechanism: found outputs of size {largest:.0e}; expected at most {MAX_MAGNITUDE:.0e}, because squares of "
            "larger numbers overflow; return the outputs in a larger unit"
        )
    sides = clipped[: len(first)], clipped[len(first) :]
    pooled_covariance = sum(covariance(side) for side in sides) / 2
    # A coordinate that is constant for each dataset has no spread; the distance of the datasets is its scale.
    mean = clipped.mean(0)
    clipped -= mean
    clipped *= clipped
    pooled_deviation = np.sqrt(clipped.mean(0))
    scale = np.sqrt(np.diag(pooled_covariance))
    fallback = np.where(pooled_deviation > 0, pooled_deviation, 1.0)
    scale = np.where(scale > 1e-9 * pooled_deviation, scale, fallback)
    correlation = pooled_covariance / np.outer(scale, scale)
    # A coordinate that the earlier ones determine has no innovation. The ridge limits the scaling of rounding errors.
    factor = np.linalg.cholesky(correlation + 1e-9 * np.eye(len(scale)))
    return Features(mean, np.linalg.solve(factor, np.diag(1 / scale)))
