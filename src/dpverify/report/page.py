"""The page of a report: its sections, tables and curves, which `dpverify.render` draws.

This module needs matplotlib and Jinja2, so `Report.to_html` imports it only when a page is made. The reader of a page
may choose any epsilon after seeing the results. All numbers along epsilon allow this: the p-values belong to events
that were fixed before the test runs, and each bound on delta holds at all epsilons simultaneously.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dpverify.claims import Claim
from dpverify.errors import InputError
from dpverify.events.region import exact_scenario_size, scenario_size
from dpverify.render.bounds import complete_figure
from dpverify.render.content import (
    BoundTrack,
    ClaimResult,
    EpsilonBounds,
    EpsilonCurves,
    ErrorTradeoff,
    EventShare,
    PageContent,
    PageFindings,
    SliderData,
    SummaryLine,
    Table,
    TableRow,
    WealthCourse,
)
from dpverify.render.curves import delta_figure, error_figure, p_value_figure
from dpverify.render.outputs import draw_outputs
from dpverify.render.page import report_page
from dpverify.render.scene import make_scene
from dpverify.report.report import Report, divide_p_value, paper_p_values
from dpverify.report.sequence import Sequence, StoppedBy
from dpverify.report.statements import Witness
from dpverify.report.text import (
    OWN_ALPHA,
    UNCHECKED,
    as_sentence,
    confidence_text,
    describe_curve_on_cells,
    describe_data,
    describe_shares,
    headline,
    reproduction_command,
    summary,
)
from dpverify.settings import type_one_error_factor
from dpverify.stats.boundaries import lower_envelope, with_mirror_images
from dpverify.stats.exact import P_VALUE_FLOOR, small_p_value
from dpverify.stats.upper import least_bounded_delta
from dpverify.util.formatting import (
    format_cell_count,
    format_count,
    format_lower,
    format_number,
    format_percent,
    format_upper,
)
from dpverify.util.serialization import to_plain

PLOT_KINDS = ("outputs", "delta", "p-value", "errors")
DATA_SETS = ("first", "second")
SLIDER_POSITIONS = 150  # about as many
TRADEOFF_POINTS = 401


def page(report: Report) -> str:
    """Return the report as one HTML page.

    Parameters
    ----------
    report : Report
        The report; one that was read from JSON gives the same page.

    Returns
    -------
    str
        The page; it loads nothing from a network.
    """
    return report_page(page_content(report))


def plot(report: Report, kind: str) -> Figure:
    """Return one figure of the page with its title and legend inside; `Report.plot` documents the kinds."""
    if kind not in PLOT_KINDS:
        raise InputError(f"plot: found kind {kind!r}; expected {', '.join(PLOT_KINDS)}")
    content = page_content(report)
    found = content.findings
    if found is None:
        raise InputError(f"plot: {content.headline} There is nothing to draw; fix this, then verify again")
    if kind == "outputs":
        return complete_figure(draw_outputs(found.scene)[0])
    if kind == "errors":
        return complete_figure(error_figure(found.errors))
    figure = delta_figure if kind == "delta" else p_value_figure
    return complete_figure(figure(found.result, found.curves))


def page_content(report: Report) -> PageContent:
    """Return everything that the page of a report shows."""
    part = report.on_partition
    epsilon_upper = math.inf if part is None else part.epsilon_upper(report.delta)
    versions = report.provenance.get("versions", {})
    return PageContent(
        name=report.name,
        verdict=report.verdict.name,
        headline=headline(report),
        summary=tuple(SummaryLine(*line) for line in summary(report, epsilon_upper)),
        findings=None if part is None else page_findings(report, epsilon_upper),
        notes=notes(report),
        command=reproduction_command(report),
        run_tables=run_tables(report),
        version=str(versions.get("dpverify", "")) if isinstance(versions, Mapping) else "",
        digest=report.digest,
    )


def page_findings(report: Report, epsilon_upper: float) -> PageFindings:
    """Return what the page shows of a test that has an answer."""
    witness, curves = report.witness, compute_curves(report, epsilon_upper)
    critical = report.epsilon_critical or 0.0
    return PageFindings(
        bounds=epsilon_bounds(report, epsilon_upper, float(curves.epsilon[-1])),
        event=witness.text,
        shares=event_shares(report),
        event_note=event_note(report),
        result=ClaimResult(report.epsilon, report.delta, report.alpha, critical),
        curves=curves,
        slider=slider_data(report, curves),
        errors=error_tradeoff(report),
        scene=make_scene(report.picture, witness.event, witness.text, witness.shape, report.cell_counts.cells),
        tables=result_tables(report),
        wealth=wealth_course(report),
    )


def epsilon_bounds(report: Report, epsilon_upper: float, axis_end: float) -> EpsilonBounds:
    """Return the statements about epsilon.

    The lower and the upper bound have different scopes, so they are separate statements and not an interval.
    """
    if report.claim is not None and report.is_curve:
        return _parameter_bounds(report, report.claim)
    tracks = [_lower_track(report), _upper_track(report, epsilon_upper)]
    if report.certificate is not None:
        certified = report.certificate.epsilon_upper(report.delta)
        if certified < math.inf:
            statement = f"ε is at most {format_upper(certified)} over all events"
            detail = f"if the stated Lipschitz constant holds; {confidence_text(report)}"
            tracks.append(BoundTrack("certified", statement, detail, certified))
    tracks.append(BoundTrack("unknown", UNCHECKED, "", 0.0))
    claimed = "" if report.epsilon is None else f" The claim is epsilon = {format_number(report.epsilon)}."
    statements = _as_text(tracks)
    return EpsilonBounds(
        report.delta, report.epsilon, tuple(tracks), axis_end, f"An axis for epsilon.{claimed} {statements}"
    )


def _parameter_bounds(report: Report, claim: Claim) -> EpsilonBounds:
    """Return the statements about the own parameter of a claim that is a curve."""
    confidence, lower, name = confidence_text(report), report.claim_lower, claim.parameter_words
    proved = BoundTrack("proved", "this claim has no single parameter", "the p-value of the claim is its result")
    claimed = None if claim.parameter_name is None else claim.parameter
    if claimed is not None:
        proved = BoundTrack("proved", f"no positive lower bound on {name}", confidence)
    if lower:
        text = format_lower(lower, claimed)
        detail = f"every smaller {name} is refuted; for this pair of data sets; {confidence}"
        proved = BoundTrack("proved", f"{name} is at least {text}", detail, 0.0, lower, text)
    cells = BoundTrack("cells", describe_curve_on_cells(report), confidence)
    end = 1.25 * max(lower or 0.0, claimed or 0.0) or 1.0
    tracks = (proved, cells, BoundTrack("unknown", UNCHECKED, "", 0.0))
    statements = _as_text(tracks)
    stated = "" if claimed is None else f" The claim is {name} = {format_number(claimed)}."
    text = f"An axis for {name}.{stated} {statements}"
    return EpsilonBounds(report.delta, claimed, tracks, end, text, name)


def _as_text(tracks: Iterable[BoundTrack]) -> str:
    """Return the statements as sentences."""
    return " ".join(f"{'; '.join(filter(None, (track.statement, track.detail)))}." for track in tracks)


def _lower_track(report: Report) -> BoundTrack:
    """Return the lower bound, which holds over all events."""
    if not report.epsilon_lower:
        detail = f"too few runs, or no difference between the data sets; {confidence_text(report)}"
        return BoundTrack("proved", "no positive lower bound on ε", detail)
    lower = format_lower(report.epsilon_lower, report.epsilon)
    by_witness = report.is_tested and (report.refuted or report.claim is None)
    source = "the witness" if by_witness else "the tested events together"
    detail = f"every smaller ε is refuted by {source}; for this pair of data sets; {confidence_text(report)}"
    return BoundTrack("proved", f"ε is at least {lower}", detail, 0.0, report.epsilon_lower, lower)


def _upper_track(report: Report, epsilon_upper: float) -> BoundTrack:
    """Return the upper bound over the cells."""
    cells, confidence = format_cell_count(report.cell_counts.cells), confidence_text(report)
    if epsilon_upper < math.inf:
        upper = format_upper(epsilon_upper)
        statement = f"ε is at most {upper} over these {cells} cells"
        scope = f"the hatched values are excluded for unions of cells only; {confidence}"
        return BoundTrack("cells", statement, scope, epsilon_upper, None, upper)
    if not report.cell_counts.runs:
        return BoundTrack("cells", "no upper bound", "the verification ended before it was computed")
    statement = f"no upper bound over these {cells} cells"
    return BoundTrack("cells", statement, f"{_why_unbounded(report)}; {confidence}")


def _why_unbounded(report: Report) -> str:
    """Return why the test runs give no upper bound; more runs are named only if they could give one."""
    if report.delta == 0:
        return "in some cell a data set has no run; a δ above 0 may give a bound"
    part = report.cell_counts
    first_only = part.c1 @ np.where(part.c2 == 0, part.number, 0)
    second_only = part.c2 @ np.where(part.c1 == 0, part.number, 0)
    share = max(first_only, second_only) / part.runs
    if share > max(report.delta, least_bounded_delta(part.runs, part.alpha)):
        return "some cells occurred with one data set only"
    return "too few runs for this δ"


def event_shares(report: Report) -> tuple[EventShare, ...]:
    """Return how often the tested event occurred with each data set."""
    witness, shares = report.witness, report.witness.probabilities
    if not report.is_tested:  # these runs selected the event, so there are no limits
        shares = tuple((share, share, share) for share, _, _ in shares)
    return tuple(
        EventShare(name, count, share, low, high)
        for name, count, (share, low, high) in zip(DATA_SETS, witness.counts, shares, strict=True)
    )


def event_note(report: Report) -> str:
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
    if report.settings.test != "exact":
        fixed = (
            "The event was fixed before the first test run was drawn. The paper's test checks both directions, so it "
            f"refutes a true claim with probability up to {type_one_error_factor(report.settings)}α."
        )
    if report.others:
        fixed += (
            f" {len(report.tested)} events were fixed in this way and tested together. They share the error "
            f"probability α: this one has {format_percent(witness.share)} of it, and it gives the strongest evidence. "
            f"The p-value and the bound are corrected for testing {len(report.tested)} events."
        )
    return f"{comparison} {shares} {fixed}"


def result_tables(report: Report) -> tuple[Table, ...]:
    """Return the tables of runs and of further results."""
    return (
        Table("Runs and confidence", _run_rows(report)),
        Table("Further results", (*_sensitivity_rows(report), *_error_rows(report), *_paper_rows(report))),
    )


def _run_rows(report: Report) -> tuple[TableRow, ...]:
    settings, (steps, dimension) = report.settings, report.witness.shape
    size = exact_scenario_size if settings.joint else scenario_size
    pilot_runs = size(dimension, settings.beta, settings.gamma, steps if settings.joint else 1)
    pilot_scope = "per data set" if settings.joint else "with the first data set only"
    confidence = format_percent(1 - report.alpha)
    together = format_percent(max(0.0, 1 - (3 if report.is_curve else 2) * report.alpha))
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
        TableRow("confidence of these together", together, f"each has its own error probability α = {alpha}"),
    )


def _confidence_row(report: Report, confidence: str) -> TableRow:
    claim = "of the test of the claim, " if report.is_curve else ""
    return TableRow("confidence", f"{confidence} each", f"{claim}of the lower bound on ε, and of the upper bound")


def _sequence_rows(report: Report, sequence: Sequence) -> tuple[TableRow, ...]:
    """Return the rows of a verification that may stop early."""
    early, exact = (format_number(x * report.alpha) for x in (sequence.early_share, 1 - sequence.early_share))
    upper = format_number(report.cell_counts.alpha) if report.cell_counts.runs else "not used"
    made = f"made once, on {format_count(sequence.exact_runs)} runs" if sequence.exact_runs else "not made"
    return (
        TableRow("runs", format_count(sequence.runs_used), f"per data set; ended by: {sequence.stopped.value}"),
        TableRow("α of the wealth", early, "the claim can be refuted after any batch"),
        TableRow("α of the exact test", exact, f"at the end of the first budget; {made}"),
        TableRow("α of this upper bound", upper, f"all looks together have α = {format_number(report.alpha)}"),
    )


def _data_rows(report: Report) -> tuple[TableRow, ...]:
    """Return how the data sets differ."""
    if report.data_difference is None:
        return ()
    explanation = "data sets that differ in another way are not tested"
    return (TableRow("data sets", describe_data(report.data_difference, False), explanation),)


def _sensitivity_rows(report: Report) -> tuple[TableRow, ...]:
    part = report.cell_counts
    mass = f"≥ {100 * math.floor(part.region_mass * 1e4) / 1e4:.4g}%"
    return (
        *_curve_rows(report),
        TableRow("cells", format_cell_count(part.cells), "of the partition; together they cover all outputs"),
        TableRow(
            "probability of the region of likely outputs", mass, "the region around the pilot runs; for each data set"
        ),
    )


def _curve_rows(report: Report) -> tuple[TableRow, ...]:
    """Return the bounds on epsilon, with their delta, of a claim that is a curve."""
    if not report.is_curve:
        return ()
    delta = f"at δ = {format_number(report.delta)}"
    upper = report.cell_counts.epsilon_upper(report.delta)
    return (
        TableRow(f"ε at least, {delta}", format_lower(report.epsilon_lower or 0.0), OWN_ALPHA),
        TableRow(
            f"ε at most, {delta}",
            format_upper(upper) if upper < math.inf else "none",
            "over the cells; the witness need not be a union of them",
        ),
    )


def _error_rows(report: Report) -> tuple[TableRow, ...]:
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


def _paper_rows(report: Report) -> tuple[TableRow, ...]:
    """Return the quantities of the paper on which the method is based, if its settings were used."""
    paper = report.paper
    if not report.settings.follows_paper or paper is None or report.epsilon_critical is None:
        return ()
    rows = [
        TableRow("critical ε", format_number(report.epsilon_critical), "the smallest ε that is not rejected"),
        TableRow("η of the paper", format_number(paper.eta), "the largest share of selection runs in an event"),
        TableRow("λ of the paper", format_number(paper.lambda_), "for comparison with the paper; not a guarantee"),
    ]
    if paper.p_values is not None:
        values = ", ".join(f"{p:.3g}" for p in paper.p_values)
        kind = "means over all thinnings of the" if paper.averaged else "randomised (thinned)"
        explanation = f"{kind} p-values of the claim with δ = 0, in both directions"
        rows.append(TableRow("p-values of the paper", values, explanation))
    return tuple(rows)


def notes(report: Report) -> tuple[str, ...]:
    """Return further findings; what the result means and what to do next stands at the top of the page."""
    findings = [diagnostic.value for diagnostic in report.diagnostics if not diagnostic.voids]
    return tuple(map(as_sentence, (*findings, *report.remarks, *report.provenance.get("notes", ()))))


def run_tables(report: Report) -> tuple[Table, ...]:
    """Return the tables of settings, versions and times."""
    run = report.provenance
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


def round_up_step(x: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is at least x."""
    power = 10.0 ** math.floor(math.log10(x))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= x * (1 - 1e-9))


def epsilon_grid(report: Report, epsilon_upper: float) -> np.ndarray:
    """Return epsilons from 0 in equal round steps, beyond the claim and all finite bounds.

    `epsilon_upper` is the upper bound over unions of the cells.
    """
    marked = (report.epsilon_lower or 0.0, report.epsilon_critical or 0.0, report.epsilon or 0.0, epsilon_upper)
    end = max(1.3 * max(epsilon for epsilon in marked if epsilon < math.inf), 0.2)
    step = round_up_step(end / SLIDER_POSITIONS)
    return np.round(np.arange(math.ceil(end / step) + 1) * step, 12)


def evaluate_increasing(function: Callable[[float], float], grid: np.ndarray) -> np.ndarray:
    """Evaluate an increasing function on a grid.

    Where the values at both ends of an interval agree, the values between them follow without evaluation.
    """
    values = np.full(grid.size, np.nan)
    values[0], values[-1] = function(float(grid[0])), function(float(grid[-1]))
    intervals = [(0, grid.size - 1)]
    while intervals:
        low, high = intervals.pop()
        if high - low < 2:
            continue
        if math.isclose(values[low], values[high], rel_tol=1e-6):
            values[low + 1 : high] = values[high]
            continue
        middle = (low + high) // 2
        values[middle] = function(float(grid[middle]))
        intervals += [(low, middle), (middle, high)]
    return values


def compute_curves(report: Report, epsilon_upper: float) -> EpsilonCurves:
    """Return p-values and bounds on delta along epsilon.

    Parameters
    ----------
    report : Report
        The report.
    epsilon_upper : float
        The upper bound on epsilon over unions of the cells, which the grid includes where it is finite.

    Returns
    -------
    EpsilonCurves
        The upper bound on delta is that of `report.profile`, interpolated between its epsilons.
    """
    settings, epsilons = report.settings, epsilon_grid(report, epsilon_upper)
    from_paper, p_floor, decisive = settings.test != "exact", 0.0, None
    if report.sequence is not None:
        p_first = p_second = _sequential_p_values(report, report.sequence, epsilons)
    elif from_paper:
        pairs = np.array([paper_p_values(report.witness, settings, float(epsilon)) for epsilon in epsilons])
        p_first, p_second = pairs[:, 0], pairs[:, 1]
    else:
        by_event = p_values_by_event(report, epsilons)
        decisive, p_floor = by_event.argmin(0), P_VALUE_FLOOR * report.alpha
        p_first, p_second = (
            by_event[[one.direction[0] == larger for one in report.tested]].min(0, initial=1.0) for larger in (1, 2)
        )
    profile = report.profile
    assert profile is not None
    upper = interpolate_delta_upper(profile["eps"], profile["delta_upper"], epsilons)
    lower = report.delta_lower_curve(epsilons)
    claimed = None
    if report.claim is not None and report.epsilon is None:
        claimed = report.claim.implied_delta(epsilons)
    return EpsilonCurves(epsilons, p_first, p_second, lower, upper, p_floor, from_paper, claimed, decisive)


def error_tradeoff(report: Report) -> ErrorTradeoff:
    """Return the claimed and the bounded trade-off between the errors of tests, and the errors of the tested event."""
    type1 = np.linspace(0.0, 1.0, TRADEOFF_POINTS)
    profile = report.profile
    assert profile is not None
    nodes = with_mirror_images(profile["eps"], profile["delta_upper"])
    bounded = 1.0 - lower_envelope(*nodes).lowest(type1)
    claim, claimed = report.claim, None
    if claim is not None:
        claimed = 1.0 - np.interp(type1, *claim.allowed_pairs())
    shares = report.witness.probabilities
    if not report.is_tested:  # these runs selected the event, so there are no limits
        shares = tuple((share, share, share) for share, _, _ in shares)
    larger, smaller = (shares[number - 1] for number in report.witness.direction)
    return ErrorTradeoff(
        type1=type1,
        bounded=bounded,
        claimed=claimed,
        claim="" if claim is None else claim.describe(),
        witness=(smaller[0], 1.0 - larger[0]),
        limits=(smaller[1], smaller[2], 1.0 - larger[2], 1.0 - larger[1]),
        alpha=report.alpha,
    )


def _sequential_p_values(report: Report, sequence: Sequence, epsilons: np.ndarray) -> np.ndarray:
    """Return the p-values of a verification that may stop early: of the wealth and the exact test together."""
    p_values = sequence.p_values(epsilons, report.delta) / sequence.early_share
    if report.is_tested:
        exact = p_values_by_event(report, epsilons).min(0)
        p_values = np.minimum(p_values, exact / (1 - sequence.early_share))
    return np.minimum(p_values, 1.0)


def wealth_course(report: Report) -> WealthCourse | None:
    """Return the wealth over the runs; None if the verification could not stop early."""
    sequence, claim = report.sequence, report.claim
    if sequence is None or claim is None:
        return None
    course = np.append(0.0, sequence.log_wealth(claim))
    runs = np.append(sequence.first_runs, sequence.runs)
    ends = {
        StoppedBy.REFUTED: "It reached the threshold, so the claim is refuted.",
        StoppedBy.CERTIFIED: "The verification ended because the upper bound over all events met the claim.",
        StoppedBy.BUDGET: "The verification ended because its budget was spent.",
    }
    threshold = math.log(sequence.threshold(report.alpha))
    return WealthCourse(runs, course, threshold, claim.describe(), ends[sequence.stopped])


def p_values_by_event(report: Report, epsilons: np.ndarray) -> np.ndarray:
    """Return the p-value of each tested event (rows) at each epsilon, divided by the event's share of alpha.

    The smallest one is the p-value of all events together."""
    level = report.level

    def p_value(one: Witness, epsilon: float) -> float:
        single = small_p_value(*one.ordered, one.runs, epsilon, report.delta, one.share * level)
        return divide_p_value(single, one.share, level)

    return np.array([evaluate_increasing(functools.partial(p_value, one), epsilons) for one in report.tested])


def interpolate_delta_upper(nodes: np.ndarray, bounds: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    """Interpolate upper bounds on the delta of a partition between the epsilons where they were computed.

    This delta is convex in exp(epsilon) and decreasing. So a chord between two bounds, linear in exp(epsilon), is an
    upper bound too, and so is the last bound for all larger epsilons.
    """
    return np.interp(np.exp(np.minimum(epsilons, nodes[-1])), np.exp(nodes), bounds)


def round_outwards(values: np.ndarray, up: bool) -> list[float]:
    """Round to four digits, up or down, so that a rounded bound still holds."""
    unit = 10.0 ** (np.floor(np.log10(np.maximum(np.abs(values), 1e-12))) - 3)
    # The relative tolerance keeps a value that already has four digits.
    digits = np.ceil(values / unit * (1 - 1e-12)) if up else np.floor(values / unit * (1 + 1e-12))
    return [float(f"{x:.4g}") for x in digits * unit]


def slider_data(report: Report, curves: EpsilonCurves) -> SliderData:
    """Return the curves as rounded numbers for the slider; it starts at the claim or at the lower bound."""
    start = report.epsilon if report.epsilon is not None else report.epsilon_lower or 0.0
    return SliderData(
        epsilon=curves.epsilon.tolist(),
        p_first=round_outwards(curves.p_first, up=True),
        p_second=round_outwards(curves.p_second, up=True),
        delta_lower=round_outwards(curves.delta_lower, up=False),
        delta_upper=np.minimum(round_outwards(curves.delta_upper, up=True), 1.0).tolist(),
        p_floor=curves.p_floor,
        alpha=report.alpha,
        start=int(np.argmin(np.abs(curves.epsilon - start))),
        decisive=[] if curves.decisive is None else curves.decisive.tolist(),
        events=[f"{one.text} ({describe_shares(one)})" for one in report.tested],
    )
