"""Proposed level sets of a score: which thresholds compete, in which tail and in which direction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dpverify.events.scores import Levels
from dpverify.selection.histograms import PairedHistogram, ThresholdCounts, threshold_counts
from dpverify.selection.objective import PRIOR_COUNT, SelectionObjective, approximate_bound, cautious_lower_bound
from dpverify.selection.proposals import (
    PROPOSAL_PENALTIES,
    Candidate,
    EquivalentCounts,
    JudgedProposal,
    Proposal,
    level_event,
)
from dpverify.selection.tails import TailModel, fit_tails, smooth_tails

RANKING_PENALTY = 1.5  # standard errors; ranks the scores
MIN_RARE_COUNT = 2  # proposal runs of the exceeding data set in a proposed rare event
MAX_RARE_SHARE = 0.1  # of the runs of the exceeding data set
TAIL_VALUES = 64  # extreme values to which an exponential tail is fitted
MIN_PREDICTED_COUNT = 0.02  # proposal runs; a smaller prediction is not believed
MAX_EXPONENT = 700.0
LEAK_RATIO = 10.0  # between the probabilities that a line and the other data set's own tail predict
MAX_RARE_EVENTS = 6  # rare events that are proposed per score, tail and direction


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
    """Return the probabilities of {score > t} or {score <= t} under one data set, from an exponential tail.

    The tail begins at one of the kept extreme values and has their mean excess. It separates an event beyond all likely
    outputs from one that has no runs by chance. Before the tail begins the result is the probability at its beginning.
    """
    extremes = histogram.extremes[side]
    values = extremes.high if above else -extremes.low[::-1]
    start = values[-min(TAIL_VALUES, values.size)]
    tail = values[values >= start]
    excess = np.maximum((thresholds if above else -thresholds) - start, 0.0)
    mean = max(float((tail - start).mean()), np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        exponent = np.minimum(excess / mean, MAX_EXPONENT)
    return np.maximum(tail.size * np.exp(-exponent), MIN_PREDICTED_COUNT) / histogram.runs


def propose_levels(candidate: Candidate, objective: SelectionObjective) -> ScoreProposals:
    """Return the best events {score > t} for the first and {score <= t} for the second data set, for every penalty.

    All events of a score share one partition, whose edges are the chosen thresholds. The direction is 0 for
    {score > t} and 1 for {score <= t}.
    """
    counted = threshold_counts(candidate.histogram, candidate.binned.edges)
    return _collect(candidate, *_solid_events(candidate, counted, objective))


def propose_all_levels(candidate: Candidate, objective: SelectionObjective) -> ScoreProposals:
    """Return the proposals of `propose_levels`, rare events in both tails and both directions, and modelled events.

    A score can have the wrong sign in a tail that few training runs reached, so that {score > t} is proposed for the
    second data set too, and {score <= t} for the first. For each doubling of the count, the event with the largest
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
            is_rare = (counts[direction] >= MIN_RARE_COUNT) & (counts[direction] <= MAX_RARE_SHARE * runs)
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
                # A leak lies beyond all likely outputs of the other data set, where a line says nothing.
                is_leak = known is not None and level.predicted * LEAK_RATIO < known.other / known.runs
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


def best_modelled_event(
    candidates: Iterable[tuple[Candidate, PairedHistogram]], objective: SelectionObjective
) -> JudgedProposal | None:
    """Return the level set of any score that a smooth model of all proposal and decision runs prefers.

    The data sets have common random numbers. None if no model expects a bound above 0.

    Parameters
    ----------
    candidates : iterable of (Candidate, PairedHistogram)
        The scores, each with the histogram of the decision runs.
    objective : SelectionObjective
        The planned test.
    """
    events = [
        _modelled_event(candidate, decided, model, objective)
        for candidate, decided in candidates
        for model in smooth_tails(candidate.with_runs(decided))
    ]
    return max((event for event in events if event is not None), key=lambda one: one.bound, default=None)


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
    bounds = cautious_lower_bound(exceeding, other, runs, objective, PROPOSAL_PENALTIES, n_parameters)
    chosen: dict[LevelKey, ChosenLevel] = {}
    for best in np.argmax(bounds, axis=-1):
        for direction, i in enumerate(best.tolist()):
            pair = int(exceeding[direction, i]), int(other[direction, i])
            key = LevelKey(float(thresholds[i]), direction == 0, direction)
            chosen[key] = ChosenLevel(pair if direction == 0 else (pair[1], pair[0]))
    return chosen, float(bounds[PROPOSAL_PENALTIES.index(RANKING_PENALTY)].max())


def _best_per_doubling(counts: np.ndarray, bounds: np.ndarray) -> list[int]:
    """Return the index of the largest bound for each doubling of the count; the largest few of them above 0."""
    groups = np.frexp(np.maximum(counts, 1))[1]
    order = np.lexsort((counts, -bounds, groups))
    _, firsts = np.unique(groups[order], return_index=True)
    best = order[firsts]
    best = best[bounds[best] > 0]
    return best[np.argsort(-bounds[best], kind="stable")][:MAX_RARE_EVENTS].tolist()


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
