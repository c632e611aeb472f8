"""Models of the tails of a score: events that are rarer than the selection runs can count.

The best event is often so rare under one data set that the proposal runs contain few examples of it or none. The
log-ratio of the two densities along a good score is nearly linear in the tail. A linear fit, together with the runs of
the data set under which the event is frequent, predicts the small probability. The fit uses far more runs than the
event contains, so that its prediction is worth more than the counts of the event. The decision runs can contradict it,
and the test does not use it. With common random numbers a smooth curve is fitted besides the line
(`smooth_tails`), as in the search for the worst pair.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from dpverify.selection.histograms import EXTREMES_KEPT, threshold_counts
from dpverify.selection.objective import SelectionObjective, approximate_bound
from dpverify.selection.proposals import MISFIT_P_VALUE, Candidate, EquivalentCounts
from dpverify.selection.ratio_curve import MAX_SHARE, fit_nested_curve

MIN_EVENT_RUNS = 8  # proposal runs of the exceeding data set in a modelled event
MIN_TAIL_RUNS = 50  # proposal runs of the other data set to which the log-ratio is fitted
# The other data set's runs in the tails that are compared. The largest one has this share of all runs, if it is more,
# and never more than a quarter of them: a line through the middle of a distribution says little about its tail.
MAX_TAIL_RUNS, MAX_TAIL_SHARE = (400, 600, 150), 0.05
MISFIT_GAIN = 3.0  # nats; a line that is fitted to a smaller tail is used if it gains more there
MIN_FITTED_BINS = 4
CHECKED_COUNT = 10  # of the other data set: the tail in which the prediction is checked
MODEL_ERROR = 0.1  # standard error of the log-ratio because no model is exact
MAX_VARIANCE = 0.25  # of the log-ratio; the counts of an event are worth more than a model with a larger one
MIN_SLOPE_ERRORS = 3.0  # standard errors of the slope; a log-ratio that does not rise needs no model
NEWTON_STEPS, MAX_STEP = 6, 3.0
RIDGE = 0.1  # runs
THRESHOLD_GROWTH = 1.25  # of the runs from one threshold of a smooth tail to the next


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


class TailModel(NamedTuple):
    """What a modelled log-ratio says about the events {score > edge}; for direction 1, about {score <= edge}.

    Attributes
    ----------
    direction : int
        Which data set is expected to exceed.
    edges : ndarray
        Thresholds, from rare events to frequent ones.
    counts : ndarray of shape (2, n)
        The proposal runs of the exceeding and of the other data set in each event.
    predicted : ndarray
        The predicted number of proposal runs of the other data set.
    variance : ndarray
        The variance of the log-ratio of the two probabilities.
    runs : int
        The proposal runs per data set.
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
        return np.where((self.counts[0] < MIN_EVENT_RUNS) | (self.predicted <= 0), 0.0, bounds)

    def best(self, objective: SelectionObjective) -> int | None:
        """Return the event with the largest cautious bound; None if no bound is above 0."""
        bounds = self.cautious_bounds(objective)
        index = int(np.argmax(bounds))
        return index if bounds[index] > 0 else None

    def equivalent_counts(self, threshold: float, exceeding: int) -> EquivalentCounts | None:
        """Return counts whose log-ratio has the same expectation and variance as the model has for an event.

        `exceeding` is the event's number of proposal runs of the exceeding data set. The result is None for an event
        outside the tail, if the model does not know more than the counts, or if the ratio does not exceed 1.
        """
        order = 1 if self.direction == 0 else -1
        index = int(np.searchsorted(-order * self.edges, -order * threshold))
        if index >= len(self.edges) or exceeding == 0 or not self.variance[index] < MAX_VARIANCE:
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


def smooth_tails(candidate: Candidate) -> list[TailModel]:
    """Return the smooth models of the upper tail of the score and of the lower one, where there are enough runs."""
    models = [smooth_tail(candidate, direction) for direction in (0, 1)]
    return [model for model in models if model is not None]


def smooth_tail(candidate: Candidate, direction: int) -> TailModel | None:
    """Return a model of one tail whose log-ratio is a smooth curve; None if the tail has too few runs.

    The variances are those of independent runs. With common random numbers they are smaller for some mechanisms. Every
    threshold of the model has at least a quarter more runs than the one before.
    """
    runs = candidate.histogram.runs
    thresholds, *above = threshold_counts(candidate.histogram, candidate.binned.edges)
    order = np.argsort(-thresholds if direction == 0 else thresholds, kind="stable")
    edges, counts = thresholds[order], np.stack(above)[:, order]
    if direction == 1:
        counts = runs - counts[::-1]
    total = counts.sum(axis=0)
    wanted = MIN_EVENT_RUNS * THRESHOLD_GROWTH ** np.arange(np.log(runs / MIN_EVENT_RUNS) / np.log(THRESHOLD_GROWTH))
    used = np.unique(np.searchsorted(total, wanted))
    used = used[used < total.size]
    used = used[total[used] <= 2 * MAX_SHARE * runs]
    if not used.size:
        return None
    counts, edges = counts[:, used], edges[used]
    curve = fit_nested_curve(counts, runs)
    return TailModel(direction, edges, counts, counts[0] * np.exp(-curve.mean), curve.deviation**2, runs)


def _upper_tail(candidate: Candidate, direction: int) -> Tail | None:
    """Return the upper tail of the score; for direction 1 that of the negative score, with the data sets exchanged."""
    edges, histogram = candidate.binned.edges, candidate.histogram
    tables, extremes = histogram.table, [e.high for e in histogram.extremes]
    if direction == 1:
        edges, tables = -edges[::-1], (tables[1][::-1], tables[0][::-1])
        extremes = [-e.low[::-1] for e in histogram.extremes][::-1]
    if edges.size < MIN_FITTED_BINS:
        return None
    # Single values are known above this one. Where it lies above the last edge, it is one more edge.
    known = max(values.min() if values.size >= EXTREMES_KEPT else -np.inf for values in extremes)
    above = [np.sort(values[values > max(known, edges[-1])])[::-1] for values in extremes]
    if known > edges[-1]:
        edges = np.append(edges, known)
        tables = [np.append(t[:-1], [t[-1] - one.size, one.size]) for t, one in zip(tables, above, strict=True)]
    top = above[0]
    top_edges = (np.append(top[1:], edges[-1])[: top.size] + top) / 2
    other = above[1].size - np.searchsorted(above[1][::-1], top_edges, side="right")
    in_bins = tables[1][-1] + np.cumsum(tables[1][1:-1][::-1])
    return Tail(
        np.concatenate([top, (edges[1:] + edges[:-1])[::-1] / 2]),
        np.concatenate([np.ones(top.size), tables[0][1:-1][::-1]]),
        np.concatenate([top_edges, edges[:-1][::-1]]),
        np.concatenate([other, in_bins]).astype(np.int64),
    )


def _fit_tail(tail: Tail, runs: int) -> TailModel | None:
    """Return the model of the largest tail along which the log-ratio is linear; None without such a tail."""
    line, size = None, 0
    for most in (min(max(MAX_TAIL_RUNS[0], MAX_TAIL_SHARE * runs), runs / 4), *MAX_TAIL_RUNS[1:]):
        inner = int(np.searchsorted(tail.other, most, side="right"))
        is_large = inner >= MIN_FITTED_BINS and tail.other[inner - 1] >= MIN_TAIL_RUNS
        if not is_large or (line is not None and inner >= size):
            continue
        c1, c2 = tail.exceeding[:inner], np.diff(tail.other[:inner], prepend=0)
        own = fit_log_ratio(tail.values[:inner], c1, c2)
        if line is None or own.log_likelihood(c1, c2) - line.log_likelihood(c1, c2) > MISFIT_GAIN:
            line, size = own, inner
    if line is None or line.slope <= MIN_SLOPE_ERRORS * np.sqrt(line.covariance[2]):
        return None
    c1, other = tail.exceeding[:size], tail.other[:size]
    # The runs of the exceeding data set, weighted by the ratio, predict the runs of the other one.
    weights = c1 * np.exp(-line.ratios)
    predicted = np.maximum(np.cumsum(weights), np.finfo(float).tiny)
    checked = min(int(np.searchsorted(other, CHECKED_COUNT)), size - 1)
    if scipy.special.pdtrc(other[checked] - 1, predicted[checked]) < MISFIT_P_VALUE:
        return None
    centre = np.cumsum(weights * line.x) / predicted  # the derivative by the slope
    intercept, covariance, slope = line.covariance
    variance = intercept + 2 * covariance * centre + slope * centre**2 + MODEL_ERROR**2
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
        How many runs of each data set have each value.
    """
    both = c1 + c2
    total = both.sum()
    centred = values - both @ values / total
    x = centred / max(np.sqrt(both @ centred**2 / total), np.finfo(float).tiny)
    start = np.log((c1.sum() + 1.0) / (c2.sum() + 1.0))
    a, b, inverse = start, 0.0, (1.0, 0.0, 1.0)
    for _ in range(NEWTON_STEPS):
        share = scipy.special.expit(a + b * x)
        missing, weight = c1 - both * share, both * share * (1 - share)
        # The ridge keeps the estimate finite where the data sets do not overlap.
        g0, g1 = missing.sum() - RIDGE * (a - start), missing @ x - RIDGE * b
        h00, h01, h11 = weight.sum() + RIDGE, weight @ x, (weight * x) @ x + RIDGE
        determinant = h00 * h11 - h01**2
        inverse = h11 / determinant, -h01 / determinant, h00 / determinant
        a += min(max(inverse[0] * g0 + inverse[1] * g1, -MAX_STEP), MAX_STEP)
        b += min(max(inverse[1] * g0 + inverse[2] * g1, -MAX_STEP), MAX_STEP)
    return FittedLine(x, a, b, inverse)
