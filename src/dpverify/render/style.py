"""The style of all figures, what a figure is, and its conversion to SVG for a page and to a figure of its own.

Figures are drawn in the light palette. In a page every colour becomes a CSS variable, so that the page can switch
between its light and its dark palette. Text stays text, in the font of the page.
"""

from __future__ import annotations

import html
import io
import json
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

INK, MUTED, RULE, PAPER = "#1c2023", "#5f676d", "#c9cdd0", "#fffffe"
FIRST, SECOND = "#1f5fa8", "#b65210"  # the first and the second dataset
WITNESS, CELLS = "#d8a31a", "#5b6b8c"  # CELLS: bounds over the cells, never green
CERTIFIED = "#1d7a70"  # a bound over all events, the only green
PROVED, BEYOND = INK, "#a3283f"  # a lower bound, and one beyond the claim
VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    PAPER: "paper",
    FIRST: "first",
    SECOND: "second",
    WITNESS: "witness",
    CELLS: "cells",
    BEYOND: "beyond",
    CERTIFIED: "certified",
}
COLOURS = {variable: colour for colour, variable in VARIABLES.items()}
WIDTH = 4.3  # inches: two figures fit side by side on a screen
TEXT_SIZE = 9.6  # the smallest text, in points: 11 pixels where a figure of this width fills a phone of 390 pixels
STYLE: dict[str, object] = {
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
    "legend.fontsize": TEXT_SIZE,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "path.simplify_threshold": 0.3,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # the name of a mechanism may contain dollar signs
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": TEXT_SIZE,
    "ytick.labelsize": TEXT_SIZE,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
}
LEGEND_LINE_HEIGHT = 0.24  # inches
LEGEND_CHARACTERS, TITLE_CHARACTERS = 62, 58  # per line
LINE_STYLES: dict[str, Literal["-", "--", ":"]] = {"line": "-", "dash": "--", "dots": ":"}
MARKERS = {"bar": "_", "open": "<", "tick": "|", "diamond": "D", "cross": "x", "hollow": "o"}


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
    for colour, variable in VARIABLES.items():
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
