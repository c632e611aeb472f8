"""Events in words and numbers for people."""

from __future__ import annotations

import math

import numpy as np

from dpverify.events.event import Event
from dpverify.events.partition import FIRST_CELL, HASHED_SIZE, NONFINITE, OUTSIDE, Partition
from dpverify.events.scores import (
    Additive,
    CellScore,
    Levels,
    Linear,
    Patterned,
    Piecewise,
    Quadratic,
    Score,
    UserScore,
)
from dpverify.util.formatting import format_cell_count, format_number
from dpverify.util.intervals import merge_intervals

MAX_LISTED_PIECES = 4  # longer lists are cut
OUTSIDE_TEXT = "an estimate outside the high-likely region"


def describe_interval(name: str, low: float, high: float) -> str:
    if low == high:
        return f"{name} = {format_number(low)}"
    if np.nextafter(low, math.inf) == high:  # the bin of an atom
        return f"{name} = {format_number(high)}"
    if low == -math.inf:
        return f"{name} <= {format_number(high)}"
    if high == math.inf:
        return f"{name} > {format_number(low)}"
    return f"{format_number(low)} < {name} <= {format_number(high)}"


def coordinate_names(steps: int, dimension: int) -> list[str]:
    """As they are indexed: steps and coordinates count from 0."""
    if steps * dimension == 1:
        return ["output"]
    if steps == 1:
        return [f"x[{j}]" for j in range(dimension)]
    if dimension == 1:
        return [f"step {k}" for k in range(steps)]
    return [f"step {k} x[{j}]" for k in range(steps) for j in range(dimension)]


def describe(event: Event, examples: np.ndarray) -> str:
    """What the event is; `examples` (pilot runs) stand for cells whose code can't be taken apart, and for the shape."""
    if isinstance(event.partition, Levels):
        return _levels(event, event.partition, examples)
    return _cells(event.partition, event.codes, examples)


def _cells(partition: Partition | Levels, codes: np.ndarray, examples: np.ndarray) -> str:
    if isinstance(partition, Levels):
        number = "one" if codes.size == 1 else f"a union of {codes.size}"
        return f"{number} of the {partition.number} level sets of {_score(partition.score, examples)}"
    if codes.size == 1:
        return _cell(partition, int(codes[0]), examples)
    if partition.region.centre.size == 1 and partition.size != HASHED_SIZE:
        return _on_a_line(partition, codes, examples)
    return f"a union of {codes.size} of the partition's {format_cell_count(partition.number)} cells"


def _levels(event: Event, levels: Levels, examples: np.ndarray) -> str:
    above = event.codes[-1] == levels.size - 1 and event.codes.size < levels.size
    threshold = levels.edges[event.codes[0] - 1] if above else levels.edges[min(event.codes[-1], levels.edges.size - 1)]
    score, names = levels.score, coordinate_names(*examples.shape[1:])
    if isinstance(score, CellScore):
        inside = np.isin(np.searchsorted(levels.edges, score.numbers), event.codes)
        if np.isin(np.searchsorted(levels.edges, score.other), event.codes):
            outside = score.cells[~inside]
            return f"anything but {_cells(score.partition, outside, examples)}" if outside.size else "any estimate"
        return _cells(score.partition, score.cells[inside], examples)
    if isinstance(score, Linear) and score.weights.size == 1 and score.weights[0]:
        cut = float(threshold / score.weights[0])
        high = above == (score.weights[0] > 0)
        return describe_interval("output", cut, math.inf) if high else describe_interval("output", -math.inf, cut)
    if isinstance(score, Additive) and score.features.whiten is None and score.coordinates.size == 1:
        inside = np.isin(np.searchsorted(levels.edges, score.steps[0]), event.codes)
        ends = np.concatenate([[-math.inf], score.edges[0], [math.inf]])
        pieces = [(float(ends[i]), float(ends[i + 1])) for i in np.flatnonzero(inside) if ends[i] < ends[i + 1]]
        return _joined(pieces, names[int(score.coordinates[0])])
    if isinstance(score, UserScore):
        return f"the given score {'>' if above else '<='} {format_number(float(threshold))}"
    return f"{_score(score, examples)} {'>' if above else '<='} {format_number(float(threshold))}"


def _score(score: Score, examples: np.ndarray) -> str:
    """What kind of score it is, and of which coordinates."""
    kinds = {
        Linear: "a linear",
        Quadratic: "a quadratic",
        Additive: "an additive",
        Piecewise: "a piecewise linear",
        Patterned: "a pattern by pattern",
    }
    return f"{kinds[type(score)]} score of {_mostly(score, coordinate_names(*examples.shape[1:]))}"


def _mostly(score: Score, names: list[str]) -> str:
    """The coordinates that a score looks at, the heaviest of them by name."""
    if isinstance(score, Linear):
        weight, at = np.abs(score.weights), np.arange(score.weights.size)
    elif isinstance(score, Additive):
        weight, at = np.ptp(score.steps, axis=1), score.coordinates
    elif isinstance(score, Piecewise):
        weight, at = np.ptp(score.heights, axis=1) + np.ptp(score.atom_heights, axis=1), np.arange(len(score.knots))
    else:
        return f"{len(names)} coordinates"
    heavy = at[np.argsort(-weight, kind="stable")]
    if weight.size == 1:
        return names[int(heavy[0])]
    return f"{weight.size} coordinates (most on {', '.join(names[int(j)] for j in heavy[:2])})"


def _cell(partition: Partition, code: int, examples: np.ndarray) -> str:
    if partition.size != HASHED_SIZE and code < FIRST_CELL:
        return {OUTSIDE: OUTSIDE_TEXT, NONFINITE: "an estimate with NaN or infinity"}[code]
    box = partition.box(code, examples)
    if box is None:
        return "one cell of the partition, not among the pilot runs"
    names = coordinate_names(*partition.region.centre.shape)
    limits = [
        describe_interval(n, lo, hi) for n, lo, hi in zip(names, *box, strict=True) if lo > -math.inf or hi < math.inf
    ]
    if not limits:
        return "an estimate inside the high-likely region"
    if len(limits) > 2 * MAX_LISTED_PIECES:
        limits = limits[: 2 * MAX_LISTED_PIECES] + [f"and {len(limits) - 2 * MAX_LISTED_PIECES} more"]
    return ", ".join(limits) + ("" if partition.region.centre.size == 1 else " (inside the high-likely region)")


def _on_a_line(partition: Partition, codes: np.ndarray, examples: np.ndarray) -> str:
    """One coordinate: neighbouring intervals are joined."""
    bottom = float((partition.region.centre - partition.region.half).ravel()[0])
    top = float((partition.region.centre + partition.region.half).ravel()[0])
    intervals, points, others = [], [], []
    for code in codes.tolist():
        if code == NONFINITE:
            others.append("output is NaN or infinite")
        elif code == OUTSIDE:
            intervals += [(-math.inf, bottom), (top, math.inf)]
        else:
            low, high = (float(limit[0]) for limit in partition.box(code, examples) or ([-math.inf], [math.inf]))
            if low == high:
                points.append(low)
            else:
                intervals.append((max(low, bottom), min(high, top)))
    if points:
        values = ", ".join(format_number(p) for p in sorted(points)[: 2 * MAX_LISTED_PIECES])
        more = f" and {len(points) - 2 * MAX_LISTED_PIECES} more values" if len(points) > 2 * MAX_LISTED_PIECES else ""
        others.insert(0, f"output = {values}{more}")
    return _joined(intervals, "output", others)


def _joined(intervals: list[tuple[float, float]], name: str, others: list[str] | None = None) -> str:
    pieces = [describe_interval(name, low, high) for low, high in merge_intervals(intervals)] + (others or [])
    if len(pieces) > MAX_LISTED_PIECES:
        pieces = pieces[:MAX_LISTED_PIECES] + [f"{len(pieces) - MAX_LISTED_PIECES} more pieces"]
    return " or ".join(pieces)
