"""Figures of one report: p-values of claims and bounds on delta along epsilon, and the errors of tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from dpverify.render.content import ClaimResult, EpsilonCurves, ErrorTradeoff, WealthCourse
from dpverify.render.style import CELLS, FIRST, INK, MUTED, PAPER, PROVED, SECOND, Drawing, Key, canvas, label, styled
from dpverify.util.formatting import format_count, format_lower, format_number, format_percent, format_upper

MIN_DRAWN_P_VALUE = 1e-6  # the p-values of the paper's test have no other lower limit
MIN_DRAWN_DECADES = -6  # smaller wealth is drawn at this power of ten
ROW_SHARE = 0.085  # height of a name, as a share of the axes
CHARACTER_SHARE = 0.0175  # width of a character of a name, as a share of the axes
EPSILON_LABEL = "ε (logarithm of a probability ratio)"
HYPOTHESES = ("P₁ ≤ exp(ε) P₂ + δ", "P₂ ≤ exp(ε) P₁ + δ")


class Mark(NamedTuple):
    """A vertical line at an epsilon, with its name."""

    epsilon: float
    text: str
    colour: str
    dashed: bool


def _mark_epsilons(axes: Axes, marks: Sequence[Mark]) -> None:
    """Draw vertical lines with their names at the top, so that no line crosses a name.

    All names stand on the same side of their lines, except where a name has no space there. The line over which the
    other name would extend is shorter, and its name stands lower.
    """
    left, right = axes.get_xlim()
    marks = sorted(marks, key=lambda mark: mark.epsilon)
    to_left = bool(marks) and (marks[-1].epsilon - left) / (right - left) > 0.6
    for row, mark in enumerate(reversed(marks) if to_left else marks):
        top = 1 - ROW_SHARE * row
        name_to_left = to_left and (mark.epsilon - left) / (right - left) > CHARACTER_SHARE * len(mark.text)
        axes.axvline(mark.epsilon, ymax=top, color=mark.colour, lw=1, ls=(0, (4, 2)) if mark.dashed else "-", zorder=1)
        axes.annotate(
            mark.text,
            (mark.epsilon, top),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if name_to_left else 3, -9),
            textcoords="offset points",
            ha="right" if name_to_left else "left",
            fontsize=8.5,
            color=mark.colour,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
        )


def p_value_figure(result: ClaimResult, curves: EpsilonCurves) -> Drawing:
    """Draw the p-values of both directions against epsilon, with the level alpha and the critical epsilon.

    Parameters
    ----------
    result : ClaimResult
        The claim and its test.
    curves : EpsilonCurves
        The p-values.

    Returns
    -------
    Drawing
        The figure.
    """
    smallest = curves.p_floor or min(MIN_DRAWN_P_VALUE, result.alpha / 100)
    critical, last = result.epsilon_critical, float(curves.epsilon[-1])
    with styled():
        picture = canvas(3.1)
        axes = picture.add_subplot()
        for values, colour in ((curves.p_first, FIRST), (curves.p_second, SECOND)):
            axes.plot(curves.epsilon, np.maximum(values, smallest), color=colour, lw=2)
        axes.set_yscale("log")
        axes.set_ylim(smallest / 1.6, smallest**-0.37)  # leaves space above 1 for the names of the vertical lines
        axes.set_xlim(0, last)
        ticks = 10.0 ** np.arange(0, math.floor(math.log10(smallest)) - 1, -1 if smallest > 1e-5 else -2)
        ticks = ticks[ticks >= smallest]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.axhline(result.alpha, color=MUTED, lw=0.8)
        at_end = {"xytext": (-2, -3), "textcoords": "offset points", "ha": "right", "va": "top", "fontsize": 8.5}
        axes.annotate(f"α = {format_number(result.alpha)}", (last, result.alpha), color=MUTED, **at_end)
        marks = []
        if critical < math.inf:
            name = f"critical ε = {format_number(critical)}"
            if not curves.from_paper:
                name = f"proved ε ≥ {format_lower(critical)}"
            marks.append(Mark(critical, name, PROVED, False))
        if result.epsilon is not None:
            marks.append(Mark(result.epsilon, f"claimed ε = {format_number(result.epsilon)}", INK, True))
        _mark_epsilons(axes, marks)
        label(axes, EPSILON_LABEL, "p-value")
    kind = "p-values of the paper's test" if curves.from_paper else "p-values of all tested events together"
    return Drawing(
        picture,
        "p-value as a function of the claimed ε",
        f"The {kind} against epsilon from 0 to {format_number(last)}, in both directions. The smaller of the two is at "
        f"most {format_number(result.alpha)} up to epsilon {format_number(critical)}.",
        (Key("first", "line", HYPOTHESES[0]), Key("second", "line", HYPOTHESES[1])),
        f"The {kind} of the two inequalities in the legend, at δ = {format_number(result.delta)}. P₁ and P₂ are the "
        "probabilities of an event with the first and the second data set. An inequality for which no event was tested "
        "has the p-value 1. A claim is refuted where one of the p-values is at most α. "
        f"p-values below {format_number(smallest)} are drawn at {format_number(smallest)}.",
    )


def delta_figure(result: ClaimResult, curves: EpsilonCurves) -> Drawing:
    """Draw the lower and the upper bound on delta against epsilon.

    The two bounds have different scopes (all events, unions of cells), so the area between them is not filled.

    Parameters
    ----------
    result : ClaimResult
        The claim and its test.
    curves : EpsilonCurves
        The bounds.

    Returns
    -------
    Drawing
        The figure.
    """
    epsilon, lower, upper = curves.epsilon, curves.delta_lower, curves.delta_upper
    with styled():
        picture = canvas(3.1)
        axes = picture.add_subplot()
        axes.fill_between(epsilon, 0, lower, color=PROVED, alpha=0.16, lw=0)
        axes.plot(epsilon, lower, color=PROVED, lw=2)
        axes.plot(epsilon, upper, color=CELLS, lw=1.8, ls=(0, (5, 2)))
        top = max(float(upper[0]), result.delta, 1e-9) * 1.3
        if curves.delta_claimed is not None:
            axes.plot(epsilon, curves.delta_claimed, color=INK, lw=1.4)
            top = max(top, min(float(curves.delta_claimed[0]), 1.0) * 1.1)
        axes.set_xlim(0, epsilon[-1])
        axes.set_ylim(0, top)
        axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= min(top, 1.0)])
        if result.epsilon is not None:
            _mark_epsilons(axes, [Mark(result.epsilon, f"claimed ε = {format_number(result.epsilon)}", INK, True)])
            axes.plot(result.epsilon, result.delta, "D", color=INK, ms=5, clip_on=False, zorder=5)
        label(axes, EPSILON_LABEL, "δ (probability)")
    return Drawing(
        picture,
        "Bounds on δ for every ε",
        f"Bounds on delta against epsilon. Lower bound, proved by the selected events: {format_lower(float(lower[0]))} "
        f"at epsilon 0, decreasing to 0. Upper bound over unions of the cells: {format_upper(float(upper[0]))} at "
        "epsilon 0, "
        f"{format_upper(float(upper[-1]))} at epsilon {format_number(float(epsilon[-1]))}.",
        (
            Key("proved", "area", "shaded: values of δ that are refuted (the true δ is larger)"),
            Key("cells", "dash", "upper bound on δ over these cells; events that split a cell were not checked"),
            *([Key("ink", "diamond", "the claim")] if result.epsilon is not None else []),
            *([Key("ink", "line", "the claim")] if curves.delta_claimed is not None else []),
        ),
        f"Each of the two curves holds at all ε simultaneously, with confidence {format_percent(1 - result.alpha)}.",
    )


def error_figure(errors: ErrorTradeoff) -> Drawing:
    """Draw type II against type I errors: the claim, the bound over unions of cells, and the tested event.

    Parameters
    ----------
    errors : ErrorTradeoff
        The errors.

    Returns
    -------
    Drawing
        The figure.
    """
    (x, y), (left, right, low, high) = errors.witness, errors.limits
    with styled():
        picture = canvas(3.4)
        axes = picture.add_subplot()
        axes.plot([0, 1], [1, 0], color=MUTED, lw=0.8, ls=(0, (1, 2)))
        axes.plot(errors.type1, errors.bounded, color=CELLS, lw=1.8, ls=(0, (5, 2)))
        if errors.claimed is not None:
            axes.plot(errors.type1, errors.claimed, color=INK, lw=1.4)
        axes.plot([left, right], [y, y], color=PROVED, lw=1.6)
        axes.plot([x, x], [low, high], color=PROVED, lw=1.6)
        axes.plot(x, y, "o", color=PROVED, ms=5, zorder=5)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        label(axes, "type I error (probability)", "type II error (probability)")
    claimed = [Key("ink", "line", "the claim: if true, all points lie above it")] if errors.claimed is not None else []
    confidence = format_percent(1 - errors.alpha)
    return Drawing(
        picture,
        "Errors of an observer who guesses the data set",
        f"Type II against type I errors. The witness has a type I error of {format_percent(x)} and a type II "
        f"error of {format_percent(y)}. " + (f"The claim is {errors.claim}." if errors.claim else ""),
        (
            Key("proved", "dot", f"the witness, with its confidence limits ({confidence} for each error)"),
            Key("cells", "dash", "no event made of these cells lies below this"),
            *claimed,
            Key("muted", "dots", "no information: the outputs do not depend on the data set"),
        ),
        "An observer sees one output and guesses the data set. If the event occurs, the guess is the data set where "
        "the event is more frequent; if not, it is the other one. Each event is a point. For the witness, the type I "
        f"error ({format_percent(x)}) is the probability that it occurs with the data set where it is rarer. The type "
        f"II error ({format_percent(y)}) is the probability that it does not occur with the other data set. With "
        f"confidence {confidence}, no event made of these cells lies below the dashed curve.",
    )


def wealth_figure(course: WealthCourse) -> Drawing:
    """Draw the wealth of a verification that may stop early against its runs, with the threshold that refutes.

    Parameters
    ----------
    course : WealthCourse
        The wealth.

    Returns
    -------
    Drawing
        The figure.
    """
    decades = course.log_wealth / math.log(10)
    threshold = course.log_threshold / math.log(10)
    lowest = math.floor(max(min(float(decades.min()), 0.0), MIN_DRAWN_DECADES))
    highest = math.ceil(max(float(decades.max()), threshold) + 0.3)
    with styled():
        picture = canvas(3.1)
        axes = picture.add_subplot()
        axes.axhline(0, color=MUTED, lw=0.8, ls=(0, (1, 2)))
        axes.axhline(threshold, color=PROVED, lw=1.4, ls=(0, (5, 2)))
        drawn = np.maximum(decades, lowest)
        axes.plot(course.runs, drawn, color=INK, lw=1.8)
        axes.plot(course.runs[-1], drawn[-1], "o", color=INK, ms=5, zorder=5, clip_on=False)
        axes.set_xscale("log")
        axes.set_xlim(course.runs[0] / 1.1, course.runs[-1] * 1.1)
        axes.set_ylim(lowest, highest)
        step = max(1, (highest - lowest) // 6)
        ticks = np.arange(math.ceil(lowest / step) * step, highest + 1, step)
        axes.set_yticks(ticks, [f"{10.0**tick:g}" for tick in ticks.tolist()])
        runs_ticks = 10.0 ** np.arange(math.ceil(math.log10(course.runs[0])), math.log10(course.runs[-1] * 1.1))
        runs_ticks = np.unique(np.append(runs_ticks, [course.runs[0], course.runs[-1]]))
        axes.set_xticks(runs_ticks, [format_count(tick) for tick in runs_ticks.tolist()])
        axes.minorticks_off()
        label(axes, "runs per data set", "wealth")
    last, limit = (format_number(math.exp(min(x, 700.0))) for x in (float(course.log_wealth[-1]), course.log_threshold))
    return Drawing(
        picture,
        "Wealth over the runs",
        f"The wealth against the number of runs per data set. It ends at {last} after "
        f"{format_count(int(course.runs[-1]))} runs. A wealth of {limit} refutes the claim.",
        (
            Key("ink", "line", f"wealth against the claim: {course.claim}"),
            Key("proved", "dash", f"{limit}: the claim is refuted here"),
            Key("muted", "dots", "1: the wealth at the start"),
        ),
        "The wealth starts at 1 and is placed on events that earlier runs suggest. If the claim is true, it reaches "
        f"the threshold with probability at most {format_number(math.exp(-course.log_threshold))}, however many runs "
        f"are drawn. {course.end}",
    )
