"""Proposed events: from the cells of a partition, and from the level sets of a score.

The paper selects the cell with the smallest p-value at one fixed epsilon (Algorithm 4). By default we select the event
with the largest expected lower bound from the planned test runs (docs/method.md, section 5.3).

Models of the tails of a score propose events that are rarer than the selection runs can count. The best event is often
so rare under one dataset that the proposal runs contain few examples of it or none. The log-ratio of the two densities
along a good score is nearly linear in the tail. A linear fit, together with the runs of the dataset under which the
event is frequent, predicts the small probability. The fit uses far more runs than the event contains, so that its
prediction is worth more than the counts of the event. The decision runs can contradict it, and the test does not use
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from dpverify.events.event import Event
from dpverify.events.partition import Partition
from dpverify.events.scores import Levels, Score, evaluate_scores
from dpverify.sampling.count import Block, Counts, occupied_codes
from dpverify.selection.objective import (
    PRIOR_COUNT,
    TUNING,
    SelectionObjective,
    approximate_bound,
    cautious_lower_bound,
)
from dpverify.stats.paper import p_values
from dpverify.stats.upper import epsilon_upper_bound, frontier, frontier_bound
from dpverify.util.arrays import Array, array_namespace, evaluate_method, is_jax, is_plain_data

EXTREMES_KEPT = 128  # number of values that are stored at either end
RELATIVE_ROUNDING = 1e-9  # score values closer than this, relative to their range, are treated as equal


class Extremes(NamedTuple):
    """The lowest and the highest values, sorted: they resolve the tails of a score beyond the bins of a histogram."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Extremes:
        """Return the extremes of some values."""
        return cls.of_sorted(np.sort(values))

    @classmethod
    def of_sorted(cls, values: np.ndarray) -> Extremes:
        """Return the extremes of sorted values."""
        return cls(values[:EXTREMES_KEPT].copy(), values[-EXTREMES_KEPT:].copy())  # not views of all values

    @staticmethod
    def merge(results: Sequence[Extremes]) -> Extremes:
        """Return the extremes of all values together."""
        low, high = (Extremes.of(np.concatenate(part)) for part in zip(*results, strict=True))
        return Extremes(low.low, high.high)


class ScoreHistogram(NamedTuple):
    """The number of runs in each level of a score, and the extreme values."""

    table: np.ndarray
    extremes: Extremes

    @staticmethod
    def merge(results: Sequence[ScoreHistogram]) -> ScoreHistogram:
        """Return the histogram of all runs together."""
        tables, extremes = zip(*results, strict=True)
        return ScoreHistogram(np.sum(tables, axis=0), Extremes.merge(extremes))


class BinnedScore(NamedTuple):
    """A score with fine edges, between which runs are counted."""

    score: Score
    edges: np.ndarray

    def measure(self, samples: Array) -> ScoreHistogram:
        """Return the histogram of a block of runs."""
        if is_jax(samples) and is_plain_data(self):
            table, low, high = evaluate_method(self, "_on_device", samples)
            return ScoreHistogram(table, Extremes(low, high))
        return self.count(score_values(self.score, samples))

    def count(self, values: np.ndarray) -> ScoreHistogram:
        """Return the histogram of some score values."""
        values = np.sort(values)  # NumPy sorts all values faster than it searches for each of them
        ranks = np.concatenate([[0], np.searchsorted(values, self.edges, side="right"), [values.size]])
        return ScoreHistogram(ranks[1:] - ranks[:-1], Extremes.of_sorted(values))

    def _on_device(self, samples: Array) -> tuple[Array, Array, Array]:
        xp = array_namespace(samples)
        values = xp.sort(self.score.values(samples.reshape(samples.shape[0], -1)))
        # The count of a level is the difference of the ranks of its two edges among the sorted values.
        ranks = xp.searchsorted(values, self.edges, side="right")
        ends = xp.array([0]), xp.array([values.shape[0]])
        table = xp.diff(xp.concatenate([ends[0], ranks, ends[1]]))
        return table, values[:EXTREMES_KEPT], values[-EXTREMES_KEPT:]


class BinnedScores(NamedTuple):
    """Several binned scores. As one statistic they are counted together."""

    scores: tuple[BinnedScore, ...]

    def measure(self, block: Block) -> tuple[ScoreHistogram, ...]:
        """Return the histograms of a block of runs."""
        samples = block.counted
        if is_jax(samples):
            return tuple(binned.measure(samples) for binned in self.scores)
        values = evaluate_scores([binned.score for binned in self.scores], samples.reshape(len(samples), -1))
        return tuple(binned.count(own) for binned, own in zip(self.scores, values, strict=True))

    def merge(self, results: Sequence[tuple[ScoreHistogram, ...]]) -> tuple[ScoreHistogram, ...]:
        """Return the histograms of all runs together."""
        return tuple(ScoreHistogram.merge(one) for one in zip(*results, strict=True))


class PairedHistogram(NamedTuple):
    """The histograms of one score for both datasets.

    Attributes
    ----------
    table : tuple of two ndarray
        The counts of every level.
    extremes : tuple of two Extremes
        The extreme values.
    runs : int
        The runs per dataset.
    """

    table: tuple[np.ndarray, np.ndarray]
    extremes: tuple[Extremes, Extremes]
    runs: int

    @classmethod
    def of(cls, first: ScoreHistogram, second: ScoreHistogram, runs: int) -> PairedHistogram:
        """Return the pair of two histograms."""
        return cls((first.table, second.table), (first.extremes, second.extremes), runs)

    def add(self, other: PairedHistogram) -> PairedHistogram:
        """Return the histograms of the runs of both together; the edges have to be the same."""
        first, second = (
            ScoreHistogram.merge([ScoreHistogram(one.table[side], one.extremes[side]) for one in (self, other)])
            for side in (0, 1)
        )
        return PairedHistogram.of(first, second, self.runs + other.runs)

    def count_beyond(self, threshold: float, edges: np.ndarray, above: bool) -> tuple[int, int]:
        """Return how many runs of each dataset lie above a threshold, or at most at it.

        The threshold is one of the edges, or a number beyond all edges in the range of the extreme values.
        """
        index = int(np.searchsorted(edges, threshold))
        if index < edges.size and edges[index] == threshold:
            at_most = [int(table[: index + 1].sum()) for table in self.table]
        elif threshold > edges[-1]:
            at_most = [self.runs - int((e.high > threshold).sum()) for e in self.extremes]
        else:
            at_most = [int((e.low <= threshold).sum()) for e in self.extremes]
        first, second = (self.runs - count if above else count for count in at_most)
        return first, second


class ThresholdCounts(NamedTuple):
    """Candidate thresholds, and how many runs of each dataset lie above each of them."""

    thresholds: np.ndarray
    first: np.ndarray
    second: np.ndarray


def merge_levels(table: np.ndarray, edges: np.ndarray, finer: np.ndarray) -> np.ndarray:
    """Return the counts of the levels between some of the edges of a table; `finer` are all of its edges."""
    return np.add.reduceat(table, np.concatenate([[0], np.searchsorted(finer, edges) + 1]))


def score_values(score: Score, samples: Array) -> np.ndarray:
    """Return the score of every run as a NumPy array."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(score.values(np.asarray(samples).reshape(len(samples), -1)), float)


def midpoints(values: np.ndarray) -> np.ndarray:
    """Return the midpoints between distinct sorted values.

    Values that differ by rounding only are treated as equal: a sum in a different order must not cross a threshold.
    """
    if not values.size:
        return values
    value_range = max(values[-1] - values[0], np.finfo(float).tiny)
    distinct = np.diff(values) > RELATIVE_ROUNDING * value_range
    low, high = values[:-1][distinct], values[1:][distinct]
    return low + (high - low) / 2


def fine_edges(values: np.ndarray, most: int = TUNING.max_fine_levels) -> np.ndarray:
    """Return edges between score values of the training runs, at equal shares and at halving shares at both ends."""
    edges = midpoints(np.sort(values))
    if edges.size > most:
        n = edges.size
        halving = 2 ** np.arange(int(np.log2(n)))
        ranks = np.unique(np.concatenate([np.arange(1, most) * n // most, halving - 1, n - halving]))
        edges = edges[ranks]
    return edges if edges.size else values[:1]


def threshold_counts(histogram: PairedHistogram, edges: np.ndarray) -> ThresholdCounts:
    """Return thresholds at the edges, and in the tails between single values, with the runs above each of them."""
    extremes, runs = histogram.extremes, histogram.runs
    # The kept extreme values are complete above `top` and below `bottom`.
    top = max(e.high[0] if e.high.size == EXTREMES_KEPT else -np.inf for e in extremes)
    bottom = min(e.low[-1] if e.low.size == EXTREMES_KEPT else np.inf for e in extremes)
    high = midpoints(np.sort(np.concatenate([e.high for e in extremes])))
    low = midpoints(np.sort(np.concatenate([e.low for e in extremes])))
    high, low = high[high >= top], low[low < bottom]
    counts = np.concatenate(
        [
            np.stack([runs - np.cumsum(table)[:-1] for table in histogram.table]),
            np.stack([e.high.size - np.searchsorted(e.high, high, side="right") for e in extremes]),
            runs - np.stack([np.searchsorted(e.low, low, side="right") for e in extremes]),
        ],
        axis=1,
    )
    return ThresholdCounts(np.concatenate([edges, high, low]), counts[0], counts[1])


class SelectionCounts(NamedTuple):
    """The cell counts of both datasets in some selection runs, and the number of these runs per dataset.

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
    """What a model knows about an event, as counts of the exceeding and of the other dataset in so many runs."""

    exceeding: float
    other: float
    runs: float

    def agrees_with(self, exceeding: int, other: int) -> bool:
        """Return whether these counts of further runs do not contradict the ratio; more of the first is no problem."""
        expected = (exceeding + 1.0) * self.other / self.exceeding
        return bool(scipy.special.pdtrc(other - 1, expected) >= TUNING.misfit_p_value) if other else True


class Proposal(NamedTuple):
    """An event that competes.

    Attributes
    ----------
    event : Event
        The event.
    counts : tuple of int
        How often the first and the second dataset fell into it in the proposal runs.
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
        The same with a large penalty.
    standard_error : float
        The standard error of the bound.
    decided : tuple of int
        Decision runs in the event: of the dataset that is expected to exceed, and of the other one.
    decision_runs : int
        The decision runs per dataset.
    """

    proposal: Proposal
    bound: float
    safe_bound: float
    standard_error: float
    decided: tuple[int, int]
    decision_runs: int


def select_paper_cell(
    partition: Partition, counts: SelectionCounts, codes: np.ndarray, epsilon: float, rng: np.random.Generator | None
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
    for bounds in cautious_lower_bound(c, c[::-1], counts.runs, objective, TUNING.proposal_penalties):
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
        order = np.argsort(-ratio, kind="stable")[: TUNING.max_union_cells]
        c = np.cumsum(held_out[0][order]), np.cumsum(held_out[1][order])
        bounds = cautious_lower_bound(c[side], c[1 - side], counts.runs, objective, TUNING.proposal_penalties)
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
        size, extra = event.partition.n_parameters, TUNING.curve_penalty if objective.is_curve else 0.0
        penalties = objective.decision_penalty + extra, TUNING.proposal_penalties[-1]
        bound, safe_bound = cautious_lower_bound(c1, c2, runs, objective, penalties, size).tolist()
    error = float(np.sqrt(1 / (c1 + 0.5) + 1 / (c2 + 0.5)))
    return JudgedProposal(proposal, bound, safe_bound, error, decided, decision.runs)


def prefer_simpler(judged: list[JudgedProposal]) -> JudgedProposal:
    """Return the proposal with the largest bound, or a simpler one whose bound is only slightly smaller."""
    best = max(judged, key=lambda one: one.bound)
    close = [one for one in judged if one.bound >= best.bound - TUNING.simpler_within * best.standard_error]
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
    numbers = (resolution,) if resolution else TUNING.bounding_levels
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
        allowance = TUNING.limit_errors * np.sqrt(1 / low + 1 / high)
        largest = np.argsort(-np.log(high / low) - allowance, kind="stable")[: TUNING.compared_limits]
        return epsilon_upper_bound(first[largest], second[largest], objective.planned, 0.0, objective.alpha)
    lines = [frontier(a, b, objective.planned, objective.alpha) for a, b in ((first, second), (second, first))]
    return max(frontier_bound(line, epsilon) for line in lines)


NEWTON_STEPS, MAX_STEP = 6, 3.0


class Tail(NamedTuple):
    """The upper tail of a score, from large values to small ones.

    Attributes
    ----------
    values : ndarray
        Representative values of the score: midpoints of bins, and single values where these are known.
    exceeding : ndarray
        How many runs of the dataset that is expected to exceed have each value.
    edges : ndarray
        The lower end of each value's bin: a possible threshold.
    other : ndarray
        How many runs of the other dataset lie above each edge.
    """

    values: np.ndarray
    exceeding: np.ndarray
    edges: np.ndarray
    other: np.ndarray


class TailModel(NamedTuple):
    """What a modelled log-ratio says about the events {score > edge}; for direction 1, about {score <= edge}.

    Attributes
    ----------
    direction : int
        Which dataset is expected to exceed.
    edges : ndarray
        Thresholds, from rare events to frequent ones.
    counts : ndarray of shape (2, n)
        The proposal runs of the exceeding and of the other dataset in each event.
    predicted : ndarray
        The predicted number of proposal runs of the other dataset.
    variance : ndarray
        The variance of the log-ratio of the two probabilities.
    runs : int
        The proposal runs per dataset.
    """

    direction: int
    edges: np.ndarray
    counts: np.ndarray
    predicted: np.ndarray
    variance: np.ndarray
    runs: int

    def cautious_bounds(self, objective: SelectionObjective) -> np.ndarray:
        """Return the bounds of the events if every ratio is one standard error smaller than predicted."""
        other = np.minimum(self.predicted * np.exp(np.sqrt(self.variance)) / self.runs, 1.0)
        bounds = approximate_bound(self.counts[0] / self.runs, other, objective)
        return np.where((self.counts[0] < TUNING.min_event_runs) | (self.predicted <= 0), 0.0, bounds)

    def best(self, objective: SelectionObjective) -> int | None:
        """Return the event with the largest cautious bound; None if no bound is above 0."""
        bounds = self.cautious_bounds(objective)
        index = int(np.argmax(bounds))
        return index if bounds[index] > 0 else None

    def equivalent_counts(self, threshold: float, exceeding: int) -> EquivalentCounts | None:
        """Return counts whose log-ratio has the same expectation and variance as the model has for an event.

        `exceeding` is the event's number of proposal runs of the exceeding dataset. The result is None for an event
        outside the tail, if the model does not know more than the counts, or if the ratio does not exceed 1.
        """
        order = 1 if self.direction == 0 else -1
        index = int(np.searchsorted(-order * self.edges, -order * threshold))
        if index >= len(self.edges) or exceeding == 0 or not self.variance[index] < TUNING.max_model_variance:
            return None
        ratio = self.counts[0][index] / self.predicted[index]
        if ratio <= 1:
            return None
        other = (1 + 1 / ratio) / self.variance[index]
        return EquivalentCounts(ratio * other, other, ratio * other * self.runs / exceeding)


def fit_tails(candidate: Candidate) -> list[TailModel]:
    """Return the models of the upper tail of the score and of the lower one, where they fit."""
    models = []
    for direction in (0, 1):
        tail = _upper_tail(candidate, direction)
        model = None if tail is None else _fit_tail(tail, candidate.histogram.runs)
        if model is not None:
            models.append(model if direction == 0 else model._replace(direction=1, edges=-model.edges))
    return models


def _upper_tail(candidate: Candidate, direction: int) -> Tail | None:
    """Return the upper tail of the score; for direction 1 that of the negative score, with the datasets exchanged."""
    edges, histogram = candidate.binned.edges, candidate.histogram
    tables, extremes = histogram.table, [e.high for e in histogram.extremes]
    if direction == 1:
        edges, tables = -edges[::-1], (tables[1][::-1], tables[0][::-1])
        extremes = [-e.low[::-1] for e in histogram.extremes][::-1]
    if edges.size < TUNING.min_fitted_bins:
        return None
    # Single values are known above this one. Where it lies above the last edge, it is one more edge.
    known = max(values.min() if values.size >= EXTREMES_KEPT else -np.inf for values in extremes)
    above = [np.sort(values[values > max(known, edges[-1])])[::-1] for values in extremes]
    if known > edges[-1]:
        edges = np.append(edges, known)
        tables = [np.append(t[:-1], [t[-1] - one.size, one.size]) for t, one in zip(tables, above, strict=True)]
    top, in_top = above[0], np.ones(above[0].size)
    top_edges = (np.append(top[1:], edges[-1])[: top.size] + top) / 2
    other = above[1].size - np.searchsorted(above[1][::-1], top_edges, side="right")
    if not any(values.size for values in extremes):  # the last bin has no upper end; its lower one is on the safe side
        top = top_edges = edges[-1:]
        in_top, other = tables[0][-1:], tables[1][-1:]
    in_bins = tables[1][-1] + np.cumsum(tables[1][1:-1][::-1])
    return Tail(
        np.concatenate([top, (edges[1:] + edges[:-1])[::-1] / 2]),
        np.concatenate([in_top, tables[0][1:-1][::-1]]),
        np.concatenate([top_edges, edges[:-1][::-1]]),
        np.concatenate([other, in_bins]).astype(np.int64),
    )


def _fit_tail(tail: Tail, runs: int) -> TailModel | None:
    """Return the model of the largest tail along which the log-ratio is linear; None without such a tail."""
    line, size = None, 0
    for most in (min(max(TUNING.max_tail_runs[0], TUNING.max_tail_share * runs), runs / 4), *TUNING.max_tail_runs[1:]):
        inner = int(np.searchsorted(tail.other, most, side="right"))
        is_large = inner >= TUNING.min_fitted_bins and tail.other[inner - 1] >= TUNING.min_tail_runs
        if not is_large or (line is not None and inner >= size):
            continue
        c1, c2 = tail.exceeding[:inner], np.diff(tail.other[:inner], prepend=0)
        own = fit_log_ratio(tail.values[:inner], c1, c2)
        if line is None or own.log_likelihood(c1, c2) - line.log_likelihood(c1, c2) > TUNING.misfit_gain:
            line, size = own, inner
    if line is None or line.slope <= TUNING.min_slope_errors * np.sqrt(line.covariance[2]):
        return None
    c1, other = tail.exceeding[:size], tail.other[:size]
    # The runs of the exceeding dataset, weighted by the ratio, predict the runs of the other one.
    weights = c1 * np.exp(-line.ratios)
    predicted = np.maximum(np.cumsum(weights), np.finfo(float).tiny)
    checked = min(int(np.searchsorted(other, TUNING.checked_count)), size - 1)
    if scipy.special.pdtrc(other[checked] - 1, predicted[checked]) < TUNING.misfit_p_value:
        return None
    centre = np.cumsum(weights * line.x) / predicted  # the derivative by the slope
    intercept, covariance, slope = line.covariance
    variance = intercept + 2 * covariance * centre + slope * centre**2 + TUNING.model_error**2
    return TailModel(0, tail.edges[:size], np.stack([np.cumsum(c1), other]), predicted, variance, runs)


class FittedLine(NamedTuple):
    """A linear log-ratio.

    Attributes
    ----------
    x : ndarray
        The values that it was fitted to, with mean 0 and variance 1.
    intercept, slope : float
        The coefficients.
    covariance : tuple of three float
        The variance of the intercept, the covariance, and the variance of the slope.
    """

    x: np.ndarray
    intercept: float
    slope: float
    covariance: tuple[float, float, float]

    @property
    def ratios(self) -> np.ndarray:
        """The log-ratios at the values."""
        return self.intercept + self.slope * self.x

    def log_likelihood(self, c1: np.ndarray, c2: np.ndarray) -> float:
        """Return the log-likelihood of these numbers of runs, given the first values that the line was fitted to."""
        ratio = self.ratios[: len(c1)]
        return float(c1 @ ratio - (c1 + c2) @ np.logaddexp(0.0, ratio))


def fit_log_ratio(values: np.ndarray, c1: np.ndarray, c2: np.ndarray) -> FittedLine:
    """Fit a line to the log-ratio of two densities by maximum likelihood.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Values of a score.
    c1, c2 : ndarray of shape (n,)
        How many runs of each dataset have each value.
    """
    both = c1 + c2
    total = both.sum()
    centred = values - both @ values / total
    spread = np.sqrt(both @ centred**2 / total)
    x = centred / spread if spread > 0 else centred
    start = np.log((c1.sum() + 1.0) / (c2.sum() + 1.0))
    a, b, inverse = start, 0.0, (1.0, 0.0, 1.0)
    for _ in range(NEWTON_STEPS):
        share = scipy.special.expit(a + b * x)
        missing, weight = c1 - both * share, both * share * (1 - share)
        # The ridge keeps the estimate finite where the datasets do not overlap.
        g0, g1 = missing.sum() - TUNING.tail_ridge * (a - start), missing @ x - TUNING.tail_ridge * b
        h00, h01, h11 = weight.sum() + TUNING.tail_ridge, weight @ x, (weight * x) @ x + TUNING.tail_ridge
        determinant = h00 * h11 - h01**2
        inverse = h11 / determinant, -h01 / determinant, h00 / determinant
        a += min(max(inverse[0] * g0 + inverse[1] * g1, -MAX_STEP), MAX_STEP)
        b += min(max(inverse[1] * g0 + inverse[2] * g1, -MAX_STEP), MAX_STEP)
    return FittedLine(x, a, b, inverse)


MAX_EXPONENT = 700.0


class ScoreProposals(NamedTuple):
    """The proposals of one score, and the largest expected lower bound at the ranking penalty."""

    rank: float
    proposals: list[Proposal]


class LevelKey(NamedTuple):
    """An event of a score: `score > threshold` or `score <= threshold`, with the direction of the test."""

    threshold: float
    above: bool
    direction: int


class ChosenLevel(NamedTuple):
    """The counts of a proposed event in the proposal runs, and how it was proposed (see `Proposal`)."""

    counts: tuple[int, int]
    is_solid: bool = True
    predicted: float = np.nan
    equivalent: EquivalentCounts | None = None


def predict_rare(histogram: PairedHistogram, thresholds: np.ndarray, above: bool, side: int) -> np.ndarray:
    """Return the probabilities of {score > t} or {score <= t} under one dataset, from an exponential tail.

    The tail begins at one of the kept extreme values and has their mean excess. It separates an event beyond all likely
    outputs from one that has no runs by chance. Before the tail begins the result is the probability at its beginning.
    """
    extremes = histogram.extremes[side]
    values = extremes.high if above else -extremes.low[::-1]
    start = values[-min(TUNING.tail_values, values.size)]
    tail = values[values >= start]
    excess = np.maximum((thresholds if above else -thresholds) - start, 0.0)
    mean = max(float((tail - start).mean()), np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        exponent = np.minimum(excess / mean, MAX_EXPONENT)
    return np.maximum(tail.size * np.exp(-exponent), TUNING.min_predicted_count) / histogram.runs


def propose_levels(candidate: Candidate, objective: SelectionObjective) -> ScoreProposals:
    """Return the best events {score > t} for the first and {score <= t} for the second dataset, for every penalty.

    All events of a score share one partition, whose edges are the chosen thresholds. The direction is 0 for
    {score > t} and 1 for {score <= t}.
    """
    counted = threshold_counts(candidate.histogram, candidate.binned.edges)
    return _collect(candidate, *_solid_events(candidate, counted, objective))


def propose_all_levels(candidate: Candidate, objective: SelectionObjective) -> ScoreProposals:
    """Return the proposals of `propose_levels`, rare events in both tails and both directions, and modelled events.

    A score can have the wrong sign in a tail that few training runs reached, so that {score > t} is proposed for the
    second dataset too, and {score <= t} for the first. For each doubling of the count, the event with the largest
    expected lower bound is proposed. A line that fits a tail proposes one event, and it says more about the other
    events of its tail than their counts do.
    """
    binned, histogram = candidate
    runs = histogram.runs
    counted = threshold_counts(histogram, binned.edges)
    chosen, rank = _solid_events(candidate, counted, objective)
    thresholds, *above = counted
    scale = 1 / runs
    for is_above in (True, False):
        counts = above if is_above else [runs - count for count in above]
        for direction in (0, 1):
            is_rare = (counts[direction] >= TUNING.min_rare_count) & (counts[direction] <= TUNING.max_rare_share * runs)
            if not is_rare.any():
                continue
            pair, rare = [count[is_rare] for count in counts], thresholds[is_rare]
            exceeding, other = pair[direction], pair[1 - direction]
            expected = predict_rare(histogram, rare, is_above, 1 - direction)
            likely = np.where(other > 0, np.maximum(other + PRIOR_COUNT, expected * runs), expected * runs)
            bounds = approximate_bound(exceeding * scale, likely * scale, objective, is_rare=True)
            for best in _best_per_doubling(exceeding, bounds):
                key = LevelKey(float(rare[best]), is_above, direction)
                both = int(pair[0][best]), int(pair[1][best])
                is_solid = key in chosen
                chosen[key] = ChosenLevel(both, is_solid, float(likely[best]) * scale)
    for model in fit_tails(candidate):
        side, index = model.direction, model.best(objective)
        if index is not None:
            key = LevelKey(float(model.edges[index]), side == 0, side)
            exceeding, other = model.counts[:, index].astype(int).tolist()
            chosen[key] = ChosenLevel((exceeding, other) if side == 0 else (other, exceeding))
        for key, level in chosen.items():
            if key.direction == side and key.above == (side == 0):
                known = model.equivalent_counts(key.threshold, level.counts[side])
                # A leak lies beyond all likely outputs of the other dataset, where a line says nothing.
                is_leak = known is not None and level.predicted * TUNING.leak_ratio < known.other / known.runs
                chosen[key] = level._replace(equivalent=None if is_leak else known)
    return _collect(candidate, chosen, rank)


def refine_threshold(judged: JudgedProposal, decided: PairedHistogram, objective: SelectionObjective) -> JudgedProposal:
    """Return the event of the same score in the same tail that a model of all proposal and decision runs prefers.

    The decision between scores is made. One more threshold, from a model with two parameters, adds little bias.

    Parameters
    ----------
    judged : JudgedProposal
        The selected event.
    decided : PairedHistogram
        The histogram of the decision runs.
    objective : SelectionObjective
        The planned test.
    """
    candidate, side = judged.proposal.candidate, judged.proposal.event.direction
    assert candidate is not None
    models = fit_tails(candidate.with_runs(decided))
    model = next((one for one in models if one.direction == side), None)
    refined = None if model is None else _modelled_event(candidate, decided, model, objective)
    if refined is None or refined.proposal.equivalent is None:
        return judged
    before = judged.proposal
    proposal = refined.proposal._replace(is_solid=before.is_solid, predicted=before.predicted)
    return judged._replace(proposal=proposal, decided=refined.decided)


def _modelled_event(
    candidate: Candidate, decided: PairedHistogram, model: TailModel, objective: SelectionObjective
) -> JudgedProposal | None:
    """Return the event that a model of all proposal and decision runs prefers; None if no bound above 0 is expected."""
    index, side = model.best(objective), model.direction
    if index is None:
        return None
    threshold, (score, edges) = float(model.edges[index]), candidate.binned
    proposed, counts = (one.count_beyond(threshold, edges, side == 0) for one in (candidate.histogram, decided))
    exceeding, other = counts[side], counts[1 - side]
    known = model.equivalent_counts(threshold, int(model.counts[0][index]))
    if known is not None:  # the decision runs count on their own, so that the model stands for the proposal runs only
        known = EquivalentCounts(
            max(known.exceeding - exceeding, 1.0), max(known.other - other, 1.0), max(known.runs - decided.runs, 1.0)
        )
    event = level_event(Levels(score, np.array([threshold])), threshold, side)
    predicted = float(model.predicted[index]) / model.runs
    proposal = Proposal(event, proposed, candidate, threshold, predicted=predicted, equivalent=known)
    bound, error = float(model.cautious_bounds(objective)[index]), float(np.sqrt(model.variance[index]))
    # The bound allows for its standard error already, so that it is the safe bound too.
    return JudgedProposal(proposal, bound, bound, error, (exceeding, other), decided.runs)


def _solid_events(
    candidate: Candidate, counted: ThresholdCounts, objective: SelectionObjective
) -> tuple[dict[LevelKey, ChosenLevel], float]:
    """Return the events that the cautious rule proposes, and the largest bound at the ranking penalty."""
    runs, n_parameters = candidate.histogram.runs, candidate.binned.score.n_parameters
    thresholds, above1, above2 = counted
    exceeding, other = np.stack([above1, runs - above2]), np.stack([above2, runs - above1])  # both directions
    bounds = cautious_lower_bound(exceeding, other, runs, objective, TUNING.proposal_penalties, n_parameters)
    chosen: dict[LevelKey, ChosenLevel] = {}
    for best in np.argmax(bounds, axis=-1):
        for direction, i in enumerate(best.tolist()):
            pair = int(exceeding[direction, i]), int(other[direction, i])
            key = LevelKey(float(thresholds[i]), direction == 0, direction)
            chosen[key] = ChosenLevel(pair if direction == 0 else (pair[1], pair[0]))
    return chosen, float(bounds[TUNING.proposal_penalties.index(TUNING.ranking_penalty)].max())


def _best_per_doubling(counts: np.ndarray, bounds: np.ndarray) -> list[int]:
    """Return the index of the largest bound for each doubling of the count; the largest few of them above 0."""
    groups = np.frexp(np.maximum(counts, 1))[1]
    order = np.lexsort((counts, -bounds, groups))
    _, firsts = np.unique(groups[order], return_index=True)
    best = order[firsts]
    best = best[bounds[best] > 0]
    return best[np.argsort(-bounds[best], kind="stable")][: TUNING.max_rare_events].tolist()


def _collect(candidate: Candidate, chosen: dict[LevelKey, ChosenLevel], rank: float) -> ScoreProposals:
    """Return the proposals of one score. They share one partition, whose edges are their thresholds."""
    levels = Levels(candidate.binned.score, np.array(sorted({key.threshold for key in chosen})))
    proposals = [
        Proposal(
            level_event(levels, key.threshold, key.direction, key.above),
            level.counts,
            candidate,
            key.threshold,
            level.is_solid,
            level.predicted,
            level.equivalent,
        )
        for key, level in sorted(chosen.items())
    ]
    return ScoreProposals(rank, proposals)
