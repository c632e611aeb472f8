"""The page of one report and its figures: the outputs, the bounds, what an observer learns, numbers along epsilon.

The reader of a page may choose any epsilon after seeing the results. All numbers along epsilon allow this: the p-values
belong to events that were fixed before the test runs, and each bound on delta holds at all epsilons together.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dpverify.errors import InputError
from dpverify.render import figures
from dpverify.render.builder import (
    Block,
    Code,
    Column,
    Figures,
    Items,
    Page,
    PageContext,
    Section,
    Sentence,
    Table,
    WriteFigure,
)
from dpverify.render.figures import CELLS, CERTIFIED, EPSILON_LABEL, INK, MUTED, Bar, Drawing, Key, Series, bars, chart
from dpverify.render.outputs import draw_outputs
from dpverify.report import text as words
from dpverify.report.report import MAX_EXPONENT, Report, divide_p_value, paper_p_values
from dpverify.report.sequence import StoppedBy
from dpverify.report.statements import Witness
from dpverify.stats.boundaries import lower_envelope, with_mirror_images
from dpverify.stats.exact import P_VALUE_FLOOR, small_p_value
from dpverify.util.formatting import format_count, format_lower, format_number, format_percent, format_upper
from dpverify.util.serialization import to_plain

SLIDER_POSITIONS = 150  # about as many; a step is 1, 2 or 5 times a power of ten
TRADEOFF_POINTS = 401
LOWEST_P_VALUE = 1e-6  # that is drawn for the paper's test; the exact test has a floor of its own
LOWEST_WEALTH = 1e-6  # that is drawn
MAX_BARS = 12  # numbers of an output whose bars fit on a screen
UNCHECKED_KEY = "events that split a cell were not checked"
PLOT_KINDS = ("outputs", "delta", "p-value", "errors")
DATASETS = ("first", "second")
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

    def markdown(self, write: WriteFigure) -> str:
        """Return the figures: a Markdown page has no slider."""
        return Figures(self.drawings).markdown(write)


def plot(report: Report, kind: str) -> Figure:
    """Return one figure of the page with its title and legend inside; `Report.plot` documents the kinds."""
    if kind not in PLOT_KINDS:
        raise InputError(f"plot: found kind {kind!r}; expected {', '.join(PLOT_KINDS)}")
    if report.voiding:
        raise InputError(f"plot: {words.headline(report)} There is nothing to draw; fix this, then verify again")
    if kind == "outputs":
        return figures.complete_figure(draw_outputs(report)[0])
    if kind == "errors":
        return figures.complete_figure(error_figure(report))
    curves = compute_curves(report, _upper_over_cells(report))
    return figures.complete_figure((delta_figure if kind == "delta" else p_value_figure)(report, curves))


def _upper_over_cells(report: Report) -> float:
    return math.inf if report.on_partition is None else report.on_partition.epsilon_upper(report.delta)


def report_page(report: Report) -> Page:
    """Return the page of a report: the finding, the outputs, the bounds, their meaning, and the details folded.

    A report that was read from JSON gives the same page.
    """
    findings = [diagnostic.value for diagnostic in report.diagnostics if not diagnostic.voids]
    run = report.provenance
    notes = tuple(map(words.as_sentence, (*findings, *report.remarks, *run.get("notes", ()))))
    seeded = "" if report.seeded else "The mechanism cannot be seeded, so a repetition draws other runs. "
    seconds = f"It took {sum(run['seconds'].values()):.3g} s." if run.get("seconds") else ""
    again = Code(words.reproduction_command(report), "python"), Sentence(seeded + seconds, style="small")
    blocks: list[Block] = [Items([Sentence(text, label=f"{name}:") for name, text in words.summary(report)])]
    blocks += [] if report.voiding else _finding_sections(report)
    blocks += [Section("Notes", (Items(notes),))] if notes else []
    return Page(
        words.headline(report),
        [*blocks, Section("How to reproduce this result", again)],
        f"Privacy audit of {report.name} on one pair of datasets",
        report.verdict.name.replace("_", " "),
        report.verdict.name,
        f"dpverify {run.get('versions', {}).get('dpverify', '')}. Digest of the result: {report.digest}",
        {} if report.voiding else TERMS,
    )


def _finding_sections(report: Report) -> list[Block]:
    """Return the sections of a report with an answer."""
    upper, alone, certainty = _upper_over_cells(report), attribution_figure(report), report.observer_certainty
    confidence = format_percent(1 - report.alpha)
    columns = ["dataset", Column("runs", True), Column("in the witness", True), f"{confidence} limits"]
    outputs: list[Block] = [Sentence(report.witness.text, style="quote")]
    outputs += [Figures([one]) for one in draw_outputs(report)]
    outputs += [*map(Sentence, words.describe_event(report)), Table(columns, _share_rows(report))]
    sections: list[Block] = [
        Section("The witness: the tested event with the strongest result", outputs, "witness"),
        Section("Bounds", (Figures([bounds_figure(report, upper)]), Items(words.facts(report))), "bounds"),
    ]
    sections += [] if alone is None else [Section("Where it leaks", (Figures([alone]),), "where")]
    if certainty is not None:
        meaning = Sentence(words.as_sentence(words.describe_observer(report))), Figures([observer_figure(*certainty)])
        sections.append(Section("What this means for a person", meaning, "meaning"))
    return [*sections, Section("For statisticians", _details(report, upper), "details", folded=True)]


def _share_rows(report: Report) -> list[list[str]]:
    """Return how many runs of each dataset are in the witness, with limits where it was fixed before these runs."""
    witness, rows = report.witness, []
    for name, count, (share, low, high) in zip(DATASETS, witness.counts, witness.probabilities, strict=True):
        shown = f"{format_percent(low)} to {format_percent(high)}" if report.is_tested else "none"
        rows.append([name, format_count(witness.runs), f"{format_count(count)} ({format_percent(share)})", shown])
    return rows


def _details(report: Report, upper: float) -> list[Block]:
    """Return the slider, the curves, the report as text, the settings and the versions."""
    curves, wealth, run = compute_curves(report, upper), wealth_figure(report), report.provenance
    slider = Slider(*slider_columns(report, curves), (p_value_figure(report, curves), delta_figure(report, curves)))
    settings = {name: str(value) for name, value in to_plain(report.settings).items() if name != "kind"}
    origin = {**dict(sorted(run.get("versions", {}).items()))}
    origin |= {name: run[name] for name in ("device", "workers", "resumed") if name in run}
    origin |= {f"seconds, {stage}": f"{time:.3g}" for stage, time in sorted(run.get("seconds", {}).items())}
    return [
        Sentence(
            "The tested events were fixed before the test runs. So the same counts test every claim: you may choose ε "
            "after seeing the results. The p-values belong to all tested events together. The bounds on δ hold at "
            "all ε together, so each is a little looser than a bound for a single ε."
        ),
        slider,
        Figures([*([] if wealth is None else [wealth]), error_figure(report)]),
        Items(_further_results(report)),
        Code(words.report_text(report), "text"),
        Table(["setting", "value"], list(settings.items())),
        Table(["origin", "value"], [[name, str(value)] for name, value in origin.items()]),
    ]


def _further_results(report: Report) -> list[str]:
    """Return what the report does not say as text."""
    budgets, part, paper = 3 if report.is_curve else 2, report.cell_counts, report.paper
    together = format_percent(max(0.0, 1 - budgets * report.alpha))
    found = [f"Each statement has {format_percent(1 - report.alpha)} confidence; these {budgets} together {together}."]
    if part.runs:
        mass = math.floor(1e4 * part.region_mass) / 100
        found.append(f"The likely region has a probability of at least {mass:g}% with each dataset.")
    if report.settings.follows_paper and paper is not None and paper.p_values is not None:
        kind = "means over all thinnings" if paper.averaged else "thinned"
        values = " and ".join(f"{p:.3g}" for p in paper.p_values)
        found.append(f"The paper's p-values ({kind}, at δ = 0, in both directions) are {values}.")
    return found


class EpsilonCurves(NamedTuple):
    """p-values and bounds on delta along a grid of epsilons.

    Attributes
    ----------
    epsilon : ndarray
        The grid: it starts at 0 and increases in equal steps.
    p_value : ndarray
        p-values of the claims (epsilon, delta), by all tested events together.
    p_floor : float
        A p-value that is not larger than this number is an upper bound of the p-value. 0 where all are exact.
    decisive : ndarray of int
        The tested event with the smallest p-value at each epsilon; empty where the p-values are not those of events.
    delta_lower, delta_upper : ndarray
        Bounds on delta. Each of the two holds at all epsilons together.
    delta_claimed : ndarray or None
        The delta that the claim implies at each epsilon, if the claim is a curve.
    """

    epsilon: np.ndarray
    p_value: np.ndarray
    p_floor: float
    decisive: np.ndarray
    delta_lower: np.ndarray
    delta_upper: np.ndarray
    delta_claimed: np.ndarray | None


def compute_curves(report: Report, epsilon_upper: float) -> EpsilonCurves:
    """Return p-values and bounds on delta along epsilon, beyond the claim, the lower bound and the upper one.

    The upper bound on delta is that of `report.profile`, interpolated between its epsilons.
    """
    marked = (report.epsilon_lower or 0.0, report.epsilon_critical or 0.0, report.epsilon or 0.0, epsilon_upper)
    end = max(1.3 * max(epsilon for epsilon in marked if epsilon < math.inf), 0.2)
    epsilons = np.round(MaxNLocator(SLIDER_POSITIONS, steps=[1, 2, 5, 10]).tick_values(0, end), 12)
    p_floor, decisive, sequence = 0.0, np.zeros(0, int), report.sequence
    if sequence is None and report.settings.test != "exact":
        pairs = [paper_p_values(report.witness, report.settings, epsilon) for epsilon in epsilons.tolist()]
        p_value = np.min(pairs, axis=1)
    else:
        by_event = p_values_by_event(report, epsilons)
        p_value = by_event.min(0)
        if sequence is None:
            p_floor, decisive = P_VALUE_FLOOR * report.alpha, by_event.argmin(0)
        else:  # the wealth and the exact test together
            by_test = p_value / (1 - sequence.early_share) if report.is_tested else 1.0
            by_wealth = sequence.p_values(epsilons, report.delta) / sequence.early_share
            p_value = np.minimum(np.minimum(by_wealth, by_test), 1.0)
    profile = report.profile
    assert profile is not None
    nodes = profile["eps"]
    # This delta is convex in exp(epsilon), so a chord between two bounds is a bound too.
    upper = np.interp(np.exp(np.minimum(epsilons, nodes[-1])), np.exp(nodes), profile["delta_upper"])
    claimed = report.claim.implied_delta(epsilons) if report.claim is not None and report.is_curve else None
    lower = report.delta_lower_curve(epsilons)
    return EpsilonCurves(epsilons, p_value, p_floor, decisive, lower, upper, claimed)


def p_values_by_event(report: Report, epsilons: np.ndarray) -> np.ndarray:
    """Return the p-value of each tested event (rows) at each epsilon, divided by the event's share of the level."""
    level = report.level

    def p_value(one: Witness, epsilon: float) -> float:
        single = small_p_value(*one.ordered, one.runs, epsilon, report.delta, one.share * level)
        return divide_p_value(single, one.share, level)

    return np.array([evaluate_increasing(functools.partial(p_value, one), epsilons) for one in report.tested])


def evaluate_increasing(function: Callable[[float], float], grid: np.ndarray) -> np.ndarray:
    """Evaluate an increasing function on a grid.

    Where the values at both ends of an interval agree, the values between them follow without evaluation: most
    p-values are 1 or the smallest that is computed.
    """
    values = np.full(grid.size, np.nan)
    values[0], values[-1] = function(float(grid[0])), function(float(grid[-1]))
    intervals = [(0, grid.size - 1)]
    while intervals:
        low, high = intervals.pop()
        if high - low > 1 and math.isclose(values[low], values[high], rel_tol=1e-6):
            values[low + 1 : high] = values[high]
        elif high - low > 1:
            middle = (low + high) // 2
            values[middle] = function(float(grid[middle]))
            intervals += [(low, middle), (middle, high)]
    return values


def slider_columns(report: Report, curves: EpsilonCurves) -> tuple[list[tuple[str, list[str]]], int]:
    """Return the names and texts of the numbers at each position of the slider, and its first position.

    Bounds are rounded so that the texts are bounds too.
    """
    positions = range(curves.epsilon.size)
    lower, upper = (np.asarray(side).tolist() for side in (curves.delta_lower, curves.delta_upper))
    outcome = [
        f"A claim of ε = {epsilon:.12g} would {'' if p <= report.alpha else 'not '}be refuted by these runs."
        + (" The lower bound on δ comes from events that split cells." if low > high else "")
        for epsilon, p, low, high in zip(curves.epsilon.tolist(), curves.p_value.tolist(), lower, upper, strict=True)
    ]
    columns = [
        ("ε", [f"{epsilon:.12g}" for epsilon in curves.epsilon.tolist()]),
        (
            f"p-value at δ = {format_number(report.delta)}, of all tested events together",
            [f"{'≤ ' if p <= curves.p_floor else ''}{p:.3g}" for p in curves.p_value.tolist()],
        ),
        ("lower bound on δ", [f"≥ {format_lower(x)}" for x in lower]),
        ("upper bound on δ, over the cells", [f"≤ {format_upper(min(x, 1.0))}" for x in upper]),
        ("result", outcome),
    ]
    if curves.decisive.size and len(report.tested) > 1:
        events = [f"{one.text} ({words.describe_shares(one)})" for one in report.tested]
        columns.append(("the event that decides", [events[curves.decisive[i]] for i in positions]))
    start = report.epsilon if report.epsilon is not None else report.epsilon_lower or 0.0
    return columns, int(np.argmin(np.abs(curves.epsilon - start)))


def bounds_figure(report: Report, epsilon_upper: float) -> Drawing:
    """Draw which values of epsilon are excluded, and by what; of a claim that is a curve, the values of its parameter.

    The bounds have different scopes, so they are bars of their own and not an interval.
    """
    claim, claimed, name = report.claim, report.epsilon, "ε"
    lower, upper, certified = report.epsilon_lower or 0.0, epsilon_upper, math.inf
    if report.certificate is not None:
        certified = report.certificate.epsilon_upper(report.delta)
    if claim is not None and report.is_curve:
        claimed, name, lower = claim.parameter, claim.parameter_words, report.claim_lower or 0.0
        upper = certified = math.inf
    end = 1.25 * max(x for x in (lower, claimed or 0.0, upper, certified) if x < math.inf) or 1.0
    limit = math.inf if claimed is None else claimed
    text = f"{name} at least {format_lower(lower, claimed)} (all events)" if lower else f"no lower bound on {name}"
    rows = [Bar(text, 0.0, lower, INK, limit)]
    keys = [Key("ink", "bar", "excluded: every value here is refuted")] if lower else []
    keys += [Key("beyond", "bar", "refuted beyond the claim")] if lower > limit else []
    if upper < math.inf:
        rows.append(Bar(f"{name} at most {format_upper(upper)} (over the cells)", upper, end, CELLS))
        keys.append(Key("cells", "bar", f"excluded over the cells; {UNCHECKED_KEY}"))
    if certified < math.inf:
        rows.append(Bar(f"{name} at most {format_upper(certified)} (all events, certified)", certified, end, CERTIFIED))
        keys.append(Key("certified", "bar", "excluded over all events, certified"))
    title = f"Bounds on {name}" + ("" if report.is_curve else f" at δ = {format_number(report.delta)}")
    confidence = f"Each bound holds with {format_percent(1 - report.alpha)} confidence."
    caption = f"{confidence} Their scopes differ, so they are not an interval." if len(rows) > 1 else confidence
    drawing = bars(rows, end, f"{name} (smaller is more private)", title, keys, claim=claimed)
    return drawing._replace(caption=caption)


def attribution_figure(report: Report) -> Drawing | None:
    """Draw what each number of the output leaks alone, the largest ones; None where it is not known."""
    found = report.attribution()
    if not found:
        return None
    least = sorted((one.epsilon_lower for one in found), reverse=True)[:MAX_BARS][-1]
    shown = [one for one in found if one.epsilon_lower >= least][:MAX_BARS]
    which = f"the {len(shown)} numbers that leak most" if len(shown) < len(found) else "every number of the output"
    worst = max(shown, key=lambda one: one.epsilon_lower)
    with figures.styled():
        picture = figures.canvas(figures.FRAME_HEIGHT + 1.2 * figures.ROW_HEIGHT * len(shown))
        axes = picture.add_subplot()
        drawn = axes.barh(range(len(shown)), [one.epsilon_lower for one in shown], 0.6, color=INK)
        axes.bar_label(drawn, [format_lower(one.epsilon_lower) for one in shown], padding=3)
        axes.set_yticks(range(len(shown)), [figures.shorten(one.name) for one in shown])
        axes.set(xlim=(0, 1.25 * worst.epsilon_lower or 1.0), ylim=(len(shown) - 0.5, -0.5))
        axes.set_xlabel("ε of one number alone (smaller is more private)", loc="right")
    return Drawing(
        picture,
        "What each number of the output leaks alone",
        f"{worst.name} leaks most: epsilon at least {format_lower(worst.epsilon_lower)}.",
        caption=f"Lower bounds for {which}, all together with {format_percent(1 - report.alpha)} confidence and an α "
        "of their own. Somebody who combines numbers may learn more.",
    )


def observer_figure(at_least: float, allowed: float | None) -> Drawing:
    """Draw how sure an observer is who was undecided: before, as the claim allows, and after seeing the witness."""
    limit = math.inf if allowed is None else 100 * allowed
    shares = [("before", 0.5), *([] if allowed is None else [("the claim allows", allowed)])]
    rows = [Bar(f"{name}: {words.percent_down(share)}", 0.0, 100 * share, MUTED) for name, share in shares]
    rows.append(
        Bar(f"after seeing the witness, at least: {words.percent_down(at_least)}", 0.0, 100 * at_least, INK, limit)
    )
    return bars(rows, 100, "how sure (%)", "How sure an undecided observer becomes")


def _claim_marks(report: Report) -> list[tuple[float, str]]:
    return [] if report.epsilon is None else [(report.epsilon, f"claimed ε = {format_number(report.epsilon, 7)}")]


def p_value_figure(report: Report, curves: EpsilonCurves) -> Drawing:
    """Draw the p-value against epsilon, with the level alpha, the critical epsilon and the claim."""
    from_paper, critical, alpha = report.settings.test != "exact", report.epsilon_critical or 0.0, report.alpha
    lowest, end = curves.p_floor or min(LOWEST_P_VALUE, alpha / 100), float(curves.epsilon[-1])
    kind = "smaller of the paper's two p-values" if from_paper else "p-value of all tested events together"
    kind = kind if report.sequence is None else "p-value of the evidence and the exact test together"
    name = f"critical ε = {format_number(critical)}" if from_paper else f"ε ≥ {format_lower(critical)}"
    level = Key("muted", "dash", f"α = {format_number(alpha)}: at or below it the claim is refuted")
    return chart(
        [
            Series(curves.epsilon, np.maximum(curves.p_value, lowest), Key("ink", "line", f"the {kind}")),
            Series([0, end], [alpha, alpha], level),
        ],
        (EPSILON_LABEL, "p-value"),
        "p-value of every claim ε",
        f"The {kind} against epsilon from 0 to {format_number(end)}. It is at most {format_number(alpha)} up to "
        f"epsilon {format_number(critical)}.",
        f"At δ = {format_number(report.delta)}. p-values below {lowest:g} are drawn at {lowest:g}.",
        marks=[*_claim_marks(report), *([(critical, name)] if critical < math.inf else [])],
        xlim=(0, end),
        yscale="log",
        ylim=(0.6 * lowest, lowest**-0.37),  # space for the names
    )


def delta_figure(report: Report, curves: EpsilonCurves) -> Drawing:
    """Draw the bounds on delta against epsilon: over all events, over the cells, and certified where one is joint."""
    epsilon, lower, upper = curves.epsilon, curves.delta_lower, curves.delta_upper
    series = [
        Series(epsilon, lower, Key("ink", "line", "lower bound on δ, over all events")),
        Series(epsilon, upper, Key("cells", "dash", f"upper bound on δ over the cells; {UNCHECKED_KEY}")),
    ]
    certificate = report.certificate
    if certificate is not None and certificate.is_joint:
        certified = np.array([certificate.delta_upper(x) for x in epsilon.tolist()])
        series.append(
            Series(epsilon, certified, Key("certified", "line", "upper bound on δ over all events, certified"))
        )
    if curves.delta_claimed is not None:
        series.append(Series(epsilon, np.minimum(curves.delta_claimed, 1.0), Key("ink", "dots", "the claim")))
    if report.epsilon is not None:
        series.append(Series([report.epsilon], [report.delta], Key("ink", "diamond", "the claim")))
    return chart(
        series,
        (EPSILON_LABEL, "δ (probability)"),
        "Bounds on δ for every ε",
        f"At epsilon 0, delta is at least {format_lower(float(lower[0]))}, and over the cells at most "
        f"{format_upper(float(upper[0]))}; at epsilon {format_number(float(epsilon[-1]))}, at most "
        f"{format_upper(float(upper[-1]))} over the cells.",
        f"Each of the curves holds at all ε together, with {format_percent(1 - report.alpha)} confidence. So it is "
        "a little looser than a bound for one ε.",
        marks=_claim_marks(report),
        xlim=(0, epsilon[-1]),
        ylim=(0, 1.15 * max(float(np.max(one.y)) for one in series) or 1e-9),
    )


def error_figure(report: Report) -> Drawing:
    """Draw type II against type I errors of an observer: the claim, the bound over the cells, and the witness."""
    profile, claim, confidence = report.profile, report.claim, format_percent(1 - report.alpha)
    assert profile is not None
    type1 = np.linspace(0.0, 1.0, TRADEOFF_POINTS)
    bounded = 1.0 - lower_envelope(*with_mirror_images(profile["eps"], profile["delta_upper"])).lowest(type1)
    larger, smaller = (report.witness.probabilities[number - 1] for number in report.witness.direction)
    x, y = smaller[0], 1.0 - larger[0]
    series = [
        Series([0, 1], [1, 0], Key("muted", "dots", "the outputs say nothing about the dataset")),
        Series(type1, bounded, Key("cells", "dash", "no event made of these cells lies below this")),
    ]
    if claim is not None:
        allowed = 1.0 - np.interp(type1, *claim.allowed_pairs())
        series.append(Series(type1, allowed, Key("ink", "line", "the claim: if true, all points lie above it")))
    limits = ""
    if report.is_tested:  # otherwise these runs selected the event, so there are no limits
        limits = f", with {confidence} confidence limits"
        cross = [*smaller[1:], math.nan, x, x], [y, y, math.nan, 1.0 - larger[2], 1.0 - larger[1]]
        series.append(Series(*cross, Key("ink", "line", "")))
    series.append(Series([x], [y], Key("ink", "dot", f"the witness{limits}")))
    return chart(
        series,
        ("type I error (probability)", "type II error (probability)"),
        "Errors of an observer who guesses the dataset",
        f"The witness has a type I error of {format_percent(x)} and a type II error of {format_percent(y)}. "
        + (f"The claim is {claim.describe()}." if claim is not None else ""),
        "An observer sees one output and guesses the dataset that makes it more likely. Type I error: the witness "
        "occurs with the dataset where it is rarer. Type II error: it does not occur with the other one.",
        xlim=(0, 1),
        ylim=(0, 1),
    )


def wealth_figure(report: Report) -> Drawing | None:
    """Draw the evidence of a verification that may stop early against its runs; None without bets or a claim."""
    sequence, claim = report.sequence, report.claim
    if sequence is None or claim is None:
        return None
    runs, threshold = np.append(sequence.first_runs, sequence.runs), sequence.threshold(report.alpha)
    wealth = np.exp(np.clip(np.append(0.0, sequence.log_wealth(claim)), math.log(LOWEST_WEALTH), MAX_EXPONENT))
    last, limit = format_number(report.e_value or 0.0), format_number(threshold)
    ends = runs[[0, -1]]
    end = {
        StoppedBy.REFUTED: "It reached the threshold, so the claim is refuted.",
        StoppedBy.CERTIFIED: "The verification ended because an upper bound over all events met the claim.",
        StoppedBy.BUDGET: "The verification ended because its budget was spent.",
    }[sequence.stopped]
    return chart(
        [
            Series(runs, wealth, Key("ink", "line", f"evidence against the claim: {claim.describe()}")),
            Series(ends, [threshold] * 2, Key("beyond", "dash", f"{limit}: the claim is refuted here")),
            Series(ends, [1, 1], Key("muted", "dots", "1: the evidence at the start")),
        ],
        ("runs per dataset", "evidence"),
        "Evidence over the runs",
        f"The evidence against the claim ends at {last} after {format_count(int(runs[-1]))} runs per dataset; {limit} "
        "refutes.",
        "The evidence starts at 1; each batch bets on events of earlier batches. If the claim is true, it reaches the "
        f"threshold with probability at most {format_number(1 / threshold)}, however many runs follow. {end}",
        xscale="log",
        yscale="log",
        xticks=ends,
        xticklabels=[format_count(number) for number in ends.tolist()],
    )
