"""Figures of many verifications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dpverify.errors import InputError
from dpverify.report.report import load_pages
from dpverify.studies.tables import comparison_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_comparison(rows: Iterable[Mapping[str, Any]]) -> Figure:
    """Return a figure of privacy against accuracy; rows as in `Report.row`."""
    pages = load_pages()
    return pages.complete_figure(pages.tradeoff(comparison_rows(rows)))


def plot_bounds(
    rows: Iterable[Mapping[str, Any]],
    names: Iterable[str],
    title: str,
    claim: float | None = None,
    axis: str = "",
    positions: Iterable[float] | None = None,
) -> Figure:
    """Return a figure of the bounds of many verifications; those without an answer are counted in the title only.

    Parameters
    ----------
    rows : iterable of mappings
        The columns of `Report.row`.
    names : iterable of str
        The name of each row.
    title : str
        The title.
    claim : float or None
        The claimed epsilon.
    axis : str
        The name of the positions.
    positions : iterable of float, optional
        The value of each row on the axis; without it the rows are drawn one below the other.

    Raises
    ------
    InputError
        If matplotlib is not installed, or no verification has an answer.
    """
    pages = load_pages()
    table = list(rows)
    places = [None] * len(table) if positions is None else list(positions)
    bounds = [
        pages.Bounds(name, float(row["epsilon_lower"]), float(row["epsilon_upper_on_partition"]), place)
        for row, name, place in zip(table, names, places, strict=True)
        if row["epsilon_lower"] is not None
    ]
    if not bounds:
        raise InputError("plot: found no verification with an answer; expected at least one")
    if len(bounds) < len(table):
        title += f" ({len(table) - len(bounds)} without an answer)"
    return pages.complete_figure(pages.draw_bounds(bounds, title, axis, claim))
