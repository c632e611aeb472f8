"""Tables of the printed rows under the readings: the main table, the ranking, the choices, m, and the finer grids."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpverify.paper.page.tables import Cell, Table
from dpverify.paper.printed import PrintedCell, read_printed
from dpverify.paper.readings.definitions import describe, difference
from dpverify.paper.readings.results import FinerFit, NumberFit, ReadingFit, ReadingResults, RowFit, Summary
from dpverify.stats.paper_test import PAPER_EPSILON_SWEEP

INSIDE, OUTSIDE = "✓", "✗"
ALL_REJECTED = "all rejected"
NO_BREAK = "\u00a0"
RANGE = "\u2060–\u2060"  # a dash at which no line breaks
MOST_RANKED = 12  # readings of one mechanism in the table; the file readings.csv has all of them
DECIMALS = {"epsilon_c": 2, "eta": 3, "lambda": 3}  # errors have three significant digits
MAIN_LEGEND = (
    "First line of a cell: the number that the paper prints. Second line: ours, the median and in parentheses the 5% "
    f"to 95% range over seeds, under the best reading; {INSIDE} the printed number lies in this range, {OUTSIDE} it "
    "does not. The ceiling is the ε_c that the same procedure reports if the data set under which the event is rarer "
    "never produces it, from the same count under the other one. “Saturated” means that in at least half of the "
    "seeds the smaller count is 0, so that ε_c equals its ceiling. * solved from the printed λ and ε_c. † not "
    "printed: fitted to the printed E_correct, in Table I to that of the row, in Table II to that of row 1 for all "
    "rows; the nearest value in [0, 1] where no value gives it. An E_correct that was used for a fit is no prediction. "
    "The seeds are not those of the ranking. In the last column the complement of the region is one more event: "
    "section III of the paper has it in the partition, its algorithms and its 256 events do not."
)
CHOICES = {
    "law": "distribution of the W2-MHE's estimate",
    "support": "set K_k of the estimate",
    "prior": "prior of a window",
    "span": "measurements of a window: y_k to y_(k+N), or without y_k",
    "tau": "τ, the weight against the prior",
    "angle": "angle by which the sensor moves",
    "covariance": "covariance of the input noise, up to 1 − s̄",
    "noise": "input noise",
    "filter": "covariances of the EKF",
    "test_runs": "m, test runs per data set",
    "error_runs": "runs behind a printed error",
    "complement": "events",
}


def summary_text(summary: Summary, name: str) -> str:
    """Write median and range; `name` sets the number of digits."""
    low, median, high = (number_text(value, name) for value in (summary.low, summary.median, summary.high))
    return median if low == high else f"{median} ({low}{RANGE}{high})"


def number_text(value: float, name: str) -> str:
    """Write one of our numbers; `name` sets the number of digits."""
    if math.isinf(value):
        return ALL_REJECTED
    return f"{value:.{DECIMALS[name]}f}" if name in DECIMALS and value < 100 else f"{value:.3g}"


def printed_text(value: float | None, name: str) -> str:
    """Write a number with the digits that the paper prints."""
    if value is None:
        return "–"
    if math.isinf(value):
        return ALL_REJECTED
    return f"{value:.4f}" if name == "lambda" else f"{value:.3f}" if name == "eta" else f"{value:.8g}"


def choices_table(readings: ReadingResults) -> Table:
    """Return what the paper does not print: the value of the best reading, and the other values that were measured."""
    measured = [fit.reading for ranking in readings.rankings.values() for fit in ranking]
    measured += [row.reading for rows in readings.by_runs.values() for row in rows]
    measured += [row.reading for row in readings.with_complement]
    rows: list[list[str | Cell]] = []
    for name, words in CHOICES.items():
        best = getattr(readings.best.reading, name)
        others = dict.fromkeys(getattr(reading, name) for reading in measured)
        others.pop(best, None)
        rows.append([words, describe(name, best), "; ".join(describe(name, value) for value in others) or "–"])
    rows.append(["n, selection runs per data set", "1000: every η is a multiple of 0.001", "–"])
    rows.append(["positions of the sensors (Q1, Q3), noise, initial distribution", "drawn anew for every seed", "–"])
    return Table("What the paper does not print", ["what", "best reading", "also measured"], rows)


def cells_by_key() -> dict[str, PrintedCell]:
    """Return the printed cells by the name of their row."""
    return {cell.key: cell for cell in read_printed().cells}


def main_table(readings: ReadingResults) -> Table:
    """Return the main table: every printed row under the best reading, in the order of the paper."""
    rows = {row.row: row for row in readings.best.rows}
    complement = {row.row: row for row in readings.with_complement}
    lines = []
    for cell in read_printed().cells:
        if cell.key in rows:
            lines.append(_main_row(cell, rows[cell.key], complement.get(cell.key)))
    columns = ["paper", "ε_c", "ceiling", "η", "λ", "E_correct", "E_adjacent", "ε_c, complement as an event"]
    return Table("Every printed row of section V, under the best reading", columns, lines)


def _main_row(cell: PrintedCell, row: RowFit, complement: RowFit | None) -> list[str | Cell]:
    """Return one line of the main table."""
    fits = {fit.name: fit for fit in row.fits}
    solved = "*" if cell.eta is None and "eta" in fits else ""
    parameter = f"{cell.parameter} {row.parameter:.3g}†" if row.fitted else cell.parameter_text
    return [
        Cell(cell.place, f"{cell.setup}, {cell.mechanism}, {parameter}"),
        _number_cell(printed_text(cell.epsilon_c, "epsilon_c"), row.epsilon_c, "epsilon_c", fits),
        Cell(summary_text(row.ceiling, "epsilon_c"), "saturated" if row.saturated else _saturated_share(row)),
        _number_cell(
            printed_text(fits["eta"].printed if "eta" in fits else None, "eta") + solved, row.eta, "eta", fits
        ),
        _number_cell(printed_text(cell.lambda_, "lambda"), row.lambda_, "lambda", fits),
        _number_cell(printed_text(cell.error, "error"), row.error, "error", fits),
        _number_cell(printed_text(cell.error_adjacent, "error"), row.error_adjacent, "error_adjacent", fits),
        "–" if complement is None else summary_text(complement.epsilon_c, "epsilon_c"),
    ]


def is_fixed_by_own_error(row: RowFit) -> bool:
    """Return whether the printed error of this row fixed its parameter; then our error is not a prediction.

    The EKF has one parameter for all set-ups, which the error on Q1 fixed.
    """
    cell = cells_by_key()[row.row]
    return row.fitted and (cell.mechanism != "private EKF" or cell.setup == "Q1")


def _saturated_share(row: RowFit) -> str:
    return f"reached in {row.saturated_share:.0%} of seeds"


def _number_cell(printed: str, ours: Summary, name: str, fits: dict[str, NumberFit]) -> Cell:
    """Return the printed number above ours, with a mark that says whether it is in the range."""
    mark = "" if name not in fits else (INSIDE if fits[name].inside else OUTSIDE) + NO_BREAK
    end = PAPER_EPSILON_SWEEP[-1]
    note = f" (above the end of the sweep, {end:g})" if printed == ALL_REJECTED and end < ours.low < math.inf else ""
    return Cell(printed, mark + summary_text(ours, name) + note)


def ranking_table(mechanism: str, ranking: Sequence[ReadingFit]) -> Table:
    """Return the readings of one mechanism, best first."""
    best = ranking[0].log_probability
    lines: list[list[str | Cell]] = [
        [
            str(number),
            fit.varies,
            f"{fit.log_probability:.1f}",
            f"{fit.log_probability - best:.1f}",
            f"{fit.inside} of {fit.printed}",
        ]
        for number, fit in enumerate(ranking[:MOST_RANKED], start=1)
    ]
    left_out = len(ranking) - len(lines)
    more = f"; {left_out} readings that fit less well are in readings.csv" if left_out else ""
    columns = ["rank", "reading", "log probability", "difference from the best", "printed numbers in range"]
    return Table(f"{mechanism}: {len(ranking)} readings{more}", columns, lines)


def best_by_mechanism_table(readings: ReadingResults) -> Table:
    """Return the best reading of each mechanism by itself, and the best single reading, with their fits."""
    base = readings.best.reading
    lines: list[list[str | Cell]] = [
        [
            f"{name}; seeds of the ranking",
            difference(ranking[0].reading, base, name, "nothing"),
            f"{ranking[0].log_probability:.1f}",
            f"{ranking[0].inside} of {ranking[0].printed}",
        ]
        for name, ranking in readings.rankings.items()
    ]
    best = readings.best
    lines.append(
        [
            "all mechanisms; seeds of the main table",
            "one reading for all",
            f"{best.log_probability:.1f}",
            f"{best.inside} of {best.printed}",
        ]
    )
    columns = ["rows of", "differs from the best single reading in", "log probability", "printed numbers in range"]
    return Table("The best reading of each mechanism by itself", columns, lines)


def runs_table(readings: ReadingResults) -> Table:
    """Return how ε_c depends on m: the model of disjoint distributions, and the rows of the W2-MHE."""
    keys = list(dict.fromkeys(row.row for rows in readings.by_runs.values() for row in rows))
    shown = [key for key in keys if math.isfinite(cells_by_key()[key].epsilon_c)]
    lines: list[list[str | Cell]] = []
    for ceiling in readings.ceiling_by_runs:
        measured = {row.row: row for row in readings.by_runs.get(ceiling.test_runs, ())}
        lines.append(
            [
                str(ceiling.test_runs),
                summary_text(ceiling.epsilon_c, "epsilon_c"),
                f"{ceiling.log_probability:.1f}",
                *(summary_text(measured[key].epsilon_c, "epsilon_c") if key in measured else "–" for key in shown),
            ]
        )
    printed = [f"{cells_by_key()[key].place}: printed {cells_by_key()[key].epsilon_c:g}" for key in shown]
    columns = ["m", "disjoint distributions: ε_c", "log probability of the printed ε_c", *printed]
    return Table("ε_c of the W2-MHE for other m, from the seeds of the ranking", columns, lines)


FINER_PLACES = {2: "text", 3: "item 1", 4: "item 2"}


def finer_table(finer: Sequence[FinerFit]) -> Table:
    """Return the finer grids (T = 7, Q2, s 0.8)."""
    lines: list[list[str | Cell]] = []
    for fit in finer:
        inside = fit.printed is not None and fit.epsilon_c.low <= fit.printed <= fit.epsilon_c.high
        mark = "" if fit.printed is None else f"{INSIDE} " if inside else f"{OUTSIDE} "
        lines.append(
            [
                FINER_PLACES.get(fit.r, "item 3"),
                str(fit.r),
                Cell(printed_text(fit.printed, "epsilon_c"), mark + summary_text(fit.epsilon_c, "epsilon_c")),
                Cell(summary_text(fit.ceiling, "epsilon_c"), f"reached in {fit.saturated_share:.0%} of seeds"),
            ]
        )
    columns = ["paper", "r", "ε_c", "ceiling"]
    return Table("Finer partitions (section V, sufficient condition): Q2, s 0.8, T 7", columns, lines)


def reading_records(readings: ReadingResults) -> list[dict[str, object]]:
    """Return one line for each reading and printed number, for `readings.csv`."""
    records = []
    for mechanism, ranking in readings.rankings.items():
        for rank, fit in enumerate(ranking, start=1):
            for row in fit.rows:
                for number in row.fits:
                    records.append(
                        {
                            "mechanism": mechanism,
                            "rank": rank,
                            "reading": fit.varies,
                            "row": row.row,
                            "number": number.name,
                            "printed": number.printed,
                            "median": number.measured.median,
                            "low": number.measured.low,
                            "high": number.measured.high,
                            "seeds": number.measured.seeds,
                            "inside": number.inside,
                            "tail": number.tail,
                            "log_probability": number.log_probability,
                            "ceiling": row.ceiling.median,
                            "saturated_share": row.saturated_share,
                            **{f"reading.{name}": value for name, value in fit.reading._asdict().items()},
                        }
                    )
    return records
