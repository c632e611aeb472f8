"""What a verification that may stop early adds to a report: why it ended, all bets, and what follows from them.

The bets are stored with the probabilities that were predicted before each batch. So the wealth against any claim, and
with it the e-value, the p-value and the confidence sequences, can be computed from the report again.
"""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass

import numpy as np

from dpverify.stats.anytime import Bets, Boundary, largest_rejected, line_boundary, log_wealth
from dpverify.stats.claim_kinds import Claim

EARLY_SHARE = 0.2  # of alpha, for the wealth; the rest is for the exact test at the end of the first budget
MAX_PARAMETER = 20.0


def parameter_grid(step: float) -> np.ndarray:
    """Return a grid from 0 to 20 with this absolute step below 1, and this relative step above.

    Examples
    --------
    >>> parameter_grid(0.25)[:6].tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    """
    number = math.ceil(math.log(MAX_PARAMETER) / math.log1p(step))
    return np.concatenate([np.arange(round(1 / step)) * step, (1 + step) ** np.arange(number + 1)])


EPSILON_GRID = parameter_grid(0.005)
CURVE_GRID = parameter_grid(0.02)  # of the parameters of other claims, whose boundaries take longer to compute
DELTA_GRID = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 200)])
CHUNK = 32  # parameters of a grid that are computed together


class StoppedBy(enum.StrEnum):
    """Why a verification that may stop early ended.

    Attributes
    ----------
    REFUTED
        The wealth reached its threshold.
    BOUNDED
        At a look, the upper bound on the partition met the claim.
    BUDGET
        All runs were drawn. The verdict may still be any of them, because the exact test comes at this moment.
    """

    REFUTED = "refuted"
    BOUNDED = "bounded"
    BUDGET = "budget"


@dataclass(frozen=True)
class Sequence:
    """The course of a verification that may stop early.

    Attributes
    ----------
    stopped : StoppedBy
        Why it ended.
    runs_used : int
        All runs per data set, those that checked the mechanism included.
    first_runs : int
        The runs per data set before the first bet.
    exact_runs : int
        The runs per data set of the exact test; 0 if the verification ended before it.
    early_share : float
        The part of alpha that the wealth may use.
    bets : Bets
        All bets.
    """

    stopped: StoppedBy
    runs_used: int
    first_runs: int
    exact_runs: int
    early_share: float
    bets: Bets

    @property
    def runs(self) -> np.ndarray:
        """The runs per data set after every batch."""
        sizes = np.zeros(int(self.bets.batch[-1]) + 1, np.int64)
        sizes[self.bets.batch] = self.bets.runs
        return self.first_runs + np.cumsum(sizes)

    def threshold(self, alpha: float) -> float:
        """Return the wealth that refutes a claim."""
        return 1 / (self.early_share * alpha)

    def log_wealth(self, claim: Claim) -> np.ndarray:
        """Return the logarithm of the wealth against a claim after every batch."""
        return log_wealth(self.bets, claim.boundary)

    def p_value(self, claim: Claim) -> float:
        """Return the p-value of a claim that the wealth gives: the inverse of its maximum."""
        return math.exp(-max(float(self.log_wealth(claim).max()), 0.0))

    def combine(self, claim: Claim, exact: float) -> float:
        """Return the p-value of the wealth and the exact test together; each has its share of alpha."""
        p_value = self.p_value(claim) / self.early_share
        if self.exact_runs:
            p_value = min(p_value, exact / (1 - self.early_share))
        return min(p_value, 1.0)

    def exact_alpha(self, alpha: float) -> float:
        """Return the level of the exact test."""
        return (1 - self.early_share) * alpha

    def epsilon_lower(self, delta: float, alpha: float) -> float:
        """Return the lower confidence sequence of epsilon at its end: every smaller epsilon of a grid is rejected."""

        def boundary(epsilons: np.ndarray) -> Boundary:
            return line_boundary(epsilons[:, None], delta)

        return self._largest_rejected(EPSILON_GRID, alpha, boundary)

    def delta_lower(self, epsilon: float, alpha: float) -> float:
        """Return a lower bound on delta at this epsilon."""

        def boundary(deltas: np.ndarray) -> Boundary:
            return line_boundary(epsilon, deltas[:, None])

        return self._largest_rejected(DELTA_GRID, alpha, boundary)

    def parameter_lower(self, claim: Claim, alpha: float) -> float | None:
        """Return the lower confidence sequence of the parameter of a claim at its end; None if it has none."""
        if claim.parameter is None:
            return None
        level = self.early_share * alpha
        lower = 0.0
        for value in CURVE_GRID.tolist():
            if self.p_value(claim.with_parameter(value)) > level:
                break
            lower = value
        return lower

    def _largest_rejected(self, grid: np.ndarray, alpha: float, boundary_of) -> float:  # noqa: ANN001
        """Return the largest parameter of a grid up to which all are rejected; parameters are computed in chunks."""
        lower = 0.0
        for start in range(0, grid.size, CHUNK):
            chunk = grid[start : start + CHUNK]
            wealth = log_wealth(self.bets, boundary_of(chunk))
            rejected = float(largest_rejected(wealth, chunk, self.early_share * alpha)[-1])
            lower = max(lower, rejected)
            if rejected < chunk[-1]:
                break
        return lower
