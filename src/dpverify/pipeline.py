"""The pipeline on one page: the paper's Algorithm 1, with every stage on runs of its own."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np

from dpverify.errors import InputError, Warning
from dpverify.events.event import EVENT_KINDS
from dpverify.events.partition import make_partition
from dpverify.events.region import Region, RegionIndicator
from dpverify.mechanisms.protocol import Mechanism, is_seeded, mechanism_name
from dpverify.report.assemble import (
    UNSEEDED_TEXT,
    bound_all_events,
    bound_partition,
    make_picture,
    make_remarks,
    smooth_grid,
)
from dpverify.report.report import Report
from dpverify.report.statements import Witness, check_claim, evaluate_claim
from dpverify.sampling.accumulators import CellCounter, Statistics
from dpverify.sampling.checkpoints import Record
from dpverify.sampling.context import RunContext, check_mechanism, open_run, read_record
from dpverify.sampling.pilot import make_region, plan_pilot
from dpverify.sampling.stages import collect_samples, collect_statistics
from dpverify.selection.context import THOROUGH_SEARCH, SearchBudget, SelectionContext
from dpverify.selection.objective import SelectionObjective
from dpverify.selection.select import SelectedEvent, select_cell, select_event
from dpverify.settings import Settings
from dpverify.stats.paper_test import eta_upper_bound
from dpverify.util.arrays import is_pytree
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import nested_kinds, to_plain
from dpverify.util.timing import versions

SELECTION = 102  # spawn key of the paper's thinned selection


def verify(
    mechanism: Mechanism,
    first: Any,
    second: Any,
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    error: Callable[[Any], Any] | None = None,
    log_lipschitz: float | tuple[float, float] | None = None,
    progress: bool = False,
    **changes: Any,
) -> Report:
    """How much `mechanism` tells `first` from `second`: a proof of what leaks, a bound on what was partitioned.

    `epsilon=None` makes no claim and measures. `executor` is None (here, in order), a number of processes, or any
    `concurrent.futures.Executor`. `folder` keeps what is finished: the same call goes on from there, whatever ended the
    first, and comes to the same report. `error` turns samples into one number a run (see `rmse`). `log_lipschitz`
    states a constant of the log-density (Euclidean norm on the flattened output), one for both sides or one each.
    Single settings can be given by name: `verify(..., test_runs=10**6, seed=3)`.
    """
    settings = settings.change(**changes)
    check_claim(settings, epsilon, delta)
    if error is not None and not callable(error):
        raise InputError(
            f"error: found {type(error).__name__}; expected a callable of samples; dpverify.rmse(truth) makes one"
        )
    call = {"delta": delta, "log_lipschitz": fingerprint(log_lipschitz)}
    with open_run(mechanism, first, second, settings, executor, progress, folder, call, error) as run:
        settings, source = run.settings, run.source
        region, points, pilot = find_region(run)
        doubts = check_mechanism(run, pilot[0])
        event, partition, _ = freeze_event(run, region, points, delta)
        text = event.describe(points)

        # HypothesisTest (Algorithm 5), from fresh runs: the event and its direction are frozen now
        meters = {"cells": CellCounter(partition), "inside": CellCounter(RegionIndicator(region))}
        if event.partition is not partition:
            meters["event"] = CellCounter(event.partition)
        smooth, notes = smooth_grid(log_lipschitz, mechanism, source.data, region, points)
        if smooth is not None:
            meters["smooth"] = CellCounter(smooth.grid)
        measure = Statistics(tuple(meters.values()), error)
        tested = collect_statistics(source, "test", settings.test_runs, measure, run.pool, run.progress)
        run.clock.lap("test")

        counts = {name: (one, two) for name, one, two in zip(meters, *tested.parts, strict=True)}
        one, two = (int(side.of(event.codes).sum()) for side in counts.get("event", counts["cells"]))
        steps, dimension = points.shape[1:]
        witness = Witness(event, (one, two), settings.test_runs, settings.alpha, text, (steps, dimension))
        on_partition = bound_partition(partition, counts["cells"], counts["inside"], settings)
        eta = eta_upper_bound(
            np.concatenate([side.counts for side in counts["cells"]]), settings.test_runs, settings.alpha
        )
        if not is_seeded(mechanism):
            warnings.warn(UNSEEDED_TEXT, Warning, stacklevel=2)
        other = None if partition is event.partition else partition
        report = Report(
            **evaluate_claim(witness, on_partition, eta, settings, epsilon, delta),
            alpha=settings.alpha,
            on_partition=on_partition,
            on_all_events=bound_all_events(smooth, counts["smooth"], settings) if smooth else None,
            witness=witness,
            error=tested.error,
            picture=make_picture(source, pilot, run.pilot_blocks, region, other),
            settings=settings,
            name=mechanism_name(mechanism),
            seeded=is_seeded(mechanism),
            remarks=doubts + make_remarks(mechanism, source.data, pilot, counts["inside"]) + notes,
            run={},
        )
        run.clock.lap("report")
        store = run.checkpoint
        report.run.update(seconds=run.clock.laps, versions=versions(), device=source.device, workers=run.worker_count)
        report.run.update(resumed=store.resumed, **({"notes": [store.problem]} if store.problem else {}))
        return report


def find_region(run: RunContext) -> tuple[Region, np.ndarray, list[np.ndarray]]:
    """HighLikelySet (Algorithm 3), from pilot runs: the region, the finite runs it was made from, all runs a side."""
    settings = run.settings
    runs, sides = plan_pilot(settings, run.source)
    run.progress.plan(2 * (settings.select_runs + settings.test_runs) + len(sides) * runs)
    pilot = collect_samples(run.source, "pilot", runs, run.pool, run.progress, sides, run.pilot_blocks)
    region, points = make_region(pilot)
    kept = read_record(
        run.checkpoint, "region", nested_kinds(Region)
    )  # the same on every machine that goes on from here
    if kept is None:
        run.checkpoint.write("region", Record(to_plain({"region": region})))
    else:
        region = kept["region"]
    run.clock.lap("pilot")
    return region, points, pilot


def freeze_event(
    run: RunContext, region: Region, points: np.ndarray, delta: float, budget: SearchBudget = THOROUGH_SEARCH
) -> SelectedEvent:
    """EventList (Algorithm 2) and WorstEvent (Algorithm 4), from selection runs.

    The partition is the one that the settings name; without a name, the level sets of the winner will be bounded.
    Once frozen it stays so: a run that goes on reads it from its folder.
    """
    settings, store = run.settings, run.checkpoint
    frozen = read_record(store, "event", EVENT_KINDS)
    if frozen is not None:
        run.progress.skip(2 * settings.select_runs)
        return SelectedEvent(frozen["event"], frozen["partition"] or frozen["event"].partition)
    papers = settings.selection_epsilon is not None
    given = None
    if settings.partition != "tree" and (papers or settings.events == "cell" or settings.partition != "auto"):
        nonfinite = settings.nonfinite == "event"
        given = make_partition(settings.partition, region, points, settings.resolution, nonfinite)
    objective = SelectionObjective(settings.test_runs, delta, settings.alpha, budget.decision_penalty)
    context = SelectionContext(run.source, settings, region, objective, run.pool, run.progress, budget)
    if given is not None and papers:
        rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(SELECTION,)))
        chosen = select_cell(context, given, rng)
    else:
        chosen = select_event(context, given)
    if is_pytree(chosen.event.partition):  # a user's own function can't be written: the selection runs stay instead
        other = None if chosen.partition is chosen.event.partition else chosen.partition
        store.write("event", Record(to_plain({"event": chosen.event, "partition": other})))
        if store.problem is None:
            store.forget("train", "cut", "decide")
    run.clock.lap("selection")
    return chosen
