"""The page of one report, and its single figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from dpverify.errors import InputError
from dpverify.render.builder import (
    Block,
    Cell,
    Code,
    Column,
    Figures,
    Items,
    Page,
    PageContext,
    Section,
    Sentence,
    Table,
)
from dpverify.render.curves import (
    attribution_figure,
    bounds_figure,
    compute_curves,
    delta_figure,
    error_figure,
    observer_figure,
    p_value_figure,
    slider_columns,
    wealth_figure,
)
from dpverify.render.outputs import draw_outputs
from dpverify.render.style import Drawing, complete_figure
from dpverify.report.report import Report
from dpverify.report.text import (
    as_sentence,
    describe_event,
    describe_observer,
    facts,
    headline,
    reproduction_command,
    summary,
)
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
DATASETS = ("first", "second")
UNCHECKED = "Events that split a cell were not checked."
TERMS = {
    "ε": "At δ = 0: the logarithm of the ratio of an event's two probabilities, for the event where it is largest. At "
    "a larger δ, δ is subtracted from the larger probability before the ratio is taken. Smaller is more private.",
    "δ": "An allowance: the probability of an event may be e^ε times its probability with the other dataset, plus δ.",
    "α": "The significance level: the accepted probability of error of the test and of each bound.",
    "p-value": "If the claim is true, counts at least this extreme have at most this probability. A small p-value "
    "refutes the claim.",
    "confidence": "Statements made in this way are true with at least this probability.",
    "event": "A set of outputs, for example all outputs above 2.",
    "witness": "The tested event with the strongest result.",
    "cells": "The parts into which all outputs are divided. They do not overlap.",
    "over the cells": "For events that consist of whole cells. Other events are not bounded.",
    "likely region": "The set that contains most outputs. Pilot runs determine it.",
    "evidence": "A number that starts at 1 and rarely becomes large if the claim is true.",
    "η": "The source paper's number: the largest share of selection runs in an event.",
    "λ": "The source paper's number for δ. It is not a guarantee.",
}


@dataclass(frozen=True)
class Slider:
    """Numbers along epsilon that the reader of a page chooses from, with figures that follow.

    Attributes
    ----------
    columns : sequence of (name, texts)
        The numbers at every position; the first ones are the positions themselves.
    start : int
        The first position.
    drawings : sequence of Drawing
        Figures whose first axes show all positions; a vertical line moves with the slider.
    """

    columns: Sequence[tuple[str, Sequence[str]]]
    start: int
    drawings: Sequence[Drawing]

    def html(self, context: PageContext) -> Markup:
        """Return the slider with its numbers, which a browser without JavaScript shows at the first position."""
        name, positions = self.columns[0]
        values = Markup("").join(
            Markup('<div><dt>{}</dt><dd><output id="value{}" for="position">{}</output></dd></div>\n').format(
                title, number, texts[self.start]
            )
            for number, (title, texts) in enumerate(self.columns)
            if number
        )
        stored = json.dumps({"columns": [list(texts) for _, texts in self.columns]}, ensure_ascii=False)
        return Markup(
            '<div class="reader">\n<label for="position">{} = <output id="value0" for="position">{}</output></label>\n'
            '<input id="position" type="range" min="0" max="{}" step="1" value="{}" hidden>\n'
            '<dl aria-live="polite">\n{}</dl>\n</div>\n<div class="along">\n{}</div>\n'
            '<script type="application/json" id="numbers">{}</script>\n'
        ).format(
            name,
            positions[self.start],
            len(positions) - 1,
            self.start,
            values,
            Figures(self.drawings).html(context),
            Markup(stored.replace("<", "\\u003c")),  # no text ends the element
        )

    def markdown(self, figures: Any) -> str:
        """Return the figures: a Markdown page has no slider."""
        return Figures(self.drawings).markdown(figures)


def page(report: Report) -> str:
    """Return the page of a report as HTML; a report that was read from JSON gives the same page."""
    return report_page(report).html()


def plot(report: Report, kind: str) -> Figure:
    """Return one figure of the page with its title and legend inside; `Report.plot` documents the kinds."""
    if kind not in PLOT_KINDS:
        raise InputError(f"plot: found kind {kind!r}; expected {', '.join(PLOT_KINDS)}")
    if report.voiding:
        raise InputError(f"plot: {headline(report)} There is nothing to draw; fix this, then verify again")
    if kind == "outputs":
        return complete_figure(draw_outputs(report)[0])
    if kind == "errors":
        return complete_figure(error_figure(report))
    curves = compute_curves(report, _upper_over_cells(report))
    return complete_figure((delta_figure if kind == "delta" else p_value_figure)(report, curves))


def _upper_over_cells(report: Report) -> float:
    return math.inf if report.on_partition is None else report.on_partition.epsilon_upper(report.delta)


def report_page(report: Report) -> Page:
    """Return the page of a report: the finding, the outputs, the bounds, their meaning, and the details folded."""
    findings = [diagnostic.value for diagnostic in report.diagnostics if not diagnostic.voids]
    notes = tuple(map(as_sentence, (*findings, *report.remarks, *report.provenance.get("notes", ()))))
    seeded = "" if report.seeded else " The mechanism cannot be seeded, so a repetition draws other runs."
    blocks: list[Block] = [Items([Sentence(text, label=f"{name}:") for name, text in summary(report)])]
    if not report.voiding:
        blocks += _finding_sections(report)
    blocks += [Section("Notes", (Items(notes),))] if notes else []
    again = (
        Code(reproduction_command(report), "python"),
        Sentence(f"{seeded} {_run_text(report)}".strip(), style="small"),
    )
    blocks.append(Section("How to reproduce this result", again))
    version = report.provenance.get("versions", {}).get("dpverify", "")
    return Page(
        headline(report),
        blocks,
        f"Privacy audit of {report.name} on one pair of datasets",
        report.verdict.name.replace("_", " "),
        report.verdict.name,
        f"dpverify {version}. Digest of the result: {report.digest}",
        {} if report.voiding else TERMS,
    )


def _finding_sections(report: Report) -> list[Block]:
    """Return the sections of a report with an answer."""
    upper, drawings, certainty = _upper_over_cells(report), draw_outputs(report), report.observer_certainty
    outputs: list[Block] = [Sentence(report.witness.text, style="quote"), *(Figures([one]) for one in drawings)]
    outputs += map(Sentence, describe_event(report))
    outputs.append(
        Table(
            [
                "dataset",
                Column("runs", True),
                Column("in the witness", True),
                f"{format_percent(1 - report.alpha)} limits",
            ],
            _share_rows(report),
        )
    )
    sections: list[Block] = [
        Section("The witness: the tested event with the strongest result", outputs, "witness"),
        Section("Bounds", (Figures([bounds_figure(report, upper)]), Items(facts(report))), "bounds"),
    ]
    alone = attribution_figure(report)
    if alone is not None:
        sections.append(Section("Where it leaks", (Figures([alone]),), "numbers"))
    if certainty is not None:
        meaning = (Sentence(as_sentence(describe_observer(report))), Figures([observer_figure(*certainty)]))
        sections.append(Section("What this means for a person", meaning, "meaning"))
    sections.append(Section("For statisticians", _details(report, upper), "details", folded=True))
    return sections


def _share_rows(report: Report) -> list[list[str]]:
    """Return how many runs of each dataset are in the witness, with limits where it was fixed before these runs."""
    witness = report.witness
    rows = []
    for name, count, (share, low, high) in zip(DATASETS, witness.counts, witness.probabilities, strict=True):
        shown = f"{format_percent(low)} to {format_percent(high)}" if report.is_tested else "none"
        rows.append([name, format_count(witness.runs), f"{format_count(count)} ({format_percent(share)})", shown])
    return rows


def _details(report: Report, upper: float) -> list[Block]:
    """Return the slider, the curves and the tables."""
    curves = compute_curves(report, upper)
    wealth, wholes = wealth_figure(report), error_figure(report)
    slider = Slider(*slider_columns(report, curves), (p_value_figure(report, curves), delta_figure(report, curves)))
    return [
        Sentence(
            "The tested events were fixed before the test runs. So the same counts test every claim: you may choose ε "
            "after seeing the results. The p-values belong to all tested events together. The bounds on δ hold at "
            "all ε together, so each is a little looser than a bound for a single ε."
        ),
        slider,
        Figures([wholes] if wealth is None else [wealth, wholes]),
        Table(["Runs and further results", ""], _result_rows(report)),
        Table(["Settings", ""], [[name, str(value)] for name, value in _settings(report)]),
        Table(["Versions and times", ""], _provenance_rows(report)),
    ]


def _result_rows(report: Report) -> list[list[Cell | str]]:
    """Return the numbers of runs, the levels, and further results."""
    settings, part, sequence, paper = report.settings, report.cell_counts, report.sequence, report.paper
    rows: list[tuple[str, str, str]] = []
    if sequence is None:
        rows += [
            ("test runs", format_count(settings.test_runs), "per dataset; all bounds and p-values are from these runs"),
            ("selection runs", format_count(settings.select_runs), "per dataset; they selected the tested events"),
        ]
    else:
        early, exact = (format_number(x * report.alpha) for x in (sequence.early_share, 1 - sequence.early_share))
        rows += [
            ("runs", format_count(sequence.runs_used), f"per dataset; ended by: {sequence.stopped.value}"),
            ("α of the evidence", early, "the claim can be refuted after any batch"),
            (
                "α of the exact test",
                exact,
                f"on {format_count(sequence.exact_runs)} runs, at the end of the first budget",
            ),
        ]
    budgets = 3 if report.is_curve else 2
    together = format_percent(max(0.0, 1 - budgets * report.alpha))
    rows += [
        ("confidence", format_percent(1 - report.alpha), f"of each statement; {together} of these {budgets} together"),
    ]
    if part.runs:
        mass = f"at least {math.floor(1e4 * part.region_mass) / 100:g}%"
        rows += [
            ("cells", format_cell_count(part.cells), "together they cover all outputs"),
            ("probability of the likely region", mass, "the region around the pilot runs; for each dataset"),
        ]
    if report.is_curve:
        at_delta, upper = f"at δ = {format_number(report.delta)}", _upper_over_cells(report)
        rows += [
            ("ε at least", format_lower(report.epsilon_lower or 0.0), f"{at_delta}; with an α of its own"),
            ("ε at most", format_upper(upper) if upper < math.inf else "none", f"{at_delta}, over the cells"),
        ]
    detectable = None if report.claim is None else report.epsilon_detectable
    if detectable is not None and detectable < math.inf:
        rows.append(("detectable ε", format_number(detectable), "of the witness, with probability about 80%"))
    for name, (mean, error) in zip(DATASETS, report.error or (), strict=False):
        rows.append(
            (
                f"error, {name} dataset",
                f"{format_number(mean)} ± {format_number(2 * error)}",
                "mean ± 2 standard errors",
            )
        )
    if settings.follows_paper and paper is not None and report.epsilon_critical is not None:
        rows += [
            ("critical ε", format_number(report.epsilon_critical), "the smallest ε that is not rejected"),
            ("η of the paper", format_number(paper.eta), "the largest share of selection runs in an event"),
            ("λ of the paper", format_number(paper.lambda_), "for comparison with the paper; not a guarantee"),
        ]
        values = ", ".join(f"{p:.3g}" for p in paper.p_values or ())
        kind = "means over all thinnings" if paper.averaged else "randomised (thinned)"
        rows += [("p-values of the paper", values, f"{kind}, at δ = 0, in both directions")] if values else []
    return [[Cell(name, explanation), value] for name, value, explanation in rows]


def _settings(report: Report) -> list[tuple[str, object]]:
    return [(name, value) for name, value in to_plain(report.settings).items() if name != "kind"]


def _provenance_rows(report: Report) -> list[list[str]]:
    """Return versions, device, workers and seconds, in one order whether the report is new or read from JSON."""
    run = report.provenance
    rows = [[name, str(version)] for name, version in sorted(run.get("versions", {}).items())]
    rows += [[name, str(run[name])] for name in ("device", "workers", "resumed") if name in run]
    return rows + [[f"seconds, {stage}", f"{time:.3g}"] for stage, time in sorted(run.get("seconds", {}).items())]


def _run_text(report: Report) -> str:
    seconds = report.provenance.get("seconds", {})
    return f"It took {sum(seconds.values()):.3g} s." if seconds else ""
