"""The page of a check: the finding first, what changed since the last release, all answers and their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dpverify.ci.history import Change, Release
from dpverify.report.report import load_pages
from dpverify.studies.result_page import (
    STATES,
    bound_cells,
    bound_headers,
    bounds_drawings,
    number_cell,
    table_sections,
    text_cell,
    verdict_cell,
)
from dpverify.studies.tables import Row, is_curve, unanswered_sentences
from dpverify.util.formatting import format_number, one_line

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


def stored_text(row: Row) -> str:
    """Return that the result of a claim is a stored one, and of which release."""
    return f"result of release {one_line(row['result_of'])}, not run again"


def render_table(table: ResultTable) -> str:
    """Return the page of a check as HTML (needs `dpverify[report]`)."""
    pages = load_pages()
    rows = table.rows
    worst = min((row["state"] for row in rows), key=STATES.index)
    columns = [
        *("verdict", "claim", "claimed"),
        *(pages.Column(header, True) for header in (*bound_headers(rows), "detectable ε")),
    ]
    has_problem = any(row.get("problem") for row in rows)
    columns += ["problem"] if has_problem else []
    cells = []
    for row in rows:
        detectable = None if is_curve(row) else row.get("epsilon_detectable")
        cells.append(
            (
                verdict_cell(row, row["state"]),
                pages.Cell(row["name"], link=row.get("page") or row.get("report") or ""),
                text_cell(row.get("claim")),
                *bound_cells(row),
                number_cell(detectable, format_number),
                *([text_cell(row.get("problem"))] if has_problem else []),
            )
        )
    lead = unanswered_sentences(rows)
    lead += [f"{table.summary[0].upper()}{table.summary[1:]}."]
    alphas = {row["alpha"] for row in rows if row.get("alpha") is not None}
    if len(alphas) == 1:
        alpha = alphas.pop() * len(rows)
        lead.append(
            f"If all claims are true, none of them is refuted with probability {format_number(1 - alpha)} at least. A "
            "claim that is not refuted may still be false."
        )
    lead += [f"{row['name']}: {stored_text(row)}." for row in rows if row.get("result_of")]
    blocks = [pages.Sentence(text, style="lead") for text in lead]
    if table.previous is not None:
        changes = [
            pages.Sentence(
                one.text,
                label=f"{one.name}:",
                verdict="REFUTED" if one.is_worse else "",
                badge="worse" if one.is_worse else "",
            )
            for one in table.changes
        ]
        shown = pages.Items(changes) if changes else pages.Sentence("No answer changed.")
        blocks.append(pages.Section(f"What changed since {table.previous.release}", (shown,)))
    drawings = bounds_drawings(rows, [row["name"] for row in rows], None)
    blocks += table_sections(columns, cells, "All answers", drawings)
    over = f"Privacy claims of {table.title}, release {table.release}"
    return pages.Page(check_headline(rows), blocks, over, worst.replace("_", " "), worst).html()


def check_headline(rows: Sequence[Row]) -> str:
    """Return the finding of a check in one sentence.

    Examples
    --------
    >>> check_headline([{"name": "sum", "state": "REFUTED"}, {"name": "mean", "state": "NOT_REFUTED"}])
    '1 of 2 claims is refuted: sum.'
    >>> check_headline([{"name": "sum", "state": "NOT_REFUTED"}, {"name": "mean", "state": "NO_ANSWER"}])
    '1 of 2 claims has no answer: mean.'
    """
    number, sentences = len(rows), []
    for state, words in (
        ("NO_ANSWER", ("has no answer", "have no answer")),
        ("REFUTED", ("is refuted", "are refuted")),
        ("FAILED", ("could not be verified", "could not be verified")),
        ("TOO_WEAK", ("had too few runs", "had too few runs")),
    ):
        names = [row["name"] for row in rows if row["state"] == state]
        if names:
            listed = ", ".join(names[:MAX_NAMED])
            if len(names) > MAX_NAMED:
                listed += f" and {len(names) - MAX_NAMED} more"
            sentences.append(f"{len(names)} of {number} claims {words[len(names) > 1]}: {listed}.")
    return " ".join(sentences) or "No claim is refuted."
