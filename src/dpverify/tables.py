"""Rows of many verifications as a file: CSV, or a plain page. Rows are dicts; a column that a row lacks stays empty."""

from __future__ import annotations

import csv
import html
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpverify.errors import InputError
from dpverify.store import replace_file

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#222}table{border-collapse:collapse}"
    "th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right;vertical-align:bottom}"
    "th:first-child,td:first-child{text-align:left}"
)


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """All columns, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """`columns` come first. The file is replaced as a whole."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys([*columns, *columns_of(rows)])), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def read_csv(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """The rows of a table as they are written, none where there is no table."""
    try:
        return list(csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8"))))
    except FileNotFoundError:
        return []


def typed(row: Mapping[str, str]) -> dict[str, Any]:
    """A row that was read: None where it is empty, numbers where it has numbers."""
    return {name: _value(text) for name, text in row.items()}


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def write_html(path: str | os.PathLike[str], title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A page with one table; everything in it is escaped."""
    columns = columns_of(rows)
    headings = (f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in columns)
    lines = [f"<tr>{''.join(headings)}</tr>"]
    for row in rows:
        cells = (f"<td>{html.escape(shown(row.get(name)))}</td>" for name in columns)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
    body = f"<style>{STYLE}</style><h1>{html.escape(title)}</h1><table>{''.join(lines)}</table></html>"
    write_text(path, head + body + "\n")


def shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    try:
        replace_file(Path(path), text.encode())
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}; expected a place that can be written") from None
