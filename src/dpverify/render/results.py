"""The page of many verifications: the finding first, what changed, a table that can be sorted, and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.patches import Rectangle

from dpverify.render.page import render, shown
from dpverify.render.style import INK, MUTED, PAPER, PROVED, Drawing, Key, canvas, label, styled
from dpverify.util.formatting import format_lower

SCRIPT = (Path(__file__).parent / "results.js").read_text(encoding="utf-8")
MAX_TEXTS = 144  # cells of a map that have a number


class Column(NamedTuple):
    """A column of the table.

    Attributes
    ----------
    text : str
        Its heading.
    is_number : bool
        Whether its values are numbers.
    """

    text: str
    is_number: bool = False


class Cell(NamedTuple):
    """A cell of the table.

    Attributes
    ----------
    text : str
        What is shown.
    sort : str
        What the table is sorted by.
    link : str
        An address relative to the page, or nothing.
    verdict : str
        The verdict whose colour the text has, or nothing.
    """

    text: str
    sort: str
    link: str = ""
    verdict: str = ""


class ChangeLine(NamedTuple):
    """What changed for one claim since an earlier release."""

    name: str
    text: str
    is_worse: bool


class ResultsContent(NamedTuple):
    """Everything that the page shows.

    Attributes
    ----------
    title, over : str
        The title of the window, and the line above the headline.
    verdict, badge : str
        The worst verdict, and its text.
    headline : str
        The finding.
    lead : tuple of str
        Paragraphs below the headline.
    columns, rows
        The table.
    changes_title : str
        The heading of the changes; empty if there is no earlier release.
    changes : tuple of ChangeLine
        What changed.
    table_title : str
        The heading of the table.
    """

    title: str
    over: str
    verdict: str
    badge: str
    headline: str
    lead: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    changes_title: str = ""
    changes: tuple[ChangeLine, ...] = ()
    table_title: str = "All answers"


def results_page(content: ResultsContent, drawings: Sequence[Drawing] = ()) -> str:
    """Return the page as HTML."""
    return render(
        "results.html.j2", SCRIPT, title=content.title, content=content, figures=shown(list(drawings), "figure")
    )


def heat_map(
    x: Sequence[object], y: Sequence[object], values: np.ndarray, names: tuple[str, str], claim: float | None
) -> Drawing:
    """Draw the lower bound on epsilon for every combination of two parameters.

    Parameters
    ----------
    x, y : sequence
        The values of the parameters.
    values : ndarray, shape (len(y), len(x))
        The largest lower bound of each combination; NaN without an answer.
    names : pair of str
        The names of the parameters.
    claim : float or None
        The claimed epsilon. Combinations above it have a frame.
    """
    largest = float(np.nanmax(values, initial=0.0))
    with styled():
        figure = canvas(1.2 + 0.36 * min(len(y), 12))
        axes = figure.add_subplot()
        for row, column in np.ndindex(values.shape):
            value = float(values[row, column])
            if np.isnan(value):
                continue
            strength = 0.12 + 0.75 * value / max(largest, 1e-12)
            axes.add_patch(_square(column, row, facecolor=PROVED, alpha=strength, edgecolor="none"))
            if claim is not None and value > claim:
                axes.add_patch(_square(column, row, facecolor="none", edgecolor=INK, linewidth=1.4))
            if values.size <= MAX_TEXTS:
                colour = PAPER if strength > 0.55 else INK
                axes.text(column, row, format_lower(value), ha="center", va="center", fontsize=8, color=colour)
        axes.set_xlim(-0.5, len(x) - 0.5)
        axes.set_ylim(-0.5, len(y) - 0.5)
        axes.set_xticks(range(len(x)), [f"{value}" for value in x])
        axes.set_yticks(range(len(y)), [f"{value}" for value in y])
        axes.tick_params(length=0, colors=MUTED)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        label(axes, *names)
    keys = [Key("proved", "area", "lower bound on ε over all events; a stronger colour is larger")]
    if claim is not None:
        keys.append(Key("ink", "line", f"frame: above the claimed ε = {claim:.4g}"))
    numbers = f"{len(x)} values of {names[0]} and {len(y)} of {names[1]}"
    text = f"The lower bound on epsilon for {numbers}; the largest is {largest:.4g}."
    return Drawing(figure, f"Privacy loss by {names[0]} and {names[1]}", text, tuple(keys))


def _square(column: int, row: int, **style: Any) -> Rectangle:
    """Return the square of a combination."""
    return Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, **style)
