"""Set-based estimation with truncated noise.

Dawoud, Chen, Alanwar and Johansson, Differentially private set-based estimation using zonotopes, 2023.

A measurement receives noise between -7 and 7 whose density is a staircase: it falls by exp(-0.3) from one interval of
length 1 to the next. The claim per measurement is epsilon 0.3 and delta 0.0244 at sensitivity 1. It is tested with
delta 0.0245, because the printed delta is rounded: the staircase here has 0.02441.

Neighbours: Each measurement changes by at most 1; here by 1.

Why: Where both densities are positive their ratio is at most exp(0.3). The outermost interval of length 1 has
probability 0.0244 and is impossible under the other dataset, so bounded noise cannot have delta 0. Read as a density
the claim holds. If the noise takes only multiples of 0.0014, a measurement that moves by 1, which is no such
multiple, gives outputs that are all different: one output names the dataset. Three measurements compose: the claim of
one fails, and three times the numbers of one hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpverify import claims
from gallery.entry import Case, Runs, Truth, make_entry
from gallery.laws import discrete_truth

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


def staircase_truth(measurements: int, claim: claims.Approximate) -> Truth:
    """Return the truth of so many measurements that all change by 1."""
    first, second = np.ones(1), np.ones(1)
    for _ in range(measurements):
        first, second = (np.outer(law, step).ravel() for law, step in zip((first, second), one_step(), strict=True))
    return discrete_truth(first, second, claim)


def lattice_truth() -> Truth:
    """Return the truth on the lattice: 1 is no multiple of its step, so the outputs have no value in common."""
    return Truth(math.inf, 1.0, "disjoint supports", 1.0)


def closeness_to_lattice(samples: np.ndarray) -> np.ndarray:
    """Return how close outputs are to the lattice through the first measurement, which is 0."""
    position = np.asarray(samples)[:, 0, 0] / LATTICE
    return -np.abs(position - np.round(position))


ONE = claims.approximate(0.3, 0.0245)

THREE = claims.approximate(0.9, 0.0735)

ENTRY = make_entry(
    __name__,
    __doc__,
    Case(
        "truncated",
        "one measurement, noise as a density",
        StaircaseNoise(),
        (np.zeros(1), np.ones(1)),
        ONE,
        partial(staircase_truth, 1, ONE),
        full=Runs(250_000, 4_000_000),
    ),
    Case(
        "truncated-lattice",
        "one measurement, noise in multiples of 0.0014",
        StaircaseNoise(LATTICE),
        (np.zeros(1), np.ones(1)),
        ONE,
        lattice_truth,
        role="control",
        events=closeness_to_lattice,
    ),
    Case(
        "truncated-three",
        "three measurements at the claim of one",
        StaircaseNoise(),
        (np.zeros(3), np.ones(3)),
        ONE,
        partial(staircase_truth, 3, ONE),
        role="control",
    ),
    Case(
        "truncated-three-composed",
        "three measurements, claim (0.9, 0.0735)",
        StaircaseNoise(),
        (np.zeros(3), np.ones(3)),
        THREE,
        partial(staircase_truth, 3, THREE),
        role="corrected",
        full=Runs(1_000_000, 4_000_000),
    ),
)
