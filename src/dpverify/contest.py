"""The selection runs put to use: train candidates, let them compete on held-out runs, freeze the winner.

Half of the selection runs trains. As many of them as fit into memory are kept and give features, bins and moments; the
rest is only counted. The other half cuts: all candidates on its first runs, the best few on all of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from dpverify.arrays import add_counts, count, merge, occupied
from dpverify.errors import InputError
from dpverify.learning import (
    Binning,
    additive_scores,
    cell_score,
    grow_tree,
    innovations,
    make_binning,
    moment_scores,
    piecewise_score,
)
from dpverify.partition import Edges, Partition, equal_mass, find_atoms, with_cells
from dpverify.progress import Progress
from dpverify.region import Region
from dpverify.sampling import Cells, Measure, Meter, Source, Workers, collect, collect_samples
from dpverify.scores import Features, Levels, Score, UserScore
from dpverify.selection import (
    Aim,
    Event,
    Heat,
    Ruler,
    SelectionCounts,
    best_cell,
    best_cut,
    best_union,
    bounding_levels,
    fine_edges,
    paper_selector,
    score_values,
)
from dpverify.settings import Settings

KEPT_RUNS = 1 << 19  # a side
KEPT_NUMBERS = 1 << 22  # a side: 32 MB
GROWN = 1 << 17  # runs a side that grow a tree
HEAT_RUNS = 1 << 17  # a side, of the cut that all candidates run
FINALISTS = 3
CELLS = (16, 64, 256, 1024)  # of the equal-mass candidates
A_CELL = 50  # training runs at least, on average
A_LEAF = 25  # training runs at least
A_JOINT_CELL = 20  # training runs at least, on average, where all coordinates are binned at once
SPLITS = 1 << 15  # runs that place the medians of equal-mass cells
LEAVES = 256


class Chosen(NamedTuple):
    """Frozen before the first test run: the event, and the partition whose unions are bounded."""

    event: Event
    partition: Partition | Levels
    promise: float = math.nan  # the bound that the planned test runs are expected to give; the paper's has none


class Contest(NamedTuple):
    """What every part of the selection needs."""

    source: Source
    settings: Settings
    region: Region
    aim: Aim
    workers: Workers
    progress: Progress

    @property
    def train_runs(self) -> int:
        return self.settings.select_runs // 2

    @property
    def cut_runs(self) -> int:
        return self.settings.select_runs - self.train_runs

    def count(self, stage: str, runs: int, meters: tuple[Meter, ...], known: Collection[tuple[int, int]] = ()) -> Any:
        """Both sides' parts, (first, second)."""
        return collect(self.source, stage, runs, Measure(meters), self.workers, self.progress, known).parts


def choose_cell(contest: Contest, partition: Partition, rng: np.random.Generator) -> Chosen:
    """The paper's way: one cell of a given partition, from all selection runs."""
    meters = (Cells(partition),)
    train, cut = contest.count("train", contest.train_runs, meters), contest.count("cut", contest.cut_runs, meters)
    first, second = (add_counts([train[side][0], cut[side][0]]) for side in (0, 1))
    both = SelectionCounts(first, second, contest.settings.select_runs)
    if contest.settings.selection_epsilon is not None:
        return Chosen(paper_selector(partition, both, contest.settings.selection_epsilon, rng), partition)
    promise, event = best_cell(partition, both, contest.aim)
    return Chosen(event, partition, promise)


def choose(contest: Contest, given: Partition | None) -> Chosen:
    """The event with the highest promise among unions of cells and level sets of learned scores.

    `given` is the partition that the settings name; without one, the level sets of the winner are bounded.
    """
    settings, aim = contest.settings, contest.aim
    samples, known = keep_training_runs(contest)
    flats = [x.reshape(len(x), -1) for x in samples]
    if settings.partition == "tree":
        given = tree_partition(contest, flats, settings.resolution or LEAVES)
    trained, scores = train(contest, given, flats, samples, known)
    rulers = [Ruler(s, fine_edges(np.concatenate([score_values(s, x) for x in samples]))) for s in scores]
    cells, heats = run_heats(contest, given if trained else None, rulers)

    cuts = sorted((best_cut(ruler, heat, aim) for ruler, heat in heats), key=lambda cut: -cut.promise)
    if given is None:
        best = cuts[0]
        ruler, heat = next((r, h) for r, h in heats if r.score is best.score)
        levels = bounding_levels(best, ruler.edges, heat, aim, settings.resolution)
        return Chosen(best.event(levels), levels, best.promise)
    if cells is not None and trained is not None:
        best_of_cells = (
            best_cell(given, cells, aim) if settings.events == "cell" else best_union(given, trained, cells, aim)
        )
        if not cuts or best_of_cells[0] >= cuts[0].promise:
            return Chosen(best_of_cells[1], given, best_of_cells[0])
    return Chosen(cuts[0].event(), given, cuts[0].promise)


def run_heats(
    contest: Contest, given: Partition | None, rulers: list[Ruler]
) -> tuple[SelectionCounts | None, list[tuple[Ruler, Heat]]]:
    """Held-out counts: all candidates on the first of the cut runs, the best few on all of them."""
    block = contest.source.block
    cells = [] if given is None else [Cells(given)]
    runs = min(contest.cut_runs, max(HEAT_RUNS // block, 1) * block)
    parts = contest.count("cut", runs, (*cells, *rulers))

    def heats(runs: int) -> list[tuple[Ruler, Heat]]:
        ruled = zip(rulers, parts[0][len(cells) :], parts[1][len(cells) :], strict=True)
        return [(r, Heat((one.table, two.table), (one.extremes, two.extremes), runs)) for r, one, two in ruled]

    if runs < contest.cut_runs:
        promises = [best_cut(ruler, heat, contest.aim).promise for ruler, heat in heats(runs)]
        kept = sorted(np.argsort(promises, kind="stable")[-FINALISTS:].tolist())
        rulers = [rulers[i] for i in kept]
        places = [*range(len(cells)), *(i + len(cells) for i in kept)]
        drawn = {(side, b) for side in (0, 1) for b in range(runs // block)}
        rest = contest.count("cut", contest.cut_runs, (*cells, *rulers), drawn)
        parts = tuple(tuple(merge([parts[side][i], rest[side][j]]) for j, i in enumerate(places)) for side in (0, 1))
        runs = contest.cut_runs
    counted = SelectionCounts(parts[0][0], parts[1][0], runs) if cells else None
    return counted, heats(runs)


def keep_training_runs(contest: Contest) -> tuple[list[np.ndarray], set[tuple[int, int]]]:
    """As many whole blocks of training runs as fit, and which they are."""
    assert contest.source.shape is not None
    block = contest.source.block
    most = max(
        block, min(KEPT_RUNS, KEPT_NUMBERS // (contest.source.shape[0] * contest.source.shape[1])) // block * block
    )
    runs = min(contest.train_runs, most)
    samples = collect_samples(contest.source, "train", runs, contest.workers, contest.progress)
    return samples, {(side, b) for side in (0, 1) for b in range(-(-runs // block))}


def train(
    contest: Contest,
    given: Partition | None,
    flats: list[np.ndarray],
    samples: list[np.ndarray],
    known: set[tuple[int, int]],
) -> tuple[SelectionCounts | None, list[Score]]:
    """The given partition's training counts, and the scores that compete."""
    events = contest.settings.events
    if callable(events):
        return None, [UserScore(events, contest.source.shape)]  # type: ignore[arg-type]
    if ":" in events:
        raise InputError(f"events: found the name {events!r}; expected the score itself, a callable of samples")
    flats = [x[np.isfinite(x).all(1)] for x in flats]
    both = np.concatenate(flats)
    plain = Features(np.zeros(both.shape[1]), None)
    binnings: list[Binning] = []
    scores: list[Score] = []
    if events in ("auto", "score") and contest.settings.nonfinite == "error":
        new = innovations(*flats)
        scores = moment_scores(new, *flats)
        atoms = [len(values) for values in find_atoms(both)]
        if both.shape[1] == 1 or any(atoms):
            binnings.append(make_binning(plain, both))
        if both.shape[1] > 1 and not all(atoms):
            binnings.append(make_binning(new, both))
    partitions = candidate_partitions(contest, flats) if given is None else []
    mine = [given] if given is not None and events != "score" else []
    parts = [[b.measure(x) for b in binnings] + [count(p, x, p.size) for p in mine + partitions] for x in samples]
    if len(known) // 2 * contest.source.block < contest.train_runs:
        meters = (*binnings, *(Cells(p) for p in mine + partitions))
        more = contest.count("train", contest.train_runs, meters, known)
        parts = [[merge([a, b]) for a, b in zip(parts[side], more[side], strict=True)] for side in (0, 1)]
    pairs = list(zip(*parts, strict=True))
    for binning, tables in zip(binnings, pairs, strict=False):
        scores += additive_scores(binning, *tables)
        scores.append(piecewise_score(binning.features, *flats))
    rest = pairs[len(binnings) :]
    trained = SelectionCounts(*rest.pop(0), contest.train_runs) if mine else None
    scores += [cell_score(p, *pair) for p, pair in zip(partitions, rest, strict=True)]
    return trained, scores


def candidate_partitions(contest: Contest, flats: list[np.ndarray]) -> list[Partition]:
    """Cells of several kinds: bins of all coordinates at once where values repeat, equal mass, the leaves of a tree."""
    settings = contest.settings
    nonfinite = settings.nonfinite == "event"
    both = np.concatenate(flats)
    if not len(both):  # nothing but NaN
        both = np.zeros((1, flats[0].shape[1]))
        flats = [both, both]
    found = []
    discrete = any(map(len, find_atoms(both)))
    if discrete:
        binning = make_binning(Features(np.zeros(both.shape[1]), None), both)
        joint = with_cells(contest.region, Edges(binning.edges, np.zeros(0, np.int64)), nonfinite)
        shaped = both.reshape(len(both), *contest.source.shape)  # type: ignore[misc]
        if occupied(count(joint, shaped, joint.size)).size * A_JOINT_CELL <= len(both):
            found.append(joint)
    sizes = (settings.resolution,) if settings.resolution else CELLS
    if both.shape[1] > 1 or settings.events == "union" or nonfinite:
        few = both[:: max(1, len(both) // SPLITS)].reshape(-1, *contest.source.shape)  # type: ignore[misc]
        enough = [n for n in sizes if n == min(sizes) or n * A_CELL <= 2 * contest.train_runs]
        found += [equal_mass(contest.region, few, n, nonfinite) for n in (enough[:1] if discrete else enough)]
    if both.shape[1] > 1 and not nonfinite:
        found.append(tree_partition(contest, flats, settings.resolution or LEAVES))
    return found


def tree_partition(contest: Contest, flats: list[np.ndarray], leaves: int) -> Partition:
    """The leaves of a tree grown on the training runs, inside the region."""
    finite = [x[np.isfinite(x).all(1)][:GROWN] for x in flats]
    binning = make_binning(Features(np.zeros(flats[0].shape[1]), None), np.concatenate(finite))
    return with_cells(contest.region, grow_tree(binning, *finite, leaves, A_LEAF), contest.settings.nonfinite == "event")
