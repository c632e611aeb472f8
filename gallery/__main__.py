"""`python -m gallery`: verify the mechanisms, and write the rows, the page and its figures.

build/gallery/full, build/gallery/quick   the folder of `verify_many`
build/gallery/rows.json                   the rows, with the stored ones where nothing was verified
build/gallery/gallery.md, index.html      the page
build/gallery/figures                     one figure per mechanism, for gallery.md
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import json
from collections.abc import Sequence
from pathlib import Path

from dpverify import Settings, claims
from dpverify.studies import Job, verify_many
from gallery.catalogue import ENTRIES
from gallery.entry import Case
from gallery.page import Row, make_page, make_row

STORED = Path(__file__).parent / "rows.json"  # the rows of docs/gallery.md
ALPHA = 1e-3  # each statement of the gallery holds with confidence 99.9%
REPORTED_DELTA = 1e-3  # at which epsilon is bounded if the claim is not an (epsilon, delta)


def make_job(case: Case, quick: bool = False) -> Job:
    """Return the verification of a case."""
    runs = case.quick if quick else case.full
    settings = Settings(alpha=ALPHA, select_runs=runs.select, test_runs=runs.test, events=case.events)
    delta = 0.0 if isinstance(case.claim, claims.Approximate) else REPORTED_DELTA
    return Job(case.name, case.mechanism, *case.pair, case.claim, settings, {"delta": delta})


def run_gallery(
    out: Path,
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    workers: int | None = 2,
    progress: bool | None = None,
    draw: bool = False,
    stored: Path = STORED,
) -> dict[str, Row]:
    """Verify the named entries, or all of them, and write rows and page to the folder `out`.

    A case that is not verified, because it was not named or its program is missing, keeps its stored row. With `draw`
    nothing is verified.
    """
    rows: dict[str, Row] = {row["case"]: row for row in json.loads(stored.read_text(encoding="utf-8"))}
    missing = {entry.name: what for entry in ENTRIES if entry.requirement and (what := entry.requirement())}
    chosen = [entry for entry in ENTRIES if not draw and entry.name in (names or [entry.name])]
    cases = [case for entry in chosen if entry.name not in missing for case in entry.cases]
    if cases:
        jobs = [make_job(case, quick) for case in cases]
        reports = verify_many(jobs, out / ("quick" if quick else "full"), workers, progress=progress)
        today = datetime.date.today().isoformat()
        rows |= {case.name: make_row(case, report, today) for case, report in zip(cases, reports, strict=True)}
    out.mkdir(parents=True, exist_ok=True)
    known = [rows[case.name] for entry in ENTRIES for case in entry.cases if case.name in rows]
    (out / "rows.json").write_text(json.dumps(known, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    page = make_page(ENTRIES, rows, missing, quick)
    page.to_html(out / "index.html")
    # Last, because the title and the legend are drawn into the figures of the Markdown page.
    (out / "gallery.md").write_text(page.markdown(out / "figures", "figures/gallery") + "\n", encoding="utf-8")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m gallery", description="Verify published private mechanisms.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries; all of them if none is named")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--quick", action="store_true", help="fewer runs: some minutes instead of half an hour")
    parser.add_argument("--draw", action="store_true", help="verify nothing: draw the page of the stored rows")
    parser.add_argument("--out", type=Path, default=Path("build/gallery"), help="the folder (default build/gallery)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default 2)")
    options = parser.parse_args(arguments)
    known = [entry.name for entry in ENTRIES]
    if options.list:
        print("\n".join(f"{entry.name:<17}{entry.title}" for entry in ENTRIES))
        return 0
    for name in options.names:
        if name not in known:
            near = "".join(f"; the nearest is {one}" for one in difflib.get_close_matches(name, known, 1))
            parser.error(f"found {name!r}{near}; expected {', '.join(known)}")
    chosen = {"quick": options.quick, "workers": options.workers, "draw": options.draw}
    run_gallery(options.out, options.names, progress=True, **chosen)
    print(options.out / "index.html")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
