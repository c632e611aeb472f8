"""The sentences and tables of a report page, computed from a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dpverify.events.region import exact_scenario_size, scenario_size
from dpverify.render.content import BoundTrack, EpsilonBounds, EventShare, Table, TableRow
from dpverify.report.fields import ReportFields
from dpverify.report.sequence import Sequence
from dpverify.report.summary import as_sentence
from dpverify.report.text import describe_bounded_curve, describe_data, parameter_words
from dpverify.stats.claim_kinds import Claim
from dpverify.stats.upper_bound import least_bounded_delta
from dpverify.util.formatting import (
    format_cell_count,
    format_count,
    format_lower,
    format_number,
    format_percent,
    format_upper,
)
from dpverify.util.serialization import to_plain

DATA_SETS = ("first", "second")
NOT_BOUNDED = "events that are not unions of these cells: not bounded"


def confidence_text(report: ReportFields) -> str:
    return f"confidence {format_percent(1 - report.alpha)}"


def epsilon_bounds(report: ReportFields, epsilon_upper: float, axis_end: float) -> EpsilonBounds:
    """Return the statements about epsilon.

    The lower and the upper bound have different scopes, so they are separate statements and not an interval.
    """
    if report.claim is not None and report.is_curve:
        return _parameter_bounds(report, report.claim)
    tracks = [_lower_track(report), _upper_track(report, epsilon_upper)]
    if report.on_all_events is not None:
        certified = report.on_all_events.epsilon_upper(report.delta)
        if certified < math.inf:
            statement = f"ε is at most {format_upper(certified)} over all events"
            detail = f"if the stated Lipschitz constant holds; {confidence_text(report)}"
            tracks.append(BoundTrack("certified", statement, detail, certified))
    tracks.append(BoundTrack("unknown", NOT_BOUNDED, "", 0.0))
    claimed = "" if report.epsilon is None else f" The claim is epsilon = {format_number(report.epsilon)}."
    statements = _as_text(tracks)
    return EpsilonBounds(
        report.delta, report.epsilon, tuple(tracks), axis_end, f"An axis for epsilon.{claimed} {statements}"
    )


def _parameter_bounds(report: ReportFields, claim: Claim) -> EpsilonBounds:
    """Return the statements about the own parameter of a claim that is a curve."""
    confidence, lower, name = confidence_text(report), report.claim_lower, parameter_words(claim)
    proved = BoundTrack("proved", "this claim has no single parameter", "the p-value of the claim is its result")
    claimed = None if claim.parameter_name is None else claim.parameter
    if claimed is not None:
        proved = BoundTrack("proved", f"no positive lower bound on {name}", confidence)
    if lower:
        text = format_lower(lower)
        detail = f"every smaller {name} is refuted; for this pair of data sets; {confidence}"
        proved = BoundTrack("proved", f"{name} is at least {text}", detail, 0.0, lower, text)
    bounded = BoundTrack("bounded", describe_bounded_curve(report), confidence)
    end = 1.25 * max(lower or 0.0, claimed or 0.0) or 1.0
    tracks = (proved, bounded, BoundTrack("unknown", NOT_BOUNDED, "", 0.0))
    statements = _as_text(tracks)
    stated = "" if claimed is None else f" The claim is {name} = {format_number(claimed)}."
    text = f"An axis for {name}.{stated} {statements}"
    return EpsilonBounds(report.delta, claimed, tracks, end, text, name)


def _as_text(tracks: Iterable[BoundTrack]) -> str:
    """Return the statements as sentences."""
    return " ".join(f"{'; '.join(filter(None, (track.statement, track.detail)))}." for track in tracks)


def _lower_track(report: ReportFields) -> BoundTrack:
    """Return the lower bound, which holds over all events."""
    if report.epsilon_lower == 0:
        detail = f"too few runs, or no difference between the data sets; {confidence_text(report)}"
        return BoundTrack("proved", "no positive lower bound on ε", detail)
    lower = format_lower(report.epsilon_lower)
    source = "the witness" if report.is_tested else "all events that were tested"
    detail = f"every smaller ε is refuted by {source}; for this pair of data sets; {confidence_text(report)}"
    return BoundTrack("proved", f"ε is at least {lower}", detail, 0.0, report.epsilon_lower, lower)


def _upper_track(report: ReportFields, epsilon_upper: float) -> BoundTrack:
    """Return the upper bound, which holds over unions of the cells only."""
    cells, confidence = format_cell_count(report.on_partition.cells), confidence_text(report)
    if epsilon_upper < math.inf:
        upper = format_upper(epsilon_upper)
        statement = f"ε is at most {upper} over unions of these {cells} cells"
        scope = f"the hatched values are excluded for these events only; {confidence}"
        return BoundTrack("bounded", statement, scope, epsilon_upper, None, upper)
    if not report.on_partition.runs:
        return BoundTrack("bounded", "no upper bound", "the verification ended before its first upper bound")
    statement = f"no upper bound over unions of these {cells} cells"
    return BoundTrack("bounded", statement, f"{_why_unbounded(report)}; {confidence}")


def _why_unbounded(report: ReportFields) -> str:
    """Return why the test runs give no upper bound; more runs are named only if they could give one."""
    if report.delta == 0:
        return "in some cell a data set has no run; a δ above 0 may give a bound"
    part = report.on_partition
    first_only = part.c1 @ np.where(part.c2 == 0, part.number, 0)
    second_only = part.c2 @ np.where(part.c1 == 0, part.number, 0)
    share = max(first_only, second_only) / part.runs
    if share > max(report.delta, least_bounded_delta(part.runs, part.alpha)):
        return "some cells occurred with one data set only"
    return "too few runs for this δ"


def event_shares(report: ReportFields) -> tuple[EventShare, ...]:
    """Return how often the tested event occurred with each data set."""
    witness, shares = report.witness, report.witness.probabilities
    if not report.is_tested:  # these runs selected the event, so there are no limits
        shares = tuple((share, share, share) for share, _, _ in shares)
    return tuple(
        EventShare(name, count, share, low, high)
        for name, count, (share, low, high) in zip(DATA_SETS, witness.counts, shares, strict=True)
    )


def event_note(report: ReportFields) -> str:
    """Return what the shares of the tested event mean, and when the event was fixed."""
    witness = report.witness
    larger, smaller = (DATA_SETS[number - 1] for number in witness.direction)
    larger_count, smaller_count = witness.ordered
    if not larger_count:
        comparison = f"The event never occurred in the test runs with the {larger} data set."
    elif not smaller_count:
        comparison = f"The event never occurred with the {smaller} data set."
    else:
        ratio = f"{larger_count / smaller_count:.3g}"
        times = "as often" if ratio == "1" else f"{ratio} times as often"
        comparison = f"The event occurred {times} with the {larger} data set as with the {smaller}."
    if report.epsilon is not None and report.delta > 0:
        scale = math.exp(min(report.epsilon, 700.0))
        excess = (larger_count - scale * smaller_count) / witness.runs
        comparison += (
            f" The excess over exp(ε) = {scale:.4g} times the smaller share is {format_percent(max(excess, 0.0))}; the "
            f"claim allows δ = {format_percent(report.delta)}."
        )
    shares = (
        f"Bars: shares of {format_count(witness.runs)} test runs per data set, with "
        f"{format_percent(1 - report.alpha)} confidence limits."
    )
    fixed = (
        f"The event, and the direction of the test (more frequent with the {larger} data set), were fixed before the "
        "first test run was drawn."
    )
    if not report.is_tested:
        shares = f"Bars: shares of all {format_count(witness.runs)} runs per data set."
        fixed = (
            "These runs also selected the event, so the shares are shown for illustration only. The result comes from "
            "the wealth, for which every event was fixed before the runs that it was placed on."
        )
    if report.settings.test == "thinned":
        fixed = (
            "The event was fixed before the first test run was drawn. The paper's test checks both directions, so it "
            "refutes a true claim with probability up to 2α."
        )
    if report.others:
        fixed += (
            f" {len(report.tested)} events were fixed in this way and tested together. They share the error "
            f"probability α: this one has {format_percent(witness.share)} of it, and it gives the strongest evidence. "
            f"The p-value and the bound are corrected for testing {len(report.tested)} events."
        )
    return f"{comparison} {shares} {fixed}"


def result_tables(report: ReportFields) -> tuple[Table, ...]:
    """Return the tables of runs and of further results."""
    return (
        Table("Runs and confidence", _run_rows(report)),
        Table("Further results", (*_sensitivity_rows(report), *_error_rows(report), *_paper_rows(report))),
    )


def _run_rows(report: ReportFields) -> tuple[TableRow, ...]:
    settings, (steps, dimension) = report.settings, report.witness.shape
    size = exact_scenario_size if settings.joint else scenario_size
    pilot_runs = size(dimension, settings.beta, settings.gamma, steps if settings.joint else 1)
    pilot_scope = "per data set" if settings.joint else "with the first data set only"
    confidence = format_percent(1 - report.alpha)
    both = format_percent(max(0.0, 1 - 2 * report.alpha))
    alpha = format_number(report.alpha)
    if report.sequence is not None:
        return (*_sequence_rows(report, report.sequence), _confidence_row(report, confidence))
    return (
        *_data_rows(report),
        TableRow(
            "test runs", format_count(settings.test_runs), "per data set; all bounds and p-values are from these runs"
        ),
        TableRow("selection runs", format_count(settings.select_runs), "per data set; they selected the tested events"),
        TableRow("pilot runs", format_count(pilot_runs), f"{pilot_scope}; they located the region of likely outputs"),
        _confidence_row(report, confidence),
        TableRow("confidence of these two together", both, f"each has its own error probability α = {alpha}"),
    )


def _confidence_row(report: ReportFields, confidence: str) -> TableRow:
    which = "of the lower bound, and of the upper bound" if report.is_curve else "of the lower and the upper bound on ε"
    return TableRow("confidence", f"{confidence} and {confidence}", which)


def _sequence_rows(report: ReportFields, sequence: Sequence) -> tuple[TableRow, ...]:
    """Return the rows of a verification that may stop early."""
    early, exact = (format_number(x * report.alpha) for x in (sequence.early_share, 1 - sequence.early_share))
    upper = format_number(report.on_partition.alpha) if report.on_partition.runs else "not used"
    made = f"made once, on {format_count(sequence.exact_runs)} runs" if sequence.exact_runs else "not made"
    return (
        TableRow("runs", format_count(sequence.runs_used), f"per data set; ended by: {sequence.stopped.value}"),
        TableRow("α of the wealth", early, "the claim can be refuted after any batch"),
        TableRow("α of the exact test", exact, f"at the end of the first budget; {made}"),
        TableRow("α of this upper bound", upper, f"all looks together have α = {format_number(report.alpha)}"),
    )


def _data_rows(report: ReportFields) -> tuple[TableRow, ...]:
    """Return how the data sets differ."""
    if report.data_difference is None:
        return ()
    explanation = "data sets that differ in another way are not tested"
    return (TableRow("data sets", describe_data(report.data_difference, False), explanation),)


def _sensitivity_rows(report: ReportFields) -> tuple[TableRow, ...]:
    part = report.on_partition
    mass = f"≥ {100 * math.floor(part.region_mass * 1e4) / 1e4:.4g}%"
    return (
        *_curve_rows(report),
        TableRow(
            "detectable ε" if not report.is_curve else f"detectable ε at δ = {format_number(report.delta)}",
            format_number(report.epsilon_detectable) if report.epsilon_detectable < math.inf else "none",
            "the true ε of the witness at which this number of runs refutes the claim with probability about 80%",
        ),
        TableRow("cells", format_cell_count(part.cells), "of the partition; together they cover all outputs"),
        TableRow(
            "probability of the region of likely outputs", mass, "the region around the pilot runs; for each data set"
        ),
    )


def _curve_rows(report: ReportFields) -> tuple[TableRow, ...]:
    """Return the bounds on epsilon, with their delta, of a claim that is a curve."""
    if not report.is_curve:
        return ()
    delta = f"at δ = {format_number(report.delta)}"
    upper = report.on_partition.epsilon_upper(report.delta)
    return (
        TableRow(f"ε at least, {delta}", format_lower(report.epsilon_lower), "by the witness"),
        TableRow(
            f"ε at most, {delta}",
            format_upper(upper) if upper < math.inf else "none",
            "over unions of the cells only; the witness need not be such a union",
        ),
    )


def _error_rows(report: ReportFields) -> tuple[TableRow, ...]:
    if report.error is None:
        return ()
    return tuple(
        TableRow(
            f"error, {name} data set",
            f"{format_number(mean)} ± {format_number(2 * standard_error)}",
            "mean ± two standard errors",
        )
        for name, (mean, standard_error) in zip(DATA_SETS, report.error, strict=True)
    )


def _paper_rows(report: ReportFields) -> tuple[TableRow, ...]:
    """Return the quantities of the paper on which the method is based, if its settings were used."""
    if not report.settings.follows_paper:
        return ()
    paper = report.paper
    rows = [
        TableRow("critical ε", format_number(report.epsilon_critical), "the smallest ε that is not rejected"),
        TableRow("η of the paper", format_number(paper.eta), "the largest share of selection runs in an event"),
        TableRow("λ of the paper", format_number(paper.lambda_), "for comparison with the paper; not a guarantee"),
    ]
    if paper.p_values is not None:
        values = ", ".join(f"{p:.3g}" for p in paper.p_values)
        explanation = "randomised (thinned) p-values of the claim with δ = 0, in both directions"
        rows.append(TableRow("p-values of the paper", values, explanation))
    return tuple(rows)


def notes(report: ReportFields) -> tuple[str, ...]:
    """Return further findings; what the result means and what to do next stands at the top of the page."""
    findings = [diagnostic.value for diagnostic in report.diagnostics if not diagnostic.voids]
    return tuple(map(as_sentence, (*findings, *report.remarks, *report.run.get("notes", ()))))


def run_tables(report: ReportFields) -> tuple[Table, ...]:
    """Return the tables of settings, versions and times."""
    run = report.run
    settings = [TableRow(name, str(value)) for name, value in to_plain(report.settings).items() if name != "kind"]
    details = [TableRow(name, str(version)) for name, version in _sorted_items(run, "versions")]
    details += [TableRow(name, str(run[name])) for name in ("device", "workers", "resumed") if name in run]
    seeded = "yes, with the same seed" if report.seeded else "no: the mechanism cannot be seeded"
    details.append(TableRow("reproducible", seeded))
    details += [TableRow(f"seconds, {stage}", f"{float(time):.3g}") for stage, time in _sorted_items(run, "seconds")]
    return Table("Settings", tuple(settings)), Table("Versions and times", tuple(details))


def _sorted_items(run: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    """Return the items of a part of the run in one order, whether the report is new or read from JSON."""
    return sorted(run.get(name, {}).items())
