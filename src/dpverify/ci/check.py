"""Checks: all claims of a project, verified from one manifest (docs/checks.md).

claims/results.json, results.csv    one row per claim
claims/junit.xml                    the same for CI services
claims/page.html                    the same for people, with a page for each claim in claims/pages
claims/history.json                 the answers of all releases
claims/verified/                    the folder of the engine, from which a stopped check continues
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpverify.ci.history import (
    Change,
    Release,
    compare_releases,
    make_release,
    read_history,
    with_release,
    write_history,
)
from dpverify.ci.junit import junit_xml
from dpverify.ci.manifest import read_manifest
from dpverify.errors import DPVerifyWarning, InputError
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.report import load_pages
from dpverify.report.statements import Verdict
from dpverify.studies.engine import JOB_KEY, Engine, Outcome, open_engine
from dpverify.studies.loading import Combination, integer_hint, result_folder
from dpverify.studies.study import write_report_page
from dpverify.studies.tables import (
    FAILED,
    TOO_WEAK,
    ResultTable,
    Row,
    claims_headline,
    lower_text,
    row_state,
    verdict_text,
)
from dpverify.util.files import locked, write_text
from dpverify.util.formatting import format_number, one_line
from dpverify.util.provenance import current_commit
from dpverify.util.results import column_names
from dpverify.util.serialization import to_plain

if TYPE_CHECKING:
    from dpverify.render import Page

VERIFIED_FOLDER = "verified"

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Check(ResultTable):
    """The result of `run_check`. `print` shows a short table.

    Attributes
    ----------
    folder : pathlib.Path
        The folder with all results.
    rows : tuple of dict
        One row per claim, in the order of the manifest: `name`, `state` (a verdict, FAILED or TOO_WEAK), the columns of
        `Report.row`, `problem` (why it failed, has no answer or is too weak), `result_of` (the release that a stored
        result belongs to; None if the claim was verified now), and the paths of its report and page.
    release : str
        The name of this release.
    previous : Release or None
        The release before it.
    changes : tuple of Change
        What changed since the previous release.
    """

    folder: Path
    rows: tuple[Row, ...]
    release: str
    previous: Release | None
    changes: tuple[Change, ...]
    identity = ("name",)

    @property
    def over(self) -> str:
        """What was verified."""
        return f"Privacy claims of {self.folder.name}, release {self.release}"

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        return claims_headline(self.rows, [row["name"] for row in self.rows])

    def sentences(self) -> list[str]:
        """Return what is said below the headline."""
        alphas = {row["alpha"] for row in self.rows if row.get("alpha") is not None}
        found = [*super().sentences(), f"{self.count_states('claim')}."]
        if len(alphas) == 1:
            found.append(
                f"If all claims are true, none is refuted with probability at least "
                f"{format_number(1 - alphas.pop() * len(self.rows))}. A claim that is not refuted may still be false."
            )
        return found + [f"{row['name']}: {stored_text(row)}." for row in self.rows if row.get("result_of")]

    def links(self, page: Path) -> list[str]:
        """Return the addresses of the pages of the claims, or of their reports."""
        start = Path(os.path.relpath(self.folder.resolve(), page.resolve().parent))
        places = [row.get("page") or row.get("report") for row in self.rows]
        return ["" if place is None else (start / place).as_posix() for place in places]

    def page(self, links: Sequence[str] | None = None) -> Page:
        """Return the page, with what changed since the previous release."""
        pages, page = load_pages(), super().page(links)
        if self.previous is None:
            return page
        worse = {"verdict": "REFUTED", "badge": "worse"}
        lines = [
            pages.Sentence(one.text, label=f"{one.name}:", **(worse if one.is_worse else {})) for one in self.changes
        ]
        shown = pages.Items(lines) if lines else pages.Sentence("No answer changed.")
        changed = pages.Section(f"What changed since {one_line(self.previous.release)}", (shown,))
        return dataclasses.replace(page, blocks=(*page.blocks, changed))

    def printed_rows(self, most: int) -> Sequence[Row]:
        """Return all rows."""
        return self.rows

    def __str__(self) -> str:
        since = "" if self.previous is None else f"since {one_line(self.previous.release)}: {len(self.changes)} changed"
        changes = [f"  {change.name}: {change.text}" for change in self.changes]
        return "\n".join([super().__str__(), *filter(None, [since]), *changes])


def run_check(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    workers: int | None = None,
    release: str | None = None,
    history: str | os.PathLike[str] | None = None,
    pages: bool = True,
    trust_results: bool = False,
    notify: Notify = lambda line: None,
) -> Check:
    """Verify all claims of a manifest.

    The same call continues a check that was stopped. Claims that are finished and unchanged are not verified again.

    Parameters
    ----------
    path : path
        The manifest, a TOML file (docs/checks.md).
    folder : path, optional
        The folder for the results. The default is beside the file, with its name without `.toml`.
    workers : int, optional
        The number of claims that are verified at the same time, each in a process of its own. None verifies them one
        after the other in this process.
    release : str, optional
        The name of this release in the history. The default is the current commit.
    history : path, optional
        The file with the answers of all releases. The default is `history.json` in the folder.
    pages : bool
        Whether pages are written (needs `dpverify[report]`).
    trust_results : bool
        As in `run_study`.
    notify : callable
        Is called with one line whenever a claim is finished, and with every warning.

    Returns
    -------
    Check
        One row per claim; everything is in the folder, too.

    Raises
    ------
    InputError
        If the manifest, or a file that it names, cannot be used.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> temporary = tempfile.TemporaryDirectory()
    >>> manifest = pathlib.Path(temporary.name) / "claims.toml"
    >>> _ = (pathlib.Path(temporary.name) / "first.csv").write_text("1, 2")
    >>> _ = (pathlib.Path(temporary.name) / "second.csv").write_text("1, 3")
    >>> _ = manifest.write_text('''
    ... claims = [{mechanism = "sum", pair = "one", epsilon = 0.5}]
    ... [mechanisms.sum]
    ... use = "dpverify.demo:laplace_sum"
    ... [pairs.one]
    ... first = "first.csv"
    ... second = "second.csv"
    ... [settings]
    ... select_runs = 500
    ... test_runs = 6000
    ... ''')
    >>> check = run_check(manifest, release="1.0", pages=False)
    >>> check.count_states("claim")
    '1 claim: 1 refuted'
    >>> temporary.cleanup()
    """
    path = Path(path)
    target = result_folder(path, folder)
    claims, timeout = read_manifest(path)
    history = target / "history.json" if history is None else history
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(
            f"{target}: found {problem.strerror or problem}; expected a folder that can be written"
        ) from None
    with locked(history):  # it is written now, so that a file that cannot be written is noticed before the work
        past = read_history(history)
        write_history(history, past)
    release = release or current_commit(path.resolve().parent)
    rows: dict[int, Row] = {}
    with (
        warnings.catch_warnings(record=True) as caught,
        open_engine(
            target.absolute() / VERIFIED_FOLDER,
            workers or (None if timeout is None else 1),
            progress=False,
            trust_results=trust_results,
            timeout=timeout,
            release=release,
            kind="claim",
        ) as engine,
    ):
        warnings.simplefilter("always", DPVerifyWarning)
        for number, outcome in engine.run(claims):
            row = rows[number] = _make_row(claims[number], outcome, engine)
            if pages and row.get("report") is not None:
                row["page"] = write_report_page(target, row)
            for warning in caught:
                notify(str(warning.message))
            caught.clear()
            notify(f"{len(rows)} of {len(claims)}: {_row_line(row)}")
    ordered = tuple(rows[number] for number in range(len(claims)))
    latest = make_release(release, ordered)
    previous = next((entry for entry in reversed(past) if entry.release != latest.release), None)
    changes = () if previous is None else compare_releases(previous, latest)
    check = Check(target, ordered, latest.release, previous, changes)
    _write_results(check, path.stem, pages)
    with locked(history):  # another check may have written meanwhile
        write_history(history, with_release(read_history(history), latest))
    return check


def _make_row(claim: Combination, outcome: Outcome, engine: Engine) -> Row:
    """Return the row of a claim: its state, its results, or the reason why it has none."""
    row: Row = {"name": claim.name, "state": "", **(engine.rows[claim.name] or {})}
    row["state"] = row_state({**row, "state": None})
    weakness = row.pop("too_weak", None)
    if outcome.problem is not None:
        text = one_line(f"{row['problem']}{integer_hint(row['problem'], claim.pair.files)}", 2000)
        described = None if claim.claim is None else claim.claim.describe()
        return {**row, "claim": described, "problem": text}
    record = outcome.result.provenance[JOB_KEY]
    row |= {
        "report": f"{VERIFIED_FOLDER}/{row['report']}",
        "result_of": None if outcome.is_new else str(record["release"]),
        "problem": weakness,
    }
    return {**row, "problem": Diagnostic[row["diagnostic"]].value} if row["diagnostic"] is not None else row


def stored_text(row: Row) -> str:
    """Return that the result of a claim is a stored one, and of which release."""
    return f"result of release {one_line(row['result_of'])}, not run again"


def _row_line(row: Row) -> str:
    """Return one line about a finished claim."""
    text = f"{row['name']} {verdict_text(row)}"
    if row["state"] in (FAILED, TOO_WEAK, Verdict.NO_ANSWER.name):
        text = f"{text} ({one_line(row['problem'])})"
    else:
        text = f"{text}, {lower_text(row)}"
    return f"{text}; {stored_text(row)}" if row.get("result_of") else text


def _write_results(check: Check, title: str, pages: bool) -> None:
    """Write the results in all forms."""
    folder, columns = check.folder, column_names(check.rows)
    rows = [{name: row.get(name) for name in columns} for row in check.rows]
    document = {
        "format": 1,
        "release": check.release,
        "previous": None if check.previous is None else check.previous.release,
        "claims": to_plain(rows),
        "changes": [change._asdict() for change in check.changes],
    }
    write_text(folder / "results.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
    check.to_csv(folder / "results.csv")
    write_text(folder / "junit.xml", junit_xml(title, check.rows))
    if pages:
        check.to_html(folder / "page.html")
