"""What a verification that may stop early adds to a report: why it ended, all bets, and what follows from them.

The bets are stored with the probabilities that were predicted before each batch. So the wealth against any claim, and
with it the e-value, the p-value and the confidence sequences, can be computed from the report again.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpverify.claims import Approximate, Claim, sloped_boundary
from dpverify.stats.anytime import Bets, log_wealth
from dpverify.stats.boundaries import Boundary, line_boundary

BoundaryOf = Callable[[np.ndarray], Boundary]

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
CURVE_GRID = parameter_grid(0.05)  # of the parameters of other claims, whose boundaries take longer to compute
DELTA_GRID = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 200)])
CHUNK, CURVE_CHUNK = 32, 2  # parameters of a grid that are computed together


class StoppedBy(enum.StrEnum):
    """Why a verification that may stop early ended.

    Attributes
    ----------
    REFUTED
        The claim was refuted before all runs were drawn; in `verify`, because the wealth reached its threshold.
    CERTIFIED
        The upper bound over all events met the claim.
    BUDGET
        All runs were drawn. The verdict may still be any of them, because the exact test comes at this moment.
    """

    REFUTED = "refuted"
    CERTIFIED = "certified"
    BUDGET = "budget"


@dataclass(frozen=True)
class Sequence:
    """The course of a verification that may stop early.

    Attributes
    ----------
    stopped : StoppedBy
        Why it ended.
    runs_used : int
        All runs per dataset. A block that was drawn again, to check that it repeats, counts once.
    first_runs : int
        The runs per dataset before the first bet.
    exact_runs : int
        The runs per dataset of the exact test; 0 if the verification ended before it.
    early_share : float
        The part of alpha that the wealth may use.
    claimed : float or None
        The parameter of the claim, which belongs to the grid of the confidence sequence; None if it has none.
    bets : Bets
        All bets.
    """

    stopped: StoppedBy
    runs_used: int
    first_runs: int
    exact_runs: int
    early_share: float
    claimed: float | None
    bets: Bets

    @property
    def runs(self) -> np.ndarray:
        """The runs per dataset after every batch."""
        sizes = np.zeros(int(self.bets.batch[-1]) + 1, np.int64)
        sizes[self.bets.batch] = self.bets.runs
        return self.first_runs + np.cumsum(sizes)

    def threshold(self, alpha: float) -> float:
        """Return the wealth that refutes a claim."""
        return 1 / (self.early_share * alpha)

    def log_wealth(self, claim: Claim) -> np.ndarray:
        """Return the logarithm of the wealth against a claim after every batch."""
        return log_wealth(self.bets, sloped_boundary(claim))

    def p_value(self, claim: Claim) -> float:
        """Return the p-value of a claim that the wealth gives."""
        return wealth_p_value(self.bets, claim, self.claimed)

    def p_values(self, epsilons: np.ndarray, delta: float) -> np.ndarray:
        """Return the p-values of (epsilon, delta) claims that the wealth gives, for increasing epsilons."""
        claim = Approximate(0.0, delta)
        grid = _grid(claim, self.claimed)
        grid = grid[: int(np.searchsorted(grid, epsilons[-1])) + 1]
        chunks = [grid[start : start + CHUNK] for start in range(0, grid.size, CHUNK)]
        p_values = np.concatenate([_p_values(self.bets, claim.family_boundary, chunk) for chunk in chunks])
        # Of a claim between two parameters of the grid, the larger one decides.
        return np.append(np.maximum.accumulate(p_values), 1.0)[np.searchsorted(grid, epsilons)]

    def exact_alpha(self, alpha: float) -> float:
        """Return the level of the exact test."""
        return (1 - self.early_share) * alpha

    def parameter_lower(self, claim: Claim, alpha: float) -> float | None:
        """Return the confidence sequence of a claim's parameter at its end: all parameters below it are rejected.

        None if the claim has no parameter.
        """
        if claim.parameter_name is None:
            return None
        grid, chunk = _grid(claim, self.claimed), CURVE_CHUNK if claim.is_curve else CHUNK
        return _largest_rejected(self.bets, claim.family_boundary, grid, self.early_share * alpha, chunk)

    def delta_lower(self, epsilon: float, alpha: float) -> float:
        """Return a lower bound on delta at this epsilon."""

        def boundary_of(deltas: np.ndarray) -> Boundary:
            return line_boundary(epsilon, deltas[:, None])

        return _largest_rejected(self.bets, boundary_of, DELTA_GRID, self.early_share * alpha)


def wealth_p_value(bets: Bets, claim: Claim, claimed: float | None) -> float:
    """Return the p-value of a claim that the wealth gives: the inverse of the largest wealth.

    A claim with a parameter is refuted only together with all smaller parameters of the grid. So the p-value agrees
    with the confidence sequence, and all parameters can be tested on the same bets.

    Parameters
    ----------
    bets : Bets
        All bets.
    claim : Claim
        The claim that is tested.
    claimed : float or None
        The parameter of the claim that was stated, which belongs to the grid.
    """
    if claim.parameter_name is None:
        return float(_p_values(bets, lambda _: sloped_boundary(claim), np.zeros(1))[0])
    grid = _grid(claim, claimed)
    number = int(np.searchsorted(grid, claim.parameter))
    return float(_p_values(bets, claim.family_boundary, grid[: number + 1]).max()) if number < grid.size else 1.0


def _grid(claim: Claim, claimed: float | None) -> np.ndarray:
    """Return the grid of a claim's parameter; the parameter that was claimed belongs to it."""
    grid = CURVE_GRID if claim.is_curve else EPSILON_GRID
    return grid if claimed is None else np.unique(np.append(grid, claimed))


def _p_values(bets: Bets, boundary_of: BoundaryOf, parameters: np.ndarray) -> np.ndarray:
    """Return the p-value of each parameter on its own."""
    wealth = np.atleast_2d(log_wealth(bets, boundary_of(parameters)))
    return np.exp(-np.maximum(wealth.max(axis=-1), 0.0))


def _largest_rejected(bets: Bets, boundary_of: BoundaryOf, grid: np.ndarray, level: float, chunk: int = CHUNK) -> float:
    """Return the largest parameter of a grid up to which all are rejected; parameters are computed in chunks."""
    lower = 0.0
    for start in range(0, grid.size, chunk):
        parameters = grid[start : start + chunk]
        rejected = _p_values(bets, boundary_of, parameters) <= level
        number = int(np.argmin(np.append(rejected, False)))
        lower = float(parameters[number - 1]) if number else lower
        if number < parameters.size:
            break
    return lower
