"""Comparison of every printed number with the measured one: medians and ranges over seeds, and certified bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dpverify.paper.measurements import StudyRow, StudyTables, select_rows
from dpverify.paper.printed import CELL_MECHANISMS, PrintedCell, PrintedGrid, read_printed
from dpverify.paper.reading_fit import summarise
from dpverify.paper.reading_results import Summary


class Measured(NamedTuple):
    """The paper's numbers as measured by the paper's procedure, over seeds.

    `worst_outside` is the share of verifications whose selected event is the complement of the region.
    """

    epsilon_c: Summary
    error: Summary
    error_adjacent: Summary
    eta: Summary
    lambda_: Summary
    worst_outside: float


class Certified(NamedTuple):
    """The library's own bounds at delta 0: over all events from below, over unions of cells from above."""

    epsilon_lower: float
    epsilon_upper_on_partition: float


class CellComparison(NamedTuple):
    """A printed cell with the measurements of one mechanism; the W2-MHE has one for each output distribution."""

    printed: PrintedCell
    mechanism: str
    measured: Measured
    certified: Certified | None


class GridComparison(NamedTuple):
    """A printed critical epsilon on a finer grid with the measurements of one mechanism."""

    printed: PrintedGrid
    mechanism: str
    cells: int
    measured: Measured


def compare_cells(tables: StudyTables) -> list[CellComparison]:
    """Return a comparison for each printed cell and mechanism that was measured."""
    comparisons = []
    for cell in read_printed().cells:
        study = f"critical-{cell.setup}" if cell.setup == "Q1" else f"tables-{cell.setup}"
        for mechanism in CELL_MECHANISMS[cell.mechanism]:
            rows = select_rows(tables, study, mechanism, cell.value)
            certified = select_rows(tables, f"certified-{cell.setup}", mechanism, cell.value)
            if rows:
                comparisons.append(CellComparison(cell, mechanism, _measured(rows), _certified(certified)))
    return comparisons


def compare_grids(tables: StudyTables) -> list[GridComparison]:
    """Return a comparison for each printed grid (T = 7, Q2) and mechanism that was measured."""
    comparisons = []
    for grid in read_printed().finer:
        for mechanism in CELL_MECHANISMS["W2-MHE"]:
            rows = select_rows(tables, f"finer-Q2-r{grid.r}", mechanism)
            if rows:
                cells = max(row.cells for row in rows)
                comparisons.append(GridComparison(grid, mechanism, cells, _measured(rows)))
    return comparisons


def _measured(rows: Sequence[StudyRow]) -> Measured:
    """Summarise the verifications of one mechanism over seeds."""
    return Measured(
        epsilon_c=summarise([row.epsilon_critical for row in rows]),
        error=summarise([row.error_first for row in rows]),
        error_adjacent=summarise([row.error_second for row in rows]),
        eta=summarise([row.eta for row in rows]),
        lambda_=summarise([row.lambda_ for row in rows]),
        worst_outside=sum(row.worst_outside for row in rows) / len(rows),
    )


def _certified(rows: Sequence[StudyRow]) -> Certified | None:
    """Return the bounds of the study `certified`, which has one seed."""
    return Certified(rows[0].epsilon_lower, rows[0].epsilon_upper_on_partition) if rows else None
