"""Training: the scores that compete, fitted to training runs.

The training runs that fit into memory give features, bins and moments. All further training runs are only counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.events.cells import Edges
from dpverify.events.partition import Partition, equal_mass, make_partition_of
from dpverify.events.scores import (
    SCORE_FAMILIES,
    SCORE_KINDS,
    Learner,
    LearnerCost,
    Levels,
    Score,
    TrainingData,
    UserScore,
)
from dpverify.events.scores.additive import coordinate_binning, monotone_ratio
from dpverify.events.scores.cell_score import CellScore, fit_cell_score
from dpverify.sampling.counts import CellCounter, Statistic, TableCounter, count_cells, occupied_codes
from dpverify.selection.context import SelectionContext, merge_results
from dpverify.selection.histograms import fine_edges, score_values
from dpverify.selection.proposals import SelectionCounts
from dpverify.selection.structured import promising_scores
from dpverify.selection.trees import grow_tree
from dpverify.util.parallel import map_parallel
from dpverify.util.read_only import call_read_only, read_only

EQUAL_MASS_CELL_COUNTS = (64, 512)
MIN_RUNS_PER_CELL = 50  # training runs, on average
MIN_RUNS_PER_LEAF = 25  # training runs
MIN_RUNS_PER_JOINT_CELL = 20  # training runs, on average, if all coordinates are binned jointly
SPLIT_RUNS_PER_CELL = 32  # runs that place the medians of equal-mass cells
MAX_SPLIT_COORDINATES = 9  # splits of the largest number of cells at medians; further coordinates are not split
MAX_TREE_RUNS = 1 << 17  # runs per data set that grow a tree
MAX_TREE_NUMBERS = 1 << 19  # numbers per data set that grow a tree that competes with scores
MIN_TREE_RUNS = 1 << 12
DEFAULT_TREE_LEAVES = 256
DEFAULT_LEVEL_CELLS = 64  # level sets of a score that serve as cells of unions
MAX_LISTED_PATTERNS = 256  # patterns of discrete values that need no score besides their own ratios


class TrainedCandidates(NamedTuple):
    """What training gives.

    Attributes
    ----------
    partition_counts : SelectionCounts or None
        The training counts of the given partition, if its cells compete.
    scores : list of Score
        The scores that compete.
    """

    partition_counts: SelectionCounts | None
    scores: list[Score]


def train_candidates(
    context: SelectionContext,
    given: Partition | None,
    training: TrainingData,
    samples: list[np.ndarray],
    known: set[tuple[int, int]],
) -> TrainedCandidates:
    """Fit the scores that compete.

    Parameters
    ----------
    context : SelectionContext
        The selection.
    given : Partition or None
        The partition that the settings name.
    training : TrainingData
        The finite ones of the kept training runs.
    samples, known
        The kept training runs of both data sets, and their blocks.
    """
    events = context.settings.events
    if callable(events):
        score = UserScore(events, context.shape)
        _check_row_by_row(score, samples[0])
        return TrainedCandidates(None, [score])
    if ":" in events:
        raise InputError(f"events: found the name {events!r}; expected the score function itself; pass the callable")
    partitions = CandidatePartitions([], False) if given is not None else _candidate_partitions(context, training)
    as_cells = events == "union" and given is None and training.dimension > 1
    learners: list[Learner] = []
    if (
        (events != "union" or as_cells)
        and events != "cell"
        and not context.nonfinite_event
        and not partitions.exhaustive
    ):
        learners = _choose_learners(context, training, as_cells)
    cell_partitions = [*([given] if given is not None and events != "score" else []), *partitions.partitions]
    statistics = [TableCounter(learner.statistic) for learner in learners if learner.statistic is not None]
    counters = [CellCounter(partition) for partition in cell_partitions]
    results = iter(_count_training_runs(context, [*statistics, *counters], samples, known))

    counted = [(None, None) if learner.statistic is None else next(results) for learner in learners]
    fitted = map_parallel(
        lambda one: one[0].fit(*one[1]), list(zip(learners, counted, strict=True)), training.pooled.size
    )
    scores: list[Score] = [score for own in fitted for score in own]
    if learners and not as_cells and context.budget.max_cost >= LearnerCost.STRUCTURED:
        scores += promising_scores(training, scores, context.runs["train"], context.objective.delta)
    if context.learn is not None and events != "cell":
        scores.append(learned_score(context, training, samples[0]))
    if as_cells:
        number = context.settings.resolution or DEFAULT_LEVEL_CELLS
        scores = [level_cell_score(score, samples, number) for score in scores]
    partition_counts = None
    for partition, (first, second) in zip(cell_partitions, results, strict=True):
        if partition is given:
            partition_counts = SelectionCounts(first, second, context.runs["train"])
        else:
            codes = occupied_codes(first, second)
            scores.append(fit_cell_score(partition, codes, first.of(codes), second.of(codes)))
    return TrainedCandidates(partition_counts, scores)


def learned_score(context: SelectionContext, training: TrainingData, samples: np.ndarray) -> Score:
    """Return the score that the user's learner fits to the finite ones of the kept training runs.

    A score of a kind that a report can hold is used as it is. It survives files and other processes. Any other callable
    is used like a score function of the user: a resumed run fits it again to the same training runs.
    """
    learn = context.learn
    assert learn is not None
    if context.nonfinite_event:
        raise InputError('learn: found nonfinite="event"; a learned score needs finite runs; use nonfinite="error"')
    sides = [read_only(side.reshape(-1, *context.shape)) for side in (training.first, training.second)]
    fitted = call_read_only(lambda both: learn(*both), sides, "learn")
    if isinstance(fitted, SCORE_KINDS):
        return fitted
    if isinstance(fitted, Score) or not callable(fitted):
        raise InputError(
            f"learn: found {type(fitted).__name__} as the result; expected a score: a callable from samples of shape "
            "(runs, steps, dimensions) to one number per run; return, for example, a method of the fitted model"
        )
    score = UserScore(fitted, context.shape, "learn")
    _check_row_by_row(score, samples)
    return score


def _check_row_by_row(score: UserScore, samples: np.ndarray) -> None:
    """Refuse a user's score whose value for one run depends on the other runs of the same call.

    Such a score makes the counts of a block dependent, and the test assumes independent runs.
    """
    half = len(samples) // 2
    whole = score_values(score, samples)
    parts = np.concatenate([score_values(score, part) for part in (samples[:half], samples[half:]) if len(part)])
    if not np.allclose(whole, parts, rtol=1e-6, atol=1e-9 * np.abs(whole).max(initial=0.0)):
        raise InputError(
            f"{score.argument}: found a score whose values for the same runs differ between one call and two calls; "
            "expected a score that maps each run on its own; do not centre, rank or normalise over the runs of a call"
        )


def _choose_learners(context: SelectionContext, training: TrainingData, as_cells: bool) -> list[Learner]:
    """Return the learners within the search budget. Level sets of the cheapest scores serve as cells."""
    most = LearnerCost.CHEAP if as_cells else min(context.budget.max_cost, LearnerCost.JOINT_FIT)
    return [learner for family in SCORE_FAMILIES if family.cost <= most for learner in family.learners(training)]


def _count_training_runs(
    context: SelectionContext,
    statistics: list[Statistic],
    samples: list[np.ndarray],
    known: set[tuple[int, int]],
) -> list[tuple[Any, Any]]:
    """Return the sums of each statistic over all training runs, as pairs (first data set, second data set)."""
    first, second = samples
    results = [(statistic.measure(first), statistic.measure(second)) for statistic in statistics]
    if len(known) // 2 * context.source.block < context.runs["train"]:
        further = context.count("train", statistics, known=known)
        results = merge_results(statistics, results, further)
    return results


def level_cell_score(score: Score, samples: list[np.ndarray], number: int) -> CellScore:
    """Return the level sets of a score as cells, scored by a monotone log-ratio of their counts.

    Unions of such cells can follow the shape of the likelihood ratio better than unions of boxes.
    """
    levels = Levels(score, fine_edges(np.concatenate([score_values(score, x) for x in samples]), number))
    codes = np.arange(levels.size)
    first, second = (count_cells(levels, x).of(codes) for x in samples)
    return CellScore(levels, codes, monotone_ratio(first, second), np.zeros(()))


class CandidatePartitions(NamedTuple):
    """Partitions whose cells compete. If `exhaustive`, no score can do better: every output value is a cell."""

    partitions: list[Partition]
    exhaustive: bool


def _candidate_partitions(context: SelectionContext, training: TrainingData) -> CandidatePartitions:
    """Return joint bins of all coordinates if values repeat, cells of equal mass, and the leaves of a tree."""
    settings, pooled = context.settings, training.pooled
    partitions = []
    if training.has_atoms:
        edges = Edges(coordinate_binning(training).edges, np.zeros(0, np.int64))
        joint = make_partition_of(context.region, edges, [], context.nonfinite_event)
        number = occupied_codes(count_cells(joint, pooled.reshape(len(pooled), *context.shape))).size
        if number * MIN_RUNS_PER_JOINT_CELL <= len(pooled):
            partitions.append(joint)
            few = training.dimension > 1 and number <= MAX_LISTED_PATTERNS
            if training.is_discrete and few and not settings.resolution:
                return CandidatePartitions(partitions, True)
    if settings.events == "auto" and not context.budget.partitions:
        return CandidatePartitions(partitions, False)
    cells_only = settings.events == "union" or context.nonfinite_event
    if cells_only or 1 < training.dimension <= MAX_SPLIT_COORDINATES:
        partitions += _equal_mass_partitions(context, training)
    if training.dimension > 1 and not context.nonfinite_event:
        partitions.append(tree_partition(context, training, MAX_TREE_NUMBERS // training.dimension))
    return CandidatePartitions(partitions, False)


def _equal_mass_partitions(context: SelectionContext, training: TrainingData) -> list[Partition]:
    """Return partitions with several numbers of cells; only the smallest number if values repeat."""
    pooled, resolution = training.pooled, context.settings.resolution
    sizes = (resolution,) if resolution else EQUAL_MASS_CELL_COUNTS
    most = 2 * context.runs["train"]
    sizes = [n for n in sizes if n == min(sizes) or n * MIN_RUNS_PER_CELL <= most]
    if training.has_atoms:
        sizes = sizes[:1]
    partitions = []
    for n in sizes:
        thinned = pooled[:: max(1, len(pooled) // (SPLIT_RUNS_PER_CELL * n))].reshape(-1, *context.shape)
        partitions.append(equal_mass(context.region, thinned, n, context.nonfinite_event, training.atoms))
    return partitions


def tree_partition(context: SelectionContext, training: TrainingData, runs: int = MAX_TREE_RUNS) -> Partition:
    """Return the leaves of a tree grown on this many training runs per data set, inside the region."""
    runs = min(MAX_TREE_RUNS, max(MIN_TREE_RUNS, runs))
    first, second = training.first[:runs], training.second[:runs]
    leaves = context.settings.resolution or DEFAULT_TREE_LEAVES
    tree = grow_tree(coordinate_binning(training), first, second, leaves, MIN_RUNS_PER_LEAF)
    return make_partition_of(context.region, tree, [], context.nonfinite_event)
