"""Checks: all claims of a project, verified from one manifest (docs/checks.md).

claims/results.json, results.csv    one row per claim
claims/junit.xml                    the same for CI services
claims/page.html                    the same for people, with a page for each claim in claims/pages
claims/history.json                 the answers of all releases
claims/NAME-HASH/                   the study of one claim, from which a stopped check continues
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpverify.ci.check_page import ResultTable, render_table, stored_text
from dpverify.ci.history import (
    Change,
    Release,
    compare_releases,
    make_release,
    read_history,
    with_release,
    write_history,
)
from dpverify.ci.junit import FAILED, TOO_WEAK, junit_xml
from dpverify.ci.manifest import ManifestClaim, read_manifest
from dpverify.errors import DPVerifyWarning, FolderError, InputError, Stopped
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.statements import Verdict
from dpverify.sampling.executors import open_pool
from dpverify.studies.files.interruptions import set_supervised
from dpverify.studies.files.study import run_plan
from dpverify.studies.result_page import write_report_page
from dpverify.studies.tables import (
    Row,
    bound_columns,
    column_names,
    csv_text,
    format_table,
    lower_text,
    unanswered_sentences,
    verdict_text,
)
from dpverify.util.dataframes import make_dataframe
from dpverify.util.files import locked, write_text
from dpverify.util.formatting import one_line
from dpverify.util.provenance import current_commit
from dpverify.util.serialization import to_plain

if TYPE_CHECKING:
    import pandas

GOOD_STATES = (Verdict.NOT_REFUTED.name, Verdict.CERTIFIED.name)
WORST_FIRST = (Verdict.REFUTED.name, FAILED, Verdict.NO_ANSWER.name, TOO_WEAK, *GOOD_STATES)

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Check:
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

    def in_state(self, *states: str) -> tuple[Row, ...]:
        """Return the rows in one of these states."""
        return tuple(row for row in self.rows if row["state"] in states)

    @property
    def summary(self) -> str:
        """How many claims there are in each state, the worst first."""
        number = len(self.rows)
        counts = [(len(self.in_state(state)), state) for state in WORST_FIRST]
        parts = [f"{count} {state.replace('_', ' ').lower()}" for count, state in counts if count]
        return f"{number} claim{'s' * (number != 1)}: {', '.join(parts)}"

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame (needs pandas)."""
        return make_dataframe(self.rows)

    def __str__(self) -> str:
        header, bounds = bound_columns(self.rows)
        lines = [
            [row["name"], verdict_text(row, row["state"]), row.get("claim") or "", *texts]
            for row, texts in zip(self.rows, bounds, strict=True)
        ]
        table = format_table(("name", "verdict", "claim", *header), lines)
        changed = (
            [] if self.previous is None else [f"since {one_line(self.previous.release)}: {len(self.changes)} changed"]
        )
        changed += [f"  {change.name}: {change.text}" for change in self.changes]
        unanswered = [f"  {sentence}" for sentence in unanswered_sentences(self.rows)]
        stored = [f"{row['name']}: {stored_text(row)}" for row in self.rows if row.get("result_of")]
        return "\n".join([self.summary, *unanswered, *table, *stored, *changed])


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
    >>> check.summary
    '1 claim: 1 refuted'
    >>> temporary.cleanup()
    """
    path = Path(path)
    target = path.with_suffix("") if folder is None else Path(folder)
    if target == path:
        raise InputError(f"{path}: found no .toml at the end of the name; expected it, or another folder; set folder=")
    claims = read_manifest(path)
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
    verify = functools.partial(
        verify_claim, path.resolve(), target.resolve(), pages, trust_results, release, workers is not None
    )
    rows: dict[int, Row] = {}
    for number, row, found in _verified(verify, claims, workers):
        rows[number] = row
        for line in found:
            notify(line)
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


def verify_claim(
    path: Path, folder: Path, pages: bool, trust_results: bool, release: str, is_supervised: bool, number: int
) -> tuple[Row, list[str]]:
    """Verify one claim of a manifest, which a new process reads again; return its row and the warnings."""
    claim = read_manifest(path)[number]
    if is_supervised:  # in a process of its own: its end is noticed here, so an earlier end was a kill from outside
        set_supervised({})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DPVerifyWarning)
        row = _verify_claim(claim, folder, trust_results, release)
        if pages and row.get("report") is not None:
            row["page"] = write_report_page(folder, claim.name, row)
    if row["state"] == FAILED:  # the row has the reason
        return row, []
    return row, [str(each.message) for each in caught if issubclass(each.category, DPVerifyWarning)]


def _verified(
    verify: Callable[[int], tuple[Row, list[str]]], claims: Sequence[ManifestClaim], workers: int | None
) -> Iterator[tuple[int, Row, list[str]]]:
    """Yield number, row and warnings of every claim, in the order of completion.

    A mechanism can end its process. The claims that were lost with it are verified again, each with a new process.
    """
    left = list(range(len(claims)))
    if workers is None:
        yield from ((number, *verify(number)) for number in left)
        return
    with contextlib.suppress(BrokenExecutor), open_pool(workers) as pool:
        assert pool.executor is not None
        futures = {pool.executor.submit(verify, number): number for number in left}
        for future in as_completed(futures):
            row, found = future.result()
            left.remove(futures[future])
            yield futures[future], row, found
    for number in left:
        row, found = _failed(claims[number], "the process ended; the mechanism, or a library, ended it"), []
        with contextlib.suppress(BrokenExecutor), open_pool(1) as pool:
            assert pool.executor is not None
            row, found = pool.executor.submit(verify, number).result()
        yield number, row, found


def _verify_claim(claim: ManifestClaim, folder: Path, trust_results: bool, release: str) -> Row:
    """Verify one claim, or read its finished report, and return its row."""
    place = folder / claim.folder
    try:
        study = run_plan(claim.plan, place, claim.name, progress=False, trust_results=trust_results, release=release)
    except (FolderError, Stopped) as problem:
        return _failed(claim, str(problem))
    result = study.rows[0]
    if result["problem"] is not None:
        return _failed(claim, result["problem"])
    row: Row = {
        "name": claim.name,
        "state": result["verdict"],
        **result,
        "report": f"{claim.folder}/{result['report']}",
        "result_of": study.stored.get(result["report"]),
    }
    if result["diagnostic"] is not None:
        return {**row, "problem": Diagnostic[result["diagnostic"]].value}
    weakness = row.pop("too_weak")
    return row if weakness is None else {**row, "state": TOO_WEAK, "problem": weakness}


def _failed(claim: ManifestClaim, problem: str) -> Row:
    """Return the row of a claim that could not be verified."""
    described = None if claim.plan.claim is None else claim.plan.claim.describe()
    return {"name": claim.name, "state": FAILED, "claim": described, "problem": one_line(problem, 2000)}


def _row_line(row: Row) -> str:
    """Return one line about a finished claim."""
    text = f"{row['name']} {verdict_text(row, row['state'])}"
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
    write_text(folder / "results.csv", csv_text(rows, columns))
    write_text(folder / "junit.xml", junit_xml(title, check.rows))
    if pages:
        table = ResultTable(title, check.summary, check.rows, check.release, check.previous, check.changes)
        write_text(folder / "page.html", render_table(table))
