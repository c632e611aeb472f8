"""The output files of the reproduction: numbers as JSON and CSV, tables as Markdown, figures, and the page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dpverify.estimation import theory
from dpverify.events.region import scenario_size
from dpverify.paper import experiment
from dpverify.paper.claims import judge_claims
from dpverify.paper.comparison import CellComparison, GridComparison, compare_cells, compare_grids
from dpverify.paper.decision_rule import MIN_DRAWS, Claim
from dpverify.paper.discussion import differences, impossible_statements
from dpverify.paper.figure_groups import FigureGroup, figure_groups
from dpverify.paper.measurements import CalibratedNumbers, Results, SensorDraw
from dpverify.paper.plan import Effort, Plan
from dpverify.paper.printed import read_printed
from dpverify.paper.tables import (
    LEGEND,
    cell_record,
    cells_table,
    claim_records,
    flatten,
    grid_record,
    grids_table,
    markdown_page,
    show_claim,
)
from dpverify.render.page import render, shown
from dpverify.studies.tables import write_csv
from dpverify.util.files import write_text
from dpverify.util.formatting import format_number
from dpverify.util.serialization import to_plain
from dpverify.util.timing import versions

TITLE = "A numerical verification framework for differential privacy in estimation, run again"
RULE = (
    "The rule: over at least {min_draws} draws of sensors and seeds, the median difference gets a 95% confidence "
    "interval (that of the sign test, exact for any distribution; each interval is valid by itself). If the interval "
    "excludes zero, the comparison is confirmed or contradicted; otherwise it is undecided. A claim is answered if all "
    "comparisons at equal privacy and at equal accuracy agree. The theorem must hold on every draw; “very” "
    "conservative means a factor of ten. All comparisons use one delta, {delta:g}. The comparisons at the paper's own "
    "values are shown and decide nothing: there, neither privacy nor accuracy is equal. The Gibbs distribution "
    "decides, because it is the one with a theorem. The values of equal privacy and equal accuracy were fixed before "
    "the first draw; the number of draws was raised after a shorter run. Values at equal privacy or accuracy are "
    "interpolated between neighbouring parameters, or extrapolated from the last two; epsilon there is an estimate, "
    "which with few runs is up to a tenth too large."
)
FIGURE_FORMATS = ("png", "svg", "pdf")


class ComputedConstant(NamedTuple):
    """A constant that the paper prints, and the same constant computed by this library."""

    printed: float
    ours: float


def write_outputs(folder: Path, plan: Plan, effort: Effort, results: Results) -> Path:
    """Write every output file into the folder, and return the path of the page."""
    cells, grids = compare_cells(results.tables), compare_grids(results.tables)
    claims = judge_claims(results.draws, plan.matched, effort.laws)
    constants = computed_constants()
    groups = list(figure_groups(results.tables, cells, results.draws, plan.matched, effort))
    rule = rule_text(plan, results.draws)
    command = "dpverify reproduce" + (" --quick" if effort == plan.quick else "")
    extent = f"{effort.seeds} seeds per cell, {len(results.draws)} draws of sensors"
    write_numbers(folder, results.calibrated, cells, grids, claims, constants)
    made_by = f"Made by `{command}`, version {versions()['dpverify']}: {extent}."
    write_text(folder / "table.md", markdown_page(made_by, rule, cells, grids, claims))
    write_figures(folder / "figures", groups)
    page = folder / "index.html"
    text = render(
        "paper.html.j2",
        over=extent,
        title=TITLE,
        lead=lead_sentence(claims),
        rule=rule,
        claims=[show_claim(claim) for claim in claims],
        numbers_say=LEGEND,
        numbers=cells_table(cells),
        finer=grids_table(grids),
        groups=[{"key": g.key, "name": g.heading, "say": g.text, "figures": shown(g.drawings, g.key)} for g in groups],
        cannot=impossible_statements(),
        differ=differences(cells, results.draws, results.calibrated),
        again=command,
        how=method_notes(results.calibrated, constants, effort),
        versions=", ".join(f"{name} {value}" for name, value in versions().items()),
    )
    write_text(page, text)
    return page


def write_numbers(
    folder: Path,
    calibrated: CalibratedNumbers,
    cells: Sequence[CellComparison],
    grids: Sequence[GridComparison],
    claims: Sequence[Claim],
    constants: dict[str, ComputedConstant],
) -> None:
    """Write `numbers.json`, `numbers.csv` and `claims.csv`."""
    cell_records, grid_records = [cell_record(cell) for cell in cells], [grid_record(grid) for grid in grids]
    document = {
        "calibration": calibrated._asdict(),
        "cells": cell_records,
        "finer": grid_records,
        "claims": [
            {
                "claim": claim.name,
                "text": claim.text,
                "answer": claim.answer.value,
                "comparisons": claim_records(claim),
            }
            for claim in claims
        ],
        "constants": {name: constant._asdict() for name, constant in constants.items()},
    }
    write_text(folder / "numbers.json", json.dumps(to_plain(document), indent=1, allow_nan=False) + "\n")
    write_csv(folder / "numbers.csv", [flatten(record) for record in [*cell_records, *grid_records]])
    write_csv(folder / "claims.csv", [record for claim in claims for record in claim_records(claim)])


def write_figures(folder: Path, groups: Sequence[FigureGroup]) -> None:
    """Write every figure in every format."""
    folder.mkdir(exist_ok=True)
    for group in groups:
        for number, drawing in enumerate(group.drawings):
            for suffix in FIGURE_FORMATS:
                drawing.figure.savefig(folder / f"{group.key}-{number}.{suffix}", dpi=180)


def rule_text(plan: Plan, draws: Sequence[SensorDraw]) -> str:
    """Return the rule by which claims are answered; with too few draws it says that no claim is answered."""
    rule = RULE.format(min_draws=MIN_DRAWS, delta=plan.matched.delta)
    if len(draws) < MIN_DRAWS:
        rule += f" This run has {len(draws)} draws, too few to answer a claim; the run without --quick has enough."
    return rule


def computed_constants() -> dict[str, ComputedConstant]:
    """Return the printed constants that can be computed, with the computed values."""
    printed, example = read_printed().constants, read_printed().theory
    c_f = experiment.system("Q2").lipschitz or math.nan
    lipschitz = theory.w2mhe_lipschitz(c_f, example.window)
    steps = example.steps - example.window + 1
    sufficient = theory.w2mhe_epsilon(example.s, lipschitz, c_f, example.diameter, example.distance, steps)
    return {
        "Gamma": ComputedConstant(printed.Gamma, scenario_size(2, printed.beta, printed.gamma)),
        "events": ComputedConstant(printed.events, (2**2) ** (9 - example.window)),
        "c_f": ComputedConstant(printed.c_f, c_f),
        "l": ComputedConstant(printed.l, lipschitz),
        "theory": ComputedConstant(example.epsilon, sufficient),
    }


def lead_sentence(claims: Sequence[Claim]) -> str:
    """Return all claims and their answers as one sentence."""
    parts = []
    for claim in claims:
        part = f"{claim.text[:-1]}: {claim.answer.value}"
        starts_with_name = part.startswith("W2")
        parts.append(part if not parts or starts_with_name else part[:1].lower() + part[1:])
    return "; ".join(parts) + "."


def method_notes(calibrated: CalibratedNumbers, constants: dict[str, ComputedConstant], effort: Effort) -> list[str]:
    """Return notes about the assumptions and sizes of this reproduction."""
    equal = ", ".join(
        f"{name} {format_number(float(constant.printed))} (ours {constant.ours:.6g})"
        for name, constant in constants.items()
    )
    return [
        f"tau {calibrated.tau:.4g}, ŝ {calibrated.s_hat:.5g}. {calibrated.says}",
        "Q2 has evenly spaced sensors; Q1 and Q3 are drawn once; sensor 0 moves. n = 1000 and m = 2000 are assumed. "
        "For Table I, s 0.8 and s̄ 0.894 are assumed.",
        f"Constants of the paper that we computed: {equal}.",
        f"Each draw: {effort.draw.select_runs} selection and {effort.draw.test_runs} test runs per data set and "
        "parameter; epsilon there is an estimate on the partition, interpolated along the parameter.",
    ]
