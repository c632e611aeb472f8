"""The output files of the gallery: the table as CSV and JSON, one figure per mechanism, Markdown, and the page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dpverify.gallery.rows import (
    ROLES,
    CaseResult,
    Result,
    bound_texts,
    case_results,
    claim_text,
    exact_text,
    seconds_of,
    table_rows,
    verdict_sentence,
    witness_sentence,
)
from dpverify.render.bounds import complete_figure
from dpverify.render.cases import CaseBar, draw_cases
from dpverify.render.page import render, shown
from dpverify.render.style import Drawing
from dpverify.studies.tables import write_csv
from dpverify.util.files import write_text
from dpverify.util.formatting import format_count
from dpverify.util.timing import versions

TITLE = "Published private mechanisms for dynamic data, verified at their own claims"
LEAD = (
    "Each mechanism is implemented from its description in the cited source, with the claim and the neighbours of the "
    "source. The verifier sees samples only.",
    "A verdict is about the mechanism as specified here, not about every reading of a source or every implementation.",
)
LEGEND = (
    "Refuted: the samples prove that the claim fails. Stands: these runs do not refute it; this is no proof. Stands, "
    "bounded: moreover, all unions of the cells of one partition keep the claim. Every single bound holds with "
    "confidence 99.9%.",
    "Proved is a lower bound over all events, bounded an upper bound over unions of cells only. Exact is the smallest "
    "true value for this pair of data sets, at the claimed delta, where it is known. Runs are test runs per data set; "
    "seconds are wall-clock seconds of one process.",
)
HOW_TO_RUN = (
    "```sh\n"
    "dpverify gallery --quick --out quick    # some minutes, with fewer runs\n"
    "dpverify gallery --out gallery          # about half an hour on two cores\n"
    "dpverify gallery binary triggered       # two of the mechanisms\n"
    "```",
    "The same command resumes an interrupted run. The folder contains the report of every case, the table as CSV and "
    "JSON, a figure per mechanism and the page. `examples/gallery` has a short script for every mechanism, and "
    "`dpverify gallery --list` prints the names.",
    "Two entries run public programs as they are, through `dpverify.program`; nothing of them is part of dpverify. "
    "They are skipped where they are not installed. Location Guard: install Node.js, run `git clone "
    "https://github.com/chatziko/location-guard`, and set the environment variable `LOCATION_GUARD` to the folder of "
    "the clone. OpenDP: `pip install opendp`. A driver of some 20 lines reads the requests and calls the program.",
)
COLUMNS = ("case", "claim", "verdict", "proved", "bounded", "exact", "runs", "seconds")
NUMBERS = ("proved", "bounded", "runs", "seconds")
SYMBOLS = {"epsilon": "ε", "mu": "μ", "delta": "δ"}
FIGURE_DPI = 150
FIGURE_TITLE = "Claim, bounds and exact value of each case"


def write_outputs(folder: Path, results: Sequence[Result], quick: bool) -> Path:
    """Write all output files into the folder, and return the path of the page."""
    found = {result.entry.name: tuple(case_results(result)) for result in results}
    rows = [row for result in results for row in table_rows(result, found[result.entry.name])]
    write_csv(folder / "table.csv", rows)
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    write_text(folder / "table.json", json.dumps(plain, indent=1, allow_nan=False) + "\n")
    drawings = {result.entry.name: entry_figure(result, found[result.entry.name]) for result in results}
    write_text(folder / "gallery.md", markdown_page(results, found, quick))
    page = folder / "index.html"
    number = sum(len(cases) for cases in found.values())
    write_text(
        page,
        render(
            "gallery.html.j2",
            over=f"{len(results)} mechanisms, {number} verifications{', quick form with few runs' if quick else ''}",
            title=TITLE,
            lead=LEAD,
            legend=LEGEND,
            columns=COLUMNS,
            right=NUMBERS,
            groups=[table_group(result, found[result.entry.name]) for result in results],
            entries=[page_entry(result, found[result.entry.name], drawings) for result in results],
            command=f"dpverify gallery{' --quick' if quick else ''}",
            versions=", ".join(f"{name} {value}" for name, value in versions().items()),
        ),
    )
    (folder / "figures").mkdir(exist_ok=True)
    for name, drawing in drawings.items():  # last, because the title and the legend are drawn into the figures now
        if drawing is not None:
            complete_figure(drawing).savefig(folder / "figures" / f"{name}.png", dpi=FIGURE_DPI)
    return page


def entry_figure(result: Result, found: Sequence[CaseResult]) -> Drawing | None:
    """Return the figure of an entry; None without results."""
    if not found:
        return None
    bars = [
        CaseBar(
            case.case.title,
            case.claimed,
            case.proved,
            case.bounded,
            case.exact,
            case.truth is None or case.truth.is_exact,
        )
        for case in found
    ]
    return draw_cases(bars, FIGURE_TITLE, SYMBOLS[found[0].quantity])


def table_group(result: Result, found: Sequence[CaseResult]) -> dict[str, object]:
    """Return the rows of an entry in the table of the page."""
    return {
        "title": result.entry.title,
        "name": result.entry.name,
        "skipped": result.missing is not None,
        "rows": [_cells(case) for case in found],
    }


class Cell(NamedTuple):
    """The content of a cell: its text, a smaller text below it, and the name of its style."""

    text: str
    below: str = ""
    style: str = ""


def _cells(found: CaseResult) -> list[Cell]:
    """Return the cells of one case."""
    proved, bounded = bound_texts(found)
    return [
        Cell(found.case.title, ROLES[found.case.role]),
        Cell(claim_text(found)),
        Cell(found.verdict, style=found.report.verdict.name),
        Cell(proved, found.quantity if found.proved > 0 else ""),
        Cell(bounded),
        Cell(*exact_text(found)),
        Cell(format_count(found.report.witness.runs)),
        Cell(f"{seconds_of(found.report):.0f}"),
    ]


def page_entry(result: Result, found: Sequence[CaseResult], drawings: dict[str, Drawing | None]) -> dict[str, object]:
    """Return what the section of an entry shows."""
    entry, drawing = result.entry, drawings[result.entry.name]
    return {
        "name": entry.name,
        "title": entry.title,
        "source": entry.source,
        "what": entry.what,
        "neighbours": entry.neighbours,
        "why": entry.why,
        "missing": result.missing,
        "figure": None if drawing is None else shown([drawing], f"{entry.name}-figure")[0],
        "verdicts": [
            {"style": case.report.verdict.name, "role": ROLES[case.case.role], "text": verdict_sentence(case)}
            for case in found
        ],
        "witnesses": [
            {"text": witness_sentence(case), "case": case.case.title} for case in found if case.report.refuted
        ],
    }


def markdown_page(results: Sequence[Result], found: dict[str, tuple[CaseResult, ...]], quick: bool) -> str:
    """Return the page as Markdown, with one section per mechanism."""
    command = f"dpverify gallery{' --quick' if quick else ''}"
    made_by = f"This page was made by `{command}`, version {versions()['dpverify']}."
    parts = ["# The gallery", *LEAD, made_by, *HOW_TO_RUN, "## All mechanisms", *LEGEND]
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for result in results:
        lines.append(f"| **[{result.entry.title}](#{result.entry.name})** |{' |' * (len(COLUMNS) - 1)}")
        for case in found[result.entry.name]:
            cells = [f"{cell.text} ({cell.below})" if cell.below else cell.text for cell in _cells(case)]
            lines.append(f"| {' | '.join(cells)} |")
    parts.append("\n".join(lines))
    for result in results:
        parts += _markdown_entry(result, found[result.entry.name])
    return "\n\n".join(parts) + "\n"


def _markdown_entry(result: Result, found: Sequence[CaseResult]) -> list[str]:
    """Return the paragraphs of one entry."""
    entry = result.entry
    parts = [f'<a id="{entry.name}"></a>', f"## {entry.title}", f"*{entry.source}*", entry.what]
    parts.append(f"**Neighbours:** {entry.neighbours}")
    if result.missing is not None:
        return [*parts, f"Skipped: {result.missing}.", f"**Why:** {entry.why}"]
    parts.append(f"![{FIGURE_TITLE}](figures/gallery/{entry.name}.png)")
    lines = []
    for case in found:
        lines.append(f"- {verdict_sentence(case)}")
        if case.report.refuted:
            lines.append(f"  Witness: {witness_sentence(case)}")
    return [*parts, "\n".join(lines), f"**Why:** {entry.why}"]


def _plain(value: object) -> object:
    """Return a value for strict JSON: infinity becomes text."""
    return "inf" if isinstance(value, float) and math.isinf(value) else value
