"""Integrity of folders: what the folder of a verification or a study holds, and whether all of it belongs together.

Nothing is run and nothing is changed. Checksums are compared, the bounds of reports are computed again from their
counts, and the rows of a table are computed again from the reports.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dpverify.errors import FolderError, InputError
from dpverify.report.report import Report
from dpverify.sampling.checkpoint import LOCK_FILE, OWNER_FILE, Checkpoint, Record, open_checkpoint
from dpverify.studies.files.finished import STUDY_KEY, combination_hash
from dpverify.studies.files.interruptions import RUNNING_FOLDER
from dpverify.studies.files.plans import REPORTS_FOLDER
from dpverify.studies.files.study import TABLE_FILE
from dpverify.studies.result_page import PAGES_FOLDER
from dpverify.studies.tables import csv_text, read_csv
from dpverify.util.files import NEW_FILE_SUFFIX, check_regular
from dpverify.util.formatting import format_count, one_line

DATA_SETS = ("first", "second")
IGNORED_FILES = (OWNER_FILE, LOCK_FILE)


class Finding(NamedTuple):
    """What one file holds, or what is wrong with it."""

    text: str
    is_problem: bool = False


@dataclass(frozen=True)
class FolderCheck:
    """The result of `check_folder`. `print` shows every finding.

    Attributes
    ----------
    folder : pathlib.Path
        The folder.
    kind : str
        What the folder belongs to: "verification" or "study".
    findings : tuple of Finding
        What each file holds, and what is wrong.
    """

    folder: Path
    kind: str
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, one line each."""
        return tuple(finding.text for finding in self.findings if finding.is_problem)

    def __str__(self) -> str:
        number = len(self.problems)
        result = "everything belongs together" if not number else f"{number} problem{'' if number == 1 else 's'}"
        lines = [f"  {'PROBLEM ' if finding.is_problem else ''}{finding.text}" for finding in self.findings]
        return "\n".join([f"{self.folder}: folder of a {self.kind}; {result}", *lines])


def check_folder(folder: str | os.PathLike[str]) -> FolderCheck:
    """Check that everything in the folder of a verification or a study is undamaged and belongs together.

    Parameters
    ----------
    folder : str or path-like
        A folder that `verify`, `run_study` or the command has written.

    Returns
    -------
    FolderCheck
        What the folder holds, and what is wrong with it.

    Raises
    ------
    InputError
        If it is no folder of dpverify.
    FolderError
        If the folder is in use, or the file that identifies it is damaged.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> from dpverify.demo import laplace_sum
    >>> from dpverify.studies.files.folder_check import check_folder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = dpv.verify(laplace_sum, np.zeros(1), np.ones(1), folder=folder, select_runs=500, test_runs=2000)
    ...     check_folder(folder).problems
    ()
    """
    path = Path(folder)
    if not (path / OWNER_FILE).is_file():
        raise InputError(f"{path}: found no {OWNER_FILE}; expected a folder that dpverify has written")
    with open_checkpoint(path) as checkpoint:
        identity = _read_identity(path)
        checkpoint.acquire(identity, {})
        if "study format" in identity:
            return FolderCheck(path, "study", tuple(_check_study(path, identity)))
        return FolderCheck(path, "verification", tuple(_check_records(path, checkpoint)))


def _read_identity(folder: Path) -> dict[str, Any]:
    """Return what identifies the owner of the folder."""
    path = folder / OWNER_FILE
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["run"])
    except Exception as problem:  # a damaged file can raise any exception
        raise FolderError(f"{path}: damaged ({type(problem).__name__}); its content cannot be checked") from None


def _check_records(folder: Path, checkpoint: Checkpoint) -> Iterator[Finding]:
    """Yield a finding for each file of a verification."""
    for path in sorted(folder.iterdir()):
        if path.name in IGNORED_FILES:
            continue
        if path.suffix != ".record":
            yield _unexpected(path)
            continue
        try:
            record = checkpoint.read(path.stem)
        except FolderError as problem:
            yield Finding(str(problem), True)
            continue
        assert record is not None
        yield Finding(f"{path.name}: {_describe_record(record)}")


def _describe_record(record: Record) -> str:
    """Return what a record holds: finished blocks, or a choice that was made once."""
    done = record.head.get("done")
    if done is None:
        return "a frozen choice"
    parts = [f"{format_count(number)} of the {DATA_SETS[int(side)]} data set" for side, number in done.items()]
    return f"finished blocks: {', '.join(parts)}"


def _check_study(folder: Path, identity: Mapping[str, object]) -> Iterator[Finding]:
    """Yield the findings of a study: its reports, its table, and an unfinished verification."""
    rows: dict[str, dict[str, object]] = {}
    reports = folder / REPORTS_FOLDER
    for path in sorted(reports.iterdir()) if reports.is_dir() else ():
        name = f"{REPORTS_FOLDER}/{path.name}"
        if ".json.old-" in path.name:
            yield Finding(f"{name}: an earlier report, which a new one has replaced")
        elif path.suffix != ".json":
            yield _unexpected(path)
        else:
            try:
                columns, report = _read_bound_report(path, identity)
            except (InputError, FolderError) as problem:
                yield Finding(str(problem), True)
                continue
            results = {key: value for key, value in report.row().items() if key not in ("name", "seed")}
            rows[name] = {**columns, **results, "report": name}
            yield Finding(f"{name}: {report.verdict.name}; its bounds follow from its counts")
    yield from _check_table(folder, rows)
    known = (*IGNORED_FILES, REPORTS_FOLDER, TABLE_FILE, RUNNING_FOLDER, PAGES_FOLDER)
    yield from (_unexpected(path) for path in sorted(folder.iterdir()) if path.name not in known)
    running = folder / RUNNING_FOLDER
    for path in sorted(running.iterdir()) if running.is_dir() else ():
        if (path / OWNER_FILE).is_file():
            try:
                inner = check_folder(path)
            except (InputError, FolderError) as problem:
                yield Finding(str(problem), True)
                continue
            for finding in inner.findings:
                yield finding._replace(text=f"{RUNNING_FOLDER}/{path.name}/{finding.text}")


def _read_bound_report(path: Path, identity: Mapping[str, object]) -> tuple[dict[str, object], Report]:
    """Return the parameters of a combination and its report; raise FolderError if it belongs to another study."""
    check_regular(path)
    report = Report.from_json(path)
    record = report.provenance.get(STUDY_KEY)
    if isinstance(record, dict) and isinstance(record.get("columns"), dict):
        expected = combination_hash(identity, record.get("number", -1), record["columns"])
        file_number = path.name.partition("-")[0]
        if record.get("combination") == expected and file_number == f"{record.get('number')}".rjust(4, "0"):
            return record["columns"], report
    raise FolderError(f"{path}: found the report of another study or combination; expected one of this study")


def _check_table(folder: Path, rows: Mapping[str, Mapping[str, object]]) -> Iterator[Finding]:
    """Yield the findings of the table: each row with a report must be the row of this report."""
    path = folder / TABLE_FILE
    if not path.is_file():
        if rows:
            yield Finding(f"{TABLE_FILE}: missing; the next call writes it from the reports", True)
        return
    table = {row.get("report", ""): row for row in read_csv(path)}
    same = 0
    for name, row in rows.items():
        found = table.get(name)
        if found is not None:  # whether a row is too weak depends on `detects`, which the reports do not have
            found = {column: text for column, text in found.items() if column != "too_weak"}
        else:
            yield Finding(f"{TABLE_FILE}: found no row of {name}; the next call writes it from the reports", True)
            continue
        columns = list(found)
        if csv_text([{key: row.get(key) for key in columns}], columns) == csv_text([found], columns):
            same += 1
        else:
            wrong = _first_difference(row, found)
            yield Finding(f"{TABLE_FILE}: found {wrong} in the row of {name}; expected the value in the report", True)
    missing = [name for name in table if name and name not in rows]
    yield from (
        Finding(f"{TABLE_FILE}: found a row of {one_line(name)}; expected its report", True) for name in missing
    )
    yield Finding(f"{TABLE_FILE}: {format_count(same)} rows are those of their reports")


def _first_difference(row: Mapping[str, object], found: Mapping[str, str]) -> str:
    """Return the first column of a row of the table that differs from its report, with its value."""
    for name, text in found.items():
        if csv_text([{name: row.get(name)}], [name]) != csv_text([{name: text}], [name]):
            return one_line(f"{name} {text}")
    return "another row"


def _unexpected(path: Path) -> Finding:
    """Return the finding for a file that does not belong to the folder."""
    if path.name.endswith(NEW_FILE_SUFFIX):
        return Finding(f"{path.name}: the rest of an interrupted write; it is not used")
    return Finding(f"{path.name}: not a file of dpverify; it is not used", True)
