"""Tables for the page, for CSV and JSON files, and for Markdown; the comparisons of the claims as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dpverify.paper.claims.decision_rule import MIN_DRAWS, Answer, Claim, Comparison
from dpverify.paper.claims.judgement import DISTRIBUTION_NAMES
from dpverify.paper.claims.words import CLAIM_WORDS, answer_sentence, yardstick_sentence
from dpverify.paper.constants import ComputedConstant
from dpverify.paper.measurements import PassingPairs, StudyTables, select_rows
from dpverify.paper.printed import CELL_MECHANISMS, read_printed
from dpverify.util.formatting import format_lower, format_upper

BADGE_STYLES = {
    Answer.CONFIRMED: "BOUNDED",
    Answer.CONTRADICTED: "REFUTED",
    Answer.UNDECIDED: "MEASURED",
    Answer.DEPENDS: "MEASURED",
}
NOT_KNOWN = "–"
LARGEST_SHOWN_LOG_RATIO = 700.0  # the exponential of more overflows

Record = dict[str, str | int | float | bool | None]  # one line of a CSV file


class Cell(NamedTuple):
    """A cell of a table with a second line below the first."""

    text: str
    below: str = ""

    def __str__(self) -> str:
        return f"{self.text}<br>{self.below}" if self.below else self.text


class Table(NamedTuple):
    """A table for people: every cell is text or a number as it is shown."""

    caption: str
    columns: list[str]
    rows: list[list[str | Cell]]


class ShownClaim(NamedTuple):
    """A claim on the page: what the paper says, where, its restrictions, our answer, and the comparisons."""

    number: int
    text: str
    place: str
    hedges: tuple[str, ...]
    answer: str
    style: str
    says: str
    yardstick: str
    table: Table


def markdown_table(table: Table) -> str:
    """Return a table as Markdown."""
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def constants_table(constants: Mapping[str, ComputedConstant]) -> Table:
    """Return the printed numbers that follow from formulas, with ours."""
    rows: list[list[str | Cell]] = [
        [
            constant.place,
            constant.formula,
            f"{constant.printed:.{constant.digits}f}",
            f"{constant.ours:.{constant.digits + 2}f}" if constant.digits else f"{constant.ours:g}",
            "every digit" if constant.agrees else "differs",
        ]
        for constant in constants.values()
    ]
    columns = ["paper", "what", "printed", "ours", "agreement"]
    return Table("Printed numbers that follow from formulas", columns, rows)


def pairs_table(measured: Sequence[PassingPairs]) -> Table | None:
    """Return the share of sampled adjacent pairs that pass; None if no pairs were sampled."""
    if not measured:
        return None
    rows: list[list[str | Cell]] = [
        [
            "by the paper's angle" if pairs.angle == "paper" else "until the data are 10 apart",
            f"{pairs.epsilon:g}",
            f"{pairs.passed} of {pairs.pairs}",
            f"{pairs.interval[0]:.0%} to {pairs.interval[1]:.0%}",
            f"{pairs.refuted} of {pairs.pairs}",
            f"{pairs.violating:.0%}",
        ]
        for pairs in measured
    ]
    columns = ["a sensor moves", "claimed ε", "pass the paper's test", "share of all pairs (95%)"]
    columns += ["refuted by the library's own test", "share that violates the claim, at least"]
    return Table("Section IV-B: adjacent pairs that pass", columns, rows)


def certified_table(tables: StudyTables) -> Table | None:
    """Return what the library's own test proves and bounds for the printed rows; None if it was not run."""
    rows: list[list[str | Cell]] = []
    for cell in read_printed().cells:
        for mechanism in CELL_MECHANISMS[cell.mechanism]:
            for row in select_rows(tables, f"certified-{cell.setup}", mechanism, cell.value)[:1]:
                distribution = DISTRIBUTION_NAMES.get(mechanism, "")
                upper = row.epsilon_upper_on_partition
                rows.append(
                    [
                        cell.place,
                        ", ".join(filter(None, [cell.setup, cell.mechanism, distribution, cell.parameter_text])),
                        format_lower(row.epsilon_lower),
                        "∞" if math.isinf(upper) else format_upper(upper),
                        f"{row.error_first:.3g}",
                    ]
                )
    columns = ["paper", "row", "proved: ε ≥ (all events)", "ε ≤ (unions of cells only)", "E_correct"]
    caption = "The library's own test at δ = 0, for one draw of the sensors and data that are 10 apart"
    return Table(caption, columns, rows) if rows else None


def show_claim(claim: Claim) -> ShownClaim:
    """Return a claim as the page shows it: one line for each reading, one column for each comparison."""
    words = CLAIM_WORDS[claim.name]
    compared = list(dict.fromkeys(comparison.what for comparison in claim.comparisons))
    rows: list[list[str | Cell]] = []
    for reading in dict.fromkeys(comparison.reading for comparison in claim.comparisons):
        cells = {c.what: _comparison_cell(c) for c in claim.comparisons if c.reading == reading}
        rows.append([reading or "–", *(cells.get(what, "–") for what in compared)])
    return ShownClaim(
        words.number,
        words.statement,
        words.place,
        words.hedges,
        claim.answer.value,
        BADGE_STYLES[claim.answer],
        answer_sentence(claim),
        yardstick_sentence(claim),
        Table("", ["reading", *compared], rows),
    )


def _comparison_cell(comparison: Comparison) -> Cell:
    """Return median and spread over draws; below, the interval of the median, the shares, and the answer."""
    low, high = (_difference_text(comparison, value) for value in comparison.interval)
    spread = [_difference_text(comparison, value) for value in comparison.spread]
    median = _difference_text(comparison, comparison.median)
    what = "smallest and largest" if comparison.every_draw else "95% interval of the median"
    if all(map(math.isfinite, comparison.interval)):
        parts = [f"{what}: {low} to {high}"]
    elif comparison.draws < MIN_DRAWS:
        parts = ["too few draws for an interval of the median"]
    else:
        parts = [f"{what}: unbounded, because some ε are infinite"]
    if not math.isnan(comparison.wins):
        # A difference between set-ups uses two draws.
        draws = f"{comparison.draws // 2} pairs of" if comparison.unit == "difference" else comparison.draws
        parts.append(f"claim true in {comparison.wins:.0%}, false in {comparison.loses:.0%} of {draws} draws")
    if comparison.outside_range > 0:
        parts.append(f"parameter outside [0, 1] in {comparison.outside_range:.0%}")
    parts.append(comparison.answer.value if comparison.decides else f"{comparison.answer.value} (does not decide)")
    text = median if NOT_KNOWN in spread else f"{median} ({spread[0]} to {spread[1]})"
    return Cell(text, "; ".join(parts))


def _difference_text(comparison: Comparison, value: float) -> str:
    """Write a difference; the logarithm of a ratio is written as the ratio."""
    if math.isnan(value):
        return NOT_KNOWN
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
            "reading": comparison.reading,
            "spread_low": comparison.spread[0],
            "spread_high": comparison.spread[1],
            "wins": comparison.wins,
            "loses": comparison.loses,
            "outside_range": comparison.outside_range,
            "answer": comparison.answer.value,
            "decides": comparison.decides,
        }
        for comparison in claim.comparisons
    ]
