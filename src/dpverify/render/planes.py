"""Estimates of several coordinates in the plane: a panel a step, with the region's outline and the cells."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes

from dpverify.events.partition import Partition
from dpverify.events.region import Region
from dpverify.events.scores import Levels
from dpverify.render.scene import OWN, PANELS, Scene, cuts_of, differing, heaviest, in_sight
from dpverify.render.style import FIRST, MUTED, RULE, SECOND, WITNESS, Drawing, Key, canvas
from dpverify.util.arrays import is_pytree
from dpverify.util.formatting import format_cell_count

DOTS = 4000  # of all panels together
MESH = 161
REGION = Key("muted", "line", "high-likely region")


def ellipse(region: Region, step: int, pair: tuple[int, int]) -> np.ndarray:
    """The outline of a step's ellipsoid, seen along all other coordinates, (n, 2)."""
    spread = np.linalg.pinv(region.A[step])[list(pair)]  # x = centre + spread u, |u| <= 1
    values, vectors = np.linalg.eigh(spread @ spread.T)
    angle = np.linspace(0, 2 * math.pi, 181)
    round_ = (vectors * np.sqrt(np.maximum(values, 0))) @ np.stack([np.cos(angle), np.sin(angle)])
    return region.centre[step, list(pair)] + round_.T


def planes(s: Scene) -> Drawing:
    """A panel a step, or a pair of coordinates where there is one step: dots, the region's outline, the cells."""
    steps, dimension = s.shape
    weights = differing(s)
    if steps > 1:
        i, j = heaviest(weights.max(0), 2)
        panels = [(k, (i, j), f"step {k}") for k in heaviest(weights.max(1), PANELS)]
    else:
        most = heaviest(weights[0], 3)
        panels = [(0, (a, b), "") for n, a in enumerate(most) for b in most[n + 1 :]]
    wide = min(len(panels), 2)
    rows = -(-len(panels) // wide)
    picture = canvas(4.0 if len(panels) == 1 else 0.4 + 2.1 * rows)
    grid = picture.subplots(rows, wide, squeeze=False).ravel()
    number = max(60, DOTS // (2 * len(panels)))
    for axes, (step, pair, title) in zip(grid, panels, strict=False):
        _plane(axes, s, step, pair, number)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlabel(f"x[{pair[0]}] {OWN if len(panels) == 1 else ''}", loc="right")
        axes.set_ylabel(f"x[{pair[1]}]", rotation=0, ha="right", va="top", y=1.0)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    some = f"{len(panels)} of {steps} steps, those that differ most" if len(panels) < steps else ""
    some = some or ("each step" if steps > 1 else "one step")
    axes_too = (
        f", in the {'two' if steps > 1 else 'three'} coordinates that differ most"
        if dimension > 3 or (dimension == 3 and steps > 1)
        else ""
    )
    cells = f" The partition has {format_cell_count(s.cells)} cells" + (
        ", drawn as lines."
        if steps * dimension == 2 or isinstance(s.partition, Partition)
        else ": level sets of all coordinates at once."
    )
    return Drawing(
        picture,
        "The estimates, step by step" if steps > 1 else "The estimates in the plane",
        f"Dots for {s.runs}, {some}{axes_too}, with the outline of the high-likely region.",
        (*s.keys, REGION),
        f"{s.runs}; {some}{axes_too}, each coordinate in its own unit.{cells}",
    )


def _plane(axes: Axes, s: Scene, step: int, pair: tuple[int, int], number: int) -> None:
    i, j = pair
    both = np.concatenate([side[:, step][:, [i, j]] for side in s.sides])
    low, high = both.min(0), both.max(0)
    if s.region is not None:
        outline = ellipse(s.region, step, pair)
        low, high = np.minimum(low, outline.min(0)), np.maximum(high, outline.max(0))
        axes.plot(*outline.T, color=MUTED, lw=1)
    low, high = in_sight(both, low, high)
    if math.prod(s.shape) == 2 and is_pytree(s.partition):
        _mesh(axes, s, low, high)
    else:
        dimension = s.shape[1]
        axes.vlines(cuts_of(s.partition, step * dimension + i), low[1], high[1], color=RULE, lw=0.7)
        axes.hlines(cuts_of(s.partition, step * dimension + j), low[0], high[0], color=RULE, lw=0.7)
    for runs, inside, colour in zip(s.sides, s.inside, (FIRST, SECOND), strict=True):
        x, y, solid = runs[:number, step, i], runs[:number, step, j], inside[:number]
        axes.plot(x[~solid], y[~solid], "o", ms=2.6, color=colour, alpha=0.25, mew=0)
        axes.plot(x[solid], y[solid], "o", ms=3.4, color=colour, alpha=0.9, mew=0)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.locator_params(nbins=4)


def _mesh(axes: Axes, s: Scene, low: np.ndarray, high: np.ndarray) -> None:
    """Two coordinates in all: cells and witness as they are, read off a fine mesh."""
    x, y = (np.linspace(low[i], high[i], MESH) for i in (0, 1))
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, *s.shape)
    if s.known:
        inside = s.witness.contains(points).reshape(MESH, MESH).astype(float)
        if inside.any():
            axes.contourf(x, y, inside, [0.5, 1.5], colors=[WITNESS], alpha=0.28)
    codes = np.unique(s.partition.codes(points), return_inverse=True)[1].reshape(MESH, MESH)
    if isinstance(s.partition, Levels):  # one after the other: contours between them are the borders
        if codes.max():
            axes.contour(x, y, codes, np.arange(codes.max()) + 0.5, colors=[MUTED], linewidths=0.5)
        return
    for code in range(codes.max() + 1):
        axes.contour(x, y, (codes == code).astype(float), [0.5], colors=[MUTED], linewidths=0.5)
