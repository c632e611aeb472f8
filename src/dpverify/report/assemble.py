"""The report at the end of a verification: diagnostics, the mechanism's remarks, a picture, and all statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpverify.claims import Claim
from dpverify.events.event import Event
from dpverify.events.partition import Partition
from dpverify.events.region import Region
from dpverify.events.scores import Levels
from dpverify.events.wording import NO_LABELS, OutputLabels, current_labels, describe_simply
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.encoding import Encoding
from dpverify.mechanisms.neighbours import describe_difference
from dpverify.mechanisms.protocol import Mechanism, is_seeded, mechanism_name
from dpverify.report.report import Report
from dpverify.report.statements import CountsPair, Witness
from dpverify.sampling.context import RunContext, picture_runs, try_optional_method
from dpverify.sampling.count import EventTables, runs_are_dependent
from dpverify.util.arrays import is_plain_data
from dpverify.util.formatting import one_line
from dpverify.util.provenance import versions

MAX_PICTURE_CELLS = 1024  # whose densities are drawn from all test runs
MAX_PICTURE_RUNS = 400  # per data set
MAX_PICTURE_NUMBERS = 20_000  # per data set


def make_report(
    run: RunContext,
    claim: Claim | None,
    delta: float,
    diagnostics: tuple[Diagnostic, ...],
    region: Region,
    partition: Partition | Levels,
    pilot: list[np.ndarray],
    inside: CountsPair,
    blocks: tuple[tuple[EventTables, ...], ...],
    agree: bool,
    drawn: Sequence[tuple[Partition | Levels, CountsPair]] = (),
    **counted: Any,
) -> Report:
    """Return the report of what was counted.

    Parameters
    ----------
    run : RunContext
        The verification.
    claim, delta
        The claim, and the delta at which epsilon is bounded.
    diagnostics : tuple of Diagnostic
        Diagnostics that do not depend on the test runs.
    region, partition
        The region of likely outputs, and the partition that is bounded.
    pilot : list of array
        All pilot runs, for one or both data sets.
    inside : pair of Counts
        Counts of the region: code 1 is inside.
    blocks : tuple of tuple of EventTables
        Counts of the checked events by block and by position, as `runs_are_dependent` expects them.
    agree : bool
        False if blocks that threads drew differ from the same blocks drawn alone.
    drawn : sequence of pairs of partition and counts
        The counts of the bounded partition and of those of the tested events, of which the page draws densities.
    **counted
        Fields of the report: the tested events with their counts, and the counts of the cells.
    """
    mechanism, data = run.source.mechanism, run.source.data
    encoding = getattr(mechanism, "encoding", None)
    counted["tested"] = tuple(replace(one, encoding=encoding) for one in counted["tested"])
    diagnostics += make_diagnostics(mechanism, pilot, inside)
    diagnostics += () if agree else (Diagnostic.NOT_THREAD_SAFE,)
    if runs_are_dependent(*blocks) and not any(diagnostic.voids for diagnostic in diagnostics):
        diagnostics += (Diagnostic.DEPENDENT_RUNS,)
    report = Report(
        name=mechanism_name(mechanism),
        seeded=is_seeded(mechanism),
        settings=run.settings,
        claim=claim,
        delta=float(delta),
        diagnostics=diagnostics,
        remarks=mechanism_remarks(mechanism, data, run.notes),
        data_difference=describe_difference(*data),
        **counted,
    )
    own = report.witness.event.partition
    report.picture.update(make_picture(run, pilot, region, None if partition is own else partition))
    if drawn:
        report.picture.update(pictured_counts(report.witness, drawn))
    run.clock.lap("report")
    report.provenance.update(describe_run(run))
    return report


def pictured_counts(witness: Witness, drawn: Sequence[tuple[Partition | Levels, CountsPair]]) -> dict[str, np.ndarray]:
    """Return the test runs in every cell, for densities of one number: the only coordinate, or a score of all."""
    name, (partition, pair) = "cells", drawn[0]
    if witness.shape != (1, 1):
        own = witness.event.partition
        name, (partition, pair) = "event_cells", next(one for one in drawn[1:] if one[0] is own)
        if partition.has_boxes:
            return {}
    if partition.size > MAX_PICTURE_CELLS or not is_plain_data(partition):
        return {}
    return {name: np.array([side.of(np.arange(partition.size)) for side in pair])}


def count_event(event: Event, pair: CountsPair) -> tuple[int, int]:
    """Return how many runs of each data set are in an event."""
    first, second = (int(side.of(event.codes).sum()) for side in pair)
    return first, second


def make_witness(
    points: np.ndarray, event: Event, counts: tuple[int, int], runs: int, alpha: float, share: float = 1.0
) -> Witness:
    """Return a tested event with its description, which needs pilot runs of shape (n, K, d)."""
    steps, dimension = points.shape[1:]
    text = event.describe(points)
    if current_labels().columns is not None:
        simple = describe_simply(points, event.contains(points))
        text = text if simple is None or simple == text else f"{simple} (nearly the same as {text})"
    return Witness(event, counts, runs, alpha, text, (steps, dimension), share)


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
    encoding = getattr(mechanism, "encoding", None)
    if isinstance(encoding, Encoding):
        columns = encoding.columns
        phrases = {column.name: column.phrases for column in columns if column.phrases}
        absent = {column.name: column.absent for column in columns if column.absent is not None}
        return OutputLabels(columns=tuple(column.name for column in columns), phrases=phrases, absent=absent)
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
        "partition": partition if small and partition is not None and is_plain_data(partition) else None,
    }
