"""Scores of a transformed output: order statistics, distances and low bits.

A transform removes what does not matter (the order of exchangeable records) or makes visible what matters (the distance
from the centre of a heavy-tailed distribution). It is plain data. Any other score is then fitted to its result.

A score of rounding errors, for `learn=`: noise in double precision can show the data by its low bits.

The sum of an answer and noise is rounded to a lattice that depends on the answer, so that some outputs are possible for
one dataset only. This leak is real, and it has little to do with the distribution of the noise. Therefore the score
does not compete unless it is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dpverify.events.scores.additive import additive_learners
from dpverify.events.scores.base import Features, Score, count_numbers
from dpverify.events.scores.interactions import PRIOR_COUNT, Interaction
from dpverify.events.scores.moments import gaussian_learners
from dpverify.events.scores.training import Learner, TrainingData, summarise
from dpverify.util.arrays import Array, array_namespace

MANTISSA_BITS = 53  # of double precision
ZERO_EXPONENT = 64.0  # stands for the lowest bit of zero


class Transform(Protocol):
    """A function of the output that is plain data."""

    def values(self, flat: Array, /) -> Array:
        """Return the transformed outputs, one row per run."""
        ...

    def describe(self) -> str:
        """Name the result."""
        ...


class OrderStatistics(NamedTuple):
    """The sorted coordinates.

    Attributes
    ----------
    coordinates : ndarray of shape (J,)
        The coordinates.
    """

    coordinates: np.ndarray

    def describe(self) -> str:
        """Name the result."""
        return "the sorted coordinates"

    def values(self, flat: Array) -> Array:
        """Return the sorted coordinates of every run."""
        return array_namespace(flat).sort(flat[:, self.coordinates], axis=1)


class Distances(NamedTuple):
    """Logarithms of one plus the squared distances from some centres.

    Attributes
    ----------
    features : Features
        The features in which distances are measured.
    centres : ndarray of shape (C, F)
        The centres.
    """

    features: Features
    centres: np.ndarray

    def describe(self) -> str:
        """Name the result."""
        return "distances from the two mean outputs"

    def values(self, flat: Array) -> Array:
        """Return one number per run and centre."""
        xp, z = array_namespace(flat), self.features.values(flat)
        return xp.stack([xp.log1p(((z - centre) ** 2).sum(1)) for centre in self.centres], axis=1)


class LowBits(NamedTuple):
    """How the coordinates are rounded: the exponent of the lowest bit that is set, and the exponent of the value.

    Attributes
    ----------
    coordinates : ndarray of shape (R,)
        The coordinates; each can occur several times.
    candidates : ndarray of shape (R,)
        Subtracted from each coordinate, for example the true answer that noise was added to.
    """

    coordinates: np.ndarray
    candidates: np.ndarray

    def describe(self) -> str:
        """Name the result."""
        return "the low bits"

    def values(self, flat: Array) -> Array:
        """Return the exponents of the lowest bits, then the exponents of the values."""
        xp = array_namespace(flat)
        mantissa, exponent = xp.frexp(flat[:, self.coordinates] - self.candidates)
        integer = (mantissa * 2.0**MANTISSA_BITS).astype(xp.int64)
        lowest = xp.frexp((integer & -integer).astype(float))[1] - 1
        low = xp.where(integer == 0, ZERO_EXPONENT, 1.0 * exponent - MANTISSA_BITS + lowest)
        return xp.concatenate([low, 1.0 * exponent], axis=1)


MAX_TRANSFORM_RUNS = 1 << 15  # training runs per dataset
MAX_SORTED_COORDINATES = 64
EXCHANGEABLE_TOLERANCE = 6.0  # standard errors between the means of exchangeable coordinates


class Transformed(NamedTuple):
    """A score of a transformed output.

    Attributes
    ----------
    transform : OrderStatistics, Distances or LowBits
        The transform.
    score : Score
        The score of the result.
    """

    transform: OrderStatistics | Distances | LowBits
    score: Score

    @property
    def n_parameters(self) -> int:
        """The number of parameters of the inner score."""
        return self.score.n_parameters

    def values(self, flat: Array) -> Array:
        """Return one number per run."""
        return self.score.values(self.transform.values(flat))

    def describe(self, names: list[str]) -> str:
        """Name the kind of score and the transform."""
        return f"a score of {self.transform.describe()} of {count_numbers(names)}"


def fit_transformed(training: TrainingData, transform: Transform) -> list[Score]:
    """Return the usual scores of transformed outputs."""
    sides = [transform.values(side[:MAX_TRANSFORM_RUNS]) for side in (training.first, training.second)]
    transformed = summarise([side[:, None] for side in sides])
    scores: list[Score] = []
    for learner in (*gaussian_learners(transformed), *additive_learners(transformed)):
        statistic = learner.statistic
        scores += learner.fit(*(statistic.measure(side) for side in sides)) if statistic is not None else learner.fit()
    return [Transformed(transform, score) for score in scores]


def transformed_learners(training: TrainingData) -> list[Learner]:
    """Return learners for the transforms that suit the outputs."""
    if training.dimension == 1:
        return []
    transforms = [make_order(training), make_distances(training)]
    found = [transform for transform in transforms if transform is not None]
    return [Learner(functools.partial(fit_transformed, training, transform)) for transform in found]


def make_order(training: TrainingData) -> OrderStatistics | None:
    """Return the order statistics if the coordinates of each dataset look exchangeable."""
    if training.dimension > MAX_SORTED_COORDINATES:
        return None
    for side in (training.first, training.second):
        side = side[:MAX_TRANSFORM_RUNS]
        for values in (side, (side - side.mean(0)) ** 2):
            means, errors = values.mean(0), values.std(0) / np.sqrt(len(values))
            if np.ptp(means) > EXCHANGEABLE_TOLERANCE * errors.max():
                return None
    return OrderStatistics(np.arange(training.dimension))


def make_distances(training: TrainingData) -> Distances | None:
    """Return the distances from the centres of both datasets and from their middle."""
    if not training.can_be_whitened:
        return None
    centres = [side.mean(0) for side in training.clipped_innovations]
    return Distances(training.innovations, np.stack(centres))


LOWEST_BITS = np.arange(-60.5, -8.0)  # edges of the exponents of the lowest bits
EXPONENTS = np.arange(-26.5, 26.0)  # edges of the exponents of the values
MAX_TABLES = 4


def rounding_score(candidates: Sequence[float] = (0.0,)) -> Callable[[np.ndarray, np.ndarray], Score]:
    """Return a function for `learn=` that fits a score to the low bits of the outputs.

    Parameters
    ----------
    candidates : sequence of float, default (0.0,)
        Values from which the distance of every output is also looked at, for example the true answers.

    Returns
    -------
    callable
        Maps the training runs of both datasets to a score, which is plain data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first, second = (answer + rng.laplace(size=(4000, 1, 1)) for answer in (0.0, 1.0))
    >>> score = rounding_score()(first, second)
    >>> bool(score.values(first[:, 0]).max() > 3)  # these low bits occur with the first dataset only
    True
    """
    values = np.asarray(candidates, float)

    def fit(first: np.ndarray, second: np.ndarray) -> Score:
        sides = [side.reshape(len(side), -1) for side in (first, second)]
        coordinates, own = (a.ravel() for a in np.meshgrid(np.arange(sides[0].shape[1]), values, indexing="ij"))
        counts = [_count(LowBits(coordinates, own), side) for side in sides]
        tables = np.log(counts[0] / counts[1])
        information = ((counts[0] - counts[1]) * tables).sum(1)
        kept = np.sort(np.argsort(-information, kind="stable")[:MAX_TABLES])
        edges = np.tile(np.stack([LOWEST_BITS, EXPONENTS]), (kept.size, 1, 1))
        subsets = np.stack([np.arange(kept.size), kept.size + np.arange(kept.size)], axis=1)
        identity = Features(np.zeros(2 * kept.size), None)
        return Transformed(LowBits(coordinates[kept], own[kept]), Interaction(identity, subsets, edges, tables[kept]))

    return fit


def _count(transform: LowBits, flat: np.ndarray) -> np.ndarray:
    """Return the number of runs in every joint bin of a lowest bit and an exponent, plus a prior count."""
    bits = transform.values(flat)
    number, width = len(transform.coordinates), len(EXPONENTS) + 1
    rows = []
    for r in range(number):
        cells = np.searchsorted(LOWEST_BITS, bits[:, r]) * width + np.searchsorted(EXPONENTS, bits[:, number + r])
        rows.append(np.bincount(cells, minlength=width * (len(LOWEST_BITS) + 1)) + PRIOR_COUNT)
    return np.stack(rows)
