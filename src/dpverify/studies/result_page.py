"""Parts of the pages of many verifications, which studies, checks and comparisons share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpverify.report.report import Report, load_pages
from dpverify.studies.tables import Row, format_value, is_curve, lower_text, upper_text, verdict_text
from dpverify.util.formatting import format_lower, format_upper

if TYPE_CHECKING:
    from dpverify.render.builder import Cell, Section
    from dpverify.render.style import Drawing

STATES = ("REFUTED", "FAILED", "NO_ANSWER", "TOO_WEAK", "NOT_REFUTED", "CERTIFIED", "MEASURED")  # the worst first
PAGES_FOLDER = "pages"


def write_report_page(folder: Path, name: str, row: Row) -> str:
    """Write the page of a row's report unless it exists for this digest, and return its path in the folder."""
    page = f"{PAGES_FOLDER}/{name}-{row['digest'][:12]}.html"
    if not (folder / page).exists():
        (folder / PAGES_FOLDER).mkdir(exist_ok=True)
        Report.from_json(folder / row["report"]).to_html(folder / page)
    return page


def bounds_drawings(rows: Sequence[Row], names: Sequence[str], claim: float | None) -> list[Drawing]:
    """Return the figure of all bounds, void tests as hollow marks. Without a common claim, each row has its own."""
    pages, nan = load_pages(), float("nan")
    bounds = [
        pages.Bounds(
            name,
            nan if row["epsilon_lower"] is None else float(row["epsilon_lower"]),
            nan if row["epsilon_lower"] is None else float(row["epsilon_upper_on_partition"]),
            None,
            row.get("epsilon") if claim is None else None,
        )
        for row, name in zip(rows, names, strict=True)
        if "epsilon_lower" in row and not is_curve(row)
    ]
    return [pages.draw_bounds(bounds, "Bounds on ε", "", claim)] if bounds else []


def number_cell(value: float | None, shown: Callable[[float], str]) -> Cell:
    """Return the cell of a number; a missing or infinite one is sorted last."""
    text = "" if value is None else "none" if value == float("inf") else shown(value)
    cell: Cell = load_pages().Cell(text, sort=value)
    return cell


def bound_headers(rows: Sequence[Row]) -> tuple[str, str]:
    """Return the headers of the two bounds; the cells name the parameter if the claim of a row is a curve."""
    if any(map(is_curve, rows)):
        return "proved", "over the cells"
    return "ε at least", "ε at most (over the cells)"


def bound_cells(row: Row) -> tuple[Cell, Cell]:
    """Return the cells of the lower and of the upper bound; for a curve they are about the claim's own parameter."""
    if is_curve(row) and row.get("epsilon_lower") is not None:
        lower = load_pages().Cell(lower_text(row), sort=row.get("claim_lower"))
        return lower, text_cell(upper_text(row))
    low, high = row.get("epsilon_lower"), row.get("epsilon_upper_on_partition")
    return number_cell(low, lambda value: format_lower(value, row.get("epsilon"))), number_cell(high, format_upper)


def text_cell(value: object) -> Cell:
    """Return the cell of a text."""
    cell: Cell = load_pages().Cell(format_value(value))
    return cell


def verdict_cell(row: Row, state: str) -> Cell:
    """Return the cell of a verdict; a sorted table begins with the worst one."""
    cell: Cell = load_pages().Cell(verdict_text(row, state), style=state, sort=STATES.index(state))
    return cell


def table_sections(
    columns: Sequence[object], rows: Sequence[Sequence[Cell]], title: str, drawings: Sequence[Drawing]
) -> list[Section]:
    """Return the sections of a page with all answers: a table that can be sorted, and the figures."""
    pages = load_pages()
    scope = pages.Sentence(
        "Click a heading to sort. The lower bound on ε holds over all events, the upper bound over the cells of one "
        "partition only.",
        style="small",
    )
    sections = [pages.Section(title, (scope, pages.Table(columns, rows, sortable=True)))]
    figures = [pages.Figures([drawing]) for drawing in drawings]
    return sections + ([pages.Section("Bounds on the privacy loss", figures)] if figures else [])
