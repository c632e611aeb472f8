"""Figures of the reproduction: those of the paper, printed against measured numbers, accuracy against privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator
from scipy.stats import hypergeom

from dpverify.render import (
    CELLS,
    FIRST,
    INK,
    MUTED,
    PROVED,
    RULE,
    SECOND,
    WITNESS,
    Drawing,
    Key,
    canvas,
    format_lower,
    label,
    styled,
)
from reproduction import paper
from reproduction.experiment import DISTANCE, STEPS, WINDOW, build, fixed_setup, fixed_system, noiseless_states
from reproduction.fit import ReadingResults, RowFit
from reproduction.measure import SensorDraw
from reproduction.paper import BASE, CELL, PLAN, PRINTED, SWEEP, TEXTS

ALPHA = PRINTED["constants"]["alpha"]
SMALLEST_SHOWN_P_VALUE = 1e-6
MAX_SEEDS_SHOWN = 60
THINNINGS = 400
SCENE_TAU = 1.4e-5  # at s = 1 the estimate does not depend on the calibrated digits
LINE_STYLES = ((FIRST, "-"), (SECOND, "--"), (CELLS, ":"))
DASHES = (0, (4, 2))
MARKS = (("o", FIRST), ("s", CELLS), ("D", SECOND), ("^", INK))
SHORT_NAMES = {paper.W2MHE: "W2-MHE", paper.INPUT: "input", paper.EKF: "EKF"}
FAMILY_STYLES = {  # name, colour, and the CSS variable of the colour
    "gibbs": ("W2-MHE, Gibbs distribution", FIRST, "first"),
    "blend": ("W2-MHE, blend distribution", CELLS, "cells"),
    "perturbed": ("input perturbation", SECOND, "second"),
    "ekf": ("private EKF", PROVED, "proved"),
}


def new_axes(height: float, width: float = 4.3) -> tuple[Any, Axes]:
    """Return a figure of this size in inches, and its only axes."""
    picture = canvas(height, width)
    return picture, picture.add_subplot()


# The paper's Figures 1 to 6


def sensor_scene() -> Drawing:
    """Draw Figure 1 for our Q1: target, sensors, the secret sensor, and where it could be."""
    data, states = fixed_setup("Q1"), noiseless_states()
    sensors, path = data.system.h, states[:, :2]

    def readings(position: np.ndarray) -> np.ndarray:
        return 100 * np.tanh(0.1 * (path - position))

    positions, change = sensors.places, (data.second - data.first)[:, :2]
    recorded = readings(positions[0])
    candidates = [sensors.moved(0, float(angle)).places[0] for angle in np.linspace(-0.4, 0.4, 4001)]
    reach = np.array([p for p in candidates if np.linalg.norm(readings(p) - recorded) <= DISTANCE])
    moved = min(candidates, key=lambda position: float(np.linalg.norm(readings(position) - recorded - change)))
    with styled():
        picture, axes = new_axes(4.3)
        for target, colour in ((path[0], SECOND), (path[-1], FIRST)):
            for position in positions:
                axes.plot(*zip(position, target, strict=True), color=colour, lw=0.6, alpha=0.6, zorder=1)
        axes.plot(positions[1:, 0], positions[1:, 1], "s", color=INK, ms=6, zorder=3)
        axes.plot(reach[:, 0], reach[:, 1], color=WITNESS, lw=11, alpha=0.45, solid_capstyle="round", zorder=2)
        axes.plot(*positions[0], "*", color=PROVED, ms=11, zorder=4)
        axes.plot(*moved, "*", color=PROVED, ms=11, mfc="none", zorder=4)
        axes.plot(path[:, 0], path[:, 1], color=INK, lw=1.2, ls=(0, (3, 2)), zorder=4)
        axes.plot(*path[0], "o", color=INK, ms=7, zorder=4)
        axes.annotate("", path[-1], path[-2], arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1}, zorder=4)
        axes.set(xlim=(-17.5, 17.5), ylim=(-17.5, 17.5), aspect="equal")
        label(axes, "horizontal position", "vertical position")
    return Drawing(
        picture,
        "Fig. 1: the secret sensor, for our Q1",
        "Ten sensors on a circle around a target. The star is the sensor whose position an adversary wants to find. "
        "The shaded arc shows where it could be with data at most 10 from those recorded.",
        (
            Key("ink", "dot", "the target, with its path over 9 steps; squares: sensors at known positions"),
            Key("proved", "solid", "the secret sensor (filled), and its position in the second data set"),
            Key("witness", "bar", "where it could be: data at most 10 apart"),
            Key("second", "line", "what is measured at the first step"),
            Key("first", "line", "what is measured at the last step"),
        ),
        "At a data distance of 10 the sensor moves by a short distance, not across the map.",
    )


def thinned_p_values(counts: np.ndarray, runs: int, epsilons: np.ndarray, repetitions: int) -> np.ndarray:
    """Return the smaller p-value of the paper's test for each row of counts, thinned anew `repetitions` times.

    The result has shape (rows * repetitions, len(epsilons)). It is that of `dpverify.p_values`, computed for many
    epsilons at once: each distinct pair of counts needs one tail probability.
    """
    rng = np.random.default_rng(0)
    repeated = np.repeat(counts, repetitions, axis=0)
    p_values = []
    for exceeding, other in (repeated.T, repeated.T[::-1]):
        thin = rng.binomial(exceeding[:, None], np.exp(-epsilons))
        pairs = np.stack(np.broadcast_arrays(thin, other[:, None]), axis=-1).reshape(-1, 2)
        distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
        c1, c2 = distinct.T
        tails = np.where(c1 == 0, 1.0, hypergeom.sf(c1 - 1, 2 * runs, runs, c1 + c2))
        p_values.append(tails[inverse.ravel()].reshape(thin.shape))
    return np.minimum(*p_values)


def draw_band(axes: Axes, x: np.ndarray, values: np.ndarray, colour: str, text: str, dash: str) -> None:
    """Draw the median over the first axis, and its 5 to 95% range."""
    quantiles = np.quantile(values, (0.05, 0.5, 0.95), axis=0, method="inverted_cdf")
    low, median, high = np.maximum(quantiles, SMALLEST_SHOWN_P_VALUE)
    axes.fill_between(x, low, high, color=colour, alpha=0.14, lw=0)
    axes.plot(x, median, color=colour, lw=1.8, ls=dash, label=text)


def p_value_axes(axes: Axes, end: float, lowest: float, ticks: Sequence[str]) -> None:
    """Set up axes of p-values along epsilon from 0 to `end`, with a line at the level."""
    axes.set_yscale("log")
    axes.set(ylim=(lowest, 2), xlim=(0, end))
    axes.set_yticks([float(tick.removeprefix("≤ ")) for tick in ticks], ticks)
    axes.minorticks_off()
    axes.axhline(ALPHA, color=MUTED, lw=0.8, ls=DASHES)
    label_at_right(axes, ALPHA, "α", MUTED)
    label(axes, "ε", "smaller p-value")


def label_at_right(axes: Axes, y: float, text: str, colour: str) -> None:
    """Write a label outside the axes, at the right end of a horizontal line."""
    ends, shift = ("axes fraction", "data"), {"xytext": (3, 0), "textcoords": "offset points"}
    axes.annotate(text, (1, y), xycoords=ends, va="center", color=colour, fontsize=8.5, annotation_clip=False, **shift)


def event_figures() -> list[Drawing]:
    """Draw Figures 2 and 3, about the choice of the event: p-values of given counts along epsilon."""
    drawings, runs = [], PRINTED["counts"]["runs"]
    for kind, title, says in (
        ("different", "Fig. 2: different ratios", "The order holds for these two; it does not hold in general."),
        ("proportional", "Fig. 3: the same ratio", "The larger the counts, the smaller the p-value."),
    ):
        counts = PRINTED["counts"][kind]
        with styled():
            picture, axes = new_axes(3.0)
            for pair, (colour, dash) in zip(counts, LINE_STYLES, strict=False):
                values = thinned_p_values(np.array([pair]), runs, SWEEP, THINNINGS)
                draw_band(axes, SWEEP, values, colour, f"({pair[0]}, {pair[1]})", dash)
            p_value_axes(axes, 1.5, 1e-3, ("1", "0.1", "0.01", "0.001"))
            axes.legend(loc="lower right", title=f"counts of {runs} runs")
        text = ", ".join(f"({c1}, {c2})" for c1, c2 in counts)
        description = f"p-values of the counts {text} along epsilon, with their spread."
        caption = f"Medians and 5 to 95% of {THINNINGS} thinnings. {says}"
        drawings.append(Drawing(picture, f"{title}, {text}", description, (), caption))
    return drawings


def p_value_figures(readings: ReadingResults) -> list[Drawing]:
    """Draw Figures 4 to 6: p-values of the worst event along epsilon, and estimates without noise."""
    drawings = []
    for row in readings.best.rows:
        cell = CELL[row.row]
        if cell.place.startswith("Fig."):
            drawings.append(p_values_of_row(row, f"{cell.place}: {cell.mechanism}, {cell.parameter_text}"))
    return sorted([*drawings, accuracy_figure()], key=lambda drawing: drawing.title)


def p_values_of_row(row: RowFit, title: str) -> Drawing:
    """Draw p-values of the worst event along epsilon: median and 5 to 95% of seeds, and the printed epsilon_c."""
    printed = CELL[row.row].epsilon_c
    finite = math.isfinite(printed)
    epsilons = np.linspace(0, max(1.5, 1.3 * printed) if finite else 1.5, 80)
    shown = np.array(row.counts[:MAX_SEEDS_SHOWN])
    with styled():
        picture, axes = new_axes(2.8)
        draw_band(axes, epsilons, thinned_p_values(shown, row.reading.test_runs, epsilons, 1), FIRST, "", "-")
        if finite:
            axes.plot(printed, ALPHA, "x", color=SECOND, ms=8, mew=2, zorder=4)
        p_value_axes(axes, epsilons[-1], SMALLEST_SHOWN_P_VALUE / 1.5, ("1", "1e-2", "1e-4", "≤ 1e-6"))
    says = f"the printed critical epsilon is {printed:g}" if finite else "the paper rejects every epsilon"
    mark = (Key("second", "cross", f"printed ε_c = {printed:g}"),) if finite else ()
    return Drawing(
        picture,
        title,
        f"p-values along epsilon; {says}.",
        (Key("first", "line", f"median and 5 to 95% of {len(shown)} seeds"), *mark),
        TEXTS["crossing"] if finite else "The paper rejects every ε.",
    )


def accuracy_figure() -> Drawing:
    """Draw the right half of Figure 4: estimates at s = 1 from the right and from the adjacent data."""
    data = fixed_setup("Q1", angle="paper")
    reading = BASE._replace(law="gibbs", support="growing", tau=SCENE_TAU)
    estimator = build(paper.W2MHE, reading, data.system, 1.0)
    estimates = [np.asarray(estimator.deterministic(y))[:, :2] for y in (data.first, data.second)]  # type: ignore[union-attr]
    with styled():
        picture, axes = new_axes(3.0)
        for positions, colour, mark, text in (
            (data.truth, INK, "o-", "truth"),
            (estimates[0], FIRST, "s--", "right data"),
            (estimates[1], SECOND, "D:", "adjacent data"),
        ):
            axes.plot(positions[:, 0], positions[:, 1], mark, color=colour, ms=5, lw=1, label=text)
        axes.ticklabel_format(useOffset=False)
        axes.legend(loc="best")
        label(axes, "horizontal position", "vertical position")
    text = "Released estimates without noise. Those from the right data are close to the truth, the others are not."
    caption = "The estimates are deterministic, so one estimate reveals which data set was used."
    return Drawing(picture, "Fig. 4 right: estimates at s = 1", text, (), caption)


# Printed and measured numbers


def compare_rows(readings: ReadingResults, name: str) -> Drawing:
    """Draw a line for each row: the printed number ("epsilon_c" or "error"), ours, and the ceiling of epsilon_c."""
    with_ceiling = name == "epsilon_c"
    rows = [(row, CELL[row.row]) for row in readings.best.rows]
    rows = [(row, cell) for row, cell in rows if math.isfinite(getattr(cell, name) or math.inf)]
    with styled():
        picture, axes = new_axes(1.0 + 0.36 * len(rows), 4.6)
        for number, (row, cell) in enumerate(rows):
            y, ours, ceiling = 0.08 * with_ceiling - number, row.numbers[name], row.numbers["ceiling"]
            if with_ceiling:
                axes.plot([ceiling.low, ceiling.high], [-number - 0.2] * 2, color=MUTED, lw=1, ls=(0, (3, 2)))
                axes.plot(ceiling.median, -number - 0.2, "|", color=MUTED, ms=8, mew=1.4)
            axes.plot([ours.low, ours.high], [y] * 2, color=FIRST, lw=2.4, alpha=0.5)
            axes.plot(ours.median, y, "o", color=FIRST, ms=5)
            axes.plot(getattr(cell, name), y, "x", color=INK, ms=7, mew=1.6)
        places = [cell.place.rsplit(", ", 1)[0] if cell.place.count(",") == 2 else cell.place for _, cell in rows]
        labels = [f"{p}: {c.setup}, {SHORT_NAMES[c.mechanism]}" for p, (_, c) in zip(places, rows, strict=True)]
        axes.set_yticks([-number for number in range(len(rows))], labels)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-len(rows) + 0.4, 0.6)
        if with_ceiling:
            axes.set_xlim(left=-0.03 * axes.get_xlim()[1])
        else:
            logarithmic(axes, "x")
        axes.grid(axis="x", color=RULE, lw=0.5)
        axes.set_xlabel("ε_c" if with_ceiling else "E_correct", loc="right")
    keys = [Key("ink", "cross", "printed in the paper"), Key("first", "bar", "ours: median and 5 to 95% of seeds")]
    if with_ceiling:
        keys.append(Key("muted", "dash", "ceiling: the same with a smaller count of 0"))
        title, caption = (
            "Critical epsilons: printed, ours, and the ceiling",
            "Where ours and the ceiling coincide, the smaller count is 0.",
        )
    else:
        title, caption = "Errors: printed and ours", "A logarithmic axis."
    text = f"{title}, for {len(rows)} rows of the paper under the best reading. The table gives all numbers."
    return Drawing(picture, title, text, tuple(keys), caption)


def logarithmic(axes: Axes, which: str) -> None:
    """Make an axis logarithmic, with 1, 2, 5, 10 as plain numbers."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_minor_locator(NullLocator())


def epsilon_against_runs(readings: ReadingResults) -> Drawing:
    """Draw the critical epsilon against m: disjoint distributions, and the W2-MHE rows under the best reading."""
    with styled():
        picture, axes = new_axes(3.6)
        m, ceilings = list(readings.ceiling_by_runs), readings.ceiling_by_runs.values()
        axes.fill_between(m, [s.low for s in ceilings], [s.high for s in ceilings], color=MUTED, alpha=0.2, lw=0)
        axes.plot(m, [s.median for s in ceilings], color=MUTED, lw=1.6)
        for cell, (mark, colour) in zip(paper.finite_cells(paper.W2MHE), MARKS, strict=True):
            rows = {runs: row for runs, rows in readings.by_runs.items() for row in rows if row.row == cell.key}
            medians = [row.numbers["epsilon_c"].median for row in rows.values()]
            text = f"{cell.place}, printed {cell.epsilon_c:g}"
            axes.plot(list(rows), medians, mark, color=colour, ms=5, label=text, ls="none")
            axes.axhline(cell.epsilon_c, color=colour, lw=0.7, ls=DASHES)
        axes.set_xscale("log")
        axes.set_xticks(m, [f"{runs:g}" for runs in m])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", fontsize=8)
        label(axes, "m, test runs per data set (n = 1000)", "ε_c")
    return Drawing(
        picture,
        "ε_c depends on m",
        "The critical epsilon against the number of test runs, for two disjoint distributions on 256 equally likely "
        "cells and for the W2-MHE rows under the best reading. The table gives all numbers.",
        (
            Key("muted", "area", "two disjoint distributions, 256 equal cells: median and 5 to 95%"),
            Key("ink", "dash", "printed in the paper"),
        ),
        "Points are medians over seeds. The true ε of disjoint distributions is infinite for every m.",
    )


def accuracy_against_privacy(draws: Sequence[SensorDraw]) -> Drawing:
    """Draw the error against epsilon, one thin line per draw and mechanism; each mechanism under one reading."""
    matched = PLAN["matched"]
    with styled():
        picture, axes = new_axes(3.6)
        for name, (_, colour, _) in FAMILY_STYLES.items():
            for draw in draws:
                points = sorted((point.epsilon, point.error) for point in draw.curves[name])
                shown = np.array([point for point in points if 0.01 < point[0] < 50]).reshape(-1, 2)
                axes.plot(*shown.T, color=colour, lw=0.7, alpha=0.45, marker=".", ms=3)
        axes.axvline(matched["epsilon"], color=MUTED, lw=0.8, ls=DASHES)
        axes.axhline(matched["error"], color=MUTED, lw=0.8, ls=DASHES)
        logarithmic(axes, "x")
        logarithmic(axes, "y")
        label(axes, f"ε at δ = {matched['delta']:g} (estimate)", "RMSE")
    return Drawing(
        picture,
        "Accuracy against privacy, one line per draw of sensors",
        f"Root mean square error against epsilon at delta {matched['delta']:g} for {len(draws)} draws of sensors.",
        tuple(Key(variable, "line", text) for text, _, variable in FAMILY_STYLES.values()),
        "Points to the lower left are better. Dashed lines: the privacy and the accuracy at which the claims are "
        "judged. An epsilon beyond what these runs can estimate is not drawn.",
    )


def privacy_maps(own: Sequence[Mapping[str, Any]]) -> list[Drawing]:
    """Draw, for each set-up, the proved epsilon of each sensor on a map."""
    maps = []
    for setup in ("Q1", "Q2", "Q3"):
        lower = [one["lower"] for one in own if one["setup"] == setup and one["sensor"] is not None]
        path = noiseless_states()[: STEPS + 1 - WINDOW, :2]
        title = f"Proved ε when one sensor moves: {setup}, W2-MHE, Gibbs distribution, s 0.8"
        maps.append(draw_sensor_map(fixed_system(setup).h.places, np.asarray(lower), path, title))
    return maps


def draw_sensor_map(places: np.ndarray, lower: np.ndarray, path: np.ndarray, title: str) -> Drawing:
    """Draw a disc at each sensor, whose area is the proved epsilon, and the path of the target."""
    areas = 700.0 * lower / max(float(lower.max()), 1e-12)  # in square points
    everything = np.concatenate([places, path])
    middle, reach = (everything.min(0) + everything.max(0)) / 2, 0.7 * float(np.ptp(everything, axis=0).max())
    with styled():
        picture, axes = new_axes(4.4)
        axes.plot(path[:, 0], path[:, 1], color=MUTED, lw=1, marker="x", ms=4)
        axes.scatter(places[:, 0], places[:, 1], s=areas, facecolor="none", edgecolor=PROVED, lw=1.2)
        axes.scatter(places[:, 0], places[:, 1], s=7, color=INK, zorder=3)
        for side in (-1, 1):  # the names stand in two columns, in the order of the heights of their sensors
            right = places[:, 0] >= middle[0]
            chosen = np.flatnonzero(right if side > 0 else ~right)
            heights = middle[1] + reach * np.linspace(-0.9, 0.9, chosen.size)
            for sensor, height in zip(chosen[np.argsort(places[chosen, 1])].tolist(), heights.tolist(), strict=True):
                axes.annotate(
                    f"{sensor}: {format_lower(float(lower[sensor]))}",
                    places[sensor],
                    xytext=(middle[0] + side * reach, height),
                    ha="right" if side < 0 else "left",
                    va="center",
                    arrowprops={"arrowstyle": "-", "color": RULE, "lw": 0.5},
                )
        axes.set(xlim=middle[0] + [-1.5 * reach, 1.5 * reach], ylim=middle[1] + [-reach, reach])
        label(axes, "horizontal position", "vertical position")
    worst, best = int(lower.argmax()), int(lower.argmin())
    return Drawing(
        picture,
        title,
        f"A map of {len(places)} sensors. The proved epsilon is largest for sensor {worst}, at least "
        f"{format_lower(float(lower[worst]))}, and smallest for sensor {best}, at least "
        f"{format_lower(float(lower[best]))}.",
        (
            Key("ink", "hollow", "area and number: proved ε if the data of this sensor change"),
            Key("muted", "cross", "the path of the target"),
        ),
        "A small disc means that a small privacy loss was proved, not that the privacy loss is small.",
    )
