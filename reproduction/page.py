"""The page of the reproduction, in the order of the paper, and the files beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dpverify.render import Code, Figures, Items, Links, Page, Section, Sentence
from dpverify.studies import write_csv
from reproduction import figures, findings, slides, tables
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
MARKDOWN_FIGURES = ("curve", "beside", "map")


def write_page(
    folder: Path,
    effort: str,
    shifts: Sequence[Mapping[str, Any]],
    readings: ReadingResults,
    draws: Sequence[SensorDraw],
    pairs: Sequence[Mapping[str, Any]],
    own: Sequence[Mapping[str, Any]],
) -> Path:
    """Write the page as HTML and as Markdown, and the tables as CSV; return the path of the page."""
    claims = judge_claims(draws)
    command = "make reproduced" + (" QUICK=1" if effort == "quick" else "")
    ranked, best = (counts_text(PLAN[effort][name]) for name in ("seeds", "best"))
    extent = (
        f"Made by “{command}”, dpverify {version('dpverify')}: {ranked} seeds per row and reading in the ranking, "
        f"{best} per row of the best reading (W2-MHE, input, EKF); "
        f"{len(draws)} draws of sensors for the claims."
    )
    lead = [Sentence(text, style="lead") for text in findings.lead(readings, claims, effort, len(draws))]
    sections = [
        *slide_sections(shifts),
        *result_sections(readings, effort == "full"),
        *paper_sections(pairs),
        claim_section(claims, draws),
        Section(
            "What the library's own test says",
            (Sentence(TEXTS["own"]), tables.certified_table(own), Figures(figures.privacy_maps(own), "map")),
            "own",
        ),
        Section(
            "Printed statements that need a correction",
            (Items([Sentence(one["why"], label=f"{one['statement']}.") for one in PRINTED["corrections"]]),),
            "corrections",
        ),
        Section("How to reproduce this page", (Code(command),), "again"),
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


def counts_text(counts: Mapping[str, int]) -> str:
    """Return the numbers of seeds of the three mechanisms; one number where they are equal."""
    return ", ".join(map(str, dict.fromkeys(counts.values()) if len(set(counts.values())) == 1 else counts.values()))


def without_figures(section: Section) -> Section:
    """Return the section with the few figures that the Markdown page shows."""
    blocks = [b for b in section.blocks if not isinstance(b, Figures) or b.name in MARKDOWN_FIGURES]
    return dataclasses.replace(section, blocks=blocks)


def slide_sections(shifts: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return what the slides show, and which readings they exclude."""
    shift = TEXTS["shift"].format(ratio=slides.drawn_ratio(), draws=len(shifts[0]["error"]))
    return [
        Section(
            "What the authors' slides show",
            (
                *map(Sentence, findings.slide_findings()),
                Figures([figures.curve_figure()], "curve"),
                tables.drawn_table(),
            ),
            "slides",
        ),
        Section("Fig. 4: the estimator without noise", (Sentence(shift), tables.shift_table(shifts)), "shift"),
    ]


def result_sections(readings: ReadingResults, counted: bool) -> list[Section]:
    """Return every printed row beside ours, the directions, the readings, and what stays unexplained."""
    rankings = [tables.ranking_table(name, fits, counted) for name, fits in readings.rankings.items()]
    unexplained = findings.unexplained(readings) or ["Nothing."]
    return [
        Section(
            "Section V: every printed row, Figs. 4 to 6, Tables I and II",
            (
                Sentence(findings.reading_sentence(readings)),
                Sentence(TEXTS["main_legend"] + (f" {TEXTS['marks']}" if counted else ""), style="small"),
                tables.main_table(readings, counted),
                Figures([figures.compare_rows(readings, name) for name in ("epsilon_c", "error")], "beside"),
                tables.choice_table(readings),
            ),
            "rows",
        ),
        Section(
            "Directions and finer partitions",
            (
                Sentence(TEXTS["trends"]),
                tables.trend_table(readings.trends),
                Sentence(TEXTS["finer"]),
                tables.finer_table(readings, counted),
            ),
            "finer",
        ),
        Section(
            "The readings and their ranking",
            (*map(Sentence, findings.ranking_findings(readings)), tables.choices_table(readings), *rankings),
            "readings",
        ),
        *[Section("What stays unexplained", (Items(unexplained),), "unexplained")] * counted,
    ]


def paper_sections(pairs: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return what needs no reading: Figs. 1 to 3, formulas, and the share of pairs."""
    return [
        Section("Section II: Fig. 1", (Figures([figures.sensor_scene()], "scene"),), "scene"),
        Section(
            "Sections IV and V: Algorithm 3, constants and each λ",
            (*map(Sentence, findings.eta_findings()), tables.constants_table()),
            "formulas",
        ),
        Section(
            "Section IV: Figs. 2 and 3, the choice of the event",
            (Figures(figures.event_figures(), "events"),),
            "events",
        ),
        Section(
            "Section IV-B: the share of adjacent pairs that pass",
            (Sentence(TEXTS["pairs"]), tables.pairs_table(pairs)),
            "pairs",
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
