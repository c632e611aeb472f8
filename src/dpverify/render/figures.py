"""Figures that compare many verifications: privacy against accuracy, and the privacy map.

Each function returns a `Drawing`. Its `.figure` is a matplotlib figure (`.figure.savefig("map.png")`), and `style.svg`
turns it into an element of a page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.render.curves import EPSILON_LABEL
from dpverify.render.style import (
    CELLS,
    FIRST,
    INK,
    MUTED,
    PROVED,
    RULE,
    SECOND,
    VARIABLES,
    Drawing,
    Key,
    canvas,
    label,
    styled,
)
from dpverify.util.formatting import format_lower

ComparisonRow = Mapping[str, Any]  # one verification, by column: text, numbers or None
LINE_COLOURS = (FIRST, SECOND, CELLS, PROVED, MUTED, INK)
LINE_MARKERS = ("o", "s", "D", "^", "v", "P")
MAX_DISC_AREA = 700.0  # in square points
MAP_WIDTH_IN_POINTS = 268.0  # of the axes of a map, about


def tradeoff(rows: Sequence[ComparisonRow], error_name: str = "error") -> Drawing:
    """Draw privacy against accuracy, with one line for each mechanism on each pair of data sets.

    A filled marker is the lower bound on epsilon. A tick to its right, where it is finite, is the upper bound over
    unions of cells only.

    Parameters
    ----------
    rows : sequence of mappings
        The verifications, as `page.comparison` takes them.
    error_name : str
        The name of the error, with its unit.

    Returns
    -------
    Drawing
        The figure.
    """
    lines = _group_rows(rows)
    with styled():
        picture = canvas(4.0)
        axes = picture.add_subplot()
        for number, (name, line_rows) in enumerate(lines.items()):
            colour = LINE_COLOURS[number % len(LINE_COLOURS)]
            # The marker is shifted in each cycle of colours, so that colour and marker together identify a line.
            marker = LINE_MARKERS[(number + number // len(LINE_COLOURS)) % len(LINE_MARKERS)]
            # Labels of neighbouring lines stand on different sides of their markers.
            _draw_line(axes, name, line_rows, colour, marker, label_side=1 if number % 2 == 0 else -1)
        right = axes.get_xlim()[1]
        axes.set_xlim(-0.04 * right, right)  # a marker at 0 is not cut off
        axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
        if len(lines) > 1:
            axes.legend(loc="best", fontsize=8.5)
        label(axes, EPSILON_LABEL, error_name)
    largest = max(row["epsilon_lower"] for row in rows)
    has_errors = any(row.get("error_se") is not None for row in rows)
    return Drawing(
        picture,
        "Privacy against accuracy",
        f"{error_name} against epsilon for {len(rows)} verifications of {', '.join(lines)}. The largest lower bound on "
        f"epsilon is {format_lower(float(largest))}.",
        _tradeoff_keys(rows, len(lines)),
        "Lower left is better: small privacy loss and small error."
        + (" Bars are two standard errors." if has_errors else ""),
    )


def _tradeoff_keys(rows: Sequence[ComparisonRow], lines: int) -> tuple[Key, ...]:
    """Return the legend. The marks of several lines have different colours, so the legend is grey and says so."""
    colour, whose = (VARIABLES[LINE_COLOURS[0]], "") if lines == 1 else ("muted", ", in the colour of its line")
    keys = [Key(colour, "dot", f"lower bound on ε over all events{whose}; the number is the parameter")]
    if any(row.get("epsilon_upper") is not None and row["epsilon_upper"] < math.inf for row in rows):
        keys.append(
            Key(colour, "open", f"upper bound on ε over the cells{whose}; events that split a cell were not checked")
        )
    return tuple(keys)


def _group_rows(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    """Group rows by mechanism, and by pair of data sets where there are several."""
    several_pairs = len({_pair_name(row) for row in rows}) > 1
    lines: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        name = f"{row['mechanism']} on {_pair_name(row)}" if several_pairs else str(row["mechanism"])
        lines.setdefault(name, []).append(row)
    return lines


def _draw_line(axes: Axes, name: str, rows: Sequence[ComparisonRow], colour: str, marker: str, label_side: int) -> None:
    """Draw the verifications of one mechanism on one pair; labels stand right above (1) or left below (-1)."""
    rows = sorted(rows, key=lambda row: row["epsilon_lower"])
    x, y = [row["epsilon_lower"] for row in rows], [row["error"] for row in rows]
    standard_errors = np.array([row.get("error_se") or 0.0 for row in rows])
    axes.plot(x, y, color=colour, lw=1.2, alpha=0.55)
    axes.errorbar(x, y, 2 * standard_errors, color=colour, fmt=marker, ms=6, lw=1, label=name)
    for row in rows:
        upper = row.get("epsilon_upper")
        if upper is not None and upper < math.inf:
            axes.plot(upper, row["error"], "<", color=colour, ms=7, mew=1.3, fillstyle="none")
        axes.annotate(
            _short(row["parameter"]),
            (row["epsilon_lower"], row["error"]),
            xytext=(5 * label_side, 3 * label_side),
            textcoords="offset points",
            ha="left" if label_side > 0 else "right",
            va="bottom" if label_side > 0 else "top",
            fontsize=8,
            color=colour,
        )


def _pair_name(row: ComparisonRow) -> str:
    """Return the pair of data sets and its parameters, where the row has them."""
    stated = {name.removeprefix("pair."): value for name, value in row.items() if name.startswith("pair.")}
    parameters = ", ".join(f"{name} {_short(value)}" for name, value in stated.items() if value is not None)
    return f"{row.get('pair', '')} ({parameters})" if parameters else str(row.get("pair", ""))


def _short(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _label_start(axes: Axes, path: np.ndarray, text: str) -> None:
    """Write a label at the start of a path, on the side away from the path."""
    direction = path[0] - path[1] if len(path) > 1 else np.array([1.0, 1.0])
    to_right, upwards = direction[0] > 0, direction[1] > 0
    axes.annotate(
        text,
        path[0],
        xytext=(6 if to_right else -6, 3 if upwards else -3),
        textcoords="offset points",
        ha="left" if to_right else "right",
        va="bottom" if upwards else "top",
        color=MUTED,
        fontsize=8.5,
    )


def separate_boxes(centres: np.ndarray, sizes: np.ndarray, steps: int = 400) -> np.ndarray:
    """Return the centres of boxes after overlapping ones have been moved apart vertically.

    Parameters
    ----------
    centres, sizes : numpy.ndarray, shape (n, 2)
        The centres of the boxes, and their widths and heights.
    steps : int
        The largest number of rounds; each moves every overlapping pair by half of its overlap.

    Returns
    -------
    numpy.ndarray
        The new centres. Boxes that overlap no other box stay where they are.

    Examples
    --------
    >>> import numpy as np
    >>> separate_boxes(np.array([[0.0, 0.0], [1.0, 1.0], [9.0, 0.0]]), np.full((3, 2), 4.0))[:, 1].tolist()
    [-1.5, 2.5, 0.0]
    """
    centres = np.array(centres, float)
    for _ in range(steps):
        moved = False
        for i in range(len(centres)):
            for j in range(i):
                needed = (sizes[i] + sizes[j]) / 2
                gap = centres[i] - centres[j]
                if (np.abs(gap) < needed - 1e-9).all():
                    up, down = (i, j) if gap[1] >= 0 else (j, i)
                    shift = (needed[1] - abs(gap[1])) / 2
                    centres[up, 1] += shift
                    centres[down, 1] -= shift
                    moved = True
        if not moved:
            break
    return centres


def _label_offsets(
    points: np.ndarray, middle: np.ndarray, radii: np.ndarray, texts: Sequence[str], points_per_unit: float
) -> np.ndarray:
    """Return the offset of each label from its position, in points: outside the disc, and apart from other labels."""
    positions = (points - middle) * points_per_unit
    lengths = np.linalg.norm(positions, axis=1, keepdims=True)
    outward = np.where(lengths > 0, positions / np.where(lengths > 0, lengths, 1.0), [0.0, 1.0])
    sizes = np.array([[5.5 * len(text) + 4, 12.5] for text in texts])
    distance = radii + 4 + (np.abs(outward) * sizes / 2).sum(axis=1)
    centres = separate_boxes(positions + outward * distance[:, None], sizes)
    return centres - positions


def privacy_map(
    positions: ArrayLike,
    epsilon_lower: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    target: ArrayLike | None = None,
    title: str = "Privacy loss of each sensor",
    unit: str = "",
) -> Drawing:
    """Draw where in the plane privacy is lost: a disc at each position, whose area is the lower bound on epsilon.

    Parameters
    ----------
    positions : array_like, shape (n, 2)
        The positions, for example of sensors.
    epsilon_lower : array_like, shape (n,)
        The lower bound on epsilon when the data of this sensor change.
    names : sequence of str, optional
        Names beside the discs; the index of the position by default.
    target : array_like, optional
        A point (2,) or a path (k, 2) that the sensors observe.
    title : str
        The title of the figure.
    unit : str
        The unit of the positions.

    Returns
    -------
    Drawing
        The figure. Colour repeats what area and number show.
    """
    points, lower = np.asarray(positions, float), np.asarray(epsilon_lower, float).ravel()
    if points.ndim != 2 or points.shape[1] != 2 or len(points) != len(lower) or not len(points):
        raise InputError(
            f"privacy_map: found positions of shape {points.shape} and {lower.size} epsilons; expected (n, 2) and n"
        )
    if not np.isfinite(points).all() or not (np.isfinite(lower) & (lower >= 0)).all():
        raise InputError("privacy_map: found a number that is not finite, or a negative epsilon; expected finite ones")
    names = [str(i) for i in range(len(points))] if names is None else [str(name) for name in names]
    areas = MAX_DISC_AREA * lower / max(float(lower.max()), 1e-12)
    with styled():
        picture = canvas(4.4)
        axes = picture.add_subplot()
        path = points[:0] if target is None else np.atleast_2d(np.asarray(target, float))
        everything = np.concatenate([points, path])
        low, high = everything.min(axis=0), everything.max(axis=0)
        middle, reach = (low + high) / 2, 0.91 * (float((high - low).max()) or 1.0)  # room for the labels
        axes.set(xlim=middle[0] + [-reach, reach], ylim=middle[1] + [-reach, reach], aspect="equal")
        if len(path):
            axes.plot(path[:, 0], path[:, 1], color=MUTED, lw=1, marker="x", ms=4)
            _label_start(axes, path, "target")
        axes.scatter(points[:, 0], points[:, 1], s=areas, color=PROVED, alpha=0.25, lw=0)
        axes.scatter(points[:, 0], points[:, 1], s=areas, facecolor="none", edgecolor=PROVED, lw=1.2)
        axes.scatter(points[:, 0], points[:, 1], s=7, color=INK, zorder=3)
        texts = [f"{name}: {format_lower(float(value))}" for name, value in zip(names, lower, strict=True)]
        offsets = _label_offsets(points, middle, np.sqrt(areas) / 2, texts, MAP_WIDTH_IN_POINTS / (2 * reach))
        for point, offset, text in zip(points, offsets, texts, strict=True):
            leader = {"arrowstyle": "-", "color": MUTED, "lw": 0.5, "shrinkA": 0, "shrinkB": 3}
            axes.annotate(
                text,
                point,
                xytext=tuple(offset),
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=8.5,
                arrowprops=leader,
                bbox={"boxstyle": "square,pad=0.1", "fc": "none", "ec": "none"},
            )
        suffix = f" ({unit})" if unit else ""
        label(axes, f"horizontal position{suffix}", f"vertical position{suffix}")
        axes.grid(color=RULE, lw=0.5, alpha=0.6)
        axes.set_axisbelow(True)
    worst, best = int(lower.argmax()), int(lower.argmin())
    return Drawing(
        picture,
        title,
        f"A map of {len(points)} positions. The lower bound on epsilon is largest for {names[worst]}, at least "
        f"{format_lower(float(lower[worst]))}, and smallest for {names[best]}, at least "
        f"{format_lower(float(lower[best]))}.",
        (Key("proved", "dot", "area and number: lower bound on ε, over all events, if the data of this one change"),),
        "A small disc means that a small privacy loss was proved, not that the privacy loss is small.",
    )
