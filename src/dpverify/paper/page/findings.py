"""Sentences about the reproduction, made from its results: what was reproduced, what was not, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpverify.paper.claims.decision_rule import Answer, Claim
from dpverify.paper.claims.words import CLAIM_WORDS
from dpverify.paper.page.reading_tables import CHOICES, cells_by_key, is_fixed_by_own_error, printed_text, summary_text
from dpverify.paper.plan import ReadingSeeds
from dpverify.paper.printed import read_printed
from dpverify.paper.readings.definitions import BASE, FIELDS, all_readings, describe
from dpverify.paper.readings.results import CeilingByRuns, FinerFit, NumberFit, ReadingResults, RowFit
from dpverify.stats.paper_test import PAPER_EPSILON_SWEEP

SYMBOLS = {"epsilon_c": "ε_c", "eta": "η", "lambda": "λ", "error": "E_correct", "error_adjacent": "E_adjacent"}
TYPICAL_EPSILON = 0.4  # the printed critical epsilon of the W2-MHE on Q1 is 0.39947


def listed(parts: Sequence[str]) -> str:
    """Join parts as "a, b and c"; "none" if there are none."""
    if not parts:
        return "none"
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def lead(readings: ReadingResults, claims: Sequence[Claim], quick: bool = False) -> list[str]:
    """Return three paragraphs: what was reproduced, what was not, and why.

    The quick form measures too few readings to say that none of them explains a row.
    """
    best = readings.best
    rows = finite_rows(readings)
    outside = [row for row in rows if not _fit(row, "epsilon_c").inside]
    saturated = [row for row in rows if row.saturated]
    unknown = [row for row in best.rows if _outside(row) and not _explaining(readings, row)]
    by_answer = {answer: [_claim_number(claim) for claim in claims if claim.answer is answer] for answer in Answer}
    confirmed = by_answer.pop(Answer.CONFIRMED)
    others = [_claims_text(numbers, answer) for answer, numbers in by_answer.items() if numbers]
    agree = f"; {_claims_text(confirmed, Answer.CONFIRMED)}" if confirmed else ""
    missed = f"{len(outside)} of the {len(rows)} ε_c ({'; '.join(map(_place, outside))})" if outside else "no ε_c"
    no_reading = (
        f" For {listed([_place(row) for row in unknown])}, no measured reading has every number in range, and we do "
        "not know why."
        if unknown and not quick
        else ""
    )
    return [
        f"Reproduced: {best.inside} of the {best.printed} numbers lie in our 5% to 95% ranges under the best reading: "
        f"{_inside_by_kind(best.rows)}{agree}. A reading is one choice for everything that the paper does not "
        f"print.{_deterministic_sentence(best.rows)}",
        f"Not reproduced: {missed}.{_finer_sentence(readings.finer)}"
        f"{''.join(f' {text[0].upper()}{text[1:]}.' for text in others)}",
        "Why the numbers differ: sensors, distributions, covariances and m are not printed; every ε_c is random; and "
        f"in {len(saturated)} of {len(rows)} rows our ε_c is at the ceiling of the procedure in at least half of the "
        "seeds, where it measures the counts and no longer the difference between the two data "
        f"sets.{no_reading}",
    ]


def quick_notice(seeds: ReadingSeeds, draws: int) -> str:
    """Say that the page is that of the quick form, and what it must not be used for."""
    measured, planned = (
        sum(len(all_readings(mechanism, quick)) for mechanism in FIELDS) for quick in (seeds.quick, False)
    )
    ranked = (seeds.blend, seeds.gibbs, seeds.input, seeds.ekf)
    return (
        f"This is the quick form of the reproduction. It measures {measured} of {planned} readings, with "
        f"{min(ranked)} to {max(ranked)} seeds each, and {draws} draws of sensors. Another reading may be the best one "
        "in the full run, and a number outside a range here may lie inside it there. No claim is answered."
    )


def _deterministic_sentence(rows: Sequence[RowFit]) -> str:
    """Say that every epsilon of the sweep is rejected without noise, if it is so for nearly all seeds."""
    ends = [row.epsilon_c.low for row in rows if math.isinf(cells_by_key()[row.row].epsilon_c)]
    if not ends or min(ends) <= PAPER_EPSILON_SWEEP[-1]:
        return ""
    return f" Without noise (s = 1) every ε up to {PAPER_EPSILON_SWEEP[-1]:g} is rejected, as in Fig. 4."


def _finer_sentence(finer: Sequence[FinerFit]) -> str:
    """Compare the trend of epsilon_c along the printed finer partitions with ours, if the directions differ."""
    fits = [fit for fit in finer if fit.printed is not None]
    if len(fits) < 2:
        return ""
    first, last = fits[0], fits[-1]
    printed, ours = (first.printed, last.printed), (first.epsilon_c.median, last.epsilon_c.median)
    if (printed[1] or 0.0) <= (printed[0] or 0.0) or ours[1] >= ours[0]:
        return ""
    return (
        f" From r = {first.r} to r = {last.r} the printed ε_c grows from {printed[0]:g} to {printed[1]:g}; ours falls "
        f"from {ours[0]:.2f} to {ours[1]:.2f}."
    )


def _inside_by_kind(rows: Sequence[RowFit]) -> str:
    """Return how many numbers of each kind lie in their ranges, and which of them are no predictions."""
    parts = []
    for name, symbol in SYMBOLS.items():
        fits = [(row, fit) for row in rows for fit in row.fits if fit.name == name]
        if not fits:
            continue
        text = f"{symbol} {sum(fit.inside for _, fit in fits)} of {len(fits)}"
        solved = sum(name == "eta" and cells_by_key()[row.row].eta is None for row, _ in fits)
        fixed = sum(name == "error" and is_fixed_by_own_error(row) for row, _ in fits)
        notes = [f"{solved} not printed, but solved from λ"] if solved else []
        notes += [f"{fixed} of them were used to fit a parameter"] if fixed else []
        parts.append(f"{text} ({'; '.join(notes)})" if notes else text)
    return ", ".join(parts)


def _claim_number(claim: Claim) -> str:
    """Return the number of a claim, with a note if a single reading answers it."""
    readings = {comparison.reading for comparison in claim.comparisons if comparison.decides}
    return f"{CLAIM_WORDS[claim.name].number}{' (under one reading)' if len(readings) == 1 else ''}"


def _claims_text(numbers: Sequence[str], answer: Answer) -> str:
    """Return "claim 2 is undecided" or "claims 1 and 3 are confirmed"."""
    verb = "depend" if answer is Answer.DEPENDS else "are"
    if len(numbers) == 1:
        verb = "depends" if answer is Answer.DEPENDS else "is"
    words = answer.value.removeprefix("depends ")
    return f"{'claim' if len(numbers) == 1 else 'claims'} {listed(numbers)} {verb} {words}"


def finite_rows(readings: ReadingResults) -> list[RowFit]:
    """Return the rows of the best reading whose printed critical epsilon is finite."""
    return [row for row in readings.best.rows if any(fit.name == "epsilon_c" for fit in row.fits)]


def _fit(row: RowFit, name: str) -> NumberFit:
    return next(fit for fit in row.fits if fit.name == name)


def _place(row: RowFit) -> str:
    return cells_by_key()[row.row].place


def favoured_runs(ceilings: Sequence[CeilingByRuns]) -> CeilingByRuns:
    """Return the model of disjoint distributions with the m that the printed values favour."""
    return max(ceilings, key=lambda ceiling: ceiling.log_probability)


def ceiling_findings(readings: ReadingResults) -> list[str]:
    """Return paragraphs about the ceiling: what disjoint distributions give, and what the printed values favour."""
    ceilings = readings.ceiling_by_runs
    favoured = favoured_runs(ceilings)
    cells = read_printed().cells
    printed = [c.epsilon_c for c in cells if c.mechanism == "W2-MHE" and math.isfinite(c.epsilon_c)]
    inside = sum(favoured.epsilon_c.low <= value <= favoured.epsilon_c.high for value in printed)
    typical = [str(c.test_runs) for c in ceilings if c.epsilon_c.low <= TYPICAL_EPSILON <= c.epsilon_c.high]
    rows = finite_rows(readings)
    saturated = [row for row in rows if row.saturated]
    named = f" ({'; '.join(map(_place, saturated))})" if 0 < len(saturated) < len(rows) else ""
    others = [ceiling for ceiling in ceilings if ceiling is not favoured]
    worse = "; ".join(f"{c.log_probability - favoured.log_probability:.1f} at m = {c.test_runs}" for c in others)
    worse = worse.replace("-", "−")
    values = listed([f"{value:g}" for value in printed])
    return [
        "The test looks at one cell of 256. If the mass is spread evenly, a cell holds about 4 of 1000 runs, and "
        "the counts of the tested cell stay small even if the second data set never produces it. A small first count "
        "and a second count of 0 give a small ε_c. This is the ceiling of the procedure.",
        "Two distributions that share no output, on 256 equally likely cells, have an infinite ε. The procedure "
        "reports "
        + "; ".join(f"{summary_text(c.epsilon_c, 'epsilon_c')} with m = {c.test_runs}" for c in ceilings)
        + f". {TYPICAL_EPSILON:g} lies in the 5% to 95% range for m = {listed(typical)}. With 256 nearly equal "
        f"cells, n = 1000 and such an m, an ε_c near {TYPICAL_EPSILON:g} is therefore what fully distinguishable "
        "distributions give.",
        f"The paper prints {values} for the W2-MHE. Among the measured m, these "
        f"values are most probable under disjoint distributions for m = {favoured.test_runs}. Its 5% to 95% range has "
        f"{inside} of the {len(printed)}. The log probability at other m differs by {worse}. The printed values are "
        "of the size that distributions give which can be told apart completely. This does not prove that the authors "
        "measured such distributions: a smaller true ε with a larger m can give the same numbers.",
        f"Under the best reading, {len(saturated)} of the {len(rows)} rows with a finite printed ε_c are "
        f"saturated{named}: in at least half of the seeds the tested event never occurs under one of the data sets. "
        "Then ε_c does not change if the data sets are moved further apart. It depends on the number of runs and on "
        "how the mass is spread over the cells, and does not measure privacy.",
    ]


def eta_finding(readings: ReadingResults) -> str:
    """Return a sentence about eta: what is printed, and how likely it is under the best reading."""
    parts = []
    for row in readings.best.rows:
        cell = cells_by_key()[row.row]
        if cell.eta is not None:
            fit = _fit(row, "eta")
            parts.append(
                f"{cell.place}: printed {printed_text(cell.eta, 'eta')}, ours {summary_text(row.eta, 'eta')}, share of "
                f"seeds at least as far out {fit.tail:.3g}"
            )
    return f"η is the largest share of the n selection runs in one cell. {'; '.join(parts)}." if parts else ""


def unexplained(readings: ReadingResults) -> list[str]:
    """Return a sentence for each printed row with a number outside its range under the best reading."""
    sentences = []
    for row in readings.best.rows:
        outside = [fit for fit in row.fits if not fit.inside]
        if outside:
            numbers = "; ".join(
                f"{SYMBOLS[fit.name]} {printed_text(fit.printed, fit.name)}, ours "
                f"{summary_text(fit.measured, fit.name)}"
                for fit in outside
            )
            cell = cells_by_key()[row.row]
            label = f"{_place(row)} ({cell.setup}, {cell.mechanism}, {cell.parameter} {row.parameter:.3g})"
            sentences.append(f"{label}: {numbers}. {_other_readings(readings, row, outside)}")
    return sentences


def _other_readings(readings: ReadingResults, row: RowFit, outside: Sequence[NumberFit]) -> str:
    """Return a sentence about measured readings that have all numbers of this row in range."""
    explaining = _explaining(readings, row)
    if explaining:
        return f"Another reading has every number of this row in range: {explaining[0]}."
    wanted = {fit.name for fit in outside}
    for varies, other in _same_row(readings, row):
        if wanted & {fit.name for fit in other.fits if fit.inside}:
            return (
                "No measured reading has every number of this row in range; the first in the ranking with one of "
                f"these: {varies}."
            )
    return "No measured reading has any of these in range."


def _outside(row: RowFit) -> bool:
    return any(not fit.inside for fit in row.fits)


def _explaining(readings: ReadingResults, row: RowFit) -> list[str]:
    """Return the measured readings, best first, under which every number of this row is in range."""
    return [varies for varies, other in _same_row(readings, row) if not _outside(other)]


def _same_row(readings: ReadingResults, row: RowFit) -> list[tuple[str, RowFit]]:
    """Return this row under every ranked reading, with the reading in words."""
    ranking = readings.rankings.get(cells_by_key()[row.row].mechanism, ())
    return [(fit.varies, other) for fit in ranking for other in fit.rows if other.row == row.row]


def ranking_findings(readings: ReadingResults) -> list[str]:
    """Return sentences about the ranking: the best reading, the runner-up, and what the fit means."""
    sentences = [
        "For every reading the experiment is simulated with many seeds; a seed draws the sensors, the data and all "
        "runs. The fit of a reading is the sum of the log predictive probabilities of the printed numbers. A printed "
        "number is one cell of a grid: a point of the sweep for ε_c, 0.001 for η, 1% for an error. Its probability "
        "is that of the cell under a kernel estimate of the simulated values, mixed with a broad distribution of "
        "weight 0.01. A vague reading spreads its probability over many cells, so it is not rewarded for containing "
        "the printed value somewhere. λ does not count, because it follows from η and ε_c. For each row only what "
        "the row depends on is varied. A reading is named by what distinguishes it from the base reading, which is: "
        f"{'; '.join(describe(name, getattr(BASE, name)) for name in CHOICES)}.",
    ]
    for mechanism, ranking in readings.rankings.items():
        first = ranking[0]
        text = (
            f"{mechanism}: “{first.varies}” is the best of {len(ranking)}, {first.inside} of {first.printed} in range"
        )
        if len(ranking) > 1:
            gap = first.log_probability - ranking[1].log_probability
            text += f"; the next, “{ranking[1].varies}”, is {gap:.1f} lower"
        sentences.append(f"{text}.")
    return sentences


def best_reading_sentence(readings: ReadingResults) -> str:
    """Return the best single reading in words."""
    reading = readings.best.reading
    return f"The best single reading: {'; '.join(describe(name, getattr(reading, name)) for name in CHOICES)}."
