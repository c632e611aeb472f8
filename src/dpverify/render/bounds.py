"""Figures for use outside of a page: with their title and legend inside, as `plot()` returns them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dpverify.render.style import CELLS, INK, PROVED, RULE, VARIABLES, Drawing, Key, canvas, label, styled

MAX_LABELS = 30  # beyond it the rows have no names
ROW_HEIGHT, FRAME_HEIGHT, MIN_HEIGHT = 0.22, 1.0, 2.2  # inches
LEGEND_LINE_HEIGHT = 0.24  # inches
LEGEND_CHARACTERS, TITLE_CHARACTERS = 62, 58  # per line
COLOURS = {variable: colour for colour, variable in VARIABLES.items()}
LINE_STYLES: dict[str, Literal["-", "--", ":"]] = {"line": "-", "solid": "-", "dash": "--", "dots": ":"}
MARKERS = {"bar": "_", "open": "<", "tick": "|", "diamond": "D", "cross": "x", "dot": "o"}


class Bounds(NamedTuple):
    """The bounds on epsilon of one verification.

    Attributes
    ----------
    name : str
        What was verified.
    lower, upper : float
        The lower bound over all events, and the upper bound over unions of cells (may be infinite).
    position : float or None
        The value on the axis, for example a parameter; None puts the verifications one below the other.
    claim : float or None
        The claimed epsilon of this verification, if the verifications have different claims.
    """

    name: str
    lower: float
    upper: float
    position: float | None = None
    claim: float | None = None


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
            handles = [_legend_handle(key) for key in keys]
            figure.legend(handles=handles, loc="outside lower left", fontsize=8, ncols=1)
    return figure


def _legend_handle(key: Key) -> Line2D | Patch:
    """Return the legend entry of a key."""
    colour = COLOURS.get(key.colour, INK)
    if key.mark == "area":
        return Patch(color=colour, alpha=0.3, label=key.text)
    if key.mark in LINE_STYLES:
        return Line2D([], [], color=colour, linestyle=LINE_STYLES[key.mark], label=key.text)
    return Line2D(
        [],
        [],
        color=colour,
        marker=MARKERS.get(key.mark, "o"),
        linestyle="",
        markersize=5,
        fillstyle="none" if key.mark == "open" else "full",
        label=key.text,
    )


def draw_bounds(rows: Sequence[Bounds], title: str, axis: str = "", claim: float | None = None) -> Drawing:
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
    """
    has_positions = bool(rows) and all(row.position is not None for row in rows)
    draw = _draw_against_position if has_positions else _draw_rows
    with styled():
        figure = draw(rows, axis, claim)
    keys = [
        Key("proved", "dot", "lower bound on ε over all events"),
        Key(
            "cells",
            "bar" if has_positions else "tick",
            "upper bound on ε over the cells; events that split a cell were not checked",
        ),
    ]
    if claim is not None:
        keys.append(Key("ink", "dash", f"claimed ε = {claim:.4g}"))
    if any(row.claim is not None for row in rows):
        keys.append(Key("ink", "diamond", "claimed ε"))
    largest = max((row.lower for row in rows), default=0.0)
    return Drawing(figure, title, f"{title}. The largest lower bound on epsilon is {largest:.4g}.", tuple(keys))


def _draw_rows(rows: Sequence[Bounds], axis: str, claim: float | None) -> Figure:
    """Draw one row per verification, the first on top."""
    shown = len(rows) <= MAX_LABELS
    figure = canvas(max(MIN_HEIGHT, FRAME_HEIGHT + ROW_HEIGHT * min(len(rows), 2 * MAX_LABELS)))
    axes = figure.add_subplot()
    for number, row in enumerate(rows):
        if math.isfinite(row.upper):
            axes.plot(row.upper, number, "|", color=CELLS, markersize=8)
        if row.claim is not None:
            axes.plot(row.claim, number, "D", color=INK, markersize=4, fillstyle="none")
        axes.plot(row.lower, number, "o", color=PROVED, markersize=4)
    axes.set_yticks(range(len(rows)) if shown else [], [row.name for row in rows] if shown else [])
    axes.grid(axis="y", color=RULE, linewidth=0.5)  # no line from bound to bound: their scopes differ
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(left=0)
    if claim is not None:
        axes.axvline(claim, color=INK, linestyle="--", linewidth=0.8)
    axes.set_xlabel("ε", loc="right")
    return figure


def _draw_against_position(rows: Sequence[Bounds], axis: str, claim: float | None) -> Figure:
    """Draw epsilon against the position."""
    figure = canvas(3.2)
    axes = figure.add_subplot()
    ordered = sorted(rows, key=_position)
    x = np.array([_position(row) for row in ordered])
    axes.plot(x, [row.lower for row in ordered], "o", color=PROVED, markersize=4)
    upper = np.array([row.upper for row in ordered])
    finite = np.isfinite(upper)
    axes.plot(x[finite], upper[finite], "_", color=CELLS, markersize=8)
    axes.set_ylim(bottom=0)
    if claim is not None:
        axes.axhline(claim, color=INK, linestyle="--", linewidth=0.8)
    label(axes, axis, "ε")
    return figure


def _position(row: Bounds) -> float:
    return 0.0 if row.position is None else row.position
