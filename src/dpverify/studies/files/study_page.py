"""The page of a study: the finding first, all answers, and figures of the bounds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpverify.report.report import load_pages
from dpverify.report.statements import Verdict
from dpverify.studies.result_page import (
    STATES,
    bound_cells,
    bound_headers,
    bounds_drawings,
    number_cell,
    table_sections,
    text_cell,
    verdict_cell,
    write_report_page,
)
from dpverify.studies.tables import (
    Row,
    column_names,
    comparison_rows,
    format_parameter,
    row_state,
    unanswered_sentences,
)
from dpverify.util.checks import is_real_number
from dpverify.util.formatting import format_lower, format_number

if TYPE_CHECKING:
    from dpverify.render.style import Drawing

MAX_NAMED_MECHANISMS = 4  # in a headline


def render_study(title: str, rows: Sequence[Row], folder: Path, page: Path, summary: str) -> str:
    """Return the page of a study as HTML, and write the page of every report (needs `dpverify[report]`).

    Parameters
    ----------
    title : str
        The name of the study.
    rows : sequence of dict
        The rows of the study.
    folder : pathlib.Path
        The folder of the study.
    page : pathlib.Path
        Where the page will be written; links to reports are relative to it.
    summary : str
        The number of verifications, and how many of them are refuted: each at its own alpha, and together.
    """
    pages = load_pages()
    parameters = parameter_names(rows)
    identity = ["mechanism", "pair", *parameters, "seed"]
    has_error = any(row.get("error_first") is not None for row in rows)
    columns = ["verdict"]
    columns += [
        pages.Column(name.partition(".")[2] or name, _is_numeric(row.get(name) for row in rows)) for name in identity
    ]
    columns += [pages.Column(header, True) for header in (*bound_headers(rows), *(["error"] if has_error else []))]
    start = _relative(folder, page)
    cells = []
    for row in rows:
        report = text_cell(row.get("problem"))
        if row.get("report") is not None:
            name = Path(row["report"]).stem
            report = pages.Cell("report", link=f"{start}{write_report_page(folder, name, row)}")
        parts = [
            number_cell(row.get(name), format_parameter) if is_real_number(row.get(name)) else text_cell(row.get(name))
            for name in identity
        ]
        error = [number_cell(row.get("error_first"), format_number)] * has_error
        cells.append((verdict_cell(row, row_state(row)), *parts, *bound_cells(row), *error, report))
    worst = min(map(row_state, rows), key=STATES.index)
    blocks = [
        *(pages.Sentence(text, style="lead") for text in _study_lead(rows, summary)),
        *table_sections([*columns, "report"], cells, "All answers", _study_drawings(rows, parameters)),
    ]
    over = f"Study {title}: {len(rows)} verifications"
    return pages.Page(study_headline(rows), blocks, over, worst.replace("_", " "), worst).html()


def study_headline(rows: Sequence[Row]) -> str:
    """Return the finding of a study in one sentence.

    Examples
    --------
    >>> verdicts = {0.5: "REFUTED", 1.0: "NOT_REFUTED", 2.0: "NOT_REFUTED"}
    >>> rows = [{"mechanism.scale": scale, "verdict": verdict} for scale, verdict in verdicts.items()]
    >>> study_headline(rows)
    '1 of 3 refuted; none at scale 1, 2.'
    >>> study_headline([{"mechanism": "a", **row} for row in rows] + [{"mechanism": "b", **rows[0]}])
    '2 of 4 refuted (a: 1 of 3, none at scale 1, 2; b: all).'
    """
    answered = answered_rows(rows)
    refuted = [row for row in answered if row["verdict"] == Verdict.REFUTED.name]
    void = sum(row.get("diagnostic") is not None for row in rows)
    start = f"No answer in {void} of {len(rows)} verifications" if void else ""
    if not answered:
        return f"{start or f'All {len(rows)} verifications failed'}."
    start += "; " if void else ""
    if all(row["verdict"] == Verdict.MEASURED.name for row in answered):
        largest = max(row["epsilon_lower"] for row in answered)
        number = len(answered) if void else len(rows)
        return f"{start}ε is at least {format_lower(largest)} in the worst of {number} verifications."
    text = f"{start}{len(refuted)} of {len(rows)} refuted"
    mechanisms = list(dict.fromkeys(row.get("mechanism") for row in answered))
    if not 0 < len(refuted) < len(answered) or len(mechanisms) > MAX_NAMED_MECHANISMS:
        return f"{text}."
    if len(mechanisms) == 1:
        return f"{text}{_good_values(answered)}."
    parts = []
    for mechanism in mechanisms:
        own = [row for row in answered if row.get("mechanism") == mechanism]
        count = sum(row["verdict"] == Verdict.REFUTED.name for row in own)
        share = {0: "none", len(own): "all"}.get(count, f"{count} of {len(own)}")
        parts.append(f"{mechanism}: {share}{_good_values(own, ', ') if 0 < count < len(own) else ''}")
    return f"{text} ({'; '.join(parts)})."


def answered_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of verifications that neither failed nor have no answer."""
    return [row for row in rows if row.get("problem") is None and row.get("diagnostic") is None]


def _good_values(rows: Sequence[Row], start: str = "; ") -> str:
    """Return the values of each parameter that varies at which no verification is refuted, as a part of a sentence."""
    varied = [name for name in parameter_names(rows) if len({str(row.get(name)) for row in rows}) > 1]
    good = [(name.partition(".")[2], _all_good(rows, name)) for name in varied]
    return "".join(f"{start}none at {name} {values}" for name, values in good if values)


def _all_good(rows: Sequence[Row], name: str) -> str:
    """Return the values of a parameter at which no verification is refuted, as text."""
    refuted = {format_parameter(row.get(name)) for row in rows if row["verdict"] == Verdict.REFUTED.name}
    values = dict.fromkeys(format_parameter(row.get(name)) for row in rows)
    return ", ".join(value for value in values if value not in refuted)


def _study_lead(rows: Sequence[Row], summary: str) -> tuple[str, ...]:
    """Return the paragraphs below the headline of a study."""
    claims = list(dict.fromkeys(row["claim"] for row in rows if row.get("claim") is not None))
    lead = unanswered_sentences(rows)
    lead += ["No claim was stated."] if not claims else []
    if claims:
        lead += [
            f"Claimed: {claims[0]}.",
            f"{summary}. A claim that is not refuted may still be false.",
        ]
    weak = next((row["too_weak"] for row in rows if row.get("too_weak") is not None), None)
    if weak is not None:
        lead.append(f"The runs of some verifications are too few to notice a violation; the first is {weak}.")
    failed = sum(row.get("problem") is not None for row in rows)
    if failed:
        lead.append(f"{failed} verification{'s' * (failed > 1)} failed; the table has the reason.")
    return tuple(lead)


def parameter_names(rows: Iterable[Row]) -> list[str]:
    """Return the columns of parameters."""
    return [name for name in column_names(rows) if name.startswith(("mechanism.", "pair."))]


def _study_drawings(rows: Sequence[Row], parameters: Sequence[str]) -> list[Drawing]:
    """Return the figures of a study: bounds, a map for two parameters, and accuracy where it is known."""
    pages = load_pages()
    answered = answered_rows(rows)
    claim = next((row["epsilon"] for row in answered if row["epsilon"] is not None), None)
    varied = [name for name in parameters if len({str(row.get(name)) for row in answered}) > 1]
    drawings = []
    if len(varied) == 2 and all(row.get(name) is not None for row in answered for name in varied):
        values = [
            sorted(
                {row.get(name) for row in answered}, key=lambda v: (v is None, v if is_real_number(v) else 0, str(v))
            )
            for name in varied
        ]
        table = np.full((len(values[1]), len(values[0])), np.nan)
        for row in answered:
            column, line = values[0].index(row.get(varied[0])), values[1].index(row.get(varied[1]))
            table[line, column] = np.fmax(table[line, column], row["epsilon_lower"])
        texts = [[format_parameter(value) or "none" for value in axis] for axis in values]
        short = varied[0].partition(".")[2], varied[1].partition(".")[2]
        title = f"Privacy loss by {short[0]} and {short[1]}"
        drawings.append(pages.heat_map(texts[1], texts[0], table, title, names=short, claim=claim))
    drawings += bounds_drawings(rows, _short_names(rows, parameters), claim) if answered else []
    if any(row.get("error_first") is not None for row in answered):
        drawings.append(pages.tradeoff(comparison_rows(answered)))
    return drawings


def _short_names(rows: Sequence[Row], parameters: Sequence[str]) -> list[str]:
    """Return a name for every row, from the entries that differ between the rows.

    Examples
    --------
    >>> rows = [{"mechanism": "sum", "mechanism.scale": s, "pair": "near", "seed": 0} for s in (0.5, 1.0)]
    >>> _short_names(rows, ["mechanism.scale"])
    ['scale 0.5', 'scale 1']
    """
    names: list[list[str]] = [[] for _ in rows]
    for column in ("mechanism", "pair", *parameters, "seed"):
        values = [row.get(column) for row in rows]
        if len({str(value) for value in values}) == 1 and len(rows) > 1:
            continue
        label = "" if column in ("mechanism", "pair") else f"{column.rpartition('.')[2]} "
        for name, value in zip(names, values, strict=True):
            name += [] if value is None else [f"{label}{format_parameter(value)}"]
    return [", ".join(name) for name in names]


def _is_numeric(values: Iterable[object]) -> bool:
    return all(value is None or is_real_number(value) for value in values)


def _relative(folder: Path, page: Path) -> str:
    """Return the address of the folder relative to the page, with a slash at its end, or nothing."""
    relative = Path(os.path.relpath(folder.resolve(), page.resolve().parent)).as_posix()
    return "" if relative == "." else f"{relative}/"
