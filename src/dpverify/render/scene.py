"""What a report keeps to be drawn: runs of both data sets, the region, the cells, the witness."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.events.cells import Bins, Edges
from dpverify.events.partition import Partition
from dpverify.events.region import Region
from dpverify.events.scores import Levels
from dpverify.render.style import Key
from dpverify.report.report import Report
from dpverify.report.statements import Witness
from dpverify.util.arrays import is_pytree

PANELS = 6  # steps, or coordinates, that are drawn one by one
OWN = "(in its own unit)"
KEYS = (Key("first", "dot", "first data set"), Key("second", "dot", "second data set"))
SOLID = Key("ink", "solid", "solid: inside the witness")


class Scene(NamedTuple):
    """What a report keeps to be drawn: runs of both sides (n, K, d), and which of them are inside the witness."""

    sides: tuple[np.ndarray, np.ndarray]
    inside: tuple[np.ndarray, np.ndarray]
    region: Region | None
    partition: Partition | Levels
    witness: Witness
    cells: int
    known: bool  # whether the witness is plain data: a user's own score is in no report

    @property
    def shape(self) -> tuple[int, int]:
        return self.sides[0].shape[1], self.sides[0].shape[2]

    @property
    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        first, second = (side.reshape(len(side), math.prod(self.shape)) for side in self.sides)
        return first, second

    @property
    def runs(self) -> str:
        one, two = map(len, self.sides)
        if one == two:
            return f"{one} pilot runs of each data set"
        return f"{one} finite pilot runs of the first, {two} of the second data set"

    @property
    def keys(self) -> tuple[Key, ...]:
        return (*KEYS, SOLID) if self.known else KEYS


def make_scene(report: Report) -> Scene:
    picture, witness, event = report.picture, report.witness, report.witness.event
    known = is_pytree(event.partition)
    try:
        first, second = (
            np.asarray([] if (runs := picture.get(side)) is None else runs, float).reshape(-1, *witness.shape)
            for side in ("first", "second")
        )
        inside = [event.contains(side) if known and len(side) else np.ones(len(side), bool) for side in (first, second)]
    except (TypeError, ValueError, IndexError, AttributeError) as problem:
        raise InputError(f"picture: found what can't be drawn ({problem}); expected runs of the mechanism") from None
    partition = picture.get("partition") or event.partition
    cells = report.on_partition.cells
    return Scene((first, second), (inside[0], inside[1]), picture.get("region"), partition, witness, cells, known)


def differing(s: Scene) -> np.ndarray:
    """How far apart the two sides are in each coordinate, (K, d): means in standard deviations, and spreads."""
    first, second = (side if len(side) else np.zeros((1, *s.shape)) for side in s.sides)
    pooled = np.concatenate([first - first.mean(0), second - second.mean(0)]).std(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(first.mean(0) - second.mean(0)) / pooled
        wider = np.abs(np.log(first.std(0) / second.std(0)))
    return np.nan_to_num(apart, posinf=1e9) + np.nan_to_num(wider, posinf=0.0, neginf=0.0)


def heaviest(weights: np.ndarray, number: int) -> list[int]:
    """The places of the largest, in their own order."""
    return sorted(np.argsort(-weights, kind="stable")[:number].tolist())


def cuts_of(partition: Partition | Levels, coordinate: int) -> np.ndarray:
    """Where a coordinate is cut, in a partition that cuts each on its own."""
    if not isinstance(partition, Partition):
        return np.zeros(0)
    cells = partition.cells
    if isinstance(cells, Edges):
        cuts = cells.edges[coordinate]
    elif isinstance(cells, Bins) and cells.scale[coordinate] > 0:
        cuts = cells.low[coordinate] + np.arange(1, int(cells.top[coordinate]) + 1) / cells.scale[coordinate]
    else:
        cuts = np.zeros(0)
    return cuts[np.isfinite(cuts)][:200]


def in_sight(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Limits for an axis, drawn in where heavy tails would push the bulk of the values (n, ...) out of sight."""
    first, third = np.quantile(values, [0.25, 0.75], axis=0)
    far = np.where(third > first, 6 * (third - first), np.inf)
    low, high = np.maximum(low, first - far), np.minimum(high, third + far)
    pad = np.where(high > low, 0.05 * (high - low), 0.5)
    return low - pad, high + pad
