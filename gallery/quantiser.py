"""Random quantisation.

Liu, Kawano and Cao, on random quantisers, 2024; Wang and Başar, Quantization enabled privacy protection in
decentralized stochastic optimization, 2022 (the ternary quantiser is the case of three levels).

A number between two levels at distance d is rounded up with the probability of its fractional part, otherwise down.
The claims have the form (0, delta) with delta = |v - v'|/d, here 0.2 per number.

Neighbours: Every number of the trajectory changes by at most 0.2 d within its cell; here all of them do.

Why: For one number the total variation is exactly |v - v'|/d, so the claim for one step is tight. A trajectory of four
numbers is observed through four independent roundings; its total variation is larger than that of one step, and the
delta of one step is no delta of the trajectory. The composed delta, 1 - (1 - 0.2)^4, holds, and it is attained if the
numbers are levels themselves. At a level one outcome is impossible, so that no finite epsilon holds with delta 0:
quantisation alone gives no pure differential privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from dpverify import claims
from gallery.entry import Case, Role, Truth, make_entry
from gallery.laws import discrete_truth


@dataclass(frozen=True)
class RandomQuantiser:
    """Round each number of a trajectory up or down at random, so that the mean is the number itself.

    Attributes
    ----------
    step : float
        The distance of the levels.

    Examples
    --------
    >>> RandomQuantiser(1.0)(np.array([0.5, 1.0]), 2, np.random.default_rng(0))[:, 1]
    array([1., 1.])
    """

    step: float

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return quantised trajectories."""
        level = np.floor(data / self.step)
        fraction = data / self.step - level
        return self.step * (level + (rng.random((runs, len(data))) < fraction))


def outcome_law(data: np.ndarray, step: float) -> np.ndarray:
    """Return the probabilities of all 2^K trajectories of levels 0 and 1, for data between them."""
    fraction = data / step
    return reduce(lambda law, f: np.outer(law, [1 - f, f]).ravel(), fraction, np.ones(1))


def truth(first: np.ndarray, second: np.ndarray, claim: claims.Approximate) -> Truth:
    """Return the truth by enumeration of all trajectories."""
    return discrete_truth(outcome_law(first, 1.0), outcome_law(second, 1.0), claim)


def make_case(name: str, title: str, first: np.ndarray, change: float, claim: claims.Approximate, role: Role) -> Case:
    """Return a case in which every number grows by the same amount."""
    second = first + change
    return Case(
        name,
        title,
        RandomQuantiser(1.0),
        (first, second),
        claim,
        partial(truth, first, second, claim),
        role,
        measures_delta=True,
    )


ONE, FOUR, LEVEL = np.array([0.3]), np.zeros(4), np.zeros(1)

COMPOSED = 1 - 0.8**4  # the probability that at least one of four numbers is rounded up

ENTRY = make_entry(
    __name__,
    __doc__,
    make_case("quantiser-one", "one number, claim (0, 0.2)", ONE, 0.2, claims.approximate(0.0, 0.2), "published"),
    make_case(
        "quantiser-trajectory", "four numbers at the delta of one", FOUR, 0.2, claims.approximate(0.0, 0.2), "control"
    ),
    make_case(
        "quantiser-composed", "four numbers, composed delta", FOUR, 0.2, claims.approximate(0.0, COMPOSED), "corrected"
    ),
    make_case("quantiser-level", "one number at a level, claim (1, 0)", LEVEL, 0.2, claims.pure(1.0), "control"),
)
