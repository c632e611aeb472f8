"""The threshold of a score, from a smooth model of the two tails of its distribution.

The best event of a prefix is often so rare under one data set that the selection runs contain few examples of it. The
log-ratio of the two densities along a good score is nearly linear in the score. A linear fit, together with the many
runs of the data set under which the event is frequent, predicts the small probability. The model only chooses the
threshold; the test runs that follow do not use it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from dpverify.events.scores import Levels
from dpverify.selection.objective import SelectionObjective
from dpverify.selection.proposals import Candidate, Proposal, level_event

MIN_EVENT_RUNS = 30  # runs of the exceeding data set in a proposed event
MIN_FITTED_BINS = 4
MISFIT_P_VALUE = 0.02  # an event that the other data set reaches much more often than the model predicts is refused


class TailModel(NamedTuple):
    """The predicted probabilities of {score > t} for each edge t, under both data sets."""

    first: np.ndarray
    second: np.ndarray


def refine_threshold(proposal: Proposal, candidate: Candidate, objective: SelectionObjective) -> Proposal:
    """Return the event of the same score and direction with the largest expected lower bound under the tail model.

    Parameters
    ----------
    proposal : Proposal
        The selected event. It is returned if the model does not fit, or has no better threshold.
    candidate : Candidate
        The score with the histograms of all proposal and decision runs.
    objective : SelectionObjective
        The planned test.
    """
    direction, edges = proposal.event.direction, candidate.binned.edges
    model = _predict(candidate, direction)
    if model is None:
        return proposal
    runs = candidate.histogram.runs
    above = [runs - np.cumsum(table)[:-1] for table in candidate.histogram.table]
    if direction == 0:
        exceeding, other, counts = model.first, model.second, above
    else:
        exceeding, other, counts = 1 - model.second, 1 - model.first, [runs - above[1], runs - above[0]]
    excess = exceeding - objective.delta
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (exceeding * (1 - exceeding) / excess**2 + (1 - other) / other) / objective.planned
        bound = np.log(excess / other) + scipy.special.ndtri(objective.alpha) * np.sqrt(variance)
    fits = scipy.special.pdtrc(counts[1] - 1, np.maximum(other * runs, 1e-300)) > MISFIT_P_VALUE
    allowed = (counts[0] >= MIN_EVENT_RUNS) & (excess > 0) & (other > 0) & (fits | (counts[1] == 0))
    bound = np.where(allowed & np.isfinite(bound), bound, -np.inf)
    best, current = int(np.argmax(bound)), int(np.searchsorted(edges, proposal.threshold))
    if not bound[best] > bound[min(current, edges.size - 1)]:
        return proposal
    return _event_at(proposal, candidate, best)


def median_event(proposal: Proposal) -> Proposal:
    """Return the event of the same score with about half of the runs, for a prefix that proves nothing.

    A rare event would be a cell of its own, and would make the upper bound of the prefix too large. The threshold is
    the edge that `bounding_levels` takes for one half. Another edge near it would leave a cell with hardly any run
    between the two, and this cell alone would make the upper bound large.
    """
    candidate = proposal.candidate
    assert candidate is not None
    pooled = candidate.histogram.table[0] + candidate.histogram.table[1]
    share = np.cumsum(pooled)[:-1] / (2 * candidate.histogram.runs)
    return _event_at(proposal, candidate, min(int(np.searchsorted(share, 0.5)), candidate.binned.edges.size - 1))


def _event_at(proposal: Proposal, candidate: Candidate, index: int) -> Proposal:
    """Return the event whose threshold is one of the edges of the score."""
    threshold = float(candidate.binned.edges[index])
    event = level_event(Levels(candidate.binned.score, np.array([threshold])), threshold, proposal.event.direction)
    return proposal._replace(event=event, threshold=threshold)


def _predict(candidate: Candidate, direction: int) -> TailModel | None:
    """Fit the log-ratio of the densities, and predict the smaller tail from the runs of the other data set."""
    edges, (c1, c2) = candidate.binned.edges, candidate.histogram.table
    if edges.size < MIN_FITTED_BINS:
        return None
    runs = candidate.histogram.runs
    # The outermost bins are not bounded; their inner edge is on the safe side.
    scores = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    weight = (c1 + 0.5) * (c2 + 0.5) / (c1 + c2 + 1.0)
    ratio = np.log((c1 + 0.5) / (c2 + 0.5))
    centre = np.average(scores, weights=weight)
    spread = np.average((scores - centre) ** 2, weights=weight)
    if not spread > 0:
        return None
    slope = np.average((scores - centre) * ratio, weights=weight) / spread
    if slope <= 0:
        return None
    fitted = np.average(ratio, weights=weight) + slope * (scores - centre)
    with np.errstate(over="ignore"):
        first = c1 / runs if direction == 0 else c2 * np.exp(fitted) / runs
        second = c2 / runs if direction == 1 else c1 * np.exp(-fitted) / runs
    upper_tails = [np.cumsum(mass[::-1])[::-1][1:] for mass in (first, second)]
    lower_tails = [np.cumsum(mass)[:-1] for mass in (first, second)]
    if direction == 0:
        return TailModel(np.minimum(upper_tails[0], 1.0), np.minimum(upper_tails[1], 1.0))
    return TailModel(1 - np.minimum(lower_tails[0], 1.0), 1 - np.minimum(lower_tails[1], 1.0))
