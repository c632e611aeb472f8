"""The selection runs put to use: train candidates, let them compete on held-out runs, freeze the winner.

Half of the selection runs trains. As many of them as fit into memory are kept and give features, bins and moments; the
rest is only counted. A quarter cuts: each score proposes events, rare ones and frequent ones. The last quarter decides
between the few that were proposed, so that the luck of being the best of thousands plays no part.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.events.event import Event
from dpverify.events.partition import Edges, Partition, equal_mass, find_atoms, partition_from_cells
from dpverify.events.region import Region
from dpverify.events.scores import CellScore, Features, Levels, Score, UserScore
from dpverify.sampling.accumulators import CellCounter, Statistic, Statistics, merge_results
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.counts import Counts, count_cells, occupied_codes
from dpverify.sampling.executors import WorkerPool
from dpverify.sampling.stages import collect_samples, collect_statistics
from dpverify.selection.learning import (
    Binning,
    additive_scores,
    cell_score,
    innovations,
    make_binning,
    make_pattern_binning,
    moment_scores,
    monotone_ratio,
    pattern_score,
    piecewise_score,
)
from dpverify.selection.proposals import (
    BinnedScore,
    PairedHistogram,
    Proposal,
    SelectionCounts,
    SelectionObjective,
    bounding_levels,
    decided_bound,
    fine_edges,
    level_event,
    paper_selector,
    prefer_simpler,
    propose_cells,
    propose_levels,
    propose_unions,
    score_values,
    threshold_of,
)
from dpverify.selection.trees import grow_tree
from dpverify.settings import Settings
from dpverify.util.progress import Progress

KnownBlocks = Collection[tuple[int, int]]  # blocks, (side, number)

MAX_KEPT_NUMBERS = 1 << 22  # a side: 32 MB
MAX_TREE_RUNS = 1 << 17  # runs a side that grow a tree
RANKING_RUNS = 1 << 18  # a side, of the cut that all candidates run
FINALISTS = 4
MAX_EDGE_RUNS = 1 << 17  # runs a side that place the edges of a score
EQUAL_MASS_CELL_COUNTS = (64, 512)  # of the equal-mass candidates
MIN_RUNS_PER_CELL = 50  # training runs at least, on average
MIN_RUNS_PER_LEAF = 25  # training runs at least
MIN_RUNS_PER_JOINT_CELL = 20  # training runs at least, on average, where all coordinates are binned at once
MAX_SPLIT_RUNS = 1 << 15  # runs that place the medians of equal-mass cells
DEFAULT_TREE_LEAVES = 256
DEFAULT_LEVEL_CELLS = 64  # level sets of a score that stand in for boxes
MAX_LISTED_PATTERNS = 256  # patterns of discrete values that need no score but their own ratios
DISCRETE_CHECK_RUNS = 1 << 14  # runs that tell whether all values repeat


class SelectedEvent(NamedTuple):
    """Frozen before the first test run: the event, and the partition whose unions are bounded."""

    event: Event
    partition: Partition | Levels
    promise: float = math.nan  # the bound that the planned test runs are expected to give; the paper's has none


class SearchBudget(NamedTuple):
    """How much is tried: runs kept a side, whether the costly candidates compete, and the charge that decides."""

    kept: int
    costly: bool
    caution: float  # standard errors; without a charge the luckiest tiny event would win


THOROUGH_SEARCH = SearchBudget(1 << 19, True, 1.85)
QUICK_SEARCH = SearchBudget(1 << 16, False, 1.0)  # compares pairs: what is rare shows late, so doubt counts less


class SelectionContext(NamedTuple):
    """What every part of the selection needs."""

    source: SampleSource
    settings: Settings
    region: Region
    aim: SelectionObjective
    workers: WorkerPool
    progress: Progress
    effort: SearchBudget = THOROUGH_SEARCH

    @property
    def runs(self) -> dict[str, int]:
        """Half of the selection runs train, a quarter proposes events, a quarter decides between them."""
        n = self.settings.select_runs
        train, decide_event = n // 2, max(1, n // 4)
        return {"train": train, "cut": max(1, n - train - decide_event), "decide": decide_event}

    def count(self, stage: str, meters: Sequence[Statistic], runs: int | None = None, known: KnownBlocks = ()) -> Any:
        """Both sides' parts, (first, second)."""
        runs = self.runs[stage] if runs is None else runs
        return collect_statistics(
            self.source, stage, runs, Statistics(tuple(meters)), self.workers, self.progress, known
        ).parts


def select_cell(contest: SelectionContext, partition: Partition, rng: np.random.Generator) -> SelectedEvent:
    """The paper's way: the worst cell of a given partition, from all selection runs."""
    assert contest.settings.selection_epsilon is not None
    parts = [contest.count(stage, (CellCounter(partition),)) for stage in contest.runs]
    first, second = (Counts.merge([part[side][0] for part in parts]) for side in (0, 1))
    both = SelectionCounts(first, second, sum(contest.runs.values()))
    return SelectedEvent(paper_selector(partition, both, contest.settings.selection_epsilon, rng), partition)


def select_event(contest: SelectionContext, given: Partition | None) -> SelectedEvent:
    """The event with the highest promise among unions of cells and level sets of learned scores.

    `given` is the partition that the settings name; without one, the level sets of the winner are bounded.
    """
    settings, aim = contest.settings, contest.aim
    samples, known = draw_training_runs(contest)
    seen = summarise(samples)
    if settings.partition == "tree":
        given = tree_partition(contest, seen)
    trained, scores = train(contest, given, seen, samples, known)
    rulers = [
        BinnedScore(s, fine_edges(np.concatenate([score_values(s, x[:MAX_EDGE_RUNS]) for x in samples])))
        for s in scores
    ]
    held, heats = count_candidates(contest, given if trained else None, rulers)

    proposals: list[Proposal] = []
    for ruler, heat in heats:
        proposals += propose_levels(ruler, heat, aim)[1]
    if given is not None and trained is not None and held is not None:
        cell = settings.events == "cell"
        proposals += propose_cells(given, held, aim) if cell else propose_unions(given, trained, held, aim)
    event, promise = decide_event(contest, proposals)
    if given is not None:
        return SelectedEvent(event, given, promise)
    ruler, heat = next((r, h) for r, h in heats if r.score is event.partition.score)  # type: ignore[union-attr]
    levels = bounding_levels(event, promise, ruler, heat, aim, settings.resolution)
    return SelectedEvent(level_event(levels, threshold_of(event), event.direction), levels, promise)


def count_candidates(
    contest: SelectionContext, given: Partition | None, rulers: list[BinnedScore]
) -> tuple[SelectionCounts | None, list[tuple[BinnedScore, PairedHistogram]]]:
    """Counts that propose: of all candidates on the first of the cut runs, of the best few on all of them."""
    block, runs = contest.source.block, contest.runs["cut"]
    cells = [] if given is None else [CellCounter(given)]
    early = min(runs, max(RANKING_RUNS // block, 1) * block)
    parts = contest.count("cut", (*cells, *rulers), early)

    def heats(runs: int) -> list[tuple[BinnedScore, PairedHistogram]]:
        ruled = zip(rulers, parts[0][len(cells) :], parts[1][len(cells) :], strict=True)
        return [
            (r, PairedHistogram((one.table, two.table), (one.extremes, two.extremes), runs)) for r, one, two in ruled
        ]

    if early < runs:
        promises = [propose_levels(ruler, heat, contest.aim)[0] for ruler, heat in heats(early)]
        kept = sorted(np.argsort(promises, kind="stable")[-FINALISTS:].tolist())
        rulers = [rulers[i] for i in kept]
        places = [*range(len(cells)), *(i + len(cells) for i in kept)]
        drawn = {(side, b) for side in (0, 1) for b in range(early // block)}
        rest = contest.count("cut", (*cells, *rulers), runs, drawn)
        parts = tuple(
            merge_results((*cells, *rulers), [parts[side][i] for i in places], rest[side]) for side in (0, 1)
        )
    held = SelectionCounts(parts[0][0], parts[1][0], runs) if cells else None
    return held, heats(runs)


def decide_event(contest: SelectionContext, proposals: list[Proposal]) -> tuple[Event, float]:
    """The event that promises most once runs have their say that proposed none of them."""
    partitions = list({id(p.event.partition): p.event.partition for p in proposals}.values())
    parts = contest.count("decide", [CellCounter(partition) for partition in partitions])
    runs = contest.runs["cut"] + contest.runs["decide"]
    found = []
    for proposal in proposals:
        at = next(i for i, partition in enumerate(partitions) if partition is proposal.event.partition)
        found.append(decided_bound(proposal, parts[0][at], parts[1][at], runs, contest.aim))
    return prefer_simpler(found)


def draw_training_runs(contest: SelectionContext) -> tuple[list[np.ndarray], set[tuple[int, int]]]:
    """As many whole blocks of training runs as fit, and which they are."""
    assert contest.source.shape is not None
    block = contest.source.block
    fit = min(contest.effort.kept, MAX_KEPT_NUMBERS // (contest.source.shape[0] * contest.source.shape[1]))
    most = max(block, fit // block * block)
    runs = min(contest.runs["train"], most)
    samples = collect_samples(contest.source, "train", runs, contest.workers, contest.progress)
    return samples, {(side, b) for side in (0, 1) for b in range(-(-runs // block))}


class TrainingSummary(NamedTuple):
    """Finite training runs, flat, of each side and of both together, and the values that repeat in each coordinate."""

    flats: list[np.ndarray]
    both: np.ndarray
    atoms: list[np.ndarray]
    discrete: bool  # all values do

    @property
    def plain(self) -> Features:
        return Features(np.zeros(self.both.shape[1]), None)


def summarise(samples: list[np.ndarray]) -> TrainingSummary:
    flats = [x.reshape(len(x), -1) for x in samples]
    flats = [x[np.isfinite(x).all(1)] for x in flats]
    both = np.concatenate(flats)
    if not len(both):  # nothing but NaN
        both = np.zeros((1, both.shape[1]))
        flats = [both, both]
    atoms = find_atoms(both)
    discrete = all(
        np.isin(column[:DISCRETE_CHECK_RUNS], values).all() for column, values in zip(both.T, atoms, strict=True)
    )
    return TrainingSummary(flats, both, atoms, discrete)


def train(
    contest: SelectionContext,
    given: Partition | None,
    seen: TrainingSummary,
    samples: list[np.ndarray],
    known: set[tuple[int, int]],
) -> tuple[SelectionCounts | None, list[Score]]:
    """The given partition's training counts, and the scores that compete."""
    events = contest.settings.events
    if callable(events):
        return None, [UserScore(events, contest.source.shape)]  # type: ignore[arg-type]
    if ":" in events:
        raise InputError(f"events: found the name {events!r}; expected the score itself, a callable of samples")
    flats, both, atoms, _ = seen
    binnings: list[Binning] = []
    pattern = None
    scores: list[Score] = []
    partitions, enough = candidate_partitions(contest, seen) if given is None else ([], False)
    sliced = events == "union" and given is None and both.shape[1] > 1
    if (events in ("auto", "score") or sliced) and contest.settings.nonfinite == "error" and not enough:
        new = innovations(*flats)
        scores = moment_scores(new, *flats)
        if both.shape[1] == 1 or any(map(len, atoms)):
            binnings.append(make_binning(seen.plain, both, atoms))
        if both.shape[1] > 1 and not all(map(len, atoms)):
            binnings.append(make_binning(new, both, atoms))
        pattern = None if sliced else make_pattern_binning(both, atoms)
    mine = [given] if given is not None and events != "score" else []
    meters = (*binnings, *filter(None, [pattern]), *(CellCounter(p) for p in mine + partitions))
    parts = [[meter.measure(x) for meter in meters] for x in samples]
    if len(known) // 2 * contest.source.block < contest.runs["train"]:
        more = contest.count("train", meters, known=known)
        parts = [merge_results(meters, parts[side], more[side]) for side in (0, 1)]
    pairs = list(zip(*parts, strict=True))
    for binning, tables in zip(binnings, pairs, strict=False):
        scores += additive_scores(binning, *tables)
        # On one coordinate counting alone is as good as a joint fit, and faster.
        if both.shape[1] > 1 and contest.effort.costly and not sliced:
            scores.append(piecewise_score(binning.features, *flats))
    rest = pairs[len(binnings) :]
    if pattern is not None:
        scores.append(pattern_score(pattern, *rest.pop(0)))
    if sliced:
        slices = contest.settings.resolution or DEFAULT_LEVEL_CELLS
        scores = [level_cell_score(score, samples, slices) for score in scores]
    trained = None
    if mine:
        one, two = rest.pop(0)
        trained = SelectionCounts(one, two, contest.runs["train"])
    scores += [cell_score(p, *pair) for p, pair in zip(partitions, rest, strict=True)]
    return trained, scores


def level_cell_score(score: Score, samples: list[np.ndarray], slices: int) -> CellScore:
    """The level sets of a score as cells, by their ratio of counts made monotone along it: boxes are blunt."""
    levels = Levels(score, fine_edges(np.concatenate([score_values(score, x) for x in samples]), slices))
    codes = np.arange(levels.size)
    c1, c2 = (count_cells(levels, x).of(codes) for x in samples)
    return CellScore(levels, codes, monotone_ratio(c1, c2), np.zeros(()))


def candidate_partitions(contest: SelectionContext, seen: TrainingSummary) -> tuple[list[Partition], bool]:
    """Cells of several kinds: bins of all coordinates at once where values repeat, equal mass, the leaves of a tree.

    True says that nothing else is worth a try: a few patterns of values are all there is, and each is a cell.
    """
    settings, both = contest.settings, seen.both
    nonfinite = settings.nonfinite == "event"
    found = []
    repeated = any(map(len, seen.atoms))
    if repeated:
        binning = make_binning(seen.plain, both, seen.atoms)
        joint = partition_from_cells(contest.region, Edges(binning.edges, np.zeros(0, np.int64)), nonfinite)
        shaped = both.reshape(len(both), *contest.source.shape)  # type: ignore[misc]
        number = occupied_codes(count_cells(joint, shaped)).size
        if number * MIN_RUNS_PER_JOINT_CELL <= len(both):
            found.append(joint)
            if seen.discrete and both.shape[1] > 1 and number <= MAX_LISTED_PATTERNS and not settings.resolution:
                return found, True
    if settings.events == "auto" and not contest.effort.costly:
        return found, False
    sizes = (settings.resolution,) if settings.resolution else EQUAL_MASS_CELL_COUNTS
    if both.shape[1] > 1 or settings.events == "union" or nonfinite:
        few = both[:: max(1, len(both) // MAX_SPLIT_RUNS)].reshape(-1, *contest.source.shape)  # type: ignore[misc]
        enough = [n for n in sizes if n == min(sizes) or n * MIN_RUNS_PER_CELL <= 2 * contest.runs["train"]]
        found += [equal_mass(contest.region, few, n, nonfinite) for n in (enough[:1] if repeated else enough)]
    if both.shape[1] > 1 and not nonfinite:
        found.append(tree_partition(contest, seen))
    return found, False


def tree_partition(contest: SelectionContext, seen: TrainingSummary) -> Partition:
    """The leaves of a tree grown on the training runs, inside the region."""
    some = [x[:MAX_TREE_RUNS] for x in seen.flats]
    binning = make_binning(seen.plain, np.concatenate(some), seen.atoms)
    tree = grow_tree(binning, some[0], some[1], contest.settings.resolution or DEFAULT_TREE_LEAVES, MIN_RUNS_PER_LEAF)
    return partition_from_cells(contest.region, tree, contest.settings.nonfinite == "event")
