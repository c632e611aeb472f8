"""Proposed events: from the cells of a partition, and from the level sets of a score.

The paper selects the cell with the smallest p-value at one fixed epsilon (Algorithm 4). By default we select the event
with the largest expected lower bound from the planned test runs (docs/method.md, section 5.3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from dpverify.events.event import Event
from dpverify.events.partition import Partition
from dpverify.events.scores import Levels
from dpverify.sampling.counts import Counts, occupied_codes
from dpverify.selection.histograms import BinnedScore, PairedHistogram
from dpverify.selection.objective import SelectionObjective, cautious_lower_bound
from dpverify.stats.paper_test import p_values
from dpverify.stats.upper_bound import epsilon_upper_bound, frontier, frontier_bound

MAX_UNION_CELLS = 4096  # a union of more cells is mostly noise and makes a report too long
PROPOSAL_PENALTIES = (0.75, 1.5, 2.5, 4.0)  # standard errors; each penalty proposes one event per direction
# Added to the penalty of the final comparison: on the claimed curve all events are equally good, so more compete.
CURVE_PENALTY = 0.65
SIMPLER_WITHIN = 0.25  # standard errors within which a simpler event is preferred
BOUNDING_LEVEL_COUNTS = (16, 32, 64, 128, 256)  # candidate numbers of level sets for the upper bound
LIMIT_STANDARD_ERRORS = 2.0  # about the distance of an upper limit from an estimate
COMPARED_LIMITS = 8  # level sets whose upper limits are computed
MISFIT_P_VALUE = 0.01  # of the number of runs, given the prediction of a model; below it the model is not used


class SelectionCounts(NamedTuple):
    """The cell counts of both data sets in some selection runs, and the number of these runs per data set.

    `proposal_runs` is the number of earlier runs that proposed the events, if these runs decide between them.
    """

    first: Counts
    second: Counts
    runs: int
    proposal_runs: int = 0


class Candidate(NamedTuple):
    """A score that competes, with its histograms of proposal runs."""

    binned: BinnedScore
    histogram: PairedHistogram

    def with_runs(self, further: PairedHistogram) -> Candidate:
        """Return the score with the histograms of these and of further runs."""
        return Candidate(self.binned, self.histogram.add(further))


class EquivalentCounts(NamedTuple):
    """What a model knows about an event, as counts of the exceeding and of the other data set in so many runs."""

    exceeding: float
    other: float
    runs: float

    def agrees_with(self, exceeding: int, other: int) -> bool:
        """Return whether these counts of further runs do not contradict the ratio; more of the first is no problem."""
        expected = (exceeding + 1.0) * self.other / self.exceeding
        return bool(scipy.special.pdtrc(other - 1, expected) >= MISFIT_P_VALUE) if other else True


class Proposal(NamedTuple):
    """An event that competes.

    Attributes
    ----------
    event : Event
        The event.
    counts : tuple of int
        How often the first and the second data set fell into it in the proposal runs.
    candidate : Candidate or None
        The score behind the event; None for cells of a given partition.
    threshold : float
        The threshold of the score; NaN for cells.
    is_solid : bool
        Whether the cautious rule proposed the event. Other events are judged by decision runs alone.
    predicted : float
        The smaller probability as a model of the tails predicts it; NaN without a prediction.
    equivalent : EquivalentCounts or None
        What a fit to many proposal runs knows about the event. None if only the counts of the event are known.
    """

    event: Event
    counts: tuple[int, int]
    candidate: Candidate | None = None
    threshold: float = np.nan
    is_solid: bool = True
    predicted: float = np.nan
    equivalent: EquivalentCounts | None = None

    @property
    def above(self) -> bool:
        """Whether the event of a score is `score > threshold`."""
        return bool(self.event.codes[0] > 0)


class JudgedProposal(NamedTuple):
    """A proposal with its expected lower bound on runs that did not propose it.

    Attributes
    ----------
    proposal : Proposal
        The proposal.
    bound : float
        The bound of the cautious rule, from the proposal runs and the decision runs.
    safe_bound : float
        The same with a large penalty; equal to `bound` for an event that a smooth model chose.
    standard_error : float
        The standard error of the bound.
    decided : tuple of int
        Decision runs in the event: of the data set that is expected to exceed, and of the other one.
    decision_runs : int
        The decision runs per data set.
    """

    proposal: Proposal
    bound: float
    safe_bound: float
    standard_error: float
    decided: tuple[int, int]
    decision_runs: int


def select_paper_cell(
    partition: Partition, counts: SelectionCounts, codes: np.ndarray, epsilon: float, rng: np.random.Generator
) -> Event:
    """Return the cell with the smallest of all p-values at one fixed epsilon (Algorithm 4), among these codes."""
    forward, backward = p_values(counts.first.of(codes), counts.second.of(codes), counts.runs, epsilon, rng)
    smallest = int(np.argmin(np.minimum(forward, backward)))
    return Event(partition, codes[[smallest]], int(backward[smallest] < forward[smallest]))


def propose_cells(partition: Partition, counts: SelectionCounts, objective: SelectionObjective) -> list[Proposal]:
    """Return the single cell with the largest expected lower bound, for every penalty."""
    codes = occupied_codes(counts.first, counts.second)
    c = counts.first.of(codes), counts.second.of(codes)
    proposals = []
    for bounds in cautious_lower_bound(c, c[::-1], counts.runs, objective, PROPOSAL_PENALTIES):
        direction, cell = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
        event = Event(partition, codes[[cell]], int(direction))
        proposals.append(Proposal(event, (int(c[0][cell]), int(c[1][cell]))))
    return proposals


def propose_unions(
    partition: Partition, training: SelectionCounts, counts: SelectionCounts, objective: SelectionObjective
) -> list[Proposal]:
    """Return unions of cells: training runs order them by their ratio, proposal runs choose how many are joined."""
    codes = occupied_codes(training.first, training.second, counts.first, counts.second)
    trained = training.first.of(codes), training.second.of(codes)
    held_out = counts.first.of(codes), counts.second.of(codes)
    proposals = []
    for side in (0, 1):
        ratio = (trained[side] + 0.5) / (trained[1 - side] + 0.5)
        order = np.argsort(-ratio, kind="stable")[:MAX_UNION_CELLS]
        c = np.cumsum(held_out[0][order]), np.cumsum(held_out[1][order])
        bounds = cautious_lower_bound(c[side], c[1 - side], counts.runs, objective, PROPOSAL_PENALTIES)
        for last in np.unique(np.argmax(bounds, axis=-1)).tolist():
            event = Event(partition, np.sort(codes[order[: last + 1]]), side)
            proposals.append(Proposal(event, (int(c[0][last]), int(c[1][last]))))
    return proposals


def level_event(levels: Levels, threshold: float, direction: int, above: bool | None = None) -> Event:
    """Return {score > threshold} or {score <= threshold}; by default the former for direction 0, the latter for 1.

    The threshold must be an edge.
    """
    index = int(np.searchsorted(levels.edges, threshold))
    above = direction == 0 if above is None else above
    codes = np.arange(index + 1, levels.size) if above else np.arange(index + 1)
    return Event(levels, codes, direction)


def judge(proposal: Proposal, decision: SelectionCounts, objective: SelectionObjective) -> JudgedProposal:
    """Return a proposal with its bound by the cautious rule; `decision` has the counts of the decision runs.

    Events that the cautious rule did not propose get no bound.
    """
    event, side = proposal.event, proposal.event.direction
    counts = int(decision.first.of(event.codes).sum()), int(decision.second.of(event.codes).sum())
    decided = counts[side], counts[1 - side]
    known = EquivalentCounts(proposal.counts[side], proposal.counts[1 - side], decision.proposal_runs)
    if proposal.equivalent is not None:
        if proposal.equivalent.agrees_with(*decided):
            known = proposal.equivalent
        else:
            proposal = proposal._replace(equivalent=None)
    c1, c2, runs = known.exceeding + decided[0], known.other + decided[1], known.runs + decision.runs
    bound = safe_bound = -np.inf
    if proposal.is_solid:
        size, extra = event.partition.n_parameters, CURVE_PENALTY if objective.is_curve else 0.0
        penalties = objective.decision_penalty + extra, PROPOSAL_PENALTIES[-1]
        bound, safe_bound = cautious_lower_bound(c1, c2, runs, objective, penalties, size).tolist()
    error = float(np.sqrt(1 / (c1 + 0.5) + 1 / (c2 + 0.5)))
    return JudgedProposal(proposal, bound, safe_bound, error, decided, decision.runs)


def prefer_simpler(judged: list[JudgedProposal]) -> JudgedProposal:
    """Return the proposal with the largest bound, or a simpler one whose bound is only slightly smaller."""
    best = max(judged, key=lambda one: one.bound)
    close = [one for one in judged if one.bound >= best.bound - SIMPLER_WITHIN * best.standard_error]
    return min(close, key=lambda one: (one.proposal.event.complexity, -one.bound))


def bounding_levels(judged: JudgedProposal, objective: SelectionObjective, resolution: int | None) -> Levels:
    """Return level sets for the upper bound, with the threshold of the event among their edges.

    More level sets describe the distributions better and give a larger statistical error. Of several numbers of level
    sets, this function returns the one with the smallest expected upper bound.
    """
    candidate = judged.proposal.candidate
    assert candidate is not None
    (score, edges), histogram = candidate.binned, candidate.histogram
    pooled = histogram.table[0] + histogram.table[1]
    share = np.cumsum(pooled)[:-1] / (2 * histogram.runs)
    planned_per_run = objective.planned / histogram.runs
    smallest, selected = np.inf, None
    numbers = (resolution,) if resolution else BOUNDING_LEVEL_COUNTS
    for number in numbers:
        ranks = np.unique(np.clip(np.searchsorted(share, np.arange(1, number) / number), 0, edges.size - 1))
        level_edges = np.unique(np.append(edges[ranks], judged.proposal.threshold))
        if len(numbers) == 1:
            return Levels(score, level_edges)
        group = np.searchsorted(level_edges, np.append(edges, np.inf))
        first, second = (
            np.floor(np.bincount(group, table, level_edges.size + 1) * planned_per_run) for table in histogram.table
        )
        bound = _expected_upper_bound(first, second, objective, max(judged.bound, 0.0))
        if selected is None or bound < smallest:
            smallest, selected = bound, Levels(score, level_edges)
    assert selected is not None
    return selected


def _expected_upper_bound(
    first: np.ndarray, second: np.ndarray, objective: SelectionObjective, epsilon: float
) -> float:
    """Return the upper bound of epsilon at delta 0, otherwise the upper bound of delta at this epsilon."""
    if objective.delta == 0:
        # The limit of a single level set is the bound. Its ratio of counts, with an allowance for errors, is large.
        low, high = np.minimum(first, second) + 1, np.maximum(first, second) + 1
        allowance = LIMIT_STANDARD_ERRORS * np.sqrt(1 / low + 1 / high)
        largest = np.argsort(-np.log(high / low) - allowance, kind="stable")[:COMPARED_LIMITS]
        return epsilon_upper_bound(first[largest], second[largest], objective.planned, 0.0, objective.alpha)
    lines = [frontier(a, b, objective.planned, objective.alpha) for a, b in ((first, second), (second, first))]
    return max(frontier_bound(line, epsilon) for line in lines)
