"""Figures of outputs with several coordinates: dots in the plane of two coordinates, one panel per step."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from dpverify.events.region import Region
from dpverify.render.scene import Scene, axis_limits, coordinate_differences, largest_indices
from dpverify.render.style import FIRST, MUTED, RULE, SECOND, WITNESS, Drawing, Key, canvas
from dpverify.util.arrays import is_plain_data
from dpverify.util.formatting import format_cell_count

MAX_PANELS = 6  # steps, or coordinates, that are drawn in panels of their own
MAX_DOTS = 4000  # in all panels together
MESH_POINTS = 161  # per axis
REGION_TEXT = "region of likely outputs"
DATA_SET_KEYS = (Key("first", "dot", "first data set"), Key("second", "dot", "second data set"))
EVENT_KEY = Key("witness", "area", "witness")
SOLID_KEY = Key("ink", "solid", "solid: in the witness")


def legend(scene: Scene) -> tuple[Key, ...]:
    """Return the legend entries of the two data sets and, where it can be evaluated, of the tested event."""
    return (*DATA_SET_KEYS, SOLID_KEY) if scene.event_known else DATA_SET_KEYS


class Panel(NamedTuple):
    """The step and the two coordinates that a panel shows, and its title."""

    step: int
    pair: tuple[int, int]
    title: str


def draw_planes(scene: Scene) -> Drawing:
    """Draw dots, the outline of the region and the cells: a panel per step, or per pair of coordinates of one step."""
    steps, dimension = scene.shape
    panels = _select_panels(scene)
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    picture = canvas(4.0 if len(panels) == 1 else 0.4 + 2.1 * rows)
    grid = picture.subplots(rows, columns, squeeze=False).ravel()
    dots_per_side = max(60, MAX_DOTS // (2 * len(panels)))
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, scene, panel, dots_per_side)
        axes.set_title(panel.title, loc="left", fontsize=9)
        horizontal, vertical = panel.pair
        shows_unit = len(panels) == 1 or scene.labels.units is not None
        axes.set_xlabel(f"{scene.name(horizontal)} {scene.unit(horizontal) if shows_unit else ''}", loc="right")
        if scene.labels.names is None:
            axes.set_ylabel(scene.name(vertical), rotation=0, ha="right", va="top", y=1.0)
        else:
            axes.set_ylabel(f"{scene.name(vertical)} {scene.unit(vertical) if shows_unit else ''}")
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    if len(panels) < steps:
        selection = f", the {len(panels)} of {steps} steps that differ most"
    else:
        selection = ", every step" if steps > 1 else ""
    if dimension > 3 or (dimension == 3 and steps > 1):
        selection += f", in the {'two' if steps > 1 else 'three'} coordinates that differ most"
    event_key = (EVENT_KEY,) if _cells_can_be_drawn(scene) and scene.event_known else ()
    cells = f"The partition has {format_cell_count(scene.cells)} cells"
    if scene.partition.has_boxes or steps * dimension == 2:
        cells += "; lines are their edges."
    else:
        cells += "; they are ranges of a score of all coordinates, so no edges are drawn."
    return Drawing(
        picture,
        "Outputs, step by step" if steps > 1 else "Outputs, two coordinates at a time",
        f"Dots for {scene.runs}{selection}, with the outline of the region of likely outputs.",
        (*legend(scene), *event_key, Key("muted", "line", REGION_TEXT)),
        f"Dots: {scene.runs}{selection}. {'' if scene.labels.units else 'Each coordinate is in its own unit. '}{cells}",
    )


def _cells_can_be_drawn(scene: Scene) -> bool:
    """Whether the output has two coordinates only, so that a panel shows cells and event completely."""
    return math.prod(scene.shape) == 2 and is_plain_data(scene.partition)


def _select_panels(scene: Scene) -> list[Panel]:
    """Select the steps and the coordinates in which the two data sets differ most."""
    steps, _ = scene.shape
    differences = coordinate_differences(scene)
    if steps > 1:
        i, j = largest_indices(differences.max(0), 2)
        return [Panel(step, (i, j), scene.step_name(step)) for step in largest_indices(differences.max(1), MAX_PANELS)]
    coordinates = largest_indices(differences[0], 3)
    return [Panel(0, (i, j), "") for number, i in enumerate(coordinates) for j in coordinates[number + 1 :]]


def projected_ellipse(region: Region, step: int, pair: tuple[int, int]) -> np.ndarray:
    """Return the outline (n, 2) of a step's ellipsoid, projected on two coordinates."""
    # The ellipsoid is {centre + spread u : |u| <= 1}; two rows of `spread` give its projection.
    spread = np.linalg.pinv(region.A[step])[list(pair)]
    values, vectors = np.linalg.eigh(spread @ spread.T)
    angle = np.linspace(0, 2 * math.pi, 181)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    outline = (vectors * np.sqrt(np.maximum(values, 0))) @ circle
    return region.centre[step, list(pair)] + outline.T


def _draw_panel(axes: Axes, scene: Scene, panel: Panel, dots_per_side: int) -> None:
    """Draw one step in the plane of two coordinates."""
    step, (i, j), _ = panel
    both = np.concatenate([side[:, step][:, [i, j]] for side in scene.sides])
    low, high = both.min(0), both.max(0)
    if scene.region is not None:
        outline = projected_ellipse(scene.region, step, (i, j))
        low, high = np.minimum(low, outline.min(0)), np.maximum(high, outline.max(0))
        axes.plot(*outline.T, color=MUTED, lw=1)
    low, high = axis_limits(both, low, high)
    dimension = scene.shape[1]
    if _cells_can_be_drawn(scene):
        _draw_cells(axes, scene, low, high)
    else:
        axes.vlines(scene.partition.coordinate_edges(step * dimension + i), low[1], high[1], color=RULE, lw=0.7)
        axes.hlines(scene.partition.coordinate_edges(step * dimension + j), low[0], high[0], color=RULE, lw=0.7)
    for runs, inside, colour in zip(scene.sides, scene.inside, (FIRST, SECOND), strict=True):
        x, y, solid = runs[:dots_per_side, step, i], runs[:dots_per_side, step, j], inside[:dots_per_side]
        axes.plot(x[~solid], y[~solid], "o", ms=2.6, color=colour, alpha=0.25, mew=0)
        axes.plot(x[solid], y[solid], "o", ms=3.4, color=colour, alpha=0.9, mew=0)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.locator_params(nbins=4)


def _draw_cells(axes: Axes, scene: Scene, low: np.ndarray, high: np.ndarray) -> None:
    """Draw the cells and the tested event of an output with two coordinates, evaluated on a mesh."""
    x, y = (np.linspace(low[i], high[i], MESH_POINTS) for i in (0, 1))
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, *scene.shape)
    if scene.event_known:
        inside = scene.event.contains(points).reshape(MESH_POINTS, MESH_POINTS).astype(float)
        if inside.any():
            axes.contourf(x, y, inside, [0.5, 1.5], colors=[WITNESS], alpha=0.28)
    codes = np.unique(scene.partition.codes(points), return_inverse=True)[1].reshape(MESH_POINTS, MESH_POINTS)
    if scene.partition.has_boxes:
        for code in range(codes.max() + 1):
            axes.contour(x, y, (codes == code).astype(float), [0.5], colors=[MUTED], linewidths=0.5)
    elif codes.max():  # level sets are ordered, so the contours between successive codes are their borders
        axes.contour(x, y, codes, np.arange(codes.max()) + 0.5, colors=[MUTED], linewidths=0.5)
