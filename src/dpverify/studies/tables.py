"""Rows of many verifications as a file: CSV, or a page. Rows are dicts; a column that a row lacks stays empty."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpverify.errors import InputError
from dpverify.util.files import write_text


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """All columns, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """`columns` come first. The file is replaced as a whole."""
    write_text(path, csv_text(rows, columns))


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys([*columns, *columns_of(rows)])), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_csv(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """The rows of a table as they are written, none where there is no table, and no row that does not fit its head."""
    try:
        rows = list(csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8"))))
    except (FileNotFoundError, ValueError, csv.Error):
        return []
    return [row for row in rows if None not in row and None not in row.values()]


def parse_row(row: Mapping[str, str]) -> dict[str, Any]:
    """A row that was read: None where it is empty, numbers where it has numbers."""
    return {name: _value(text) for name, text in row.items()}


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def write_comparison(path: str | os.PathLike[str], title: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Privacy against accuracy on one page (needs `dpverify[report]`); rows as `Report.row` names their columns.

    Columns that begin with "mechanism." or "pair." are parameters. Rows without accuracy are left out.
    """
    try:
        from dpverify.render.page import comparison
    except ImportError as problem:
        raise InputError(f"a page: {problem}; expected matplotlib and Jinja2; install dpverify[report]") from None
    known = [_compared(row) for row in rows if row.get("error_first") is not None]
    if not known:
        raise InputError("a comparison: found no accuracy in any row; expected a truth, or error=, for the mechanisms")
    write_text(path, comparison(known, title=title))


def _compared(row: Mapping[str, Any]) -> dict[str, Any]:
    stated = {name.partition(".")[2]: value for name, value in row.items() if name.startswith("mechanism.")}
    named = ", ".join(f"{name} {format_value(value)}" for name, value in stated.items() if value is not None)
    own = next(iter(stated.values())) if len(stated) == 1 else named
    return {
        "mechanism": row["mechanism"],
        "parameter": row.get("parameter", own),
        "epsilon_lower": row["epsilon_lower"],
        "epsilon_upper": row["epsilon_upper_on_partition"],
        "error": row["error_first"],
        **({"error_se": row["error_first_se"]} if row.get("error_first_se") is not None else {}),
        **{name: value for name, value in row.items() if name == "pair" or name.startswith("pair.")},
        **{name: row[name] for name in ("seed", "verdict", "delta") if row.get(name) is not None},
    }


def format_value(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
