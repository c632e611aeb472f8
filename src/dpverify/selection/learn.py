"""Training: the scores that compete, fitted to training runs.

The training runs that fit into memory give features, bins and moments. All further training runs are only counted.

Scores with structure are fitted to some of the kept training runs, and the others choose a few of them. Most outputs
have none of the structures. Therefore every score is judged on few runs first, and only those that do about as well as
the best of the usual scores are counted on the proposal runs.

A tree is a partition that is fine where the distributions differ; the paper names adaptive partitions as future work.
The runs are binned once. A node is evaluated for all coordinates at once, from one table of counts per coordinate, bin
and dataset. Only the smaller child of a split is counted; the table of the other one is the difference to its parent.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.events.partition import Edges, Partition, Tree, equal_mass, make_partition_of, make_tree
from dpverify.events.scores import (
    SCORE_KINDS,
    SIMPLE_FAMILIES,
    USUAL_FAMILIES,
    Learner,
    Levels,
    Score,
    ScoreFamily,
    TrainingData,
    UserScore,
    evaluate_scores,
    fit_general,
)
from dpverify.events.scores.additive import Binning, coordinate_binning, monotone_ratio
from dpverify.events.scores.cell_score import CellScore, fit_cell_score
from dpverify.sampling.count import Block, CellCounter, Statistic, TableCounter, count_cells, occupied_codes
from dpverify.selection.objective import TUNING, KnownBlocks, SelectionContext, merge_results
from dpverify.selection.proposals import SelectionCounts, fine_edges, score_values
from dpverify.util.arrays import call_read_only, map_parallel, read_only


class Split(NamedTuple):
    """The best split of a node."""

    gain: float
    feature: int
    edge: int


class BinnedRuns(NamedTuple):
    """Runs of both datasets as cells of one table of counts.

    Attributes
    ----------
    cells : ndarray of shape (runs, coordinates)
        For each coordinate of a run, the index of its bin and dataset in the flat table.
    shape : tuple of int
        The shape of the table: coordinates, bins and 2.
    """

    cells: np.ndarray
    shape: tuple[int, int, int]

    def count(self, rows: np.ndarray) -> np.ndarray:
        """Return the table of some runs."""
        number = int(np.prod(self.shape))
        return np.bincount(self.cells[rows].ravel(), minlength=number).reshape(self.shape).astype(np.int32)

    def above(self, rows: np.ndarray, split: Split) -> np.ndarray:
        """Return which of these runs lie above the edge of a split."""
        bins_before = split.feature * self.shape[1] + split.edge + 1
        return self.cells[rows, split.feature] >= 2 * bins_before


class Node(NamedTuple):
    """A leaf of the growing tree that can be split: its number, its runs, their counts and its best split."""

    number: int
    rows: np.ndarray
    table: np.ndarray
    split: Split


def grow_tree(binning: Binning, first: np.ndarray, second: np.ndarray, leaves: int, least: int) -> Tree:
    """Grow a tree on training runs; the split with the largest gain in log-likelihood comes first.

    Parameters
    ----------
    binning : Binning
        Bins of the coordinates themselves, so that a leaf is a box.
    first, second : ndarray of shape (runs, coordinates)
        Training runs of both datasets.
    leaves : int
        The largest number of leaves.
    least : int
        The smallest number of training runs in a leaf.
    """
    runs = bin_runs(binning, first, second)
    # The log-likelihood of a node is a sum of these terms, so that no logarithm is needed later.
    whole_numbers = np.arange(len(runs.cells) + 1.0)
    terms = whole_numbers * np.log(np.maximum(whole_numbers, 1.0))
    feature, threshold, left, right, depth = [0], [0.0], [0], [0], [0]
    heap: list[tuple[float, int, Node]] = []

    def consider(number: int, rows: np.ndarray, table: np.ndarray) -> None:
        split = find_best_split(table, len(rows), terms, least)
        if split is not None:
            heapq.heappush(heap, (-split.gain, number, Node(number, rows, table, split)))

    rows = np.arange(len(runs.cells))
    consider(0, rows, runs.count(rows))
    n_leaves = 1
    while heap and n_leaves < leaves:
        _, number, node = heapq.heappop(heap)
        split = node.split
        feature[number], threshold[number] = split.feature, float(binning.edges[split.feature, split.edge])
        left[number], right[number] = len(feature), len(feature) + 1
        above = runs.above(node.rows, split)
        children = node.rows[~above], node.rows[above]
        smaller = int(len(children[1]) < len(children[0]))
        counted = runs.count(children[smaller])
        tables = [node.table - counted] * 2
        tables[smaller] = counted
        for child, table in zip(children, tables, strict=True):
            feature.append(0)
            threshold.append(0.0)
            left.append(len(left))
            right.append(len(right))
            depth.append(depth[number] + 1)
            consider(len(feature) - 1, child, table)
        n_leaves += 1
    return make_tree(feature, threshold, left, right, max(depth))


def bin_runs(binning: Binning, first: np.ndarray, second: np.ndarray) -> BinnedRuns:
    """Return the runs of both datasets as cells of one table of counts."""
    n_coordinates, n_bins = len(binning.edges), binning.edges.shape[1] + 1
    cells = np.concatenate([binning.bins(first), binning.bins(second)]).astype(np.int32)
    cells += n_bins * np.arange(n_coordinates, dtype=np.int32)
    cells *= 2
    cells[len(first) :] += 1
    return BinnedRuns(cells, (n_coordinates, n_bins, 2))


def find_best_split(table: np.ndarray, runs: int, terms: np.ndarray, least: int) -> Split | None:
    """Return the best split of a node over all coordinates; None if no split is significant.

    Parameters
    ----------
    table : ndarray of shape (coordinates, bins, 2)
        The counts of the node.
    runs : int
        The runs of the node.
    terms : ndarray
        The terms `n log n` for the whole numbers n.
    least : int
        The smallest number of runs in a leaf.
    """
    if runs < 2 * least:
        return None
    total1, total2 = (int(total) for total in table[0].sum(axis=0))
    # Both datasets in arrays of their own: sums over an axis of length 2 are slow.
    lower1, lower2 = (np.cumsum(table[:, :-1, side], axis=1) for side in (0, 1))
    below = lower1 + lower2
    likelihood = terms.take(lower1) + terms.take(lower2)
    likelihood -= terms.take(below)
    likelihood += terms.take(total1 - lower1) + terms.take(total2 - lower2)
    likelihood -= terms.take(runs - below)
    likelihood[(below < least) | (below > runs - least)] = -np.inf
    unsplit = terms[total1] + terms[total2] - terms[runs]
    coordinate, edge = np.unravel_index(int(np.argmax(likelihood)), likelihood.shape)
    gain = float(likelihood[coordinate, edge] - unsplit)
    return Split(gain, int(coordinate), int(edge)) if gain > TUNING.min_split_gain else None


def promising_scores(
    families: tuple[ScoreFamily, ...], training: TrainingData, usual: list[Score], delta: float
) -> list[Score]:
    """Return the structured scores that separate held-out runs about as well as the usual scores, or better.

    All learners are fitted to few runs. Those with promising scores are fitted again to more runs.

    Parameters
    ----------
    families : tuple of ScoreFamily
        The families of structured scores.
    training : TrainingData
        The kept training runs.
    usual : list of Score
        The scores that compete in any case. They were fitted to all training runs, so that they look slightly better
        than they are.
    delta : float
        The claimed delta.
    """
    runs = min(len(training.first), len(training.second))
    if not families or training.dimension == 1 or runs < TUNING.min_structured_runs:
        return []
    held_out = min(TUNING.max_held_out_runs, runs // TUNING.held_out_share)
    judging = training.first[-held_out:], training.second[-held_out:]
    least = TUNING.least_separation * max(separations(usual, judging, delta), default=0.0)
    chosen: set[tuple[int, int]] | None = None  # the promising learners, as numbers of family and learner
    scores: list[Score] = []
    for limit in (TUNING.screening_runs, TUNING.structured_runs):
        part = training.head(min(limit, runs - held_out))
        fitted: list[tuple[Score, tuple[int, int]]] = []
        for f, family in enumerate(families):
            if chosen is None or any(one[0] == f for one in chosen):
                for n, learner in enumerate(family(part)):
                    if chosen is None or (f, n) in chosen:
                        fitted += [(score, (f, n)) for score in learner.fit()]
        own = separations([score for score, _ in fitted], judging, delta)
        best = [i for i in np.argsort(-own, kind="stable")[: TUNING.max_structured].tolist() if own[i] > least]
        chosen, scores = {fitted[i][1] for i in best}, [fitted[i][0] for i in sorted(best)]
        if not scores or runs - held_out <= limit:
            break
    return scores


def separations(scores: list[Score], runs: tuple[np.ndarray, np.ndarray], delta: float) -> np.ndarray:
    """Return the separation of the runs of both datasets by each score."""
    values = zip(*(evaluate_scores(scores, side) for side in runs), strict=True)
    return np.array([separation(first, second, delta) for first, second in values])


def separation(first: np.ndarray, second: np.ndarray, delta: float) -> float:
    """Return the largest log-ratio of counts above or below a threshold, less standard errors."""
    pooled = np.concatenate([first, second])
    if not np.isfinite(pooled).all():
        return -np.inf
    order = np.argsort(pooled, kind="stable")
    is_last = np.append(np.diff(pooled[order]) > 0, False)  # of equal values; the threshold above all is left out
    below1 = np.cumsum(order < len(first))[is_last]
    below2 = np.cumsum(order >= len(first))[is_last]
    if not below1.size:
        return 0.0
    above1, above2 = len(first) - below1, len(second) - below2
    largest = 0.0
    for c1, c2, runs in ((above1, above2, len(first)), (below2, below1, len(second))):
        excess = c1 + 0.5 - delta * runs
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.sqrt((c1 + 0.5) / excess**2 + 1 / (c2 + 0.5))
            ratios = np.where(excess > 0, np.log(excess / (c2 + 0.5)) - TUNING.separation_errors * error, 0.0)
        largest = max(largest, float(ratios.max()))
    return largest


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
        The kept training runs of both datasets, and their blocks.
    """
    events = context.settings.events
    if callable(events):
        score = UserScore(events, context.shape)
        score.check_row_by_row(samples[0])
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
        # Level sets of the simplest scores serve as cells.
        families = SIMPLE_FAMILIES if as_cells else USUAL_FAMILIES
        learners = [learner for family in families for learner in family(training)]
    cell_partitions = [*([given] if given is not None and events != "score" else []), *partitions.partitions]
    statistics = [TableCounter(learner.statistic) for learner in learners if learner.statistic is not None]
    counters = [CellCounter(partition) for partition in cell_partitions]
    results = iter(count_training_runs(context, [*statistics, *counters], samples, known))

    counted = [() if learner.statistic is None else next(results) for learner in learners]
    fitted = map_parallel(
        lambda one: one[0].fit(*one[1]), list(zip(learners, counted, strict=True)), training.pooled.size
    )
    scores: list[Score] = [score for own in fitted for score in own]
    if learners and not as_cells:
        scores += promising_scores(context.budget.structured, training, scores, context.objective.delta)
        if context.budget.general:  # not in a thread, because scikit-learn has its own
            scores += fit_general(training)
    if context.learn is not None and events != "cell":
        scores.append(learned_score(context, training, samples[0]))
    if context.log_ratio is not None and events in ("auto", "score"):
        scores.append(context.log_ratio)
    if as_cells:
        number = context.settings.resolution or TUNING.level_cells
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
    score.check_row_by_row(samples)
    return score


def count_training_runs(
    context: SelectionContext,
    statistics: Sequence[Statistic],
    samples: list[np.ndarray],
    known: KnownBlocks,
) -> list[tuple[Any, Any]]:
    """Return the sums of each statistic over all training runs, as pairs (first dataset, second dataset)."""
    first, second = samples
    results = [(one.measure(Block(first)), one.measure(Block(second))) for one in statistics]
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
        joint = make_partition_of(context.region, edges, [])
        number = occupied_codes(count_cells(joint, pooled.reshape(len(pooled), *context.shape))).size
        if number * TUNING.min_runs_per_joint_cell <= len(pooled):
            partitions.append(joint)
            few = training.dimension > 1 and number <= TUNING.max_listed_patterns
            if training.is_discrete and few and not settings.resolution:
                return CandidatePartitions(partitions, True)
    if settings.events == "auto" and not (context.budget.partitions or context.nonfinite_event):
        return CandidatePartitions(partitions, False)
    cells_only = settings.events == "union" or context.nonfinite_event
    if cells_only or 1 < training.dimension <= TUNING.max_split_coordinates:
        partitions += _equal_mass_partitions(context, training)
    if training.dimension > 1:
        partitions.append(tree_partition(context, training, TUNING.max_tree_numbers // training.dimension))
    return CandidatePartitions(partitions, False)


def _equal_mass_partitions(context: SelectionContext, training: TrainingData) -> list[Partition]:
    """Return partitions with several numbers of cells; only the smallest number if values repeat."""
    pooled, resolution = training.pooled, context.settings.resolution
    sizes = (resolution,) if resolution else TUNING.equal_mass_cells
    most = 2 * context.runs["train"]
    sizes = [n for n in sizes if n == min(sizes) or n * TUNING.min_runs_per_cell <= most]
    if training.has_atoms:
        sizes = sizes[:1]
    partitions = []
    for n in sizes:
        thinned = pooled[:: max(1, len(pooled) // (TUNING.split_runs_per_cell * n))].reshape(-1, *context.shape)
        partitions.append(equal_mass(context.region, thinned, n, training.atoms))
    return partitions


def tree_partition(context: SelectionContext, training: TrainingData, runs: int = TUNING.max_tree_runs) -> Partition:
    """Return the leaves of a tree grown on this many training runs per dataset, inside the region."""
    runs = min(TUNING.max_tree_runs, max(TUNING.min_tree_runs, runs))
    first, second = training.first[:runs], training.second[:runs]
    leaves = context.settings.resolution or TUNING.tree_leaves
    tree = grow_tree(coordinate_binning(training), first, second, leaves, TUNING.min_runs_per_leaf)
    return make_partition_of(context.region, tree, [])
