"""Where the estimates fall: runs of both data sets, the region, the cells, the witness.

One coordinate is drawn on a line. Several are seen through the witness's score, which is where its cells are
intervals, and then step by step, in the two coordinates that differ most. A run inside the witness is drawn solid,
one outside it pale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from dpverify.events.scores import Levels
from dpverify.events.wording import coordinate_names
from dpverify.render.planes import planes
from dpverify.render.scene import KEYS, OWN, PANELS, Scene, cuts_of, differing, heaviest, in_sight, make_scene
from dpverify.render.style import FIRST, MUTED, SECOND, WITNESS, Drawing, Key, canvas, label, styled
from dpverify.report.report import Report
from dpverify.util.arrays import is_pytree
from dpverify.util.formatting import format_cell_count, format_number

PATHS = 60  # runs a side that are drawn as lines
VALUES = 24  # of a coordinate that is drawn in bars


def drawings(report: Report) -> list[Drawing]:
    """The figures for this output's kind: bars for few values, a line, planes, or paths over many steps."""
    s = make_scene(report)
    if not any(map(len, s.sides)):
        return []
    steps, dimension = s.shape
    columns = np.concatenate(s.flat).T
    with styled():
        if all(len(np.unique(column)) <= min(VALUES, len(column) / 4) for column in columns):
            return [bars(s)]
        if columns.shape[0] == 1:
            return [output_line(s)]
        found = [score_line(s)] if isinstance(s.witness.event.partition, Levels) and s.known else []
        if dimension == 1 or steps > PANELS:
            found.append(paths(s))
        if dimension > 1:
            found.append(planes(s))
        return found


def _line(
    sides: tuple[np.ndarray, np.ndarray], edges: np.ndarray, inside: Callable | None, region: tuple[float, float] | None
) -> tuple[Any, Axes]:
    """Two laws on one line: shares above, runs and cells below, the witness behind."""
    both = np.concatenate(sides)
    ends = np.array([both.min(), both.max(), *(region or ())])
    low, high = (float(end) for end in in_sight(both, ends.min(), ends.max()))
    picture = canvas(3.6)
    above, below = picture.subplots(2, 1, sharex=True, height_ratios=[2.6, 1])
    above.set_xlim(low, high)
    if inside is not None:
        mesh = np.linspace(low, high, 4001)
        hit = np.concatenate([[False], inside(mesh), [False]])
        starts, stops = np.flatnonzero(hit[1:-1] & ~hit[:-2]), np.flatnonzero(hit[1:-1] & ~hit[2:])
        for start, stop in zip(mesh[starts], mesh[stops], strict=True):
            for axes in (above, below):
                axes.axvspan(start, max(stop, start + (high - low) / 400), color=WITNESS, alpha=0.28, lw=0)
    bins = np.linspace(low, high, 37)
    for values, colour in zip(sides, (FIRST, SECOND), strict=True):
        if len(values):
            weights = np.full(len(values), 100 / len(values))
            above.hist(values, bins, weights=weights, color=colour, alpha=0.16, histtype="stepfilled", lw=0)
            above.hist(values, bins, weights=weights, color=colour, histtype="step", lw=1.5)
    for row, (values, colour) in enumerate(zip(sides, (FIRST, SECOND), strict=True)):
        wobble = (np.arange(len(values)) * 0.618034) % 1 - 0.5  # spread evenly, without chance
        below.plot(values, 2 - row + 0.56 * wobble, ".", color=colour, ms=2.2, alpha=0.6, mew=0)
    if region is not None:
        below.plot(region, (0, 0), color=MUTED, lw=5, alpha=0.35, solid_capstyle="butt")
    shown = edges[(edges > low) & (edges < high)]
    below.vlines(shown, -0.4, 0.4, color=MUTED, lw=0.8)
    below.axhline(0, color=MUTED, lw=0.6, zorder=0)
    below.set_ylim(-0.7, 2.6)
    below.set_yticks([2, 1, 0], ["first", "second", "cells"])
    below.tick_params(axis="y", length=0)
    below.spines["left"].set_visible(False)
    above.tick_params(axis="x", labelbottom=False)
    above.set_ylim(0, None)
    return picture, below


def middle(values: np.ndarray) -> str:
    return format_number(float(np.median(values))) if len(values) else "nothing finite"


def output_line(s: Scene) -> Drawing:
    first, second = (flat[:, 0] for flat in s.flat)
    region = None
    if s.region is not None:
        centre, half = float(s.region.centre.ravel()[0]), float(s.region.half.ravel()[0])
        region = (centre - half, centre + half)
    both = np.concatenate([first, second])
    spread = np.ptp(both)
    mesh = np.linspace(both.min() - 0.1 * spread, both.max() + 0.1 * spread, 20_001)
    codes = s.partition.codes(mesh.reshape(-1, 1, 1)) if is_pytree(s.partition) else np.zeros(mesh.size)
    edges = (mesh[1:] + mesh[:-1])[codes[1:] != codes[:-1]] / 2
    inside = (lambda x: s.witness.contains(x)) if s.known else None
    picture, below = _line((first, second), edges, inside, region)
    label(picture.axes[0], "", "runs in each bin (%)")
    below.set_xlabel(f"output {OWN}", loc="right")
    keys = (*KEYS, Key("witness", "area", "the witness")) if s.known else KEYS
    return Drawing(
        picture,
        "The output, run by run",
        f"Histograms of {s.runs}: the first around {middle(first)}, the second around "
        f"{middle(second)}. The witness is {s.witness.text}.",
        (*keys, Key("muted", "bar", "high-likely region")),
        f"{s.runs}; ticks part the partition's {format_cell_count(s.cells)} cells.",
    )


def score_line(s: Scene) -> Drawing:
    """Several coordinates as the witness sees them: its score, whose level sets are the cells."""
    levels = s.witness.event.partition
    assert isinstance(levels, Levels)
    first, second = (
        np.asarray(levels.score.values(flat), float) if len(flat) else np.zeros(0)  # type: ignore[union-attr]
        for flat in s.flat
    )
    codes = s.witness.event.codes
    picture, below = _line(
        (first, second), levels.edges, lambda x: np.isin(np.searchsorted(levels.edges, x), codes), None
    )
    label(picture.axes[0], "", "runs in each bin (%)")
    below.set_xlabel("score of a run (no unit)", loc="right")
    same = s.partition is levels
    whose = "the partition's" if same else "the witness's own"
    return Drawing(
        picture,
        "Every run as the witness scores it",
        f"Histograms of the score of {s.runs}: the first around {middle(first)}, the second "
        f"around {middle(second)}. The witness is {s.witness.text}.",
        (*KEYS, Key("witness", "area", "the witness")),
        f"One number a run, from all coordinates at once; its level sets are {whose} {levels.n_cells} cells.",
    )


def bars(s: Scene) -> Drawing:
    """Outputs of few values: how often each was seen, the solid part inside the witness."""
    names, weights = coordinate_names(*s.shape), differing(s).ravel()
    chosen = heaviest(weights, PANELS)
    wide = 1 if len(chosen) == 1 else 2
    rows = -(-len(chosen) // wide)
    picture = canvas(3.1 if rows == 1 else 0.5 + 1.55 * rows)
    panels = picture.subplots(rows, wide, squeeze=False, sharey=True).ravel()
    for axes, j in zip(panels, chosen, strict=False):
        values = np.unique(np.concatenate([flat[:, j] for flat in s.flat]))
        for side, colour in enumerate((FIRST, SECOND)):
            column, inside = s.flat[side][:, j], s.inside[side]
            at = np.arange(values.size) + 0.2 * (2 * side - 1)
            share = 100 / max(len(column), 1)
            whole = np.array([(column == v).sum() for v in values]) * share
            part = np.array([((column == v) & inside).sum() for v in values]) * share
            axes.bar(at, whole, 0.36, color=colour, alpha=0.28, lw=0)
            axes.bar(at, part, 0.36, color=colour, lw=0)
        shown = np.arange(values.size)[:: -(-values.size // 9)]
        axes.set_xticks(shown, [format_number(float(values[i])) for i in shown])
        axes.tick_params(axis="x", length=0)
        if len(chosen) == 1:
            label(axes, f"{names[j]} {OWN}", "runs (%)")
        else:
            axes.set_title(names[j], loc="left", fontsize=9)
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)
    if len(chosen) > 1:
        picture.supylabel("runs (%)", color=MUTED, fontsize=9)
        picture.supxlabel(f"value {OWN}", color=MUTED, fontsize=9)
    left_out = (
        f"; the {len(chosen)} of {weights.size} coordinates that differ most" if len(chosen) < weights.size else ""
    )
    return Drawing(
        picture,
        "How often each value is released",
        f"Bars for {s.runs}, by value, in {len(chosen)} of {weights.size} coordinates. The witness is "
        f"{s.witness.text}.",
        s.keys,
        f"{s.runs}{left_out}. The partition has {format_cell_count(s.cells)} cells.",
    )


def paths(s: Scene) -> Drawing:
    """Estimates over the steps, for the coordinate(s) that differ most."""
    steps, dimension = s.shape
    chosen = heaviest(differing(s).max(0), 2)
    picture = canvas(3.3 if len(chosen) == 1 else 4.4)
    panels = picture.subplots(len(chosen), 1, squeeze=False, sharex=True).ravel()
    at = np.arange(steps)
    for axes, j in zip(panels, chosen, strict=True):
        if s.region is not None:
            centre, half = s.region.centre[:, j], s.region.half[:, j]
            axes.fill_between(at, centre - half, centre + half, color=MUTED, alpha=0.13, lw=0)
        for k in range(steps):
            cuts = cuts_of(s.partition, k * dimension + j)
            axes.hlines(cuts, k - 0.18, k + 0.18, color=MUTED, lw=0.7)
        for runs, inside, colour in zip(s.sides, s.inside, (FIRST, SECOND), strict=True):
            few, solid = runs[:PATHS, :, j], inside[:PATHS]
            if s.known:
                axes.plot(at, few[~solid].T, color=colour, lw=0.5, alpha=0.14)
            axes.plot(at, few[solid].T, color=colour, lw=0.7, alpha=0.6)
        for runs, colour in zip(s.sides, (FIRST, SECOND), strict=True):
            if len(runs):
                axes.plot(at, runs[:, :, j].mean(0), color=colour, lw=2.4, marker="o", ms=3.5, zorder=4)
        label(axes, "", f"{'estimate' if dimension == 1 else f'x[{j}]'} {OWN}")
    panels[-1].set_xlabel("step (number)", loc="right")
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    k = int(differing(s).max(1).argmax())
    return Drawing(
        picture,
        "The estimates over the steps",
        f"Estimates against the step, for {s.runs} over {steps} steps. The means differ most at step {k}.",
        (*s.keys, Key("muted", "area", "high-likely region")),
        f"Thick: the mean of {s.runs}; thin: {PATHS} single runs of each.",
    )
