"""How well a pair of data sets can be distinguished, from few runs: what a search compares pairs by.

Both data sets are run with the same random numbers. A run of the first and the run of the second data set with the same
number then often have nearly the same output, and fall into an event together. The two counts of the event have a
large covariance, so that their ratio has a small standard error. The independent runs of a test would need many times
as many runs to estimate it equally well. Rare events therefore become visible early (docs/method.md, section 5.7).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.events.scores import Score, summarise
from dpverify.events.scores.cell_score import fit_cell_score
from dpverify.mechanisms.protocol import read_only_view
from dpverify.sampling.context import RunContext
from dpverify.sampling.counts import occupied_codes
from dpverify.sampling.pilot import make_region
from dpverify.sampling.stages import collect_samples
from dpverify.selection.candidates import train_candidates
from dpverify.selection.context import QUICK_SEARCH, SelectionContext, named_partition
from dpverify.selection.histograms import score_values
from dpverify.selection.objective import SelectionObjective, approximate_bound
from dpverify.stats.claims import Claim

DataPair = tuple[object, object]

STAGES = ("train", "cut")  # half of the runs each; test runs belong to another stage
# Subtracted, so that the largest of many estimates is not a lucky one: a constant number of standard errors, and a
# number that is divided by the square root of the runs in the event. There are more rare events to choose from.
LOWER_STANDARD_ERRORS, RARE_STANDARD_ERRORS = 0.75, 3.0
UPPER_STANDARD_ERRORS = 1.0  # added, for what an event may still turn out to be
MIN_COUNT = 10  # runs of the exceeding data set in an event that competes
THRESHOLDS_PER_DOUBLING = 5
EQUAL_SHARES = 128  # thresholds in the middle of a score
REGION_RUNS = 512  # runs per data set that enclose the likely outputs
MAX_NUMBERS = 1 << 25  # of one half of the runs of a data set: 256 MB


class SearchAim(NamedTuple):
    """What a search maximises: the lower bound on epsilon at this delta, or the distance from a claimed curve."""

    delta: float
    claim: Claim | None


class PairValue(NamedTuple):
    """The lower bound that the planned test is expected to give for a pair.

    Attributes
    ----------
    lower : float
        The largest expected bound of an event, less a standard error. Below 0 if no bound is expected; the pair with
        the larger total variation then has the larger value.
    upper : float
        The largest expected bound of an event, plus a standard error.
    """

    lower: float
    upper: float


class CoupledCounts(NamedTuple):
    """How many runs of the first data set, of the second, and of both together, fall into each of several events."""

    first: np.ndarray
    second: np.ndarray
    both: np.ndarray

    def standard_error(self) -> np.ndarray:
        """Return the standard error of the logarithm of the ratio of the first two counts."""
        c1, c2 = np.maximum(self.first, 0.5), np.maximum(self.second, 0.5)
        return np.sqrt(np.maximum(1 / c1 + 1 / c2 - 2 * self.both / (c1 * c2), 1 / (c1 * c2)))


class LevelCounts(NamedTuple):
    """How many runs of the first data set, of the second, and of both lie above each threshold; and all runs."""

    first: np.ndarray
    second: np.ndarray
    both: np.ndarray
    runs: int


class LearnedScore(NamedTuple):
    """A score with the middle and the spread of its values."""

    score: Score
    middle: float
    spread: float


class PairRuns(NamedTuple):
    """The runs of a pair in two halves, each of them for both data sets, and the context that learns from them."""

    context: SelectionContext
    points: np.ndarray
    halves: list[list[np.ndarray]]


def evaluate_pair(run: RunContext, pair: DataPair, aim: SearchAim, runs: int) -> PairValue:
    """Return how well the planned test can distinguish the data sets of a pair, from `runs` runs of each of them.

    Scores are learned from each half of the runs and counted on the other half. Two scores of the same kind are counted
    together: events with equal numbers of runs are added.
    """
    drawn = _draw_runs(run, pair, aim, runs)
    objective = drawn.context.objective
    learned = []
    for training, held_out in (drawn.halves, drawn.halves[::-1]):
        scores = _learn_scores(drawn.context._replace(recorded=(training[0], training[1])), drawn.points)
        learned.append((_by_kind(scores), held_out))
    (scores, _), (others, _) = learned
    values = []
    for kind in [kind for kind in scores if kind in others] or list(scores):
        counted = [count_levels(scores[kind], samples) for scores, samples in learned if kind in scores]
        values.append(_value_of_counts(add_counts(counted), objective))
    return PairValue(max(value.lower for value in values), max(value.upper for value in values))


def learn_best_score(run: RunContext, pair: DataPair, aim: SearchAim, runs: int) -> LearnedScore:
    """Return the score that distinguishes the data sets of a pair best, from `runs` runs of each of them."""
    drawn = _draw_runs(run, pair, aim, runs)
    training, held_out = drawn.halves
    scores = _learn_scores(drawn.context._replace(recorded=(training[0], training[1])), drawn.points)
    objective = drawn.context.objective
    best = max(scores, key=lambda score: _value_of_counts(count_levels(score, held_out), objective).lower)
    values = np.concatenate([score_values(best, samples) for samples in held_out])
    return LearnedScore(best, float(np.median(values)), max(float(values.std()), np.finfo(float).tiny))


def _draw_runs(run: RunContext, pair: DataPair, aim: SearchAim, runs: int) -> PairRuns:
    """Draw the runs of a pair, with the same random numbers for both data sets."""
    source = run.source._replace(data=tuple(map(read_only_view, pair)), is_coupled=True)
    assert source.shape is not None
    most = MAX_NUMBERS // (source.shape[0] * source.shape[1])
    half = max(1, min(runs // 2, most))
    halves = [collect_samples(source, stage, half, run.pool, run.progress) for stage in STAGES]
    settings = run.settings.change(select_runs=2 * half)  # half of the selection runs of a context are for training
    objective = SelectionObjective(settings.test_runs, aim.delta, settings.alpha, 0.0, aim.claim)
    region, points, _ = make_region([runs[:REGION_RUNS] for runs in halves[0]], True)
    context = SelectionContext(source, settings, region, objective, run.pool, run.progress, QUICK_SEARCH)
    return PairRuns(context, points, halves)


def _learn_scores(context: SelectionContext, points: np.ndarray) -> list[Score]:
    """Return the scores that the selection would learn from the recorded runs; cells of a named partition are one."""
    given = named_partition(context.settings, context.region, points)
    samples, known = context.draw_training_runs()
    trained = train_candidates(context, given, summarise(samples), samples, known)
    counts = trained.partition_counts
    if given is None or counts is None:
        return trained.scores
    codes = occupied_codes(counts.first, counts.second)
    return [*trained.scores, fit_cell_score(given, codes, counts.first.of(codes), counts.second.of(codes))]


def _by_kind(scores: list[Score]) -> dict[tuple[str, int], Score]:
    """Return the scores by the name of their kind and their number among the scores of this kind."""
    numbered: dict[tuple[str, int], Score] = {}
    for score in scores:
        name = type(score).__name__
        number = sum(known == name for known, _ in numbered)
        numbered[name, number] = score
    return numbered


def count_levels(score: Score, samples: list[np.ndarray]) -> LevelCounts:
    """Count the runs of both data sets above thresholds of a score; the ranks of the thresholds do not depend on it."""
    first, second = (score_values(score, runs) for runs in samples)
    thresholds = _thresholds(np.concatenate([first, second]))
    counts = [_count_above(values, thresholds) for values in (first, second, np.minimum(first, second))]
    return LevelCounts(counts[0], counts[1], counts[2], len(first))


def add_counts(counted: list[LevelCounts]) -> LevelCounts:
    """Add the counts of two scores of the same kind, threshold by threshold."""
    total = counted[0]
    for one in counted[1:]:
        total = LevelCounts(
            total.first + one.first, total.second + one.second, total.both + one.both, total.runs + one.runs
        )
    return total


def _value_of_counts(levels: LevelCounts, objective: SelectionObjective) -> PairValue:
    """Return the largest values over the level sets of one score, in both tails and both directions."""
    first, second, both, runs = levels
    variation, lower, upper = 0.0, 0.0, 0.0
    for c1, c2, together in ((first, second, both), (runs - first, runs - second, runs - first - second + both)):
        for counts in (CoupledCounts(c1, c2, together), CoupledCounts(c2, c1, together)):
            variation = max(variation, float((counts.first - counts.second).max(initial=0)) / runs)
            half_error = counts.standard_error() / 2  # for each of the two probabilities
            p1, p2 = ((count + 0.5) / (runs + 1) for count in counts[:2])
            caution = LOWER_STANDARD_ERRORS + RARE_STANDARD_ERRORS / np.sqrt(np.maximum(counts.first, 1))
            down, up = np.exp(-caution * half_error), np.exp(UPPER_STANDARD_ERRORS * half_error)
            cautious = approximate_bound(p1 * down, np.minimum(p2 / down, 1.0), objective)
            hopeful = approximate_bound(np.minimum(p1 * up, 1.0), p2 / up, objective)
            is_known = counts.first >= MIN_COUNT
            lower = max(lower, float(cautious[is_known].max(initial=0.0)))
            upper = max(upper, float(hopeful[is_known].max(initial=0.0)))
    return PairValue(lower if lower > 0 else variation - 1, max(lower, upper))


def _count_above(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return how many values exceed each of the sorted thresholds."""
    levels = np.bincount(np.searchsorted(thresholds, values), minlength=thresholds.size + 1)
    return values.size - np.cumsum(levels)[:-1]


def _thresholds(values: np.ndarray) -> np.ndarray:
    """Return some of the values as sorted thresholds: at equal shares, and at growing distances from both ends."""
    doublings = np.log2(values.size)
    tail = np.unique(np.exp2(np.linspace(0, doublings - 1, int(THRESHOLDS_PER_DOUBLING * doublings))).astype(int))
    ranks = np.concatenate([tail, values.size - 1 - tail, np.arange(1, EQUAL_SHARES) * values.size // EQUAL_SHARES])
    return np.sort(values)[np.sort(np.clip(ranks, 0, values.size - 1))]
