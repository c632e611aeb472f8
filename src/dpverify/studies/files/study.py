"""Studies: many verifications from one TOML file, in one folder that a stopped study resumes from (docs/studies.md).

    study/dpverify.json             the identity of the study
    study/table.csv                 a row for each finished combination, in the order of the study
    study/reports/0007-....json     the report of a combination
    study/running/                  checkpoints of the verification that is running; removed when its report is written
    study/running/started.json      the combination that is running; left behind if it ends the process

A combination is finished when its report exists and its mechanism and its data are unchanged (`studies.finished`).
Every file is replaced as a whole, so that a study can be stopped at any time.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpverify.errors import (
    InputError,
    Stopped,
    StopReason,
)
from dpverify.report.report import Report
from dpverify.report.statements import Verdict
from dpverify.sampling.checkpoint import open_checkpoint
from dpverify.settings import type_one_error_factor
from dpverify.stats.many import holm
from dpverify.studies.files.finished import STUDY_KEY
from dpverify.studies.files.interruptions import RUNNING_FOLDER, CombinationFailed
from dpverify.studies.files.plans import REPORTS_FOLDER, StudyPlan, check_timeout, read_study
from dpverify.studies.files.runner import StudyRunner, failed_row, report_row
from dpverify.studies.files.study_page import render_study
from dpverify.studies.options import RunOptions
from dpverify.studies.plots import plot_bounds
from dpverify.studies.tables import (
    Row,
    bound_columns,
    column_names,
    csv_text,
    format_parameter,
    format_table,
    format_value,
    row_state,
    unanswered_sentences,
    verdict_text,
)
from dpverify.util.dataframes import make_dataframe
from dpverify.util.files import replace_file, write_text
from dpverify.util.progress import Progress
from dpverify.util.provenance import UNNAMED, current_commit, versions

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

TABLE_FILE = "table.csv"
PRINTED_ROWS = 20


@dataclass(frozen=True)
class Study:
    """The result of `run_study`. `print` shows a short table.

    Attributes
    ----------
    folder : pathlib.Path
        The folder with the reports and the table.
    rows : tuple of dict
        One row per combination, with the columns of `table.csv`: the parameters, the columns of `Report.row`, the path
        of the report, and `problem`, the reason why a combination failed. A value that does not apply is None.
    stored : dict
        For each report of an earlier call, which was not run again, the release or commit that it belongs to.
    """

    folder: Path
    rows: tuple[Row, ...]
    stored: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows whose verification failed; the column `problem` has the reason."""
        return tuple(row for row in self.rows if row["problem"] is not None)

    @property
    def refuted(self) -> tuple[Row, ...]:
        """The rows whose claim is refuted, each at its own alpha."""
        return tuple(row for row in self.rows if row.get("verdict") == Verdict.REFUTED.name)

    @property
    def certain(self) -> tuple[Row, ...]:
        """The rows whose claim is refuted, all of them together with confidence 1 - alpha (Holm)."""
        if not self.refuted:
            return ()
        level = self.refuted[0]["alpha"] / type_one_error_factor(self.report(self.refuted[0]).settings)
        rows = [row for row in self.rows if row.get("p_value") is not None and row not in self.unanswered]
        return tuple(rows[index] for index in holm([row["p_value"] for row in rows], level))

    @property
    def unanswered(self) -> tuple[Row, ...]:
        """The rows with a voiding diagnostic, which have no answer; the column `diagnostic` has its name."""
        return tuple(row for row in self.rows if row.get("diagnostic") is not None)

    @property
    def too_weak(self) -> tuple[Row, ...]:
        """The rows that are not refuted by runs that are too few; the column `too_weak` says why."""
        return tuple(row for row in self.rows if row.get("too_weak") is not None)

    @property
    def summary(self) -> str:
        """The number of verifications, and how many of them are refuted, too weak, failed and without an answer."""
        number = len(self.rows)
        number = len(self.rows)
        text = f"{number} verification{'' if number == 1 else 's'}, "
        text += f"{len(self.unanswered)} without an answer, " if self.unanswered else ""
        text += f"{len(self.refuted)} refuted (each at its own alpha)"
        text += f", {len(self.certain)} together (Holm)" if self.refuted else ""
        text += f", {len(self.too_weak)} too weak" if self.too_weak else ""
        return f"{text}, {len(self.failed)} failed"

    def report(self, row: Mapping[str, Any]) -> Report:
        """Read the report of a row."""
        return Report.from_json(self.folder / row["report"])

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page: the finding, all answers with links to the reports, and figures (needs `dpverify[report]`)."""
        write_text(path, render_study(self.folder.name, self.rows, self.folder, Path(path), self.summary))

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame (needs pandas)."""
        return make_dataframe(self.rows)

    def plot(self) -> Figure:
        """Return a figure of the bounds of every verification that has not failed (needs `dpverify[report]`)."""
        rows = [row for row in self.rows if row["problem"] is None]
        names = []
        for row in rows:
            parameters = [value for name, value in row.items() if name.startswith(("mechanism.", "pair."))]
            parts = (row["mechanism"], *parameters, row["pair"], f"seed {row['seed']}")
            names.append(" ".join(format_parameter(part) for part in parts if part is not None))
        claim = next((row["epsilon"] for row in rows), None)
        return plot_bounds(rows, names, f"{self.folder.name}: {self.summary}", claim)

    def __str__(self) -> str:
        old = ", ".join(sorted(set(self.stored.values())))
        stored = [f"{len(self.stored)} not run again: results of {old}"] if old else []
        return "\n".join([f"{self.folder.name}: {self.summary}", *self.table_lines(), *stored])

    def table_lines(self) -> list[str]:
        """Return the rows as aligned text; only the first rows of a long table."""
        parameters = [name for name in column_names(self.rows) if name.startswith(("mechanism.", "pair."))]
        printed = self.rows[:PRINTED_ROWS]
        bound_header, bounds = bound_columns(printed)
        has_error = any(row.get("error_first") is not None for row in self.rows)
        header = ("mechanism", "pair", *parameters, "seed", "verdict", *bound_header, *["error"] * has_error)
        lines = []
        for row, texts in zip(printed, bounds, strict=True):
            identity = [format_parameter(row[name]) for name in ("mechanism", "pair", *parameters, "seed")]
            if row["problem"] is None:
                error = [format_value(row.get("error_first"))] * has_error
                lines.append([*identity, verdict_text(row, row_state(row)), *texts, *error])
            else:
                lines.append([*identity, "failed", "", "", *[""] * has_error])
        hidden = len(self.rows) - len(lines)
        more = [f"  and {hidden} more rows in {self.folder / TABLE_FILE}"] if hidden else []
        return [*(f"  {sentence}" for sentence in unanswered_sentences(self.rows)), *format_table(header, lines), *more]


def run_study(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    executor: int | Executor | None = None,
    progress: bool | None = None,
    timeout: float | None = None,
    trust_results: bool = False,
) -> Study:
    """Verify every combination of a study file.

    The same call resumes a study that was stopped. A combination that fails has a row with the reason, and is tried
    again by the next call; the other combinations are verified.

    Parameters
    ----------
    path : str or path-like
        The study, a TOML file (docs/studies.md).
    folder : str or path-like, optional
        The folder for reports and table. The default is beside the file, with its name without `.toml`.
    executor : int, concurrent.futures.Executor or None
        Where runs are drawn, as in `verify`.
    progress : bool or None
        Whether progress is shown; None shows it on a terminal and in notebooks.
    timeout : float, optional
        The time limit of a combination in seconds; a combination that reaches it has failed. The default is the entry
        `timeout` of the file.
    trust_results : bool
        Whether a finished report is used again although source files have changed, if 64 runs per data set are the same
        as before or cannot be compared. Without it the combination is run again.

    Returns
    -------
    Study
        One row per combination; the reports are in the folder.

    Raises
    ------
    InputError
        If the study file, or a file that it names, cannot be used.
    FolderError
        If the folder or a report in it belongs to another study, or is damaged.
    Stopped
        If the study was interrupted, or the workers or the disk failed. What is finished is in the folder.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import dpverify as dpv
    >>> temporary = tempfile.TemporaryDirectory()
    >>> folder = pathlib.Path(temporary.name)
    >>> _ = (folder / "first.csv").write_text("1, 2")
    >>> _ = (folder / "second.csv").write_text("1, 3")
    >>> _ = (folder / "study.toml").write_text('''
    ... epsilon = 0.5
    ... [pairs.sums]
    ... first = "first.csv"
    ... second = "second.csv"
    ... [mechanisms.laplace]
    ... use = "dpverify.demo:laplace_sum"
    ... [settings]
    ... select_runs = 500
    ... test_runs = 6000
    ... ''')
    >>> study = dpv.run_study(folder / "study.toml")
    >>> print(study.summary)
    1 verification, 1 refuted (each at its own alpha), 1 together (Holm), 0 failed
    >>> temporary.cleanup()
    """
    target, path = study_folder(path, folder), Path(path)
    plan = read_study(path)
    if timeout is not None:
        plan = dataclasses.replace(plan, timeout=check_timeout(timeout))
    if target == path:
        raise InputError(f"{path}: found no .toml at the end of the name; expected it, or another folder; set folder=")
    return run_plan(plan, target, path.name, executor=executor, progress=progress, trust_results=trust_results)


def run_plan(
    plan: StudyPlan,
    target: Path,
    name: str,
    *,
    executor: int | Executor | None = None,
    progress: bool | None = None,
    trust_results: bool = False,
    release: str | None = None,
) -> Study:
    """Verify every combination of a plan in a folder; the same call resumes it.

    `name` is the file of the plan. New reports are results of `release`, by default of the current commit.
    """
    runs = 2 * (plan.settings.select_runs + plan.settings.test_runs)
    show = Progress(progress, True)
    show.plan(len(plan.combinations) * runs)
    rows: list[Row] = []
    stored: dict[str, str] = {}
    with open_checkpoint(target) as checkpoint:
        checkpoint.acquire(plan.identity, {"study": name, **versions(), "details": plan.details})
        try:
            (target / REPORTS_FOLDER).mkdir(exist_ok=True)
            runner = StudyRunner(plan, target, isinstance(executor, int), release or current_commit(plan.base))
            shared = RunOptions(settings=plan.settings, executor=executor, trust_results=trust_results, progress=False)
            while len(rows) < len(plan.combinations):
                try:
                    with shared.share_executor() as options:
                        runner.use(options)
                        for combination in plan.combinations[len(rows) :]:
                            show.stage(str(combination))
                            finished = runner.find_finished(combination)
                            if finished is not None:
                                rows.append(report_row(combination, finished, plan.detects))
                                stored[combination.report] = str(finished.provenance[STUDY_KEY].get("release", UNNAMED))
                                show.skip(runs)
                            else:
                                rows.append(runner.run(combination))
                                show.advance(runs)
                                _write_table(target, plan, rows)
                except CombinationFailed as problem:  # its workers have been ended; the next combination gets new ones
                    rows.append(failed_row(plan.combinations[len(rows)], str(problem)))
                    _write_table(target, plan, rows)
            columns = _write_table(target, plan, rows)
            shutil.rmtree(target / RUNNING_FOLDER, ignore_errors=True)
            return Study(target, tuple({name: row.get(name) for name in columns} for row in rows), stored)
        except BrokenExecutor as problem:
            raise _stopped_error(StopReason.WORKERS_LOST, str(problem), target, len(rows), plan) from problem
        except KeyboardInterrupt:
            raise _stopped_error(StopReason.KEYBOARD, "", target, len(rows), plan) from None
        except Stopped as problem:
            raise _stopped_error(problem.reason, "", target, len(rows), plan) from problem
        except MemoryError as problem:
            raise _stopped_error(StopReason.OUT_OF_MEMORY, "", target, len(rows), plan) from problem
        except OSError as problem:
            raise _stopped_error(StopReason.DISK, problem.strerror or str(problem), target, len(rows), plan) from None
        finally:
            show.close()


def study_folder(path: str | os.PathLike[str], folder: str | os.PathLike[str] | None) -> Path:
    """Return the folder of a study: the given one, or the path of the study file without `.toml`."""
    if folder is not None:
        return Path(folder)
    return Path(path).with_suffix("") if Path(path).name else Path(path)


def _write_table(folder: Path, plan: StudyPlan, rows: list[Row]) -> list[str]:
    """Write the table, and return its columns: parameters, seed, results, path of the report, problem."""
    identity = [name for name in column_names(each.columns for each in plan.combinations) if name != "seed"]
    last = ["report", "problem"]
    results = [name for name in column_names(rows) if name not in (*identity, "seed", *last)]
    columns = [*identity, "seed", *results, *last]
    replace_file(folder / TABLE_FILE, csv_text(rows, columns).encode())
    return columns


def _stopped_error(reason: StopReason, detail: str, folder: Path, finished: int, plan: StudyPlan) -> Stopped:
    """Return the error of a study that was stopped before its end."""
    cause = f"{reason.value} ({detail})" if detail else reason.value
    return Stopped(
        f"{cause} after {finished} of {len(plan.combinations)} verifications; they are kept in {folder}; "
        "run the same command or call again to resume",
        str(folder),
        finished,
        reason,
    )
