"""The selection runs put to use: train candidates, let them compete on held-out runs, freeze the winner.

Half of the selection runs trains. As many of them as fit into memory are kept and give features, bins and moments; the
rest is only counted. The other half cuts: all candidates on its first runs, the best few on all of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.arrays import Counts, add_counts, count, merge
from dpverify.learning import additive_scores, cell_score, grow_tree, innovations, make_binning, moment_scores
from dpverify.partition import Partition, equal_mass, find_atoms, grid, with_cells
from dpverify.progress import Progress
from dpverify.region import Region
from dpverify.sampling import Cells, Measure, Source, Workers, collect, collect_samples
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

KEPT_RUNS = 1 << 17  # a side
KEPT_NUMBERS = 1 << 23  # a side: 64 MB
HEAT_RUNS = 1 << 17  # a side, of the cut that all candidates run
FINALISTS = 3
CELLS = (16, 64, 256, 1024)  # of the equal-mass candidates
A_CELL = 50  # training runs at least, on average
A_LEAF = 25  # training runs at least
SPLITS = 1 << 15  # runs that place the medians of equal-mass cells
LEAVES = 256


class Chosen(NamedTuple):
    """Frozen before the first test run: the event, and the partition whose unions are bounded."""

    event: Event
    partition: Partition | Levels


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

    def count(self, stage: str, runs: int, meters: tuple, known=()):  # noqa: ANN001
        """Both sides' parts, (first, second)."""
        return collect(self.source, stage, runs, Measure(meters), self.workers, self.progress, known).parts


def choose_cell(contest: Contest, partition: Partition, rng: np.random.Generator) -> Chosen:
    """The paper's way: one cell of a given partition, from all selection runs."""
    halves = [contest.count(stage, runs, (Cells(partition),)) for stage, runs in (("train", contest.train_runs), ("cut", contest.cut_runs))]
    both = SelectionCounts(*(add_counts([half[side][0] for half in halves]) for side in (0, 1)), contest.settings.select_runs)
    if contest.settings.selection_epsilon is not None:
        return Chosen(paper_selector(partition, both, contest.settings.selection_epsilon, rng), partition)
    return Chosen(best_cell(partition, both, contest.aim)[1], partition)


def choose(contest: Contest, given: Partition | None) -> Chosen:
    """The event with the highest promise among unions of cells and level sets of learned scores.

    `given` is the partition that the settings name; without one, the level sets of the winner are bounded.
    """
    settings = contest.settings
    samples, known = keep_training_runs(contest)
    flats = [x.reshape(len(x), -1) for x in samples]
    if settings.partition == "tree":
        given = tree_partition(contest, flats, settings.resolution or LEAVES)
        if settings.events == "cell":
            (c1,), (c2,) = contest.count("cut", contest.cut_runs, (Cells(given),))
            return Chosen(best_cell(given, SelectionCounts(c1, c2, contest.cut_runs), contest.aim)[1], given)
    trained, candidates = train(contest, given, flats, samples, known)

    meters = [Ruler(score, fine_edges(np.concatenate([score_values(score, x) for x in samples]))) for score in candidates]
    cells = (Cells(given),) if given is not None and settings.events in ("auto", "union") else ()
    first = min(contest.cut_runs, max(HEAT_RUNS // contest.source.block, 1) * contest.source.block)
    heat = contest.count("cut", first, (*cells, *meters))
    runs = first
    if first < contest.cut_runs:
        ranked = sorted(range(len(meters)), key=lambda i: -_cut(meters[i], heat, i + len(cells), runs, contest.aim).promise)
        kept = sorted(ranked[:FINALISTS])
        meters = [meters[i] for i in kept]
        places = [*range(len(cells)), *(i + len(cells) for i in kept)]
        drawn = {(side, block) for side in (0, 1) for block in range(first // contest.source.block)}
        rest = contest.count("cut", contest.cut_runs, (*cells, *meters), drawn)
        heat = tuple(tuple(merge([heat[s][i], rest[s][j]]) for j, i in enumerate(places)) for s in (0, 1))
        runs = contest.cut_runs

    found = [_cut(meter, heat, i + len(cells), runs, contest.aim) for i, meter in enumerate(meters)]
    best = max(found, key=lambda cut: cut.promise) if found else None
    if cells and given is not None:
        assert trained is not None
        promise, event = best_union(given, trained, SelectionCounts(heat[0][0], heat[1][0], runs), contest.aim)
        if best is None or promise >= best.promise:
            return Chosen(event, given)
    assert best is not None
    if given is not None:
        return Chosen(best.event(), given)
    at = found.index(best)
    levels = bounding_levels(best, meters[at].edges, _heat(heat, at + len(cells), runs), contest.aim, settings.resolution)
    return Chosen(best.event(levels), levels)


def _heat(parts: tuple, at: int, runs: int) -> Heat:
    one, two = parts[0][at], parts[1][at]
    return Heat((one.table, two.table), (one.extremes, two.extremes), runs)


def _cut(ruler: Ruler, parts: tuple, at: int, runs: int, aim: Aim):
    return best_cut(ruler.score, ruler.edges, _heat(parts, at, runs), aim)


def keep_training_runs(contest: Contest) -> tuple[list[np.ndarray], set[tuple[int, int]]]:
    """As many whole blocks of training runs as fit, and which they are."""
    assert contest.source.shape is not None
    block = contest.source.block
    most = max(block, min(KEPT_RUNS, KEPT_NUMBERS // (contest.source.shape[0] * contest.source.shape[1])) // block * block)
    runs = min(contest.train_runs, most)
    samples = collect_samples(contest.source, "train", runs, contest.workers, contest.progress)
    return samples, {(side, b) for side in (0, 1) for b in range(-(-runs // block))}


def train(
    contest: Contest, given: Partition | None, flats: list[np.ndarray], samples: list[np.ndarray], known: set[tuple[int, int]]
) -> tuple[SelectionCounts | None, list[Score]]:
    """The given partition's training counts, and the scores that compete."""
    settings, dimension = contest.settings, flats[0].shape[1]
    events = settings.events
    if callable(events):
        return None, [UserScore(events, contest.source.shape)]  # type: ignore[arg-type]
    learned = events in ("auto", "score") and settings.nonfinite == "error"
    partitions = candidate_partitions(contest, flats) if given is None else []
    binnings, scores = [], []
    if learned:
        both = np.concatenate(flats)
        plain = Features(np.zeros(dimension), None)
        new = innovations(*flats)
        scores = moment_scores(new, *flats)
        atoms = find_atoms(both)
        if dimension == 1 or any(map(len, atoms)):
            binnings.append(make_binning(plain, both))
        if dimension > 1 and not all(map(len, atoms)):
            binnings.append(make_binning(new, both))
    counted = ([given] if given is not None and events in ("auto", "union") else []) + partitions
    parts = [[m.measure(x) for m in binnings] + [count(p, x, p.size) for p in counted] for x in samples]
    if len(known) // 2 * contest.source.block < contest.train_runs:
        more = contest.count("train", contest.train_runs, (*binnings, *(Cells(p) for p in counted)), known)
        parts = [[merge([a, b]) for a, b in zip(parts[side], more[side], strict=True)] for side in (0, 1)]
    for i, binning in enumerate(binnings):
        scores += additive_scores(binning, parts[0][i], parts[1][i])
    pairs: list[tuple[Counts, Counts]] = list(zip(parts[0][len(binnings) :], parts[1][len(binnings) :], strict=True))
    trained = None
    if given is not None and counted:
        trained = SelectionCounts(*pairs.pop(0), contest.train_runs)
    scores += [cell_score(p, *pair) for p, pair in zip(partitions, pairs, strict=True)]
    return trained, scores


def candidate_partitions(contest: Contest, flats: list[np.ndarray]) -> list[Partition]:
    """Cells of several sizes: atoms, equal mass, and the leaves of a tree."""
    settings = contest.settings
    shape = contest.source.shape
    nonfinite = settings.nonfinite == "event"
    both = np.concatenate(flats)
    finite = both[np.isfinite(both).all(1)] if nonfinite else both
    if not len(finite):
        finite = np.zeros((1, both.shape[1]))
    discrete = any(len(values) for values in find_atoms(finite))
    few = finite[:: max(1, len(finite) // SPLITS)].reshape(-1, *shape)  # type: ignore[misc]
    found = [grid(contest.region, few, 1, nonfinite)] if discrete else []
    if both.shape[1] > 1 or settings.events == "union" or nonfinite:
        sizes = (settings.resolution,) if settings.resolution else CELLS
        least = min(sizes)
        found += [equal_mass(contest.region, few, n, nonfinite) for n in sizes if n == least or n * A_CELL <= 2 * contest.train_runs]
    if both.shape[1] > 1 and not nonfinite:
        found.append(tree_partition(contest, flats, settings.resolution or LEAVES))
    return found


def tree_partition(contest: Contest, flats: list[np.ndarray], leaves: int) -> Partition:
    """The leaves of a tree grown on the training runs, inside the region."""
    finite = [x[np.isfinite(x).all(1)] for x in flats]
    binning = make_binning(Features(np.zeros(flats[0].shape[1]), None), np.concatenate(finite))
    tree = grow_tree(binning, *finite, leaves, A_LEAF)
    return with_cells(contest.region, tree, contest.settings.nonfinite == "event")
