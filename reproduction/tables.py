"""The tables of the page, and the lines of `readings.csv`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpverify.render import Cell, Table, format_lower, format_upper
from reproduction import paper, slides
from reproduction.claims import MIN_DRAWS, Claim, Comparison
from reproduction.fit import ReadingFit, ReadingResults, RowFit, Summary, Trend, summarise
from reproduction.paper import ALL_REJECTED, BASE, CELL, FINER, PLAN, PRINTED, computed_constants, describe

INSIDE, OUTSIDE, NOT_KNOWN = "✓", "✗", "–"
NO_BREAK = "\u00a0"
RANGE = "\u2060–\u2060"  # a dash at which no line breaks
DRAWN_TOLERANCE = 0.2  # of the ratio of two drawn shifts of .01, of which a pixel is .001
MOST_RANKED = 10  # readings of one mechanism in the table; the file readings.csv has all of them
DECIMALS = {"epsilon_c": 2, "eta": 3, "lambda": 3, "count": 0}  # errors have three significant digits
LARGEST_SHOWN_LOG_RATIO = 700.0  # the exponential of more overflows


def summary_text(summary: Summary, name: str) -> str:
    """Write median and range; `name` sets the number of digits."""
    low, median, high = (number_text(value, name) for value in (summary.low, summary.median, summary.high))
    return median if low == high else f"{median} ({low}{RANGE}{high})"


def number_text(value: float, name: str) -> str:
    """Write one of our numbers; `name` sets the number of digits."""
    return f"{value:.{DECIMALS[name]}f}" if name in DECIMALS and value < 100 else f"{value:.3g}"


def printed_text(value: float | None, name: str) -> str:
    """Write a number with the digits that the paper prints."""
    if value is None:
        return NOT_KNOWN
    if math.isinf(value):
        return "all rejected"
    return f"{value:.4f}" if name == "lambda" else f"{value:.3f}" if name == "eta" else f"{value:.8g}"


def count_inside(fits: Sequence[Any]) -> str:
    """Return how many numbers lie in their 5% to 95% range, for instance "16 of 26"."""
    return f"{sum(fit.inside for fit in fits)} of {len(fits)}"


def drawn_table() -> Table:
    """Return the errors that the error plots of the slides show, in both definitions."""
    rows = [
        [f"{one.place}, {one.which} data", f"{one.printed:g}", f"{one.norm:.4f}", f"{one.rms:.4f}"]
        for one in slides.drawn_errors()
    ]
    columns = ["slide 12", "printed", "norm of the drawn error", "root mean square over the steps"]
    return Table(columns, rows, "The errors that the plots show, to about 0.002")


def shift_table(shifts: Sequence[Mapping[str, Any]]) -> Table:
    """Return what each reading of the estimator without noise gives beside Fig. 4 of the slides."""
    lines, ratio = [], slides.drawn_ratio()
    for one in shifts:
        ranges = {name: summarise(one[name]) for name in ("error", "error_adjacent", "ratio", "distance")}
        allowed = (
            ranges["error"].low <= ALL_REJECTED.error
            and ranges["error_adjacent"].low <= ALL_REJECTED.error_adjacent <= ranges["error_adjacent"].high
            and ranges["ratio"].low <= ratio + DRAWN_TOLERANCE
            and ranges["ratio"].high >= ratio - DRAWN_TOLERANCE
        )
        name = paper.difference(BASE._replace(**one["changes"]), BASE)
        cells = [summary_text(ranges[key], key) for key in ("error", "error_adjacent", "ratio", "distance")]
        lines.append([name, *cells, "allowed" if allowed else "excluded"])
    lines.insert(0, ["the slides", "9.7e-07", "0.0198", f"{ratio:.2g} ± {DRAWN_TOLERANCE}", NOT_KNOWN, ""])
    columns = ["reading", "E_correct", "E_adjacent", "shift, last / first", "distance of the data", ""]
    return Table(columns, lines, "The estimator without noise: s = 1, sensors of Q1")


def main_table(readings: ReadingResults, counted: bool = True) -> Table:
    """Return the main table: every printed row under the best reading; `counted` marks what is in range."""
    columns = ["paper", "ε_c", "η", "λ", "E_correct", "E_adjacent", "smaller count"]
    lines = [main_row(row, counted) for row in readings.best.rows]
    return Table(columns, lines, "Every printed row of section V, under the best reading")


def main_row(row: RowFit, counted: bool) -> list[Cell | str]:
    """Return one line of the main table."""
    cell, fits = CELL[row.row], {fit.name: fit for fit in row.fits}
    parameter = cell.parameter_text if cell.value is not None else f"{cell.parameter} {row.parameter:.5g}"

    def number(name: str, value: float | None, mark: str = "") -> Cell:
        inside = "" if not counted or name not in fits else (INSIDE if fits[name].inside else OUTSIDE) + NO_BREAK
        return Cell(printed_text(value, name) + mark, inside + summary_text(row.numbers[name], name))

    return [
        Cell(cell.place, f"{cell.setup}, {cell.mechanism}, {parameter}" + "†" * (cell.assumed is not None)),
        number("epsilon_c", cell.epsilon_c),
        number("eta", cell.implied_eta, "*" if cell.eta is None and "eta" in fits else ""),
        number("lambda", cell.lambda_),
        number("error", cell.error),
        number("error_adjacent", cell.error_adjacent),
        Cell(NOT_KNOWN if cell.count is None else str(cell.count), number("count", cell.count).below),
    ]


def trend_table(trends: Sequence[Trend]) -> Table:
    """Return the printed and the measured direction of epsilon_c between pairs of rows."""
    rows = [
        [
            one.what,
            f"{one.printed[0]:g} to {one.printed[1]:g}",
            f"{one.median:+.2f} ({one.interval[0]:+.2f} to {one.interval[1]:+.2f})"
            if math.isfinite(one.interval[0])
            else f"{one.median:+.2f} (too few seeds for an interval)",
            f"{one.share:.0%}",
            one.answer,
        ]
        for one in trends
    ]
    columns = ["from, to", "printed ε_c", "median difference (95%)", "seeds with the printed direction", "direction"]
    return Table(columns, rows, "Directions of ε_c")


def choice_table(readings: ReadingResults) -> Table:
    """Return the paper's column "Better choice": which mechanism has the smaller epsilon_c and the smaller error."""
    rows, lines = {row.row: row.numbers for row in readings.best.rows}, []
    for choice in PRINTED["choices"]:
        (setup, own, _), (_, other, _) = (key.split(", ") for key in choice["rows"])
        line: list[Cell | str] = [Cell(choice["place"], f"{setup}: {own} against {other}"), choice["better"]]
        for name in ("epsilon_c", "error"):
            a, b = (rows[key][name] for key in choice["rows"])
            smaller = own if a.high < b.low else other if b.high < a.low else "undecided: the ranges overlap"
            line.append(Cell(smaller, f"{summary_text(a, name)} against {summary_text(b, name)}"))
        lines.append(line)
    columns = ["paper", "better choice, printed", "smaller ε_c, ours", "smaller E_correct, ours"]
    return Table(columns, lines, "The paper's yardstick: the column “Better choice”")


def choices_table(readings: ReadingResults) -> Table:
    """Return what the paper does not print: the value of the best reading, and the other values that were measured."""
    measured = [fit.reading for ranking in readings.rankings.values() for fit in ranking]
    rows = []
    for name, best in readings.best.reading._asdict().items():
        others = [x for x in dict.fromkeys(getattr(reading, name) for reading in measured) if x != best]
        others_text = "; ".join(describe(name, x) for x in others) or NOT_KNOWN
        rows.append([PLAN["choices"][name]["what"], describe(name, best), others_text])
    rows.append(["n, selection runs per dataset", "1000: every η is a multiple of 0.001", NOT_KNOWN])
    rows.append(["positions of the sensors (Q1, Q3), the sensor that moves", "drawn anew for every seed", NOT_KNOWN])
    return Table(["what", "best reading", "also measured"], rows, "What the paper does not print")


def ranking_table(mechanism: str, ranking: Sequence[ReadingFit], counted: bool) -> Table:
    """Return the readings of one mechanism, best first; `counted` adds how many printed numbers are in range."""
    best = ranking[0].log_probability
    lines = [
        [str(number), fit.varies, f"{fit.log_probability:.1f}", f"{fit.log_probability - best:.1f}"]
        + [count_inside(fit.fits("Q1"))] * counted
        for number, fit in enumerate(ranking[:MOST_RANKED], start=1)
    ]
    left_out = len(ranking) - len(lines)
    more = f"; {left_out} that fit less well are in readings.csv" if left_out else ""
    columns = ["rank", "reading", "score on Q1", "difference from the best"] + ["numbers in range"] * counted
    return Table(columns, lines, f"{mechanism}: {len(ranking)} readings{more}")


def finer_table(readings: ReadingResults, counted: bool = True) -> Table:
    """Return the finer grids (T = 7, Q2, s 0.8)."""
    lines = []
    for r, row in readings.finer.items():
        mark = "".join(INSIDE if fit.inside else OUTSIDE for fit in row.fits if counted)
        printed = printed_text(FINER[r]["epsilon_c"], "epsilon_c")
        lines.append([str(r), printed, f"{mark} {summary_text(row.numbers['epsilon_c'], 'epsilon_c')}".strip()])
    caption = "Finer partitions (section V, sufficient condition): Q2, s 0.8, T 7"
    return Table(["r", "ε_c, printed", "ours"], lines, caption)


def constants_table() -> Table:
    """Return the printed numbers that follow from formulas, with ours."""
    rows = [
        [
            constant.place,
            constant.formula,
            f"{constant.printed:.{constant.digits}f}",
            f"{constant.ours:.{constant.digits + 2}f}" if constant.digits else f"{constant.ours:g}",
            "every digit" if constant.agrees else "differs",
        ]
        for constant in computed_constants().values()
    ]
    caption = "Printed numbers that follow from formulas"
    return Table(["paper", "what", "printed", "ours", "agreement"], rows, caption)


def pairs_table(measured: Sequence[Mapping[str, Any]]) -> Table:
    """Return the share of sampled adjacent pairs that pass."""
    rows = [
        [
            f"{pairs['epsilon']:g}",
            f"{pairs['passed']} of {pairs['pairs']}",
            f"{pairs['interval'][0]:.0%} to {pairs['interval'][1]:.0%}",
            f"{pairs['refuted']} of {pairs['pairs']}",
            f"{pairs['violating']:.0%}",
        ]
        for pairs in measured
    ]
    columns = ["claimed ε", "pass the paper's test", "share of all pairs (95%)"]
    columns += ["refuted by the library's own test", "share that violates the claim, at least"]
    return Table(columns, rows, "Section IV-B: adjacent pairs that pass")


def certified_table(own: Sequence[Mapping[str, Any]]) -> Table:
    """Return what the library's own test proves and bounds for the printed rows."""
    rows = [
        [
            CELL[one["row"]].place,
            one["row"],
            "∞" if math.isinf(one["lower"]) else format_lower(one["lower"]),
            "∞" if math.isinf(one["upper"]) else format_upper(one["upper"]),
            f"{one['error']:.3g}",
        ]
        for one in own
        if one["sensor"] is None
    ]
    columns = ["paper", "row", "proved: ε ≥ (all events)", "ε ≤ (over the cells)", "error of one run"]
    return Table(columns, rows, "The library's own test at δ = 0, for one draw of the sensors")


def claim_table(claim: Claim) -> Table:
    """Return the comparisons of a claim: one line for each reading, one column for each comparison."""
    compared = list(dict.fromkeys(comparison.what for comparison in claim.comparisons))
    rows = []
    for reading in dict.fromkeys(comparison.reading for comparison in claim.comparisons):
        cells = {c.what: comparison_cell(c) for c in claim.comparisons if c.reading == reading}
        rows.append([reading, *(cells.get(what, NOT_KNOWN) for what in compared)])
    return Table(["reading", *compared], rows)


def comparison_cell(comparison: Comparison) -> Cell:
    """Return median and spread over draws; below, the interval of the median, the shares, and the answer."""

    def text(value: float) -> str:
        """Write a difference; the logarithm of a ratio is written as the ratio."""
        if math.isnan(value):
            return NOT_KNOWN
        if comparison.unit == "difference":
            return f"{value:.3g}"
        if value > LARGEST_SHOWN_LOG_RATIO:
            return "infinity"
        return f"{float(f'{math.exp(value):.3g}'):g}"  # 1350, not 1.35e+03

    low, high = map(text, comparison.interval)
    spread, median = list(map(text, comparison.spread)), text(comparison.median)
    what = "smallest and largest" if comparison.every_draw else "95% interval of the median"
    if all(map(math.isfinite, comparison.interval)):
        parts = [f"{what}: {low} to {high}"]
    elif comparison.draws < MIN_DRAWS:
        parts = ["too few draws for an interval of the median"]
    else:
        parts = [f"{what}: unbounded, because some ε are infinite"]
    if not math.isnan(comparison.wins):
        draws = f"{comparison.draws // 2} pairs of" if comparison.unit == "difference" else comparison.draws
        parts.append(f"claim true in {comparison.wins:.0%}, false in {comparison.loses:.0%} of {draws} draws")
    if comparison.outside_range > 0:
        parts.append(f"parameter outside [0, 1] in {comparison.outside_range:.0%}")
    parts.append(comparison.answer.value if comparison.decides else f"{comparison.answer.value} (does not decide)")
    shown = median if NOT_KNOWN in spread else f"{median} ({spread[0]} to {spread[1]})"
    return Cell(shown, "; ".join(parts))


def reading_records(rankings: Mapping[str, Sequence[ReadingFit]]) -> list[dict[str, object]]:
    """Return one line for each reading and printed number, for `readings.csv`."""
    return [
        {
            "mechanism": mechanism,
            "rank": rank,
            "reading": fit.varies,
            "row": row.row,
            "number": number.name,
            "printed": number.printed,
            **number.measured._asdict(),
            "inside": number.inside,
            "log_probability": number.log_probability,
            "both": row.both,
        }
        for mechanism, ranking in rankings.items()
        for rank, fit in enumerate(ranking, start=1)
        for row in fit.rows
        for number in row.fits
    ]
