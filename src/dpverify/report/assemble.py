"""The parts of a verification that are neither sampling nor statistics: plans before it, and the report after it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.events.partition import FIRST_CELL, Partition, find_atoms, grid
from dpverify.events.region import Region
from dpverify.events.scores import Levels
from dpverify.mechanisms.diagnostics import SAME_DATA
from dpverify.mechanisms.protocol import Mechanism, is_seeded
from dpverify.report.statements import OnAllEvents, OnPartition
from dpverify.sampling.blocks import SampleSource, draw_block
from dpverify.sampling.counts import Counts, occupied_codes
from dpverify.settings import Settings
from dpverify.stats.binomial import lower_limit
from dpverify.util.arrays import is_pytree

REGION_SHARE = 0.1  # of the second budget, for the region's mass; the rest bounds delta on the partition
MAX_PICTURE_RUNS = 400  # points a side in the picture
MAX_PICTURE_NUMBERS = 20_000  # numbers a side in the picture
SMOOTH_CELLS = 1024  # of the grid behind a certificate for all events


def bound_partition(
    partition: Partition | Levels, cells: tuple[Counts, Counts], inside: tuple[Counts, Counts], settings: Settings
) -> OnPartition:
    """The test counts as distinct pairs, and the region's mass: the least of the two sides is fixed, so no split."""
    codes = occupied_codes(*cells)
    c1, c2, number = distinct_pairs(cells[0].of(codes), cells[1].of(codes), settings.test_runs)
    m, alpha = settings.test_runs, settings.alpha
    mass = min(float(lower_limit(counts.of(np.array([1]))[0], m, REGION_SHARE * alpha)) for counts in inside)
    return OnPartition(c1, c2, number, m, (1 - REGION_SHARE) * alpha, partition.n_cells, mass)


UNSEEDED_TEXT = "this mechanism can't be seeded: the numbers can't be repeated run for run"


def distinct_pairs(c1: np.ndarray, c2: np.ndarray, runs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct pairs of counts, and how many cells have each."""
    if runs >= 1 << 31:
        pairs, number = np.unique(np.stack([c1, c2]), axis=1, return_counts=True)
        return pairs[0], pairs[1], number
    # A pair as one number: sorting pairs is slow.
    packed, number = np.unique(c1 * (runs + 1) + c2, return_counts=True)
    return packed // (runs + 1), packed % (runs + 1), number


def make_remarks(
    mechanism: Mechanism, data: tuple[Any, Any], pilot: list[np.ndarray], inside: tuple[Counts, Counts]
) -> tuple[str, ...]:
    """`inside` tells how many test runs lie inside the region: of one output only, that is the output itself."""
    notes = []
    if isinstance(data[0], np.ndarray) and isinstance(data[1], np.ndarray) and np.array_equal(*data):
        notes.append(SAME_DATA)
    constant = len(pilot) == 2 and all((runs == runs[:1]).all() for runs in pilot)
    same = constant and np.array_equal(pilot[0][0], pilot[1][0])
    if same and all(side.codes.min() == 1 for side in inside):
        notes.append("every run of both data sets gave the same output: identical as far as these runs can tell")
    if constant and not same:
        notes.append(
            "all pilot runs of a side gave one output, and the two differ: if deterministic, it breaks every epsilon"
        )
    if not is_seeded(mechanism):
        notes.append(UNSEEDED_TEXT)
    own = getattr(mechanism, "remarks", None)
    said = () if own is None else (sentence for one in data for sentence in own(one))
    return (*notes, *dict.fromkeys(said))


def make_picture(
    source: SampleSource,
    pilot: list[np.ndarray],
    known: dict[tuple[int, int], np.ndarray],
    region: Region,
    partition: Partition | Levels | None,
) -> dict[str, Any]:
    """Some runs of each side; the region unless it is huge; the partition where it is not the witness's own.

    The paper's region needs pilot runs of the first side only: then a few of the second are drawn to be seen, where
    the first look has not drawn (`known`) them.
    """
    number = max(1, min(MAX_PICTURE_RUNS, MAX_PICTURE_NUMBERS // pilot[0][0].size))
    if len(pilot) == 1:
        blocks = [(1, block) for block in range(-(-number // source.block))]
        some = [known[key] if key in known else np.array(draw_block(source, "pilot", *key)) for key in blocks]
        pilot = [*pilot, np.concatenate(some)]
    first, second = (runs[np.isfinite(runs).all(axis=(1, 2))][:number] for runs in pilot)
    small = region.A.size <= MAX_PICTURE_NUMBERS
    return {
        "first": first,
        "second": second,
        "region": region if small else None,
        "partition": partition if small and partition is not None and is_pytree(partition) else None,
    }


class SmoothGrid(NamedTuple):
    """A fine grid on which the log-ratio hardly varies, and by how much at most."""

    grid: Partition
    variation: float


def smooth_grid(
    stated: Any, mechanism: Mechanism, data: tuple[Any, Any], region: Region, points: np.ndarray
) -> tuple[SmoothGrid | None, tuple[str, ...]]:
    """The grid for a certificate over all events, where a Lipschitz constant is stated; and why there is none."""
    if stated is None:
        own = getattr(mechanism, "log_lipschitz", None)
        if own is None:
            return None, ()
        stated = tuple(own(one) for one in data)
    pair = (stated, stated) if np.ndim(stated) == 0 else tuple(stated)
    if len(pair) != 2 or not all(isinstance(x, (int, float, np.number)) and 0 <= x < math.inf for x in pair):
        raise InputError(f"log_lipschitz: found {stated!r}; expected a finite number from 0 up, or one a side")
    flat = points.reshape(len(points), -1)
    if any(map(len, find_atoms(flat))):
        return None, ("values repeat, so there is no density: the stated Lipschitz constant was not used",)
    if flat.shape[1] > 2:
        return None, ("a certificate for all events is of use in one or two dimensions: the constant was not used",)
    resolution = round(SMOOTH_CELLS ** (1 / flat.shape[1]))
    diagonal = float(np.linalg.norm(2 * region.half)) / resolution
    return SmoothGrid(grid(region, points, resolution), (float(pair[0]) + float(pair[1])) * diagonal), ()


def bound_all_events(smooth: SmoothGrid, cells: tuple[Counts, Counts], settings: Settings) -> OnAllEvents:
    """Counts of the bounded cells; what lies outside the region is the rest."""
    codes = occupied_codes(*cells)
    inside = codes[codes >= FIRST_CELL]
    c1, c2 = (counts.of(inside) for counts in cells)
    m = settings.test_runs
    return OnAllEvents(
        c1, c2, (m - int(c1.sum()), m - int(c2.sum())), smooth.variation, m, (1 - REGION_SHARE) * settings.alpha
    )
