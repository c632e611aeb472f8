"""Figures of the readings: printed and measured numbers of every row, and critical epsilon against m."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from dpverify.paper.page.figures import label_at_right, p_values_of_row, plain_ticks
from dpverify.paper.page.reading_tables import cells_by_key
from dpverify.paper.readings.results import CeilingByRuns, ReadingResults, RowFit, Summary
from dpverify.render.figures import separate_boxes
from dpverify.render.style import BOUNDED, FIRST, INK, MUTED, RULE, SECOND, Drawing, Key, canvas, label, styled

SHORT_NAMES = {"W2-MHE": "W2-MHE", "input perturbation": "input", "private EKF": "EKF"}
MARKS = ("o", "s", "D", "^", "v")
AXES_HEIGHT_IN_POINTS = 190.0  # of the figure against m, about


def row_label(row: RowFit) -> str:
    """Return the place in the paper with the set-up and the mechanism, on one line."""
    cell = cells_by_key()[row.row]
    place = cell.place.rsplit(", ", 1)[0] if cell.place.count(",") == 2 else cell.place
    return f"{place}: {cell.setup}, {SHORT_NAMES[cell.mechanism]}"


def compare_critical_epsilons(readings: ReadingResults) -> Drawing:
    """Draw a line for each row: the printed critical epsilon, ours, and the ceiling."""
    rows = [row for row in readings.best.rows if math.isfinite(cells_by_key()[row.row].epsilon_c)]
    with styled():
        picture = canvas(1.0 + 0.36 * len(rows), 4.6)
        axes = picture.add_subplot()
        for number, row in enumerate(rows):
            axes.plot([row.ceiling.low, row.ceiling.high], [-number - 0.2] * 2, color=MUTED, lw=1, ls=(0, (3, 2)))
            axes.plot(row.ceiling.median, -number - 0.2, "|", color=MUTED, ms=8, mew=1.4)
            axes.plot([row.epsilon_c.low, row.epsilon_c.high], [-number + 0.08] * 2, color=FIRST, lw=2.4, alpha=0.5)
            axes.plot(row.epsilon_c.median, -number + 0.08, "o", color=FIRST, ms=5)
            axes.plot(cells_by_key()[row.row].epsilon_c, -number + 0.08, "x", color=INK, ms=7, mew=1.6)
        axes.set_yticks([-number for number in range(len(rows))], [row_label(row) for row in rows])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-len(rows) + 0.4, 0.6)
        axes.set_xlim(left=-0.03 * axes.get_xlim()[1])
        axes.grid(axis="x", color=RULE, lw=0.5)
        axes.set_xlabel("ε_c", loc="right")
    return Drawing(
        picture,
        "Critical epsilons: printed, ours, and the ceiling",
        f"For {len(rows)} rows of the paper: the printed critical epsilon, ours under the best reading, and the "
        "ceiling. The table gives all numbers.",
        (
            Key("ink", "cross", "printed in the paper"),
            Key("first", "bar", "ours: median and 5 to 95% of seeds"),
            Key("muted", "dash", "ceiling: the same with a smaller count of 0"),
        ),
        "Where ours and the ceiling coincide, the row is saturated.",
    )


def compare_errors(readings: ReadingResults) -> Drawing:
    """Draw the printed and the measured error of each row."""
    rows = [row for row in readings.best.rows if cells_by_key()[row.row].error is not None]
    with styled():
        picture = canvas(1.0 + 0.36 * len(rows), 4.6)
        axes = picture.add_subplot()
        for number, row in enumerate(rows):
            axes.plot([row.error.low, row.error.high], [-number] * 2, color=FIRST, lw=2.4, alpha=0.5)
            axes.plot(row.error.median, -number, "o", color=FIRST, ms=5)
            axes.plot(cells_by_key()[row.row].error or math.nan, -number, "x", color=INK, ms=7, mew=1.6)
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
        axes.set_yticks([-number for number in range(len(rows))], [row_label(row) for row in rows])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-len(rows) + 0.4, 0.6)
        axes.grid(axis="x", color=RULE, lw=0.5)
        axes.set_xlabel("E_correct", loc="right")
    return Drawing(
        picture,
        "Errors: printed and ours",
        f"For {len(rows)} rows of the paper: the printed error under the right data, and ours under the best reading.",
        (Key("ink", "cross", "printed in the paper"), Key("first", "bar", "ours: median and 5 to 95% of seeds")),
        "A logarithmic axis.",
    )


def epsilon_against_runs(ceilings: Sequence[CeilingByRuns], by_runs: Mapping[int, Sequence[RowFit]]) -> Drawing:
    """Draw the critical epsilon against m: disjoint distributions, and the W2-MHE rows under the best reading."""
    keys = [key for key in dict.fromkeys(row.row for rows in by_runs.values() for row in rows)]
    keys = [key for key in keys if math.isfinite(cells_by_key()[key].epsilon_c)]
    printed = [cells_by_key()[key].epsilon_c for key in keys]
    with styled():
        picture = canvas(3.6)
        axes = picture.add_subplot()
        m = np.array([ceiling.test_runs for ceiling in ceilings])
        summaries = [ceiling.epsilon_c for ceiling in ceilings]
        axes.fill_between(m, [s.low for s in summaries], [s.high for s in summaries], color=MUTED, alpha=0.2, lw=0)
        axes.plot(m, [s.median for s in summaries], color=MUTED, lw=1.6)
        for key, mark, colour in zip(keys, MARKS, (FIRST, BOUNDED, SECOND, INK, MUTED), strict=False):
            points = {runs: row.epsilon_c for runs, rows in by_runs.items() for row in rows if row.row == key}
            _draw_points(axes, points, mark, colour, f"{cells_by_key()[key].place}")
        axes.set_xscale("log")
        axes.set_xticks(m, [f"{runs:g}" for runs in m])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        for value in printed:
            axes.axhline(value, color=INK, lw=0.7, ls=(0, (4, 2)))
        scale = AXES_HEIGHT_IN_POINTS / axes.get_ylim()[1]
        boxes = np.array([[0.0, scale * value] for value in printed])
        heights = separate_boxes(boxes, np.full((len(printed), 2), 11.0))[:, 1] / scale
        for value, height in zip(printed, heights, strict=True):
            label_at_right(axes, float(height), f"{value:g}", INK)
        axes.legend(loc="upper left", fontsize=8)
        label(axes, "m, test runs per data set (n = 1000)", "ε_c")
    return Drawing(
        picture,
        "ε_c depends on m",
        "The critical epsilon against the number of test runs, for two disjoint distributions on 256 equally likely "
        "cells and for the W2-MHE rows under the best reading. The table gives all numbers.",
        (
            Key("muted", "area", "two disjoint distributions, 256 equal cells: median and 5 to 95%"),
            Key("ink", "dash", "printed in the paper; the number stands at the right end"),
        ),
        "Points are medians over seeds. The true ε of disjoint distributions is infinite for every m.",
    )


def _draw_points(axes: Axes, points: Mapping[int, Summary], mark: str, colour: str, text: str) -> None:
    """Draw the medians of one row along m."""
    runs = sorted(points)
    axes.plot(runs, [points[m].median for m in runs], mark, color=colour, ms=5, label=text, ls="none")


def log_probability_against_runs(ceilings: Sequence[CeilingByRuns]) -> Drawing:
    """Draw which m the printed values favour, if the distributions are disjoint."""
    with styled():
        picture = canvas(3.6)
        axes = picture.add_subplot()
        m, logs = [c.test_runs for c in ceilings], [c.log_probability for c in ceilings]
        axes.plot(m, logs, "o-", color=FIRST, ms=5)
        axes.set_xscale("log")
        axes.set_xticks(m, [f"{runs:g}" for runs in m])
        axes.minorticks_off()
        axes.grid(axis="y", color=RULE, lw=0.5)
        label(axes, "m, test runs per data set (n = 1000)", "log probability of the printed ε_c of the W2-MHE")
    best = max(ceilings, key=lambda ceiling: ceiling.log_probability)
    return Drawing(
        picture,
        "Which m the printed values favour",
        "Log probability of the four printed W2-MHE values under disjoint distributions; largest at m = "
        f"{best.test_runs}.",
        (),
        "Under the model of disjoint distributions on 256 equally likely cells.",
    )


def p_value_figures(readings: ReadingResults) -> list[Drawing]:
    """Return Figures 4 (left), 5 and 6 of the paper: p-values of the worst event along epsilon."""
    drawings = []
    for row in readings.best.rows:
        cell = cells_by_key()[row.row]
        if cell.place.startswith("Fig.") and row.counts:
            title = f"{cell.place}: {cell.mechanism}, {cell.parameter_text}"
            drawings.append(p_values_of_row(row.counts, row.reading.test_runs, cell.epsilon_c, title))
    return drawings
