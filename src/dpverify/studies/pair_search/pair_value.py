"""How well a pair of data sets can be distinguished, from few runs: what a search compares pairs by.

Both data sets are run with the same random numbers. A run of the first and the run of the second data set with the same
number then often have nearly the same output, and fall into an event together. The two counts of the event have a
large covariance, so that their ratio has a small standard error. The independent runs of a test would need many times
as many runs to estimate it equally well. `selection.ratio_curve` smooths the ratios of all level sets of a score
together. Rare events therefore become visible early (docs/method.md, section 5.7).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.claims import Claim
from dpverify.events.scores import Score, summarise
from dpverify.events.scores.cell_score import fit_cell_score
from dpverify.sampling.context import RunContext, make_region
from dpverify.sampling.count import occupied_codes
from dpverify.sampling.stages import collect_samples
from dpverify.selection.learn import train_candidates
from dpverify.selection.objective import (
    QUICK_SEARCH,
    SelectionContext,
    SelectionObjective,
    approximate_bound,
    named_partition,
)
from dpverify.selection.proposals import score_values
from dpverify.selection.ratio_curve import MIN_COUNT, fit_ratio_curve
from dpverify.util.read_only import read_only

DataPair = tuple[object, object]

STAGES = ("train", "propose")  # half of the runs each; test runs belong to another stage
# Standard deviations of the log-ratio of an event. The largest of many estimates tends to be too large, so some are
# subtracted; an event may still turn out to be better, so others are added.
LOWER_DEVIATIONS, UPPER_DEVIATIONS = 0.75, 1.0
THRESHOLDS_PER_DOUBLING = 2
EQUAL_SHARES = 16  # thresholds in the middle of a score
REGION_RUNS = 512  # runs per data set that enclose the likely outputs
MAX_NUMBERS = 1 << 25  # of one half of the runs of a data set: 256 MB
MAX_KEPT_NUMBERS = 1 << 24  # of all runs of a pair that are kept for its next round: 128 MB


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


class KeptRuns(NamedTuple):
    """Runs of a pair that were drawn before: for each stage, whole blocks by (data set, number of the block)."""

    blocks: tuple[dict[tuple[int, int], np.ndarray], ...]

    @classmethod
    def empty(cls) -> KeptRuns:
        """Return no runs."""
        return cls(tuple({} for _ in STAGES))

    def keep(self, halves: list[list[np.ndarray]], block: int) -> None:
        """Keep the whole blocks of these runs, which begin with the blocks that were kept before.

        Runs that need too much memory are not kept. They are the same runs when they are drawn again.
        """
        is_small = sum(samples.size for sides in halves for samples in sides) <= MAX_KEPT_NUMBERS
        for kept, sides in zip(self.blocks, halves, strict=True):
            kept.clear()
            for side, samples in enumerate(sides if is_small else ()):
                for number in range(len(samples) // block):
                    kept[side, number] = samples[number * block : (number + 1) * block]


def evaluate_pair(
    run: RunContext, pair: DataPair, aim: SearchAim, runs: int, kept: KeptRuns | None = None
) -> PairValue:
    """Return how well the planned test can distinguish the data sets of a pair, from `runs` runs of each of them.

    Scores are learned from each half of the runs and counted on the other half. Two scores of the same kind are counted
    together: events with equal numbers of runs are added. Runs that were `kept` are not drawn again, and the runs that
    are drawn are kept.
    """
    drawn = _draw_runs(run, pair, aim, runs, kept)
    objective = drawn.context.objective
    learned = []
    for training, held_out in (drawn.halves, drawn.halves[::-1]):
        scores = _learn_scores(drawn.context._replace(recorded=(training[0], training[1])), drawn.points)
        learned.append((_by_kind(scores), held_out))
    (scores, _), (others, _) = learned
    values = []
    for kind in [kind for kind in scores if kind in others] or list(scores):
        counted = [count_levels(scores[kind], samples) for scores, samples in learned if kind in scores]
        values.append(_value_of_counts(sum(counted[1:], counted[0]), objective))
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


def _draw_runs(run: RunContext, pair: DataPair, aim: SearchAim, runs: int, kept: KeptRuns | None = None) -> PairRuns:
    """Draw the runs of a pair, with the same random numbers for both data sets."""
    source = run.source._replace(data=tuple(map(read_only, pair)), is_coupled=True)
    assert source.shape is not None
    most = MAX_NUMBERS // (source.shape[0] * source.shape[1])
    half = max(1, min(runs // 2, most))
    known = KeptRuns.empty() if kept is None else kept
    halves = [
        collect_samples(source, stage, half, run.pool, run.progress, drawn=blocks)
        for stage, blocks in zip(STAGES, known.blocks, strict=True)
    ]
    known.keep(halves, source.block)
    settings = run.settings.change(select_runs=2 * half)  # half of the selection runs of a context are for training
    objective = SelectionObjective(settings.test_runs, aim.delta, settings.alpha, 0.0, aim.claim)
    # Different random numbers for the two data sets: a value that occurs in both of them is no atom.
    region, points, _ = make_region([halves[0][0][:REGION_RUNS], halves[0][1][-REGION_RUNS:]], settings.nonfinite, True)
    context = SelectionContext(source, settings, region, objective, run.pool, run.progress, QUICK_SEARCH)
    return PairRuns(context, points, halves)


def _learn_scores(context: SelectionContext, points: np.ndarray) -> list[Score]:
    """Return the scores that the selection would learn from the recorded runs; cells of a named partition are one."""
    given = named_partition(context.settings, context.region, points)
    samples, known = context.draw_training_runs()
    training = summarise(list(map(context.region.fill, samples)), context.source.is_coupled)
    trained = train_candidates(context, given, training, samples, known)
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


def count_levels(score: Score, samples: list[np.ndarray]) -> np.ndarray:
    """Count the pairs of runs in each pair of intervals of a score, from small scores to large ones.

    The ranks of the ends of the intervals depend on the number of runs only, so that the tables of two scores can be
    added.
    """
    first, second = (score_values(score, runs) for runs in samples)
    thresholds = _thresholds(np.concatenate([first, second]))
    size = thresholds.size + 1
    intervals = np.searchsorted(thresholds, first) * size + np.searchsorted(thresholds, second)
    return np.bincount(intervals, minlength=size * size).reshape(size, size)


def _value_of_counts(table: np.ndarray, objective: SelectionObjective) -> PairValue:
    """Return the largest values over the level sets of one score, in both tails and both directions."""
    variation, lower, upper = 0.0, 0.0, 0.0
    for tail in (table, table[::-1, ::-1]):
        curve = fit_ratio_curve(tail)
        if curve is None:
            continue
        variation = max(variation, float(np.abs(curve.counts[0] - curve.counts[1]).max()) / table.sum())
        for direction in (0, 1):
            is_known = curve.counts[direction] >= MIN_COUNT
            cautious, hopeful = (
                approximate_bound(*curve.probabilities(deviations, direction), objective)[is_known].max(initial=0.0)
                for deviations in (-LOWER_DEVIATIONS, UPPER_DEVIATIONS)
            )
            lower, upper = max(lower, float(cautious)), max(upper, float(hopeful))
    return PairValue(lower if lower > 0 else variation - 1, max(lower, upper))


def _thresholds(values: np.ndarray) -> np.ndarray:
    """Return some of the values as sorted thresholds: at equal shares, and at growing distances from both ends."""
    doublings = np.log2(values.size)
    tail = np.unique(np.exp2(np.linspace(0, doublings - 1, int(THRESHOLDS_PER_DOUBLING * doublings))).astype(int))
    ranks = np.concatenate([tail, values.size - 1 - tail, np.arange(1, EQUAL_SHARES) * values.size // EQUAL_SHARES])
    return np.sort(values)[np.sort(np.clip(ranks, 0, values.size - 1))]
