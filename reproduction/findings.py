"""Sentences about the reproduction, made from its results: what was reproduced, what was not, and why."""

from __future__ import annotations

from collections.abc import Sequence

from reproduction import paper, slides
from reproduction.claims import Answer, Claim
from reproduction.fit import NumberFit, ReadingResults, RowFit
from reproduction.paper import BASE, CELL, PLAN, SLIDES, TEXTS, computed_constants, describe
from reproduction.tables import count_inside, printed_text, summary_text

SYMBOLS = {"epsilon_c": "ε_c", "eta": "η", "error": "E_correct", "error_adjacent": "E_adjacent", "count": "count"}


def listed(parts: Sequence[str]) -> str:
    """Join parts as "a, b and c"; "none" if there are none."""
    if len(parts) < 2:
        return "".join(parts) or "none"
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def lead(readings: ReadingResults, claims: Sequence[Claim], effort: str, draws: int) -> list[str]:
    """Return what was reproduced, what was not, and why.

    The quick form counts nothing, because few seeds make wide ranges and few readings are measured.
    """
    told = [TEXTS["reading"]]
    if effort == "quick":
        told.insert(0, quick_notice(draws))
    else:
        told += [count_sentence(readings), direction_sentence(readings)]
    by_answer = {answer: [str(c.words["number"]) for c in claims if c.answer is answer] for answer in Answer}
    answers = [f"{answer.value}: {listed(numbers)}" for answer, numbers in by_answer.items() if numbers]
    told.append(f"The claims, by their numbers in section I: {'; '.join(answers)}.")
    return told


def quick_notice(draws: int) -> str:
    """Say that the page is that of the quick form, and what it must not be used for."""
    measured, planned = (
        sum(len(paper.all_readings(name, quick)) for name in paper.MECHANISMS) for quick in (True, False)
    )
    seeds = max(PLAN["quick"]["seeds"].values())
    return TEXTS["quick"].format(measured=measured, planned=planned, seeds=seeds, draws=draws)


def count_sentence(readings: ReadingResults) -> str:
    """Return how many independent numbers lie in their ranges: on Q1, by kind, and of those that had no part."""
    best = readings.best
    fits = [fit for row in (*best.rows, *readings.finer.values()) for fit in row.fits]
    held_out = best.fits("Q2", "Q3") + [fit for row in readings.finer.values() for fit in row.fits]
    kinds = [
        f"{symbol} {count_inside(of_kind)}"
        for name, symbol in SYMBOLS.items()
        if (of_kind := [fit for fit in fits if fit.name == name])
    ]
    return (
        f"{count_inside(fits)} independent printed numbers lie in our 5% to 95% ranges under the best reading: "
        f"{', '.join(kinds)}. On Q1, where the reading was chosen, these are {count_inside(best.fits('Q1'))}; of those "
        f"that had no part in the choice (Q2, Q3, r = 2 to 4) {count_inside(held_out)}. The range of a number contains "
        "nine tenths of what the reading gives, so a wide range says little; the tables show the ranges."
    )


def direction_sentence(readings: ReadingResults) -> str:
    """Return which directions of epsilon_c are reproduced."""
    parts = [
        f"{answer}: {'; '.join(names)}"
        for answer in ("reproduced", "contradicted", "undecided")
        if (names := [trend.what for trend in readings.trends if trend.answer == answer])
    ]
    return f"Directions of ε_c under the best reading: {'. '.join(parts)}."


def curve_sentence() -> str:
    """Return what the drawn p-values say about the averaging and the counts."""
    own, second, disjoint = slides.curve_fits()
    return TEXTS["curve"].format(
        counts=own.counts,
        rms=own.rms,
        end=own.end,
        epsilon=own.epsilon_c,
        second=second.counts,
        second_rms=second.rms,
        disjoint_rms=disjoint.rms,
    )


def slide_findings() -> list[str]:
    """Return what the slides show."""
    grouped = [
        f"{count} points to {end:g}: {listed([f'{x:g}' for x in values])}"
        for (end, count), values in slides.sweeps().items()
    ]
    return [
        TEXTS["slides"].format(source=SLIDES["source"]),
        curve_sentence(),
        TEXTS["errors"],
        TEXTS["averaged"],
        TEXTS["sweeps"].format(sweeps="; ".join(grouped)),
        TEXTS["versions"],
    ]


def eta_findings() -> list[str]:
    """Return what the solved values of eta imply for n."""
    solved = [constant for name, constant in computed_constants().items() if name.startswith("lambda, ")]
    return [
        f"With η rounded to a multiple of 0.001, {sum(constant.agrees for constant in solved)} of the {len(solved)} "
        "printed λ come out in every digit. This is what n = 1000 selection runs give; the paper does not print n.",
        TEXTS["constructed"],
    ]


def unexplained(readings: ReadingResults) -> list[str]:
    """Return a sentence for each printed row with a number outside its range under the best reading."""
    sentences = []
    for row in readings.best.rows:
        if missed := [fit for fit in row.fits if not fit.inside]:
            cell = CELL[row.row]
            told = "; ".join(map(number_text, missed))
            label = f"{cell.place} ({cell.setup}, {cell.mechanism}, {cell.parameter} {row.parameter:.5g})"
            sentences.append(f"{label}: {told}. {other_readings(readings, row)}".strip())
    for r, row in readings.finer.items():
        sentences += [f"r = {r}: {number_text(fit)}." for fit in row.fits if not fit.inside]
    return sentences


def number_text(fit: NumberFit) -> str:
    """Return a printed number and ours."""
    return f"{SYMBOLS[fit.name]} {printed_text(fit.printed, fit.name)}, ours {summary_text(fit.measured, fit.name)}"


def other_readings(readings: ReadingResults, row: RowFit) -> str:
    """Return a sentence about ranked readings that have every number of this row in range; "" off Q1."""
    ranking = readings.rankings[CELL[row.row].mechanism]
    others = [(fit.varies, other) for fit in ranking for other in fit.rows if other.row == row.row]
    if not others:
        return ""
    found = [varies for varies, other in others if all(fit.inside for fit in other.fits)]
    if found:
        return f"Another reading has every number of this row in range: {found[0]}."
    return "No measured reading has every number of this row in range."


def reading_sentence(readings: ReadingResults) -> str:
    """Return the best single reading in words."""
    choices = (describe(name, value) for name, value in readings.best.reading._asdict().items())
    return f"The best single reading: {'; '.join(choices)}."


def ranking_findings(readings: ReadingResults) -> list[str]:
    """Return sentences about the ranking: what the score means, and the best reading of each mechanism."""
    base = "; ".join(describe(name, value) for name, value in BASE._asdict().items())
    sentences = [TEXTS["ranking"].format(base=base)]
    for mechanism, (first, *_) in readings.rankings.items():
        differs = paper.difference(first.reading, readings.best.reading, mechanism, "nothing")
        sentences.append(f"{mechanism} by itself: its first reading differs from the best single one in: {differs}.")
    return sentences
