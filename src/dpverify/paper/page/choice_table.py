"""The paper's column "Better choice" (Tables I and II, and the text about Q1), by the numbers of the best reading."""

from __future__ import annotations

from typing import NamedTuple

from dpverify.paper.page.reading_tables import summary_text
from dpverify.paper.page.tables import Cell, Table
from dpverify.paper.readings.results import ReadingResults, Summary


class PrintedChoice(NamedTuple):
    """Two rows that the paper compares, and the one that it calls the better choice."""

    place: str
    first: str
    second: str
    better: str


W2MHE, INPUT, EKF = "W2-MHE", "input perturbation", "private EKF"
PRINTED_CHOICES = (
    PrintedChoice("Section V, text on Q1", "Q1, W2-MHE, s 0.8", "Q1, input perturbation, s̄ 0.894", INPUT),
    PrintedChoice("Table I, row 1", "Q2, W2-MHE, s 0.8", "Q2, input perturbation, s̄ 0.894", W2MHE),
    PrintedChoice("Table I, row 2", "Q3, W2-MHE, s 0.8", "Q3, input perturbation, s̄ 0.894", W2MHE),
    PrintedChoice("Table II, row 1", "Q1, W2-MHE, s 0.8", "Q1, private EKF, ŝ", W2MHE),
    PrintedChoice("Table II, row 2", "Q2, W2-MHE, s 0.8", "Q2, private EKF, ŝ", W2MHE),
    PrintedChoice("Table II, row 3", "Q3, W2-MHE, s 0.8", "Q3, private EKF, ŝ", W2MHE),
)


def choice_table(readings: ReadingResults) -> Table:
    """Return, for each comparison of the paper, which mechanism has the smaller epsilon_c and the smaller error."""
    rows = {row.row: row for row in readings.best.rows}
    lines: list[list[str | Cell]] = []
    for choice in PRINTED_CHOICES:
        if choice.first in rows and choice.second in rows:
            first, second = rows[choice.first], rows[choice.second]
            setup, own, _ = choice.first.split(", ")
            other = choice.second.split(", ")[1]
            lines.append(
                [
                    Cell(choice.place, f"{setup}: {own} against {other}"),
                    choice.better,
                    Cell(
                        smaller(first.epsilon_c, second.epsilon_c, choice),
                        f"{summary_text(first.epsilon_c, 'epsilon_c')} against "
                        f"{summary_text(second.epsilon_c, 'epsilon_c')}",
                    ),
                    Cell(
                        smaller(first.error, second.error, choice),
                        f"{summary_text(first.error, 'error')} against {summary_text(second.error, 'error')}",
                    ),
                ]
            )
    columns = ["paper", "better choice, printed", "smaller ε_c, ours", "smaller E_correct, ours"]
    return Table("The paper's yardstick: the column “Better choice”", columns, lines)


def smaller(first: Summary, second: Summary, choice: PrintedChoice) -> str:
    """Return the mechanism with the smaller number, or that the ranges over seeds overlap."""
    if first.high < second.low:
        return choice.first.split(", ")[1]
    return choice.second.split(", ")[1] if second.high < first.low else "undecided: the ranges overlap"
