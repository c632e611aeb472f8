"""The page of the reproduction, in the order of the paper, and the files beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dpverify.render import Code, Figures, Items, Links, Page, Section, Sentence
from dpverify.studies import write_csv
from reproduction import figures, findings, tables
from reproduction.claims import (
    MIN_DRAWS,
    Answer,
    Claim,
    answer_sentence,
    claim_records,
    judge_claims,
    yardstick_sentence,
)
from reproduction.fit import ReadingResults
from reproduction.measure import SensorDraw
from reproduction.paper import PLAN, PRINTED, TEXTS

TITLE = "A numerical verification framework for differential privacy in estimation, run again"
BADGES = {Answer.CONFIRMED: "NOT_REFUTED", Answer.CONTRADICTED: "REFUTED"}
MARKDOWN_FIGURES = ("runs", "beside", "map")


def write_page(
    folder: Path,
    effort: str,
    calibrated: Mapping[str, float],
    readings: ReadingResults,
    draws: Sequence[SensorDraw],
    pairs: Sequence[Mapping[str, Any]],
    own: Sequence[Mapping[str, Any]],
) -> Path:
    """Write the page as HTML and as Markdown, and the tables as CSV; return the path of the page."""
    claims = judge_claims(draws)
    command = "make reproduced" + (" QUICK=1" if effort == "quick" else "")
    seeds = PLAN[effort]["seeds"]
    ranked = [seeds[name] for name in ("blend", "gibbs", "input", "ekf")]
    extent = (
        f"Made by “{command}”, dpverify {version('dpverify')}: {min(ranked)} to {max(ranked)} seeds per row and "
        f"reading in the ranking, {seeds['best']} seeds per row of the best reading ({seeds['best_input']} for input "
        f"perturbation), {len(draws)} draws of sensors."
    )
    lead = [Sentence(text, style="lead") for text in findings.lead(readings, claims, effort, len(draws))]
    notes = [text.format(**calibrated, **PLAN[effort]["draw"]) for text in TEXTS["notes"]]
    sections = [
        *result_sections(readings, effort == "full", pairs),
        claim_section(claims, draws),
        *reading_sections(readings, effort == "full"),
        Section(
            "What the library's own test says",
            (
                Sentence(TEXTS["own"]),
                tables.certified_table(own),
                Figures(figures.privacy_maps(own), "map"),
            ),
            "own",
        ),
        Section(
            "Printed statements that cannot hold as printed",
            (Items([Sentence(one["why"], label=f"{one['statement']}.") for one in PRINTED["cannot"]]),),
            "inconsistent",
        ),
        Section("How to reproduce this page", (Code(command), Items(notes)), "again"),
    ]
    links = Links([(section.title, f"#{section.anchor}") for section in sections])
    page = Page(TITLE, (*lead, links, *sections), over=extent)
    page.to_html(folder / "index.html")
    shown = dataclasses.replace(
        page, title="The paper's numbers and ours", blocks=(*lead, *map(without_figures, sections))
    )
    (folder / "table.md").write_text(shown.markdown(folder / "figures") + "\n", encoding="utf-8")
    write_csv(folder / "readings.csv", tables.reading_records(readings.rankings))
    write_csv(folder / "rows.csv", tables.reading_records({"all": [readings.best]}))
    write_csv(folder / "claims.csv", claim_records(claims))
    return folder / "index.html"


def without_figures(section: Section) -> Section:
    """Return the section with the few figures that the Markdown page shows."""
    blocks = [b for b in section.blocks if not isinstance(b, Figures) or b.name in MARKDOWN_FIGURES]
    return dataclasses.replace(section, blocks=blocks)


def result_sections(readings: ReadingResults, counted: bool, pairs: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return what follows sections II to V of the paper."""
    return [
        Section(
            "The ceiling: what ε_c says about distributions that share no output",
            (
                *map(Sentence, findings.ceiling_findings(readings)),
                Figures([figures.epsilon_against_runs(readings)], "runs"),
                tables.runs_table(readings),
            ),
            "ceiling",
        ),
        Section("Section II: Fig. 1", (Figures([figures.sensor_scene()], "scene"),), "scene"),
        Section(
            "Sections IV and V: Algorithm 3, constants and each λ",
            (*map(Sentence, findings.eta_findings(readings)), tables.constants_table()),
            "formulas",
        ),
        Section(
            "Section IV: Figs. 2 and 3, the choice of the event",
            (Figures(figures.event_figures(), "events"),),
            "events",
        ),
        Section(
            "Section IV-B: Theorem 1 and the share of adjacent pairs that pass",
            (Sentence(TEXTS["pairs"]), tables.pairs_table(pairs)),
            "pairs",
        ),
        Section(
            "Section V: every printed row, Figs. 4 to 6, Tables I and II",
            (
                Sentence(findings.reading_sentence(readings)),
                Sentence(TEXTS["main_legend"], style="small"),
                tables.main_table(readings),
                tables.choice_table(readings),
                Figures([figures.compare_rows(readings, name) for name in ("epsilon_c", "error")], "beside"),
                Figures(figures.p_value_figures(readings), "p-values"),
            ),
            "rows",
        ),
        Section(
            "Section V: the sufficient condition and finer partitions",
            (Sentence(TEXTS["finer"]), tables.finer_table(readings.finer)),
            "finer",
        ),
    ]


def claim_section(claims: Sequence[Claim], draws: Sequence[SensorDraw]) -> Section:
    """Return the four claims, with the rules by which they are judged."""
    rules = list(TEXTS["rules"])
    if len(draws) < MIN_DRAWS:
        rules.append(f"This run has {len(draws)} draws, too few to answer a claim; the full run has enough.")
    blocks: list[Any] = [Items(rules)]
    for claim in claims:
        words = claim.words
        blocks += [
            Sentence(
                words["statement"],
                label=f"Claim {words['number']}.",
                badge=claim.answer.value,
                verdict=BADGES.get(claim.answer, "MEASURED"),
            ),
            Sentence(f"{words['place']}. The paper's own restrictions: {'; '.join(words['hedges'])}.", style="small"),
            Sentence(f"{answer_sentence(claim)} {yardstick_sentence(claim)}"),
            tables.claim_table(claim),
        ]
    return Section(
        "The four claims", (*blocks, Figures([figures.accuracy_against_privacy(draws)], "exchange")), "claims"
    )


def reading_sections(readings: ReadingResults, counted: bool) -> list[Section]:
    """Return the ranking of the readings, and what stays unexplained."""
    rankings = [tables.ranking_table(name, fits, counted) for name, fits in readings.rankings.items()]
    return [
        Section(
            "The readings and their ranking",
            (
                *map(Sentence, findings.ranking_findings(readings)),
                tables.choices_table(readings),
                tables.best_by_mechanism_table(readings, counted),
                *rankings,
            ),
            "readings",
        ),
        Section("What stays unexplained", (Items(findings.unexplained(readings) or ["Nothing."]),), "unexplained"),
    ]
