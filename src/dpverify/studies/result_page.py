"""Parts of the pages of many verifications, which studies, checks and comparisons share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from dpverify.errors import InputError, how_to_install
from dpverify.report.report import Report
from dpverify.studies.tables import Row, format_value, is_curve, lower_text, upper_text, verdict_text
from dpverify.util.formatting import format_lower, format_upper

if TYPE_CHECKING:
    from dpverify.render.results import Cell
    from dpverify.render.style import Drawing

STATES = ("REFUTED", "FAILED", "NO_ANSWER", "TOO_WEAK", "NOT_REFUTED", "CERTIFIED", "MEASURED")  # the worst first
PAGES_FOLDER = "pages"


def load_results() -> ModuleType:
    """Return the module that draws the page; raise InputError if a package is missing."""
    try:
        from dpverify.render import results
    except ImportError as problem:
        raise InputError(f"a page: {problem}; expected matplotlib and Jinja2; {how_to_install('report')}") from None
    return results


def write_report_page(folder: Path, name: str, row: Row) -> str:
    """Write the page of a row's report unless it exists for this digest, and return its path in the folder."""
    page = f"{PAGES_FOLDER}/{name}-{row['digest'][:12]}.html"
    if not (folder / page).exists():
        (folder / PAGES_FOLDER).mkdir(exist_ok=True)
        Report.from_json(folder / row["report"]).to_html(folder / page)
    return page


def bounds_drawings(rows: Sequence[Row], names: Sequence[str], claim: float | None) -> list[Drawing]:
    """Return the figure of all bounds; no figure without an answer. Without a common claim, each row has its own."""
    from dpverify.render.bounds import Bounds, draw_bounds

    bounds = [
        Bounds(
            name,
            float(row["epsilon_lower"]),
            float(row["epsilon_upper_on_partition"]),
            None,
            row.get("epsilon") if claim is None else None,
        )
        for row, name in zip(rows, names, strict=True)
        if row.get("epsilon_lower") is not None and not is_curve(row)
    ]
    return [draw_bounds(bounds, "Bounds on ε", "", claim)] if bounds else []


def number_cell(value: float | None, shown: Callable[[float], str]) -> Cell:
    """Return the cell of a number; a missing or infinite one is sorted last."""
    from dpverify.render.results import Cell

    if value is None:
        return Cell("", "1e999")
    return Cell("none" if value == float("inf") else shown(value), repr(float(value)).replace("inf", "1e999"))


def bound_headers(rows: Sequence[Row]) -> tuple[str, str]:
    """Return the headers of the two bounds; the cells name the parameter if the claim of a row is a curve."""
    if any(map(is_curve, rows)):
        return "proved", "over the cells"
    return "ε at least", "ε at most (over the cells)"


def bound_cells(row: Row) -> tuple[Cell, Cell]:
    """Return the cells of the lower and of the upper bound; for a curve they are about the claim's own parameter."""
    from dpverify.render.results import Cell

    if is_curve(row) and row.get("epsilon_lower") is not None:
        lower = row.get("claim_lower")
        return Cell(lower_text(row), "1e999" if lower is None else repr(float(lower))), text_cell(upper_text(row))
    low, high = row.get("epsilon_lower"), row.get("epsilon_upper_on_partition")
    return number_cell(low, lambda value: format_lower(value, row.get("epsilon"))), number_cell(high, format_upper)


def text_cell(value: object) -> Cell:
    from dpverify.render.results import Cell

    return Cell(format_value(value), format_value(value))


def verdict_cell(row: Row, state: str) -> Cell:
    from dpverify.render.results import Cell

    return Cell(verdict_text(row, state), str(STATES.index(state)), "", state)
