"""Search for the pair of datasets that a mechanism distinguishes best (docs/method.md, section 5.7).

The search compares pairs by their expected lower bound, which is computed from selection runs only. A list of pairs is
searched in rounds (`search_in_rounds`), a box of parameters along gradients (`search_box`). The best pair is then
verified with test runs that the search has not used, so that the report needs no correction.

Both datasets are run with the same random numbers. A run of the first and the run of the second dataset with the same
number then often have nearly the same output, and fall into an event together. The two counts of the event have a large
covariance, so that their ratio has a small standard error. The independent runs of a test would need many times as many
runs to estimate it equally well. `selection.ratio_curve` smooths the ratios of all level sets of a score together. Rare
events therefore become visible early.
"""

from __future__ import annotations

import functools
import math
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
from dpverify.sampling.blocks import MAX_LOG2_BLOCK, SampleSource, block_size
from dpverify.sampling.count import occupied_codes
from dpverify.sampling.probe import RunContext, make_region, open_run
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
from dpverify.util.arrays import read_only
from dpverify.util.formatting import format_confidence, format_lower, format_number

DataPair = tuple[object, object]
Pairs = Iterable[DataPair] | Mapping[str, DataPair] | Callable[[np.ndarray], DataPair]
PairLabel = int | str | tuple[float, ...]  # the index of a pair in its list, its name, or its point in the box
Blocks = dict[tuple[int, int], np.ndarray]  # whole blocks of runs by (dataset, number of the block)
Position = tuple[float, ...]  # in the unit cube


@dataclass(frozen=True)
class SearchTuning:
    """The numbers of a search, each with its reason. None of them affects validity: the test runs are other runs."""

    # Standard deviations of the log-ratio of an event. The largest of many estimates tends to be too large, so some
    # are subtracted; an event may still turn out to be better, so others are added.
    lower_deviations: float = 0.75
    upper_deviations: float = 1.0
    thresholds_per_doubling: int = 2  # neighbouring level sets then differ by two fifths of their runs
    equal_shares: int = 16  # thresholds in the middle of a score, where runs are frequent
    region_runs: int = 512  # runs per dataset that enclose the likely outputs; more change the region little
    max_numbers: int = 1 << 25  # of one half of the runs of a dataset: 256 MB
    max_kept_numbers: int = 1 << 27  # of all runs of a search that are kept for the next round: 1 GB

    first_share: float = 0.4  # of all runs, for the first round: estimates from few runs say little about rare events
    min_growth: int = 2  # a round has at least so many times the runs per pair of the round before
    equal_within: float = 0.03  # relative; pairs whose estimates differ less are equally good, and one is enough
    min_runs: int = 32  # per pair in all rounds: fewer give no event
    # An evaluation has at least so many blocks, so that few runs are drawn beyond those that are needed.
    blocks_per_evaluation: int = 8
    min_log2_block: int = 4  # a gradient draws few runs at each of many points

    starts: int = 8  # points of a box from which the search begins
    climbs: int = 3  # from the best starting points; more of them find the same corners
    steps: int = 3  # of a climb; each halves the distance or goes to a better point
    finalists: int = 3  # points that are evaluated again at the end
    finalist_factor: int = 4  # the runs of a finalist, in those of another evaluation: half of the standard error
    gradient_factor: int = 2  # the runs of a gradient, which learns a score and measures it
    learning_share: float = 0.25  # of the runs of a gradient, for the score
    first_distance: float = 0.25  # of the points around which a gradient is estimated, in widths of the box
    min_runs_per_dimension: int = 4  # of an evaluation: a gradient has two to eight points per dimension

    @property
    def box_shares(self) -> int:
        """All runs of a search in a box, in those of one evaluation."""
        return (
            self.starts + self.climbs * self.steps * (2 + self.gradient_factor) + self.finalists * self.finalist_factor
        )


TUNING = SearchTuning()
STAGES = ("train", "propose")  # half of the runs of a pair each; test runs belong to another stage
GRADIENT_STAGE = "decide"  # runs that neither learned the score nor test the pair


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


class PairRuns(NamedTuple):
    """The runs of a pair in two halves, each of them for both datasets, and the context that learns from them."""

    context: SelectionContext
    points: np.ndarray
    halves: list[list[np.ndarray]]

    def learn(self, half: int) -> dict[tuple[str, int], Score]:
        """Return the scores that the selection would learn from one half, by kind and number of the same kind.

        The cells of a partition that the settings name are a score, too.
        """
        first, second = self.halves[half]
        context = self.context._replace(recorded=(first, second))
        given = named_partition(context.settings, context.region, self.points)
        samples, known = context.draw_training_runs()
        training = summarise(list(map(context.region.fill, samples)), context.source.is_coupled)
        trained = train_candidates(context, given, training, samples, known)
        scores, counts = list(trained.scores), trained.partition_counts
        if given is not None and counts is not None:
            codes = occupied_codes(counts.first, counts.second)
            scores.append(fit_cell_score(given, codes, counts.first.of(codes), counts.second.of(codes)))
        kinds = [type(score).__name__ for score in scores]
        return {(kind, kinds[:number].count(kind)): scores[number] for number, kind in enumerate(kinds)}


class PairSearch(NamedTuple):
    """Evaluates pairs; `objective` is the planned test."""

    run: RunContext
    objective: SelectionObjective

    @classmethod
    @contextmanager
    def open(
        cls,
        mechanism: Mechanism,
        pair: DataPair,
        objective: SelectionObjective,
        runs: int,
        settings: Settings,
        executor: Executor | None,
    ) -> Iterator[PairSearch]:
        """Open a search whose evaluations have at least so many runs; nothing is claimed about a single pair."""
        is_stated = (settings.block or getattr(mechanism, "block", None)) is not None
        fitting = max(TUNING.min_log2_block, (max(runs, 1) // TUNING.blocks_per_evaluation).bit_length() - 1)
        fitting = 1 << min(fitting, MAX_LOG2_BLOCK)
        block = min(block_size(mechanism, settings.block, runs), fitting) if is_stated else fitting
        settings = settings.change(stop_early=False, block=block)
        with open_run(mechanism, *pair, settings, executor, False) as run:
            yield cls(run, objective)

    @property
    def size(self) -> int:
        """The numbers of one output."""
        return math.prod(self.run.source.shape or ())

    def evaluate(self, pair: DataPair, runs: int, kept: tuple[Blocks, ...] | None = None) -> PairValue:
        """Return how well the planned test can distinguish the datasets of a pair, from `runs` runs of each of them.

        Scores are learned from each half of the runs and counted on the other half. Two scores of the same kind are
        counted together: events with equal numbers of runs are added. Runs that were `kept` are not drawn again, and
        the runs that are drawn are kept.
        """
        drawn = self.draw(pair, runs, kept)
        learned = [(drawn.learn(half), drawn.halves[1 - half]) for half in (0, 1)]
        (scores, _), (others, _) = learned
        values = []
        for kind in [kind for kind in scores if kind in others] or list(scores):
            counted = [count_levels(own[kind], samples) for own, samples in learned if kind in own]
            values.append(_value_of_counts(sum(counted[1:], counted[0]), self.objective))
        return PairValue(max(value.lower for value in values), max(value.upper for value in values))

    def draw(self, pair: DataPair, runs: int, kept: tuple[Blocks, ...] | None = None) -> PairRuns:
        """Draw the runs of a pair, with the same random numbers for both datasets."""
        run, source = self.run, self.source_of(pair)
        half = max(1, min(runs // 2, TUNING.max_numbers // self.size))
        halves = []
        for stage, blocks in zip(STAGES, kept or ({}, {}), strict=True):
            samples = collect_samples(source, stage, half, run.pool, run.progress, drawn=blocks)
            whole = np.arange(half // source.block)[:, None] * source.block + np.array([0, source.block])
            blocks |= {(side, b): x[i:j] for side, x in enumerate(samples) for b, (i, j) in enumerate(whole)}
            halves.append(samples)
        settings = run.settings.change(select_runs=2 * half)  # half of the selection runs of a context are for training
        # Different random numbers for the two datasets: a value that occurs in both of them is no atom.
        few = [halves[0][0][: TUNING.region_runs], halves[0][1][-TUNING.region_runs :]]
        region, points, _ = make_region(few, settings.nonfinite, True)
        context = SelectionContext(source, settings, region, self.objective, run.pool, run.progress, QUICK_SEARCH)
        return PairRuns(context, points, halves)

    def slopes(
        self, pair_at: Callable[[np.ndarray], DataPair], position: np.ndarray, distance: float, runs: int
    ) -> np.ndarray:
        """Return how the datasets of a pair become easier to distinguish along each coordinate of `pair_at`.

        A score is learned at the position. The mean difference of its smooth indicator between the two datasets is then
        measured at points around it. Every run contributes to the slopes of all coordinates: the points are an
        orthogonal design of two levels, each with its mirror image.
        """
        drawn = self.draw(pair_at(position), int(TUNING.learning_share * runs))
        held_out = drawn.halves[1]
        best = max(
            drawn.learn(0).values(),
            key=lambda score: _value_of_counts(count_levels(score, held_out), self.objective).lower,
        )
        values = np.concatenate([score_values(best, samples) for samples in held_out])
        middle, spread = np.median(values), max(float(values.std()), np.finfo(float).tiny)
        design = two_level_design(len(position))
        each = max(1, int((1 - TUNING.learning_share) * runs) // len(design))
        differences = []
        for signs in design:
            samples = collect_samples(
                self.source_of(pair_at(position + signs * distance)),
                GRADIENT_STAGE,
                each,
                self.run.pool,
                self.run.progress,
            )
            first, second = (scipy.special.expit((score_values(best, x) - middle) / spread).mean() for x in samples)
            differences.append(first - second)
        return design.T @ np.array(differences) / len(design) / distance

    def source_of(self, pair: DataPair) -> SampleSource:
        """Return what draws the runs of a pair."""
        return self.run.source._replace(data=tuple(map(read_only, pair)), is_coupled=True)


def count_levels(score: Score, samples: list[np.ndarray]) -> np.ndarray:
    """Count the pairs of runs in each pair of intervals of a score, from small scores to large ones.

    The ranks of the ends of the intervals depend on the number of runs only, so that the tables of two scores can be
    added. They are at equal shares of the runs, and at growing distances from both ends.
    """
    first, second = (score_values(score, runs) for runs in samples)
    values = np.sort(np.concatenate([first, second]))
    doublings, shares = np.log2(values.size), TUNING.equal_shares
    tail = np.exp2(np.linspace(0, doublings - 1, int(TUNING.thresholds_per_doubling * doublings))).astype(int)
    tail = np.unique(tail)
    ranks = np.concatenate([tail, values.size - 1 - tail, np.arange(1, shares) * values.size // shares])
    thresholds = values[np.sort(np.clip(ranks, 0, values.size - 1))]
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
                for deviations in (-TUNING.lower_deviations, TUNING.upper_deviations)
            )
            lower, upper = max(lower, float(cautious)), max(upper, float(hopeful))
    return PairValue(lower if lower > 0 else variation - 1, max(lower, upper))


def two_level_design(dimension: int) -> np.ndarray:
    """Return rows of signs with orthogonal columns, each row with its mirror image, so that even effects cancel.

    Examples
    --------
    >>> two_level_design(3).T @ two_level_design(3)
    array([[8, 0, 0],
           [0, 8, 0],
           [0, 0, 8]])
    """
    rows = scipy.linalg.hadamard(1 << int(dimension).bit_length())[:, 1 : dimension + 1]
    return np.concatenate([rows, -rows])


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

    def may_be_better(value: PairValue, best: PairValue) -> bool:
        near = [abs(a - b) <= TUNING.equal_within * b for a, b in zip(value, best, strict=True)]
        return value.upper > best.lower and not (best.lower > 0 and all(near))

    def kept_for_lower(number: int) -> int:
        return max(1, (number - 1) // 2)  # one more may stay because of its upper estimate

    remaining, left, before = list(range(number)), runs, 0
    per_item, best = int(TUNING.first_share * runs / max(number, 1)), 0
    evaluations: list[tuple[int, PairValue]] = []
    runs_per_item: list[int] = []
    while len(remaining) > 1:
        values = {item: evaluate(item, per_item) for item in remaining}
        evaluations += values.items()
        runs_per_item.append(per_item)
        left -= (per_item - before) * len(remaining)
        by_lower = sorted(remaining, key=lambda item: -values[item].lower)
        best, surest = by_lower[0], kept_for_lower(len(remaining))
        uncertain = max(by_lower[surest:], key=lambda item: values[item].upper)
        others = [item for item in [*by_lower[1:surest], uncertain] if may_be_better(values[item], values[best])]
        remaining = [best, *others]
        most, grown = per_item + left // len(remaining), TUNING.min_growth * per_item
        if most < grown:
            break
        after = left - (grown - per_item) * len(remaining)
        is_last = after < (TUNING.min_growth - 1) * grown * (1 + kept_for_lower(len(remaining)))
        before, per_item = per_item, most if is_last else grown
    return Rounds(best, evaluations, tuple(runs_per_item), left)


def search_box(
    value: Callable[[np.ndarray, int], float],
    slopes: Callable[[np.ndarray, float, int], np.ndarray],
    dimension: int,
    runs: int,
    seed: int,
) -> tuple[Position, list[tuple[Position, float]]]:
    """Return the point of the unit cube with the largest value, and all evaluations as (position, value).

    Climbs begin at the best points of a Latin hypercube. A step of a climb goes to the corner to which the gradient
    points, or a short way along it; if neither is better, the next step is shorter. A mechanism that is nearly linear
    in the data has its largest privacy loss at a corner: a step to a corner is a step of the Frank-Wolfe method for a
    convex function, and never leads downwards if the gradient is exact. At the end the best points of all are evaluated
    once more with more runs. All evaluations use the same random numbers, so that the values of two points differ
    because of the points only.

    Parameters
    ----------
    value : callable
        `value(position, runs)` estimates the value at a point from so many runs.
    slopes : callable
        `slopes(position, distance, runs)` estimates the derivatives from points at this distance along the axes.
    dimension : int
        The dimension of the cube.
    runs : int
        The runs of all estimates together.
    seed : int
        The seed of the starting points.
    """
    runs_per_point = runs // TUNING.box_shares
    if runs_per_point < TUNING.min_runs_per_dimension * dimension:
        least = TUNING.min_runs_per_dimension * dimension * TUNING.box_shares
        raise InputError(f"runs: found {runs}; expected at least {least} for a box of {dimension} dimensions")
    values: dict[Position, float] = {}

    def evaluate(position: np.ndarray) -> Position:
        key = tuple(np.clip(position, 0, 1).tolist())
        if key not in values:
            values[key] = value(np.array(key), runs_per_point)
        return key

    for start in latin_hypercube(TUNING.starts, dimension, seed):
        evaluate(start)
    for start in sorted(values, key=values.__getitem__, reverse=True)[: TUNING.climbs]:
        best, distance = start, TUNING.first_distance
        for _ in range(TUNING.steps):
            middle = np.clip(best, distance, 1 - distance)  # the points around it lie in the cube, too
            slope = slopes(middle, distance, TUNING.gradient_factor * runs_per_point)
            largest = np.abs(slope).max()
            if not largest > 0:
                break
            corner = np.where(slope == 0, best, slope > 0)
            reached = [evaluate(corner), evaluate(np.array(best) + distance * slope / largest)]
            further = max(reached, key=values.__getitem__)
            if values[further] > values[best]:
                best = further
            else:
                distance /= 2
    finalists = {
        position: value(np.array(position), TUNING.finalist_factor * runs_per_point)
        for position in sorted(values, key=values.__getitem__, reverse=True)[: TUNING.finalists]
    }
    return max(finalists, key=finalists.__getitem__), [*values.items(), *finalists.items()]


def latin_hypercube(number: int, dimension: int, seed: int) -> np.ndarray:
    """Return points of the unit cube: along each axis, every one of `number` equal intervals holds one point."""
    rng = np.random.default_rng(seed)
    intervals = np.tile(np.arange(number)[:, None], dimension)
    return (rng.permuted(intervals, axis=0) + rng.random(intervals.shape)) / number


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
        The two datasets.
    tried : list of Candidate
        The evaluations.
    runs_per_pair : tuple of int
        For each round, how many runs per dataset a pair was evaluated with.
    unused_runs : int
        The runs per dataset that the search did not need.
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

    labels: tuple[int | str, ...]
    listed: tuple[DataPair, ...]
    pair_at: Callable[[np.ndarray], DataPair] | None = None
    box: Sequence[tuple[float, float]] | None = None

    @classmethod
    def of(cls, pairs: Pairs, bounds: Sequence[tuple[float, float]] | None) -> SearchedPairs:
        """Return the pairs that the argument `pairs` of `search_pairs` describes."""
        if callable(pairs):
            return cls((), (), pairs, getattr(pairs, "bounds", None) if bounds is None else bounds)
        return cls(*list_pairs(pairs))

    def find_worst(
        self,
        mechanism: Mechanism,
        delta: float,
        claim: Claim | None,
        runs: int,
        settings: Settings,
        executor: Executor | None,
    ) -> FoundPair:
        """Return the pair with the largest expected lower bound at delta, found with `runs` runs per dataset.

        If the claim is a curve, pairs are compared by their distance from it.
        """
        claim = claim if is_curve(claim) else None
        objective = SelectionObjective(settings.test_runs, delta, settings.alpha, 0.0, claim)
        number, pair_at = len(self.listed), self.pair_at
        if pair_at is not None:
            low, width = check_box(self.box)

            def at(position: np.ndarray) -> DataPair:
                return pair_at(low + position * width)

            middle, dimension = np.full(len(low), 0.5), len(low)
            opened = mechanism, at(middle), objective, runs // (40 * dimension), settings, executor
            with PairSearch.open(*opened) as search:
                best, values = search_box(
                    lambda position, each: search.evaluate(at(position), each).lower,
                    functools.partial(search.slopes, at),
                    dimension,
                    runs,
                    settings.seed,
                )
            tried = [Candidate(tuple((low + position * width).tolist()), value) for position, value in values]
            return FoundPair(tuple((low + best * width).tolist()), at(np.array(best)), tried)
        if not number or runs < TUNING.min_runs * number:
            raise InputError(
                f"pairs: found {number} pairs and runs={runs}; expected at least one pair, and at least "
                f"{TUNING.min_runs} runs per pair"
            )
        if number == 1:
            return FoundPair(self.labels[0], self.listed[0], [], unused_runs=runs)
        opened = mechanism, self.listed[0], objective, runs // (4 * number), settings, executor
        with PairSearch.open(*opened) as search:
            keeps = 2 * runs * search.size <= TUNING.max_kept_numbers
            kept: list[tuple[Blocks, ...] | None] = [({}, {}) if keeps else None for _ in self.listed]
            found = search_in_rounds(lambda i, each: search.evaluate(self.listed[i], each, kept[i]), number, runs)
        tried = [Candidate(self.labels[index], value.lower) for index, value in found.evaluations]
        worst = self.labels[found.best], self.listed[found.best]
        return FoundPair(*worst, tried, found.runs_per_item, found.unused_runs)


def check_box(bounds: object) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower corner and the widths of a box; raise InputError unless (low, high) is given per dimension."""
    try:
        low, high = np.array(bounds, float).reshape(-1, 2).T
        is_box = len(low) == len(bounds) > 0  # type: ignore[arg-type]
        if is_box and np.isfinite(high - low).all() and (low < high).all():
            return low, high - low
    except (TypeError, ValueError):
        pass
    raise InputError(f"bounds: found {bounds!r}; expected (low, high) for each dimension, low below high")


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


SEARCH_COLUMNS = (
    ResultColumn("pair", "pair", lambda row: row["pair"]),
    ResultColumn("left_in_round", "left in round", lambda row: str(row["left_in_round"] or "chosen"), True),
    ResultColumn("runs", "runs", lambda row: format_value(row["runs"]), True),
    ResultColumn("estimate", "lower estimate of the bound", lambda row: format_value(row["estimate"]), True),
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
        For each round, how many runs per dataset a pair was evaluated with. Empty for a box.
    """

    report: Report
    pair: PairLabel
    tried: tuple[Candidate, ...]
    runs_per_pair: tuple[int, ...] = ()
    identity = ("pair",)

    @property
    def columns(self) -> list[ResultColumn]:
        """The columns of the text and of the page."""
        return list(SEARCH_COLUMNS)

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
    def state(self) -> str:
        """The verdict of the chosen pair."""
        return self.report.verdict.name

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        start = f"{self.report.name}: pair {format_label(self.pair)} after {len(self.tried)} evaluations"
        return f"{start}: {self.report.verdict.name.replace('_', ' ')}"

    def sentences(self) -> list[str]:
        """Return what is known about the chosen pair, and what to do."""
        report, found = self.report, super().sentences()
        if report.epsilon_lower is not None:
            bound = f"epsilon >= {format_lower(report.epsilon_lower)} at delta {format_number(report.delta)}"
            scope = f"for these two datasets, from the witness (confidence {format_confidence(report.alpha)})"
            found.append(f"Proved: {bound}, {scope}.")
        if report.voiding:
            step = report.next_step
        elif report.refuted:
            step = "change the mechanism or the claim, then search again; the other pairs were not tested"
        else:
            step = "only this pair was tested; increase runs if another pair may leak rarely"
            step += "" if isinstance(self.pair, tuple) else ", or test all pairs with verify_pairs"
        return [*found, f"Next: {step}."]


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
    """Find the pair of datasets with the largest expected lower bound, and verify it.

    A list of pairs is searched in rounds: the pairs that may still be the worst one keep their runs and get at least as
    many again. A box is searched from several starting points along gradients that are estimated from runs. The report
    of the best pair uses test runs that the search has not used.

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
        Runs per dataset that the whole search may use. If the worst pair of a list is clear earlier, the runs that
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
    if settings.selection_epsilon is not None:
        raise InputError(
            f"selection_epsilon: found {settings.selection_epsilon}; expected None, because the selector of the paper "
            "gives no expected lower bound to search by"
        )
    searched = SearchedPairs.of(pairs, bounds)
    with call.open_engine() as engine:
        worst = searched.find_worst(mechanism, delta, tested, runs, settings, engine.executor)
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
