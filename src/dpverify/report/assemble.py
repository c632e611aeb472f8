"""The report at the end of a verification: diagnostics, the mechanism's remarks, a picture, and all statements."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpverify.claims import Claim
from dpverify.events.event import Event
from dpverify.events.region import Region
from dpverify.events.scores import Levels, Linear
from dpverify.events.wording import NO_LABELS, OutputLabels, current_labels, describe_simply
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.encoding import Encoding
from dpverify.mechanisms.neighbours import describe_difference
from dpverify.mechanisms.protocol import Mechanism, is_seeded, mechanism_name
from dpverify.report import attribution
from dpverify.report.certificate import DensityCertificate
from dpverify.report.report import Report
from dpverify.report.statements import CountsPair, Witness
from dpverify.sampling.count import EventTables, runs_are_dependent
from dpverify.sampling.probe import RunContext, picture_runs, try_optional_method
from dpverify.util.arrays import is_plain_data
from dpverify.util.formatting import one_line
from dpverify.util.provenance import versions

HISTOGRAM_BINS = 96  # with the default runs, a bin of one percent of them has a relative error of 2%
MAX_DRAWN_VALUES = 24  # different values of a number that are drawn as bars
MAX_RANGE_IN_IQR = 6  # interquartile ranges from the quartiles: values farther away are not drawn
MAX_PICTURE_RUNS = 400  # per dataset
MAX_PICTURE_NUMBERS = 20_000  # per dataset

Histogram = tuple[Levels, CountsPair]  # the bins, and the runs in them


def make_report(
    run: RunContext,
    claim: Claim | None,
    delta: float,
    diagnostics: tuple[Diagnostic, ...],
    region: Region,
    pilot: list[np.ndarray],
    inside: CountsPair,
    blocks: tuple[tuple[EventTables, ...], ...],
    agree: bool,
    histograms: Sequence[Histogram | None] = (),
    coordinates: Sequence[np.ndarray] | None = None,
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
    region : Region
        The region of likely outputs.
    pilot : list of array
        All pilot runs, for one or both datasets.
    inside : pair of Counts
        Counts of the region: code 1 is inside.
    blocks : tuple of tuple of EventTables
        Counts of the checked events by block and by position, as `runs_are_dependent` expects them.
    agree : bool
        False if blocks that threads drew differ from the same blocks drawn alone.
    histograms : sequence of (Levels, counts) or None
        For every tested event the bins of the page's histogram, and the test runs in them.
    coordinates : pair of array, or None
        The counts of each number of the output (`report.attribution`).
    **counted
        Fields of the report: the tested events with their counts, and the counts of the cells.
    """
    mechanism, data = run.source.mechanism, run.source.data
    encoding = getattr(mechanism, "encoding", None)
    counted["tested"] = tuple(replace(one, encoding=encoding) for one in counted["tested"])
    certificate = counted.get("certificate_counts")
    if isinstance(certificate, DensityCertificate) and certificate.misfit is not None:
        diagnostics += (Diagnostic.WRONG_DENSITY,)
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
    histogram = next(
        (one for event, one in zip(report.tested, histograms, strict=False) if event is report.witness), None
    )
    report.picture.update(make_picture(run, pilot, region, histogram))
    if coordinates is not None:
        report.picture["coordinates"] = attribution.store(coordinates, report.witness.shape)
    run.finished["report"] = time.perf_counter()
    report.provenance.update(describe_run(run))
    return report


def count_event(event: Event, pair: CountsPair) -> tuple[int, int]:
    """Return how many runs of each dataset are in an event."""
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
    stages = itertools.pairwise(run.finished.items())
    description = {
        "seconds": {name: round(end - start, 6) for (_, start), (name, end) in stages},
        "versions": versions(),
        "device": run.source.device,
        "workers": run.worker_count,
        "resumed": run.checkpoint.resumed,
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
    run: RunContext, pilot: list[np.ndarray], region: Region, histogram: Histogram | None
) -> dict[str, Any]:
    """Return what the page draws: some runs of both datasets, the region, and the histogram of all test runs."""
    first, second = picture_runs(run, pilot, max(1, min(MAX_PICTURE_RUNS, MAX_PICTURE_NUMBERS // pilot[0][0].size)))
    picture: dict[str, Any] = {"first": first, "second": second}
    if region.A.size <= MAX_PICTURE_NUMBERS:
        picture["region"] = region
    if current_labels() != NO_LABELS:
        picture["labels"] = current_labels()._asdict()
    if histogram is not None:
        bins, pair = histogram
        picture["histogram"] = {
            "edges": bins.edges,
            "counts": np.array([side.of(np.arange(bins.size)) for side in pair]),
        }
    return picture


def histogram_bins(event: Event, points: np.ndarray) -> Levels | None:
    """Return the bins of the page's histogram: of the output if it is one number, otherwise of the event's score.

    None if the event is no level set of a score that is plain data. A number with few different values has a bin for
    each of them.

    Parameters
    ----------
    event : Event
        A tested event.
    points : array, shape (n, K, d)
        Finite pilot runs.
    """
    flat, levels = points.reshape(len(points), -1), event.partition.levels
    score: Any = Linear(np.ones(1)) if flat.shape[1] == 1 else None if levels is None else levels.score
    if score is None or not (flat.shape[1] == 1 or is_plain_data(event.partition)):
        return None
    values = np.asarray(score.values(flat), float)
    values = values[np.isfinite(values)]
    if has_few_values(values):
        distinct = np.unique(values)
        return Levels(score, (distinct[1:] + distinct[:-1]) / 2)
    return Levels(score, np.linspace(*histogram_range(values), HISTOGRAM_BINS + 1))


def has_few_values(values: np.ndarray) -> bool:
    """Return whether a number has so few different values that each of them is drawn."""
    return len(np.unique(values)) <= min(MAX_DRAWN_VALUES, values.size / 4)


def histogram_range(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of an axis for these values.

    Heavy tails would make the bulk of the values invisible, so the ends stay near the quartiles.
    """
    if not values.size:
        return 0.0, 1.0
    first, third = np.quantile(values, [0.25, 0.75])
    reach = MAX_RANGE_IN_IQR * (third - first) if third > first else np.inf
    low, high = max(values.min(), first - reach), min(values.max(), third + reach)
    margin = 0.05 * (high - low) if high > low else 0.5
    return float(low - margin), float(high + margin)
