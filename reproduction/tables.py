"""The tables of the page, and the lines of `readings.csv`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpverify.render import Cell, Table, format_lower, format_upper
from reproduction import paper
from reproduction.claims import MIN_DRAWS, Claim, Comparison
from reproduction.fit import FinerFit, ReadingFit, ReadingResults, RowFit, Summary
from reproduction.paper import CELL, CELLS, PLAN, PRINTED, SWEEP, computed_constants, describe

INSIDE, OUTSIDE, NOT_KNOWN = "✓", "✗", "–"
NO_BREAK = "\u00a0"
RANGE = "\u2060–\u2060"  # a dash at which no line breaks
MOST_RANKED = 12  # readings of one mechanism in the table; the file readings.csv has all of them
DECIMALS = {"epsilon_c": 2, "ceiling": 2, "eta": 3, "lambda": 3}  # errors have three significant digits
LARGEST_SHOWN_LOG_RATIO = 700.0  # the exponential of more overflows
LAW_WORDS = {"gibbs": "Gibbs distribution", "blend": "blend distribution"}


def summary_text(summary: Summary, name: str) -> str:
    """Write median and range; `name` sets the number of digits."""
    low, median, high = (number_text(value, name) for value in (summary.low, summary.median, summary.high))
    return median if low == high else f"{median} ({low}{RANGE}{high})"


def number_text(value: float, name: str) -> str:
    """Write one of our numbers; `name` sets the number of digits."""
    if math.isinf(value):
        return "all rejected"
    return f"{value:.{DECIMALS[name]}f}" if name in DECIMALS and value < 100 else f"{value:.3g}"


def printed_text(value: float | None, name: str) -> str:
    """Write a number with the digits that the paper prints."""
    if value is None:
        return NOT_KNOWN
    if math.isinf(value):
        return "all rejected"
    return f"{value:.4f}" if name == "lambda" else f"{value:.3f}" if name == "eta" else f"{value:.8g}"


def main_table(readings: ReadingResults) -> Table:
    """Return the main table: every printed row under the best reading, in the order of the paper."""
    lines = [main_row(row, readings.with_complement.get(row.row)) for row in readings.best.rows]
    columns = ["paper", "ε_c", "ceiling", "η", "λ", "E_correct", "E_adjacent", "ε_c, complement as an event"]
    return Table(columns, lines, "Every printed row of section V, under the best reading")


def main_row(row: RowFit, complement: RowFit | None) -> list[Cell | str]:
    """Return one line of the main table."""
    cell, fits = CELL[row.row], {fit.name: fit for fit in row.fits}
    parameter = cell.parameter_text if cell.assumed is None else f"{cell.parameter} {row.parameter:.3g}†"

    def number(name: str, value: float | None, mark: str = "") -> Cell:
        inside = "" if name not in fits else (INSIDE if fits[name].inside else OUTSIDE) + NO_BREAK
        beyond = " (above the end of the sweep, 1.5)" if value == math.inf and row.numbers[name].low > SWEEP[-1] else ""
        return Cell(printed_text(value, name) + mark, inside + summary_text(row.numbers[name], name) + beyond)

    solved = "*" if cell.eta is None and "eta" in fits else ""
    return [
        Cell(cell.place, f"{cell.setup}, {cell.mechanism}, {parameter}"),
        number("epsilon_c", cell.epsilon_c),
        Cell(summary_text(row.numbers["ceiling"], "ceiling"), f"reached in {row.at_ceiling:.0%} of seeds"),
        number("eta", cell.implied_eta, solved),
        number("lambda", cell.lambda_),
        number("error", cell.error),
        number("error_adjacent", cell.error_adjacent),
        NOT_KNOWN if complement is None else summary_text(complement.numbers["epsilon_c"], "epsilon_c"),
    ]


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
    measured += [row.reading for row in readings.with_complement.values()]
    rows = []
    for name, best in readings.best.reading._asdict().items():
        what = PLAN["choices"][name]["what"]
        others = [x for x in dict.fromkeys(getattr(reading, name) for reading in measured) if x != best]
        rows.append([what, describe(name, best), "; ".join(describe(name, x) for x in others) or NOT_KNOWN])
    rows.append(["n, selection runs per data set", "1000: every η is a multiple of 0.001", NOT_KNOWN])
    rows.append(
        ["positions of the sensors (Q1, Q3), noise, initial distribution", "drawn anew for every seed", NOT_KNOWN]
    )
    return Table(["what", "best reading", "also measured"], rows, "What the paper does not print")


def ranking_table(mechanism: str, ranking: Sequence[ReadingFit], counted: bool) -> Table:
    """Return the readings of one mechanism, best first; `counted` adds how many printed numbers are in range."""
    best = ranking[0].log_probability
    lines = [
        [str(number), fit.varies, f"{fit.log_probability:.1f}", f"{fit.log_probability - best:.1f}"]
        + [fit.inside] * counted
        for number, fit in enumerate(ranking[:MOST_RANKED], start=1)
    ]
    left_out = len(ranking) - len(lines)
    more = f"; {left_out} readings that fit less well are in readings.csv" if left_out else ""
    columns = ["rank", "reading", "log probability", "difference from the best"]
    columns += ["independent printed numbers in range"] * counted
    return Table(columns, lines, f"{mechanism}: {len(ranking)} readings{more}")


def best_by_mechanism_table(readings: ReadingResults, counted: bool) -> Table:
    """Return the best reading of each mechanism by itself, and the best single reading, with their fits."""
    best = readings.best
    told = [
        (f"{name}; seeds of the ranking", paper.difference(fits[0].reading, best.reading, name, "nothing"), fits[0])
        for name, fits in readings.rankings.items()
    ]
    told.append(("all mechanisms; seeds of the main table", "one reading for all", best))
    lines = [[name, differs, f"{fit.log_probability:.1f}"] + [fit.inside] * counted for name, differs, fit in told]
    columns = ["rows of", "differs from the best single reading in", "log probability"]
    columns += ["independent printed numbers in range"] * counted
    return Table(columns, lines, "The best reading of each mechanism by itself")


def runs_table(readings: ReadingResults) -> Table:
    """Return how ε_c depends on m: the model of disjoint distributions, and the rows of the W2-MHE."""
    shown, lines = paper.finite_cells(paper.W2MHE), []
    for m, ceiling in readings.ceiling_by_runs.items():
        measured = {row.row: summary_text(row.numbers["epsilon_c"], "epsilon_c") for row in readings.by_runs.get(m, ())}
        own = [measured.get(cell.key, NOT_KNOWN) for cell in shown]
        lines.append([str(m), summary_text(ceiling, "epsilon_c"), *own])
    columns = ["m", "disjoint distributions: ε_c", *(f"{cell.place}: printed {cell.epsilon_c:g}" for cell in shown)]
    return Table(columns, lines, "ε_c of the W2-MHE for other m, from the seeds of the ranking")


def finer_table(finer: Sequence[FinerFit]) -> Table:
    """Return the finer grids (T = 7, Q2, s 0.8)."""
    lines = []
    for fit in finer:
        inside = fit.printed is not None and fit.epsilon_c.low <= fit.printed <= fit.epsilon_c.high
        mark = "" if fit.printed is None else f"{INSIDE} " if inside else f"{OUTSIDE} "
        place = {2: "text", 3: "item 1", 4: "item 2"}.get(fit.r, "item 3")
        ours = Cell(printed_text(fit.printed, "epsilon_c"), mark + summary_text(fit.epsilon_c, "epsilon_c"))
        ceiling = Cell(summary_text(fit.ceiling, "epsilon_c"), f"reached in {fit.at_ceiling:.0%} of seeds")
        lines.append([place, str(fit.r), ours, ceiling])
    caption = "Finer partitions (section V, sufficient condition): Q2, s 0.8, T 7"
    return Table(["paper", "r", "ε_c", "ceiling"], lines, caption)


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
            "by the paper's angle" if pairs["angle"] == "paper" else "until the data are 10 apart",
            f"{pairs['epsilon']:g}",
            f"{pairs['passed']} of {pairs['pairs']}",
            f"{pairs['interval'][0]:.0%} to {pairs['interval'][1]:.0%}",
            f"{pairs['refuted']} of {pairs['pairs']}",
            f"{pairs['violating']:.0%}",
        ]
        for pairs in measured
    ]
    columns = ["a sensor moves", "claimed ε", "pass the paper's test", "share of all pairs (95%)"]
    columns += ["refuted by the library's own test", "share that violates the claim, at least"]
    return Table(columns, rows, "Section IV-B: adjacent pairs that pass")


def certified_table(own: Sequence[Mapping[str, Any]]) -> Table:
    """Return what the library's own test proves and bounds for the printed parameters."""
    rows = []
    for cell in CELLS:
        for one in own:
            same = (one["setup"], one["mechanism"]) == (cell.setup, cell.mechanism) and one["sensor"] is None
            if same and one["value"] in (cell.value, *[one["value"]] * (cell.value is None)):
                law = LAW_WORDS[one["law"]] if cell.mechanism == paper.W2MHE else ""
                rows.append(
                    [
                        cell.place,
                        ", ".join(filter(None, [cell.setup, cell.mechanism, law, cell.parameter_text])),
                        format_lower(one["lower"]),
                        "∞" if math.isinf(one["upper"]) else format_upper(one["upper"]),
                        f"{one['error']:.3g}",
                    ]
                )
    columns = ["paper", "row", "proved: ε ≥ (all events)", "ε ≤ (over the cells)", "E_correct"]
    caption = "The library's own test at δ = 0, for one draw of the sensors and data that are 10 apart"
    return Table(columns, rows, caption)


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
            "tail": number.tail,
            "log_probability": number.log_probability,
            "ceiling": row.numbers["ceiling"].median,
            "at_ceiling": row.at_ceiling,
            **{f"reading.{name}": value for name, value in fit.reading._asdict().items()},
        }
        for mechanism, ranking in rankings.items()
        for rank, fit in enumerate(ranking, start=1)
        for row in fit.rows
        for number in row.fits
    ]
