"""The style of all figures, and their conversion to SVG that can be embedded in a page.

Figures are drawn in the light palette. In a page every colour becomes a CSS variable, so that the page can switch
between its light and its dark palette. Text stays text, in the font of the page.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, RULE, PAPER = "#1c2023", "#5f676d", "#c9cdd0", "#fffffe"
FIRST, SECOND = "#1f5fa8", "#b65210"  # the first and the second data set
WITNESS, PROVED, CELLS = "#d8a31a", "#a3283f", "#5b6b8c"  # CELLS: bounds over the cells, never green
VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    PAPER: "paper",
    FIRST: "first",
    SECOND: "second",
    WITNESS: "witness",
    PROVED: "proved",
    CELLS: "cells",
}
STYLE: dict[str, object] = {
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": PAPER,
    "font.size": 9,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "path.simplify_threshold": 0.3,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # the name of a mechanism may contain dollar signs
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
}
WIDTH = 4.3  # inches: the text is legible on a phone, and two figures fit side by side on a screen


class Key(NamedTuple):
    """A legend entry.

    Attributes
    ----------
    colour : str
        The name of a CSS variable, for example "first".
    mark : str
        The shape: "line", "dash", "dots", "area", "bar", "tick", "diamond", "open" (a triangle), "cross", "solid" or
        "dot".
    text : str
        What the mark stands for.
    """

    colour: str
    mark: str
    text: str


class Drawing(NamedTuple):
    """A figure with its title, description, legend and caption.

    Attributes
    ----------
    figure : matplotlib.figure.Figure
        The figure; `figure.savefig` writes it to a file.
    title : str
        The title above the figure.
    description : str
        The content of the figure as text, for screen readers.
    keys : tuple of Key
        The legend.
    caption : str
        The text below the figure.
    """

    figure: Figure
    title: str
    description: str
    keys: tuple[Key, ...] = ()
    caption: str = ""


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
    axes.text(0, 1.02, y, transform=axes.transAxes, ha="left", va="bottom", color=MUTED, fontsize=9)


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
    # One decimal saves space; an opacity keeps two, because a heat map shows its values by opacity.
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(opacity: \d\.\d\d|\d\.\d)\d+", r"\1", tag[0]), text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    view_box = re.search(r'viewBox="([^"]*)"', text)
    assert view_box is not None
    width, height = (72 * inches for inches in drawing.figure.get_size_inches())
    # The slider of the page moves a cursor inside the first axes and needs their position.
    axes_box = drawing.figure.axes[0].get_position()
    frame = (axes_box.x0 * width, (1 - axes_box.y1) * height, axes_box.x1 * width, (1 - axes_box.y0) * height)
    head = (
        f'<svg viewBox="{view_box[1]}" role="img" aria-labelledby="{name}-title {name}-desc" '
        f'data-frame="{" ".join(f"{x:.1f}" for x in frame)}">'
        f'<title id="{name}-title">{html.escape(drawing.title)}</title>'
        f'<desc id="{name}-desc">{html.escape(drawing.description)}</desc>'
    )
    return head + re.sub(r"\s*\n\s*", "\n", text[text.index(">") + 1 :])
