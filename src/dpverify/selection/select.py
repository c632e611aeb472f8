"""Selection of the event that is tested (paper, Algorithm 4), from selection runs only.

Half of the selection runs train the candidates. A quarter proposes events, rare and frequent ones, for each candidate.
The last quarter decides between the proposed events. The runs that decide did not propose, so the estimate that decides
is not biased by the maximisation over thousands of thresholds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.events.event import SelectedEvents
from dpverify.events.partition import FIRST_CELL, Partition
from dpverify.events.scores import Levels, Score, evaluate_scores, summarise
from dpverify.sampling.count import CellCounter, Counts, counts_from_table, occupied_codes
from dpverify.selection.learn import train_candidates, tree_partition
from dpverify.selection.objective import TUNING, SelectionContext, merge_results
from dpverify.selection.portfolio import aim_options, choose_aims, choose_portfolio
from dpverify.selection.proposals import (
    BinnedScore,
    BinnedScores,
    Candidate,
    JudgedProposal,
    PairedHistogram,
    Proposal,
    ScoreHistogram,
    SelectionCounts,
    bounding_levels,
    fine_edges,
    judge,
    level_event,
    merge_levels,
    midpoints,
    prefer_simpler,
    propose_all_levels,
    propose_cells,
    propose_levels,
    propose_unions,
    refine_threshold,
    score_values,
    select_paper_cell,
)


def select_cell(context: SelectionContext, partition: Partition, rng: np.random.Generator) -> SelectedEvents:
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
    thinning = None if settings.test == "averaged" else rng
    event = select_paper_cell(partition, counts, codes, settings.selection_epsilon, thinning)
    return SelectedEvents((event,), (1.0,), partition, eta=float(first.of(codes).max()) / counts.runs)


def select_events(context: SelectionContext, given: Partition | None) -> SelectedEvents:
    """Return the events with the largest expected lower bounds among unions of cells and level sets of scores.

    Parameters
    ----------
    context : SelectionContext
        The selection.
    given : Partition or None
        The partition that the settings name. Without one, level sets of the selected score are bounded from above.
    """
    samples, known = context.draw_training_runs()
    training = summarise(list(map(context.region.fill, samples)), context.source.is_coupled)
    if context.settings.partition == "tree":
        given = tree_partition(context, training)
    trained = train_candidates(context, given, training, samples, known)
    scores = _place_edges(trained.scores, samples)
    cells = given if trained.partition_counts is not None else None
    counted = _count_candidates(context, cells, scores)

    proposals = _propose(context, counted.candidates)
    if cells is not None and counted.cells is not None and trained.partition_counts is not None:
        if context.settings.events == "cell":
            proposals += propose_cells(cells, counted.cells, context.objective)
        else:
            proposals += propose_unions(cells, trained.partition_counts, counted.cells, context.objective)
    judged, histograms = _judge(context, proposals)
    winner = prefer_simpler(judged)
    if context.max_events > 1:
        decided = histograms.get(id(winner.proposal.candidate))
        if decided is not None and winner.proposal.equivalent is not None:
            winner = refine_threshold(winner, decided, context.objective)
            judged.append(winner)
    members = choose_portfolio(winner, judged, context.objective, context.max_events)
    expected = max(winner.bound, members[0].judged.bound)
    aims = None
    if context.max_events > 1 and not callable(context.settings.events) and counted.candidates:
        options = [aim_options(one.with_runs(histograms[id(one)]), context.objective) for one in counted.candidates]
        aims = choose_aims(options, members[0].judged, context.objective)
    events, shares = zip(*((one.judged.proposal.event, one.share) for one in members), strict=True)
    rival = None if context.log_ratio is None else _find_rival(judged, context.log_ratio, samples)
    if given is not None:
        return SelectedEvents(events, shares, given, expected, aims=aims, rival=rival)
    levels = bounding_levels(winner, context.objective, context.settings.resolution)
    # The first event is a union of the bounded level sets if it belongs to the same score.
    main = members[0].judged.proposal
    if members[0].judged is winner:
        events = (level_event(levels, main.threshold, main.event.direction, main.above), *events[1:])
    return SelectedEvents(events, shares, levels, expected, aims=aims, rival=rival)


def _find_rival(judged: list[JudgedProposal], log_ratio: Score, samples: list[np.ndarray]) -> Levels | None:
    """Return level sets of the best score besides the log-ratio of a stated density."""
    others = [one for one in judged if one.proposal.candidate and one.proposal.candidate.binned.score is not log_ratio]
    if not others:
        return None
    best = max(others, key=lambda one: one.bound).proposal.candidate
    assert best is not None
    edges = midpoints(np.sort(np.concatenate([score_values(best.binned.score, x) for x in samples])))
    ranks = (np.array(TUNING.rival_shares) * edges.size).astype(int)
    return Levels(best.binned.score, np.unique(edges[ranks])) if edges.size else None


def _propose(context: SelectionContext, candidates: list[Candidate]) -> list[Proposal]:
    """Return the proposed level sets of all scores."""
    objective = context.objective
    if context.max_events == 1:
        proposed = [propose_levels(one, objective) for one in candidates]
    else:
        proposed = [propose_all_levels(one, objective) for one in candidates]
    return [proposal for one in proposed for proposal in one.proposals]


def _place_edges(scores: list[Score], samples: list[np.ndarray]) -> list[BinnedScore]:
    """Return the scores with fine edges between their values for training runs."""
    thinned = np.concatenate([x[: TUNING.edge_runs] for x in samples])
    values = evaluate_scores(scores, thinned.reshape(len(thinned), -1), in_threads=True)
    return [BinnedScore(score, fine_edges(own)) for score, own in zip(scores, values, strict=True)]


class CountedCandidates(NamedTuple):
    """Counts of proposal runs: of the cells of a given partition, and of each score."""

    cells: SelectionCounts | None
    candidates: list[Candidate]


def _count_candidates(
    context: SelectionContext, cells: Partition | None, scores: list[BinnedScore]
) -> CountedCandidates:
    """Count all scores on the first proposal runs, and the best few of them on all proposal runs.

    With common random numbers all scores are counted on all proposal runs.
    """
    block, runs = context.source.block, context.runs["propose"]
    counters = [] if cells is None else [CellCounter(cells)]
    # Few runs say little about the rare events that common random numbers make visible.
    ranking_runs = runs if context.source.is_coupled else min(runs, max(TUNING.ranking_runs // block, 1) * block)
    statistics = [*counters, BinnedScores(tuple(scores))]
    pairs = context.count("propose", statistics, ranking_runs)
    if ranking_runs < runs:
        early = _as_candidates(scores, pairs[-1], ranking_runs)
        ranks = [propose_levels(candidate, context.objective).rank for candidate in early]
        finalists = sorted(np.argsort(ranks, kind="stable")[-TUNING.max_finalists :].tolist())
        scores = [scores[i] for i in finalists]
        first, second = pairs[-1]
        pairs[-1] = tuple(first[i] for i in finalists), tuple(second[i] for i in finalists)
        counted_blocks = {(side, b) for side in (0, 1) for b in range(ranking_runs // block)}
        statistics = [*counters, BinnedScores(tuple(scores))]
        pairs = merge_results(statistics, pairs, context.count("propose", statistics, runs, counted_blocks))
    cell_counts = SelectionCounts(*pairs[0], runs) if counters else None
    return CountedCandidates(cell_counts, _as_candidates(scores, pairs[-1], runs))


def _as_candidates(
    scores: list[BinnedScore], pair: tuple[tuple[ScoreHistogram, ...], tuple[ScoreHistogram, ...]], runs: int
) -> list[Candidate]:
    """Return the scores with their histograms for both datasets."""
    histograms = zip(*pair, strict=True)
    return [Candidate(score, PairedHistogram.of(*two, runs)) for score, two in zip(scores, histograms, strict=True)]


class DecidedProposals(NamedTuple):
    """The judged proposals, and the histograms of the decision runs for the candidate with each identity."""

    judged: list[JudgedProposal]
    histograms: dict[int, PairedHistogram]


def _judge(context: SelectionContext, proposals: list[Proposal]) -> DecidedProposals:
    """Return the judged proposals. The decision runs that judge the proposals were not used to propose them."""
    partitions = {id(p.event.partition): (p.event.partition, p.candidate) for p in proposals}.values()
    others = [partition for partition, _ in partitions if partition.levels is None]
    levels = [(own.levels, candidate) for own, candidate in partitions if own.levels is not None]
    # The fine edges are counted too, so that a threshold can be chosen again from the proposal and decision runs.
    joined = [own if one is None else own.join(Levels(own.score, one.binned.edges)) for own, one in levels]
    binned = BinnedScores(tuple(BinnedScore(*one) for one in joined))
    pairs = context.count("decide", [binned, *(CellCounter(partition) for partition in others)])
    runs, proposal_runs = context.runs["decide"], context.runs["propose"]
    counts_of = {
        id(partition): SelectionCounts(*pair, runs, proposal_runs)
        for partition, pair in zip(others, pairs[1:], strict=True)
    }
    histograms = {}
    for (own, candidate), whole, *pair in zip(levels, joined, *pairs[0], strict=True):
        first, second = (counts_from_table(merge_levels(one.table, own.edges, whole.edges)) for one in pair)
        counts_of[id(own)] = SelectionCounts(first, second, runs, proposal_runs)
        if candidate is not None:
            edges = candidate.binned.edges
            fine = [one._replace(table=merge_levels(one.table, edges, whole.edges)) for one in pair]
            histograms[id(candidate)] = PairedHistogram.of(fine[0], fine[1], runs)
    judged = [judge(proposal, counts_of[id(proposal.event.partition)], context.objective) for proposal in proposals]
    return DecidedProposals(judged, histograms)
