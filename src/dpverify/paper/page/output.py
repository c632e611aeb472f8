"""The output files of the reproduction: numbers as JSON and CSV, tables as Markdown, figures, and the page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from dpverify.paper.claims.decision_rule import MIN_DRAWS, Claim
from dpverify.paper.claims.judgement import judge_claims
from dpverify.paper.constants import ComputedConstant, computed_constants, eta_sentence
from dpverify.paper.measurements import CalibratedNumbers, Results, SensorDraw
from dpverify.paper.page import findings, reading_tables
from dpverify.paper.page.choice_table import choice_table
from dpverify.paper.page.discussion import impossible_statements
from dpverify.paper.page.figure_groups import FigureGroup, figure_groups
from dpverify.paper.page.tables import (
    Table,
    certified_table,
    claim_records,
    constants_table,
    markdown_table,
    pairs_table,
    show_claim,
)
from dpverify.paper.plan import Effort, Plan
from dpverify.paper.readings.results import ReadingResults
from dpverify.render.page import render, shown
from dpverify.render.style import Drawing
from dpverify.studies.tables import write_csv
from dpverify.util.files import write_text
from dpverify.util.serialization import to_plain
from dpverify.util.timing import versions

TITLE = "A numerical verification framework for differential privacy in estimation, run again"
RULES = (
    "For every reading and over at least {min_draws} draws of sensors and seeds, the median difference gets a 95% "
    "confidence interval: that of the sign test, exact for any distribution. Each interval is valid by itself.",
    "If the interval excludes a ratio of 1, or a difference of 0, the comparison is confirmed or contradicted under "
    "this reading. Otherwise it is undecided.",
    "A claim is confirmed or contradicted only where all measured readings agree. Otherwise it depends on the "
    "assumption that changes the answer.",
    "The readings of the claims are fixed. The best reading of the main table need not be one of them.",
    "The theorem must hold on every draw. “Conservative” means a factor of ten or more.",
    "All comparisons use the epsilon at one delta, {delta:g}: the β of the paper's region, which is smaller than every "
    "printed λ. It is an estimate. Values at equal privacy or accuracy are interpolated between neighbouring "
    "parameters, or extrapolated from the last two.",
    "The paper's own yardstick compares at the paper's own values. It is shown and decides nothing, because neither "
    "privacy nor accuracy is equal there.",
    "In a cell of a table the first line is the median over draws, with the 5% and 95% quantiles in parentheses. An ε "
    "above e^7 counts as infinite. A ratio of two infinite values counts as 1, and a difference of two infinite "
    "differences is left out.",
)
CONSTRUCTED = (
    "Some of these numbers agree by construction: the step size was chosen for c_f, the formula for 6474.3, and an η "
    "that is solved back for its λ. Γ, the number of cells, l and the two λ with a printed η are checks."
)
FIGURE_FORMATS = ("png", "svg", "pdf")
MARKDOWN_FIGURES = (("beside", 0), ("runs", 0), ("map", 1))  # group of figures, and number in the group
COLOUR_WORDS = {"ink": "black", "first": "blue", "second": "orange", "muted": "grey"}


def write_outputs(folder: Path, plan: Plan, effort: Effort, results: Results) -> Path:
    """Write every output file into the folder, and return the path of the page."""
    readings = results.readings
    assert readings is not None, "the readings are measured before the page is written"
    claims = judge_claims(results.draws, plan.matched)
    constants = computed_constants()
    groups = figure_groups(results, readings, plan.matched)
    rules = claim_rules(plan, results.draws)
    command = "dpverify reproduce" + (" --quick" if effort == plan.quick else "")
    seeds = effort.readings
    ranked = (seeds.blend, seeds.gibbs, seeds.input, seeds.ekf)
    extent = (
        f"{min(ranked)} to {max(ranked)} seeds per row and reading in the ranking, {seeds.best} seeds per row of the "
        f"best reading ({seeds.best_input} for input perturbation), {len(results.draws)} draws of sensors"
    )
    lead = findings.lead(readings, claims, seeds.quick)
    if seeds.quick:
        lead.insert(0, findings.quick_notice(seeds, len(results.draws)))
    tables = reading_page_tables(readings)
    write_numbers(folder, results.calibrated, readings, claims, constants)
    made_by = f"Made by `{command}`, version {versions()['dpverify']}: {extent}."
    write_text(folder / "table.md", markdown_page(made_by, lead, rules, readings, tables, claims, groups))
    write_figures(folder / "figures", groups)
    page = folder / "index.html"
    text = render(
        "paper.html.j2",
        over=extent,
        title=TITLE,
        lead=lead,
        ceiling=findings.ceiling_findings(readings),
        best_reading=findings.best_reading_sentence(readings),
        ranking_says=findings.ranking_findings(readings),
        unexplained=findings.unexplained(readings),
        eta_says=[eta_sentence(), findings.eta_finding(readings), CONSTRUCTED],
        main_legend=reading_tables.MAIN_LEGEND,
        tables=tables,
        rankings=[reading_tables.ranking_table(name, ranking) for name, ranking in readings.rankings.items()],
        constants=constants_table(constants),
        pairs=pairs_table(results.pairs),
        certified=certified_table(results.tables),
        rules=rules,
        claims=[show_claim(claim) for claim in claims],
        figures={group.key: shown(group.drawings, group.key) for group in groups},
        cannot=impossible_statements(),
        again=command,
        how=method_notes(results.calibrated, effort),
        versions=", ".join(f"{name} {value}" for name, value in versions().items()),
    )
    write_text(page, text)
    return page


def reading_page_tables(readings: ReadingResults) -> dict[str, Table]:
    """Return the tables of the readings by their place on the page."""
    return {
        "main": reading_tables.main_table(readings),
        "finer": reading_tables.finer_table(readings.finer),
        "choices": reading_tables.choices_table(readings),
        "best": reading_tables.best_by_mechanism_table(readings),
        "runs": reading_tables.runs_table(readings),
        "choice": choice_table(readings),
    }


def markdown_page(
    made_by: str,
    lead: Sequence[str],
    rules: Sequence[str],
    readings: ReadingResults,
    tables: dict[str, Table],
    claims: Sequence[Claim],
    groups: Sequence[FigureGroup],
) -> str:
    """Return the main tables and some of the figures as one Markdown page."""
    parts = ["# The paper's numbers and ours", made_by, *lead, "## The ceiling", *findings.ceiling_findings(readings)]
    parts += [f"## {tables['main'].caption}", reading_tables.MAIN_LEGEND, markdown_table(tables["main"])]
    parts += [f"### {tables['choice'].caption}", markdown_table(tables["choice"])]
    parts += ["## The readings", findings.best_reading_sentence(readings), *findings.ranking_findings(readings)]
    parts += [f"### {tables[name].caption}\n\n{markdown_table(tables[name])}" for name in ("choices", "best")]
    for name, ranking in readings.rankings.items():
        table = reading_tables.ranking_table(name, ranking)
        parts.append(f"### {table.caption}\n\n{markdown_table(table)}")
    parts += [f"### {tables[name].caption}\n\n{markdown_table(tables[name])}" for name in ("runs", "finer")]
    parts += [
        "## Numbers outside their ranges, and what stays unexplained",
        "\n".join(f"- {text}" for text in findings.unexplained(readings)) or "Nothing.",
    ]
    parts += ["## The four claims", "\n".join(f"- {rule}" for rule in rules)]
    for claim in map(show_claim, claims):
        hedges = "; ".join(claim.hedges)
        parts.append(
            f"**Claim {claim.number}. {claim.text}** ({claim.place}. The paper's restrictions: {hedges}.)\n\n"
            f"Answer: {claim.answer}. {claim.says} {claim.yardstick}\n\n{markdown_table(claim.table)}"
        )
    for group in groups:
        parts += [
            _markdown_figure(drawing, f"figures/{group.key}-{number}.png")
            for number, drawing in enumerate(group.drawings)
            if (group.key, number) in MARKDOWN_FIGURES
        ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _markdown_figure(drawing: Drawing, path: str) -> str:
    """Return an image with its title, its legend in words and its caption."""
    keys = "; ".join(f"{COLOUR_WORDS.get(key.colour, key.colour)} {key.mark}: {key.text}" for key in drawing.keys)
    legend = f"{keys[0].upper()}{keys[1:]}. " if keys else ""
    return f"**{drawing.title}**\n\n![{drawing.description}]({path})\n\n{legend}{drawing.caption}"


def write_numbers(
    folder: Path,
    calibrated: CalibratedNumbers,
    readings: ReadingResults,
    claims: Sequence[Claim],
    constants: dict[str, ComputedConstant],
) -> None:
    """Write `numbers.json`, `readings.csv` and `claims.csv`."""
    records = [record for claim in claims for record in claim_records(claim)]
    document = {
        "calibration": calibrated._asdict(),
        "best_reading": readings.best.reading._asdict(),
        "rows": [_row_record(row) for row in readings.best.rows],
        "finer": [fit._asdict() for fit in readings.finer],
        "claims": [
            {"claim": claim.name, "answer": claim.answer.value, "depends_on": list(claim.depends_on)}
            for claim in claims
        ],
        "comparisons": records,
        "constants": {name: constant._asdict() for name, constant in constants.items()},
    }
    plain = to_plain(_without_nan(document))
    write_text(folder / "numbers.json", json.dumps(plain, indent=1, allow_nan=False) + "\n")
    write_csv(folder / "readings.csv", reading_tables.reading_records(readings))
    write_csv(folder / "claims.csv", records)


def _row_record(row: reading_tables.RowFit) -> dict[str, object]:
    """Return a row of the best reading for `numbers.json`: its place in the paper, our numbers and its fits."""
    cell = reading_tables.cells_by_key()[row.row]
    record: dict[str, object] = row._asdict() | {"fits": [fit._asdict() for fit in row.fits], "place": cell.place}
    del record["reading"], record["counts"]
    return record | {"saturated": row.saturated}


def _without_nan(value: object) -> object:
    """Replace NaN by None, everywhere in plain data."""
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _without_nan(value._asdict())  # type: ignore[attr-defined]
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def write_figures(folder: Path, groups: Sequence[FigureGroup]) -> None:
    """Write every figure in every format."""
    folder.mkdir(exist_ok=True)
    for group in groups:
        for number, drawing in enumerate(group.drawings):
            for suffix in FIGURE_FORMATS:
                drawing.figure.savefig(folder / f"{group.key}-{number}.{suffix}", dpi=180)


def claim_rules(plan: Plan, draws: Sequence[SensorDraw]) -> list[str]:
    """Return the rules by which claims are answered; with too few draws they say that no claim is answered."""
    rules = [rule.format(min_draws=MIN_DRAWS, delta=plan.matched.delta) for rule in RULES]
    if len(draws) < MIN_DRAWS:
        rules.append(f"This run has {len(draws)} draws, too few to answer a claim; the run without --quick has enough.")
    return rules


def method_notes(calibrated: CalibratedNumbers, effort: Effort) -> list[str]:
    """Return notes about the assumptions and sizes of this reproduction."""
    return [
        f"The claims and the library's own test use tau {calibrated.tau:.4g} and ŝ {calibrated.s_hat:.5g}. "
        f"{calibrated.says}",
        "The library's own test, Fig. 1 and Fig. 4 right use one draw of the sensors of Q1 and one of Q3; sensor 0 "
        "moves. For Table I the library's own test uses s 0.8 and s̄ 0.894. The main table draws sensors for every "
        "seed and fits these parameters.",
        f"Each draw of the claims: {effort.draw.select_runs} selection and {effort.draw.test_runs} test runs per data "
        "set and parameter; epsilon there is an estimate on the partition, interpolated along the parameter.",
    ]
