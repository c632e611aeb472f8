"""Selection of one event for every prefix of an output, from selection runs only.

The stages are those of `dpverify.selection`: half of the selection runs train the scores, a quarter proposes events and
a quarter decides between them. Every run serves all prefixes.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import scipy

from dpverify.events.cells import pad_rows
from dpverify.events.prefix_scores import AnyPrefixScores, PrefixScore, gaussian_prefixes, prefix_learners
from dpverify.events.scores import Levels, TrainingData, summarise
from dpverify.sampling.context import RunContext
from dpverify.sampling.counts import Statistics, TableCounter, counts_from_table
from dpverify.sampling.stages import collect_samples, collect_statistics
from dpverify.selection.context import MAX_KEPT_NUMBERS, THOROUGH_SEARCH
from dpverify.selection.histograms import BinnedScore, Extremes, PairedHistogram, fine_edges
from dpverify.selection.level_proposals import propose_levels
from dpverify.selection.objective import SelectionObjective
from dpverify.selection.proposals import (
    Candidate,
    JudgedProposal,
    SelectionCounts,
    bounding_levels,
    judge,
    prefer_simpler,
)
from dpverify.stats.claim_kinds import Approximate, Claim
from dpverify.timeline.events import PrefixEvents, ScoreTable
from dpverify.timeline.tails import median_event, refine_threshold

MAX_EDGE_RUNS = 1 << 15  # training runs per data set that place the edges of the scores
MAX_LEVELS = 256  # of each score during the selection; the tails have further ones
RANKING_RUNS = 1 << 15  # proposal runs per data set that all scores are counted on; the best few are counted on all
RANKED_STEPS = 6  # prefixes that rank the scores
MAX_FINALISTS = 4  # scores that are counted on all proposal runs
NO_EXTREMES = Extremes(np.zeros(0), np.zeros(0))


class SelectionRuns(NamedTuple):
    """The runs per data set of each stage of the selection."""

    train: int
    cut: int
    decide: int

    @classmethod
    def of(cls, select_runs: int) -> SelectionRuns:
        """Divide the selection runs."""
        train, decide = select_runs // 2, max(1, select_runs // 4)
        return cls(train, max(1, select_runs - train - decide), decide)


class CountedScore(NamedTuple):
    """A score of all prefixes with its counts of proposal runs, for each data set."""

    table: ScoreTable
    first: np.ndarray
    second: np.ndarray

    def candidate(self, step: int, runs: int) -> Candidate:
        """Return the score of one prefix with its histograms."""
        edges = self.table.edges[step]
        edges = edges[np.isfinite(edges)]
        levels = edges.size + 1
        tables = self.first[step, :levels], self.second[step, :levels]
        histogram = PairedHistogram(tables, (NO_EXTREMES, NO_EXTREMES), runs)
        return Candidate(BinnedScore(PrefixScore(self.table.scores, step), edges), histogram)


def select_prefix_events(run: RunContext, delta: float, claim: Claim | None) -> tuple[PrefixEvents, np.ndarray]:
    """Return the event of every prefix, and training runs of both data sets of shape (runs, K, d).

    Parameters
    ----------
    run : RunContext
        The run.
    delta : float
        The delta at which epsilon is bounded.
    claim : Claim or None
        The claim, if there is one.
    """
    settings, shape = run.settings, run.source.shape
    assert shape is not None
    steps, runs = shape[0], SelectionRuns.of(settings.select_runs)
    penalty = THOROUGH_SEARCH.decision_penalty
    objective = SelectionObjective(settings.test_runs, delta, settings.alpha / steps, penalty, claim)
    samples, known = _draw_training_runs(run, runs.train)
    scores = _train(run, summarise(samples), samples, known, runs.train)
    thinned = np.concatenate([x[:MAX_EDGE_RUNS] for x in samples]).reshape(-1, shape[0] * shape[1])
    tables = [ScoreTable(score, _place_edges(score.values(thinned))) for score in scores]
    counted = _count_proposal_runs(run, tables, runs.cut, objective)
    decided = _count(run, "decide", runs.decide, [one.table for one in counted])
    winners = [_select_at(step, counted, decided, runs, objective) for step in range(steps)]
    events = _freeze(winners, _bounding_levels([winner.judged for winner in winners], objective, settings.resolution))
    return events, np.concatenate([x[:MAX_EDGE_RUNS] for x in samples])


def _draw_training_runs(run: RunContext, runs: int) -> tuple[list[np.ndarray], set[tuple[int, int]]]:
    """Return as many whole blocks of training runs as fit into memory, and which blocks they are."""
    block, shape = run.source.block, run.source.shape
    assert shape is not None
    most = min(THOROUGH_SEARCH.max_kept_runs, MAX_KEPT_NUMBERS // (shape[0] * shape[1]))
    kept = min(runs, max(block, most // block * block))
    samples = collect_samples(run.source, "train", kept, run.pool, run.progress)
    return samples, {(side, b) for side in (0, 1) for b in range(-(-kept // block))}


def _train(
    run: RunContext, training: TrainingData, samples: list[np.ndarray], known: set[tuple[int, int]], runs: int
) -> list[AnyPrefixScores]:
    """Return the scores that compete, fitted to all training runs."""
    assert run.source.shape is not None
    learners = prefix_learners(training, run.source.shape, runs)
    first, second = samples
    sums = [(learner.statistic.measure(first), learner.statistic.measure(second)) for learner in learners]
    if len(first) < runs:
        further = _count(run, "train", runs, [learner.statistic for learner in learners], known)
        sums = [(a + c, b + d) for (a, b), (c, d) in zip(sums, further, strict=True)]
    scores = gaussian_prefixes(training, run.source.shape)
    for learner, (one, two) in zip(learners, sums, strict=True):
        scores += learner.fit(one, two)
    return scores


def _count(
    run: RunContext, stage: str, runs: int, tables: list[Any], known: set[tuple[int, int]] | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the tables of each statistic over a stage, as pairs (first data set, second data set)."""
    statistics = Statistics(tuple(TableCounter(table) for table in tables))
    result = collect_statistics(run.source, stage, runs, statistics, run.pool, run.progress, known or ())
    return list(zip(*result.parts, strict=True))


def _place_edges(values: np.ndarray) -> np.ndarray:
    """Return fine edges between the score values of training runs, for each prefix."""
    return pad_rows([fine_edges(column, MAX_LEVELS) for column in values.T], least=1)


def _count_proposal_runs(
    run: RunContext, tables: list[ScoreTable], runs: int, objective: SelectionObjective
) -> list[CountedScore]:
    """Count all scores on the first proposal runs, and the best few of them on all proposal runs."""
    block = run.source.block
    ranking_runs = min(runs, max(RANKING_RUNS // block, 1) * block)
    pairs = _count(run, "cut", ranking_runs, tables)
    counted = [CountedScore(table, *pair) for table, pair in zip(tables, pairs, strict=True)]
    ranks = [_rank(one, ranking_runs, objective) for one in counted]
    best = np.argsort(ranks, kind="stable")[-MAX_FINALISTS:].tolist()
    # A score that varies for every prefix gives cells also where no difference was found.
    varying = [i for i, table in enumerate(tables) if (np.isfinite(table.edges).sum(1) > 1).all()]
    finalists = sorted({*best, *varying[:1]})
    if ranking_runs == runs:
        return [counted[i] for i in finalists]
    counted_blocks = {(side, b) for side in (0, 1) for b in range(ranking_runs // block)}
    further = _count(run, "cut", runs, [tables[i] for i in finalists], counted_blocks)
    return [
        CountedScore(tables[i], counted[i].first + first, counted[i].second + second)
        for i, (first, second) in zip(finalists, further, strict=True)
    ]


def _rank(one: CountedScore, runs: int, objective: SelectionObjective) -> float:
    """Return the sum of the expected lower bounds over some prefixes, the longest one included."""
    last = len(one.table.edges) - 1
    steps = np.unique(np.linspace(last, 0, RANKED_STEPS, endpoint=False).round().astype(int)).tolist()
    return sum(max(propose_levels(one.candidate(step, runs), objective).rank, 0.0) for step in steps)


class Winner(NamedTuple):
    """The selected event of one prefix.

    Attributes
    ----------
    judged : JudgedProposal
        The event.
    may_prove : bool
        Whether the test runs may prove anything with it. Alpha is shared by the prefixes for which this is true.
    """

    judged: JudgedProposal
    may_prove: bool


def _select_at(
    step: int,
    counted: list[CountedScore],
    decided: list[tuple[np.ndarray, np.ndarray]],
    runs: SelectionRuns,
    objective: SelectionObjective,
) -> Winner:
    """Return the best event of one prefix; the decision runs that judge it were not used to propose it."""
    judged: list[JudgedProposal] = []
    counts_of: dict[int, SelectionCounts] = {}
    candidates: dict[int, Candidate] = {}
    # A score without weights has one level, and nothing can be bounded with it.
    varying = [pair for pair in zip(counted, decided, strict=True) if np.isfinite(pair[0].table.edges[step]).sum() > 1]
    for one, tables in varying or zip(counted, decided, strict=True):
        candidate = one.candidate(step, runs.cut)
        proposals = propose_levels(candidate, objective).proposals
        levels, edges = proposals[0].event.partition.levels, candidate.binned.edges
        assert levels is not None
        group = np.searchsorted(levels.edges, np.append(edges, np.inf))
        first, second = (
            counts_from_table(np.bincount(group, table[step, : edges.size + 1]).astype(np.int64)) for table in tables
        )
        candidates[id(levels)] = _join(candidate, [table[step, : edges.size + 1] for table in tables], runs.decide)
        counts_of[id(levels)] = SelectionCounts(first, second, runs.decide, runs.cut)
        judged += [judge(proposal, counts_of[id(levels)], objective) for proposal in proposals]
    winner = prefer_simpler(judged)
    may_prove = _may_prove(winner, counts_of[id(winner.proposal.event.partition)], objective)
    candidate = candidates[id(winner.proposal.event.partition)]
    if not may_prove:
        winner = winner._replace(proposal=median_event(winner.proposal))
    elif isinstance(objective.claim, (Approximate, NoneType)):
        winner = winner._replace(proposal=refine_threshold(winner.proposal, candidate, objective))
    return Winner(winner, may_prove)


def _join(candidate: Candidate, tables: list[np.ndarray], runs: int) -> Candidate:
    """Return a candidate with further runs in its histograms."""
    first, second = (old + new for old, new in zip(candidate.histogram.table, tables, strict=True))
    histogram = candidate.histogram._replace(table=(first, second), runs=candidate.histogram.runs + runs)
    return candidate._replace(histogram=histogram)


def _may_prove(winner: JudgedProposal, decision: SelectionCounts, objective: SelectionObjective) -> bool:
    """Return whether the log-ratio of an event in the selection runs is at least half the error of the test."""
    if not isinstance(objective.claim, (Approximate, NoneType)):  # events were judged by their distance from a curve
        return True
    event, before = winner.proposal.event, winner.proposal.counts
    c1, c2 = (
        (count + int(side.of(event.codes).sum()) + 0.5) / (decision.runs + decision.proposal_runs + 1)
        for count, side in zip(before, (decision.first, decision.second), strict=True)
    )
    p1, p2 = (c1, c2) if event.direction == 0 else (c2, c1)
    excess = p1 - objective.delta
    if excess <= 0:
        return False
    error = np.sqrt((p1 * (1 - p1) / excess**2 + (1 - p2) / p2) / objective.planned)
    return bool(np.log(excess / p2) >= -0.5 * scipy.special.ndtri(objective.alpha) * error)


def _bounding_levels(
    winners: list[JudgedProposal], objective: SelectionObjective, resolution: int | None
) -> list[Levels]:
    """Return the level sets of every prefix. At a positive delta all have as many as are best for the last prefix."""
    if resolution is None and objective.delta > 0:
        resolution = bounding_levels(winners[-1], objective, None).size
    return [bounding_levels(winner, objective, resolution) for winner in winners]


def _freeze(winners: list[Winner], levels: list[Levels]) -> PrefixEvents:
    """Return the selected events as plain data. If no prefix is expected to prove anything, all of them share alpha."""
    views = [one.score for one in levels if isinstance(one.score, PrefixScore)]
    distinct = list({id(view.scores): view.scores for view in views}.values())
    numbers = {id(scores): number for number, scores in enumerate(distinct)}
    proposals = [winner.judged.proposal for winner in winners]
    tested = np.array([winner.may_prove for winner in winners])
    return PrefixEvents(
        tuple(distinct),
        np.array([numbers[id(view.scores)] for view in views]),
        np.array([proposal.event.direction for proposal in proposals]),
        np.array([proposal.threshold for proposal in proposals]),
        pad_rows([one.edges for one in levels], least=1),
        tested if tested.any() else np.ones(len(winners), bool),
    )
