"""Events in words and numbers for people."""

from __future__ import annotations

import math

import numpy as np

from dpverify.partition import FIRST, HASHED, NONFINITE, OUTSIDE
from dpverify.selection import Event

PIECES = 4  # longer lists are cut


def figure(x: float) -> str:
    """Four significant digits; infinity spelled out."""
    return "infinity" if x == math.inf else f"{x:.4g}"


def percent(x: float) -> str:
    return f"{100 * x:.3g}%"


def between(name: str, low: float, high: float) -> str:
    if low == high:
        return f"{name} = {figure(low)}"
    if low == -math.inf:
        return f"{name} <= {figure(high)}"
    if high == math.inf:
        return f"{name} > {figure(low)}"
    return f"{figure(low)} < {name} <= {figure(high)}"


def coordinate_names(steps: int, dimension: int) -> list[str]:
    if steps * dimension == 1:
        return ["output"]
    if steps == 1:
        return [f"x{j + 1}" for j in range(dimension)]
    if dimension == 1:
        return [f"step {k}" for k in range(steps)]
    return [f"step {k} x{j + 1}" for k in range(steps) for j in range(dimension)]


def describe(event: Event, examples: np.ndarray) -> str:
    """What the event is; `examples` (pilot runs) stand for cells whose code can't be taken apart."""
    partition = event.partition
    if event.codes.size == 1:
        return _cell(event, int(event.codes[0]), examples)
    if partition.region.centre.size == 1 and partition.size != HASHED:
        return _on_a_line(event, examples)
    return f"a union of {event.codes.size} of the partition's {cell_number(partition.number)} cells"


def cell_number(number: int) -> str:
    return f"{number:,}".replace(",", " ") if number < 10**9 else f"{float(number):.1e}" if number < 10**300 else "countless"


def _cell(event: Event, code: int, examples: np.ndarray) -> str:
    partition = event.partition
    if partition.size != HASHED and code < FIRST:
        return {OUTSIDE: "an estimate outside the high-likely region", NONFINITE: "an estimate with NaN or infinity"}[code]
    box = partition.box(code, examples)
    if box is None:
        return "one cell of the partition, not among the pilot runs"
    names = coordinate_names(*partition.region.centre.shape)
    limits = [between(n, lo, hi) for n, lo, hi in zip(names, *box, strict=True) if lo > -math.inf or hi < math.inf]
    if not limits:
        return "an estimate inside the high-likely region"
    if len(limits) > 2 * PIECES:
        limits = limits[: 2 * PIECES] + [f"and {len(limits) - 2 * PIECES} more"]
    return ", ".join(limits) + ("" if partition.region.centre.size == 1 else " (inside the high-likely region)")


def _on_a_line(event: Event, examples: np.ndarray) -> str:
    """One coordinate: neighbouring intervals are joined."""
    partition = event.partition
    bottom = float((partition.region.centre - partition.region.half).ravel()[0])
    top = float((partition.region.centre + partition.region.half).ravel()[0])
    intervals, points, others = [], [], []
    for code in event.codes.tolist():
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
    joined: list[list[float]] = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], high)
        else:
            joined.append([low, high])
    pieces = [between("output", *interval) for interval in joined]
    if points:
        pieces.append(f"output = {', '.join(figure(p) for p in sorted(points)[: 2 * PIECES])}")
        if len(points) > 2 * PIECES:
            pieces[-1] += f" and {len(points) - 2 * PIECES} more values"
    pieces += others
    if len(pieces) > PIECES:
        pieces = pieces[:PIECES] + [f"{len(pieces) - PIECES} more pieces"]
    return " or ".join(pieces)
