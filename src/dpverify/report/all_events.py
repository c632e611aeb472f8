"""The upper bound over all events, from a Lipschitz constant of the log-density that the user states.

Before the test runs, the region is divided into a fine grid. Within a cell of this grid the log-ratio of the two
densities varies by at most the sum of both constants times the diagonal of the cell (docs/method.md, section 5).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.events.cells import find_atoms
from dpverify.events.partition import FIRST_CELL, Partition, grid
from dpverify.events.region import Region
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import Mechanism
from dpverify.report.evaluate import REGION_SHARE
from dpverify.report.statements import OnAllEvents
from dpverify.sampling.counts import Counts, occupied_codes
from dpverify.settings import Settings

SMOOTH_GRID_CELLS = 1024
MAX_LIPSCHITZ_DIMENSION = 2


class SmoothGrid(NamedTuple):
    """A fine grid, and the largest variation of the log-ratio of the densities within one of its cells."""

    grid: Partition
    variation: float


def smooth_grid(
    stated: float | tuple[float, float] | None,
    mechanism: Mechanism,
    data: tuple[object, object],
    region: Region,
    points: np.ndarray,
) -> tuple[SmoothGrid | None, tuple[Diagnostic, ...]]:
    """Return the grid for a bound over all events, and the diagnostics that explain why there is none.

    Parameters
    ----------
    stated : float, pair of float, or None
        The Lipschitz constant of the log-density, for both data sets or one for each. None uses the attribute
        `log_lipschitz` of the mechanism; without this attribute there is no grid and no diagnostic.
    mechanism, data
        The mechanism and its two data sets.
    region : Region
        The region that the grid divides.
    points : array, shape (n, K, d)
        The finite pilot runs from which the region was made.
    """
    constants = lipschitz_constants(stated, mechanism, data)
    if constants is None:
        return None, ()
    flat = points.reshape(len(points), -1)
    dimension = flat.shape[1]
    if any(map(len, find_atoms(flat))):
        return None, (Diagnostic.NO_DENSITY,)
    if dimension > MAX_LIPSCHITZ_DIMENSION:
        return None, (Diagnostic.LIPSCHITZ_DIMENSION,)
    resolution = round(SMOOTH_GRID_CELLS ** (1 / dimension))
    diagonal = float(np.linalg.norm(2 * region.half)) / resolution
    return SmoothGrid(grid(region, points, resolution), (constants[0] + constants[1]) * diagonal), ()


def lipschitz_constants(
    stated: float | tuple[float, float] | None, mechanism: Mechanism, data: tuple[object, object]
) -> tuple[float, float] | None:
    """Return the stated Lipschitz constants, one for each data set, or None if none is stated."""
    if stated is None:
        own = getattr(mechanism, "log_lipschitz", None)
        if own is None:
            return None
        stated = own(data[0]), own(data[1])
    pair = (stated, stated) if np.ndim(stated) == 0 else tuple(stated)  # type: ignore[arg-type]
    if len(pair) != 2 or not all(isinstance(x, (int, float, np.number)) and 0 <= x < math.inf for x in pair):
        raise InputError(
            f"log_lipschitz: found {stated!r}; expected a finite number from 0 up, or one for each data set"
        )
    return float(pair[0]), float(pair[1])  # type: ignore[arg-type]


def bound_all_events(smooth: SmoothGrid, cells: tuple[Counts, Counts], settings: Settings) -> OnAllEvents:
    """Return the statement about all events from the test counts of the grid's cells."""
    codes = occupied_codes(*cells)
    bounded = codes[codes >= FIRST_CELL]
    c1, c2 = (counts.of(bounded) for counts in cells)
    runs = settings.test_runs
    rest = runs - int(c1.sum()), runs - int(c2.sum())
    return OnAllEvents(c1, c2, rest, smooth.variation, runs, (1 - REGION_SHARE) * settings.alpha)
