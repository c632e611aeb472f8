"""Binary mechanism for running sums.

Chan, Shi and Song, Private and continual release of statistics, 2011; control: Dwork, Naor, Pitassi and Rothblum,
Differential privacy under continual observation, 2010.

Each running sum of a stream of T numbers is composed of sums over dyadic intervals, each with Laplace noise of scale
log2(T)/eps, as in common implementations. Whether the source rounds log2(T), or excludes the last step, is not settled
here; T is a power of two.

Neighbours: One item of the stream changes by 1; here the first one.

Why: For T = 2^m the first item is in m + 1 intervals: those of length 1, 2, 4, and so on up to T. Every interval has
noise of scale m/eps and costs eps/m, so the sum is eps (m + 1)/m: 2 for T 2, 1.5 for T 4, 4/3 for T 8 at the claim 1.
If the last step is not released, the item is in m intervals and the claim holds. Noise of scale (1 + log2 T)/eps
counts all intervals, and then the claim holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpverify import claims
from gallery.entry import Case, Role, Truth, make_entry
from gallery.laws import laplace_truth


@dataclass(frozen=True)
class BinaryMechanism:
    """Running sums of a stream from noisy sums over dyadic intervals.

    Attributes
    ----------
    scale : float
        The scale of the Laplace noise of each interval.

    Examples
    --------
    >>> BinaryMechanism(2.0)(np.zeros(4), 5, np.random.default_rng(0)).shape
    (5, 4)
    """

    scale: float

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the noisy sum after each step."""
        noise = rng.laplace(scale=self.scale, size=(runs, len(data)))  # of the interval that ends in each step
        sums, exact = np.zeros((runs, len(data) + 1)), np.concatenate([[0.0], np.cumsum(data)])
        for step in range(1, len(data) + 1):
            start = step & (step - 1)  # the interval is as long as the lowest bit of the step
            sums[:, step] = sums[:, start] + exact[step] - exact[start] + noise[:, step - 1]
        return sums[:, 1:]


def binary_truth(steps: int, scale: float, claim: claims.Approximate) -> Truth:
    """Return the truth if the first of 2^m items changes: it is in m + 1 intervals."""
    return laplace_truth([1 / scale] * (int(math.log2(steps)) + 1), claim)


def binary_case(steps: int, correct: bool) -> Case:
    """Return the case of the first item of so many steps, at the claim epsilon 1."""
    levels = int(math.log2(steps))
    scale = float(levels + 1 if correct else levels)
    first, second = np.zeros(steps), np.eye(steps)[0]
    title = f"T {steps}, noise scale {'(1 + log2 T)/eps' if correct else 'log2(T)/eps'}"
    role: Role = "corrected" if correct else "implemented"
    name = f"binary-t{steps}{'-corrected' if correct else ''}"
    claim = claims.pure(1.0)
    return Case(
        name, title, BinaryMechanism(scale), (first, second), claim, partial(binary_truth, steps, scale, claim), role
    )


ENTRY = make_entry(
    __name__, __doc__, *(binary_case(steps, correct) for steps in (4, 2, 8) for correct in (False, True))
)
