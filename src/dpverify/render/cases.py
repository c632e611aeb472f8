"""The figure of one entry of the gallery: claim, bounds and exact privacy of all its cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from dpverify.render.style import BOUNDED, INK, PROVED, RULE, WITNESS, Drawing, Key, canvas, styled
from dpverify.util.formatting import format_lower

ROW_HEIGHT, FRAME_HEIGHT = 0.56, 0.55  # inches


class CaseBar(NamedTuple):
    """What the figure shows of one case.

    Attributes
    ----------
    title : str
        The name of the case.
    claimed, proved : float
        The claimed parameter, and the lower bound on it.
    bounded : float
        The upper bound over unions of cells; infinite if there is none.
    truth : float or None
        The exact value, may be infinite; None if it is not known.
    is_exact : bool
        False if `truth` is an upper bound only.
    """

    title: str
    claimed: float
    proved: float
    bounded: float
    truth: float | None
    is_exact: bool


def draw_cases(bars: Sequence[CaseBar], title: str, symbol: str) -> Drawing:
    """Draw one row per case.

    Parameters
    ----------
    bars : sequence of CaseBar
        The cases, the first on top.
    title : str
        The title.
    symbol : str
        The symbol of the parameter on the axis.
    """
    numbers = [bar.claimed for bar in bars] + [bar.proved for bar in bars]
    numbers += [bar.truth for bar in bars if bar.truth is not None and math.isfinite(bar.truth)]
    end = 1.15 * max(*numbers, 0.1)
    with styled():
        figure = canvas(FRAME_HEIGHT + ROW_HEIGHT * len(bars))
        axes = figure.add_subplot()
        for row, bar in enumerate(bars):
            _draw_bar(axes, row, bar, end)
        axes.set_xlim(0, end)
        axes.set_ylim(len(bars) - 0.35, -0.65)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(symbol, loc="right")
    keys = [
        Key("proved", "bar", f"proved: {symbol} is at least this, over all events"),
        Key("bounded", "tick", "bounded: at most this, for unions of cells only"),
        Key("ink", "line", "claimed"),
    ]
    if any(bar.truth is not None for bar in bars):
        keys.append(Key("witness", "diamond", "exact value (hollow: upper bound; arrow: infinite)"))
    described = "; ".join(f"{bar.title}: claimed {bar.claimed:.4g}, proved {format_lower(bar.proved)}" for bar in bars)
    return Drawing(figure, title, f"{title}. {described}.", tuple(keys))


def _draw_bar(axes: Axes, row: int, bar: CaseBar, end: float) -> None:
    """Draw one case: its name above, its bounds below."""
    axes.text(0, row - 0.2, bar.title, ha="left", va="bottom", fontsize=8.5, color=INK)
    axes.plot([0, end], [row, row], color=RULE, linewidth=0.5, zorder=0)
    if bar.proved > 0:
        axes.barh(row, bar.proved, height=0.26, color=PROVED, alpha=0.8)
    if bar.bounded <= end:
        axes.plot(bar.bounded, row, "|", color=BOUNDED, markersize=11, markeredgewidth=2)
    axes.plot([bar.claimed, bar.claimed], [row - 0.17, row + 0.2], color=INK, linewidth=1.6)
    if bar.truth is not None:
        marker, place = ("D", bar.truth) if math.isfinite(bar.truth) else (">", 0.985 * end)
        fill = WITNESS if bar.is_exact else "none"
        axes.plot(
            place, row, marker, color=WITNESS, markersize=5.5, markerfacecolor=fill, markeredgewidth=1.3, zorder=3
        )
