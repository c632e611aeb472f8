"""Rows of many verifications: as a CSV file, as a page, and as aligned text. A column that a row lacks stays empty."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpverify.errors import InputError
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.report import load_pages
from dpverify.util.files import write_text
from dpverify.util.formatting import format_evidence, format_lower, format_upper

Row = dict[str, Any]  # the value of each column
MAX_NAMED = 4  # rows without an answer that a sentence names
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def column_names(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return all columns of the rows, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Write the rows to a CSV file; an existing file is replaced as a whole."""
    write_text(path, csv_text(rows, column_names(rows)))


def csv_text(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Return the rows as CSV text with these columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writerow({name: _quote_formula(name) for name in columns})
    writer.writerows({name: _quote_formula(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _quote_formula(value: object) -> object:
    """Put an apostrophe before a text that a spreadsheet would execute as a formula; numbers stay as they are."""
    if isinstance(value, str) and value.startswith(FORMULA_STARTS) and isinstance(_parse_value(value), str):
        return f"'{value}"
    return value


def read_csv(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Return the rows of a CSV file as text; no row if the file is missing, and only rows that fit its header."""
    try:
        rows = list(csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8"))))
    except (FileNotFoundError, ValueError, csv.Error):
        return []
    return [row for row in rows if None not in row and None not in row.values()]


def parse_row(row: Mapping[str, str]) -> Row:
    """Convert a row of text: numbers become int or float, and an empty text becomes None."""
    return {_unquote_formula(name): _parse_value(_unquote_formula(text)) for name, text in row.items()}


def _unquote_formula(text: str) -> str:
    """Remove the apostrophe that `_quote_formula` has put before a text."""
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA_STARTS) else text


def _parse_value(text: str) -> str | int | float | None:
    """Convert one text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns.

    Examples
    --------
    >>> print("\\n".join(format_table(("pair", "epsilon"), [("first", "1"), ("2", "0.25")])))
      pair   epsilon
      first  1
      2      0.25
    """
    table = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        ("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))).rstrip()
        for line in table
    ]


def is_curve(row: Mapping[str, Any]) -> bool:
    """Return whether the claim of a row is a curve, so that its bounds are not about epsilon at one delta."""
    return row.get("claim") is not None and row.get("epsilon") is None


def row_state(row: Mapping[str, Any]) -> str:
    """Return the verdict of a row, FAILED or TOO_WEAK."""
    if row.get("problem") is not None:
        return "FAILED"
    return row["verdict"] if row.get("too_weak") is None else "TOO_WEAK"


def lower_text(row: Mapping[str, Any]) -> str:
    """Return the lower bound of a row: on the parameter of the claim if it is a curve, otherwise on epsilon.

    Examples
    --------
    >>> lower_text({"claim": "mu", "epsilon": None, "claim_parameter": "mu", "claim_lower": 0.25, "epsilon_lower": 1.0})
    'mu >= 0.25'
    >>> lower_text({"claim": "epsilon 1, delta 0", "epsilon": 1.0, "epsilon_lower": 0.75})
    'epsilon >= 0.75'
    """
    if not is_curve(row):
        return f"epsilon >= {format_lower(row['epsilon_lower'], row.get('epsilon'))}"
    if row.get("claim_lower") is None:
        return "no single parameter"
    return f"{row.get('claim_parameter') or 'parameter'} >= {format_lower(row['claim_lower'])}"


def verdict_text(row: Mapping[str, Any], state: str) -> str:
    """Return the state of a row in words, and how strong the evidence is if its claim is refuted.

    Examples
    --------
    >>> verdict_text({"p_value": 0.02, "alpha": 0.05}, "REFUTED"), verdict_text({}, "NOT_REFUTED")
    ('REFUTED, weak evidence', 'NOT REFUTED')
    """
    evidence = f", {format_evidence(row['p_value'], row['alpha'])}" if state == "REFUTED" and "p_value" in row else ""
    return state.replace("_", " ") + evidence


def upper_text(row: Mapping[str, Any]) -> str:
    """Return the upper bound of a row over the cells; for a curve, whether the claim is shown to hold there.

    Examples
    --------
    >>> upper_text({"claim": "mu", "epsilon": None, "holds_on_cells": True})
    'the claim holds'
    """
    if is_curve(row):
        return "the claim holds" if row.get("holds_on_cells") else "not bounded"
    return f"at most {format_upper(row['epsilon_upper_on_partition'])}"


def bound_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], list[tuple[str, str]]]:
    """Return two headers and two cells per row for the bounds. The cells name the parameter if a claim is a curve."""
    answered = [row if row.get("epsilon_lower") is not None else None for row in rows]
    if not any(map(is_curve, rows)):
        texts = [
            ("", "") if row is None else (lower_text(row)[len("epsilon >= ") :], upper_text(row)[len("at most ") :])
            for row in answered
        ]
        return ("epsilon >=", "over the cells <="), texts
    return ("proved", "over the cells"), [
        ("", "") if row is None else (lower_text(row), upper_text(row)) for row in answered
    ]


def write_comparison(path: str | os.PathLike[str], title: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a page that shows privacy against accuracy (needs `dpverify[report]`).

    The columns are named as in `Report.row`. Columns that begin with "mechanism." or "pair." are parameters. Rows
    without accuracy are left out.
    """
    table = list(rows)
    write_text(
        path, load_pages().comparison(comparison_rows(table), title=title, lead=" ".join(unanswered_sentences(table)))
    )


def unanswered_sentences(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return which rows have no answer, in one sentence for each reason.

    Examples
    --------
    >>> unanswered_sentences([{"mechanism": "sum", "pair": "near", "diagnostic": "SAME_DATA"}])
    ['No answer for sum near: both data sets are equal, so no event can distinguish them.']
    """
    named: dict[str, list[str]] = {}
    for row in rows:
        if row.get("diagnostic") is not None:
            parts = [format_parameter(row.get(name)) for name in ("name", "mechanism", "parameter", "pair")]
            parts += [format_parameter(value) for name, value in row.items() if name.startswith("mechanism.")]
            named.setdefault(row["diagnostic"], []).append(" ".join(filter(None, dict.fromkeys(parts))))
    more = {
        key: f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "" for key, names in named.items()
    }
    return [
        f"No answer for {', '.join(names[:MAX_NAMED])}{more[key]}: {Diagnostic[key].cause}."
        for key, names in named.items()
    ]


def comparison_rows(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the columns that the comparison page shows; raise InputError if no row has an accuracy."""
    compared = [_comparison_row(row) for row in rows if row.get("error_first") is not None]
    if not compared:
        raise InputError("comparison: found no accuracy in any row; expected a truth, or error=, for the mechanisms")
    return compared


def _comparison_row(row: Mapping[str, Any]) -> Row:
    """Return the columns of one row."""
    parameters = {name.partition(".")[2]: value for name, value in row.items() if name.startswith("mechanism.")}
    stated = [f"{name} {format_parameter(value)}" for name, value in parameters.items() if value is not None]
    parameter = next(iter(parameters.values())) if len(parameters) == 1 else ", ".join(stated)
    compared: Row = {
        "mechanism": row["mechanism"],
        "parameter": row.get("parameter", parameter),
        "epsilon_lower": row["epsilon_lower"],
        "epsilon_upper": row["epsilon_upper_on_partition"],
        "error": row["error_first"],
    }
    if row.get("error_first_se") is not None:
        compared["error_se"] = row["error_first_se"]
    compared |= {name: value for name, value in row.items() if name == "pair" or name.startswith("pair.")}
    compared |= {name: row[name] for name in ("seed", "verdict", "delta") if row.get(name) is not None}
    return compared


def format_parameter(value: object) -> str:
    """Return the value of a parameter as the user wrote it.

    Examples
    --------
    >>> format_parameter(3.7306), format_parameter(2.0), format_parameter(None)
    ('3.7306', '2', '')
    """
    return f"{value:.12g}" if isinstance(value, float) else format_value(value)


def format_value(value: object) -> str:
    """Return a value as text; numbers have four digits."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
