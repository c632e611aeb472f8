"""The rows of the reproduction's studies, as typed values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dpverify.events.partition import OUTSIDE
from dpverify.paper.plan import PARAMETER_NAMES
from dpverify.studies.tables import parse_row, read_csv

TABLE_FILE = "table.csv"


class StudyRow(NamedTuple):
    """One verification of a study.

    Attributes
    ----------
    mechanism, parameter : str, float
        The mechanism of `experiment.py`, and the value of its parameter.
    moved_sensor : int or None
        The sensor that moves, where the study varies it.
    epsilon_critical, eta, lambda_ : float
        The paper's numbers.
    epsilon_lower, epsilon_upper_on_partition : float
        The lower bound over all events, and the upper bound over unions of cells.
    error_first, error_second : float
        Mean errors under the first and the second data set.
    cells : int
        Cells of the partition.
    counts, test_runs : tuple of int, int
        Counts of the selected event, and test runs per data set.
    worst_outside : bool
        Whether the selected event is the complement of the region.
    """

    mechanism: str
    parameter: float
    moved_sensor: int | None
    epsilon_critical: float
    eta: float
    lambda_: float
    epsilon_lower: float
    epsilon_upper_on_partition: float
    error_first: float
    error_second: float
    cells: int
    counts: tuple[int, int]
    test_runs: int
    worst_outside: bool


StudyTables = Mapping[str, Sequence[StudyRow]]  # by the name of the study


def read_study_table(folder: Path) -> tuple[StudyRow, ...]:
    """Return the rows of a finished study."""
    return typed_rows(parse_row(row) for row in read_csv(folder / TABLE_FILE))


def typed_rows(rows: Iterable[Mapping[str, object]]) -> tuple[StudyRow, ...]:
    """Return the rows of a study's table as typed values, without the verifications that failed."""
    return tuple(_typed_row(row) for row in rows if not row["problem"])


def _typed_row(row: Mapping[str, object]) -> StudyRow:
    """Convert one row of a study's table."""
    mechanism = str(row["mechanism"])
    moved = row.get("pair.move")
    return StudyRow(
        mechanism=mechanism,
        parameter=_number(row, f"mechanism.{PARAMETER_NAMES[mechanism]}"),
        moved_sensor=moved if isinstance(moved, int) else None,
        epsilon_critical=_number(row, "epsilon_critical"),
        eta=_number(row, "eta"),
        lambda_=_number(row, "lambda"),
        epsilon_lower=_number(row, "epsilon_lower"),
        epsilon_upper_on_partition=_number(row, "epsilon_upper_on_partition"),
        error_first=_number(row, "error_first"),
        error_second=_number(row, "error_second"),
        cells=int(_number(row, "cells")),
        counts=(int(_number(row, "c1")), int(_number(row, "c2"))),
        test_runs=int(_number(row, "test_runs")),
        worst_outside=row.get("witness_cell") == OUTSIDE,
    )


def _number(row: Mapping[str, object], name: str) -> float:
    """Return a number of a row; NaN where the row has none."""
    value = row[name]
    return float(value) if isinstance(value, int | float) else math.nan


def select_rows(tables: StudyTables, study: str, mechanism: str, parameter: float | None = None) -> list[StudyRow]:
    """Return the rows of one mechanism in one study; `parameter` None takes every parameter value."""
    return [
        row
        for row in tables.get(study, ())
        if row.mechanism == mechanism and (parameter is None or row.parameter == parameter)
    ]
