"""`python -m gallery.bugs`: verify every bug, wrong and repaired; write the rows, the table of the corpus and the page.

build/bugs/verified                the folder of `verify_many`
build/bugs/rows.json               what was found
build/bugs/corpus.csv              name, kind, claim, truth and reference of every bug, for other tools
build/bugs/index.html, bugs.md     the page; build/bugs/pages has the report of every bug
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpverify import Report, Settings, render
from dpverify.studies import Job, verify_many
from gallery.bugs.bug import Bug, Version
from gallery.bugs.corpus import BUGS

ALPHA = 1e-6  # a repaired version is refuted at most once in a million verifications
KINDS = {"library": "Found in libraries", "algorithm": "Algorithms and noise", "stream": "Estimators and streams"}
Row = dict[str, Any]


def make_job(bug: Bug, version: Version, seed: int, early: bool = False) -> Job:
    """Return a verification of one version."""
    runs = {} if bug.runs is None else {"select_runs": bug.runs[0], "test_runs": bug.runs[1]}
    settings = Settings(alpha=ALPHA, seed=seed, stop_early=early, **runs)
    name = f"{bug.name}-{'early' if early else 'repaired' if version.repaired else 'wrong'}-{seed}"
    return Job(name, version, *bug.pair, bug.claim, settings)


def proved(bug: Bug, report: Report) -> float:
    """Return the lower bound of the bug's quantity; 0 without one."""
    bound = report.delta_lower(bug.claim.epsilon) if bug.quantity == "delta" else report.epsilon_lower
    return bound or 0.0


def make_row(bug: Bug, wrong: Sequence[Report], repaired: Sequence[Report], early: Report) -> Row:
    """Return what was found, as plain data."""
    return {
        "name": bug.name,
        "found": sum(report.refuted for report in wrong),
        "repaired_refuted": sum(report.refuted for report in repaired),
        "seeds": len(wrong),
        "proved": float(np.median([proved(bug, report) for report in wrong])),
        "witness": wrong[0].witness.text,
        "shares": [share for share, _, _ in wrong[0].witness.probabilities],
        "runs": early.runs_used if early.refuted else None,
        "test_runs": wrong[0].settings.test_runs,
    }


def number(value: float) -> str:
    """Return a true value in words."""
    return "infinite" if math.isinf(value) else render.format_number(value)


def write_corpus(path: Path) -> None:
    """Write what does not depend on a verification."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ("name", "kind", "epsilon", "delta", "quantity", "wrong", "repaired", "repaired_is_exact", "reference")
        )
        for bug in BUGS:
            truths = bug.truths
            exact = f"{truths.wrong:.6g}", f"{truths.repaired:.6g}", truths.repaired_is_exact
            claim = f"{bug.claim.epsilon:.6g}", f"{bug.claim.delta:.6g}"
            writer.writerow((bug.name, bug.kind, *claim, bug.quantity, *exact, bug.reference))


def finding(rows: Mapping[str, Row]) -> str:
    """Return the headline."""
    found = sum(row["found"] == row["seeds"] for row in rows.values())
    false = sum(row["repaired_refuted"] for row in rows.values())
    repaired = "no repaired version is refuted" if not false else f"{false} tests refute a repaired version"
    return f"{found} of {len(rows)} privacy bugs are found with default settings; {repaired}"


def make_page(rows: Mapping[str, Row], drawings: Mapping[str, Sequence[render.Drawing]]) -> render.Page:
    """Return the page of the corpus."""
    known = [bug for bug in BUGS if bug.name in rows]
    headers = "bug", "claim", "truth", "proved", "found", "runs until found"
    columns = [render.Column(header, index >= 3) for index, header in enumerate(headers)]
    cells = []
    for kind, title in KINDS.items():
        cells.append([render.Cell(title)])
        for bug in (bug for bug in known if bug.kind == kind):
            row, claim = rows[bug.name], bug.claim
            stated = f"epsilon {claim.epsilon:.3g}" + (f", delta {claim.delta:.2g}" if claim.delta else "")
            cells.append(
                [
                    render.Cell(bug.title, link=f"#{bug.name}"),
                    render.Cell(stated),
                    render.Cell(f"{bug.quantity} {number(bug.truths.wrong)}", bug.truths.how),
                    render.Cell(render.format_lower(row["proved"]) if row["proved"] else "none"),
                    render.Cell(f"{row['found']} of {row['seeds']}"),
                    render.Cell("not found" if row["runs"] is None else render.format_count(row["runs"])),
                ]
            )
    seeds = next(iter(rows.values()))["seeds"]
    blocks = [
        render.Sentence(
            "Each case is a small mechanism with a bug, its claim, and the exact privacy of a pair of neighbouring "
            "datasets, once wrong and once repaired. The code is ours and small; each case says what its reference "
            "reports and what we added. A verdict is about the mechanism as written here, not about a present release "
            "of a library.",
            style="lead",
        ),
        render.Sentence(
            f"Every version is verified with {seeds} seeds and default settings, at a significance level of one in a "
            "million; with fewer runs where outputs are Python objects, and with a million test runs for the claim of "
            "epsilon 10. Truth is the smallest value that is true for this pair: epsilon, or delta at the "
            "claimed epsilon. Runs until found are the runs per dataset with stop_early."
        ),
        render.Table(columns, cells),
        *(bug_section(bug, rows[bug.name], drawings.get(bug.name, ())) for bug in known),
    ]
    return render.Page(finding(rows), blocks, f"A corpus of {len(known)} privacy bugs")


def bug_section(bug: Bug, row: Row, drawings: Sequence[render.Drawing]) -> render.Section:
    """Return the section of one bug."""
    first, second = (render.format_percent(share) for share in row["shares"])
    if row["found"]:
        sentence = f"{row['witness']}: {first} of the runs with the first dataset, {second} with the second."
    else:
        sentence = "None: default settings do not find it."
    repaired = number(bug.truths.repaired) if bug.truths.repaired_is_exact else f"at most {number(bug.truths.repaired)}"
    blocks = [
        render.Sentence(bug.reference, label="Reference:"),
        render.Sentence(bug.what, label="The mechanism:"),
        render.Sentence(bug.neighbours, label="Neighbours:"),
        render.Sentence(bug.why, label="Why it is wrong:"),
        render.Sentence(sentence, label="Witness:"),
        *([render.Figures(tuple(drawings), bug.name)] if drawings else []),
        render.Sentence(f"{bug.repair} {bug.quantity.capitalize()} is then {repaired}.", label="Repaired:"),
    ]
    return render.Section(bug.title, tuple(blocks), bug.name)


def run_corpus(
    out: Path, names: Sequence[str] = (), seeds: int = 5, workers: int | None = None, progress: bool | None = None
) -> dict[str, Row]:
    """Verify the named bugs, or all, and write rows, corpus and page to a folder."""
    chosen = [bug for bug in BUGS if bug.name in (names or [bug.name])]
    jobs = []
    for bug in chosen:
        jobs += [make_job(bug, version, seed) for version in (bug.wrong, bug.repaired) for seed in range(seeds)]
        jobs.append(make_job(bug, bug.wrong, 0, early=True))
    reports = iter(verify_many(jobs, out / "verified", workers, progress=progress))
    rows, drawings = {}, {}
    (out / "pages").mkdir(parents=True, exist_ok=True)
    for bug in chosen:
        wrong, repaired = ([next(reports) for _ in range(seeds)] for _ in range(2))
        rows[bug.name] = make_row(bug, wrong, repaired, next(reports))
        wrong[0].to_html(out / "pages" / f"{bug.name}.html")
        title = "Outputs of the wrong version, with the witness"
        drawings[bug.name] = [render.Drawing(wrong[0].plot(), title, f"{title}: {wrong[0].witness.text}.", ())]
    (out / "rows.json").write_text(json.dumps(list(rows.values()), indent=1) + "\n", encoding="utf-8")
    write_corpus(out / "corpus.csv")
    page = make_page(rows, drawings)
    page.to_html(out / "index.html")
    (out / "bugs.md").write_text(page.markdown(out / "figures", "figures/bugs") + "\n", encoding="utf-8")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m gallery.bugs", description="Verify a corpus of privacy bugs.")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *(bug.name for bug in BUGS)], help="bugs")
    parser.add_argument("--out", type=Path, default=Path("build/bugs"), help="the folder (default build/bugs)")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="verifications of each version (default 5)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default 2)")
    options = parser.parse_args(arguments)
    rows = run_corpus(options.out, options.names, options.seeds, options.workers, True)
    print(finding(rows))
    print(options.out / "index.html")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
