"""Figures of the outputs: some runs of both data sets, with the region, the cells and the tested event.

The figure depends on the output. Outputs with few different values are drawn as bars, one coordinate as two histograms,
and several coordinates as dots in the plane (`planes`) or as paths over the steps. Where the cells are level sets of a
score, the score of every run is drawn too. Runs in the tested event are solid, other runs are pale.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dpverify.events.scores import Levels
from dpverify.events.wording import coordinate_names, labelled_outputs
from dpverify.render.planes import EVENT_KEY, MAX_PANELS, REGION_TEXT, draw_planes, legend
from dpverify.render.scene import OWN_UNIT, Scene, axis_limits, coordinate_differences, largest_indices
from dpverify.render.style import FIRST, MUTED, SECOND, WIDTH, WITNESS, Drawing, Key, canvas, label, styled
from dpverify.util.arrays import is_plain_data
from dpverify.util.formatting import format_cell_count, format_number

MAX_PATHS = 60  # runs per data set that are drawn as single lines
MAX_BAR_VALUES = 24  # different values of a coordinate that is drawn as bars
MAX_VALUE_LABELS = 9  # labels below the bars of one coordinate
HISTOGRAM_BINS = 36
BROAD = 6.2  # inches; of a figure that stands alone
GOLDEN_RATIO = 0.618034  # its multiples modulo 1 are evenly spread


def draw_outputs(scene: Scene) -> list[Drawing]:
    """Return the figures that suit the outputs; none where no finite output is stored."""
    if not any(map(len, scene.sides)):
        return []
    steps, dimension = scene.shape
    columns = np.concatenate(scene.flat).T
    with styled():
        if all(len(np.unique(column)) <= min(MAX_BAR_VALUES, len(column) / 4) for column in columns):
            return [_draw_bars(scene)]
        if columns.shape[0] == 1:
            return [_draw_histograms(scene)]
        drawings = []
        if scene.event_levels is not None and scene.event_known:
            drawings.append(_draw_scores(scene, scene.event_levels))
        if dimension == 1 or steps > MAX_PANELS:
            drawings.append(_draw_paths(scene))
        if dimension > 1:
            drawings.append(draw_planes(scene))
        return drawings


def _draw_two_histograms(
    sides: tuple[np.ndarray, np.ndarray],
    edges: np.ndarray,
    in_event: Callable[[np.ndarray], np.ndarray] | None,
    region: tuple[float, float] | None,
    width: float = WIDTH,
    densities: Callable[[float, float], Densities] | None = None,
) -> tuple[Figure, Axes]:
    """Draw one number per run: histograms above, runs and cells below, the tested event as background.

    `densities(low, high)` returns densities of all test runs, which are drawn in place of histograms of the runs.
    """
    both = np.concatenate(sides)
    ends = np.array([both.min(), both.max(), *(region or ())])
    low, high = (float(limit) for limit in axis_limits(both, ends.min(), ends.max()))
    picture = canvas(3.6, width)
    above, below = picture.subplots(2, 1, sharex=True, height_ratios=[2.6, 1])
    above.set_xlim(low, high)
    if in_event is not None:
        for start, stop in _intervals(in_event, low, high):
            for axes in (above, below):
                axes.axvspan(start, stop, color=WITNESS, alpha=0.28, lw=0)
    bins = np.linspace(low, high, HISTOGRAM_BINS + 1)
    exact = None if densities is None else densities(low, high)
    for row, (values, colour) in enumerate(zip(sides, (FIRST, SECOND), strict=True)):
        if exact is not None:
            above.stairs(exact.heights[row], exact.edges, color=colour, alpha=0.16, fill=True, lw=0)
            above.stairs(exact.heights[row], exact.edges, color=colour, lw=1.5)
        elif len(values):
            weights = np.full(len(values), 100 / len(values))
            above.hist(values, bins, weights=weights, color=colour, alpha=0.16, histtype="stepfilled", lw=0)
            above.hist(values, bins, weights=weights, color=colour, histtype="step", lw=1.5)
        jitter = (np.arange(len(values)) * GOLDEN_RATIO) % 1 - 0.5
        below.plot(values, 2 - row + 0.56 * jitter, ".", color=colour, ms=2.2, alpha=0.6, mew=0)
    if region is not None:
        below.plot(region, (0, 0), color=MUTED, lw=5, alpha=0.35, solid_capstyle="butt")
    below.vlines(edges[(edges > low) & (edges < high)], -0.4, 0.4, color=MUTED, lw=0.8)
    below.axhline(0, color=MUTED, lw=0.6, zorder=0)
    below.set_ylim(-0.7, 2.6)
    below.set_yticks([2, 1, 0], ["first", "second", "cells"])
    below.tick_params(axis="y", length=0)
    below.spines["left"].set_visible(False)
    above.tick_params(axis="x", labelbottom=False)
    above.set_ylim(0, None)
    label(above, "", "runs in each bin (%)" if exact is None else "density of the test runs (% per unit)")
    return picture, below


class Densities(NamedTuple):
    """Densities of both data sets that are constant between edges."""

    edges: np.ndarray
    heights: np.ndarray


def _cell_densities(
    counts: np.ndarray, find_codes: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> Densities:
    """Return the densities of all test runs, in per cent per unit; the outer cells end with the axis.

    `counts` has the runs of both data sets in every cell, and `find_codes` maps numbers to their cells.
    """
    mesh = np.linspace(low, high, 20_001)
    codes = find_codes((mesh[1:] + mesh[:-1]) / 2)
    changes = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    widths = np.bincount(codes, minlength=counts.shape[1]) * (mesh[1] - mesh[0])
    shares = 100 * counts / counts.sum(axis=1, keepdims=True)
    pieces = codes[np.append(0, changes)]
    return Densities(
        mesh[np.concatenate([[0], changes, [mesh.size - 1]])], (shares / np.maximum(widths, 1e-300))[:, pieces]
    )


def _intervals(
    contains: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> list[tuple[np.floating, np.floating]]:
    """Return the intervals of an event between two limits, found on a fine mesh; narrow ones are widened."""
    mesh = np.linspace(low, high, 4001)
    inside = np.concatenate([[False], contains(mesh), [False]])
    starts = np.flatnonzero(inside[1:-1] & ~inside[:-2])
    stops = np.flatnonzero(inside[1:-1] & ~inside[2:])
    narrowest = (high - low) / 400
    return [(start, max(stop, start + narrowest)) for start, stop in zip(mesh[starts], mesh[stops], strict=True)]


def _median_text(values: np.ndarray) -> str:
    return format_number(float(np.median(values))) if len(values) else "no finite value"


def _draw_histograms(scene: Scene) -> Drawing:
    """Draw outputs that are one number."""
    first, second = (flat[:, 0] for flat in scene.flat)
    region = None
    if scene.region is not None:
        centre, half = float(scene.region.centre.ravel()[0]), float(scene.region.half.ravel()[0])
        region = (centre - half, centre + half)
    both = np.concatenate([first, second])
    spread = np.ptp(both)
    mesh = np.linspace(both.min() - 0.1 * spread, both.max() + 0.1 * spread, 20_001)
    # Cells of any kind are intervals here: their edges are where the code changes.
    codes = scene.partition.codes(mesh.reshape(-1, 1, 1)) if is_plain_data(scene.partition) else np.zeros(mesh.size)
    edges = (mesh[1:] + mesh[:-1])[codes[1:] != codes[:-1]] / 2
    contains = (lambda x: scene.event.contains(x.reshape(-1, 1, 1))) if scene.event_known else None
    densities = None
    if scene.cell_counts is not None:
        densities = partial(_cell_densities, scene.cell_counts, lambda x: scene.partition.codes(x.reshape(-1, 1, 1)))
    picture, below = _draw_two_histograms((first, second), edges, contains, region, BROAD, densities)
    shown = "all test runs" if densities else scene.runs
    above = "densities of all test runs in the cells" if densities else f"histograms of {scene.runs}"
    below.set_xlabel(f"{scene.name(0)} {scene.unit(0)}", loc="right")
    return Drawing(
        picture,
        "Distribution of the output",
        f"The distribution of {shown}. Median of the first data set: {_median_text(first)}; of the second: "
        f"{_median_text(second)}. The witness is: {scene.event_text}.",
        (*legend(scene)[:2], *([EVENT_KEY] if scene.event_known else []), Key("muted", "bar", REGION_TEXT)),
        f"Upper part of the figure: {above}. Lower part: {scene.runs}, and the edges of the partition's "
        f"{format_cell_count(scene.cells)} cells.",
    )


def _draw_scores(scene: Scene, levels: Levels) -> Drawing:
    """Draw the score of every run; its level sets are the cells of the tested event."""
    first, second = (np.asarray(levels.score.values(flat), float) if len(flat) else np.zeros(0) for flat in scene.flat)
    edges, codes = levels.edges, scene.event.codes
    densities, shown = None, f"Histograms of the score of {scene.runs}"
    if scene.event_counts is not None:
        densities = partial(_cell_densities, scene.event_counts, lambda x: np.searchsorted(edges, x))
        shown = "Densities of the score of all test runs"
    picture, below = _draw_two_histograms(
        (first, second), edges, lambda x: np.isin(np.searchsorted(edges, x), codes), None, densities=densities
    )
    below.set_xlabel("score of a run (no unit)", loc="right")
    if scene.partition is levels:
        cells = f"The partition's {levels.n_cells} cells are ranges of the score."
    else:
        cells = f"The witness is a union of some of {levels.n_cells} ranges of the score."
    return Drawing(
        picture,
        "Score of every run",
        f"{shown}. Median of the first data set: {_median_text(first)}; of the second: {_median_text(second)}. The "
        f"witness is: {scene.event_text}.",
        (*legend(scene)[:2], EVENT_KEY),
        f"The score maps all coordinates of a run to one number: the larger it is, the more likely is the first data "
        f"set. Upper part of the figure: {shown[0].lower()}{shown[1:]}. Lower part: {scene.runs}. {cells}",
    )


def _draw_bars(scene: Scene) -> Drawing:
    """Draw how often each value was observed, for outputs with few different values."""
    with labelled_outputs(scene.labels):
        names = coordinate_names(*scene.shape)
    differences = coordinate_differences(scene).ravel()
    coordinates = largest_indices(differences, MAX_PANELS)
    columns = 1 if len(coordinates) == 1 else 2
    rows = -(-len(coordinates) // columns)
    picture = canvas(3.1 if rows == 1 else 0.5 + 1.55 * rows)
    panels = picture.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, coordinate in zip(panels, coordinates, strict=False):
        _draw_bar_panel(axes, scene, coordinate)
        if len(coordinates) == 1:
            label(axes, f"{names[coordinate]} {scene.unit(coordinate % scene.shape[1])}", "runs (%)")
        else:
            axes.set_title(names[coordinate], loc="left", fontsize=9)
    for axes in panels[len(coordinates) :]:
        axes.set_visible(False)
    if len(coordinates) > 1:
        picture.supylabel("runs (%)", color=MUTED, fontsize=9)
        picture.supxlabel(f"value {OWN_UNIT}", color=MUTED, fontsize=9)
    selection = ""
    if len(coordinates) < differences.size:
        selection = f"; the {len(coordinates)} of {differences.size} coordinates that differ most"
    shown = scene.runs if _value_shares(scene, _different_values(scene, 0)) is None else "all test runs"
    return Drawing(
        picture,
        "Frequency of each output value",
        f"Bars for {shown}, by value, in {len(coordinates)} of {differences.size} coordinates. The witness "
        f"is: {scene.event_text}.",
        legend(scene),
        f"{shown.capitalize()}{selection}. The partition has {format_cell_count(scene.cells)} cells.",
    )


def _different_values(scene: Scene, coordinate: int) -> np.ndarray:
    """Return the different values of a coordinate of the stored runs, in increasing order."""
    return np.unique(np.concatenate([flat[:, coordinate] for flat in scene.flat]))


def _value_shares(scene: Scene, values: np.ndarray) -> np.ndarray | None:
    """Return the share of all test runs with each value, (2, values); None if a value has no cell of its own."""
    if scene.cell_counts is None:
        return None
    codes = scene.partition.codes(values.reshape(-1, 1, 1))
    if len(np.unique(codes)) < len(values):
        return None
    return (scene.cell_counts / scene.cell_counts.sum(axis=1, keepdims=True))[:, codes]


def _draw_bar_panel(axes: Axes, scene: Scene, coordinate: int) -> None:
    """Draw the bars of one coordinate; the solid part of a bar is in the tested event."""
    values = _different_values(scene, coordinate)
    shares = _value_shares(scene, values)
    for side, colour in enumerate((FIRST, SECOND)):
        column, inside = scene.flat[side][:, coordinate], scene.inside[side]
        positions = np.arange(values.size) + 0.2 * (2 * side - 1)
        percent = 100 / max(len(column), 1)
        all_runs = np.array([(column == value).sum() for value in values]) * percent
        in_event = np.array([((column == value) & inside).sum() for value in values]) * percent
        if shares is not None:
            all_runs = 100 * shares[side]
            in_event = all_runs * (scene.event.contains(values.reshape(-1, 1, 1)) if scene.event_known else 1)
        axes.bar(positions, all_runs, 0.36, color=colour, alpha=0.28, lw=0)
        axes.bar(positions, in_event, 0.36, color=colour, lw=0)
    labelled = np.arange(values.size)[:: -(-values.size // MAX_VALUE_LABELS)]
    axes.set_xticks(labelled, [format_number(float(values[i])) for i in labelled])
    axes.tick_params(axis="x", length=0)


def _draw_paths(scene: Scene) -> Drawing:
    """Draw the outputs over the steps, for the one or two coordinates that differ most."""
    steps, dimension = scene.shape
    differences = coordinate_differences(scene)
    coordinates = largest_indices(differences.max(0), 2)
    picture = canvas(3.3 if len(coordinates) == 1 else 4.4)
    panels = picture.subplots(len(coordinates), 1, squeeze=False, sharex=True).ravel()
    numbers = np.arange(steps)
    for axes, j in zip(panels, coordinates, strict=True):
        if scene.region is not None:
            centre, half = scene.region.centre[:, j], scene.region.half[:, j]
            axes.fill_between(numbers, centre - half, centre + half, color=MUTED, alpha=0.13, lw=0)
        for step in range(steps):
            edges = scene.partition.coordinate_edges(step * dimension + j)
            axes.hlines(edges, step - 0.18, step + 0.18, color=MUTED, lw=0.7)
        for runs, inside, colour in zip(scene.sides, scene.inside, (FIRST, SECOND), strict=True):
            paths, solid = runs[:MAX_PATHS, :, j], inside[:MAX_PATHS]
            if scene.event_known:
                axes.plot(numbers, paths[~solid].T, color=colour, lw=0.5, alpha=0.14)
            axes.plot(numbers, paths[solid].T, color=colour, lw=0.7, alpha=0.6)
        for runs, colour in zip(scene.sides, (FIRST, SECOND), strict=True):
            if len(runs):
                axes.plot(numbers, runs[:, :, j].mean(0), color=colour, lw=2.4, marker="o", ms=3.5, zorder=4)
        label(axes, "", f"{scene.name(j)} {scene.unit(j)}")
    if scene.labels.times is None:
        panels[-1].set_xlabel("step (number)", loc="right")
        panels[-1].xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    else:
        panels[-1].set_xlabel("time", loc="right")
        shown = numbers[:: -(-steps // MAX_VALUE_LABELS)]
        panels[-1].set_xticks(shown, [format_number(scene.labels.times[k]) for k in shown])
    largest_step = int(differences.max(1).argmax())
    return Drawing(
        picture,
        "Outputs over the steps",
        f"Outputs against the step, for {scene.runs} over {steps} steps. The data sets differ most at "
        f"{scene.step_name(largest_step)}.",
        (*legend(scene), Key("muted", "area", REGION_TEXT)),
        f"Thick lines: means of {scene.runs}. Thin lines: {MAX_PATHS} single runs per data set.",
    )
