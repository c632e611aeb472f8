"""Figures of the reproduction: those of the paper, printed against measured numbers, accuracy against privacy.

Each function draws one figure and returns it with its title, description, legend and caption.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import LogLocator, NullLocator
from scipy.stats import hypergeom

from dpverify.paper.measurements import SensorDraw
from dpverify.paper.plan import MatchedValues
from dpverify.render.style import (
    BOUNDED,
    FIRST,
    INK,
    MUTED,
    PAPER,
    PROVED,
    SECOND,
    WITNESS,
    Drawing,
    Key,
    canvas,
    label,
    styled,
)
from dpverify.stats.paper_test import PAPER_EPSILON_SWEEP

ALPHA = 0.05
SMALLEST_SHOWN_P_VALUE = 1e-6
MAX_SEEDS_SHOWN = 60
THINNINGS = 400
LINE_STYLES = ((FIRST, "-"), (SECOND, "--"), (BOUNDED, ":"))
DASHES = (0, (4, 2))


MECHANISM_STYLES = {
    "gibbs": ("W2-MHE, Gibbs distribution", FIRST, "first"),
    "blend": ("W2-MHE, blend distribution", BOUNDED, "bounded"),
    "perturbed": ("input perturbation", SECOND, "second"),
    "ekf": ("private EKF", PROVED, "proved"),
}  # name, colour, and the CSS variable of the colour


def plain_ticks(axis: Axis) -> None:
    """Write 1, 2, 5, 10 on a logarithmic axis as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_minor_locator(NullLocator())


def _p_value_axes(axes: Axes, end: float) -> None:
    """Set up axes of p-values along epsilon from 0 to `end`, with a line at the level."""
    axes.set_yscale("log")
    axes.set_ylim(SMALLEST_SHOWN_P_VALUE / 1.5, 2)
    axes.set_xlim(0, end)
    axes.set_yticks([1, 1e-2, 1e-4, 1e-6], ["1", "0.01", "1e-4", "≤ 1e-6"])
    axes.minorticks_off()
    axes.axhline(ALPHA, color=MUTED, lw=0.8, ls=DASHES)
    label_at_right(axes, ALPHA, "α", MUTED)
    label(axes, "ε", "smaller p-value")


def label_at_right(axes: Axes, y: float, text: str, colour: str) -> None:
    """Write a label outside the axes, at the right end of a horizontal line."""
    axes.annotate(
        text,
        (1, y),
        xycoords=("axes fraction", "data"),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=8.5,
        annotation_clip=False,
    )


def _band(axes: Axes, x: np.ndarray, values: np.ndarray, colour: str, text: str, dash: str) -> None:
    """Draw the median over the first axis, and its 5 to 95% range."""
    quantiles = np.quantile(values, (0.05, 0.5, 0.95), axis=0, method="inverted_cdf")
    low, median, high = np.maximum(quantiles, SMALLEST_SHOWN_P_VALUE)
    axes.fill_between(x, low, high, color=colour, alpha=0.14, lw=0)
    axes.plot(x, median, color=colour, lw=1.8, ls=dash, label=text)


def thinned_p_values(counts: np.ndarray, runs: int, epsilons: np.ndarray, repetitions: int) -> np.ndarray:
    """Return the smaller p-value of the paper's test for each row of counts, thinned anew `repetitions` times.

    The result has shape (rows * repetitions, len(epsilons)). It is that of `stats.paper_test.p_values`, computed for
    many epsilons at once: each distinct pair of counts needs one tail probability.
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


def p_values_of_counts(counts: Sequence[tuple[int, int]], runs: int, title: str, caption: str) -> Drawing:
    """Draw the paper's figures about the choice of an event: p-values of given counts along epsilon."""
    with styled():
        picture = canvas(3.0)
        axes = picture.add_subplot()
        for pair, (colour, dash) in zip(counts, LINE_STYLES, strict=False):
            values = thinned_p_values(np.array([pair]), runs, PAPER_EPSILON_SWEEP, THINNINGS)
            _band(axes, PAPER_EPSILON_SWEEP, values, colour, f"({pair[0]}, {pair[1]})", dash)
        _p_value_axes(axes, 1.5)
        axes.set_ylim(1e-3, 1.5)
        axes.set_yticks([1, 0.1, 0.01, 0.001], ["1", "0.1", "0.01", "0.001"])
        axes.legend(loc="lower right", title=f"counts of {runs} runs")
    text = ", ".join(f"({c1}, {c2})" for c1, c2 in counts)
    return Drawing(picture, title, f"p-values of the counts {text} along epsilon, with their spread.", (), caption)


CROSSING_CAPTION = (
    "The ε_c of a seed is the first ε at which its own p-value exceeds α = 0.05. The p-values of one seed go up and "
    "down along ε, so most ε_c are smaller than the ε at which the median curve crosses α."
)


def p_values_of_row(counts: Sequence[tuple[int, int]], runs: int, printed: float, title: str) -> Drawing:
    """Draw p-values of the worst event along epsilon: median and 5 to 95% of seeds, and the printed critical epsilon.

    `counts` are those of the tested event over seeds.
    """
    finite = math.isfinite(printed)
    end = max(1.5, 1.3 * printed) if finite else 1.5
    epsilons = np.linspace(0, end, 80)
    shown = np.array(counts[:MAX_SEEDS_SHOWN])
    with styled():
        picture = canvas(2.8)
        axes = picture.add_subplot()
        _band(axes, epsilons, thinned_p_values(shown, runs, epsilons, 1), FIRST, "", "-")
        if finite:
            axes.plot(printed, ALPHA, "x", color=SECOND, ms=8, mew=2, zorder=4)
        _p_value_axes(axes, end)
    says = f"the printed critical epsilon is {printed:g}" if finite else "the paper rejects every epsilon"
    mark = (Key("second", "cross", f"printed ε_c = {printed:g}"),) if finite else ()
    return Drawing(
        picture,
        title,
        f"p-values along epsilon; {says}.",
        (Key("first", "line", f"median and 5 to 95% of {len(shown)} seeds"), *mark),
        CROSSING_CAPTION if finite else "The paper rejects every ε.",
    )


def sensor_scene(positions: np.ndarray, moved: np.ndarray, reach: np.ndarray, path: np.ndarray) -> Drawing:
    """Draw the paper's Figure 1 for this set-up: target, sensors, the secret sensor, and where it could be.

    `moved` is the secret sensor's position in the second data set, `reach` are its positions whose data are at most 10
    from those recorded, and `path` are the positions of the target.
    """
    with styled():
        picture = canvas(4.3)
        axes = picture.add_subplot()
        for target, colour in ((path[0], SECOND), (path[-1], FIRST)):
            for position in positions:
                axes.plot(*zip(position, target, strict=True), color=colour, lw=0.6, alpha=0.6, zorder=1)
        axes.plot(positions[1:, 0], positions[1:, 1], "s", color=INK, ms=6, zorder=3)
        inset = axes.inset_axes((0.3, 0.02, 0.36, 0.36))
        for panel, size in ((axes, 11), (inset, 14)):
            panel.plot(reach[:, 0], reach[:, 1], color=WITNESS, lw=size, alpha=0.45, solid_capstyle="round", zorder=2)
            panel.plot(*positions[0], "*", color=PROVED, ms=size, zorder=4)
            panel.plot(*moved, "*", color=PROVED, ms=size, mfc="none", zorder=4)
        half_width = 1.7 * float(np.abs(reach - positions[0]).max())
        margins = np.array([-half_width, half_width])
        inset.set(xlim=positions[0, 0] + margins, ylim=positions[0, 1] + margins, aspect="equal")
        inset.set(xticks=[], yticks=[], facecolor=PAPER)
        inset.text(0.5, 0.02, f"width {2 * half_width:.2g}", transform=inset.transAxes, ha="center", fontsize=8.5)
        inset.spines[:].set_visible(True)
        axes.indicate_inset_zoom(inset, edgecolor=MUTED)
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


def accuracy(truth: np.ndarray, first: np.ndarray, second: np.ndarray) -> Drawing:
    """Draw the paper's figure of accuracy at s = 1: estimates from the right data and from the adjacent data."""
    with styled():
        picture = canvas(3.0)
        axes = picture.add_subplot()
        for positions, colour, mark, text in (
            (truth, INK, "o-", "truth"),
            (first, FIRST, "s--", "right data"),
            (second, SECOND, "D:", "adjacent data"),
        ):
            axes.plot(positions[:, 0], positions[:, 1], mark, color=colour, ms=5, lw=1, label=text)
        axes.ticklabel_format(useOffset=False)
        axes.legend(loc="best")
        label(axes, "horizontal position", "vertical position")
    text = "Released estimates without noise. Those from the right data are close to the truth, the others are not."
    caption = "The estimates are deterministic, so one estimate reveals which data set was used."
    return Drawing(picture, "Fig. 4 right: estimates at s = 1", text, (), caption)


def accuracy_against_privacy(draws: Sequence[SensorDraw], matched: MatchedValues) -> Drawing:
    """Draw the error against epsilon, one thin line per draw and mechanism; each mechanism under one reading."""
    measured = {point.mechanism for draw in draws for point in draw.curves}
    mechanisms = [name for name in MECHANISM_STYLES if name in measured]
    with styled():
        picture = canvas(3.6)
        axes = picture.add_subplot()
        for name in mechanisms:
            for draw in draws:
                points = sorted((point.epsilon_estimate, point.error_first) for point in draw.curve(name))
                shown = np.array([point for point in points if 0.01 < point[0] < 50]).reshape(-1, 2)
                colour = MECHANISM_STYLES[name][1]
                axes.plot(*shown.T, color=colour, lw=0.7, alpha=0.45, marker=".", ms=3)
        axes.axvline(matched.epsilon, color=MUTED, lw=0.8, ls=DASHES)
        axes.axhline(matched.error, color=MUTED, lw=0.8, ls=DASHES)
        axes.set(xscale="log", yscale="log")
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
        label(axes, f"ε at δ = {matched.delta:g} (estimate)", "RMSE")
    return Drawing(
        picture,
        "Accuracy against privacy, one line per draw of sensors",
        f"Root mean square error against epsilon at delta {matched.delta:g} for {len(draws)} draws of sensors.",
        tuple(Key(MECHANISM_STYLES[name][2], "line", MECHANISM_STYLES[name][0]) for name in mechanisms),
        "Points to the lower left are better. Dashed lines: the privacy and the accuracy at which the claims are "
        "judged. An epsilon beyond what these runs can estimate is not drawn.",
    )
