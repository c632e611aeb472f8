"""How figures look: one palette for paper and screen, light and dark, and SVG that a page can carry.

Figures are drawn in the light palette. In a page every colour becomes a CSS variable of the same name, so that the
page decides between light and dark; text stays text, in the page's own font.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, RULE, PAPER = "#1c2023", "#5f676d", "#c9cdd0", "#fffffe"
FIRST, SECOND = "#1f5fa8", "#b65210"  # the two data sets, everywhere
WITNESS, PROVED, BOUNDED = "#d8a31a", "#a3283f", "#1d7a70"
VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    PAPER: "paper",
    FIRST: "first",
    SECOND: "second",
    WITNESS: "witness",
    PROVED: "proved",
    BOUNDED: "bounded",
}
STYLE: Any = {
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
    "text.parse_math": False,  # a mechanism may be called $x$
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
}
WIDTH = 4.3  # inches: at this width the text can be read on a phone, and two figures stand side by side on a screen


class Key(NamedTuple):
    """A legend entry: the name of a colour, how it is drawn (line, dash, dot, area) and what it stands for."""

    colour: str
    mark: str
    text: str


class Drawing(NamedTuple):
    """A figure with what must be said of it; `figure.savefig` writes it to a file, `svg` puts it into a page."""

    figure: Figure
    title: str
    description: str  # for those who don't see it
    keys: tuple[Key, ...] = ()
    caption: str = ""


@contextmanager
def styled() -> Iterator[None]:
    """Our own look over matplotlib's, whatever the user's configuration says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def canvas(height: float, width: float = WIDTH) -> Figure:
    """A figure that no window knows of."""
    return Figure(figsize=(width, height), layout="constrained")


def label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, loc="right")
    # Above the axis and level: nobody has to tilt their head.
    axes.text(0, 1.02, y, transform=axes.transAxes, ha="left", va="bottom", color=MUTED, fontsize=9)


def svg(drawing: Drawing, name: str) -> str:
    """The figure as a piece of HTML: no identifier but its own, no address, an accessible name, CSS colours."""
    with styled():
        mpl.rcParams["svg.hashsalt"] = name  # the same figure is the same text, and no two in a page share a name
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawing.figure.savefig(file, format="svg", metadata=nothing, transparent=True)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style)[ >].*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = text.replace("xlink:href", "href")
    text = re.sub(r"(font: )([^;\"]*?)(\d+(?:\.\d+)?px)[^;\"]*", r"\1\2\3 var(--sans)", text)
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(?<=\d\.\d)\d+", "", tag[0]), text)  # a tenth of a point will do
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    width, height = (72 * inches for inches in drawing.figure.get_size_inches())
    place = drawing.figure.axes[0].get_position()  # for a cursor on the first axes
    frame = (place.x0 * width, (1 - place.y1) * height, place.x1 * width, (1 - place.y0) * height)
    head = (
        f'<svg viewBox="{box[1]}" role="img" aria-labelledby="{name}-title {name}-desc" '
        f'data-frame="{" ".join(f"{x:.1f}" for x in frame)}">'
        f'<title id="{name}-title">{html.escape(drawing.title)}</title>'
        f'<desc id="{name}-desc">{html.escape(drawing.description)}</desc>'
    )
    return head + re.sub(r"\s*\n\s*", "\n", text[text.index(">") + 1 :])
