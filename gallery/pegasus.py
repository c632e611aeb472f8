"""PeGaSus: perturb, group, smooth.

Chen, Machanavajjhala, Hay and Miklau, PeGaSus: data-adaptive differentially private stream processing, 2017.

Every count receives Laplace noise with 0.8 eps. A group of steps is extended while its noisy deviation stays below a
noisy threshold, 5/eps_g + Lap(4/eps_g), with noise of scale 8/eps_g and eps_g = 0.2 eps. The median of the noisy
counts of the current group is released. Six steps, eps 1.

Neighbours: One count changes by 1.

Why: The budgets of the perturber and of the grouper add up to the claim, which holds. It is not tight: the released
medians hide most of the noisy counts, and the groups reveal little with a fifth of the budget. With twice the budget
the same claim fails.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpverify import claims
from gallery.entry import Case, Truth, make_entry


def deviations(data: np.ndarray) -> np.ndarray:
    """Return the sum of absolute deviations from the mean for every interval of steps, by first and last step."""
    steps = len(data)
    table = np.zeros((steps, steps))
    for start in range(steps):
        for end in range(start, steps):
            group = data[start : end + 1]
            table[start, end] = np.abs(group - group.mean()).sum()
    return table


@dataclass(frozen=True)
class Pegasus:
    """Release the median of the noisy counts of the current group.

    Attributes
    ----------
    epsilon : float
        The budget: a share of it perturbs the counts, the rest forms the groups.
    perturber_share : float
        The share of the perturber.

    Examples
    --------
    >>> Pegasus()(np.full(6, 5.0), 4, np.random.default_rng(0)).shape
    (4, 6)
    """

    epsilon: float = 1.0
    perturber_share: float = 0.8

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the smoothed stream."""
        for_counts = self.perturber_share * self.epsilon
        for_groups = self.epsilon - for_counts
        noisy = data + rng.laplace(scale=1 / for_counts, size=(runs, len(data)))
        table = deviations(data)
        start, threshold = np.zeros(runs, dtype=int), np.empty(runs)
        released = np.empty((runs, len(data)))
        for step in range(len(data)):
            deviation = table[start, step] + rng.laplace(scale=8 / for_groups, size=runs)
            begins = np.flatnonzero((deviation >= threshold) if step else np.ones(runs, dtype=bool))
            start[begins] = step
            threshold[begins] = 5 / for_groups + rng.laplace(scale=4 / for_groups, size=len(begins))
            for first in range(step + 1):
                row = np.flatnonzero(start == first)
                released[row, step] = np.median(noisy[row, first : step + 1], axis=1)
        return released


def claimed_bound() -> Truth:
    """Return the upper bound of the proof: the budgets of the perturber and of the grouper add up."""
    return Truth(1.0, None, "proof of the claim", is_exact=False)


FIRST = np.array([5.0, 5, 6, 40, 41, 40])

SECOND = FIRST + (np.arange(6) == 3)

ENTRY = make_entry(
    __name__,
    __doc__,
    Case("pegasus", "epsilon 1", Pegasus(), (FIRST, SECOND), claims.pure(1.0), claimed_bound),
    Case(
        "pegasus-half-noise",
        "half of the noise at the same claim",
        Pegasus(epsilon=2.0),
        (FIRST, SECOND),
        claims.pure(1.0),
        role="control",
    ),
)
