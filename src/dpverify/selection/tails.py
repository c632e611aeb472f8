"""Thresholds that are rarer than the selection runs can count, from a model of the tail of a score.

The best event is often so rare under one data set that the proposal runs contain few examples of it or none. The
log-ratio of the two densities along a good score is nearly linear in the tail. A linear fit, together with the many
runs of the data set under which the event is frequent, predicts the small probability. The model only proposes events;
the decision runs judge them, and the test does not use it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from dpverify.selection.histograms import EXTREMES_KEPT
from dpverify.selection.level_proposals import LevelKey, PredictedEvent
from dpverify.selection.objective import SelectionObjective, approximate_bound
from dpverify.selection.proposals import Candidate

MIN_EVENT_RUNS = 8  # proposal runs of the exceeding data set in a predicted event
MIN_TAIL_RUNS = 50  # proposal runs of the other data set to which the log-ratio is fitted
MAX_TAIL_RUNS, MAX_TAIL_SHARE = 400, 0.05  # the tail holds the larger of this number and this share of them
MIN_FITTED_BINS = 4
MISFIT_P_VALUE = 0.02  # a model that predicts too few runs in the tail is not used
CHECKED_COUNT = 10  # of the other data set: the tail in which the prediction is checked


class Tail(NamedTuple):
    """The upper tail of a score, from large values to small ones.

    Attributes
    ----------
    values : ndarray
        Representative values of the score: midpoints of bins, and single values where these are known.
    exceeding : ndarray
        How many runs of the data set that is expected to exceed have each value.
    edges : ndarray
        The lower end of each value's bin: a possible threshold.
    other : ndarray
        How many runs of the other data set lie above each edge.
    """

    values: np.ndarray
    exceeding: np.ndarray
    edges: np.ndarray
    other: np.ndarray


def predict_events(candidate: Candidate, objective: SelectionObjective) -> list[PredictedEvent]:
    """Return for each direction the event with the largest expected lower bound under the model, if it fits."""
    predicted = []
    for direction in (0, 1):
        tail = _upper_tail(candidate, direction)
        best = None if tail is None else _best_threshold(tail, candidate.histogram.runs, objective)
        if best is None:
            continue
        index, exceeding, probability = best
        threshold, other = float(tail.edges[index]), int(tail.other[index])  # type: ignore[union-attr]
        counts = (exceeding, other) if direction == 0 else (other, exceeding)
        key = LevelKey(threshold if direction == 0 else -threshold, direction == 0, direction)
        predicted.append(PredictedEvent(key, counts, probability))
    return predicted


def _upper_tail(candidate: Candidate, direction: int) -> Tail | None:
    """Return the upper tail of the score; for direction 1 that of the negative score, with the data sets exchanged."""
    edges, histogram = candidate.binned.edges, candidate.histogram
    tables, extremes = histogram.table, [e.high for e in histogram.extremes]
    if direction == 1:
        edges, tables = -edges[::-1], (tables[1][::-1], tables[0][::-1])
        extremes = [-e.low[::-1] for e in histogram.extremes][::-1]
    if edges.size < MIN_FITTED_BINS:
        return None
    # Above the last edge, single values are known if there are not too many.
    above = [np.sort(values[values > edges[-1]])[::-1] for values in extremes]
    if any(values.size >= EXTREMES_KEPT for values in above):
        above = [np.full(int(table[-1]), edges[-1]) for table in tables]
    values = np.concatenate([above[0], (edges[1:] + edges[:-1])[::-1] / 2])
    lower = np.concatenate([np.append(above[0][1:], edges[-1])[: above[0].size], edges[:-1][::-1]])
    lower[: above[0].size] = (lower[: above[0].size] + above[0]) / 2  # between two single values
    exceeding = np.concatenate([np.ones(above[0].size), tables[0][1:-1][::-1]])
    in_bins = tables[1][-1] + np.cumsum(tables[1][1:-1][::-1])
    single = above[1].size - np.searchsorted(above[1][::-1], lower[: above[0].size], side="right")
    return Tail(values, exceeding, lower, np.concatenate([single, in_bins]).astype(np.int64))


def _best_threshold(tail: Tail, runs: int, objective: SelectionObjective) -> tuple[int, int, float] | None:
    """Return the index of the best edge, the count of the exceeding data set, and the predicted probability."""
    most = max(MAX_TAIL_RUNS, MAX_TAIL_SHARE * runs)
    size = int(np.searchsorted(tail.other, most, side="right"))
    if size < MIN_FITTED_BINS or tail.other[size - 1] < MIN_TAIL_RUNS:
        return None
    values, c1 = tail.values[:size], tail.exceeding[:size]
    c2 = np.diff(tail.other[:size], prepend=0)
    weight = (c1 + 0.5) * (c2 + 0.5) / (c1 + c2 + 1.0)
    ratio = np.log((c1 + 0.5) / (c2 + 0.5))
    centre = np.average(values, weights=weight)
    spread = np.average((values - centre) ** 2, weights=weight)
    slope = np.average((values - centre) * ratio, weights=weight) / spread if spread > 0 else 0.0
    if not slope > 0:
        return None
    fitted = np.average(ratio, weights=weight) + slope * (values - centre)
    exceeding = np.cumsum(c1)
    with np.errstate(over="ignore"):
        predicted = np.cumsum(c1 * np.exp(-fitted)) / runs
    checked = int(np.searchsorted(tail.other[:size], CHECKED_COUNT))
    if checked < size:
        expected, found = predicted[checked] * runs, float(tail.other[checked])
        if scipy.special.pdtrc(found - 1, max(expected, 1e-300)) < MISFIT_P_VALUE:
            return None
    bounds = approximate_bound(exceeding / runs, np.minimum(predicted, 1.0), objective)
    bounds[(exceeding < MIN_EVENT_RUNS) | (predicted <= 0)] = 0.0
    best = int(np.argmax(bounds))
    if bounds[best] <= 0:
        return None
    return best, int(exceeding[best]), float(predicted[best])
