"""Selection of the event that is tested (paper, Algorithm 4), from selection runs only.

Half of the selection runs train the candidates. A quarter proposes events, rare and frequent ones, for each candidate.
The last quarter decides between the proposed events. The runs that decide did not propose, so the estimate that decides
is not biased by the maximisation over thousands of thresholds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpverify.events.event import Event
from dpverify.events.partition import FIRST_CELL, Partition
from dpverify.events.scores import Levels, ScoreGroup, summarise
from dpverify.sampling.accumulators import CellCounter, merge_results
from dpverify.sampling.counts import Counts, counts_from_table, occupied_codes
from dpverify.selection.candidates import train_candidates, tree_partition
from dpverify.selection.context import SelectionContext
from dpverify.selection.histograms import BinnedScore, BinnedScores, PairedHistogram, ScoreHistogram, fine_edges
from dpverify.selection.proposals import (
    Candidate,
    JudgedProposal,
    Proposal,
    SelectionCounts,
    bounding_levels,
    judge,
    level_event,
    prefer_simpler,
    propose_cells,
    propose_levels,
    propose_unions,
    select_paper_cell,
)

RANKING_RUNS = 1 << 18  # proposal runs per data set that all scores are counted on; the best few are counted on all
MAX_FINALISTS = 4  # scores that are counted on all proposal runs
MAX_EDGE_RUNS = 1 << 13  # runs per data set that place the edges of a score


class SelectedEvent(NamedTuple):
    """What is frozen before the first test run.

    Attributes
    ----------
    event : Event
        The event that is tested.
    partition : Partition or Levels
        The partition whose unions are bounded from above.
    expected_bound : float
        The lower bound of epsilon that the test runs are expected to prove; NaN for the paper's selector.
    eta : float or None
        The paper's eta: the largest share of the first data set's selection runs in an event. None without the paper's
        selector.
    """

    event: Event
    partition: Partition | Levels
    expected_bound: float = math.nan
    eta: float | None = None


def select_cell(context: SelectionContext, partition: Partition, rng: np.random.Generator) -> SelectedEvent:
    """Return the paper's choice: the worst cell of a given partition, from all selection runs."""
    settings = context.settings
    assert settings.selection_epsilon is not None
    pairs = [context.count(stage, [CellCounter(partition)])[0] for stage in context.runs]
    first, second = (Counts.merge([pair[side] for pair in pairs]) for side in (0, 1))
    counts = SelectionCounts(first, second, sum(context.runs.values()))
    codes = occupied_codes(first, second)
    if not settings.complement:
        inside = codes[codes >= FIRST_CELL]
        codes = inside if inside.size else np.array([FIRST_CELL])  # an empty cell, where every run is outside
    event = select_paper_cell(partition, counts, codes, settings.selection_epsilon, rng)
    return SelectedEvent(event, partition, eta=float(first.of(codes).max()) / counts.runs)


def select_event(context: SelectionContext, given: Partition | None) -> SelectedEvent:
    """Return the event with the largest expected lower bound among unions of cells and level sets of scores.

    Parameters
    ----------
    context : SelectionContext
        The selection.
    given : Partition or None
        The partition that the settings name. Without one, level sets of the selected score are bounded from above.
    """
    samples, known = context.draw_training_runs()
    training = summarise(samples)
    if context.settings.partition == "tree":
        given = tree_partition(context, training)
    trained = train_candidates(context, given, training, samples, known)
    group = ScoreGroup.of(trained.scores)
    scores = _place_edges(group, samples)
    cells = given if trained.partition_counts is not None else None
    counted = _count_candidates(context, cells, scores, group)

    proposals: list[Proposal] = []
    for candidate in counted.candidates:
        proposals += propose_levels(candidate, context.objective).proposals
    if cells is not None and counted.cells is not None and trained.partition_counts is not None:
        if context.settings.events == "cell":
            proposals += propose_cells(cells, counted.cells, context.objective)
        else:
            proposals += propose_unions(cells, trained.partition_counts, counted.cells, context.objective)
    winner = _decide(context, proposals, group)
    event = winner.proposal.event
    if given is not None:
        return SelectedEvent(event, given, winner.bound)
    levels = bounding_levels(winner, context.objective, context.settings.resolution)
    return SelectedEvent(level_event(levels, winner.proposal.threshold, event.direction), levels, winner.bound)


def _place_edges(group: ScoreGroup, samples: list[np.ndarray]) -> list[BinnedScore]:
    """Return the scores with fine edges between their values for training runs."""
    thinned = np.concatenate([x[:MAX_EDGE_RUNS] for x in samples])
    values = group.values(thinned.reshape(len(thinned), -1))
    return [BinnedScore(score, fine_edges(own)) for score, own in zip(group.scores, values, strict=True)]


class CountedCandidates(NamedTuple):
    """Counts of proposal runs: of the cells of a given partition, and of each score."""

    cells: SelectionCounts | None
    candidates: list[Candidate]


def _count_candidates(
    context: SelectionContext, cells: Partition | None, scores: list[BinnedScore], group: ScoreGroup
) -> CountedCandidates:
    """Count all scores on the first proposal runs, and the best few of them on all proposal runs."""
    block, runs = context.source.block, context.runs["cut"]
    counters = [] if cells is None else [CellCounter(cells)]
    ranking_runs = min(runs, max(RANKING_RUNS // block, 1) * block)
    statistics = [*counters, BinnedScores.of(scores, group)]
    pairs = context.count("cut", statistics, ranking_runs)
    if ranking_runs < runs:
        early = _as_candidates(scores, pairs[-1], ranking_runs)
        ranks = [propose_levels(candidate, context.objective).rank for candidate in early]
        finalists = sorted(np.argsort(ranks, kind="stable")[-MAX_FINALISTS:].tolist())
        scores = [scores[i] for i in finalists]
        first, second = pairs[-1]
        pairs[-1] = tuple(first[i] for i in finalists), tuple(second[i] for i in finalists)
        counted_blocks = {(side, b) for side in (0, 1) for b in range(ranking_runs // block)}
        statistics = [*counters, BinnedScores.of(scores)]
        pairs = merge_results(statistics, pairs, context.count("cut", statistics, runs, counted_blocks))
    cell_counts = SelectionCounts(*pairs[0], runs) if counters else None
    return CountedCandidates(cell_counts, _as_candidates(scores, pairs[-1], runs))


def _as_candidates(
    scores: list[BinnedScore], pair: tuple[tuple[ScoreHistogram, ...], tuple[ScoreHistogram, ...]], runs: int
) -> list[Candidate]:
    """Return the scores with their histograms for both data sets."""
    histograms = zip(*pair, strict=True)
    return [Candidate(score, PairedHistogram.of(*two, runs)) for score, two in zip(scores, histograms, strict=True)]


def _decide(context: SelectionContext, proposals: list[Proposal], group: ScoreGroup) -> JudgedProposal:
    """Return the best proposal. The decision runs that judge the proposals were not used to propose them."""
    partitions = list({id(p.event.partition): p.event.partition for p in proposals}.values())
    levels = [partition for partition in partitions if isinstance(partition, Levels)]
    others = [partition for partition in partitions if not isinstance(partition, Levels)]
    binned = BinnedScores.of([BinnedScore(one.score, one.edges) for one in levels], group)
    pairs = context.count("decide", [binned, *(CellCounter(partition) for partition in others)])
    histograms = zip(*pairs[0], strict=True)
    level_pairs = [(counts_from_table(one.table), counts_from_table(two.table)) for one, two in histograms]
    runs = context.runs["cut"] + context.runs["decide"]
    counts_of = {
        id(partition): SelectionCounts(first, second, runs)
        for partition, (first, second) in zip([*levels, *others], [*level_pairs, *pairs[1:]], strict=True)
    }
    judged = [judge(proposal, counts_of[id(proposal.event.partition)], context.objective) for proposal in proposals]
    return prefer_simpler(judged)
