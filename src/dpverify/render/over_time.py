"""Figures of privacy over time: the bounds of every step, and a heat map of many records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from dpverify.render.bounds import complete_figure
from dpverify.render.page import render, shown
from dpverify.render.style import CELLS, INK, MUTED, PROVED, RULE, SECOND, Drawing, Key, canvas, label, styled
from dpverify.util.formatting import format_lower

__all__ = ["StepBounds", "complete_figure", "heat_map", "render", "shown", "step_figure"]  # what pages over time need

MAX_ROW_NAMES = 40  # beyond it only some rows of a heat map have names
MAX_OPACITY = 0.9
ROW_HEIGHT, FRAME_HEIGHT = 0.22, 1.1  # inches
MIN_HEIGHT, MAX_HEIGHT = 2.0, 9.0
MAX_NAME = 26  # characters of the name of a row
UPPER_FACTOR = 3.0  # an upper bound above this many times the largest lower bound does not set the scale


class StepBounds(NamedTuple):
    """The bounds of every step.

    Attributes
    ----------
    lower, upper : ndarray of shape (K,)
        The lower bounds over all events, and the upper bounds over unions of cells (may be infinite).
    exact : ndarray or None
        The exact epsilons if they are known (may be infinite).
    start : int or None
        The step at which a loss is first proved.
    claim : float or None
        The claimed epsilon.
    """

    lower: np.ndarray
    upper: np.ndarray
    exact: np.ndarray | None
    start: int | None
    claim: float | None = None


def step_figure(bounds: StepBounds, title: str) -> Drawing:
    """Draw the bounds on epsilon against the last step of the prefix."""
    steps = np.arange(bounds.lower.size)
    top = _axis_end(bounds)
    upper = np.where(np.isfinite(bounds.upper), bounds.upper, 10 * top)  # beyond the axis
    keys = [
        Key("proved", "line", "lower bound on ε of the steps up to this one, over all events"),
        Key("cells", "dash", "upper bound on ε over the cells; events that split a cell were not checked"),
        Key("muted", "area", "between the two; they have different scopes, so this is no confidence interval"),
    ]
    with styled():
        picture = canvas(3.2)
        axes = picture.add_subplot()
        axes.fill_between(steps, bounds.lower, upper, color=MUTED, alpha=0.15, lw=0, step="post")
        axes.step(steps, upper, where="post", color=CELLS, ls=(0, (4, 2)), lw=1.2)
        if bounds.exact is not None and np.isfinite(bounds.exact).any():
            axes.plot(steps, bounds.exact, color=INK, lw=0, marker="x", ms=4)
            keys.append(Key("ink", "cross", "exact ε, from the closed form of the mechanism"))
        axes.step(steps, bounds.lower, where="post", color=PROVED, lw=1.8)
        axes.plot(steps, bounds.lower, color=PROVED, lw=0, marker="o", ms=3)
        if bounds.start is not None:
            axes.axvline(bounds.start, color=SECOND, lw=1)
            keys.append(Key("second", "tick", f"the first step with a proved loss: step {bounds.start}"))
        if bounds.claim is not None:
            axes.axhline(bounds.claim, color=INK, lw=1, ls=(0, (1, 2)))
            keys.append(Key("ink", "dots", "the claimed ε"))
        axes.set(xlim=(-0.3, steps[-1] + 0.6), ylim=(0, top))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        label(axes, "last released step", "ε (logarithm of a probability ratio)")
    final = format_lower(float(bounds.lower[-1]))
    seen = "no loss is proved" if bounds.start is None else f"a loss is proved from step {bounds.start} on"
    return Drawing(
        picture,
        title,
        f"Bounds on epsilon for {steps.size} steps: {seen}, and the last lower bound is {final}.",
        tuple(keys),
        "A longer prefix reveals at least as much as a shorter one, so the lower bound never falls.",
    )


def _axis_end(bounds: StepBounds) -> float:
    """Return the end of the axis of epsilon: it shows all lower bounds, and upper bounds that are not far above."""
    shown = [float(bounds.lower.max()), bounds.claim or 0.0]
    if bounds.exact is not None:
        shown.append(float(bounds.exact[np.isfinite(bounds.exact)].max(initial=0.0)))
    largest = max(shown)
    near = bounds.upper[bounds.upper <= UPPER_FACTOR * max(largest, 0.1)]
    return 1.08 * max(largest, float(near.max(initial=0.0)), 0.1)


def heat_map(
    names: Sequence[str],
    values: np.ndarray,
    starts: Sequence[int | None],
    title: str,
    meaning: str,
    scale: float | None = None,
) -> Drawing:
    """Draw epsilon of every record (rows) and step (columns), with the first step of each record above 0.

    Parameters
    ----------
    names : sequence of str
        The records.
    values : ndarray of shape (records, steps)
        The epsilons; NaN in the whole row of a record without an answer.
    starts : sequence of int or None
        The first step of each record with an epsilon above 0.
    title, meaning : str
        The title, and what the colour stands for.
    scale : float, optional
        The value of the darkest colour; by default the largest value.
    """
    rows, columns = values.shape
    finite = values[np.isfinite(values)]
    largest = max(float(finite.max(initial=0.0)) if scale is None else scale, 1e-12)
    with styled():
        picture = canvas(min(max(FRAME_HEIGHT + ROW_HEIGHT * rows, MIN_HEIGHT), MAX_HEIGHT))
        axes = picture.add_subplot()
        for row in range(rows):
            _draw_row(axes, row, values[row], largest, starts[row])
        every = -(-rows // MAX_ROW_NAMES)
        shown = range(0, rows, every)
        axes.set_yticks(list(shown), [_shorten(names[row]) for row in shown])
        axes.set(xlim=(-0.5, columns + 2.2), ylim=(rows - 0.5, -0.6))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick < columns])
        axes.tick_params(axis="y", length=0)
        label(axes, "last released step", "record")
        axes.text(columns - 0.3, -0.75, "end", ha="left", va="bottom", color=MUTED, fontsize=8.5)
    final = values[:, -1]
    worst = int(np.nanargmax(final))
    unanswered = int(np.isnan(final).sum())
    voided = f" {unanswered} without an answer." if unanswered else ""
    return Drawing(
        picture,
        title,
        f"{rows} record{'' if rows == 1 else 's'} over {columns} steps.{voided} The largest epsilon at the end is "
        f"{format_lower(float(values[worst, -1]))}, for {names[worst]}.",
        (
            Key("proved", "area", f"{meaning}; the darkest colour is {format_lower(largest)}"),
            Key("ink", "tick", "the first step with a value above 0"),
        ),
        "The number at the end of a row is the value of the last step.",
    )


def _draw_row(axes: Axes, row: int, values: np.ndarray, largest: float, start: int | None) -> None:
    """Draw the cells of one record; cells of value 0 are empty."""
    void = bool(np.isnan(values[-1]))
    for step, value in enumerate([] if void else values.tolist()):
        opacity = MAX_OPACITY * min(value / largest, 1.0)
        if opacity > 0:
            axes.add_patch(Rectangle((step - 0.5, row - 0.42), 1.0, 0.84, color=PROVED, alpha=opacity, lw=0))
    axes.add_patch(Rectangle((-0.5, row - 0.42), values.size, 0.84, fill=False, edgecolor=RULE, lw=0.6))
    if start is not None:
        axes.plot([start - 0.5] * 2, [row - 0.46, row + 0.46], color=INK, lw=2.2, solid_capstyle="butt")
    axes.text(
        values.size - 0.3,
        row,
        "no answer" if void else format_lower(float(values[-1])),
        ha="left",
        va="center",
        fontsize=8.5,
        color=MUTED if void else INK,
    )


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"
