"""Rows as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dpverify.errors import InputError

if TYPE_CHECKING:
    import pandas


def make_dataframe(rows: Iterable[Mapping[str, object]]) -> pandas.DataFrame:
    """Return rows as a DataFrame, one column per name.

    Raises
    ------
    InputError
        If pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise InputError("to_dataframe needs pandas: pip install pandas") from None
    return pandas.DataFrame([dict(row) for row in rows])
