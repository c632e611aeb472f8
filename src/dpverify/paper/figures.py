"""The paper's figures drawn anew, and two of our own: printed numbers beside ours, accuracy against privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator
from scipy.stats import hypergeom

from dpverify.paper.claims import summary
from dpverify.paper.compare import points
from dpverify.render.style import (
    BOUNDED,
    FIRST,
    INK,
    MUTED,
    PAPER,
    PROVED,
    RULE,
    SECOND,
    WITNESS,
    Drawing,
    Key,
    canvas,
    label,
    styled,
)
from dpverify.stats.paper_test import PAPER_EPSILON_SWEEP

ALPHA, LEAST = 0.05, 1e-6
SHOWN = 60  # seeds whose p-values are summed for a figure
COLOURS = {"Gibbs law": (FIRST, "first", "o"), "blend law": (BOUNDED, "bounded", "s"), "": (SECOND, "second", "D")}
FAMILIES = {
    "gibbs": ("W2-MHE, Gibbs law", FIRST, "first"),
    "blend": ("W2-MHE, blend law", BOUNDED, "bounded"),
    "perturbed": ("input perturbation", SECOND, "second"),
    "ekf": ("private EKF", PROVED, "proved"),
}


def beside(rows: Sequence[Mapping[str, Any]], kind: str, name: str, title: str) -> Drawing:
    """A line for each printed cell: the printed number, and our median with its 5 to 95% range over seeds."""
    shown = [row for row in rows if math.isfinite(row.get(kind, math.inf))]
    heads = list(dict.fromkeys((row["setup"], row["mechanism"], row["parameter"]) for row in shown))
    place = {head: -k for k, head in enumerate(heads)}
    offset = {"Gibbs law": 0.12, "blend law": -0.2, "": 0.0}
    with styled():
        picture = canvas(0.9 + 0.34 * len(heads), 4.6)
        axes = picture.add_subplot()
        for row in shown:
            y = place[row["setup"], row["mechanism"], row["parameter"]]
            ours, (colour, _, mark) = row[f"our_{kind}"], COLOURS[row["law"]]
            y_ours = y + offset[row["law"]]
            axes.plot([ours["low"], ours["high"]], [y_ours, y_ours], color=colour, lw=2.2, alpha=0.5)
            axes.plot(ours["median"], y_ours, mark, color=colour, ms=5)
            axes.plot(row[kind], y, "x", color=INK, ms=7, mew=1.6)
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
        axes.set_yticks([place[head] for head in heads], [f"{a}  {b}, {c}" for a, b, c in heads])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-len(heads) + 0.4, 0.6)
        axes.grid(axis="x", color=RULE, lw=0.5)
        axes.set_xlabel(name, loc="right")
    return Drawing(
        picture,
        title,
        f"For {len(heads)} cells of the paper: the printed {name}, and ours. All numbers stand in the table.",
        (
            Key("ink", "cross", "printed in the paper"),
            Key("first", "bar", "ours: median and 5 to 95% of seeds; for the W2-MHE the Gibbs law"),
            Key("bounded", "bar", "ours, blend law"),
            Key("second", "bar", "ours, the other mechanisms"),
        ),
        "A logarithmic axis. Ours are the paper's procedure on data sets that are really 10 apart.",
    )


def _plain_ticks(axis: Any) -> None:
    """1, 2, 5, 10 on a logarithmic axis, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_minor_locator(NullLocator())


def _p_axes(axes: Axes, end: float, late: bool = False) -> None:
    axes.set_yscale("log")
    axes.set_ylim(LEAST / 1.5, 2)
    axes.set_xlim(0, end)
    axes.set_yticks([1, 1e-2, 1e-4, 1e-6], ["1", "0.01", "1e-4", "≤ 1e-6"])
    axes.minorticks_off()
    axes.axhline(ALPHA, color=MUTED, lw=0.8, ls=(0, (4, 2)))
    at_end: Any = {"xytext": (-3 if late else 3, 3), "textcoords": "offset points", "ha": "right" if late else "left"}
    axes.annotate("α = 0.05", (end if late else 0, ALPHA), color=MUTED, fontsize=8.5, **at_end)
    label(axes, "ε", "smaller p-value")


def _band(axes: Axes, along: np.ndarray, values: np.ndarray, colour: str, text: str, dash: Any = "-") -> None:
    """The median over the first axis, and its 5 to 95% range."""
    low, middle, high = np.maximum(np.quantile(values, (0.05, 0.5, 0.95), axis=0, method="inverted_cdf"), LEAST)
    axes.fill_between(along, low, high, color=colour, alpha=0.14, lw=0)
    axes.plot(along, middle, color=colour, lw=1.8, ls=dash, label=text)


def thinned(counts: np.ndarray, runs: int, along: np.ndarray, times: int) -> np.ndarray:
    """The smaller p-value for each row of counts, thinned anew so many times: (rows * times, len(along)).

    `exact.p_values` for many epsilons at once: a tail is summed once for each pair of counts that turns up.
    """
    rng = np.random.default_rng(0)
    both = np.repeat(counts, times, axis=0)
    tails = []
    for one, other in (both.T, both.T[::-1]):
        thin = rng.binomial(one[:, None], np.exp(-along))
        pairs = np.stack(np.broadcast_arrays(thin, other[:, None]), axis=-1).reshape(-1, 2)
        (kept, fixed), back = (lambda u: (u[0].T, u[1].ravel()))(np.unique(pairs, axis=0, return_inverse=True))
        sums = np.where(kept == 0, 1.0, hypergeom.sf(kept - 1, 2 * runs, runs, kept + fixed))
        tails.append(sums[back].reshape(thin.shape))
    return np.minimum(*tails)


def of_counts(counts: Sequence[Sequence[int]], runs: int, title: str, caption: str) -> Drawing:
    """The paper's figures of how to choose an event: p-values of given counts along epsilon."""
    with styled():
        picture = canvas(3.0)
        axes = picture.add_subplot()
        for pair, colour, dash in zip(counts, (FIRST, SECOND, BOUNDED), ("-", "--", ":"), strict=False):
            values = thinned(np.array([pair]), runs, PAPER_EPSILON_SWEEP, 400)
            _band(axes, PAPER_EPSILON_SWEEP, values, colour, f"({pair[0]}, {pair[1]})", dash)
        _p_axes(axes, 1.5, late=True)
        axes.set_ylim(1e-3, 1.5)
        axes.set_yticks([1, 0.1, 0.01, 0.001], ["1", "0.1", "0.01", "0.001"])
        axes.legend(loc="lower right", title=f"counts of {runs} runs")
    text = ", ".join(f"({a}, {b})" for a, b in counts)
    return Drawing(picture, title, f"p-values of the counts {text} along epsilon, with their spread.", (), caption)


def of_studies(chosen: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], title: str) -> Drawing:
    """p-values of the worst event along epsilon, its counts held fixed: the median and 5 to 95% of seeds."""
    end = 1.15 * max(float(np.quantile([row["epsilon_critical"] for row in rows], 0.95)) for _, rows in chosen)
    along = np.linspace(0, end, 60)
    with styled():
        picture = canvas(3.0)
        axes = picture.add_subplot()
        for (text, rows), colour, dash in zip(chosen, (FIRST, SECOND, BOUNDED), ("-", "--", ":"), strict=False):
            counts = np.array([[row["c1"], row["c2"]] for row in rows[:SHOWN]])
            _band(axes, along, thinned(counts, int(rows[0]["test_runs"]), along, 1), colour, text, dash)
        _p_axes(axes, end)
        axes.legend(loc="lower right")
    words = "; ".join(
        f"{text}: critical epsilon {summary([row['epsilon_critical'] for row in rows])['median']:.3g}"
        for text, rows in chosen
    )
    return Drawing(
        picture,
        title,
        f"p-values along epsilon. {words}.",
        (),
        f"Medians and 5 to 95% of {min(SHOWN, len(chosen[0][1]))} seeds. The epsilon at which a curve passes α is ε_c.",
    )


def scene(places: np.ndarray, moved: np.ndarray, reach: np.ndarray, path: np.ndarray) -> Drawing:
    """The paper's Figure 1 for the real set-up: target, sensors, the one that is looked for and where it could be."""
    with styled():
        picture = canvas(4.3)
        axes = picture.add_subplot()
        for at, colour in ((path[0], SECOND), (path[-1], FIRST)):
            for place in places:
                axes.plot(*zip(place, at, strict=True), color=colour, lw=0.6, alpha=0.6, zorder=1)
        axes.plot(places[1:, 0], places[1:, 1], "s", color=INK, ms=6, zorder=3)
        close = axes.inset_axes((0.3, 0.02, 0.36, 0.36))
        for where, size in ((axes, 11), (close, 14)):
            where.plot(reach[:, 0], reach[:, 1], color=WITNESS, lw=size, alpha=0.45, solid_capstyle="round", zorder=2)
            where.plot(*places[0], "*", color=PROVED, ms=size, zorder=4)
            where.plot(*moved, "*", color=PROVED, ms=size, mfc="none", zorder=4)
        wide = 1.4 * float(np.abs(reach - places[0]).max())
        close.set(xlim=places[0, 0] + [-wide, wide], ylim=places[0, 1] + [-wide, wide], aspect="equal")
        close.set(xticks=[], yticks=[], facecolor=PAPER)
        close.set_title(f"{2 * wide:.2g} wide", fontsize=8.5, color=MUTED)
        close.spines[:].set_visible(True)
        axes.indicate_inset_zoom(close, edgecolor=MUTED)
        axes.plot(path[:, 0], path[:, 1], color=INK, lw=1.2, ls=(0, (3, 2)), zorder=4)
        axes.plot(*path[0], "o", color=INK, ms=7, zorder=4)
        axes.annotate("", path[-1], path[-2], arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1}, zorder=4)
        axes.set(xlim=(-17.5, 17.5), ylim=(-17.5, 17.5), aspect="equal")
        label(axes, "horizontal position", "vertical position")
    return Drawing(
        picture,
        "Who is looked for (the paper's Figure 1, for Q1)",
        "Ten sensors on a circle around a target. The star is the sensor that an adversary looks for; the shaded arc "
        "is where it could stand with data at most 10 away from those recorded.",
        (
            Key("ink", "dot", "the target, with its way over 9 steps; squares: sensors that are known"),
            Key(
                "proved", "solid", "the sensor that is looked for (filled), and where it stands in the second data set"
            ),
            Key("witness", "bar", "where it could be: data at most 10 apart"),
            Key("second", "line", "what is measured when the target sets out"),
            Key("first", "line", "and at the end"),
        ),
        "At a real data distance of 10 the sensor moves by a step, not across the map.",
    )


def accuracy(truth: np.ndarray, first: np.ndarray, second: np.ndarray) -> Drawing:
    """The paper's figure of accuracy at s = 1: estimates from the right data and from the adjacent ones."""
    with styled():
        picture = canvas(3.0)
        axes = picture.add_subplot()
        for way, colour, mark, text in (
            (truth, INK, "o-", "truth"),
            (first, FIRST, "s--", "right data"),
            (second, SECOND, "D:", "adjacent data"),
        ):
            axes.plot(way[:, 0], way[:, 1], mark, color=colour, ms=5, lw=1, label=text)
        axes.ticklabel_format(useOffset=False)
        axes.legend(loc="best")
        label(axes, "horizontal position", "vertical position")
    text = "Released estimates without noise: from the right data close to the truth, from the adjacent data aside."
    return Drawing(picture, "Estimates at s = 1", text, (), "Deterministic: whoever sees one estimate knows the data.")


def exchange(draws: Sequence[Mapping[str, Any]], matched: Mapping[str, float], laws: Sequence[str]) -> Drawing:
    """Accuracy against privacy: a thin line a draw, the mark at the medians."""
    families = [*laws, "perturbed", "ekf"]
    with styled():
        picture = canvas(3.6)
        axes = picture.add_subplot()
        for name in families:
            _, colour, _ = FAMILIES[name]
            for draw in draws:
                own = sorted((p["epsilon"], p["error"]) for p in points(draw, name) if 0.01 < p["epsilon"] < 50)
                axes.plot(*np.array(own).reshape(-1, 2).T, color=colour, lw=0.7, alpha=0.45, marker=".", ms=3)
        axes.axvline(matched["epsilon"], color=MUTED, lw=0.8, ls=(0, (4, 2)))
        axes.axhline(matched["error"], color=MUTED, lw=0.8, ls=(0, (4, 2)))
        axes.set(xscale="log", yscale="log")
        _plain_ticks(axes.xaxis)
        _plain_ticks(axes.yaxis)
        label(axes, f"ε at δ = {matched['delta']:g} (estimate)", "RMSE")
    return Drawing(
        picture,
        "Accuracy against privacy, one line a draw of sensors",
        f"Root mean square error against epsilon at delta {matched['delta']:g} for {len(draws)} draws of sensors.",
        tuple(Key(FAMILIES[name][2], "line", FAMILIES[name][0]) for name in families),
        "Left and low is better. Dashed: the privacy and the accuracy at which the claims are judged. An epsilon "
        "beyond what these runs can estimate is not drawn.",
    )
