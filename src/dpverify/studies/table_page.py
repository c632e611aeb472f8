"""The page of a check or of a study: which finding comes first, and what the table and the figures show."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpverify.errors import InputError, how_to_install
from dpverify.report.statements import Verdict
from dpverify.studies.releases.history import Change, Release
from dpverify.studies.tables import Row, column_names, comparison_rows, format_value
from dpverify.util.checks import is_real_number
from dpverify.util.formatting import format_lower, format_number, format_upper

if TYPE_CHECKING:
    from dpverify.render.results import Cell
    from dpverify.render.style import Drawing

STATES = ("REFUTED", "FAILED", "NO_ANSWER", "TOO_WEAK", "NOT_REFUTED", "BOUNDED", "MEASURED")  # the worst first
MAX_NAMED = 4  # claims that a headline names


class ResultTable(NamedTuple):
    """The result of a check.

    Attributes
    ----------
    title, summary : str
        The name of the manifest, and how many claims there are in each state.
    rows : sequence of dict
        One row per claim, with `name` and `state`.
    release : str
        The name of the release.
    previous : Release or None
        The release before it.
    changes : tuple of Change
        What changed since.
    """

    title: str
    summary: str
    rows: Sequence[Row]
    release: str
    previous: Release | None
    changes: tuple[Change, ...]


def render_table(table: ResultTable) -> str:
    """Return the page of a check as HTML (needs `dpverify[report]`)."""
    results = _load_results()
    rows = table.rows
    worst = min((row["state"] for row in rows), key=STATES.index)
    columns = [
        results.Column("verdict"),
        results.Column("claim"),
        results.Column("claimed"),
        results.Column("ε at least", True),
        results.Column("ε at most (unions of cells)", True),
        results.Column("detectable ε", True),
    ]
    has_problem = any(row.get("problem") for row in rows)
    columns += [results.Column("problem")] if has_problem else []
    cells = []
    for row in rows:
        numbers = (row.get("epsilon_lower"), row.get("epsilon_upper_on_partition"), row.get("epsilon_detectable"))
        cells.append(
            (
                _verdict_cell(row["state"]),
                results.Cell(row["name"], row["name"], row.get("page") or row.get("report") or ""),
                _text_cell(row.get("claim")),
                *(_number_cell(value, shown) for value, shown in zip(numbers, ROUNDINGS, strict=True)),
                *([_text_cell(row.get("problem"))] if has_problem else []),
            )
        )
    lead = [f"{table.summary[0].upper()}{table.summary[1:]}."]
    alphas = {row["alpha"] for row in rows if row.get("alpha") is not None}
    if len(alphas) == 1:
        alpha = alphas.pop() * len(rows)
        lead.append(
            f"If all claims are true, none of them is refuted with probability {format_number(1 - alpha)} at least. A "
            "claim that is not refuted is not proved."
        )
    content = results.ResultsContent(
        title=f"{table.title}: {table.summary}",
        over=f"Privacy claims of {table.title}, release {table.release}",
        verdict=worst,
        badge=worst.replace("_", " "),
        headline=check_headline(rows),
        lead=tuple(lead),
        columns=tuple(columns),
        rows=tuple(cells),
        changes_title="" if table.previous is None else f"What changed since {table.previous.release}",
        changes=tuple(results.ChangeLine(*change) for change in table.changes),
    )
    return results.results_page(content, _bounds_drawings(rows, [row["name"] for row in rows], None))


def check_headline(rows: Sequence[Row]) -> str:
    """Return the finding of a check in one sentence.

    Examples
    --------
    >>> check_headline([{"name": "sum", "state": "REFUTED"}, {"name": "mean", "state": "BOUNDED"}])
    '1 of 2 claims is false: sum.'
    >>> check_headline([{"name": "sum", "state": "NOT_REFUTED"}, {"name": "mean", "state": "BOUNDED"}])
    'No claim is refuted; 1 of 2 is bounded on its cells.'
    """
    number = len(rows)
    for state, words in (
        ("REFUTED", ("is false", "are false")),
        ("FAILED", ("could not be verified", "could not be verified")),
        ("NO_ANSWER", ("has no answer", "have no answer")),
        ("TOO_WEAK", ("had too few runs", "had too few runs")),
    ):
        names = [row["name"] for row in rows if row["state"] == state]
        if names:
            listed = ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
            return f"{len(names)} of {number} claims {words[len(names) > 1]}: {listed}."
    bounded = sum(row["state"] == "BOUNDED" for row in rows)
    words = "is bounded on its cells" if bounded == 1 else "are bounded on their cells"
    return f"No claim is refuted; {bounded} of {number} {words}."


def render_study(title: str, rows: Sequence[Row], folder: Path, page: Path) -> str:
    """Return the page of a study as HTML (needs `dpverify[report]`).

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
    """
    results = _load_results()
    parameters = parameter_names(rows)
    identity = ["mechanism", "pair", *parameters, "seed"]
    columns = [results.Column("verdict")]
    columns += [
        results.Column(name.partition(".")[2] or name, _is_numeric(row.get(name) for row in rows)) for name in identity
    ]
    columns += [results.Column("ε at least", True), results.Column("ε at most (unions of cells)", True)]
    columns += [results.Column("report")]
    start = _relative(folder, page)
    cells = []
    for row in rows:
        state = "FAILED" if row.get("problem") is not None else row["verdict"]
        numbers = (row.get("epsilon_lower"), row.get("epsilon_upper_on_partition"))
        link = "" if row.get("report") is None else f"{start}{row['report']}"
        report = results.Cell("report", "", link) if link else results.Cell(str(row["problem"]), str(row["problem"]))
        parts = [
            _number_cell(row.get(name), format_value) if is_real_number(row.get(name)) else _text_cell(row.get(name))
            for name in identity
        ]
        bounds = [_number_cell(value, shown) for value, shown in zip(numbers, ROUNDINGS[:2], strict=True)]
        cells.append((_verdict_cell(state), *parts, *bounds, report))
    states = ["FAILED" if row.get("problem") is not None else row["verdict"] for row in rows]
    worst = min(states, key=STATES.index)
    content = results.ResultsContent(
        title=f"{title}: {study_headline(rows)}",
        over=f"Study {title}: {len(rows)} verifications",
        verdict=worst,
        badge=worst.replace("_", " "),
        headline=study_headline(rows),
        lead=_study_lead(rows),
        columns=tuple(columns),
        rows=tuple(cells),
    )
    return results.results_page(content, _study_drawings(rows, parameters))


def study_headline(rows: Sequence[Row]) -> str:
    """Return the finding of a study in one sentence.

    Examples
    --------
    >>> rows = [{"mechanism.scale": s, "verdict": v} for s, v in ((0.5, "REFUTED"), (1.0, "BOUNDED"), (2.0, "BOUNDED"))]
    >>> study_headline(rows)
    '1 of 3 refuted; none at scale 1, 2.'
    """
    answered = [row for row in rows if row.get("problem") is None]
    refuted = [row for row in answered if row["verdict"] == Verdict.REFUTED.name]
    if all(row["verdict"] == Verdict.MEASURED.name for row in answered):
        if not answered:
            return f"All {len(rows)} verifications failed."
        largest = max(row["epsilon_lower"] for row in answered)
        return f"ε is at least {format_lower(largest)} in the worst of {len(rows)} verifications."
    text = f"{len(refuted)} of {len(rows)} refuted"
    varied = [name for name in parameter_names(answered) if len({str(row.get(name)) for row in answered}) > 1]
    if 0 < len(refuted) < len(answered):
        for name in varied:
            values = _all_good(answered, name)
            text += f"; none at {name.partition('.')[2]} {values}" if values else ""
    return f"{text}."


def _all_good(rows: Sequence[Row], name: str) -> str:
    """Return the values of a parameter at which no verification is refuted, as text."""
    refuted = {format_value(row.get(name)) for row in rows if row["verdict"] == Verdict.REFUTED.name}
    return ", ".join(dict.fromkeys(value for row in rows if (value := format_value(row.get(name))) not in refuted))


def _study_lead(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the paragraphs below the headline of a study."""
    claims = list(dict.fromkeys(row["claim"] for row in rows if row.get("claim") is not None))
    lead = [f"Claimed: {claims[0]}. Each verification has its own level." if claims else "No claim was stated."]
    failed = sum(row.get("problem") is not None for row in rows)
    if failed:
        lead.append(f"{failed} verification{'s' * (failed > 1)} failed; the table has the reason.")
    return tuple(lead)


def parameter_names(rows: Iterable[Row]) -> list[str]:
    """Return the columns of parameters."""
    return [name for name in column_names(rows) if name.startswith(("mechanism.", "pair."))]


def _study_drawings(rows: Sequence[Row], parameters: Sequence[str]) -> list[Drawing]:
    """Return the figures of a study: bounds, a map for two parameters, and accuracy where it is known."""
    from dpverify.render.figures import tradeoff
    from dpverify.render.results import heat_map

    answered = [row for row in rows if row.get("problem") is None]
    claim = next((row["epsilon"] for row in answered if row["epsilon"] is not None), None)
    varied = [name for name in parameters if len({str(row.get(name)) for row in answered}) > 1]
    drawings = []
    if len(varied) == 2:
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
        texts = [[format_value(value) or "none" for value in axis] for axis in values]
        short = varied[0].partition(".")[2], varied[1].partition(".")[2]
        drawings.append(heat_map(texts[0], texts[1], table, short, claim))
    names = []
    for row in answered:
        parts = (row["mechanism"], *(row.get(name) for name in parameters), row["pair"], f"seed {row['seed']}")
        names.append(" ".join(format_value(part) for part in parts if part is not None))
    drawings += _bounds_drawings(answered, names, claim)
    if any(row.get("error_first") is not None for row in answered):
        drawings.append(tradeoff(comparison_rows(answered)))
    return drawings


def _bounds_drawings(rows: Sequence[Row], names: Sequence[str], claim: float | None) -> list[Drawing]:
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
        if row.get("epsilon_lower") is not None
    ]
    return [draw_bounds(bounds, "Bounds on ε", "", claim)] if bounds else []


def render_pair(finding: str, rows: Sequence[Row], differences: Sequence[tuple[str, str, str]]) -> str:
    """Return the page of two reports as HTML; each row has the label "before" or "after"."""
    results = _load_results()
    before, after = (row["verdict"] for row in rows)
    cells = [tuple(results.Cell(text, text) for text in line) for line in differences]
    content = results.ResultsContent(
        title=f"{rows[1]['name']}: before and after",
        over=f"{rows[0]['name']} before ({before.replace('_', ' ')}) and {rows[1]['name']} after",
        verdict=after,
        badge=after.replace("_", " "),
        headline=finding,
        lead=() if cells else ("No entry differs.",),
        columns=(results.Column("entry"), results.Column("before"), results.Column("after")),
        rows=tuple(cells),
    )
    claims = {row["epsilon"] for row in rows}
    claim = claims.pop() if len(claims) == 1 else None
    return results.results_page(content, _bounds_drawings(rows, [row["label"] for row in rows], claim))


def _load_results() -> ModuleType:
    """Return the module that draws the page; raise InputError if a package is missing."""
    try:
        from dpverify.render import results
    except ImportError as problem:
        raise InputError(f"a page: {problem}; expected matplotlib and Jinja2; {how_to_install('report')}") from None
    return results


ROUNDINGS = (format_lower, format_upper, format_number)  # of lower bounds, upper bounds and other numbers


def _number_cell(value: float | None, shown: Callable[[float], str]) -> Cell:
    """Return the cell of a number; a missing or infinite one is sorted last."""
    from dpverify.render.results import Cell

    if value is None:
        return Cell("", "1e999")
    return Cell("none" if value == float("inf") else shown(value), repr(float(value)).replace("inf", "1e999"))


def _text_cell(value: object) -> Cell:
    from dpverify.render.results import Cell

    return Cell(format_value(value), format_value(value))


def _verdict_cell(state: str) -> Cell:
    from dpverify.render.results import Cell

    return Cell(state.replace("_", " "), str(STATES.index(state)), "", state)


def _is_numeric(values: Iterable[object]) -> bool:
    return all(value is None or is_real_number(value) for value in values)


def _relative(folder: Path, page: Path) -> str:
    """Return the address of the folder relative to the page, with a slash at its end, or nothing."""
    relative = Path(os.path.relpath(folder.resolve(), page.resolve().parent)).as_posix()
    return "" if relative == "." else f"{relative}/"
