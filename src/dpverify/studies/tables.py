"""Tables of many verifications: one list of columns for text, CSV and pages, and the six ways to show a result.

A row is a dictionary with the columns of `Report.row`, after those that say what was verified. Every result of many
verifications is a `ResultTable`: it states its rows and its finding; its text, files, page and figures are made here.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dpverify.errors import InputError
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.report import load_pages
from dpverify.util.checks import is_real_number
from dpverify.util.files import write_text
from dpverify.util.formatting import (
    format_evidence,
    format_lower,
    format_number,
    format_upper,
)
from dpverify.util.results import Tabular
from dpverify.util.serialization import to_plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpverify.render import Drawing, Page

Row = dict[str, Any]  # the value of each column
MAX_NAMED = 4  # rows without an answer that a sentence names
PRINTED_ROWS = 20
SCOPE = (
    "Click a heading to sort. The lower bound on ε holds over all events, the upper bound over the cells of one "
    "partition only."
)
FAILED, TOO_WEAK = "FAILED", "TOO_WEAK"  # states of a row besides the names of the verdicts
GOOD_STATES = ("NOT_REFUTED", "CERTIFIED")
STATES = (FAILED, "REFUTED", "NO_ANSWER", TOO_WEAK, *GOOD_STATES, "MEASURED")  # the first decides the exit status


class ResultColumn(NamedTuple):
    """A column of a table of results, in text and in a page. A CSV file has all keys of the rows.

    Attributes
    ----------
    name : str
        The key of a row by which a page sorts the column.
    header : str
        The heading.
    text : callable
        Makes the text of a cell from its row; a column without any text is not shown.
    is_number : bool
        Whether the page aligns and sorts the column as numbers.
    in_text : bool
        Whether it is a column of the text, too.
    """

    name: str
    header: str
    text: Callable[[Row], str]
    is_number: bool = False
    in_text: bool = True


def value_column(name: str, header: str, rows: Sequence[Row]) -> ResultColumn:
    """Return the column of a parameter, written as the user wrote it."""
    is_number = all(row.get(name) is None or is_real_number(row[name]) for row in rows)
    return ResultColumn(name, header, lambda row: format_parameter(row.get(name)), is_number)


def is_curve(row: Mapping[str, Any]) -> bool:
    """Return whether the claim of a row is a curve, so that its bounds are not about epsilon at one delta."""
    return row.get("claim") is not None and row.get("epsilon") is None


def row_state(row: Mapping[str, Any]) -> str:
    """Return the verdict of a row, FAILED or TOO_WEAK."""
    if row.get("state") is not None:
        return row["state"]
    if row.get("problem") is not None:
        return FAILED
    return row["verdict"] if row.get("too_weak") is None else TOO_WEAK


def is_answered(row: Mapping[str, Any]) -> bool:
    """Return whether a row has a result: it has neither failed nor a voiding diagnostic."""
    return row.get("epsilon_lower") is not None


def verdict_text(row: Mapping[str, Any]) -> str:
    """Return the state of a row in words, and how strong the evidence is if its claim is refuted.

    Examples
    --------
    >>> verdict_text({"verdict": "REFUTED", "p_value": 0.02, "alpha": 0.05}), verdict_text({"verdict": "NOT_REFUTED"})
    ('REFUTED, weak evidence', 'NOT REFUTED')
    """
    state = row_state(row)
    has_evidence = state == "REFUTED" and row.get("p_value") is not None
    evidence = f", {format_evidence(row['p_value'], row['alpha'])}" if has_evidence else ""
    return state.replace("_", " ") + evidence


def lower_text(row: Mapping[str, Any]) -> str:
    """Return the lower bound of a row: on the parameter of the claim if it is a curve, otherwise on epsilon.

    Examples
    --------
    >>> lower_text({"claim": "mu", "epsilon": None, "claim_parameter": "mu", "claim_lower": 0.25, "epsilon_lower": 1.0})
    'mu >= 0.25'
    >>> lower_text({"claim": "epsilon 1, delta 0", "epsilon": 1.0, "epsilon_lower": 0.75})
    'epsilon >= 0.75'
    """
    if not is_answered(row):
        return ""
    if not is_curve(row):
        return f"epsilon >= {format_lower(row['epsilon_lower'], row.get('epsilon'))}"
    if row.get("claim_lower") is None:
        return "no single parameter"
    return f"{row.get('claim_parameter') or 'parameter'} >= {format_lower(row['claim_lower'])}"


def upper_text(row: Mapping[str, Any]) -> str:
    """Return the upper bound of a row over the cells; for a curve, whether the claim is shown to hold there.

    Examples
    --------
    >>> upper_text({"claim": "mu", "epsilon": None, "holds_on_cells": True, "epsilon_lower": 0.1})
    'the claim holds'
    """
    if not is_answered(row):
        return ""
    if is_curve(row):
        return "the claim holds" if row.get("holds_on_cells") else "not bounded"
    upper = row["epsilon_upper_on_partition"]
    return "none" if upper == math.inf else f"at most {format_upper(upper)}"


def _detectable_text(row: Row) -> str:
    value = row.get("epsilon_detectable")
    return "" if value is None or is_curve(row) else format_number(value)


COLUMNS = (
    ResultColumn("verdict", "verdict", verdict_text),
    ResultColumn("claim", "claim", lambda row: row.get("claim") or "", in_text=False),
    ResultColumn("epsilon_lower", "proved", lower_text, True),
    ResultColumn("epsilon_upper_on_partition", "over the cells", upper_text, True),
    ResultColumn("epsilon_detectable", "detectable ε", _detectable_text, True, in_text=False),
    ResultColumn("error_first", "error", lambda row: format_value(row.get("error_first")), True),
    ResultColumn("test_runs", "test runs", lambda row: format_value(row.get("test_runs")), True, in_text=False),
    ResultColumn("problem", "problem", lambda row: row.get("problem") or row.get("too_weak") or "", in_text=False),
)


class ResultTable(Tabular):
    """The result of many verifications. A class of results states `rows`, `identity` and `headline`.

    Attributes
    ----------
    rows : sequence of dict
        The rows.
    identity : sequence of str
        The columns that say what was verified.
    headline : str
        The finding in one sentence.
    over : str
        What was verified, for the line above the headline of the page.
    """

    rows: Sequence[Row]
    identity: Sequence[str]
    headline: str
    over: str = ""

    @property
    def state(self) -> str:
        """The state of the rows that decides the exit status of a command."""
        return self.worst_state(self.rows)

    @staticmethod
    def worst_state(rows: Iterable[Row]) -> str:
        """Return the state of these rows that comes first in `STATES`."""
        return min(map(row_state, rows), key=STATES.index, default="MEASURED")

    def in_state(self, *states: str) -> tuple[Row, ...]:
        """Return the rows in one of these states."""
        return tuple(row for row in self.rows if row_state(row) in states)

    def count_states(self, noun: str = "verification") -> str:
        """Return how many rows there are in each state, the worst first."""
        number, counts = len(self.rows), Counter(map(row_state, self.rows))
        parts = [f"{counts[state]} {state.replace('_', ' ').lower()}" for state in STATES if counts[state]]
        return f"{number} {noun}{'s' * (number != 1)}: {', '.join(parts)}"

    @property
    def listed(self) -> Sequence[Row]:
        """The rows of the text and of the page."""
        return self.rows

    @staticmethod
    def on_page(sentence: str) -> str:
        """Return a sentence of the text as the page has it."""
        return sentence

    @property
    def columns(self) -> list[ResultColumn]:
        """The columns of the text and of the page."""
        named = [value_column(name, name.partition(".")[2] or name, self.rows) for name in self.identity]
        return [*named, *COLUMNS]

    def printed_rows(self, most: int) -> Sequence[Row]:
        """Return the rows of a long table that are printed."""
        return self.listed[:most]

    def table_lines(self, most: int = PRINTED_ROWS) -> list[str]:
        """Return the rows as aligned text; only some rows of a long table."""
        printed = self.printed_rows(most)
        shown = [one for one in self.columns if one.in_text and any(map(one.text, self.listed))]
        if not shown:
            return []
        lines = format_table([one.header for one in shown], [[one.text(row) for one in shown] for row in printed])
        left_out = len(self.listed) - len(printed)
        return [*lines, f"  and {left_out} more"] if left_out else lines

    def sentences(self) -> list[str]:
        """Return what is said below the headline; rows without an answer come first."""
        return unanswered_sentences(self.rows, self.identity)

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"  {sentence}" for sentence in self.sentences()), *self.table_lines()])

    def table_rows(self) -> Sequence[Row]:
        """Return the rows."""
        return self.rows

    def page_html(self) -> str:
        """Return the page as HTML (needs `dpverify[report]`)."""
        return self.page().html()

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the finding and all columns of the rows as a JSON file."""
        document = {
            "format": 1,
            "kind": type(self).__name__,
            "finding": self.headline,
            "rows": to_plain(list(self.rows)),
        }
        write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page with the finding, the table and figures (needs `dpverify[report]`)."""
        self.page(self.links(Path(path))).to_html(path)

    def links(self, page: Path) -> Sequence[str]:
        """Return the address that the first cell of each row leads to, relative to the page; empty without one."""
        return [""] * len(self.listed)

    def page(self, links: Sequence[str] | None = None) -> Page:
        """Return the page (needs `dpverify[report]`)."""
        pages = load_pages()
        shown = [one for one in self.columns if any(map(one.text, self.listed))]
        lines = []
        for row, link in zip(self.listed, links or [""] * len(self.listed), strict=True):
            cells = [
                pages.Cell(one.text(row), style=row_state(row) if one.name == "verdict" else "", sort=row.get(one.name))
                for one in shown
            ]
            lines.append([cells[0]._replace(link=link), *cells[1:]])
        table = pages.Table([pages.Column(one.header, one.is_number) for one in shown], lines, sortable=True)
        figures = [pages.Figures([drawing]) for drawing in self.drawings()]
        below = [one for one in self.sentences() if one.lower() != f"{self.over}.".lower()]  # it is above the headline
        blocks = [
            *(pages.Sentence(self.on_page(sentence), style="lead") for sentence in below),
            *([pages.Section("Bounds on the privacy loss", figures)] if figures else []),
            *([pages.Section("All answers", (pages.Sentence(SCOPE, style="small"), table))] if shown else []),
        ]
        return pages.Page(self.on_page(self.headline), blocks, self.over, self.state.replace("_", " "), self.state)

    def drawings(self) -> list[Drawing]:
        """Return the figures of the page, the most important one first."""
        return bounds_drawings(self.rows, self.identity)

    def plot(self) -> Figure:
        """Return the first figure of the page (needs `dpverify[report]`).

        Raises
        ------
        InputError
            If matplotlib is not installed, or no verification has an answer.
        """
        pages, drawings = load_pages(), self.drawings()
        if not drawings:
            raise InputError("plot: found no verification with an answer; expected at least one")
        void = sum(not is_answered(row) for row in self.rows)
        title = drawings[0].title + (f" ({void} without an answer)" if void else "")
        return pages.complete_figure(drawings[0]._replace(title=title))


def bounds_drawings(rows: Sequence[Row], identity: Sequence[str]) -> list[Drawing]:
    """Return the figure of all bounds, void tests as hollow marks. Without a common claim, each row has its own."""
    pages = load_pages()
    drawn = [row for row in rows if row.get("verdict") is not None and not is_curve(row)]
    if not any(map(is_answered, drawn)):
        return []
    claims = {row.get("epsilon") for row in drawn}
    common = claims.pop() if len(claims) == 1 else None
    bounds = []
    for name, row in zip(short_names(drawn, identity), drawn, strict=True):
        low, high = row["epsilon_lower"], row["epsilon_upper_on_partition"]
        ends = (float(low), float(high)) if is_answered(row) else (math.nan, math.nan)
        bounds.append(pages.Bounds(name, *ends, None, row.get("epsilon") if common is None else None))
    return [pages.draw_bounds(bounds, "Bounds on ε", "", common)]


def accuracy_drawings(rows: Sequence[Row]) -> list[Drawing]:
    """Return the figure of privacy against accuracy; none if no row has an accuracy."""
    compared = [_comparison_row(row) for row in rows if row.get("error_first") is not None]
    return [load_pages().tradeoff(compared)] if compared else []


def _comparison_row(row: Row) -> Row:
    """Return the columns of one row that the figure shows."""
    parameters = {name.partition(".")[2]: value for name, value in row.items() if name.startswith("mechanism.")}
    stated = {name: value for name, value in parameters.items() if value is not None}
    text = ", ".join(f"{name} {format_parameter(value)}" for name, value in stated.items())
    return {
        "mechanism": row["mechanism"],
        "parameter": row.get("parameter", next(iter(stated.values())) if len(parameters) == 1 and stated else text),
        "epsilon_lower": row["epsilon_lower"],
        "epsilon_upper": row["epsilon_upper_on_partition"],
        "error": row["error_first"],
        "error_se": row.get("error_first_se"),
        **{
            name: value
            for name, value in row.items()
            if (name == "pair" or name.startswith("pair.")) and value is not None
        },
    }


def short_names(rows: Sequence[Row], identity: Sequence[str]) -> list[str]:
    """Return a name for every row, from the entries that differ between the rows.

    Examples
    --------
    >>> rows = [{"mechanism": "sum", "mechanism.scale": s, "pair": "near", "seed": 0} for s in (0.5, 1.0)]
    >>> short_names(rows, ["mechanism", "pair", "mechanism.scale", "seed"])
    ['scale 0.5', 'scale 1']
    """
    names: list[list[str]] = [[] for _ in rows]
    for column in identity:
        values = [row.get(column) for row in rows]
        if len({str(value) for value in values}) == 1 and len(rows) > 1:
            continue
        label = f"{column.rpartition('.')[2]} " if "." in column or column in ("seed", "parameter") else ""
        for name, value in zip(names, values, strict=True):
            name += [] if value is None else [f"{label}{format_parameter(value)}"]
    return [", ".join(name) for name in names]


def unanswered_sentences(rows: Iterable[Mapping[str, Any]], identity: Sequence[str] = ("name",)) -> list[str]:
    """Return which rows have no answer, in one sentence for each reason.

    Examples
    --------
    >>> unanswered_sentences([{"mechanism": "sum", "pair": "near", "diagnostic": "SAME_DATA"}], ["mechanism", "pair"])
    ['No answer for sum near: both datasets are equal, so no event can distinguish them.']
    """
    named: dict[str, list[str]] = {}
    for row in rows:
        if row.get("diagnostic") is not None:
            parts = [format_parameter(row.get(name)) for name in identity if name != "seed"]
            named.setdefault(row["diagnostic"], []).append(" ".join(filter(None, parts)))
    sentences = []
    for key, listed in named.items():
        names = list(dict.fromkeys(listed))  # rows that differ in the seed only are one
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        sentences.append(f"No answer for {', '.join(names[:MAX_NAMED])}{more}: {Diagnostic[key].cause}.")
    return sentences


def claims_headline(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return the finding about many claims in one sentence for each state that needs attention.

    Examples
    --------
    >>> claims_headline([{"verdict": "REFUTED"}, {"verdict": "NOT_REFUTED"}], ["sum", "mean"])
    '1 of 2 claims is refuted: sum.'
    >>> claims_headline([{"verdict": "NOT_REFUTED"}, {"verdict": "NO_ANSWER"}], ["sum", "mean"])
    '1 of 2 claims has no answer: mean.'
    >>> claims_headline([{"verdict": "MEASURED", "epsilon_lower": 0.75}], ["sum"])
    'ε is at least 0.75 in the worst of 1 verifications.'
    """
    sentences = []
    measured = [row["epsilon_lower"] for row in rows if row_state(row) == "MEASURED"]
    noun = "verifications" if measured else "claims"
    for state, one, more in (
        ("NO_ANSWER", "has no answer", "have no answer"),
        ("REFUTED", "is refuted", "are refuted"),
        (FAILED, "could not be verified", "could not be verified"),
        (TOO_WEAK, "had too few runs", "had too few runs"),
    ):
        found = [name for name, row in zip(names, rows, strict=True) if row_state(row) == state]
        if found:
            listed = ", ".join(found[:MAX_NAMED]) + (f" and {len(found) - MAX_NAMED} more" if found[MAX_NAMED:] else "")
            sentences.append(f"{len(found)} of {len(rows)} {noun} {more if found[1:] else one}: {listed}.")
    if measured:
        worst = format_lower(max(measured))
        sentences.append(f"ε is at least {worst} in the worst of {len(measured)} verifications.")
    return " ".join(sentences) or "No claim is refuted."


def count_unanswered(rows: Sequence[Mapping[str, Any]], what: str = "verifications") -> str:
    """Return how many rows have no answer, as the beginning of a headline; empty if all have one."""
    void = sum(row.get("diagnostic") is not None for row in rows)
    return f"No answer in {void} of {len(rows)} {what}" if void else ""


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
