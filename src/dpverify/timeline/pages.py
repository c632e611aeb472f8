"""Pages and figures of results over time. This module needs matplotlib and Jinja2; it is imported when it is used."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from dpverify.render.bounds import complete_figure
from dpverify.render.over_time import StepBounds, heat_map, step_figure
from dpverify.render.page import render, shown
from dpverify.render.style import Drawing
from dpverify.stats.claim_kinds import Approximate
from dpverify.timeline.bounds import PrefixBounds
from dpverify.timeline.record_bounds import RecordBounds
from dpverify.timeline.texts import (
    claim_cell,
    claim_sentence,
    loss_sentence,
    records_phrase,
    runs_phrase,
    step_cells,
    table_claim,
    table_scope,
)
from dpverify.util.formatting import format_confidence, format_lower, format_number, format_upper

COLUMNS = ("step", "ε, lower bound (all events)", "ε, upper bound (unions of cells)", "added", "spent")
MAX_SENTENCES = 5  # about records; the table has all of them
TABLE_COLUMNS = ("record", "loss proved from step", "ε at the end, lower bound", "upper bound (unions of cells)")


def curve_drawing(curve: PrefixBounds) -> Drawing:
    """Draw the bounds of every step."""
    claim = curve.claim.epsilon if isinstance(curve.claim, Approximate) else None
    bounds = StepBounds(curve.epsilon_lower, curve.epsilon_upper, curve.truth, curve.start, claim)
    subject = f": {curve.record}" if curve.record else ""
    return step_figure(bounds, f"{curve.name}{subject}, δ = {format_number(curve.delta)}")


def curve_plot(curve: PrefixBounds) -> Figure:
    """Return the figure of one pair with its title and legend inside."""
    return complete_figure(curve_drawing(curve))


def curve_page(curve: PrefixBounds) -> str:
    """Return the page of one pair as HTML."""
    confidence = format_confidence(curve.alpha)
    lead = [_sentence(diagnostic.value) for diagnostic in curve.voiding] or [_sentence(loss_sentence(curve))]
    if curve.claim is not None:
        lead.append(_sentence(f"claim: {claim_sentence(curve)}"))
    exact = () if curve.truth is None else ("ε, exact",)
    return render(
        "over_time.html.j2",
        over=f"{curve.steps} steps, {runs_phrase([curve])}",
        title=f"{curve.name}: privacy over time",
        lead=lead,
        figures=shown([curve_drawing(curve)], "step"),
        sentences=[],
        more="",
        scope=f"The lower bounds hold over all events and for all steps together, with confidence {confidence}. The "
        f"upper bounds hold for all steps together, with confidence {confidence}.",
        columns=(*COLUMNS, *exact),
        rows=[_without_infinity(step_cells(curve, step)) for step in range(curve.steps)],
        notes=[_sentence(diagnostic.value) for diagnostic in curve.diagnostics],
    )


def table_drawings(table: RecordBounds) -> list[Drawing]:
    """Draw the heat map of the lower bounds and, where it is known, that of the exact epsilons beside it."""
    truth = table.truth
    known = truth is not None and np.isfinite(truth).all()
    scale = float(max(table.epsilon_lower.max(), truth.max() if known and truth is not None else 0.0))
    meaning = "lower bound on ε of the steps up to this one, over all events"
    drawings = [heat_map(table.records, table.epsilon_lower, table.start, "Proved", meaning, scale)]
    if known and truth is not None:
        starts = [int(np.argmax(row > 0)) if (row > 0).any() else None for row in truth]
        exact = "exact ε of the steps up to this one"
        drawings.append(heat_map(table.records, truth, starts, "Exact, from the closed form", exact, scale))
    return drawings


def table_plot(table: RecordBounds) -> Figure:
    """Return the heat map of the lower bounds with its title and legend inside."""
    first = table.curves[0]
    title = f"{first.name}, proved, δ = {format_number(first.delta)}"
    return complete_figure(table_drawings(table)[0]._replace(title=title))


def table_page(table: RecordBounds) -> str:
    """Return the page of many records as HTML."""
    first, truth = table.curves[0], table.truth
    lead = [_sentence(table_scope(table))]
    if first.claim is not None:
        lead.insert(0, _sentence(f"claim: {table_claim(table)}"))
    if truth is not None and np.isfinite(truth).all():
        largest = float((truth - table.epsilon_lower).max())
        lead.append(f"The exact ε exceeds the lower bound by at most {format_number(largest)}.")
    diagnostics = dict.fromkeys(diagnostic for curve in table.curves for diagnostic in curve.diagnostics)
    steps = [str(step) for step in range(table.steps)]
    return render(
        "over_time.html.j2",
        over=f"{records_phrase(len(table.curves))}, {table.steps} steps, {runs_phrase(table.curves)}",
        title=f"{first.name}: privacy over time, δ = {format_number(first.delta)}",
        lead=lead,
        figures=shown(table_drawings(table), "map"),
        sentences=[_sentence(loss_sentence(curve)) for curve in _worst_records(table)],
        more=_what_is_left_out(table),
        scope="The table has the lower bounds on ε, over all events, of each record and step.",
        columns=(*TABLE_COLUMNS, *(() if first.claim is None else ("claim",)), *steps),
        rows=[_without_infinity(_record_cells(curve)) for curve in table.curves],
        notes=[_sentence(diagnostic.value) for diagnostic in diagnostics],
    )


def _worst_records(table: RecordBounds) -> list[PrefixBounds]:
    """Return the records with the largest lower bounds at the end, in their order."""
    order = sorted(range(len(table.curves)), key=lambda i: (bool(table.curves[i].voiding), -table.curves[i].final))
    return [table.curves[i] for i in sorted(order[:MAX_SENTENCES])]


def _what_is_left_out(table: RecordBounds) -> str:
    """Return which records the sentences are about if they are not about all of them."""
    number = len(table.curves)
    if number <= MAX_SENTENCES:
        return ""
    return f"These are the {MAX_SENTENCES} records with the largest lower bounds; the table has all {number} records."


def _record_cells(curve: PrefixBounds) -> list[str]:
    """Return the cells of one record."""
    start = "" if curve.start is None else str(curve.start)
    ends = [curve.record, start, format_lower(curve.final), format_upper(float(curve.epsilon_upper[-1]))]
    ends += [] if curve.claim is None else [claim_cell(curve)]
    return ends + [format_lower(float(value)) for value in curve.epsilon_lower]


def _without_infinity(cells: list[str]) -> list[str]:
    """Return the cells of a page, on which a missing bound is called "none"."""
    return ["none" if cell == format_upper(math.inf) else cell for cell in cells]


def _sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
