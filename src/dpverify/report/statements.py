"""The statements of a report. Each class states its scope: all events, unions of cells, or the paper's own numbers.

A statement stores counts, and its methods compute bounds from them, so a report that was read from a file gives the
same bounds as a new one. The bounds themselves are in `dpverify.stats`.
"""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass
from types import NoneType

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.events.event import Event
from dpverify.settings import Settings
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.claim_kinds import ZCDP, Approximate, Claim, Renyi
from dpverify.stats.curve_bound import holds_on_partition
from dpverify.stats.profile import delta_lower_curve, delta_upper_curve
from dpverify.stats.upper_bound import (
    Frontier,
    delta_upper_bound,
    epsilon_upper_bound,
    frontier,
    frontier_bound,
    least_bounded_delta,
    smallest_epsilon,
)
from dpverify.util.checks import check_delta, check_epsilon


class Verdict(enum.Enum):
    """The result of a verification; the value is the sentence that is printed.

    Attributes
    ----------
    REFUTED
        The p-value of the claim is at most alpha, so the claim is false at this level.
    BOUNDED
        The claim is not refuted, and the upper bound on the partition is at most the claim.
    NOT_REFUTED
        The claim is not refuted, and the upper bound on the partition is above the claim.
    MEASURED
        No claim was stated.
    NO_ANSWER
        A diagnostic voids the test, so that its numbers answer no question.
    """

    REFUTED = "the claim is false: an event was found that violates it"
    BOUNDED = "no event made of the partition's cells violates the claim; other events are not bounded"
    NOT_REFUTED = "no event was found that violates the claim; this does not prove that the claim holds"
    MEASURED = "no claim was stated, so none was tested; the bounds on epsilon follow"
    NO_ANSWER = "no conclusion is possible: the mechanism or the pair of data sets is not fit for this test"


@dataclass(frozen=True)
class Witness:
    """The selected event, which was fixed before the test runs, and its counts in the test runs.

    Attributes
    ----------
    event : Event
        The event as plain data: a partition, the codes of its cells, and the direction of the test.
    counts : tuple of int
        Test runs in the event, under the first and under the second data set.
    runs : int
        Test runs per data set.
    alpha : float
        The limits in `probabilities` of all tested events together have confidence 1 - alpha, for each data set.
    text : str
        The event in words.
    shape : tuple of int
        Number of steps and of dimensions of one output.
    share : float
        The share of alpha that this event is tested with; 1 if it is the only one.
    """

    event: Event
    counts: tuple[int, int]
    runs: int
    alpha: float
    text: str
    shape: tuple[int, int]
    share: float = 1.0

    @property
    def direction(self) -> tuple[int, int]:
        """The tested order (i, j): the hypothesis is P_i <= e^epsilon P_j + delta; 1 is the first data set."""
        return (1, 2) if self.event.direction == 0 else (2, 1)

    @property
    def ordered(self) -> tuple[int, int]:
        """The counts in the tested order: first that of the data set that is expected to be more frequent."""
        first, second = self.counts
        return (first, second) if self.event.direction == 0 else (second, first)

    @property
    def probabilities(self) -> tuple[tuple[float, float, float], ...]:
        """For each data set: the share of its runs in the event, and Clopper-Pearson limits at confidence 1 - alpha."""
        tail, runs = self.share * self.alpha / 2, self.runs
        return tuple(
            (
                count / runs,
                float(clopper_pearson_lower(count, runs, tail)),
                float(clopper_pearson_upper(count, runs, tail)),
            )
            for count in self.counts
        )

    @property
    def cell(self) -> int | None:
        """The code of the cell if the event is a single cell of a given partition, otherwise None."""
        return self.event.cell

    @property
    def step(self) -> int | None:
        """0 if an output has one time step, None if it has several."""
        return 0 if self.shape[0] == 1 else None

    def delta_lower_curve(self, epsilons: np.ndarray) -> np.ndarray:
        """Return lower bounds on delta that hold at all epsilons together, with this event's share of alpha."""
        return delta_lower_curve(*self.ordered, self.runs, epsilons, self.share * self.alpha)

    def contains(self, samples: ArrayLike) -> np.ndarray:
        """Return which runs are in the event.

        Parameters
        ----------
        samples : array
            Outputs of shape (runs,), (runs, d) or (runs, K, d).

        Returns
        -------
        array of bool
            One value per run.
        """
        array, (steps, dimension) = np.asarray(samples, float), self.shape
        if array.size % (steps * dimension) or (array.ndim > 1 and array.shape[-1] != dimension):
            raise InputError(
                f"samples: found shape {array.shape}; expected runs of {steps} steps in {dimension} dimensions"
            )
        return self.event.contains(array.reshape(-1, steps, dimension))


@dataclass(frozen=True)
class OnPartition:
    """Upper bounds over unions of the partition's cells. Other events are not bounded.

    Attributes
    ----------
    c1, c2 : array of int
        Distinct pairs of counts that the cells have under the first and the second data set.
    number : array of int
        How many cells have each pair of counts.
    runs : int
        Test runs per data set.
    alpha : float
        Each bound has confidence 1 - alpha.
    cells : int
        Number of cells of the partition, empty ones included.
    region_mass : float
        Lower confidence bound on the probability of the region of likely outputs, for both data sets.
    """

    c1: np.ndarray
    c2: np.ndarray
    number: np.ndarray
    runs: int
    alpha: float
    cells: int
    region_mass: float

    @functools.cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        return np.repeat(self.c1, self.number), np.repeat(self.c2, self.number)

    def delta_upper(self, epsilon: float) -> float:
        """Return an upper bound on delta at this epsilon, over unions of the cells and both orders.

        Each value holds with confidence 1 - alpha on its own. Without runs nothing is bounded.
        """
        if not self.runs:
            return 1.0
        c1, c2 = self._columns
        return max(delta_upper_bound(a, b, self.runs, epsilon, self.alpha) for a, b in ((c1, c2), (c2, c1)))

    def epsilon_upper(self, delta: float = 0.0) -> float:
        """Return an upper bound on epsilon at this delta, over unions of the cells and both orders.

        Each value holds with confidence 1 - alpha on its own. The bound is infinite where no finite one exists.
        """
        if not self.runs:
            return math.inf
        c1, c2 = self._columns
        if self.is_bounded_at(delta):
            return epsilon_upper_bound(c1, c2, self.runs, delta, self.alpha)
        # At delta 0, a cell without any run may have positive probability under one data set only.
        return math.inf if c1.size < self.cells else epsilon_upper_bound(c1, c2, self.runs, 0.0, self.alpha)

    def is_bounded_at(self, delta: float) -> bool:
        """Return whether these runs can bound delta itself; if not, the bound on epsilon at delta 0 is used."""
        return delta >= least_bounded_delta(self.runs, self.alpha)

    def uses_delta_zero(self, delta: float) -> bool:
        """Return whether the bound at delta 0 is used for a positive delta.

        Such a bound does not end a run early, because the allowed delta may hide a rare leak outside the few cells.
        """
        return delta > 0 and not self.is_bounded_at(delta)

    def meets(self, epsilon: float, delta: float) -> bool:
        """Return whether `epsilon_upper(delta)` is at most epsilon.

        If delta can be bounded, one value of `delta_upper`, which decreases with epsilon, decides this at lower cost.
        """
        if not self.runs:
            return False
        return self.delta_upper(epsilon) <= delta if self.is_bounded_at(delta) else self.epsilon_upper() <= epsilon

    def meets_claim(self, claim: Claim) -> bool:
        """Return whether the claim holds for all unions of the cells, with confidence 1 - alpha.

        A Renyi divergence is a sum over cells, so bounds on single events do not bound it. The result is False for
        claims about divergences.
        """
        if not self.runs or isinstance(claim, (Renyi, ZCDP)):
            return False
        if isinstance(claim, Approximate):
            return self.meets(claim.epsilon, claim.delta)
        c1, c2 = self._columns
        return holds_on_partition(claim, c1, c2, self.runs, self.alpha, c1.size == self.cells)

    def curve(self, epsilons: np.ndarray) -> np.ndarray:
        """Return upper bounds on delta that hold at all given epsilons together, with confidence 1 - alpha.

        Between two of the epsilons the chord in e^epsilon is an upper bound too.
        """
        return (
            delta_upper_curve(*self._columns, self.runs, epsilons, self.alpha) if self.runs else np.ones(len(epsilons))
        )


@dataclass(frozen=True)
class OnAllEvents:
    """Upper bounds over all events. They rest on a Lipschitz constant of the log-densities that the user states.

    Within a bounded cell the logarithm of the density ratio varies by at most `variation`. The remaining runs count in
    full as a violation (docs/method.md, section 5).

    Attributes
    ----------
    c1, c2 : array of int
        Counts of the bounded cells under the first and the second data set.
    rest : tuple of int
        Test runs outside all bounded cells, under the first and under the second data set.
    variation : float
        Largest variation of the log-ratio of the densities within a cell.
    runs : int
        Test runs per data set.
    alpha : float
        Each bound has confidence 1 - alpha.
    """

    c1: np.ndarray
    c2: np.ndarray
    rest: tuple[int, int]
    variation: float
    runs: int
    alpha: float

    @functools.cached_property
    def _frontiers(self) -> tuple[Frontier, Frontier]:
        c1, c2 = self.c1, self.c2
        return (
            frontier(np.append(c1, self.rest[0]), np.append(c2, 0), self.runs, self.alpha),
            frontier(np.append(c2, self.rest[1]), np.append(c1, 0), self.runs, self.alpha),
        )

    def delta_upper(self, epsilon: float) -> float:
        """Return an upper bound on delta at this epsilon, over all events and both orders.

        Each value holds with confidence 1 - alpha on its own.
        """
        check_epsilon(epsilon)
        bound = max(frontier_bound(line, epsilon - self.variation) for line in self._frontiers)
        return min(1.0, max(0.0, bound))

    def epsilon_upper(self, delta: float = 0.0) -> float:
        """Return an upper bound on epsilon at this delta, over all events and both orders.

        The bound is infinite where delta is less than the probability outside the bounded cells.
        """
        check_delta(delta)
        return smallest_epsilon(self.delta_upper, delta)


@dataclass(frozen=True)
class Paper:
    """The paper's own numbers, for comparison. They are not a guarantee (docs/method.md, section 4.2).

    Attributes
    ----------
    p_values : tuple of float or None
        The two randomised p-values of the claim, one for each order; None without a claim.
    eta : float
        The paper's eta: the largest share of the first data set's selection runs in an event. It estimates the
        probability of the most frequent cell, with a bias upwards, and bounds nothing. Without the paper's selector
        the selection runs do not count cells, and this is `eta_upper`.
    lambda_ : float
        The paper's lambda, beta + 2 eta e^epsilon at the critical epsilon.
    eta_upper : float or None
        Upper confidence bound on the probability of the most frequent cell, from the test runs of both data sets. None
        in a report of an earlier version, whose `eta` is this bound.
    """

    p_values: tuple[float, float] | None
    eta: float
    lambda_: float
    eta_upper: float | None = None


def check_claim(settings: Settings, epsilon: float | None, delta: float, claim: Claim | None = None) -> None:
    """Raise InputError unless the claim is one that the test of these settings supports."""
    if epsilon is not None:
        check_epsilon(epsilon)
    check_delta(delta)
    if settings.test == "thinned" and not isinstance(claim, (Approximate, NoneType)):
        raise InputError(
            f'claim: found {claim.describe()} with test="thinned"; the paper\'s test supports an epsilon only; '
            'use test="exact"'
        )
    if settings.test == "thinned" and delta > 0:
        raise InputError(
            f'delta: found {delta} with test="thinned"; the paper\'s test supports delta 0 only; use test="exact"'
        )
