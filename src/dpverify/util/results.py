"""Rows as CSV, as a pandas DataFrame and in a notebook: the forms that every result has in common."""

from __future__ import annotations

import csv
import html
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dpverify.errors import InputError
from dpverify.util.files import write_text

if TYPE_CHECKING:
    import pandas

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class Tabular:
    """A result with rows and a page; it is written as CSV, becomes a DataFrame, and shows its page in a notebook."""

    def table_rows(self) -> Sequence[Mapping[str, object]]:
        """Return the rows."""
        raise NotImplementedError

    def page_html(self) -> str:
        """Return the page as HTML (needs `dpverify[report]`)."""
        raise NotImplementedError

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write all columns of the rows as a CSV file."""
        write_csv(path, self.table_rows())

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, one column per name (needs pandas)."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_dataframe needs pandas: pip install pandas") from None
        return pandas.DataFrame([dict(row) for row in self.table_rows()])

    def _repr_html_(self) -> str | None:
        """Return the page in a frame for notebooks, or None (then the text is shown) if it cannot be drawn."""
        try:
            page = self.page_html()
        except InputError:
            return None
        return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 45rem; border: 0"></iframe>'


def column_names(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return all columns of the rows, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Write the rows to a CSV file; an existing file is replaced as a whole. A column that a row lacks stays empty."""
    text, columns = io.StringIO(), column_names(rows)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writerow({name: _quote_formula(name) for name in columns})
    writer.writerows({name: _quote_formula(value) for name, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


def _quote_formula(value: object) -> object:
    """Put an apostrophe before a text that a spreadsheet would execute as a formula; numbers stay as they are."""
    if not isinstance(value, str) or not value.startswith(FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
