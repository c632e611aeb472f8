"""The comparisons as tables: for the page, for CSV and JSON files, and for Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dpverify.paper.claims import DISTRIBUTION_NAMES
from dpverify.paper.comparison import CellComparison, GridComparison, Measured, Summary
from dpverify.paper.decision_rule import Answer, Claim, Comparison
from dpverify.paper.printed import is_calibration_cell, read_printed
from dpverify.util.formatting import format_lower, format_upper

BADGE_STYLES = {Answer.CONFIRMED: "BOUNDED", Answer.CONTRADICTED: "REFUTED", Answer.UNDECIDED: "MEASURED"}
LARGEST_SHOWN_LOG_RATIO = 700.0  # the exponential of more overflows
LEGEND = (
    "ε_c, errors and λ: median (5% to 95%) over seeds, by the paper's own procedure, preset `paper`. “Proved” and "
    "“cells” come from our own test at δ = 0. ε is at least the first value; this is proved over all events. ε is at "
    "most the second value over unions of our cells; this bounds no other events. * not printed in the paper, assumed "
    "by us. † used for calibration, so it is not a prediction."
)
MARKDOWN_FIGURES = {
    "figures/beside-0.png": "Printed and measured critical epsilons",
    "figures/map-1.png": "Proved epsilon for each of ten sensors when it moves",
}

Record = dict[str, str | int | float | bool | None]  # one line of a CSV file


class Table(NamedTuple):
    """A table for people: every cell is text or a number as it is shown."""

    caption: str
    columns: list[str]
    rows: list[list[str]]


class ShownClaim(NamedTuple):
    """A claim on the page: its sentence, its answer, the style of the badge, and the table of its comparisons."""

    text: str
    answer: str
    style: str
    caption: str
    columns: list[str]
    rows: list[list[str]]

    @property
    def table(self) -> Table:
        """The comparisons alone."""
        return Table(self.caption, self.columns, self.rows)


def markdown_page(
    made_by: str,
    rule: str,
    cells: Sequence[CellComparison],
    grids: Sequence[GridComparison],
    claims: Sequence[Claim],
) -> str:
    """Return the main tables and two of the figures as one Markdown page."""
    parts = ["# The paper's numbers and ours", made_by, LEGEND]
    parts += [f"## {table.caption}\n\n{markdown_table(table)}" for table in (cells_table(cells), grids_table(grids))]
    parts += ["## The four claims", rule]
    for claim in map(show_claim, claims):
        parts.append(f"**{claim.text}** {claim.answer}.\n\n{markdown_table(claim.table)}")
    parts += [f"![{name}]({path})" for path, name in MARKDOWN_FIGURES.items()]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def markdown_table(table: Table) -> str:
    """Return a table as Markdown."""
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cells_table(comparisons: Sequence[CellComparison]) -> Table:
    """Return the table of all printed cells."""
    columns = ["set-up", "mechanism", "ε_c printed", "ε_c ours", "proved ≥", "cells ≤", "error printed", "error ours"]
    columns += ["λ printed", "λ ours"]
    rows = []
    for comparison in comparisons:
        printed, measured, certified = comparison.printed, comparison.measured, comparison.certified
        distribution = DISTRIBUTION_NAMES.get(comparison.mechanism)
        names = [printed.mechanism, *([distribution] if distribution else []), printed.parameter_text]
        dagger = "†" if is_calibration_cell(printed, comparison.mechanism) else ""
        rows.append(
            [
                printed.setup,
                ", ".join(names) + ("*" if printed.assumed else ""),
                _printed_text(printed.epsilon_c),
                _summary_text(measured.epsilon_c),
                "–" if certified is None else format_lower(certified.epsilon_lower),
                "–" if certified is None else _upper_text(certified.epsilon_upper_on_partition),
                _printed_text(printed.error),
                _summary_text(measured.error) + dagger,
                _printed_text(printed.lambda_),
                _summary_text(measured.lambda_),
            ]
        )
        if printed.error_adjacent is not None:
            adjacent = ["", "error under the adjacent data", "", "", "", "", _printed_text(printed.error_adjacent)]
            rows.append([*adjacent, _summary_text(measured.error_adjacent), "", ""])
    return Table("Text and tables of section V", columns, rows)


def grids_table(comparisons: Sequence[GridComparison]) -> Table:
    """Return the table of the finer grids."""
    sufficient = f"{read_printed().theory.epsilon:g}"
    rows = [
        [
            str(comparison.printed.r),
            DISTRIBUTION_NAMES[comparison.mechanism],
            _printed_text(comparison.printed.epsilon_c),
            _summary_text(comparison.measured.epsilon_c),
            f"{comparison.measured.worst_outside:.0%}",
            sufficient,
        ]
        for comparison in comparisons
    ]
    columns = ["r", "distribution", "ε_c printed", "ε_c ours", "worst event is R̄", "sufficient, by the theorem"]
    return Table("Finer grids: Q2, s 0.8, T 7", columns, rows)


def _summary_text(summary: Summary) -> str:
    """Write median and range without leading zeros."""
    low, median, high = (
        f"{value:.3g}".removeprefix("0") or "0" for value in (summary.low, summary.median, summary.high)
    )
    return median if low == high else f"{median} ({low}–{high})"


def _printed_text(value: float | None) -> str:
    """Write a printed number as the paper does, without a leading zero."""
    if value is None:
        return "–"
    return "all rejected" if value == math.inf else f"{value:.6g}".removeprefix("0")


def _upper_text(value: float) -> str:
    return "∞" if math.isinf(value) else format_upper(value)


def cell_record(comparison: CellComparison) -> dict[str, object]:
    """Return a printed cell with its measurements for `numbers.json`; what is not printed is left out."""
    printed, certified = comparison.printed, comparison.certified
    optional = {
        "assumed": printed.assumed,
        "epsilon_c": printed.epsilon_c,
        "error": printed.error,
        "error_adjacent": printed.error_adjacent,
        "eta": printed.eta,
        "lambda": printed.lambda_,
    }
    return {
        "place": printed.place,
        "setup": printed.setup,
        "mechanism": printed.mechanism,
        "parameter": printed.parameter_text,
        **{name: value for name, value in optional.items() if value is not None},
        "law": DISTRIBUTION_NAMES.get(comparison.mechanism, ""),
        **_measured_record(comparison.measured),
        "proved": None if certified is None else certified.epsilon_lower,
        "bounded": None if certified is None else certified.epsilon_upper_on_partition,
    }


def grid_record(comparison: GridComparison) -> dict[str, object]:
    """Return a printed grid with its measurements for `numbers.json`."""
    epsilon_c = comparison.printed.epsilon_c
    return {
        "r": comparison.printed.r,
        **({} if epsilon_c is None else {"epsilon_c": epsilon_c}),
        "law": DISTRIBUTION_NAMES[comparison.mechanism],
        "cells": comparison.cells,
        **_measured_record(comparison.measured),
    }


def _measured_record(measured: Measured) -> dict[str, object]:
    """Return the measured numbers by their names in the files."""
    return {
        "our_epsilon_c": measured.epsilon_c._asdict(),
        "our_error": measured.error._asdict(),
        "our_error_adjacent": measured.error_adjacent._asdict(),
        "our_eta": measured.eta._asdict(),
        "our_lambda": measured.lambda_._asdict(),
        "worst_outside": measured.worst_outside,
    }


def flatten(record: dict[str, object]) -> dict[str, object]:
    """Return a record as one line of a CSV file: a nested record becomes columns `name.part`."""
    flat: dict[str, object] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{part}": item for part, item in value.items()}
        else:
            flat[name] = value
    return flat


def show_claim(claim: Claim) -> ShownClaim:
    """Return a claim as the page shows it."""
    rows = []
    for comparison in claim.comparisons:
        low, high = comparison.interval
        answer = comparison.answer.value
        rows.append(
            [
                comparison.what,
                _difference_text(comparison, comparison.median),
                f"{_difference_text(comparison, low)} to {_difference_text(comparison, high)}",
                str(comparison.draws),
                answer if comparison.decides else f"{answer} (does not decide)",
            ]
        )
    columns = ["comparison", "median", "95% interval", "draws", "answer"]
    return ShownClaim(claim.text, claim.answer.value, BADGE_STYLES[claim.answer], "", columns, rows)


def _difference_text(comparison: Comparison, value: float) -> str:
    """Write a difference; the logarithm of a ratio is written as the ratio."""
    if comparison.unit == "difference":
        return f"{value:.3g}"
    if value > LARGEST_SHOWN_LOG_RATIO:
        return "infinity"
    return f"{float(f'{math.exp(value):.3g}'):g}"  # 1350, not 1.35e+03


def claim_records(claim: Claim) -> list[Record]:
    """Return the comparisons of a claim as lines of `claims.csv`."""
    return [
        {
            "claim": claim.name,
            "what": comparison.what,
            "median": comparison.median,
            "low": comparison.interval[0],
            "high": comparison.interval[1],
            "unit": "logarithm of a ratio" if comparison.unit == "ratio" else comparison.unit,
            "draws": comparison.draws,
            "answer": comparison.answer.value,
            "decides": comparison.decides,
        }
        for comparison in claim.comparisons
    ]
