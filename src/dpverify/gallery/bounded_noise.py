"""Bounded noise: the staircase law of set-based estimation, and Laplace noise that is truncated to a range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpverify.gallery.entry import Case, Entry, Runs, Truth, approximate_truth
from dpverify.gallery.laws import discrete_truth
from dpverify.stats.claims import Approximate, approximate, pure
from dpverify.util.arrays import Array

RATIO = 0.3  # logarithm of the ratio of neighbouring stairs
BOUND = 7  # the noise lies between -7 and 7
LATTICE = 0.0014


@dataclass(frozen=True)
class StaircaseNoise:
    """Add noise whose density is constant on intervals of length 1 and falls by exp(-0.3) from one to the next.

    Attributes
    ----------
    lattice : float or None
        The noise is rounded to multiples of this number; None leaves it as it is.

    Examples
    --------
    >>> StaircaseNoise()(np.zeros(3), 5, np.random.default_rng(0)).shape
    (5, 3)
    """

    lattice: float | None = None

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return noisy measurements."""
        shape = (runs, len(data))
        stair = rng.choice(BOUND, size=shape, p=stair_masses())
        noise = rng.choice([-1.0, 1.0], size=shape) * (stair + rng.random(shape))
        if self.lattice is not None:
            noise = self.lattice * np.round(noise / self.lattice)
        return data + noise


def stair_masses() -> np.ndarray:
    """Return the probabilities of the distances 0 to 1, 1 to 2, ... from zero."""
    weights = np.exp(-RATIO * np.arange(BOUND))
    return weights / weights.sum()


def one_step() -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of the unit intervals for the measurements 0 and 1; the density is constant on each."""
    half = stair_masses() / 2
    whole = np.concatenate([half[::-1], half])
    return np.append(whole, 0.0), np.insert(whole, 0, 0.0)


def staircase_truth(measurements: int, claim: Approximate) -> Truth:
    """Return the truth of so many measurements that all change by 1."""
    first, second = np.ones(1), np.ones(1)
    for _ in range(measurements):
        first, second = (np.outer(law, step).ravel() for law, step in zip((first, second), one_step(), strict=True))
    return discrete_truth(first, second, claim)


def lattice_truth() -> Truth:
    """Return the truth on the lattice: 1 is no multiple of its step, so the outputs have no value in common."""
    return Truth(math.inf, 1.0, "disjoint supports", 1.0)


def closeness_to_lattice(samples: Array) -> Array:
    """Return how close outputs are to the lattice through the first measurement, which is 0."""
    position = np.asarray(samples)[:, 0, 0] / LATTICE
    return -np.abs(position - np.round(position))


ONE = approximate(0.3, 0.0245)
THREE = approximate(0.9, 0.0735)

TRUNCATED = Entry(
    name="truncated",
    title="Set-based estimation with truncated noise",
    source=("Dawoud, Chen, Alanwar and Johansson, Differentially private set-based estimation using zonotopes, 2023"),
    what=(
        "A measurement receives noise between -7 and 7 whose density is a staircase: it falls by exp(-0.3) from one "
        "interval of length 1 to the next. The claim per measurement is epsilon 0.3 and delta 0.0244 at sensitivity "
        "1. It is tested with delta 0.0245, because the printed delta is rounded: the staircase here has 0.02441."
    ),
    neighbours="Each measurement changes by at most 1; here by 1.",
    why=(
        "Where both densities are positive their ratio is at most exp(0.3). The outermost interval of length 1 has "
        "probability 0.0244 and is impossible under the other data set, so bounded noise cannot have delta 0. Read "
        "as a density the claim stands. If the noise takes only multiples of 0.0014, a measurement that moves by 1, "
        "which is no such multiple, gives outputs that are all different: one output names the data set. Three "
        "measurements compose: the claim of one fails, and three times the numbers of one hold."
    ),
    cases=(
        Case(
            "truncated",
            "one measurement, noise as a density",
            StaircaseNoise(),
            np.zeros(1),
            np.ones(1),
            ONE,
            partial(staircase_truth, 1, ONE),
            full=Runs(250_000, 4_000_000),
        ),
        Case(
            "truncated-lattice",
            "one measurement, noise in multiples of 0.0014",
            StaircaseNoise(LATTICE),
            np.zeros(1),
            np.ones(1),
            ONE,
            lattice_truth,
            role="control",
            events=closeness_to_lattice,
        ),
        Case(
            "truncated-three",
            "three measurements at the claim of one",
            StaircaseNoise(),
            np.zeros(3),
            np.ones(3),
            ONE,
            partial(staircase_truth, 3, ONE),
            role="control",
        ),
        Case(
            "truncated-three-composed",
            "three measurements, claim (0.9, 0.0735)",
            StaircaseNoise(),
            np.zeros(3),
            np.ones(3),
            THREE,
            partial(staircase_truth, 3, THREE),
            role="corrected",
            full=Runs(1_000_000, 4_000_000),
        ),
    ),
)


@dataclass(frozen=True)
class BoundedLaplace:
    """Laplace noise, drawn again until the output lies between 0 and `top`.

    Attributes
    ----------
    scale : float
        The scale of the noise.
    top : float
        The upper end of the range.

    Examples
    --------
    >>> samples = BoundedLaplace(1.0)(0.0, 1000, np.random.default_rng(0))
    >>> bool((samples >= 0).all() and (samples <= 20).all())
    True
    """

    scale: float
    top: float = 20.0

    def inside(self, centre: float) -> float:
        """Return the probability that one draw lies in the range."""
        return 1 - 0.5 * (math.exp(-centre / self.scale) + math.exp(-(self.top - centre) / self.scale))

    def __call__(self, data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return outputs inside the range, by the inverse of the distribution function."""
        centre = float(data)
        low = 0.5 * math.exp(-centre / self.scale)  # the probability below the range
        p = low + self.inside(centre) * rng.random(runs)
        sign, tail = np.where(p < 0.5, -1.0, 1.0), np.where(p < 0.5, p, 1 - p)
        return np.clip(centre - sign * self.scale * np.log(2 * tail), 0, self.top)


def corrected_scale(epsilon: float, top: float = 20.0) -> float:
    """Return the smallest scale b with 1/b + log(C(1)/C(0)) = epsilon, where C is the probability of the range."""
    low, high = 1 / epsilon, 10 / epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if edge_loss(BoundedLaplace(middle, top)) > epsilon else (low, middle)
    return high


def edge_loss(mechanism: BoundedLaplace) -> float:
    """Return the largest loss for the data 0 and 1, which occurs at the output 0."""
    return 1 / mechanism.scale + math.log(mechanism.inside(1.0) / mechanism.inside(0.0))


def bounded_truth(mechanism: BoundedLaplace) -> Truth:
    """Return the truth for the data 0 and 1; the probability of a loss near its supremum is that of small outputs."""
    supremum, b = edge_loss(mechanism), mechanism.scale
    normaliser = math.log(mechanism.inside(1.0) / mechanism.inside(0.0))
    edges = np.linspace(0, mechanism.top, 200_001)
    middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    loss = (np.abs(middle - 1) - middle) / b + normaliser
    density = np.exp(-middle / b) / (2 * b * mechanism.inside(0.0))

    def delta_at(epsilon: float) -> float:
        forwards = np.maximum(-np.expm1(epsilon - loss), 0) * density
        backwards = np.maximum(np.exp(-loss) - math.exp(epsilon), 0) * density
        return float(max(forwards.sum(), backwards.sum()) * width)

    mass = float(density[loss >= 0.99 * supremum].sum() * width)
    return approximate_truth(delta_at, pure(1.0), "closed form", supremum, mass)


def bounded_case(name: str, title: str, scale: float, corrected: bool) -> Case:
    """Return a case at the claim epsilon 1 with the data at the edge of the range."""
    mechanism = BoundedLaplace(scale)
    return Case(
        name,
        title,
        mechanism,
        0.0,
        1.0,
        pure(1.0),
        partial(bounded_truth, mechanism),
        "corrected" if corrected else "control",
        full=Runs(500_000, 4_000_000),
        quick=Runs(20_000, 100_000),
    )


BOUNDED_LAPLACE = Entry(
    name="bounded-laplace",
    title="Bounded Laplace mechanism",
    source=(
        "Holohan, Antonatos, Braghin and Mac Aonghusa, The bounded Laplace mechanism in differential privacy, 2020"
    ),
    what=(
        "Laplace noise around a number is drawn again until the output lies between 0 and 20. The naive version "
        "keeps the scale 1/eps of the unbounded mechanism; the source derives a larger scale."
    ),
    neighbours="The number changes by at most 1; here from 0, the edge of the range, to 1.",
    why=(
        "Drawing again divides the density by the probability of the range, which depends on the data: one half at "
        "the edge and 1 - exp(-eps)/2 at distance 1. The ratio of these probabilities adds log(2 - exp(-eps)) to the "
        "loss, so the naive scale gives 1.49 at the claim 1. The scale of the source solves 1/b + log(C(1)/C(0)) = "
        "eps and stands."
    ),
    cases=(
        bounded_case("bounded-laplace-naive", "scale 1/eps", 1.0, False),
        bounded_case("bounded-laplace", "scale of the source", corrected_scale(1.0), True),
    ),
)
