"""Figures of bounds: p-values and delta along epsilon, privacy against accuracy, the privacy map.

Each function answers a `Drawing`: `.figure` is a matplotlib figure (`.figure.savefig("map.png")`), `style.svg` turns it
into a piece of a page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from dpverify.errors import InputError
from dpverify.render.numbers import Readings
from dpverify.render.style import (
    BOUNDED,
    FIRST,
    INK,
    MUTED,
    PAPER,
    PROVED,
    RULE,
    SECOND,
    Drawing,
    Key,
    canvas,
    label,
    styled,
)
from dpverify.report.report import Report
from dpverify.util.formatting import format_lower, format_number, format_upper

LEAST_P = 1e-6  # the axis ends here, however small the paper's p-values are
EPSILON = "ε (natural logarithm of a ratio)"
SERIES = (FIRST, SECOND, BOUNDED, PROVED, MUTED, INK)  # mechanisms in a comparison, told apart by marks too
DISC = 700.0  # square points: the largest of the map
MARKS = ("o", "s", "D", "^", "v", "P")


def _mark(axes: Axes, x: float, row: int, text: str, colour: str) -> None:
    """A vertical line with its name above the plot; names in different rows can't touch."""
    left, right = axes.get_xlim()
    late = (x - left) / (right - left) > 0.6
    axes.axvline(x, color=colour, lw=1, ls=(0, (4, 2)) if row else "-", zorder=1)
    axes.annotate(
        text,
        (x, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-3 if late else 3, -9 - 12 * row),
        textcoords="offset points",
        ha="right" if late else "left",
        fontsize=8.5,
        color=colour,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
    )


def p_values(report: Report, readings: Readings) -> Drawing:
    """Both orders' p-values against epsilon, with the level and the critical epsilon."""
    first = report.witness.direction[0] == 1
    with styled():
        picture = canvas(3.1)
        axes = picture.add_subplot()
        least = readings.floor or min(LEAST_P, report.alpha / 100)
        for values, colour, tested in ((readings.first, FIRST, first), (readings.second, SECOND, not first)):
            shown = np.maximum(values, least)
            axes.plot(readings.epsilon, shown, color=colour, lw=2 if tested else 1.4, ls="-" if tested else (0, (1, 2)))
        axes.set_yscale("log")
        axes.set_ylim(least / 1.6, least**-0.37)  # room above 1 for the names of the marks
        axes.set_xlim(0, readings.epsilon[-1])
        ticks = 10.0 ** np.arange(0, math.floor(math.log10(least)) - 1, -1 if least > 1e-5 else -2)
        ticks = ticks[ticks >= least]
        axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
        axes.axhline(report.alpha, color=MUTED, lw=0.8)
        at_end = {"xytext": (-2, -3), "textcoords": "offset points", "ha": "right", "va": "top", "fontsize": 8.5}
        axes.annotate(f"α = {format_number(report.alpha)}", (readings.epsilon[-1], report.alpha), color=MUTED, **at_end)
        critical = report.epsilon_critical
        if critical < math.inf:
            _mark(axes, critical, 0, f"critical ε = {format_number(critical)}", PROVED)
        if report.epsilon is not None:
            _mark(axes, report.epsilon, 1, f"claimed ε = {format_number(report.epsilon)}", INK)
        label(axes, EPSILON, "p-value")
    low = f"{'' if readings.floor else 'thinned at random, '}drawn no lower than {format_number(least)}"
    orders = ("first above second", "second above first")
    return Drawing(
        picture,
        "How strongly each ε is rejected",
        f"p-values against epsilon from 0 to {format_number(float(readings.epsilon[-1]))}, in both orders. In the tested "
        f"order, {orders[not first]}, they stay at or below {format_number(report.alpha)} up to the critical epsilon "
        f"{format_number(critical)}.",
        (
            Key("first", "line" if first else "dots", orders[0] + (", the order that is tested" if first else "")),
            Key("second", "dots" if first else "line", orders[1] + ("" if first else ", the order that is tested")),
        ),
        f"Of the witness, at δ = {format_number(report.delta)}. Rejected where the curve lies at or below α; {low}.",
    )


def delta_profile(report: Report, readings: Readings) -> Drawing:
    """Delta along epsilon, proved and bounded: of different scopes, so nothing joins the two."""
    with styled():
        picture = canvas(3.1)
        axes = picture.add_subplot()
        epsilon, lower, upper = readings.epsilon, readings.lower, readings.upper
        axes.fill_between(epsilon, 0, lower, color=PROVED, alpha=0.16, lw=0)
        axes.plot(epsilon, lower, color=PROVED, lw=2)
        axes.plot(epsilon, upper, color=BOUNDED, lw=1.8, ls=(0, (5, 2)))
        top = max(float(upper[0]), report.delta, 1e-9) * 1.3
        axes.set_xlim(0, epsilon[-1])
        axes.set_ylim(0, top)
        axes.set_yticks([t for t in axes.get_yticks() if 0 <= t <= min(top, 1.0)])
        if report.epsilon is not None:
            _mark(axes, report.epsilon, 1, f"claimed ε = {format_number(report.epsilon)}", INK)
            axes.plot(report.epsilon, report.delta, "D", color=INK, ms=5, clip_on=False, zorder=5)
        label(axes, EPSILON, "δ (probability)")
    return Drawing(
        picture,
        "How much probability exceeds each ε",
        f"delta against epsilon. Proved from below: {format_lower(float(lower[0]))} at epsilon 0, falling to 0. Bounded "
        f"from above over unions of the cells: {format_upper(float(upper[0]))} at epsilon 0, "
        f"{format_upper(float(upper[-1]))} at epsilon {format_number(float(epsilon[-1]))}.",
        (
            Key("proved", "area", "δ is above this area: proved, over all events"),
            Key("bounded", "dash", "δ of unions of these cells is below this line; other events: not bounded"),
            *([Key("ink", "diamond", "the claim")] if report.epsilon is not None else []),
        ),
        "Each curve holds as a whole, with its own confidence.",
    )


def tradeoff(rows: Sequence[Mapping[str, Any]], error_name: str = "error") -> Drawing:
    """Privacy against accuracy, a line for each mechanism on each pair: rows as `page.comparison` takes them.

    A filled mark is the epsilon that is proved; a tick to its right, where it is finite, bounds unions of cells only.
    """
    several = len({_pair(row) for row in rows}) > 1
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault(f"{row['mechanism']} on {_pair(row)}" if several else str(row["mechanism"]), []).append(row)
    with styled():
        picture = canvas(4.0)
        axes = picture.add_subplot()
        for number, (name, found) in enumerate(lines.items()):
            own = sorted(found, key=lambda row: row["epsilon_lower"])
            colour, mark = SERIES[number % len(SERIES)], MARKS[(number + number // len(SERIES)) % len(MARKS)]
            x, y = [row["epsilon_lower"] for row in own], [row["error"] for row in own]
            spread = [row.get("error_se") or 0.0 for row in own]
            axes.plot(x, y, color=colour, lw=1.2, alpha=0.55)
            axes.errorbar(x, y, 2 * np.array(spread), color=colour, fmt=mark, ms=6, lw=1, label=name)
            bounds = [(row.get("epsilon_upper"), row["error"]) for row in own]
            ends = [(u, e) for u, e in bounds if u is not None and u < math.inf]
            axes.plot([u for u, _ in ends], [e for _, e in ends], "|", color=colour, ms=11, mew=1.6)
            for row in own:
                at = (row["epsilon_lower"], row["error"])
                text = _short(row["parameter"])
                offset = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center", "fontsize": 8}
                axes.annotate(text, at, color=colour, **offset)
        right = axes.get_xlim()[1]
        axes.set_xlim(-0.04 * right, right)  # a mark at 0 is seen whole
        axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
        if len(lines) > 1:
            axes.legend(loc="best", fontsize=8.5)
        label(axes, EPSILON, error_name)
    far = max(row["epsilon_lower"] for row in rows)
    return Drawing(
        picture,
        "Privacy against accuracy",
        f"{error_name} against epsilon for {len(rows)} verifications of {', '.join(lines)}; epsilon proved up to "
        f"{format_lower(float(far))}.",
        (
            Key("ink", "dot", "ε is at least this: proved, over all events; labelled with the parameter"),
            Key("ink", "tick", "at the same height: no union of its cells goes beyond; other events: not bounded"),
        ),
        "Left and low is better: little told, little error."
        + (" Bars are two standard errors." if any(row.get("error_se") is not None for row in rows) else ""),
    )


def _pair(row: Mapping[str, Any]) -> str:
    """The pair of data sets and its parameters, where the row tells."""
    stated = {name.removeprefix("pair."): value for name, value in row.items() if name.startswith("pair.")}
    parameters = ", ".join(f"{name} {_short(value)}" for name, value in stated.items() if value is not None)
    return f"{row.get('pair', '')} ({parameters})" if parameters else str(row.get("pair", ""))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def privacy_map(
    positions: Any,
    epsilon_lower: Any,
    *,
    names: Sequence[str] | None = None,
    target: Any = None,
    title: str = "What each sensor's data tell",
    unit: str = "",
) -> Drawing:
    """Where in the plane privacy is lost: a disc at each of `positions` (n, 2), its area the epsilon proved there.

    `epsilon_lower` has one number a position: what was proved when that sensor's data changed. `names` stand beside
    the discs (their numbers if left out), `target` is a point or a path (k, 2) of what the sensors look at, and `unit`
    is that of the positions. Colour only repeats what area and number say.
    """
    at, lower = np.asarray(positions, float), np.asarray(epsilon_lower, float).ravel()
    if at.ndim != 2 or at.shape[1] != 2 or len(at) != len(lower) or not len(at):
        raise InputError(
            f"privacy_map: found positions {at.shape} and {lower.size} epsilons; expected (n, 2) and one a position"
        )
    if not np.isfinite(at).all() or not (np.isfinite(lower) & (lower >= 0)).all():
        raise InputError("privacy_map: found a number that is not finite, or a negative epsilon; expected finite ones")
    names = [str(i) for i in range(len(at))] if names is None else [str(name) for name in names]
    top = max(float(lower.max()), 1e-12)
    with styled():
        picture = canvas(4.4)
        axes = picture.add_subplot()
        path = at[:0] if target is None else np.atleast_2d(np.asarray(target, float))
        low, high = (side(np.concatenate([at, path]), axis=0) for side in (np.min, np.max))
        middle, reach = (low + high) / 2, 0.72 * (float((high - low).max()) or 1.0)
        axes.set(xlim=middle[0] + [-reach, reach], ylim=middle[1] + [-reach, reach], aspect="equal")
        if len(path):
            axes.plot(path[:, 0], path[:, 1], color=MUTED, lw=1, marker="x", ms=4)
            axes.annotate("target", path[0], xytext=(6, 4), textcoords="offset points", color=MUTED, fontsize=8.5)
        axes.scatter(at[:, 0], at[:, 1], s=DISC * lower / top, color=PROVED, alpha=0.25, lw=0)
        axes.scatter(at[:, 0], at[:, 1], s=DISC * lower / top, facecolor="none", edgecolor=PROVED, lw=1.2)
        axes.scatter(at[:, 0], at[:, 1], s=7, color=INK, zorder=3)
        for place, value, name in zip(at, lower, names, strict=True):
            away = place - middle
            away = away / (np.linalg.norm(away) or 1.0)
            radius = math.sqrt(DISC * value / top) / 2
            axes.annotate(
                f"{name}\n{format_lower(float(value))}",
                place,
                xytext=tuple(away * (radius + 8)),
                textcoords="offset points",
                ha="center" if abs(away[0]) < 0.4 else "left" if away[0] > 0 else "right",
                va="center" if abs(away[1]) < 0.7 else "bottom" if away[1] > 0 else "top",
                fontsize=8.5,
                linespacing=1.15,
            )
        space = f" ({unit})" if unit else ""
        label(axes, f"horizontal position{space}", f"vertical position{space}")
        axes.grid(color=RULE, lw=0.5, alpha=0.6)
        axes.set_axisbelow(True)
    worst, best = int(lower.argmax()), int(lower.argmin())
    return Drawing(
        picture,
        title,
        f"A map of {len(at)} positions. The most is told at {names[worst]}, epsilon at least "
        f"{format_lower(float(lower[worst]))}; the least at {names[best]}, at least {format_lower(float(lower[best]))}.",
        (Key("proved", "dot", "area and number: ε that is proved, over all events, when this one's data change"),),
        "A small disc says that little was proved there, not that little is told.",
    )
