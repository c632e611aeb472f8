"""Pictures of the outputs of a report: histograms of all test runs, and some runs as dots or as paths over the steps.

The witness is shaded, or its runs are solid. Outputs with few different values are drawn as bars, one number per run as
two fine histograms, several numbers as dots in the plane of two of them, and several steps as paths. Where the witness
is a range of a score of several numbers, the histograms are those of the score.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dpverify.events.event import Event
from dpverify.events.wording import NO_LABELS, OutputLabels, coordinate_names, labelled_outputs
from dpverify.render.figures import FIRST, MUTED, SECOND, TEXT_SIZE, WITNESS, Drawing, Key, canvas, label, styled
from dpverify.report.assemble import has_few_values, histogram_range
from dpverify.report.report import Report
from dpverify.util.arrays import is_plain_data
from dpverify.util.formatting import format_number, format_percent

MAX_PATHS = 60  # runs per dataset that are drawn as single lines
MAX_PANELS = 6  # coordinates that are drawn in panels of their own
MAX_TICK_CHARACTERS = 36  # beside each other below one panel
MAX_VALUE_LABELS = 9  # labels below the bars of one coordinate, or below the steps
SAMPLE_BINS = 24  # of a histogram of a few hundred runs: about 16 runs a bin
MESH_POINTS = 161  # per axis, where the witness is shaded
DATASET_KEYS = (Key("first", "line", "first dataset"), Key("second", "line", "second dataset"))
SHADED, SOLID = Key("witness", "area", "the witness"), Key("ink", "dot", "strong: runs in the witness")


@dataclass(frozen=True)
class Outputs:
    """What the pictures show.

    Attributes
    ----------
    sides : tuple of ndarray
        Some runs with the first and with the second dataset, each (runs, steps, dimension).
    event : Event
        The witness.
    text : str
        The witness in words, with the share of runs in it.
    labels : OutputLabels
        The names, units and times of the mechanism.
    histogram : mapping or None
        "edges" and "counts" (2, bins) of all test runs, of the output or of the score of the witness.
    """

    sides: tuple[np.ndarray, np.ndarray]
    event: Event
    text: str
    labels: OutputLabels
    histogram: Mapping[str, np.ndarray] | None

    @classmethod
    def of(cls, report: Report) -> Outputs:
        """Return what the pictures of a report show."""
        picture, witness = report.picture, report.witness
        first, second = (np.asarray(picture[side], float).reshape(-1, *witness.shape) for side in ("first", "second"))
        shares = [format_percent(share) for share, _, _ in witness.probabilities]
        text = f"{witness.text} ({shares[0]} of the runs with the first dataset, {shares[1]} with the second)"
        parts = {name: one for name, one in (picture.get("labels") or {}).items() if one is not None}
        labels = OutputLabels(**{name: dict(x) if isinstance(x, Mapping) else tuple(x) for name, x in parts.items()})
        labels = labels if parts else NO_LABELS
        return cls((first, second), witness.event, text, labels, picture.get("histogram"))

    @property
    def shape(self) -> tuple[int, int]:
        """The number of steps and the dimension of one output."""
        return self.sides[0].shape[1], self.sides[0].shape[2]

    @functools.cached_property
    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """The runs of both sides with one column per coordinate of each step."""
        first, second = (side.reshape(len(side), math.prod(self.shape)) for side in self.sides)
        return first, second

    @property
    def event_known(self) -> bool:
        """Whether the event can be evaluated: no report stores a score function of the user."""
        return is_plain_data(self.event.partition)

    @functools.cached_property
    def inside(self) -> tuple[np.ndarray, ...]:
        """Which of the runs are in the witness."""
        return tuple(self.event.contains(runs) if self.event_known else np.ones(len(runs), bool) for runs in self.sides)

    @functools.cached_property
    def differences(self) -> np.ndarray:
        """How much the datasets differ in each coordinate, (steps, dimension): in the means and in the deviations."""
        first, second = (side if len(side) else np.zeros((1, *self.shape)) for side in self.sides)
        spreads = first.std(0) + second.std(0)
        return np.hypot(first.mean(0) - second.mean(0), first.std(0) - second.std(0)) / np.where(spreads, spreads, 1e-9)

    @property
    def names(self) -> list[str]:
        """The names of all coordinates."""
        with labelled_outputs(self.labels):
            return coordinate_names(*self.shape)

    def axis_name(self, coordinate: int) -> str:
        """Return the name of a coordinate of a step, with its unit."""
        if self.labels.columns is not None:
            return self.labels.columns[coordinate]
        name = "output" if self.shape[1] == 1 else f"x[{coordinate}]"
        name = self.labels.names[coordinate] if self.labels.names else name
        return f"{name} ({self.labels.units[coordinate]})" if self.labels.units else name

    def value_name(self, coordinate: int, value: float) -> str:
        """Return a value of a coordinate as text: the phrase that its code stands for, or a number."""
        name, labels = self.names[coordinate], self.labels
        if value == labels.absent.get(name):
            return "absent"
        phrases = labels.phrases.get(name, ())
        return phrases[int(value)] if 0 <= value < len(phrases) else format_number(value)

    def drawing(self, figure: Figure, what: str, caption: str, mark: Key = SOLID, **more: Any) -> Drawing:
        """Return a figure of the outputs with its legend; its description names the witness."""
        keys = (*DATASET_KEYS, *([mark] if self.event_known else []))
        return Drawing(
            figure, "What the two datasets produce", f"{what} The witness is {self.text}.", keys, caption, **more
        )


def draw_outputs(report: Report) -> list[Drawing]:
    """Return the pictures that suit the outputs; none where no finite output is stored."""
    outputs = Outputs.of(report)
    if not any(map(len, outputs.sides)):
        return []
    event, levels = outputs.event, outputs.event.partition.levels
    with styled():
        if all(map(has_few_values, np.concatenate(outputs.flat).T)):
            return [_draw_bars(outputs)]
        if math.prod(outputs.shape) == 1:
            first, second = (flat[:, 0] for flat in outputs.flat)
            name = outputs.axis_name(0)
            return [_draw_histograms(outputs, (first, second), lambda x: event.contains(x[:, None, None]), name, "")]
        drawings = []
        if levels is not None and outputs.event_known:
            first, second = (levels.score.values(flat) for flat in outputs.flat)
            meaning = " The score is one number per run: the larger it is, the more likely is the first dataset."
            contains = functools.partial(_in_levels, levels.edges, event.codes)
            drawings.append(_draw_histograms(outputs, (first, second), contains, "score of a run", meaning))
        return [*drawings, _draw_paths(outputs) if outputs.shape[0] > 1 else _draw_plane(outputs)]


def _in_levels(edges: np.ndarray, codes: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.isin(np.searchsorted(edges, x), codes)


def _draw_histograms(
    outputs: Outputs,
    sides: tuple[np.ndarray, np.ndarray],
    contains: Callable[[np.ndarray], np.ndarray],
    name: str,
    meaning: str,
) -> Drawing:
    """Draw one number per run as two histograms, with the witness as background."""
    if outputs.histogram is None:
        edges, whose = np.linspace(*histogram_range(np.concatenate(sides)), SAMPLE_BINS + 1), "some runs"
        counts, totals = np.array([np.histogram(x, edges)[0] for x in sides]), np.array([[len(x)] for x in sides])
    else:
        edges, table, whose = outputs.histogram["edges"], outputs.histogram["counts"], "all test runs"
        counts, totals = table[:, 1:-1], table.sum(axis=1, keepdims=True)
    percent = 100 * counts / np.maximum(totals, 1)
    picture = canvas(3.0)
    axes = picture.add_subplot()
    if outputs.event_known:
        mesh = np.linspace(edges[0], edges[-1], 4001)
        axes.fill_between(
            mesh, 0, 1, where=contains(mesh), transform=axes.get_xaxis_transform(), color=WITNESS, alpha=0.3, lw=0
        )
    for heights, colour in zip(percent, (FIRST, SECOND), strict=True):
        axes.stairs(heights, edges, color=colour, alpha=0.12, fill=True, lw=0)
        axes.stairs(heights, edges, color=colour, lw=1.5)
    axes.set(xlim=edges[[0, -1]], ylim=(0, None))
    label(axes, name, "runs in each bin (%)")
    columns = zip(edges.tolist(), edges[1:].tolist(), *percent.tolist(), strict=False)
    readout = tuple(
        (
            (low + high) / 2,
            None,
            f"{name} {format_number(low)} to {format_number(high)}: {one:.3g}% of the first, {two:.3g}% of the second",
        )
        for low, high, one, two in columns
    )
    what = f"Histograms of {whose} with both datasets."
    caption = f"Where the curves differ, the output tells the datasets apart. Histograms of {whose}.{meaning}"
    return outputs.drawing(picture, what, caption, SHADED, readout=readout)


def _largest(values: np.ndarray, number: int) -> list[int]:
    """Return the indices of the `number` largest values, in increasing order."""
    return sorted(np.argsort(-values, kind="stable")[:number].tolist())


def _draw_bars(outputs: Outputs) -> Drawing:
    """Draw how often each value was observed; the strong part of a bar is in the witness."""
    coordinates = _largest(outputs.differences.ravel(), MAX_PANELS)
    rows, columns = -(-len(coordinates) // 2), min(len(coordinates), 2)
    picture = canvas(3.0 if rows == 1 else 0.5 + 1.6 * rows)
    panels = picture.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, coordinate in zip(panels, coordinates, strict=False):
        _draw_bar_panel(axes, outputs, coordinate)
        axes.set_title(outputs.names[coordinate], loc="left", fontsize=TEXT_SIZE)
    for axes in panels[len(coordinates) :]:
        axes.set_visible(False)
    picture.supylabel("runs (%)", color=MUTED, fontsize=TEXT_SIZE)
    selection = "" if len(coordinates) == outputs.differences.size else ", in the coordinates that differ most"
    whose = "some runs" if outputs.histogram is None or outputs.shape != (1, 1) else "all test runs"
    return outputs.drawing(
        picture, f"How often {whose} had each value{selection}.", f"Shares of {whose} with each value{selection}."
    )


def _draw_bar_panel(axes: Axes, outputs: Outputs, coordinate: int) -> None:
    values = np.unique(np.concatenate([flat[:, coordinate] for flat in outputs.flat]))
    histogram = outputs.histogram if outputs.shape == (1, 1) else None
    for side, colour in enumerate((FIRST, SECOND)):
        is_value = outputs.flat[side][:, [coordinate]] == values
        every, in_event = is_value.mean(0), (is_value & outputs.inside[side][:, None]).mean(0)
        if histogram is not None:
            counts = histogram["counts"][side]
            every = counts[np.searchsorted(histogram["edges"], values)] / max(counts.sum(), 1)
            in_event = every * (outputs.event.contains(values[:, None, None]) if outputs.event_known else 1)
        positions = np.arange(values.size) + 0.2 * (2 * side - 1)
        axes.bar(positions, 100 * every, 0.36, color=colour, alpha=0.28, lw=0)
        axes.bar(positions, 100 * in_event, 0.36, color=colour, lw=0)
    labelled = np.arange(values.size)[:: -(-values.size // MAX_VALUE_LABELS)]
    texts = [outputs.value_name(coordinate, float(values[i])) for i in labelled]
    crowded = sum(map(len, texts)) > MAX_TICK_CHARACTERS
    axes.set_xticks(labelled, texts, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    axes.tick_params(axis="x", length=0)


def _draw_paths(outputs: Outputs) -> Drawing:
    """Draw the outputs over the steps, for the one or two coordinates that differ most."""
    steps, times = np.arange(outputs.shape[0]), outputs.labels.times
    coordinates = _largest(outputs.differences.max(0), 2)
    picture = canvas(3.2 if len(coordinates) == 1 else 4.4)
    panels = picture.subplots(len(coordinates), 1, squeeze=False, sharex=True).ravel()
    for axes, j in zip(panels, coordinates, strict=True):
        for runs, inside, colour in zip(outputs.sides, outputs.inside, (FIRST, SECOND), strict=True):
            paths, strong = runs[:MAX_PATHS, :, j], inside[:MAX_PATHS]
            if outputs.event_known:
                axes.plot(steps, paths[~strong].T, color=colour, lw=0.5, alpha=0.14)
            axes.plot(steps, paths[strong].T, color=colour, lw=0.7, alpha=0.6)
            if len(runs):
                axes.plot(steps, runs[:, :, j].mean(0), color=colour, lw=2.4, marker="o", ms=3.5, zorder=4)
        label(axes, "", outputs.axis_name(j))
    panels[-1].set_xlabel("step" if times is None else "time", loc="right")
    panels[-1].xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    if times is not None:
        shown = steps[:: -(-steps.size // MAX_VALUE_LABELS)]
        panels[-1].set_xticks(shown, [format_number(times[k]) for k in shown])
    most = outputs.names[int(outputs.differences.argmax())]
    return outputs.drawing(
        picture,
        f"Outputs over {steps.size} steps; the datasets differ most at {most}.",
        f"Thick lines: means. Thin lines: at most {MAX_PATHS} runs per dataset; strong ones are in the witness.",
    )._replace(title="Outputs over the steps")


def _draw_plane(outputs: Outputs) -> Drawing:
    """Draw runs as dots in the plane of the two coordinates that differ most."""
    pair = _largest(outputs.differences[0], 2)
    planes = [flat[:, pair] for flat in outputs.flat]
    low, high = np.transpose([histogram_range(column) for column in np.concatenate(planes).T])
    picture, is_whole = canvas(4.0), outputs.shape[1] == 2
    axes = picture.add_subplot()
    if is_whole and outputs.event_known:
        x, y = (np.linspace(low[i], high[i], MESH_POINTS) for i in (0, 1))
        mesh = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 1, 2)
        inside = outputs.event.contains(mesh).reshape(MESH_POINTS, MESH_POINTS).astype(float)
        if inside.any():
            axes.contourf(x, y, inside, [0.5, 1.5], colors=[WITNESS], alpha=0.3)
    for plane, inside, colour in zip(planes, outputs.inside, (FIRST, SECOND), strict=True):
        for chosen, style in ((~inside, {"ms": 2.6, "alpha": 0.25}), (inside, {"ms": 3.4, "alpha": 0.9})):
            axes.plot(*plane[chosen].T, "o", color=colour, mew=0, **style)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    label(axes, *map(outputs.axis_name, pair))
    selection = "" if is_whole else ", for the two coordinates that differ most"
    what = f"Runs as dots{selection}."
    return outputs.drawing(picture, what, f"Each dot is a run{selection}.", SHADED if is_whole else SOLID)
