"""Selection of the event that is tested (paper, Algorithm 4), from selection runs only.

Half of the selection runs train the candidates. A quarter proposes events, rare and frequent ones, for each candidate.
The last quarter decides between the proposed events. The runs that decide did not propose, so the estimate that decides
is not biased by the maximisation over thousands of thresholds.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpverify.events.event import Event
from dpverify.events.partition import FIRST_CELL, Partition
from dpverify.events.scores import Levels, summarise
from dpverify.sampling.accumulators import CellCounter, merge_results
from dpverify.sampling.counts import Counts, occupied_codes
from dpverify.selection.candidates import train_candidates, tree_partition
from dpverify.selection.context import SelectionContext
from dpverify.selection.histograms import BinnedScore, PairedHistogram, fine_edges, score_values
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
MAX_EDGE_RUNS = 1 << 17  # runs per data set that place the edges of a score


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
    scores = [
        BinnedScore(score, fine_edges(np.concatenate([score_values(score, x[:MAX_EDGE_RUNS]) for x in samples])))
        for score in trained.scores
    ]
    cells = given if trained.partition_counts is not None else None
    counted = _count_candidates(context, cells, scores)

    proposals: list[Proposal] = []
    for candidate in counted.candidates:
        proposals += propose_levels(candidate, context.objective).proposals
    if cells is not None and counted.cells is not None and trained.partition_counts is not None:
        if context.settings.events == "cell":
            proposals += propose_cells(cells, counted.cells, context.objective)
        else:
            proposals += propose_unions(cells, trained.partition_counts, counted.cells, context.objective)
    winner = _decide(context, proposals)
    event = winner.proposal.event
    if given is not None:
        return SelectedEvent(event, given, winner.bound)
    levels = bounding_levels(winner, context.objective, context.settings.resolution)
    return SelectedEvent(level_event(levels, winner.proposal.threshold, event.direction), levels, winner.bound)


class CountedCandidates(NamedTuple):
    """Counts of proposal runs: of the cells of a given partition, and of each score."""

    cells: SelectionCounts | None
    candidates: list[Candidate]


def _count_candidates(
    context: SelectionContext, cells: Partition | None, scores: list[BinnedScore]
) -> CountedCandidates:
    """Count all scores on the first proposal runs, and the best few of them on all proposal runs."""
    block, runs = context.source.block, context.runs["cut"]
    counters = [] if cells is None else [CellCounter(cells)]
    ranking_runs = min(runs, max(RANKING_RUNS // block, 1) * block)
    pairs = context.count("cut", [*counters, *scores], ranking_runs)
    if ranking_runs < runs:
        cell_pairs, score_pairs = pairs[: len(counters)], pairs[len(counters) :]
        ranks = [propose_levels(c, context.objective).rank for c in _as_candidates(scores, score_pairs, ranking_runs)]
        finalists = sorted(np.argsort(ranks, kind="stable")[-MAX_FINALISTS:].tolist())
        scores = [scores[i] for i in finalists]
        counted_blocks = {(side, b) for side in (0, 1) for b in range(ranking_runs // block)}
        further = context.count("cut", [*counters, *scores], runs, counted_blocks)
        early = [*cell_pairs, *(score_pairs[i] for i in finalists)]
        pairs = merge_results([*counters, *scores], early, further)
    cell_counts = SelectionCounts(*pairs[0], runs) if counters else None
    return CountedCandidates(cell_counts, _as_candidates(scores, pairs[len(counters) :], runs))


def _as_candidates(scores: list[BinnedScore], pairs: list[tuple[Any, Any]], runs: int) -> list[Candidate]:
    return [Candidate(score, PairedHistogram.of(*pair, runs)) for score, pair in zip(scores, pairs, strict=True)]


def _decide(context: SelectionContext, proposals: list[Proposal]) -> JudgedProposal:
    """Return the best proposal. The decision runs that judge the proposals were not used to propose them."""
    partitions = list({id(p.event.partition): p.event.partition for p in proposals}.values())
    pairs = context.count("decide", [CellCounter(partition) for partition in partitions])
    counts_of = {id(partition): pair for partition, pair in zip(partitions, pairs, strict=True)}
    runs = context.runs["cut"] + context.runs["decide"]
    judged = [
        judge(proposal, SelectionCounts(*counts_of[id(proposal.event.partition)], runs), context.objective)
        for proposal in proposals
    ]
    return prefer_simpler(judged)
