"""The pipeline: `verify` follows Algorithm 1 of the paper, and every stage uses runs of its own.

The stages are HighLikelySet (Algorithm 3, pilot runs), EventList and WorstEvent (Algorithms 2 and 4, selection runs)
and HypothesisTest (Algorithm 5, test runs). The event and its direction are fixed before the first test run is drawn.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Unpack

import numpy as np

from dpverify.claims import Claim, resolve_claim
from dpverify.early import Request, run_until_decided
from dpverify.errors import DPVerifyWarning, FolderError, InputError
from dpverify.events.event import SELECTION_KINDS, SelectedEvents, read_selected, store_selected
from dpverify.events.region import Region, RegionIndicator
from dpverify.events.wording import labelled_outputs
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import Mechanism, mechanism_name
from dpverify.report.assemble import (
    count_event,
    describe_problems,
    histogram_bins,
    make_report,
    make_witness,
    read_labels,
)
from dpverify.report.attribution import CoordinateCounter
from dpverify.report.certificate import CertificateSource, LogDensity, find_certificate_source, stated_log_ratio
from dpverify.report.report import Report
from dpverify.report.statements import CellBounds, DeltaEvents, check_claim
from dpverify.sampling.checkpoint import Record
from dpverify.sampling.count import BlockChecker, CellCounter, CheckedEvent, MeanError, count_together, mean_errors
from dpverify.sampling.probe import RunContext, check_mechanism, make_region, open_run, shorten_run
from dpverify.sampling.stages import collect_samples, collect_statistics, threads_agree
from dpverify.selection.objective import (
    SEARCHES,
    ScoreLearner,
    SelectionContext,
    SelectionObjective,
    named_partition,
)
from dpverify.selection.select import select_cell, select_events
from dpverify.settings import Settings, SettingsChanges
from dpverify.util.arrays import Array, cell_codes, is_plain_data
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import nested_kinds, to_plain

LOGGER = logging.getLogger(__name__)
SELECTION_KEY = 102  # spawn key of the paper's randomised selection


def verify(
    mechanism: Mechanism,
    first: object,
    second: object,
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    claim: object = None,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    error: Callable[[Array], Array] | None = None,
    log_lipschitz: float | tuple[float, float] | None = None,
    log_density: LogDensity | None = None,
    learn: ScoreLearner | None = None,
    progress: bool | None = None,
    trust_results: bool = False,
    **changes: Unpack[SettingsChanges],
) -> Report:
    """Measure from samples how well a mechanism hides which of two neighbouring datasets it was given.

    The result is a lower bound on epsilon that holds over all events, upper bounds over a partition of the outputs,
    and, if a claim is stated, a test of the claim.

    Parameters
    ----------
    mechanism : callable
        `mechanism(data, runs, rng)` returns `runs` independent outputs as a NumPy or JAX array of shape (runs,),
        (runs, d) or (runs, K, d). `rng` is a `numpy.random.Generator`; all noise must come from it. `per_run`,
        `jax_run`, `factory` and `program` wrap other forms.
    first, second : object
        The two neighbouring datasets, passed to the mechanism as they are. Arrays are passed read-only.
    epsilon : float or None, default None
        The claimed epsilon. None states no claim: the bounds are computed and nothing is tested.
    delta : float, default 0.0
        The claimed delta. Without a claim, the delta at which epsilon is bounded.
    claim : claim or None, default None
        A claim of another kind, instead of epsilon: one of `dpverify.claims`, an accountant's privacy profile
        (dp_accounting, OpenDP), or a function from epsilon to delta. Delta is then only the delta at which epsilon is
        bounded.
    settings : Settings
        Numbers of runs, level, partition, events and seed; `Settings` explains every field.
    executor : int, concurrent.futures.Executor or None, default None
        Where runs are drawn. None: this process; a number: that many worker processes; or any executor. The report
        does not depend on it.
    folder : path or None, default None
        A folder for checkpoints. The same call with the same folder resumes an interrupted run and gives the same
        report.
    error : callable or None, default None
        Maps samples (runs, K, d) to one number per run, for example `dpverify.rmse(truth)`. The report then has the
        mean error under both datasets.
    log_lipschitz : float, pair of float, or None, default None
        A Lipschitz constant of the log-density of the output (Euclidean norm on the flattened output), for both data
        sets or one for each. It gives upper bounds over all events. dpverify does not check it. None uses the
        mechanism's own `log_lipschitz(data)` if it exists.
    log_density : callable or None, default None
        `log_density(data, samples)` returns the logarithm of the density of the output for a dataset, at samples of
        shape (runs, K, d), one number per run; -inf where there is no density. It gives the event that tells the
        datasets apart best, and upper bounds over all events (`report.certificate`), which can certify a claim.
        dpverify tests the density on the runs. None uses the mechanism's own method `log_density` if it exists.
    learn : callable or None, default None
        `learn(first_samples, second_samples)` fits a score to training runs of both datasets, each of shape (runs, K,
        d), and returns it: a callable from samples to one number per run, large where the first dataset is more
        likely. The score competes with dpverify's own scores. It must be deterministic.
    progress : bool or None, default None
        Whether progress is shown on stderr. None shows it on a terminal and in notebooks (there as a bar of the
        notebook). Only verifications that take longer than 10 s show anything.
    trust_results : bool, default False
        Whether the results in `folder` are used although source files have changed and the mechanism cannot be seeded,
        so that its behaviour cannot be compared.
    **changes
        Single settings by name, which replace those of `settings`: `verify(..., test_runs=10**6, seed=3)`.

    Returns
    -------
    Report
        The verdict, all bounds and the tested event; `print(report)` shows them.

    Raises
    ------
    InputError
        If an argument is invalid.
    MechanismError
        If the mechanism fails or returns invalid outputs.
    FolderError
        If the folder belongs to another run or is damaged.
    Stopped
        If the run is interrupted. Finished blocks are in the folder.

    Examples
    --------
    >>> import dpverify as dpv
    >>> def noisy_count(data, runs, rng):
    ...     return data + rng.laplace(size=runs)
    >>> report = dpv.verify(noisy_count, 0.0, 1.0, epsilon=0.5, select_runs=1000, test_runs=5000)
    >>> report.verdict.name
    'REFUTED'
    """
    settings = settings.change(**changes)
    tested, delta = resolve_claim(epsilon, delta, claim)
    check_claim(settings, None, delta, tested)
    if error is not None and not callable(error):
        raise InputError(
            f"error: found {type(error).__name__}; expected a callable of samples; dpverify.rmse(truth) makes one"
        )
    if log_density is not None and not callable(log_density):
        raise InputError(
            f"log_density: found {type(log_density).__name__}; expected a callable log_density(data, samples) that "
            "returns one number per run"
        )
    if learn is not None and not callable(learn):
        raise InputError(
            f"learn: found {type(learn).__name__}; expected a callable learn(first_samples, second_samples) that "
            "returns a score"
        )
    request = Request(tested, delta, error, log_lipschitz, learn, log_density)
    report = run_verification(mechanism, first, second, request, settings, executor, folder, progress, trust_results)
    if not report.seeded:
        warnings.warn(Diagnostic.UNSEEDED.value, DPVerifyWarning, stacklevel=2)
    return report


def run_verification(
    mechanism: Mechanism,
    first: object,
    second: object,
    request: Request,
    settings: Settings,
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    trust_results: bool = False,
) -> Report:
    """Verify as the request says; the arguments are those of `verify`."""
    claim, error = request.claim, request.error
    call = {"delta": request.delta, "log_lipschitz": fingerprint(request.log_lipschitz)}
    if request.learn is not None:
        call["learn"] = fingerprint(request.learn)
    if request.log_density is not None:
        call["log density"] = fingerprint(request.log_density)
    settings, not_stopping = check_stop_early(settings, claim)
    if claim is not None:  # the selection and the bets depend on it
        call["claim"] = fingerprint(to_plain(claim))
    with open_run(mechanism, first, second, settings, executor, progress, folder, call, error, trust_results) as run:
        diagnostics = check_mechanism(run) + not_stopping
        LOGGER.info("%s: verification with seed %d begins", mechanism_name(mechanism), settings.seed)
        proceed = run_until_decided if settings.stop_early else follow_plan
        assert run.source.shape is not None
        with labelled_outputs(read_labels(run.source.mechanism, run.source.shape, run.notes)):
            report = proceed(run, request, diagnostics)
    # Closing the run calls the mechanism's method finish, which can fail.
    report.provenance.update(describe_problems(run))
    LOGGER.info("%r", report)
    return report


def check_stop_early(settings: Settings, claim: Claim | None) -> tuple[Settings, tuple[Diagnostic, ...]]:
    """Return the settings, and a diagnostic if the verification cannot stop early because there is no claim."""
    if settings.stop_early and claim is None:
        return settings.change(stop_early=False), (Diagnostic.NOTHING_TO_STOP,)
    return settings, ()


def follow_plan(run: RunContext, request: Request, diagnostics: tuple[Diagnostic, ...]) -> Report:
    """Verify with fixed numbers of runs (Algorithm 1)."""
    if any(diagnostic.voids for diagnostic in diagnostics):  # no number of runs gives an answer
        run = shorten_run(run)
        diagnostics += (Diagnostic.SHORTENED,)
    if run.plan.is_limited:
        diagnostics += (Diagnostic.PILOT_LIMITED,)
    # HighLikelySet (Algorithm 3), from pilot runs.
    region, points, pilot = find_region(run)
    # EventList and WorstEvent (Algorithms 2 and 4), from selection runs.
    selected = freeze_events(run, request, region, points)
    # HypothesisTest (Algorithm 5), from test runs. Nothing that is counted may change from here on.
    source, found = find_certificate_source(
        request.log_density, request.log_lipschitz, run.source, region, points, selected.rival
    )
    return count_test_runs(run, request, diagnostics + found, region, points, pilot, selected, source)


def find_region(run: RunContext) -> tuple[Region, np.ndarray, list[np.ndarray]]:
    """HighLikelySet (Algorithm 3): draw the pilot runs and enclose them in the region of likely outputs.

    Returns
    -------
    region : Region
        The region.
    points : array, shape (n, K, d)
        The finite pilot runs from which the region was made.
    pilot : list of array
        All pilot runs, for one or both datasets.
    """
    checkpoint, plan = run.checkpoint, run.plan
    samples = collect_samples(
        run.source, "pilot", plan.pilot_runs, run.pool, run.progress, plan.sides, run.pilot_blocks
    )
    for side, block in list(run.pilot_blocks):
        if side in plan.sides:  # the samples contain this block
            del run.pilot_blocks[side, block]
    region, points, pilot = make_region(samples, run.settings.nonfinite, plan.is_limited)
    # The stored region is used, because another machine may compute one that differs in the last bits.
    stored = checkpoint.read_choice("region", nested_kinds(Region))
    if stored is None:
        checkpoint.write("region", Record(to_plain(region)))
    else:
        region = stored
    run.finished["pilot"] = time.perf_counter()
    return region, points, pilot


def freeze_events(run: RunContext, request: Request, region: Region, points: np.ndarray) -> SelectedEvents:
    """EventList and WorstEvent (Algorithms 2 and 4): select events with the selection runs and store them.

    A resumed run reads the events from its folder, so that they cannot change after test runs were drawn.
    """
    settings, checkpoint = run.settings, run.checkpoint
    stored = checkpoint.read_choice("events", SELECTION_KINDS, lambda record: read_selected(record, points[:1]))
    if stored is not None:
        run.progress.skip(2 * settings.select_runs)
        return stored
    done_before = run.progress.done
    partition = named_partition(settings, region, points)
    budget = SEARCHES[settings.search]
    objective = SelectionObjective(
        settings.test_runs, request.delta, settings.alpha, budget.decision_penalty, request.claim
    )
    source = run.source._replace(is_coupled=settings.coupled_selection)
    log_ratio = stated_log_ratio(request.log_density, source)
    context = SelectionContext(
        source, settings, region, objective, run.pool, run.progress, budget, learn=request.learn, log_ratio=log_ratio
    )
    if partition is not None and settings.selection_epsilon is not None:
        rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(SELECTION_KEY,)))
        selected = select_cell(context, partition, rng)
    else:
        selected = select_events(context, partition)
    # Not every selection needs all of its training runs.
    run.progress.skip(done_before + 2 * settings.select_runs - run.progress.done)
    # A score function of the user cannot be stored; then the selection runs stay in the folder instead.
    if all(is_plain_data(partition) for partition in (*selected.partitions, selected.rival)):
        checkpoint.write("events", Record(to_plain(store_selected(selected))))
        if checkpoint.problem is None:
            checkpoint.forget("train", "propose", "decide")
    else:
        check_refit(run, selected, points)
    run.finished["selection"] = time.perf_counter()
    return selected


def check_refit(run: RunContext, selected: SelectedEvents, points: np.ndarray) -> None:
    """Raise a FolderError if a resumed run fitted other events than before; test runs may already have been counted.

    A score function of the user is fitted again from the same runs. The events are compared by the pilot runs that they
    contain.
    """
    digest = fingerprint(
        (
            [cell_codes(partition, points) for partition in selected.partitions],
            [(event.codes, event.direction) for event in selected.events],
            selected.shares,
            None if selected.aims is None else selected.aims[1:],
        )
    )
    stored = run.checkpoint.read_choice("refit", (), lambda record: record["digest"])
    if stored is None:
        run.checkpoint.write("refit", Record({"digest": digest}))
    elif stored != digest:
        raise FolderError(
            f"{run.checkpoint.folder}: found events that differ from those of the first start; expected the same "
            "score; a score function must be deterministic; use a new folder"
        )


def count_test_runs(
    run: RunContext,
    request: Request,
    diagnostics: tuple[Diagnostic, ...],
    region: Region,
    points: np.ndarray,
    pilot: list[np.ndarray],
    selected: SelectedEvents,
    source: CertificateSource | None,
) -> Report:
    """HypothesisTest (Algorithm 5): draw the test runs, count them, and report. The event and its direction are fixed.

    Parameters
    ----------
    run, request
        The verification, and what it is asked.
    diagnostics : tuple of Diagnostic
        Diagnostics that do not depend on the test runs.
    region, points, pilot
        As `find_region` returns them.
    selected : SelectedEvents
        The tested events, the partition that is bounded, and the events for delta.
    source : CertificateSource or None
        What is counted for the bound over all events.
    """
    settings, bins = run.settings, [histogram_bins(event, points) for event in selected.events]
    joint = count_together([*selected.partitions, *filter(None, bins)])
    counters = {"inside": CellCounter(RegionIndicator(region))}
    if source is not None:
        counters["certificate"] = CellCounter(source.cells)
    counters |= {f"partition {number}": CellCounter(one) for number, one in enumerate(joint.counted)}
    checked = [joint.event(1 + number, event) for number, event in enumerate(selected.events)]
    block_checker = BlockChecker.make(list(map(CheckedEvent.of, checked)), points)
    statistics = {**counters, "blocks": block_checker}
    if request.error is not None:
        statistics["error"] = MeanError(request.error)
    coordinates = CoordinateCounter.of(points)
    if coordinates is not None:
        statistics["coordinates"] = coordinates
    results = collect_statistics(run.source, "test", settings.test_runs, [*statistics.values()], run.pool, run.progress)
    counts = dict(zip(statistics, results, strict=True))
    agree = threads_agree(run.source, run.pool)
    run.finished["test"] = time.perf_counter()
    cells, *events = joint.split([counts[name] for name in counters if name.startswith("partition")])
    drawn = iter(events[len(selected.partitions) - 1 :])
    histograms = [None if one is None else (one, next(drawn)) for one in bins]
    del events[len(selected.partitions) - 1 :]
    tested = tuple(
        make_witness(points, event, count_event(event, pair), settings.test_runs, settings.alpha, share)
        for event, pair, share in zip(selected.events, events, selected.shares, strict=False)
    )
    delta_events = None
    if selected.aims is not None:
        tables = np.stack([side.of(np.arange(selected.aims.levels.size)) for side in events[-1]])
        ordered = selected.aims.ordered_counts(tables, tested[0].ordered)
        delta_events = DeltaEvents(selected.aims, *ordered, settings.test_runs)
    return make_report(
        run,
        request.claim,
        request.delta,
        diagnostics,
        region,
        pilot,
        counts["inside"],
        ((counts["blocks"][0],), (counts["blocks"][1],)),
        agree,
        histograms=histograms,
        coordinates=counts.get("coordinates"),
        tested=tested,
        cell_counts=CellBounds.of(selected.partition, cells, counts["inside"], settings),
        certificate_counts=source and source.certificate(counts["certificate"], settings.test_runs, settings.alpha),
        delta_events=delta_events,
        selection_eta=selected.eta,
        error=mean_errors(counts["error"], settings.test_runs) if "error" in counts else None,
    )
