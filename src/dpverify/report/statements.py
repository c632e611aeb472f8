"""The statements of a report. Each class states its scope: all events, unions of cells, or the paper's own numbers.

A statement stores counts, and its methods compute bounds from them, so a report that was read from a file gives the
same bounds as a new one. The bounds themselves are in `dpverify.stats`.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpverify.claims import Claim, is_curve
from dpverify.errors import InputError
from dpverify.events.event import DeltaAims, Event
from dpverify.events.partition import Partition
from dpverify.events.scores import Levels
from dpverify.mechanisms.encoding import Encoding
from dpverify.sampling.count import Counts, occupied_codes
from dpverify.settings import Settings
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.exact import delta_lower_bound
from dpverify.stats.upper import (
    delta_lower_curve,
    delta_upper_bound,
    delta_upper_curve,
    epsilon_upper_bound,
    least_bounded_delta,
)
from dpverify.util.checks import check_delta, check_epsilon

CountsPair = tuple[Counts, Counts]

# The upper bounds share alpha: this part bounds the region's mass, the rest bounds delta on the partition.
REGION_SHARE = 0.1
CURVE_SHARE = 0.2  # of alpha, in a lower bound on delta at one epsilon


class Verdict(enum.Enum):
    """The result of a verification; the value is the sentence that is printed.

    Attributes
    ----------
    REFUTED
        The p-value of the claim is at most alpha. A true claim is refuted with probability at most alpha.
    CERTIFIED
        An upper bound over all events meets the claim. It rests on a stated density or Lipschitz constant.
    NOT_REFUTED
        The claim is not refuted. `report.holds_on_cells` says whether, besides, no union of the cells violates it.
    MEASURED
        No claim was stated.
    NO_ANSWER
        A diagnostic voids the test, so that the report has counts and no bounds.
    """

    REFUTED = "an event was found that contradicts the claim"
    CERTIFIED = "an upper bound over all events meets the claim, under the stated assumption"
    NOT_REFUTED = "no event was found that violates the claim; this does not prove that the claim holds"
    MEASURED = "no claim was stated, so none was tested; the bounds on epsilon follow"
    NO_ANSWER = "no verdict: this mechanism, or this pair of datasets, cannot be tested as it is"


@dataclass(frozen=True)
class Witness:
    """The selected event, which was fixed before the test runs, and its counts in the test runs.

    Attributes
    ----------
    event : Event
        The event as plain data: a partition, the codes of its cells, and the direction of the test.
    counts : tuple of int
        Test runs in the event, under the first and under the second dataset.
    runs : int
        Test runs per dataset.
    alpha : float
        The limits in `probabilities` of all tested events together have confidence 1 - alpha, for each dataset.
    text : str
        The event in words.
    shape : tuple of int
        Number of steps and of dimensions of one output.
    share : float
        The share of alpha that this event is tested with; 1 if it is the only one.
    encoding : Encoding or None
        How outputs of other kinds become numbers; None for arrays.
    """

    event: Event
    counts: tuple[int, int]
    runs: int
    alpha: float
    text: str
    shape: tuple[int, int]
    share: float = 1.0
    encoding: Encoding | None = None

    @property
    def direction(self) -> tuple[int, int]:
        """The tested order (i, j): the hypothesis is P_i <= e^epsilon P_j + delta; 1 is the first dataset."""
        return (1, 2) if self.event.direction == 0 else (2, 1)

    @property
    def ordered(self) -> tuple[int, int]:
        """The counts in the tested order: first that of the dataset that is expected to be more frequent."""
        first, second = self.counts
        return (first, second) if self.event.direction == 0 else (second, first)

    @property
    def estimates(self) -> tuple[float, float]:
        """Estimates of the probabilities of the event in the tested order, neither 0 nor 1."""
        larger, smaller = ((count + 0.5) / (self.runs + 1) for count in self.ordered)
        return larger, smaller

    @property
    def probabilities(self) -> tuple[tuple[float, float, float], ...]:
        """For each dataset: the share of its runs in the event, and Clopper-Pearson limits at confidence 1 - alpha."""
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

    def contains(self, samples: ArrayLike | Sequence[Any]) -> np.ndarray:
        """Return which runs are in the event.

        Parameters
        ----------
        samples : array, or list of outputs
            Outputs of shape (runs,), (runs, d) or (runs, K, d); a list if they are not arrays.

        Returns
        -------
        array of bool
            One value per run.
        """
        if self.encoding is not None:
            samples = self.encoding.encode(list(samples))
        array, (steps, dimension) = np.asarray(samples, float), self.shape
        if array.size % (steps * dimension) or (array.ndim > 1 and array.shape[-1] != dimension):
            raise InputError(
                f"samples: found shape {array.shape}; expected runs of {steps} steps in {dimension} dimensions"
            )
        return self.event.contains(array.reshape(-1, steps, dimension))


@dataclass(frozen=True)
class CellBounds:
    """Upper bounds over unions of the partition's cells. Other events are not bounded.

    Attributes
    ----------
    c1, c2 : array of int
        Distinct pairs of counts that the cells have under the first and the second dataset.
    number : array of int
        How many cells have each pair of counts.
    runs : int
        Test runs per dataset.
    alpha : float
        Each bound has confidence 1 - alpha.
    cells : int
        Number of cells of the partition, empty ones included.
    inside : tuple of int
        Runs in the region of likely outputs, under the first and under the second dataset.
    """

    c1: np.ndarray
    c2: np.ndarray
    number: np.ndarray
    runs: int
    alpha: float
    cells: int
    inside: tuple[int, int]

    @classmethod
    def of(cls, partition: Partition | Levels, cells: CountsPair, inside: CountsPair, settings: Settings) -> CellBounds:
        """Return the statement from the test counts of a partition's cells, and of its region (code 1 is inside)."""
        codes, runs = occupied_codes(*cells), settings.test_runs
        columns = distinct_pairs(cells[0].of(codes), cells[1].of(codes))
        first, second = (int(counts.of(np.array([1]))[0]) for counts in inside)
        return cls(*columns, runs, (1 - REGION_SHARE) * settings.alpha, partition.n_cells, (first, second))

    @property
    def region_mass(self) -> float:
        """A lower bound on the probability of the region of likely outputs under both datasets."""
        # The dataset with the smaller mass is unknown but fixed, so the limit needs no correction for two datasets.
        level = REGION_SHARE / (1 - REGION_SHARE) * self.alpha
        return float(clopper_pearson_lower(min(self.inside), self.runs, level)) if self.runs else 0.0

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
        # At delta 0, a cell without any run may have positive probability under one dataset only.
        return math.inf if c1.size < self.cells else epsilon_upper_bound(c1, c2, self.runs, 0.0, self.alpha)

    def is_bounded_at(self, delta: float) -> bool:
        """Return whether these runs can bound delta itself; if not, the bound on epsilon at delta 0 is used."""
        return delta >= least_bounded_delta(self.runs, self.alpha)

    def meets_claim(self, claim: Claim) -> bool:
        """Return whether the claim holds for all unions of the cells, with confidence 1 - alpha.

        False for claims about divergences, which bounds on events do not bound.
        """
        c1, c2 = self._columns
        return bool(self.runs) and claim.holds_on(c1, c2, self.runs, self.alpha, c1.size == self.cells)

    def curve(self, epsilons: np.ndarray) -> np.ndarray:
        """Return upper bounds on delta that hold at all given epsilons together, with confidence 1 - alpha.

        Between two of the epsilons the chord in e^epsilon is an upper bound too.
        """
        return (
            delta_upper_curve(*self._columns, self.runs, epsilons, self.alpha) if self.runs else np.ones(len(epsilons))
        )


@dataclass(frozen=True)
class DeltaEvents:
    """The events that were chosen for bounds on delta, one for each of some epsilons, and their counts.

    Attributes
    ----------
    aims : DeltaAims
        The events as plain data, and the epsilons for which they were chosen.
    c1, c2 : array of int
        Test runs in each event: under the dataset that is expected to exceed, and under the other one.
    runs : int
        Test runs per dataset.
    """

    aims: DeltaAims
    c1: np.ndarray
    c2: np.ndarray
    runs: int

    def lower(self, epsilon: float, alpha: float) -> float:
        """Return a lower bound on delta at this epsilon, with confidence 1 - alpha.

        Most of alpha is for the event of the nearest chosen epsilon, which does not depend on the test runs. The rest
        is for the curve of all events, because the event of one epsilon can be a poor choice.
        """
        number = int(np.argmin(np.abs(self.aims.epsilons - epsilon)))
        level = (1 - CURVE_SHARE) * alpha
        own = delta_lower_bound(int(self.c1[number]), int(self.c2[number]), self.runs, epsilon, level)
        return max(own, float(self.curve(np.array([epsilon]), CURVE_SHARE * alpha)[0]))

    def curve(self, epsilons: np.ndarray, alpha: float) -> np.ndarray:
        """Return lower bounds on delta that hold at all given epsilons together, with confidence 1 - alpha.

        The distinct events share alpha equally. Delta at an epsilon is at least delta at every larger epsilon.
        """
        pairs = np.unique(np.stack([self.c1, self.c2]), axis=1).T.tolist()
        share = alpha / np.unique(np.stack([self.aims.edges, self.aims.directions]), axis=1).shape[1]
        bounds = np.max([delta_lower_curve(c1, c2, self.runs, epsilons, share) for c1, c2 in pairs], axis=0)
        return np.maximum.accumulate(bounds[::-1])[::-1]


@dataclass(frozen=True)
class Paper:
    """The paper's own numbers, for comparison. They are not a guarantee (docs/method.md, section 4.2).

    Attributes
    ----------
    p_values : tuple of float or None
        The two p-values of the claim, one for each order; None without a claim.
    eta : float
        The paper's eta: the largest share of the first dataset's selection runs in an event. It estimates the
        probability of the most frequent cell, with a bias upwards, and bounds nothing. Without the paper's selector
        the selection runs do not count cells, and this is `eta_upper`.
    lambda_ : float
        The paper's lambda, beta + 2 eta e^epsilon at the critical epsilon.
    eta_upper : float or None
        Upper confidence bound on the probability of the most frequent cell, from the test runs of both datasets. None
        if the verification could stop early.
    averaged : bool
        Whether the p-values and the critical epsilon are averaged over all thinnings, as in the authors' figures, and
        not those of one random thinning for each epsilon, as the algorithm is printed.
    """

    p_values: tuple[float, float] | None
    eta: float
    lambda_: float
    eta_upper: float | None = None
    averaged: bool = False


def check_claim(settings: Settings, epsilon: float | None, delta: float, claim: Claim | None = None) -> None:
    """Raise InputError unless the claim is one that the test of these settings supports."""
    if epsilon is not None:
        check_epsilon(epsilon)
    check_delta(delta)
    if settings.test != "exact" and is_curve(claim):
        raise InputError(
            f'claim: found {claim.describe()} with test="{settings.test}"; the paper\'s test supports an epsilon only; '
            'use test="exact"'
        )
    if settings.test != "exact" and delta > 0:
        raise InputError(
            f'delta: found {delta} with test="{settings.test}"; the paper\'s test supports delta 0 only; '
            'use test="exact"'
        )


def distinct_pairs(c1: np.ndarray, c2: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct pairs of counts, and how many cells have each pair."""
    pairs, number = np.unique(np.stack([c1, c2]), axis=1, return_counts=True)
    return pairs[0], pairs[1], number
