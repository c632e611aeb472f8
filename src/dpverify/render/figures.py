"""Figures of many verifications: bounds, privacy against accuracy, privacy over time, heat maps, and a map.

Each function returns a `Drawing`. Its `.figure` is a matplotlib figure (`.figure.savefig("map.png")`), and a page shows
it as SVG.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.render.style import (
    BEYOND,
    CELLS,
    FIRST,
    INK,
    MUTED,
    PAPER,
    PROVED,
    RULE,
    SECOND,
    TEXT_SIZE,
    VARIABLES,
    Drawing,
    Key,
    canvas,
    label,
    styled,
)
from dpverify.util.formatting import format_lower, format_upper

ComparisonRow = Mapping[str, Any]  # one verification, by column: text, numbers or None
LINE_COLOURS = (FIRST, SECOND, CELLS, BEYOND, MUTED, INK)
LINE_MARKERS = ("o", "s", "D", "^", "v", "P")
EPSILON_LABEL = "ε (logarithm of a probability ratio)"
MAX_DISC_AREA = 700.0  # in square points
MAP_WIDTH_IN_POINTS = 268.0  # of the axes of a map, about
MAX_LABELS = 30  # beyond it the rows of a figure have no names
MAX_NAME = 26  # characters of the name of a row
ROW_HEIGHT, FRAME_HEIGHT, MIN_HEIGHT, MAX_HEIGHT = 0.22, 1.0, 2.2, 9.0  # inches
MAX_NUMBERED_COLUMNS = 12  # of a heat map whose cells have numbers: more do not fit at the size of the text
LIGHTEST, DARKEST = 0.08, 0.9  # opacities of a heat map
UPPER_FACTOR = 3.0  # an upper bound above this many times the largest lower bound does not set the scale
LOWER_KEY = "lower bound on ε over all events"
BEYOND_KEY = Key("beyond", "dot", "lower bound beyond the claim")
UPPER_KEY_TEXT = "upper bound on ε over the cells; events that split a cell were not checked"


class Bounds(NamedTuple):
    """The bounds on epsilon of one verification.

    Attributes
    ----------
    name : str
        What was verified.
    lower, upper : float
        The lower bound over all events, and the upper bound over unions of cells (may be infinite). Both are NaN for a
        test that is void: it has no result, and is drawn as a hollow mark.
    position : float or None
        The value on the axis, for example a parameter; None puts the verifications one below the other.
    claim : float or None
        The claimed epsilon of this verification, if the verifications have different claims.
    """

    name: str
    lower: float
    upper: float
    position: float | None = None
    claim: float | None = None


def draw_bounds(rows: Sequence[Bounds], title: str, axis: str = "", claim: float | None = None) -> Drawing:
    """Draw the bounds on epsilon of many verifications.

    Parameters
    ----------
    rows : sequence of Bounds
        The verifications. If all have a position, epsilon is drawn against it; otherwise they are drawn one below the
        other.
    title : str
        The title.
    axis : str
        The name of the position.
    claim : float or None
        The claimed epsilon.
    """
    has_positions = bool(rows) and all(row.position is not None for row in rows)
    void = [row.name for row in rows if math.isnan(row.lower)]
    answered = [row for row in rows if not math.isnan(row.lower)]
    with styled():
        figure = _draw_against_position(rows, axis, claim) if has_positions else _draw_rows(rows, claim)
    keys = [Key("ink", "dot", LOWER_KEY)]
    keys += [BEYOND_KEY] if any(_is_beyond(row, claim) for row in answered) else []
    keys += [Key("cells", "bar" if has_positions else "tick", UPPER_KEY_TEXT)]
    keys += [Key("ink", "dash", f"claimed ε = {claim:.4g}")] if claim is not None else []
    keys += [Key("ink", "diamond", "claimed ε")] if any(row.claim is not None for row in rows) else []
    keys += [Key("muted", "hollow", "no answer: the test is void")] if void else []
    largest = max(answered, key=lambda row: row.lower, default=None)
    finding = (
        ""
        if largest is None
        else f" The largest lower bound on epsilon is {format_lower(largest.lower)} ({largest.name})."
    )
    finding += f" No answer: {', '.join(void)}." if void else ""
    return Drawing(figure, title, f"{title}.{finding}", tuple(keys), "", _bounds_readout(rows, has_positions))


def _is_beyond(row: Bounds, claim: float | None) -> bool:
    own = claim if row.claim is None else row.claim
    return own is not None and row.lower > own


def _bounds_readout(rows: Sequence[Bounds], has_positions: bool) -> tuple[tuple[float, float | None, str], ...]:
    """Return the name and the bounds of every row."""
    points = []
    for number, row in enumerate(rows):
        text = f"{row.name}: no answer"
        if not math.isnan(row.lower):
            upper = f", over the cells at most {format_upper(row.upper)}" if row.upper < math.inf else ""
            text = f"{row.name}: ε at least {format_lower(row.lower)}{upper}"
        lower = 0.0 if math.isnan(row.lower) else row.lower
        points.append((row.position, None, text) if has_positions else (lower, float(number), text))
    return tuple(points)  # type: ignore[arg-type]  # all positions are numbers


def _draw_rows(rows: Sequence[Bounds], claim: float | None) -> Figure:
    """Draw one row per verification, the first on top."""
    shown = len(rows) <= MAX_LABELS
    figure = canvas(max(MIN_HEIGHT, FRAME_HEIGHT + ROW_HEIGHT * min(len(rows), 2 * MAX_LABELS)))
    axes = figure.add_subplot()
    for number, row in enumerate(rows):
        if math.isnan(row.lower):
            axes.plot(0, number, "o", color=MUTED, markersize=5, fillstyle="none", clip_on=False)
            continue
        if math.isfinite(row.upper):
            axes.plot(row.upper, number, "|", color=CELLS, markersize=8)
        if row.claim is not None:
            axes.plot(row.claim, number, "D", color=INK, markersize=4, fillstyle="none")
        axes.plot(row.lower, number, "o", color=BEYOND if _is_beyond(row, claim) else PROVED, markersize=4)
    names = [_shorten(row.name) for row in rows]
    axes.set_yticks(range(len(rows)) if shown else [], names if shown else [])
    axes.grid(axis="y", color=RULE, linewidth=0.5)  # no line from bound to bound: their scopes differ
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(left=0)
    if claim is not None:
        axes.axvline(claim, color=INK, linestyle="--", linewidth=0.8)
    axes.set_xlabel("ε", loc="right")
    return figure


def _draw_against_position(rows: Sequence[Bounds], axis: str, claim: float | None) -> Figure:
    """Draw epsilon against the position, on a logarithmic axis where positions span more than a decade."""
    figure = canvas(3.2)
    axes = figure.add_subplot()
    positions = [row.position or 0.0 for row in rows]
    for row, x in zip(rows, positions, strict=True):
        if math.isnan(row.lower):
            axes.plot(x, 0, "o", color=MUTED, markersize=5, fillstyle="none", clip_on=False)
            continue
        axes.plot(x, row.lower, "o", color=BEYOND if _is_beyond(row, claim) else PROVED, markersize=4)
        if math.isfinite(row.upper):
            axes.plot(x, row.upper, "_", color=CELLS, markersize=8)
    if min(positions) > 0 and max(positions) > 10 * min(positions):
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    if claim is not None:
        axes.axhline(claim, color=INK, linestyle="--", linewidth=0.8)
    label(axes, axis, "ε")
    return figure


class StepBounds(NamedTuple):
    """The bounds of every step.

    Attributes
    ----------
    lower, upper : ndarray of shape (K,)
        The lower bounds over all events, and the upper bounds over unions of cells (may be infinite).
    exact : ndarray or None
        The exact epsilons if they are known (may be infinite).
    start : int or None
        The step at which a loss is first proved.
    claim : float or None
        The claimed epsilon.
    """

    lower: np.ndarray
    upper: np.ndarray
    exact: np.ndarray | None
    start: int | None
    claim: float | None = None


def step_figure(bounds: StepBounds, title: str) -> Drawing:
    """Draw the bounds on epsilon against the last step of the prefix: dots with ranges."""
    steps, claim = np.arange(bounds.lower.size), bounds.claim
    beyond = np.zeros(steps.size, bool) if claim is None else bounds.lower > claim
    shown = [float(bounds.lower.max()), claim or 0.0]
    if bounds.exact is not None:
        shown.append(float(bounds.exact[np.isfinite(bounds.exact)].max(initial=0.0)))
    near = bounds.upper[bounds.upper <= UPPER_FACTOR * max(*shown, 0.1)]
    top = 1.08 * max(*shown, float(near.max(initial=0.0)), 0.1)
    keys = [Key("ink", "dot", "lower bound on ε of the steps up to this one, over all events")]
    with styled():
        picture = canvas(3.2)
        axes = picture.add_subplot()
        axes.vlines(steps, bounds.lower, np.minimum(bounds.upper, 2 * top), color=RULE, lw=1.2)
        axes.plot(steps, bounds.upper, "_", color=CELLS, ms=8)
        if bounds.exact is not None and np.isfinite(bounds.exact).any():
            axes.plot(steps, bounds.exact, color=INK, lw=0, marker="x", ms=4)
            keys.append(Key("ink", "cross", "exact ε, from the closed form of the mechanism"))
        for colour, chosen in ((PROVED, ~beyond), (BEYOND, beyond)):
            axes.plot(steps[chosen], bounds.lower[chosen], "o", color=colour, ms=4)
        if bounds.start is not None:
            axes.axvline(bounds.start - 0.5, color=SECOND, lw=1)
            keys.append(Key("second", "tick", f"the first step at which a loss is proved: step {bounds.start}"))
        if claim is not None:
            axes.axhline(claim, color=INK, lw=1, ls=(0, (1, 2)))
            keys.append(Key("ink", "dots", "the claimed ε"))
        axes.set(xlim=(-0.7, steps[-1] + 0.6), ylim=(0, top))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        label(axes, "last released step", EPSILON_LABEL)
    keys += [BEYOND_KEY] if beyond.any() else []
    keys.append(Key("cells", "bar", UPPER_KEY_TEXT))
    final = format_lower(float(bounds.lower[-1]))
    seen = "no loss is proved" if bounds.start is None else f"a loss is proved by step {bounds.start}"
    readout = tuple(
        (
            float(step),
            None,
            f"steps 0 to {step}: ε at least {format_lower(low)}"
            + ("" if high == math.inf else f", over the cells at most {format_upper(high)}"),
        )
        for step, low, high in zip(steps.tolist(), bounds.lower.tolist(), bounds.upper.tolist(), strict=True)
    )
    return Drawing(
        picture,
        title,
        f"Over {steps.size} steps {seen}; in total epsilon is at least {final}.",
        tuple(keys),
        "A longer prefix reveals at least as much as a shorter one, so the lower bound never falls. The two bounds "
        "have different scopes: the grey line between them is not a confidence interval.",
        readout,
    )


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: np.ndarray,
    title: str,
    *,
    names: tuple[str, str] = ("last released step", "record"),
    meaning: str = LOWER_KEY,
    claim: float | None = None,
    largest: float | None = None,
    starts: Sequence[int | None] = (),
) -> Drawing:
    """Draw epsilon for every row and column, with a scale of its colour, and with numbers where they fit.

    Parameters
    ----------
    rows, columns : sequence of str
        The names of the rows and of the columns.
    values : ndarray of shape (rows, columns)
        The epsilons; NaN without an answer, which is drawn as a hollow mark.
    title : str
        The title.
    names : pair of str
        The names of the axes.
    meaning : str
        What the colour stands for.
    claim : float, optional
        The claimed epsilon; larger values are red.
    largest : float, optional
        The value of the strongest colour; by default the largest value.
    starts : sequence of int or None
        The first column of each row with an epsilon above 0, which is marked.
    """
    finite = values[np.isfinite(values)]
    top = max(float(finite.max(initial=0.0)) if largest is None else largest, 1e-12)
    numbered = len(columns) <= MAX_NUMBERED_COLUMNS and len(rows) <= MAX_LABELS
    digits = (2 if len(columns) <= MAX_NUMBERED_COLUMNS // 2 else 1) if numbered else None
    height = FRAME_HEIGHT + (1.4 if numbered else 1.0) * ROW_HEIGHT * len(rows)
    with styled():
        picture = canvas(min(max(height, MIN_HEIGHT), MAX_HEIGHT))
        axes, scale = picture.subplots(1, 2, width_ratios=[30, 1])
        for row, column in np.ndindex(values.shape):
            _draw_heat(axes, row, column, float(values[row, column]), top, claim, digits)
        for row, start in enumerate(starts):
            if start is not None:
                axes.plot([start - 0.5] * 2, [row - 0.46, row + 0.46], color=SECOND, lw=2.2, solid_capstyle="butt")
        every = -(-len(rows) // MAX_LABELS)
        axes.set_yticks(range(0, len(rows), every), [_shorten(name) for name in rows[::every]])
        every = -(-len(columns) // MAX_NUMBERED_COLUMNS)
        axes.set_xticks(range(0, len(columns), every), columns[::every])
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
        axes.tick_params(length=0)
        label(axes, *names)
        for level in range(20):
            opacity = LIGHTEST + (DARKEST - LIGHTEST) * (level + 0.5) / 20
            scale.add_patch(Rectangle((0, level / 20), 1, 1 / 20, color=INK, alpha=opacity, lw=0))
        scale.set(xlim=(0, 1), ylim=(0, 1))
        scale.set_xticks([])
        scale.set_yticks([0, 1], ["0", format_lower(top)])
        scale.yaxis.tick_right()
    void = [name for name, line in zip(rows, values, strict=True) if np.isnan(line).all()]
    finding = f" No answer: {', '.join(void)}." if void else ""
    if finite.size:
        row, column = np.unravel_index(int(np.nanargmax(values)), values.shape)
        finding += (
            f" The largest epsilon is {format_lower(float(values[row, column]))}, for {rows[row]} at {columns[column]}."
        )
    has_beyond = claim is not None and bool((finite > claim).any())
    return Drawing(
        picture,
        title,
        f"{len(rows)} rows ({names[1]}) and {len(columns)} columns ({names[0]}).{finding}",
        (
            Key("ink", "area", f"{meaning}; a stronger colour is larger"),
            *([Key("beyond", "area", f"above the claimed ε = {claim:.4g}")] if has_beyond else []),
            *([Key("second", "tick", "the first value above 0")] if any(start is not None for start in starts) else []),
            *([Key("muted", "hollow", "no answer")] if np.isnan(values).any() else []),
        ),
        readout=tuple(
            (float(column), float(row), f"{rows[row]}, {columns[column]}: {_heat_text(float(values[row, column]))}")
            for row, column in np.ndindex(values.shape)
        ),
    )


def _heat_text(value: float) -> str:
    return "no answer" if math.isnan(value) else f"ε at least {format_lower(value)}"


def _draw_heat(
    axes: Axes, row: int, column: int, value: float, largest: float, claim: float | None, digits: int | None
) -> None:
    """Draw one cell of a heat map; one of value 0 is empty, and one without an answer has a hollow mark."""
    if math.isnan(value):
        axes.plot(column, row, "o", color=MUTED, ms=5, fillstyle="none")
        return
    opacity = LIGHTEST + (DARKEST - LIGHTEST) * min(value / largest, 1.0)
    colour = BEYOND if claim is not None and value > claim else INK
    if value > 0:
        axes.add_patch(Rectangle((column - 0.48, row - 0.45), 0.96, 0.9, color=colour, alpha=opacity, lw=0))
    if digits is not None:
        text_colour = PAPER if value > 0 and opacity > 0.5 else INK
        text = f"{math.floor(value * 10**digits * (1 + 1e-12)) / 10**digits:g}"
        axes.text(column, row, text, ha="center", va="center", fontsize=TEXT_SIZE, color=text_colour)


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def tradeoff(rows: Sequence[ComparisonRow], error_name: str = "error") -> Drawing:
    """Draw privacy against accuracy, with one line for each mechanism on each pair of datasets.

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
            axes.legend(loc="best", fontsize=TEXT_SIZE)
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
    """Group rows by mechanism, and by pair of datasets where there are several."""
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
            fontsize=TEXT_SIZE,
            color=colour,
        )


def _pair_name(row: ComparisonRow) -> str:
    """Return the pair of datasets and its parameters, where the row has them."""
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
        fontsize=TEXT_SIZE,
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
    sizes = np.array([[6.2 * len(text) + 4, 14.2] for text in texts])
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
                fontsize=TEXT_SIZE,
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
        (Key("ink", "dot", "area and number: lower bound on ε, over all events, if the data of this one change"),),
        "A small disc means that a small privacy loss was proved, not that the privacy loss is small.",
    )
