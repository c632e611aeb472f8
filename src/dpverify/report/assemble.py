"""The report at the end of a verification: diagnostics, the mechanism's remarks, a picture, and all statements."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpverify.events.event import Event
from dpverify.events.partition import Partition
from dpverify.events.region import Region
from dpverify.events.scores import Levels
from dpverify.events.selected import SelectedEvents
from dpverify.events.wording import NO_LABELS, OutputLabels, current_labels
from dpverify.mechanisms.data_difference import describe_difference
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import Mechanism, is_seeded, mechanism_name
from dpverify.report.all_events import SmoothGrid, bound_all_events
from dpverify.report.delta_bounds import DeltaEvents
from dpverify.report.evaluate import Etas, bound_partition, evaluate_claim
from dpverify.report.report import Report
from dpverify.report.sequence import Sequence
from dpverify.report.statements import OnAllEvents, OnPartition, Witness
from dpverify.sampling.block_counts import BlockCounts, runs_are_dependent
from dpverify.sampling.context import RunContext, try_optional_method
from dpverify.sampling.counts import Counts
from dpverify.sampling.pilot import picture_runs
from dpverify.stats.claim_kinds import Claim
from dpverify.stats.paper_test import eta_upper_bound
from dpverify.util.arrays import is_pytree
from dpverify.util.formatting import one_line
from dpverify.util.timing import versions

MAX_PICTURE_CELLS = 1024  # whose densities are drawn from all test runs
MAX_PICTURE_RUNS = 400  # per data set
MAX_PICTURE_NUMBERS = 20_000  # per data set

CountsPair = tuple[Counts, Counts]


class HypothesisCounts(NamedTuple):
    """The counts of the test runs, for each data set, and the mean error.

    Attributes
    ----------
    events : tuple of pairs of Counts
        For each tested event, counts of the cells of its partition.
    aims : pair of Counts or None
        Counts of the level sets that are used for bounds on delta.
    cells : pair of Counts
        Counts of the cells of the partition that is bounded.
    inside : pair of Counts
        Counts of the region: code 1 is inside.
    smooth : pair of Counts or None
        Counts of the fine grid for the bound over all events.
    blocks : pair of BlockCounts
        Counts of single blocks, for the check that runs are independent.
    error : pair of (mean, standard error), or None
        The user's error function, for each data set.
    threads_agree : bool
        False if blocks that threads drew differ from the same blocks drawn alone.
    """

    events: tuple[CountsPair, ...]
    aims: CountsPair | None
    cells: CountsPair
    inside: CountsPair
    smooth: CountsPair | None
    blocks: tuple[BlockCounts, BlockCounts]
    error: tuple[tuple[float, float], tuple[float, float]] | None
    threads_agree: bool = True


class Findings(NamedTuple):
    """What was fixed or found before the test runs.

    Attributes
    ----------
    region : Region
        The region of likely outputs.
    points : array, shape (n, K, d)
        The finite pilot runs from which the region was made.
    pilot : list of array
        All pilot runs, for one or both data sets.
    selected : SelectedEvents
        The tested events, the partition that is bounded, and the events for delta.
    smooth : SmoothGrid or None
        The fine grid for the bound over all events.
    diagnostics : tuple of Diagnostic
        Diagnostics that do not depend on the test runs.
    """

    region: Region
    points: np.ndarray
    pilot: list[np.ndarray]
    selected: SelectedEvents
    smooth: SmoothGrid | None
    diagnostics: tuple[Diagnostic, ...]


class Statements(NamedTuple):
    """What the counts of a verification state.

    Attributes
    ----------
    tested : tuple of Witness
        The tested events.
    on_partition, on_all_events, delta_events
        As in `Report`.
    etas : Etas
        The probability of the most frequent cell.
    inside : pair of Counts
        Counts of the region: code 1 is inside.
    blocks, error, threads_agree
        As in `HypothesisCounts`.
    sequence : Sequence or None
        The bets of a verification that may stop early.
    """

    tested: tuple[Witness, ...]
    on_partition: OnPartition
    on_all_events: OnAllEvents | None
    etas: Etas
    inside: CountsPair
    blocks: tuple[BlockCounts, BlockCounts]
    error: tuple[tuple[float, float], tuple[float, float]] | None
    threads_agree: bool
    sequence: Sequence | None = None
    delta_events: DeltaEvents | None = None


def assemble_report(
    run: RunContext, findings: Findings, counts: HypothesisCounts, claim: Claim | None, delta: float
) -> Report:
    """Return the report of a verification whose test runs have been counted."""
    settings, selected = run.settings, findings.selected
    tested = tuple(
        make_witness(findings, event, _count_event(event, pair), settings.test_runs, settings.alpha, share)
        for event, pair, share in zip(selected.events, counts.events, selected.shares, strict=True)
    )
    delta_events = None
    if selected.aims is not None and counts.aims is not None:
        tables = np.stack([side.of(np.arange(selected.aims.levels.size)) for side in counts.aims])
        ordered = selected.aims.ordered_counts(tables, tested[0].ordered)
        delta_events = DeltaEvents(selected.aims, *ordered, settings.test_runs)
    on_partition = bound_partition(selected.partition, counts.cells, counts.inside, settings)
    on_all_events = None
    if findings.smooth is not None and counts.smooth is not None:
        on_all_events = bound_all_events(findings.smooth, counts.smooth, settings)
    all_counts = np.concatenate([side.counts for side in counts.cells])
    eta_upper = eta_upper_bound(all_counts, settings.test_runs, settings.alpha)
    etas = Etas(eta_upper if selected.eta is None else selected.eta, eta_upper)
    checks = counts.inside, counts.blocks, counts.error, counts.threads_agree
    statements = Statements(tested, on_partition, on_all_events, etas, *checks, delta_events=delta_events)
    report = complete_report(run, findings, statements, claim, delta)
    report.picture.update(pictured_counts(findings, counts, report.witness))
    return report


def pictured_counts(findings: Findings, counts: HypothesisCounts, witness: Witness) -> dict[str, np.ndarray]:
    """Return the test runs in every cell, for densities of one number: the only coordinate, or a score of all."""
    if witness.shape == (1, 1):
        name, partition, pair = "cells", findings.selected.partition, counts.cells
    else:
        events = zip(findings.selected.events, counts.events, strict=True)
        name, partition = "event_cells", witness.event.partition
        pair = next(pair for event, pair in events if event is witness.event)
        if partition.has_boxes:
            return {}
    if partition.size > MAX_PICTURE_CELLS or not is_pytree(partition):
        return {}
    return {name: np.array([side.of(np.arange(partition.size)) for side in pair])}


def _count_event(event: Event, pair: CountsPair) -> tuple[int, int]:
    """Return how many runs of each data set are in an event."""
    first, second = (int(side.of(event.codes).sum()) for side in pair)
    return first, second


def make_witness(
    findings: Findings, event: Event, counts: tuple[int, int], runs: int, alpha: float, share: float = 1.0
) -> Witness:
    """Return a tested event with its description."""
    steps, dimension = findings.points.shape[1:]
    return Witness(event, counts, runs, alpha, event.describe(findings.points), (steps, dimension), share)


def complete_report(
    run: RunContext, findings: Findings, statements: Statements, claim: Claim | None, delta: float
) -> Report:
    """Return the report: the evaluation of the claim, the diagnostics, and everything else that a reader needs."""
    settings, source = run.settings, run.source
    on_partition, sequence = statements.on_partition, statements.sequence
    diagnostics = findings.diagnostics + make_diagnostics(source.mechanism, findings.pilot, statements.inside)
    if not statements.threads_agree:
        diagnostics += (Diagnostic.NOT_THREAD_SAFE,)
    if runs_are_dependent(*statements.blocks) and not any(diagnostic.voids for diagnostic in diagnostics):
        diagnostics += (Diagnostic.DEPENDENT_RUNS,)
    evaluation = evaluate_claim(
        statements.tested, on_partition, statements.etas, settings, claim, delta, diagnostics, sequence
    )
    partition = findings.selected.partition
    other = None if partition is evaluation["witness"].event.partition else partition
    report = Report(
        **evaluation,
        alpha=settings.alpha,
        on_partition=on_partition,
        on_all_events=statements.on_all_events,
        error=statements.error,
        sequence=sequence,
        delta_events=statements.delta_events,
        picture=make_picture(run, findings.pilot, findings.region, other),
        settings=settings,
        name=mechanism_name(source.mechanism),
        seeded=is_seeded(source.mechanism),
        diagnostics=diagnostics,
        remarks=mechanism_remarks(source.mechanism, source.data, run.notes),
        run={},
        data_difference=describe_difference(*source.data),
    )
    run.clock.lap("report")
    report.run.update(describe_run(run))
    return report


def describe_run(run: RunContext) -> dict[str, Any]:
    """Return how the run was carried out: time, versions, device, workers, and whether it was resumed."""
    checkpoint = run.checkpoint
    description = {
        "seconds": run.clock.laps,
        "versions": versions(),
        "device": run.source.device,
        "workers": run.worker_count,
        "resumed": checkpoint.resumed,
    }
    return {**description, **describe_problems(run)}


def describe_problems(run: RunContext) -> dict[str, list[str]]:
    """Return the entry `notes` of the run if there were problems that did not prevent a result."""
    checkpoint = run.checkpoint
    notes = [note for note in (checkpoint.problem, checkpoint.source_note, *run.notes) if note]
    return {"notes": notes} if notes else {}


def make_diagnostics(mechanism: Mechanism, pilot: list[np.ndarray], inside: CountsPair) -> tuple[Diagnostic, ...]:
    """Return the diagnostics that pilot runs and region show.

    If all pilot runs gave one output, the region contains this output only, so `inside` shows whether all test runs
    gave it too.
    """
    diagnostics = []
    constant = len(pilot) == 2 and all((runs == runs[:1]).all() for runs in pilot)
    same = constant and np.array_equal(pilot[0][0], pilot[1][0])
    if same and all(side.codes.min() == 1 for side in inside):
        diagnostics.append(Diagnostic.IDENTICAL_OUTPUTS)
    if constant and not same:
        diagnostics.append(Diagnostic.DETERMINISTIC_OUTPUTS)
    if not is_seeded(mechanism):
        diagnostics.append(Diagnostic.UNSEEDED)
    return tuple(diagnostics)


def mechanism_remarks(mechanism: Mechanism, data: tuple[object, object], notes: list[str]) -> tuple[str, ...]:
    """Return the sentences of the mechanism's own method `remarks`, each of them once; a failure becomes a note."""
    own = getattr(mechanism, "remarks", None)
    if own is None:
        return ()

    def collect() -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(sentence) for data_set in data for sentence in own(data_set)))

    return try_optional_method("remarks", collect, notes) or ()


def read_labels(mechanism: Mechanism, shape: tuple[int, int], notes: list[str]) -> OutputLabels:
    """Return the names, units and times that a mechanism states; one of a wrong length is left out, with a note."""
    steps, dimension = shape
    labels: dict[str, tuple[Any, ...] | None] = {}
    kinds = (("names", "output_names", dimension, str), ("units", "output_units", dimension, str))
    for field, attribute, length, kind in (*kinds, ("times", "times", steps, float)):
        stated = getattr(mechanism, attribute, None)
        if stated is None:
            continue
        try:
            values = tuple(kind(value) for value in ([stated] if isinstance(stated, str) else stated))
        except (TypeError, ValueError):
            values = ()
        if len(values) == length:
            labels[field] = values
        else:
            notes.append(f"{attribute}: found {one_line(repr(stated))}; expected {length} entries; they are not used")
    return OutputLabels(**labels)


def make_picture(
    run: RunContext, pilot: list[np.ndarray], region: Region, partition: Partition | Levels | None
) -> dict[str, Any]:
    """Return what the page draws: some runs of both data sets, and the region and the partition if they are small.

    Parameters
    ----------
    run : RunContext
        The verification.
    pilot : list of array
        The pilot runs of one or both data sets.
    region : Region
        The region.
    partition : Partition, Levels or None
        The bounded partition if it is not the witness's own.
    """
    number = max(1, min(MAX_PICTURE_RUNS, MAX_PICTURE_NUMBERS // pilot[0][0].size))
    first, second = picture_runs(run, pilot, number)
    small = region.A.size <= MAX_PICTURE_NUMBERS
    labels = current_labels()
    return {
        **({} if labels == NO_LABELS else {"labels": labels._asdict()}),
        "first": first,
        "second": second,
        "region": region if small else None,
        "partition": partition if small and partition is not None and is_pytree(partition) else None,
    }
