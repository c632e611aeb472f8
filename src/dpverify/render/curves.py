"""Figures of one report: its bounds, what an observer learns, p-values and bounds on delta along epsilon, and errors.

The reader of a page may choose any epsilon after seeing the results. All numbers along epsilon allow this: the p-values
belong to events that were fixed before the test runs, and each bound on delta holds at all epsilons together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from dpverify.render.style import (
    BEYOND,
    CELLS,
    CERTIFIED,
    COLOURS,
    FIRST,
    INK,
    LINE_STYLES,
    MARKERS,
    MUTED,
    PAPER,
    PROVED,
    TEXT_SIZE,
    Drawing,
    Key,
    canvas,
    label,
    styled,
)
from dpverify.report.report import Report, divide_p_value, paper_p_values
from dpverify.report.sequence import StoppedBy
from dpverify.report.statements import Witness
from dpverify.report.text import describe_shares, percent_down
from dpverify.stats.boundaries import lower_envelope, with_mirror_images
from dpverify.stats.exact import P_VALUE_FLOOR, small_p_value
from dpverify.util.formatting import format_count, format_lower, format_number, format_percent, format_upper

SLIDER_POSITIONS = 150  # about as many; a step is 1, 2 or 5 times a power of ten
TRADEOFF_POINTS = 401
LOWEST_P_VALUE = 1e-6  # that is drawn for the paper's test; the exact test has a floor of its own
LOWEST_DECADE = -6  # smaller wealth is drawn at this power of ten
CHARACTER_WIDTH = 0.019  # of a name in a figure, as a share of the axes
EPSILON_LABEL = "ε (logarithm of a probability ratio)"
UNCHECKED_KEY = "events that split a cell were not checked"


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
        events = [f"{one.text} ({describe_shares(one)})" for one in report.tested]
        columns.append(("the event that decides", [events[curves.decisive[i]] for i in positions]))
    start = report.epsilon if report.epsilon is not None else report.epsilon_lower or 0.0
    return columns, int(np.argmin(np.abs(curves.epsilon - start)))


class Bar(NamedTuple):
    """A horizontal bar with a text above it; the part beyond the claim is red, a bound over the cells is hatched."""

    text: str
    start: float
    stop: float
    colour: str
    beyond: float = math.inf


def _draw_bars(bars: Sequence[Bar], end: float) -> tuple[Figure, Axes]:
    """Draw bars one below the other on an axis from 0 to `end`."""
    picture = canvas(0.7 + 0.5 * len(bars))
    axes = picture.add_subplot()
    for row, bar in enumerate(bars):
        hatched = {"hatch": "////", "facecolor": "none"} if bar.colour == CELLS else {"facecolor": bar.colour}
        axes.barh(row, bar.stop - bar.start, 0.34, bar.start, edgecolor=bar.colour, lw=0.8, **hatched)
        if bar.stop > bar.beyond:
            axes.barh(row, bar.stop - bar.beyond, 0.34, bar.beyond, color=BEYOND, lw=0)
        axes.text(0, row - 0.28, bar.text, va="bottom", color=INK)
    axes.set(xlim=(0, end), ylim=(len(bars) - 0.6, -0.95), yticks=[])
    axes.spines["left"].set_visible(False)
    return picture, axes


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
    bars = [Bar(text, 0.0, lower, PROVED, limit)]
    if upper < math.inf:
        bars.append(Bar(f"{name} at most {format_upper(upper)} (over the cells)", upper, end, CELLS))
    if certified < math.inf:
        bars.append(Bar(f"{name} at most {format_upper(certified)} (all events, certified)", certified, end, CERTIFIED))
    with styled():
        picture, axes = _draw_bars(bars, end)
        axes.set_xlabel(f"{name} (smaller is more private)", loc="right")
        if claimed is not None:
            rows = np.arange(len(bars))
            axes.vlines([claimed] * len(bars), rows - 0.2, rows + 0.2, color=INK, lw=2)
            _name_line(axes, claimed, f"claimed {format_number(claimed, 7)}", 1.0)
    keys = [Key("ink", "bar", "excluded: every value here is refuted")] if lower else []
    keys += [Key("beyond", "bar", "refuted beyond the claim")] if lower > limit else []
    keys += [Key("cells", "bar", f"excluded over the cells; {UNCHECKED_KEY}")] if upper < math.inf else []
    keys += [Key("certified", "bar", "excluded over all events, certified")] if certified < math.inf else []
    keys += [Key("ink", "tick", "the claim")] if claimed is not None else []
    return Drawing(
        picture,
        f"Bounds on {name}" + ("" if report.is_curve else f" at δ = {format_number(report.delta)}"),
        f"{'; '.join(bar.text for bar in bars)}."
        + ("" if claimed is None else f" The claim is {name} = {format_number(claimed, 7)}."),
        tuple(keys),
        f"Each bound holds with {format_percent(1 - report.alpha)} confidence. Their scopes differ, so they are not an "
        "interval.",
    )


def observer_figure(at_least: float, allowed: float | None) -> Drawing:
    """Draw how sure an observer is who was undecided: before, as the claim allows, and after seeing the witness."""
    shares = [("before", 0.5, MUTED)]
    shares += [] if allowed is None else [("the claim allows", allowed, FIRST)]
    colour = BEYOND if allowed is not None and at_least > allowed else INK
    shares.append(("after seeing the witness, at least", at_least, colour))
    bars = [Bar(f"{name}: {percent_down(share)}", 0.0, 100 * share, colour) for name, share, colour in shares]
    with styled():
        picture, axes = _draw_bars(bars, 100)
        axes.set_xticks([0, 50, 100], ["0%", "50%", "100%"])
    return Drawing(picture, "How sure an undecided observer becomes", f"{'; '.join(bar.text for bar in bars)}.")


def _name_line(axes: Axes, x: float, text: str, top: float) -> None:
    """Write a name beside the upper end of a vertical line, on the side where it has space."""
    left, right = axes.get_xlim()
    to_left = (x - left) / (right - left) > 1 - CHARACTER_WIDTH * len(text)
    axes.annotate(
        text,
        (x, top),
        xycoords=("data", "axes fraction"),
        xytext=(-3 if to_left else 3, -2),
        textcoords="offset points",
        ha="right" if to_left else "left",
        va="top",
        fontsize=TEXT_SIZE,
        color=INK,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
    )


Series = tuple[ArrayLike, ArrayLike, Key]  # x, y, and the key that has its colour, its mark and its meaning


def _draw_series(series: Sequence[Series], names: tuple[str, str], marks: Sequence[tuple[float, str]] = ()) -> Figure:
    """Draw lines and points as their keys show them, and vertical lines with names."""
    picture = canvas(3.1)
    axes = picture.add_subplot()
    for x, y, key in series:
        style = (
            {"ls": LINE_STYLES[key.mark]}
            if key.mark in LINE_STYLES
            else {"ls": "", "marker": MARKERS.get(key.mark, "o")}
        )
        axes.plot(x, y, color=COLOURS[key.colour], lw=1.8, ms=5, clip_on=key.mark in LINE_STYLES, zorder=3, **style)
    axes.set_xlim(0, np.max(series[0][0]))
    for row, (x, name) in enumerate(marks):
        axes.axvline(x, ymax=1 - 0.1 * row, color=INK, lw=1, ls=(0, (4, 2)) if name.startswith("claimed") else "-")
        _name_line(axes, x, name, 1 - 0.1 * row)
    label(axes, *names)
    return picture


def _claim_marks(report: Report) -> list[tuple[float, str]]:
    return [] if report.epsilon is None else [(report.epsilon, f"claimed ε = {format_number(report.epsilon, 7)}")]


def p_value_figure(report: Report, curves: EpsilonCurves) -> Drawing:
    """Draw the p-value against epsilon, with the level alpha, the critical epsilon and the claim."""
    from_paper = report.settings.test != "exact"
    lowest = curves.p_floor or min(LOWEST_P_VALUE, report.alpha / 100)
    critical, alpha, ends = report.epsilon_critical or 0.0, report.alpha, curves.epsilon[[0, -1]]
    kind = "smaller of the paper's two p-values" if from_paper else "p-value of all tested events together"
    kind = kind if report.sequence is None else "p-value of the evidence and the exact test together"
    series: list[Series] = [
        (curves.epsilon, np.log10(np.maximum(curves.p_value, lowest)), Key("ink", "line", f"the {kind}")),
        (
            ends,
            np.log10([alpha, alpha]),
            Key("muted", "dash", f"α = {format_number(alpha)}: at or below it the claim is refuted"),
        ),
    ]
    name = f"critical ε = {format_number(critical)}" if from_paper else f"ε ≥ {format_lower(critical)}"
    with styled():
        marks = [*_claim_marks(report), *([(critical, name)] if critical < math.inf else [])]
        picture = _draw_series(series, (EPSILON_LABEL, "p-value"), marks)
        decades = np.arange(0, math.floor(math.log10(lowest)) - 1, -1 if lowest > 1e-5 else -2)
        shown = decades[10.0**decades >= lowest]
        picture.axes[0].set_ylim(math.log10(lowest) - 0.2, -0.37 * math.log10(lowest))  # space for the names
        picture.axes[0].set_yticks(shown, [f"{10.0**decade:g}" for decade in shown.tolist()])
    return Drawing(
        picture,
        "p-value of every claim ε",
        f"The {kind} against epsilon from 0 to {format_number(ends[1])}. It is at most {format_number(alpha)} up to "
        f"epsilon {format_number(critical)}.",
        tuple(key for _, _, key in series),
        f"At δ = {format_number(report.delta)}. p-values below {lowest:g} are drawn at {lowest:g}.",
    )


def delta_figure(report: Report, curves: EpsilonCurves) -> Drawing:
    """Draw the bounds on delta against epsilon: over all events, over the cells, and certified where one is joint."""
    epsilon, lower, upper = curves.epsilon, curves.delta_lower, curves.delta_upper
    series: list[Series] = [
        (epsilon, lower, Key("ink", "line", "lower bound on δ, over all events")),
        (epsilon, upper, Key("cells", "dash", f"upper bound on δ over the cells; {UNCHECKED_KEY}")),
    ]
    top = 1.3 * max(float(upper[0]), report.delta, 1e-9)
    certificate = report.certificate
    if certificate is not None and certificate.is_joint:
        certified = np.array([certificate.delta_upper(x) for x in epsilon.tolist()])
        series.append((epsilon, certified, Key("certified", "line", "upper bound on δ over all events, certified")))
        top = max(top, 1.1 * float(certified[0]))
    if curves.delta_claimed is not None:
        series.append((epsilon, curves.delta_claimed, Key("ink", "dots", "the claim")))
        top = max(top, 1.1 * min(float(curves.delta_claimed[0]), 1.0))
    if report.epsilon is not None:
        series.append((report.epsilon, report.delta, Key("ink", "diamond", "the claim")))
    with styled():
        picture = _draw_series(series, (EPSILON_LABEL, "δ (probability)"), _claim_marks(report))
        axes = picture.axes[0]
        axes.set_ylim(0, top)
        axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= min(top, 1.0)])
    return Drawing(
        picture,
        "Bounds on δ for every ε",
        f"At epsilon 0, delta is at least {format_lower(float(lower[0]))}, and over the cells at most "
        f"{format_upper(float(upper[0]))}; at epsilon {format_number(float(epsilon[-1]))}, at most "
        f"{format_upper(float(upper[-1]))} over the cells.",
        tuple(key for _, _, key in series),
        f"Each of the curves holds at all ε together, with {format_percent(1 - report.alpha)} confidence. So it is "
        "a little looser than a bound for one ε.",
    )


def error_figure(report: Report) -> Drawing:
    """Draw type II against type I errors of an observer: the claim, the bound over the cells, and the witness."""
    profile, claim, confidence = report.profile, report.claim, format_percent(1 - report.alpha)
    assert profile is not None
    type1 = np.linspace(0.0, 1.0, TRADEOFF_POINTS)
    bounded = 1.0 - lower_envelope(*with_mirror_images(profile["eps"], profile["delta_upper"])).lowest(type1)
    larger, smaller = (report.witness.probabilities[number - 1] for number in report.witness.direction)
    x, y = smaller[0], 1.0 - larger[0]
    witness = "the witness" + (f", with {confidence} confidence limits" if report.is_tested else "")
    series: list[Series] = [
        ([0, 1], [1, 0], Key("muted", "dots", "the outputs say nothing about the dataset")),
        (type1, bounded, Key("cells", "dash", "no event made of these cells lies below this")),
    ]
    if claim is not None:
        allowed = 1.0 - np.interp(type1, *claim.allowed_pairs())
        series.append((type1, allowed, Key("ink", "line", "the claim: if true, all points lie above it")))
    series.append((x, y, Key("ink", "dot", witness)))
    with styled():
        picture = _draw_series(series, ("type I error (probability)", "type II error (probability)"))
        axes = picture.axes[0]
        if report.is_tested:  # otherwise these runs selected the event, so there are no limits
            axes.plot(smaller[1:], [y, y], color=INK, lw=1.6)
            axes.plot([x, x], [1.0 - larger[2], 1.0 - larger[1]], color=INK, lw=1.6)
        axes.set_ylim(0, 1)
    return Drawing(
        picture,
        "Errors of an observer who guesses the dataset",
        f"The witness has a type I error of {format_percent(x)} and a type II error of {format_percent(y)}. "
        + (f"The claim is {claim.describe()}." if claim is not None else ""),
        tuple(key for _, _, key in series),
        "An observer sees one output and guesses the dataset that makes it more likely. Type I error: the witness "
        "occurs with the dataset where it is rarer. Type II error: it does not occur with the other one.",
    )


def wealth_figure(report: Report) -> Drawing | None:
    """Draw the evidence of a verification that may stop early against its runs; None without bets or a claim."""
    sequence, claim = report.sequence, report.claim
    if sequence is None or claim is None:
        return None
    decades = np.append(0.0, sequence.log_wealth(claim)) / math.log(10)
    runs = np.append(sequence.first_runs, sequence.runs)
    threshold = sequence.threshold(report.alpha)
    last, limit = format_number(report.e_value or 0.0), format_number(threshold)
    x, ends = np.log10(runs), np.log10(runs[[0, -1]])
    lowest = math.floor(max(min(float(decades.min()), 0.0), LOWEST_DECADE))
    highest = math.ceil(max(float(decades.max()), math.log10(threshold)) + 0.3)
    series: list[Series] = [
        (x, np.maximum(decades, lowest), Key("ink", "line", f"evidence against the claim: {claim.describe()}")),
        (ends, np.log10([threshold, threshold]), Key("beyond", "dash", f"{limit}: the claim is refuted here")),
        (ends, [0, 0], Key("muted", "dots", "1: the evidence at the start")),
    ]
    with styled():
        picture = _draw_series(series, ("runs per dataset", "evidence"))
        axes = picture.axes[0]
        axes.set(xlim=ends + [-0.05, 0.05], ylim=(lowest, highest))
        step = max(1, (highest - lowest) // 6)
        ticks = np.arange(math.ceil(lowest / step) * step, highest + 1, step)
        axes.set_yticks(ticks, [f"{10.0**tick:g}" for tick in ticks.tolist()])
        axes.set_xticks(ends, [format_count(number) for number in runs[[0, -1]].tolist()])
    end = {
        StoppedBy.REFUTED: "It reached the threshold, so the claim is refuted.",
        StoppedBy.CERTIFIED: "The verification ended because an upper bound over all events met the claim.",
        StoppedBy.BUDGET: "The verification ended because its budget was spent.",
    }[sequence.stopped]
    return Drawing(
        picture,
        "Evidence over the runs",
        f"The evidence against the claim ends at {last} after {format_count(int(runs[-1]))} runs per dataset; {limit} "
        "refutes.",
        tuple(key for _, _, key in series),
        "The evidence starts at 1; each batch bets on events of earlier batches. If the claim is true, it reaches the "
        f"threshold with probability at most {format_number(1 / threshold)}, however many runs follow. {end}",
    )
