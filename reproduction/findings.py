"""Sentences about the reproduction, made from its results: what was reproduced, what was not, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reproduction import paper
from reproduction.claims import Answer, Claim
from reproduction.fit import FinerFit, ReadingResults, RowFit
from reproduction.paper import BASE, CELL, PLAN, TEXTS, computed_constants, describe
from reproduction.tables import printed_text, summary_text

SYMBOLS = {"epsilon_c": "ε_c", "eta": "η", "lambda": "λ", "error": "E_correct", "error_adjacent": "E_adjacent"}


def listed(parts: Sequence[str]) -> str:
    """Join parts as "a, b and c"; "none" if there are none."""
    if len(parts) < 2:
        return "".join(parts) or "none"
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def lead(readings: ReadingResults, claims: Sequence[Claim], effort: str, draws: int) -> list[str]:
    """Return what was reproduced, what was not, and why.

    The quick form counts nothing and names no row that no reading explains: few seeds make wide ranges, and few
    readings are measured.
    """
    told = [TEXTS["reading"]]
    rows = readings.best.rows
    if effort == "quick":
        told.insert(0, quick_notice(draws))
    else:
        outside = [
            f"{symbol} of {listed(places)}" for name, symbol in SYMBOLS.items() if (places := missed(rows, name))
        ]
        told += [
            f"{readings.best.inside} independent printed numbers lie in our 5% to 95% ranges under the best reading: "
            f"{inside_by_kind(rows)}. λ follows from η and ε_c, and an error that a parameter was fitted to predicts "
            "nothing; neither is counted.",
            f"Outside their ranges: {'; '.join(outside) or 'none'}.{finer_sentence(readings.finer)}",
        ]
        unknown = [CELL[row.row].place for row in rows if is_outside(row) and not explaining(readings, row)]
        if unknown:
            told.append(
                f"For {listed(unknown)}, no measured reading has every number in range, and we do not know why."
            )
    by_answer = {answer: [str(c.words["number"]) for c in claims if c.answer is answer] for answer in Answer}
    answers = [f"{answer.value}: {listed(numbers)}" for answer, numbers in by_answer.items() if numbers]
    told.append(f"The claims, by their numbers in section I: {'; '.join(answers)}.")
    return told


def quick_notice(draws: int) -> str:
    """Say that the page is that of the quick form, and what it must not be used for."""
    measured, planned = (
        sum(len(paper.all_readings(name, quick)) for name in paper.MECHANISMS) for quick in (True, False)
    )
    seeds = [PLAN["quick"]["seeds"][name] for name in ("blend", "gibbs", "input", "ekf")]
    counts = {"measured": measured, "planned": planned, "fewest": min(seeds), "most": max(seeds), "draws": draws}
    return TEXTS["quick"].format(**counts)


def inside_by_kind(rows: Sequence[RowFit]) -> str:
    """Return how many independent numbers of each kind lie in their ranges."""
    parts = []
    for name, symbol in SYMBOLS.items():
        inside = [fit.inside for row in rows for fit in row.fits if fit.name == name and fit.independent]
        if inside:
            solved = sum(CELL[row.row].eta is None for row in rows if CELL[row.row].lambda_ is not None)
            note = f" ({solved} not printed, but solved from λ)" if name == "eta" else ""
            parts.append(f"{symbol} {sum(inside)} of {len(inside)}{note}")
    return ", ".join(parts)


def missed(rows: Sequence[RowFit], name: str) -> list[str]:
    """Return the places whose independent number of this name is outside its range."""
    return [
        CELL[row.row].place
        for row in rows
        if any(fit.name == name and fit.independent and not fit.inside for fit in row.fits)
    ]


def finer_sentence(finer: Sequence[FinerFit]) -> str:
    """Compare the trend of epsilon_c along the printed finer partitions with ours, if the directions differ."""
    fits = [fit for fit in finer if fit.printed is not None]
    first, last = fits[0], fits[-1]
    if (last.printed or 0.0) <= (first.printed or 0.0) or last.epsilon_c.median >= first.epsilon_c.median:
        return ""
    return (
        f" From r = {first.r} to r = {last.r} the printed ε_c grows from {first.printed:g} to {last.printed:g}; ours "
        f"falls from {first.epsilon_c.median:.2f} to {last.epsilon_c.median:.2f}."
    )


def ceiling_findings(readings: ReadingResults) -> list[str]:
    """Return paragraphs about the ceiling: what disjoint distributions give, and how often we reach it."""
    rows = [row for row in readings.best.rows if math.isfinite(CELL[row.row].epsilon_c)]
    reached = sum(row.at_ceiling >= 0.5 for row in rows)
    given = [f"{summary_text(s, 'epsilon_c')} with m = {m}" for m, s in readings.ceiling_by_runs.items()]
    return [
        TEXTS["ceiling"],
        "Two distributions that share no output, on 256 equally likely cells, have an infinite ε. The procedure "
        f"reports {'; '.join(given)}.",
        TEXTS["not_the_authors"],
        f"Under the best reading, {reached} of the {len(rows)} rows with a finite printed ε_c reach the ceiling in at "
        "least half of the seeds: there our tested event never occurs under one of the data sets, and our ε_c depends "
        "on the number of runs and on how the mass is spread over the cells.",
    ]


def eta_findings(readings: ReadingResults) -> list[str]:
    """Return what the solved values of eta imply for n, and how likely the printed ones are under the best reading."""
    solved = [constant for name, constant in computed_constants().items() if name.startswith("lambda, ")]
    parts = []
    for row in readings.best.rows:
        cell = CELL[row.row]
        if cell.eta is not None:
            fit = next(fit for fit in row.fits if fit.name == "eta")
            parts.append(
                f"{cell.place}: printed {cell.eta:.3f}, ours {summary_text(fit.measured, 'eta')}, share of seeds at "
                f"least as far out {fit.tail:.3g}"
            )
    return [
        f"With η rounded to a multiple of 0.001, {sum(constant.agrees for constant in solved)} of the {len(solved)} "
        "printed λ come out in every digit. This is what n = 1000 selection runs give; the paper does not print n.",
        f"η is the largest share of the n selection runs in one cell. {'; '.join(parts)}.",
        TEXTS["constructed"],
    ]


def unexplained(readings: ReadingResults) -> list[str]:
    """Return a sentence for each printed row with a number outside its range under the best reading."""
    sentences = []
    for row in filter(is_outside, readings.best.rows):
        cell, numbers = CELL[row.row], [fit for fit in row.fits if not fit.inside]
        told = "; ".join(
            f"{SYMBOLS[fit.name]} {printed_text(fit.printed, fit.name)}, ours {summary_text(fit.measured, fit.name)}"
            for fit in numbers
        )
        label = f"{cell.place} ({cell.setup}, {cell.mechanism}, {cell.parameter} {row.parameter:.3g})"
        sentences.append(f"{label}: {told}. {other_readings(readings, row, {fit.name for fit in numbers})}")
    return sentences


def other_readings(readings: ReadingResults, row: RowFit, wanted: set[str]) -> str:
    """Return a sentence about measured readings that have the numbers of this row in range."""
    if found := explaining(readings, row):
        return f"Another reading has every number of this row in range: {found[0]}."
    for varies, other in same_row(readings, row):
        if wanted & {fit.name for fit in other.fits if fit.inside}:
            return (
                "No measured reading has every number of this row in range; the first in the ranking with one of "
                f"these: {varies}."
            )
    return "No measured reading has any of these in range."


def is_outside(row: RowFit) -> bool:
    return any(not fit.inside for fit in row.fits)


def explaining(readings: ReadingResults, row: RowFit) -> list[str]:
    """Return the measured readings, best first, under which every number of this row is in range."""
    return [varies for varies, other in same_row(readings, row) if not is_outside(other)]


def same_row(readings: ReadingResults, row: RowFit) -> list[tuple[str, RowFit]]:
    """Return this row under every ranked reading, with the reading in words."""
    ranking = readings.rankings[CELL[row.row].mechanism]
    return [(fit.varies, other) for fit in ranking for other in fit.rows if other.row == row.row]


def reading_sentence(readings: ReadingResults) -> str:
    """Return the best single reading in words."""
    choices = (describe(name, value) for name, value in readings.best.reading._asdict().items())
    return f"The best single reading: {'; '.join(choices)}."


def ranking_findings(readings: ReadingResults) -> list[str]:
    """Return sentences about the ranking: what the fit means, and the best reading of each mechanism."""
    base = "; ".join(describe(name, value) for name, value in BASE._asdict().items())
    sentences = [TEXTS["ranking"].format(base=base)]
    for mechanism, (first, *others) in readings.rankings.items():
        text = f"{mechanism}: “{first.varies}” is the best of {len(others) + 1}"
        if others:
            gap = first.log_probability - others[0].log_probability
            text += f"; the next, “{others[0].varies}”, is {gap:.1f} lower"
        sentences.append(f"{text}.")
    return sentences
