"""Figures: their style, the few kinds of them, and their conversion to SVG for a page and to a figure of its own.

The kinds are charts of points and lines, bars, bounds of many verifications, heat maps, and trade-offs. Each function
returns a `Drawing`. Its `.figure` is a matplotlib figure (`.figure.savefig("bounds.png")`), and a page shows it as SVG.

Figures are drawn in the light palette. In a page every colour becomes a CSS variable, so that the page can switch
between its light and its dark palette. Text stays text, in the font of the page.
"""

from __future__ import annotations

import html
import io
import json
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from dpverify.util.formatting import format_lower, format_upper

INK, MUTED, RULE, PAPER = "#1c2023", "#5f676d", "#c9cdd0", "#fffffe"
FIRST, SECOND = "#1f5fa8", "#b65210"  # the first and the second dataset
WITNESS, CELLS = "#d8a31a", "#5b6b8c"  # CELLS: bounds over the cells, never green
CERTIFIED = "#1d7a70"  # a bound over all events, the only green
PROVED, BEYOND = INK, "#a3283f"  # a lower bound, and one beyond the claim
COLOURS = {  # by the name of the CSS variable
    "ink": INK,
    "muted": MUTED,
    "rule": RULE,
    "paper": PAPER,
    "first": FIRST,
    "second": SECOND,
    "witness": WITNESS,
    "cells": CELLS,
    "beyond": BEYOND,
    "certified": CERTIFIED,
}
WIDTH = 4.3  # inches: two figures fit side by side on a screen
TEXT_SIZE = 9.6  # the smallest text, in points: 11 pixels where a figure of this width fills a phone of 390 pixels
TICKS = {"color": MUTED, "labelsize": TEXT_SIZE, "major.size": 3, "major.width": 0.7}
STYLE: dict[str, Any] = {
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in TICKS.items()},
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.labelsize": TEXT_SIZE,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": PAPER,
    "font.size": TEXT_SIZE,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "path.simplify_threshold": 0.3,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # the name of a mechanism may contain dollar signs
}
LEGEND_LINE_HEIGHT = 0.24  # inches
LEGEND_CHARACTERS, TITLE_CHARACTERS = 62, 58  # per line
LINE_STYLES: dict[str, Literal["-", "--", ":"]] = {"line": "-", "dash": "--", "dots": ":"}
MARKERS = {"bar": "_", "open": "<", "tick": "|", "diamond": "D", "cross": "x", "hollow": "o"}
EPSILON_LABEL = "ε (logarithm of a probability ratio)"
MAX_LABELS = 30  # names of rows that fit at the size of the text
MAX_NAME = 26  # characters of the name of a row
ROW_HEIGHT, FRAME_HEIGHT, MIN_HEIGHT, MAX_HEIGHT = 0.22, 1.0, 2.2, 9.0  # inches
MAX_NUMBERED_COLUMNS = 12  # of a heat map whose cells have numbers: more do not fit at the size of the text
LIGHTEST, DARKEST, DARKEST_BEHIND_TEXT = 0.08, 0.9, 0.4  # opacities of a heat map: text on the last one is legible
UPPER_FACTOR = 3.0  # an upper bound above this many times the largest lower bound does not set the scale
LOWER_KEY = "lower bound on ε over all events"
UPPER_KEY_TEXT = "upper bound on ε over the cells; events that split a cell were not checked"
SCOPES = "The two bounds have different scopes: the grey line between them is not a confidence interval."
# Each mechanism of a trade-off has a colour and a mark.
LINES = [(colour, mark) for mark in ("dot", "diamond", "cross") for colour in ("first", "second", "cells", "ink")]


class Key(NamedTuple):
    """A legend entry.

    Attributes
    ----------
    colour : str
        The name of a CSS variable, for example "first".
    mark : str
        The shape: "line", "dash", "dots", "area", "bar", "tick", "diamond", "open" (a triangle), "cross", "hollow" or
        "dot".
    text : str
        What the mark stands for.
    """

    colour: str
    mark: str
    text: str


VOID_KEY = Key("muted", "hollow", "no answer: the test is void")


class Drawing(NamedTuple):
    """A figure with its title, description, legend, caption and what is read out under the pointer.

    Attributes
    ----------
    figure : matplotlib.figure.Figure
        The figure; `figure.savefig` writes it to a file.
    title : str
        The title above the figure.
    description : str
        The finding and the content of the figure as text, for screen readers.
    keys : tuple of Key
        The legend.
    caption : str
        The text below the figure.
    readout : tuple of (x, y, text)
        Points of the first axes and their texts; a page shows the text of the point nearest to the pointer. A y of None
        stands for all heights.
    """

    figure: Figure
    title: str
    description: str
    keys: tuple[Key, ...] = ()
    caption: str = ""
    readout: tuple[tuple[float, float | None, str], ...] = ()


@contextmanager
def styled() -> Iterator[None]:
    """Apply `STYLE` on top of matplotlib's defaults; the configuration of the user has no effect."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)  # type: ignore[arg-type]
        yield


def canvas(height: float, width: float = WIDTH) -> Figure:
    """Return a new figure without a window; sizes in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def label(axes: Axes, x: str, y: str) -> None:
    """Label both axes. The label of the y axis stands above the axis, so that it is read without turning the head."""
    axes.set_xlabel(x, loc="right")
    axes.text(0, 1.02, y, transform=axes.transAxes, ha="left", va="bottom", color=MUTED, fontsize=TEXT_SIZE)


def complete_figure(drawing: Drawing) -> Figure:
    """Return the figure of a drawing with its title and its legend inside."""
    figure = drawing.figure
    keys = [key._replace(text=textwrap.fill(key.text, LEGEND_CHARACTERS)) for key in drawing.keys]
    title = textwrap.fill(drawing.title, TITLE_CHARACTERS)
    lines = sum(1 + text.count("\n") for text in (title, *(key.text for key in keys)))
    with styled():
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + lines * LEGEND_LINE_HEIGHT)
        figure.suptitle(title, x=0.02, ha="left", fontsize=10)
        if keys:
            figure.legend(handles=[_legend_handle(key) for key in keys], loc="outside lower left", fontsize=8, ncols=1)
    return figure


def _legend_handle(key: Key) -> Line2D | Patch:
    """Return the legend entry of a key."""
    colour = COLOURS.get(key.colour, INK)
    if key.mark == "area":
        return Patch(color=colour, alpha=0.3, label=key.text)
    if key.mark in LINE_STYLES:
        return Line2D([], [], color=colour, linestyle=LINE_STYLES[key.mark], label=key.text)
    filled = "none" if key.mark in ("open", "hollow") else "full"
    marker = MARKERS.get(key.mark, "o")
    return Line2D([], [], color=colour, marker=marker, linestyle="", markersize=5, fillstyle=filled, label=key.text)


def svg(drawing: Drawing, name: str) -> str:
    """Return the figure as an SVG element for a page, with CSS colours and an accessible name.

    Parameters
    ----------
    drawing : Drawing
        The figure.
    name : str
        A prefix for the identifiers in the element; it must be unique in the page.

    Returns
    -------
    str
        The element. The same drawing and name always give the same text. It contains no external address.
    """
    with styled():
        mpl.rcParams["svg.hashsalt"] = name  # makes identifiers deterministic and unique in the page
        file = io.StringIO()
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawing.figure.savefig(file, format="svg", metadata=no_metadata, transparent=True)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style)[ >].*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = text.replace("xlink:href", "href")
    text = re.sub(r"(font: )([^;\"]*?)(\d+(?:\.\d+)?px)[^;\"]*", r"\1\2\3 var(--sans)", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--sans)", text)
    # One decimal saves space; an opacity keeps two, because a heat map shows its values by opacity.
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(opacity: \d\.\d\d|\d\.\d)\d+", r"\1", tag[0]), text)
    for variable, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{variable})")
    view_box = re.search(r'viewBox="([^"]*)"', text)
    assert view_box is not None
    head = (
        f'<svg viewBox="{view_box[1]}" role="img" aria-labelledby="{name}-title {name}-desc"{_positions(drawing)}>'
        f'<title id="{name}-title">{html.escape(drawing.title)}</title>'
        f'<desc id="{name}-desc">{html.escape(drawing.description)}</desc>'
    )
    return head + re.sub(r"\s*\n\s*", "\n", text[text.index(">") + 1 :])


def _positions(drawing: Drawing) -> str:
    """Return the attributes with the frame of the first axes and the points that are read out, in units of the SVG."""
    figure = drawing.figure
    if not figure.axes:
        return ""
    axes, (width, height) = figure.axes[0], (72 * inches for inches in figure.get_size_inches())
    box = axes.get_position()
    frame = (box.x0 * width, (1 - box.y1) * height, box.x1 * width, (1 - box.y0) * height)
    attributes = f' data-frame="{" ".join(f"{x:.1f}" for x in frame)}"'
    if drawing.readout:
        bottom = axes.get_ylim()[0]
        ends = axes.transData.transform([(x, bottom if y is None else y) for x, y, _ in drawing.readout])
        points = [
            [round(72 * left / figure.dpi, 1), None if y is None else round(height - 72 * low / figure.dpi, 1), text]
            for (left, low), (_, y, text) in zip(ends.tolist(), drawing.readout, strict=True)
        ]
        attributes += f' data-readout="{html.escape(json.dumps(points, ensure_ascii=False))}"'
    return attributes


class Series(NamedTuple):
    """Points or a line of a chart.

    Attributes
    ----------
    x, y : array_like
        The points.
    key : Key
        Their colour, their mark and their meaning; one without a text is not in the legend.
    names : sequence of str
        Texts beside the points.
    spread : array_like, optional
        Half of the lengths of vertical ranges around the points.
    """

    x: ArrayLike
    y: ArrayLike
    key: Key
    names: Sequence[str] = ()
    spread: ArrayLike | None = None


def chart(
    series: Sequence[Series],
    names: tuple[str, str],
    title: str,
    description: str,
    caption: str = "",
    *,
    marks: Sequence[tuple[float, str]] = (),
    readout: Sequence[tuple[float, float | None, str]] = (),
    height: float = 3.1,
    **settings: Any,
) -> Drawing:
    """Draw points and lines as their keys show them.

    Parameters
    ----------
    series : sequence of Series
        What is drawn; the first ones are below the others.
    names : pair of str
        The names of the axes.
    title, description, caption, readout
        As in `Drawing`.
    marks : sequence of (x, name)
        Vertical lines with names.
    height : float
        In inches.
    **settings
        Settings of the axes, as `matplotlib.axes.Axes.set` takes them.
    """
    with styled():
        figure = canvas(height)
        axes = figure.add_subplot()
        for one in series:
            _draw_series(axes, one)
        axes.set(**settings)
        for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
            if scale == "log":
                axis.set_major_formatter("{x:g}")
                axis.set_minor_locator(NullLocator())
        for row, (x, name) in enumerate(marks):
            axes.axvline(x, ymax=1 - 0.1 * row, color=INK, lw=1, ls=(0, (4, 2)))
            name_line(axes, x, name, 1 - 0.1 * row)
        label(axes, *names)
    keys = tuple(dict.fromkeys(one.key for one in series if one.key.text))
    return Drawing(figure, title, description, keys, caption, tuple(readout))


def _draw_series(axes: Axes, one: Series) -> None:
    colour, is_line = COLOURS[one.key.colour], one.key.mark in LINE_STYLES
    style: dict[str, Any] = {"ls": LINE_STYLES[one.key.mark]} if is_line else {"marker": MARKERS.get(one.key.mark, "o")}
    style["fillstyle"] = "none" if one.key.mark in ("open", "hollow") else "full"
    axes.plot(one.x, one.y, color=colour, **{"lw": 1.8 if is_line else 0, "ms": 5, "clip_on": is_line, **style})
    if one.spread is not None:
        axes.errorbar(one.x, one.y, one.spread, color=colour, fmt="none", lw=1)
    for x, y, name in zip(np.atleast_1d(one.x), np.atleast_1d(one.y), one.names, strict=False):
        axes.annotate(name, (x, y), xytext=(5, 3), textcoords="offset points", fontsize=TEXT_SIZE, color=colour)


def name_line(axes: Axes, x: float, name: str, top: float) -> None:
    """Write a name beside the upper end of a vertical line, on the side where there is more space."""
    is_right = axes.transAxes.inverted().transform(axes.transData.transform((x, 0)))[0] > 0.5
    axes.annotate(
        name,
        (x, top),
        xycoords=("data", "axes fraction"),
        xytext=(-3 if is_right else 3, -2),
        textcoords="offset points",
        ha="right" if is_right else "left",
        va="top",
        fontsize=TEXT_SIZE,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
    )


class Bar(NamedTuple):
    """A horizontal bar with a text above it.

    Attributes
    ----------
    text : str
        The text.
    start, stop : float
        Its ends.
    colour : str
        Its colour; a bound over the cells is hatched.
    beyond : float
        The part beyond this number is red.
    """

    text: str
    start: float
    stop: float
    colour: str = INK
    beyond: float = math.inf


def bars(
    rows: Sequence[Bar], end: float, name: str, title: str, keys: Sequence[Key] = (), *, claim: float | None = None
) -> Drawing:
    """Draw bars one below the other on an axis from 0 to `end`, and the claim as a line through each.

    Parameters
    ----------
    rows : sequence of Bar
        The bars, the first on top. Their texts are the description of the figure.
    end : float
        The end of the axis.
    name : str
        The name of the axis.
    title, keys
        As in `Drawing`.
    claim : float, optional
        A claimed value.
    """
    with styled():
        picture = canvas(0.75 + 0.5 * len(rows))
        axes = picture.add_subplot()
        for row, bar in enumerate(rows):
            hatched = {"hatch": "////", "facecolor": "none"} if bar.colour == CELLS else {"facecolor": bar.colour}
            axes.barh(row, bar.stop - bar.start, 0.34, bar.start, edgecolor=bar.colour, lw=0.8, **hatched)
            if bar.stop > bar.beyond:
                axes.barh(row, bar.stop - bar.beyond, 0.34, bar.beyond, color=BEYOND, lw=0)
            axes.text(0, row - 0.28, bar.text, va="bottom", color=INK)
        axes.set(xlim=(0, end), ylim=(len(rows) - 0.6, -0.95), yticks=[])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(name, loc="right")
        if claim is not None:
            axes.vlines([claim] * len(rows), np.arange(len(rows)) - 0.2, np.arange(len(rows)) + 0.2, color=INK, lw=2)
            name_line(axes, claim, f"claimed {claim:.7g}", 1.0)
    claimed = "" if claim is None else f" The claim is {claim:.7g}."
    return Drawing(picture, title, f"{'; '.join(bar.text for bar in rows)}.{claimed}", tuple(keys))


class Bounds(NamedTuple):
    """The bounds on epsilon of one verification.

    Attributes
    ----------
    name : str
        What was verified.
    lower, upper : float
        The lower bound over all events, and the upper bound over unions of cells (may be infinite). Both are NaN for a
        test that is void: it has no result, and is drawn as a hollow mark.
    position : float or None
        The value on the axis, for example a parameter; None puts the verifications one below the other.
    claim : float or None
        The claimed epsilon of this verification, if the verifications have different claims.
    exact : float or None
        The exact epsilon, if it is known.
    """

    name: str
    lower: float
    upper: float
    position: float | None = None
    claim: float | None = None
    exact: float | None = None

    @property
    def words(self) -> str:
        """The name and the bounds as text."""
        if math.isnan(self.lower):
            return f"{self.name}: no answer"
        upper = f", over the cells at most {format_upper(self.upper)}" if self.upper < math.inf else ""
        return f"{self.name}: ε at least {format_lower(self.lower)}{upper}"


def draw_bounds(
    rows: Sequence[Bounds],
    title: str,
    axis: str = "",
    claim: float | None = None,
    *,
    marks: Sequence[tuple[float, str]] = (),
    **settings: Any,
) -> Drawing:
    """Draw the bounds on epsilon of many verifications.

    Parameters
    ----------
    rows : sequence of Bounds
        The verifications. If all have a position, epsilon is drawn against it; otherwise they are drawn one below the
        other.
    title : str
        The title.
    axis : str
        The name of the position.
    claim : float or None
        The claimed epsilon.
    marks, settings
        Positions with names, and settings of the axes, as in `chart`.
    """
    against = bool(rows) and all(row.position is not None for row in rows)
    place = np.array([row.position if against else number for number, row in enumerate(rows)], float)
    numbers = np.array([(row.lower, row.claim, row.exact, row.upper) for row in rows], float).reshape(-1, 4)
    numbers[np.isinf(numbers)] = np.nan  # what is not a number is not drawn
    largest = max(float(np.nanmax(numbers[:, :3], initial=0.1)), claim or 0.0)
    numbers[numbers[:, 3] > UPPER_FACTOR * largest, 3] = np.nan
    if settings.get("yscale") == "log":  # which has no zero
        numbers[numbers <= 0] = np.nan
    lower, own, exact, upper = numbers.T
    is_beyond = lower > np.where(np.isnan(own), np.inf if claim is None else claim, own)
    kinds = [
        (np.where(is_beyond, np.nan, lower), Key("ink", "dot", LOWER_KEY)),
        (np.where(is_beyond, lower, np.nan), Key("beyond", "dot", "lower bound beyond the claim")),
        (upper, Key("cells", "bar" if against else "tick", UPPER_KEY_TEXT)),
        (own, Key("ink", "diamond", "claimed ε")),
        (exact, Key("ink", "cross", "exact ε, from a closed form")),
        (np.where([math.isnan(row.lower) for row in rows], 0.0, np.nan), VOID_KEY),
    ]
    drawn = [(values, place, key) for values, key in kinds if not np.isnan(values).all()]
    if against:  # a grey line from bound to bound; a NaN ends each of them
        ends = np.stack([lower, upper, np.full(place.size, np.nan)], axis=1)
        drawn.insert(0, (ends.ravel(), np.repeat(place, 3), Key("rule", "line", "")))
        settings = {"ylim": (0, 1.08 * np.nanmax(numbers, initial=largest)), **settings}
    else:
        names = [shorten(row.name) for row in rows] if len(rows) <= MAX_LABELS else []
        settings = {"xlim": (0, 1.08 * np.nanmax(numbers, initial=largest)), "ylim": (len(rows) - 0.5, -0.5)}
        settings |= {"yticks": range(len(names)), "yticklabels": names}
    if claim is not None and rows:
        beyond = 0.0 if against else 0.5
        reach = np.array([place.min() - beyond, place.max() + beyond])
        drawn.append((np.full(2, claim), reach, Key("ink", "dash", f"claimed ε = {claim:.4g}")))
    answered, void = ([row for row in rows if math.isnan(row.lower) == is_void] for is_void in (False, True))
    most = max(answered, key=lambda row: row.lower, default=None)
    description = "" if most is None else f" The largest lower bound is {format_lower(most.lower)} ({most.name})."
    drawing = chart(
        [Series(*((y, x) if against else (x, y)), key) for x, y, key in drawn],
        (axis, "ε") if against else ("ε", ""),
        title,
        f"{title}.{description}" + (f" No answer: {', '.join(row.name for row in void)}." if void else ""),
        SCOPES if against else "",
        marks=marks,
        readout=[(x, None, row.words) if against else (0.0, x, row.words) for x, row in zip(place, rows, strict=True)],
        height=3.2 if against else max(MIN_HEIGHT, FRAME_HEIGHT + ROW_HEIGHT * min(len(rows), 2 * MAX_LABELS)),
        **settings,
    )
    if not against:  # no line from bound to bound: their scopes differ
        drawing.figure.axes[0].grid(axis="y", color=RULE, lw=0.5)
    return drawing


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: np.ndarray,
    title: str,
    *,
    names: tuple[str, str] = ("last released step", "record"),
    meaning: str = LOWER_KEY,
    claim: float | None = None,
    largest: float | None = None,
) -> Drawing:
    """Draw epsilon for every row and column, with a scale of its colour, and with numbers where they fit.

    Parameters
    ----------
    rows, columns : sequence of str
        The names of the rows and of the columns.
    values : ndarray of shape (rows, columns)
        The epsilons; NaN without an answer, which is drawn as a hollow mark.
    title : str
        The title.
    names : pair of str
        The names of the axes.
    meaning : str
        What the colour stands for.
    claim : float, optional
        The claimed epsilon; larger values are red.
    largest : float, optional
        The value of the strongest colour; by default the largest value.
    """
    top = max(float(np.nanmax(values, initial=0.0)) if largest is None else largest, 1e-12)
    numbered = len(columns) <= MAX_NUMBERED_COLUMNS and len(rows) <= MAX_LABELS
    digits, darkest = (
        2 if len(columns) <= MAX_NUMBERED_COLUMNS // 2 else 1,
        DARKEST_BEHIND_TEXT if numbered else DARKEST,
    )

    def shade(value: float, colour: str = INK) -> tuple[float, ...]:
        return to_rgba(colour, LIGHTEST + (darkest - LIGHTEST) * min(value / top, 1.0))

    readout = []
    height = FRAME_HEIGHT + (1.4 if numbered else 1.0) * ROW_HEIGHT * len(rows)
    with styled():
        picture = canvas(min(max(height, MIN_HEIGHT), MAX_HEIGHT))
        axes, scale = picture.subplots(1, 2, width_ratios=[30, 1])
        for (row, column), value in np.ndenumerate(values):
            bound = "no answer" if math.isnan(value) else f"ε at least {format_lower(float(value))}"
            readout.append((float(column), float(row), f"{rows[row]}, {columns[column]}: {bound}"))
            if math.isnan(value):
                axes.plot(column, row, "o", color=MUTED, ms=5, fillstyle="none")
                continue
            if value > 0:  # a value of 0 is an empty cell
                colour = BEYOND if claim is not None and value > claim else INK
                axes.bar(column, 0.9, 0.96, row - 0.45, color=shade(value, colour), lw=0)
            if numbered:
                text = f"{math.floor(value * 10**digits * (1 + 1e-12)) / 10**digits:g}"
                axes.text(column, row, text, ha="center", va="center", fontsize=TEXT_SIZE)
        every = -(-len(rows) // MAX_LABELS)
        axes.set_yticks(range(0, len(rows), every), [shorten(name) for name in rows[::every]])
        every = -(-len(columns) // MAX_NUMBERED_COLUMNS)
        axes.set_xticks(range(0, len(columns), every), columns[::every])
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
        axes.tick_params(length=0)
        label(axes, *names)
        parts = np.linspace(0, top, 20, endpoint=False)
        scale.bar(0, top / 20, bottom=parts, color=[shade(part + top / 40) for part in parts.tolist()], lw=0)
        scale.set(xlim=(-0.4, 0.4), ylim=(0, top), xticks=[], yticks=[0, top], yticklabels=["0", format_lower(top)])
        scale.yaxis.tick_right()
    void = [name for name, line in zip(rows, values, strict=True) if np.isnan(line).all()]
    description = f"{len(rows)} rows ({names[1]}) and {len(columns)} columns ({names[0]})."
    description += f" No answer: {', '.join(void)}." if void else ""
    if not np.isnan(values).all():
        row, column = np.unravel_index(int(np.nanargmax(values)), values.shape)
        most = format_lower(float(values[row, column]))
        description += f" The largest epsilon is {most}, for {rows[row]} at {columns[column]}."
    keys = [Key("ink", "area", f"{meaning}; a stronger colour is larger")]
    keys += [Key("beyond", "area", f"above the claimed ε = {claim:.4g}")] if (values > (claim or np.inf)).any() else []
    keys += [VOID_KEY] if np.isnan(values).any() else []
    return Drawing(picture, title, description, tuple(keys), readout=tuple(readout))


def shorten(name: str) -> str:
    """Return a name of a row, cut where it is too long."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def tradeoff(rows: Sequence[Mapping[str, Any]], error_name: str = "error") -> Drawing:
    """Draw privacy against accuracy, with one line for each mechanism on each pair of datasets.

    A filled mark is the lower bound on epsilon. A triangle to its right, where it is finite, is the upper bound over
    unions of cells only.

    Parameters
    ----------
    rows : sequence of mappings
        The verifications: mechanism, parameter, epsilon_lower, epsilon_upper, error, error_se, and where they are known
        pair and parameters of the pair (pair.NAME).
    error_name : str
        The name of the error, with its unit.
    """
    several_pairs, lines = len({_pair_name(row) for row in rows}) > 1, dict[str, list[Mapping[str, Any]]]()
    for row in rows:
        name = f"{row['mechanism']} on {_pair_name(row)}" if several_pairs else str(row["mechanism"])
        lines.setdefault(name, []).append(row)
    series, bounded = [], []
    for number, (name, own) in enumerate(lines.items()):
        own = sorted(own, key=lambda row: row["epsilon_lower"])
        x, y = [row["epsilon_lower"] for row in own], [row["error"] for row in own]
        (colour, mark), spread = LINES[number % len(LINES)], [2 * (row.get("error_se") or 0.0) for row in own]
        series.append(Series(x, y, Key(colour, "line", "")))
        series.append(Series(x, y, Key(colour, mark, name), [_short(row["parameter"]) for row in own], spread))
        finite = [row for row in own if row.get("epsilon_upper") is not None and row["epsilon_upper"] < math.inf]
        ends = [row["epsilon_upper"] for row in finite], [row["error"] for row in finite]
        bounded += [Series(*ends, Key(colour, "open", ""))] if finite else []
    drawing = chart(
        [*series, *bounded],
        (EPSILON_LABEL, error_name),
        "Privacy against accuracy",
        f"{error_name} against epsilon for {len(rows)} verifications of {', '.join(lines)}. The largest lower bound on "
        f"epsilon is {format_lower(max(row['epsilon_lower'] for row in rows))}.",
        "Marks are lower bounds on ε over all events; the number is the parameter. Lower left is better: small privacy "
        "loss and small error."
        + (" Bars are two standard errors." if any(row.get("error_se") for row in rows) else ""),
        height=4.0,
    )
    axes = drawing.figure.axes[0]
    axes.set(xlim=(-0.04 * axes.get_xlim()[1], None), ylim=(0, 1.08 * axes.get_ylim()[1]))  # marks at 0 are not cut off
    return drawing._replace(keys=(*drawing.keys, *([Key("muted", "open", UPPER_KEY_TEXT)] if bounded else [])))


def _pair_name(row: Mapping[str, Any]) -> str:
    """Return the pair of datasets and its parameters, where the row has them."""
    stated = {name.removeprefix("pair."): value for name, value in row.items() if name.startswith("pair.")}
    parameters = ", ".join(f"{name} {_short(value)}" for name, value in stated.items() if value is not None)
    return f"{row.get('pair', '')} ({parameters})" if parameters else str(row.get("pair", ""))


def _short(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
