"""The pipeline on one page: the paper's Algorithm 1, with every stage on runs of its own."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np
import scipy

from dpverify.arrays import Counts, occupied
from dpverify.contest import Contest, choose, choose_cell
from dpverify.errors import InputError, Warning
from dpverify.exact import eta_upper_bound, lower_limit
from dpverify.mechanism import Mechanism, is_seeded, name_of, read_only
from dpverify.partition import Partition, make_partition
from dpverify.progress import Progress
from dpverify.region import Region, exact_scenario_size, high_likely_set, scenario_size
from dpverify.report import OnPartition, Report, answers, check_claim, make_witness
from dpverify.sampling import (
    Cells,
    Measure,
    Source,
    check_pickles,
    collect,
    collect_samples,
    default_block,
    open_workers,
    probe,
)
from dpverify.scores import Inside, Levels
from dpverify.selection import Aim
from dpverify.settings import Settings

SELECTION = 102  # spawn key of the paper's thinned selection
REGION_SHARE = 0.1  # of the second budget, for the region's mass; the rest bounds delta on the partition
DRAWN = 400  # points a side in the picture
DRAWN_NUMBERS = 20_000  # numbers a side in the picture


def verify(
    mechanism: Mechanism,
    first: Any,
    second: Any,
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    error: Callable[[Any], Any] | None = None,
    progress: bool = False,
    **changes: Any,
) -> Report:
    """How much `mechanism` tells `first` from `second`: a proof of what leaks, a bound on what was partitioned.

    `epsilon=None` makes no claim and measures. `executor` is None (here, in order), a number of processes, or any
    `concurrent.futures.Executor`. `error` turns samples into one number a run (see `rmse`). Single settings can be
    given by name: `verify(..., test_runs=10**6, seed=3)`.
    """
    settings = settings.change(**changes)
    check_claim(settings, epsilon, delta)
    if not callable(mechanism):
        raise InputError(f"mechanism: found {type(mechanism).__name__}; expected a callable (data, runs, rng) -> array")
    clock = Clock()
    block = settings.block or getattr(mechanism, "block", None) or default_block(settings.test_runs)
    source = Source(mechanism, (read_only(first), read_only(second)), settings.seed, int(block), settings.nonfinite)
    show = Progress(progress)
    try:
        with open_workers(executor) as workers:
            check_pickles(source, workers)
            source, known, device = probe(source)
            settings = settings.change(block=source.block)

            # HighLikelySet (Algorithm 3), from pilot runs
            pilot_runs, sides = pilot_plan(settings, source)
            show.plan(2 * (settings.select_runs + settings.test_runs) + len(sides) * pilot_runs)
            pilot = collect_samples(source, "pilot", pilot_runs, workers, show, sides, known)
            region, points = make_region(pilot)
            clock.lap("pilot")

            # EventList (Algorithm 2): a partition is given, or the winner's own cells will be bounded
            one_cell = settings.selection_epsilon is not None or settings.events == "cell"
            given = None
            if settings.partition != "tree" and (one_cell or settings.partition != "auto"):
                nonfinite = settings.nonfinite == "event"
                given = make_partition(settings.partition, region, points, settings.resolution, nonfinite)

            # WorstEvent (Algorithm 4), from selection runs: candidates are trained on one half and cut on the other
            aim = Aim(settings.test_runs, delta, settings.alpha)
            contest = Contest(source, settings, region, aim, workers, show)
            if given is not None and one_cell:
                rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(SELECTION,)))
                event, partition = choose_cell(contest, given, rng)
            else:
                event, partition = choose(contest, given)
            clock.lap("selection")

            # HypothesisTest (Algorithm 5), from fresh runs: the event and its direction are frozen now
            meters = Cells(partition), Cells(event.partition), Cells(Inside(region))
            if event.partition is partition:
                meters = meters[0], meters[2]
            tested = collect(source, "test", settings.test_runs, Measure(meters, error), workers, show)
            (c1, *_, in1), (c2, *_, in2) = tested.parts
            witnessed = event.count(tested.parts[0][len(meters) - 2]), event.count(tested.parts[1][len(meters) - 2])
            clock.lap("test")
    finally:
        show.close()

    witness = make_witness(event, witnessed, settings.test_runs, settings.alpha, points)
    on_partition = bound_partition(partition, (c1, c2), (in1, in2), settings)
    eta = eta_upper_bound(np.concatenate([c1.counts, c2.counts]), settings.test_runs, settings.alpha)
    notes = remarks(mechanism, pilot, c1, c2)
    if not is_seeded(mechanism):
        warnings.warn(notes[-1], Warning, stacklevel=2)
    report = Report(
        **answers(witness, on_partition, eta, settings, epsilon, delta),
        alpha=settings.alpha,
        on_partition=on_partition,
        witness=witness,
        error=tested.error,
        picture=draw_picture(pilot, sides),
        settings=settings,
        name=name_of(mechanism),
        seeded=is_seeded(mechanism),
        notes=notes,
        run={},
    )
    clock.lap("report")
    report.run.update(seconds=clock.laps, versions=versions(), device=device, workers=workers.number, resumed=False)
    return report


def pilot_plan(settings: Settings, source: Source) -> tuple[int, tuple[int, ...]]:
    """How many pilot runs a side, and of which sides.

    The paper takes each step's ellipsoid on its own, from the first side. Ours is one program over all steps; every
    side has the full number, so the region holds 1 - beta of either law (docs/method.md, section 4.3).
    """
    assert source.shape is not None
    steps, dimension = source.shape
    if settings.joint:
        return exact_scenario_size(dimension, settings.beta, settings.gamma, steps), (0, 1)
    return scenario_size(dimension, settings.beta, settings.gamma), (0,)


def make_region(pilot: list[np.ndarray]) -> tuple[Region, np.ndarray]:
    """The region around the finite pilot runs, and those runs."""
    points = np.concatenate(pilot)
    finite = points[np.isfinite(points).all(axis=(1, 2))]
    if not len(finite):  # nothing but NaN: any region will do, all of it is one event
        finite = np.zeros((1, *points.shape[1:]))
    return high_likely_set(finite), finite


def bound_partition(
    partition: Partition | Levels, cells: tuple[Counts, Counts], inside: tuple[Counts, Counts], settings: Settings
) -> OnPartition:
    """The test counts as distinct pairs, and the region's mass: the least of the two sides is fixed, so no split."""
    codes = occupied(*cells)
    radix = settings.test_runs + 1  # a pair of counts as one number: sorting pairs is slow
    pairs, number = np.unique(cells[0].of(codes) * radix + cells[1].of(codes), return_counts=True)
    m, alpha = settings.test_runs, settings.alpha
    mass = min(float(lower_limit(counts.of(np.array([1]))[0], m, REGION_SHARE * alpha)) for counts in inside)
    return OnPartition(pairs // radix, pairs % radix, number, m, (1 - REGION_SHARE) * alpha, partition.number, mass)


def remarks(mechanism: Mechanism, pilot: list[np.ndarray], c1: Counts, c2: Counts) -> tuple[str, ...]:
    notes = []
    constant = all((runs == runs[:1]).all() for runs in pilot)
    if constant and c1.codes.size == c2.codes.size == 1:
        if c1.codes[0] == c2.codes[0]:
            notes.append("every run of both data sets gave the same output: identical as far as these runs can tell")
        else:
            notes.append("the output is deterministic and differs between the data sets: violated at every epsilon")
    if not is_seeded(mechanism):
        notes.append("this mechanism can't be seeded: the numbers can't be repeated run for run")
    return tuple(notes)


def draw_picture(pilot: list[np.ndarray], sides: tuple[int, ...]) -> dict[str, Any]:
    """Some pilot runs of each side that was drawn."""
    number = max(1, min(DRAWN, DRAWN_NUMBERS // pilot[0][0].size))
    picture: dict[str, Any] = {"first": None, "second": None}
    for side, runs in zip(sides, pilot, strict=True):
        finite = runs[np.isfinite(runs).all(axis=(1, 2))]
        picture["second" if side else "first"] = finite[:number]
    return picture


class Clock:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now


def versions() -> dict[str, str]:
    from dpverify import __version__

    return {"dpverify": __version__, "python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
