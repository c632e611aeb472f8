"""Search for the pair of datasets that a mechanism distinguishes best (docs/method.md, section 5.7).

The search compares pairs by their expected lower bound, which is computed from selection runs only (`evaluate_pair`). A
list of pairs is searched in rounds (`search_in_rounds`), a box of parameters by local searches (`search_box`). The best
pair is then verified with test runs that the search has not used, so that the report needs no correction.

Both datasets are run with the same random numbers. A run of the first and the run of the second dataset with the same
number then often have nearly the same output, and fall into an event together. The two counts of the event have a large
covariance, so that their ratio has a small standard error. The independent runs of a test would need many times as many
runs to estimate it equally well. `selection.ratio_curve` smooths the ratios of all level sets of a score together. Rare
events therefore become visible early.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Unpack

import numpy as np
import scipy

from dpverify.claims import Claim, is_curve, resolve_claim
from dpverify.errors import InputError
from dpverify.events.scores import Score, summarise
from dpverify.events.scores.cell_score import fit_cell_score
from dpverify.mechanisms.neighbours import check_pairs
from dpverify.mechanisms.protocol import Mechanism, check_callable
from dpverify.report.report import Report
from dpverify.report.statements import check_claim
from dpverify.sampling.blocks import MAX_LOG2_BLOCK, stated_block_size
from dpverify.sampling.context import RunContext, make_region, open_run
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
from dpverify.settings import Settings, VerifyOptions
from dpverify.studies.engine import CallOptions, Job
from dpverify.studies.tables import ResultColumn, ResultTable, Row, format_value
from dpverify.util.formatting import format_confidence, format_lower, format_number
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


# The direction in which a pair of a box becomes easier to distinguish. A score is learned at a point of the box. The
# mean difference of its smooth indicator between the two datasets is then measured at points around it. Every run
# contributes to the slopes of all axes: the points are an orthogonal design of two levels, each with its mirror image.
LEARNING_SHARE = 0.25  # of the runs, for the score
STAGE = "decide"  # runs that neither learned the score nor test the pair


def estimate_gradient(
    run: RunContext,
    pair_at: Callable[[np.ndarray], DataPair],
    point: np.ndarray,
    distances: np.ndarray,
    aim: SearchAim,
    runs: int,
) -> np.ndarray:
    """Return the estimated derivatives of the mean difference of a score between the data sets of a pair.

    Parameters
    ----------
    run : RunContext
        Draws the runs.
    pair_at : callable
        The function from a point of the box to a pair.
    point : ndarray of shape (d,)
        The point at which the score is learned.
    distances : ndarray of shape (d,)
        How far the points around it differ from it along each axis.
    aim : SearchAim
        What the search maximises.
    runs : int
        The runs per data set of all points together.
    """
    learned = learn_best_score(run, pair_at(point), aim, int(LEARNING_SHARE * runs))
    design = two_level_design(len(point))
    each = max(1, int((1 - LEARNING_SHARE) * runs) // len(design))
    differences = []
    for signs in design:
        pair = pair_at(point + signs * distances)
        source = run.source._replace(data=tuple(map(read_only, pair)), is_coupled=True)
        first, second = (
            scipy.special.expit((score_values(learned.score, samples) - learned.middle) / learned.spread).mean()
            for samples in collect_samples(source, STAGE, each, run.pool, run.progress)
        )
        differences.append(first - second)
    return design.T @ np.array(differences) / len(design) / distances


def two_level_design(dimension: int) -> np.ndarray:
    """Return rows of signs with orthogonal columns, each row with its mirror image, so that even effects cancel.

    Examples
    --------
    >>> two_level_design(3).T @ two_level_design(3)
    array([[8, 0, 0],
           [0, 8, 0],
           [0, 0, 8]])
    """
    size = 1 << int(dimension).bit_length()
    rows = scipy.linalg.hadamard(size)[:, 1 : dimension + 1]
    return np.concatenate([rows, -rows])


FIRST_SHARE = 0.4  # of all runs, for the first round: estimates from few runs say little about rare events
MIN_GROWTH = 2  # a round has at least so many times the runs per item of the round before
EQUAL_WITHIN = 0.03  # relative; items whose estimates differ less are equally good, and one of them is enough


class Rounds(NamedTuple):
    """What the rounds have found.

    Attributes
    ----------
    best : int
        The index of the best item.
    evaluations : list of (int, PairValue)
        Every evaluation, in order.
    runs_per_item : tuple of int
        For each round, how many runs an item was evaluated with.
    unused_runs : int
        The runs that were not needed.
    """

    best: int
    evaluations: list[tuple[int, PairValue]]
    runs_per_item: tuple[int, ...]
    unused_runs: int


def search_in_rounds(evaluate: Callable[[int, int], PairValue], number: int, runs: int) -> Rounds:
    """Return the best of `number` items; `evaluate(item, runs)` estimates the value of an item from so many runs.

    The runs of an item in one round are a part of its runs in the next one, so that only the further runs count. At
    most half of the items stay, or two: those with the largest lower estimates, and the one of the others with the
    largest upper estimate. An item does not stay if its upper estimate is below the largest lower one. It does not stay
    either if both of its estimates are nearly those of the best item, because little is lost if the wrong one of the
    two is chosen. If the runs that are left would not allow two more rounds with growing runs, they are divided among
    the items that stay, and the next round is the last.
    """
    remaining, left, before, per_item = list(range(number)), runs, 0, int(FIRST_SHARE * runs / max(number, 1))
    evaluations: list[tuple[int, PairValue]] = []
    runs_per_item: list[int] = []
    best = 0
    while len(remaining) > 1:
        values = {item: evaluate(item, per_item) for item in remaining}
        evaluations += values.items()
        runs_per_item.append(per_item)
        left -= (per_item - before) * len(remaining)
        by_lower = sorted(remaining, key=lambda item: -values[item].lower)
        best, surest = by_lower[0], _number_of_surest(len(remaining))
        uncertain = max(by_lower[surest:], key=lambda item: values[item].upper)
        others = [item for item in [*by_lower[1:surest], uncertain] if _may_be_better(values[item], values[best])]
        remaining = [best, *others]
        most = per_item + left // len(remaining)
        if most < MIN_GROWTH * per_item:
            break
        grown = MIN_GROWTH * per_item
        after = left - (grown - per_item) * len(remaining)
        is_last = after < (MIN_GROWTH - 1) * grown * (1 + _number_of_surest(len(remaining)))
        before, per_item = per_item, most if is_last else grown
    return Rounds(best, evaluations, tuple(runs_per_item), left)


def _may_be_better(value: PairValue, best: PairValue) -> bool:
    """Return whether more runs could show that an item is clearly better than the best one so far."""
    is_equal = best.lower > 0 and all(abs(a - b) <= EQUAL_WITHIN * b for a, b in zip(value, best, strict=True))
    return value.upper > best.lower and not is_equal


def _number_of_surest(number: int) -> int:
    """Return how many of so many items stay because of their lower estimates; one more may stay."""
    return max(1, (number - 1) // 2)


MIN_RUNS_PER_POINT = 4  # of an evaluation; along gradients for each dimension
STARTS_KEY = 103  # spawn key of the starting points; the keys of the sampling stages differ
SMALLEST_VALUE = -50.0  # replaces minus infinity, which the Nelder-Mead method cannot use
TOLERANCE = 1e-3  # of the Nelder-Mead method, in units of the box and of the objective
MAX_SIMPLEX_DIMENSION = 4  # up to which the Nelder-Mead method, which needs no gradient, is used
CLIMB_STEPS = 3  # of one climb along gradients
STEPS_TRIED = 2  # along each gradient: to the corner that it points to, and a short one
SHORT_STEP = 0.25  # in widths of the box, along the coordinate with the largest derivative
GRADIENT_RUN_FACTOR = 2  # a gradient gets so many times the runs of an evaluation
FIRST_DISTANCE = 0.25  # of the points around which a gradient is estimated, in widths of the box

Point = tuple[float, ...]
Value = Callable[[np.ndarray, int], float]
Gradient = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


class Box(NamedTuple):
    """A box, given by its lower corner and its widths."""

    low: np.ndarray
    width: np.ndarray

    def point(self, position: Point) -> np.ndarray:
        """Return the point at a position of the unit cube."""
        return self.low + np.array(position) * self.width

    def coordinates(self, position: Point) -> Point:
        """Return the same point as a tuple."""
        return tuple(self.point(position).tolist())


class BoxPlan(NamedTuple):
    """How a search in a box divides its runs.

    Attributes
    ----------
    starts : int
        The number of starting points.
    searches : int
        From how many of the best starting points a local search begins.
    evaluations : int
        The evaluations of a local search; a gradient counts as several.
    finalists : int
        The number of points that are evaluated again at the end.
    finalist_factor : int
        The runs of a finalist, in those of another evaluation.
    start_gap, finalist_gap : float
        How far the points that begin a local search, and the finalists, are from each other at least.
    min_runs : int
        The least runs of an evaluation.
    """

    starts: int
    searches: int
    evaluations: int
    finalists: int
    finalist_factor: int
    start_gap: float
    finalist_gap: float
    min_runs: int

    @classmethod
    def of(cls, dimension: int) -> BoxPlan:
        """Return the plan for a box of this dimension.

        The starting points of the Nelder-Mead method and its steps grow with the dimension. A gradient shows the way
        from a few starting points also in many dimensions.
        """
        if dimension > MAX_SIMPLEX_DIMENSION:
            steps = CLIMB_STEPS * (STEPS_TRIED + GRADIENT_RUN_FACTOR)
            return cls(8, 3, steps, 3, 4, 0.0, 0.0, MIN_RUNS_PER_POINT * dimension)
        starts = 8 * (1 + dimension)
        return cls(starts, 4, 3 * (1 + dimension), 4, 8, 1 / starts, 1 / (2 * starts), MIN_RUNS_PER_POINT)

    @property
    def shares(self) -> int:
        """All runs, in those of one evaluation."""
        return self.starts + self.searches * self.evaluations + self.finalists * self.finalist_factor


def search_box(
    value: Value, gradient: Gradient, box: Box, runs: int, seed: int
) -> tuple[Point, list[tuple[Point, float]]]:
    """Return the point of the box with the largest value, and all evaluations as (point, value).

    Local searches begin at the best points of a Latin hypercube: the Nelder-Mead method in up to four dimensions, and
    steps along estimated gradients in more. At the end the best points of all are evaluated once more with more runs.
    All evaluations use the same random numbers, so that the values of two points differ because of the points only.

    Parameters
    ----------
    value : callable
        `value(point, runs)` estimates the value at a point from so many runs.
    gradient : callable
        `gradient(point, distances, runs)` estimates the derivatives from points at these distances along the axes.
    box : Box
        The box.
    runs : int
        The runs of all estimates together.
    seed : int
        The seed of the starting points.
    """
    dimension = len(box.low)
    plan = BoxPlan.of(dimension)
    runs_per_point = runs // plan.shares
    if runs_per_point < plan.min_runs:
        raise InputError(
            f"runs: found {runs}; expected at least {plan.min_runs * plan.shares} for a box of {dimension} dimensions"
        )
    values: dict[Point, float] = {}  # by position in the unit cube

    def evaluate(position: np.ndarray) -> Point:
        key = tuple(np.clip(position, 0, 1).tolist())
        if key not in values:
            values[key] = value(box.point(key), runs_per_point)
        return key

    for start in latin_hypercube(plan.starts, dimension, seed):
        evaluate(start)
    for start in separated_maxima(values, plan.searches, plan.start_gap):
        if dimension > MAX_SIMPLEX_DIMENSION:
            _climb(start, values, evaluate, lambda *at: gradient(*at, GRADIENT_RUN_FACTOR * runs_per_point), box)
        else:
            _nelder_mead(start, values, evaluate, plan)
    finalists = {
        position: value(box.point(position), plan.finalist_factor * runs_per_point)
        for position in separated_maxima(values, plan.finalists, plan.finalist_gap)
    }
    best = max(finalists, key=finalists.__getitem__)
    evaluations = [*values.items(), *finalists.items()]
    return box.coordinates(best), [(box.coordinates(position), value) for position, value in evaluations]


def _nelder_mead(
    start: Point, values: Mapping[Point, float], evaluate: Callable[[np.ndarray], Point], plan: BoxPlan
) -> None:
    """Search by the Nelder-Mead method; its first steps go inwards, about as far as from one start to the next."""
    steps = np.diag(np.where(np.array(start) < 0.5, 1.0, -1.0) / plan.starts)
    options = {
        "maxfev": plan.evaluations,
        "initial_simplex": np.vstack([start, start + steps]),
        "xatol": TOLERANCE,
        "fatol": TOLERANCE,
    }

    def cost(position: np.ndarray) -> float:
        return -max(values[evaluate(position)], SMALLEST_VALUE)

    scipy.optimize.minimize(cost, start, method="Nelder-Mead", bounds=[(0, 1)] * len(start), options=options)


def _climb(
    start: Point,
    values: Mapping[Point, float],
    evaluate: Callable[[np.ndarray], Point],
    gradient: Callable[[np.ndarray, np.ndarray], np.ndarray],
    box: Box,
) -> None:
    """Search along gradients: a step goes to the corner of the box to which the gradient points, or a short way.

    A mechanism that is nearly linear in the data has its largest privacy loss at a corner. A step to a corner is a step
    of the Frank-Wolfe method for a convex function: it never leads downwards if the gradient is exact.
    """
    best, distance = start, FIRST_DISTANCE
    for _ in range(CLIMB_STEPS):
        middle = np.clip(best, distance, 1 - distance)  # the points around it lie in the box too
        slope = gradient(box.point(tuple(middle)), distance * box.width) * box.width
        largest = np.abs(slope).max()
        if not largest > 0:
            break
        corner = np.where(slope == 0, best, slope > 0)
        reached = [evaluate(corner), evaluate(np.array(best) + SHORT_STEP * slope / largest)]
        further = max(reached, key=values.__getitem__)
        if values[further] > values[best]:
            best = further
        else:
            distance /= 2


def latin_hypercube(number: int, dimension: int, seed: int) -> np.ndarray:
    """Return points of the unit cube: along each axis, every one of `number` equal intervals holds one point."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STARTS_KEY,)))
    intervals = np.tile(np.arange(number)[:, None], dimension)
    return (rng.permuted(intervals, axis=0) + rng.random(intervals.shape)) / number


def separated_maxima(values: dict[Point, float], number: int, gap: float) -> list[Point]:
    """Return the positions with the largest values, each further than the gap from every better one.

    The distance is the largest difference of two coordinates.
    """
    chosen: list[Point] = []
    for position in sorted(values, key=lambda position: -values[position]):
        if len(chosen) == number:
            break
        if all(np.abs(np.subtract(position, better)).max() > gap for better in chosen):
            chosen.append(position)
    return chosen


def check_box(bounds: object) -> Box:
    """Return the box with these bounds; raise InputError if they are not (low, high) for each dimension."""
    try:
        low, high = np.array(bounds, float).reshape(-1, 2).T
        valid = len(low) == len(bounds) > 0  # type: ignore[arg-type]
        valid = bool(valid and np.isfinite(high - low).all() and (low < high).all())
    except (TypeError, ValueError):
        low = high = np.zeros(0)
        valid = False
    if not valid:
        raise InputError(f"bounds: found {bounds!r}; expected (low, high) for each dimension, low below high")
    return Box(low, high - low)


MIN_RUNS_PER_PAIR = 32  # in all rounds
BLOCKS_PER_EVALUATION = 8  # at least, so that few runs are drawn beyond those that are needed
MIN_LOG2_BLOCK = 4  # a gradient draws few runs at each of many points

Pairs = Iterable[DataPair] | Mapping[str, DataPair] | Callable[[np.ndarray], DataPair]
PairLabel = int | str | tuple[float, ...]  # the index of a pair in its list, its name, or its point in the box


class Candidate(NamedTuple):
    """A pair that was evaluated in the search.

    Attributes
    ----------
    pair : int, str or tuple of float
        The index of the pair in the list, its name in the mapping, or its point in the box.
    expected_lower_bound : float
        The lower bound of epsilon that the test runs are expected to give, less a standard error. It is below 0 if no
        bound is expected.
    """

    pair: PairLabel
    expected_lower_bound: float


class FoundPair(NamedTuple):
    """A pair, and the search that found it.

    Attributes
    ----------
    label : int, str, tuple of float or None
        The label of the pair; None for a pair that was given.
    data : tuple
        The two data sets.
    tried : list of Candidate
        The evaluations.
    runs_per_pair : tuple of int
        For each round, how many runs per data set a pair was evaluated with.
    unused_runs : int
        The runs per data set that the search did not need.
    """

    label: PairLabel | None
    data: DataPair
    tried: list[Candidate]
    runs_per_pair: tuple[int, ...] = ()
    unused_runs: int = 0


class SearchedPairs(NamedTuple):
    """The pairs of a search: a list with labels, or a function of the points of a box.

    Attributes
    ----------
    labels : tuple of int or str
        The labels of the listed pairs.
    listed : tuple of pairs
        The pairs; empty for a box.
    pair_at : callable or None
        The function from a point of the box to a pair.
    box : sequence of (low, high) or None
        The box.
    """

    labels: tuple[PairLabel, ...]
    listed: tuple[DataPair, ...]
    pair_at: Callable[[np.ndarray], DataPair] | None
    box: Sequence[tuple[float, float]] | None

    @classmethod
    def of(cls, pairs: Pairs, bounds: Sequence[tuple[float, float]] | None) -> SearchedPairs:
        """Return the pairs that the argument `pairs` of `search_pairs` describes."""
        if callable(pairs):
            return cls((), (), pairs, getattr(pairs, "bounds", None) if bounds is None else bounds)
        return cls(*list_pairs(pairs), None, None)

    def find_worst(
        self, mechanism: Mechanism, aim: SearchAim, runs: int, settings: Settings, executor: Executor | None
    ) -> FoundPair:
        """Return the pair with the largest expected lower bound, found with `runs` runs per data set."""
        if self.pair_at is not None:
            return self._search_box(self.pair_at, mechanism, aim, runs, settings, executor)
        number = len(self.listed)
        if not number or runs < MIN_RUNS_PER_PAIR * number:
            raise InputError(
                f"pairs: found {number} pairs and runs={runs}; expected at least one pair, and at least "
                f"{MIN_RUNS_PER_PAIR} runs per pair"
            )
        if number == 1:
            return FoundPair(self.labels[0], self.listed[0], [], unused_runs=runs)
        with _open_search(mechanism, self.listed[0], runs // (4 * number), settings, executor) as run:
            kept = [KeptRuns.empty() for _ in self.listed]
            found = search_in_rounds(
                lambda i, each: evaluate_pair(run, self.listed[i], aim, each, kept[i]), number, runs
            )
        tried = [Candidate(self.labels[index], value.lower) for index, value in found.evaluations]
        worst = self.labels[found.best], self.listed[found.best]
        return FoundPair(*worst, tried, found.runs_per_item, found.unused_runs)

    def _search_box(
        self,
        pair_at: Callable[[np.ndarray], DataPair],
        mechanism: Mechanism,
        aim: SearchAim,
        runs: int,
        settings: Settings,
        executor: Executor | None,
    ) -> FoundPair:
        """Return the best pair of a box."""
        box = check_box(self.box)
        dimension = len(box.low)
        middle = pair_at(box.point((0.5,) * dimension))
        with _open_search(mechanism, middle, runs // (40 * dimension), settings, executor) as run:

            def value(point: np.ndarray, each: int) -> float:
                return evaluate_pair(run, pair_at(point), aim, each).lower

            def gradient(point: np.ndarray, widths: np.ndarray, each: int) -> np.ndarray:
                return estimate_gradient(run, pair_at, point, widths, aim, each)

            best, values = search_box(value, gradient, box, runs, settings.seed)
        return FoundPair(best, pair_at(np.array(best)), [Candidate(point, value) for point, value in values])


@contextmanager
def _open_search(
    mechanism: Mechanism, pair: DataPair, runs: int, settings: Settings, executor: Executor | None
) -> Iterator[RunContext]:
    """Open the context in which all pairs are evaluated, the first of them with so many runs."""
    block = stated_block_size(mechanism, settings.block)
    fitting = 1 << max(MIN_LOG2_BLOCK, (max(runs, 1) // BLOCKS_PER_EVALUATION).bit_length() - 1)
    block = min(fitting, 1 << MAX_LOG2_BLOCK) if block is None else min(block, fitting)
    settings = settings.change(stop_early=False, block=block)  # nothing is claimed about a single pair
    with open_run(mechanism, *pair, settings, executor, False) as run:
        yield run


def list_pairs(
    pairs: Iterable[DataPair] | Mapping[str, DataPair],
) -> tuple[tuple[int | str, ...], tuple[DataPair, ...]]:
    """Return the labels and the pairs of a list or a mapping; raise InputError if one is no pair (`check_pairs`).

    Examples
    --------
    >>> list_pairs({"near": (0.0, 0.5), "far": (0.0, 2.0)})
    (('near', 'far'), ((0.0, 0.5), (0.0, 2.0)))
    """
    if isinstance(pairs, Mapping):
        labels, listed = tuple(str(name) for name in pairs), tuple(pairs.values())
    else:
        listed = tuple(pairs)
        labels = tuple(range(len(listed)))
    check_pairs(pairs, listed)
    return labels, listed


PRINTED_CANDIDATES = 5
SEARCH_COLUMNS = (
    ResultColumn("pair", "pair", lambda row: row["pair"]),
    ResultColumn("left_in_round", "left in round", lambda row: str(row["left_in_round"] or "chosen"), True),
    ResultColumn("runs", "runs", lambda row: format_value(row["runs"]), True),
    ResultColumn("estimate", "cautious estimate of the bound", lambda row: format_number(row["estimate"]), True),
)


@dataclass(frozen=True)
class Search(ResultTable):
    """The result of `search_pairs`. `print` shows a short table.

    Attributes
    ----------
    report : Report
        The report of the best pair, from test runs that the search has not used.
    pair : int, str or tuple of float
        The best pair: its index in the list, its name in the mapping, or its point in the box (`pairs[pair]`, or
        `pairs(numpy.array(pair))`).
    tried : tuple of Candidate
        Every evaluation of the search, in order. A pair occurs once for each round that it took part in.
    runs_per_pair : tuple of int
        For each round, how many runs per data set a pair was evaluated with. Empty for a box.
    """

    report: Report
    pair: PairLabel
    tried: tuple[Candidate, ...]
    runs_per_pair: tuple[int, ...] = ()
    identity = ("pair",)

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row per pair: the chosen one, then those that left in the last round, and so on.

        `left_in_round` is None for the chosen pair, `runs` are the runs of its last evaluation, and `estimate` is the
        expected lower bound, less a standard error. Only the chosen pair has the columns of `Report.row`.
        """
        rounds = Counter(candidate.pair for candidate in self.tried)
        last = {candidate.pair: candidate.expected_lower_bound for candidate in self.tried}
        order = sorted(last, key=lambda pair: (pair != self.pair, -rounds[pair], -last[pair])) or [self.pair]
        tested = self.report.row()
        rows = []
        for pair in order:
            is_chosen = pair == self.pair
            runs = self.runs_per_pair[rounds[pair] - 1] if self.runs_per_pair else None
            found = {"left_in_round": None if is_chosen else rounds[pair], "runs": runs, "estimate": last.get(pair)}
            rows.append({"pair": format_label(pair), **found, **(tested if is_chosen else dict.fromkeys(tested))})
        return tuple(rows)

    @property
    def columns(self) -> list[ResultColumn]:
        """The columns of the text and of the page."""
        return list(SEARCH_COLUMNS)

    @property
    def state(self) -> str:
        """The verdict of the chosen pair."""
        return self.report.verdict.name

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        start = f"{self.report.name}: pair {format_label(self.pair)} after {len(self.tried)} evaluations"
        return f"{start}: {self.report.verdict.name.replace('_', ' ')}"

    def __str__(self) -> str:
        lines = [f"  {name:<8}  {statement}" for name, statement in self._statements()]
        has_table = bool(self.tried) and self.report.epsilon_lower is not None
        table = self.table_lines(PRINTED_CANDIDATES) if has_table else []
        return "\n".join([self.headline, *lines[:-1], *table, lines[-1]])

    def sentences(self) -> list[str]:
        """Return what is said below the headline."""
        return [f"{name.capitalize()}: {statement}." for name, statement in self._statements()]

    def _statements(self) -> list[tuple[str, str]]:
        """Return what is known about the chosen pair, and what to do."""
        report, found = self.report, [("cause", diagnostic.value) for diagnostic in self.report.voiding]
        if report.epsilon_lower is not None:
            bound = f"epsilon >= {format_lower(report.epsilon_lower)} at delta {format_number(report.delta)}"
            scope = f"for this pair of data sets, by the witness, confidence {format_confidence(report.alpha)}"
            found.append(("proved", f"{bound}; {scope}"))
        if report.voiding:
            step = report.next_step
        elif report.refuted:
            step = "change the mechanism or the claim, then search again; the other pairs were not tested"
        else:
            step = "only this pair was tested; increase runs if another pair may leak rarely"
            step += "" if isinstance(self.pair, tuple) else ", or test all pairs with verify_pairs"
        return [*found, ("next", step)]


def search_pairs(
    mechanism: Mechanism,
    pairs: Pairs,
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    claim: object = None,
    runs: int = 100_000,
    bounds: Sequence[tuple[float, float]] | None = None,
    **options: Unpack[VerifyOptions],
) -> Search:
    """Find the pair of data sets with the largest expected lower bound, and verify it.

    A list of pairs is searched in rounds: the pairs that may still be the worst one keep their runs and get at least as
    many again. A box is searched from several starting points: by the Nelder-Mead method, and along estimated gradients
    if it has more than four dimensions. The report of the best pair uses test runs that the search has not used.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism, as in `verify`.
    pairs : iterable of (first, second), mapping, or callable
        The pairs; a mapping from names to pairs, as `dpverify.neighbours` returns it; or a function from a point of the
        box to (first, second), for example `dpverify.neighbours.ball`. What counts as a pair is the same as in
        `verify_pairs`.
    epsilon : float or None
        The claim that is tested on the best pair. None measures without a claim.
    delta : float
        The delta of the claim, at which the lower bounds of epsilon are compared.
    claim : claim, optional
        A claim of another kind, instead of epsilon, as in `verify`. Pairs are then compared by their expected distance
        from its curve.
    runs : int
        Runs per data set that the whole search may use. If the worst pair of a list is clear earlier, the runs that
        are left are added to `select_runs` (docs/studies.md).
    bounds : sequence of (low, high), optional
        The box, one interval for each dimension. Required if `pairs` is a function without an attribute `bounds`.
    **options
        Keyword arguments of `verify`. `select_runs` and `test_runs` apply to the verification of the best pair, and
        `coupled_selection` is True for it unless `stop_early` is set.

    Returns
    -------
    Search
        The report of the best pair, the pair, and every evaluation.

    Raises
    ------
    InputError
        If there is no pair or no box, `runs` is too small, or `selection_epsilon` is set.

    Examples
    --------
    >>> import dpverify as dpv
    >>> def noisy(data, runs, rng):
    ...     return data + rng.laplace(size=(runs, 1))
    >>> pairs = [(0.0, 0.1), (0.0, 2.0), (0.0, 0.5)]
    >>> found = dpv.search_pairs(noisy, pairs, runs=2000, select_runs=500, test_runs=2000)
    >>> found.pair
    1
    """
    check_callable(mechanism)
    call = CallOptions.of(**options)
    settings = call.settings
    tested, delta = resolve_claim(epsilon, delta, claim)
    check_claim(settings, None, delta, tested)
    aim = SearchAim(delta, tested if is_curve(tested) else None)
    if settings.selection_epsilon is not None:
        raise InputError(
            f"selection_epsilon: found {settings.selection_epsilon}; expected None, because the selector of the paper "
            "gives no expected lower bound to search by"
        )
    searched = SearchedPairs.of(pairs, bounds)
    with call.open_engine() as engine:
        worst = searched.find_worst(mechanism, aim, runs, settings, engine.executor)
        settings = settings.change(
            select_runs=settings.select_runs + worst.unused_runs, coupled_selection=not settings.stop_early
        )
        assert worst.label is not None
        name = f"pair {format_label(worst.label)}"
        more = {**call.call, "delta": delta}
        columns = {"pair": format_label(worst.label)}
        (report,) = engine.reports([Job(name, mechanism, *worst.data, tested, settings, more, columns)])
    return Search(report, worst.label, tuple(worst.tried), worst.runs_per_pair)


def format_label(pair: PairLabel) -> str:
    """Return the label of a pair as text."""
    if not isinstance(pair, tuple):
        return str(pair)
    return "(" + ", ".join(f"{coordinate:.4g}" for coordinate in pair) + ")"
