"""Conversion of the rows of a study's table to typed values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from dpverify.events.partition import OUTSIDE
from dpverify.paper.measurements import StudyRow
from dpverify.paper.plan import PARAMETER_NAMES
from dpverify.studies.tables import parse_row, read_csv

TABLE_FILE = "table.csv"


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
