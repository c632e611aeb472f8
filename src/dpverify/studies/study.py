"""Studies: many verifications from one TOML file, in one folder that a stopped study resumes from (docs/studies.md).

    study/dpverify.json             the identity of the study
    study/table.csv                 a row for each finished combination, in the order of the study
    study/reports/0007-....json     the report of a combination
    study/running/                  checkpoints of the verification that is running; removed when its report is written

A combination is finished when its report exists and its mechanism and its data are unchanged (`studies.finished`).
Every file is replaced as a whole, so that a study can be stopped at any time.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import warnings
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpverify.errors import DPVerifyWarning, FolderError, InputError, MechanismError, Stopped, StopReason
from dpverify.mechanisms.protocol import Mechanism
from dpverify.report.report import Report
from dpverify.report.statements import Verdict
from dpverify.sampling.checkpoints import open_checkpoint
from dpverify.studies.finished import (
    STUDY_KEY,
    Finished,
    Inputs,
    Record,
    add_behaviour,
    check_finished,
    keep_old_report,
    make_pair_record,
    make_record,
    read_finished,
    warn_of_change,
    was_started_otherwise,
)
from dpverify.studies.inputs import PairData, make_mechanism, make_pair
from dpverify.studies.options import RunOptions
from dpverify.studies.plans import REPORTS_FOLDER, Combination, StudyPlan, Variant, read_study
from dpverify.studies.tables import Row, column_names, csv_text, format_table, format_value, write_comparison
from dpverify.util.files import replace_file
from dpverify.util.formatting import format_lower, format_upper
from dpverify.util.progress import Progress
from dpverify.util.timing import versions

TABLE_FILE, RUNNING_FOLDER = "table.csv", "running"
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
    """

    folder: Path
    rows: tuple[Row, ...]

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows whose verification failed; the column `problem` has the reason."""
        return tuple(row for row in self.rows if row["problem"] is not None)

    @property
    def refuted(self) -> tuple[Row, ...]:
        """The rows whose claim is refuted."""
        return tuple(row for row in self.rows if row.get("verdict") == Verdict.REFUTED.name)

    @property
    def unanswered(self) -> tuple[Row, ...]:
        """The rows with a voiding diagnostic, which have no answer; the column `diagnostic` has its name."""
        return tuple(row for row in self.rows if row.get("diagnostic") is not None)

    @property
    def summary(self) -> str:
        """The number of verifications, and how many of them are refuted, failed and without an answer."""
        number = len(self.rows)
        text = f"{number} verification{'' if number == 1 else 's'}, {len(self.refuted)} refuted (each at its own alpha)"
        text += f", {len(self.failed)} failed"
        return text + (f", {len(self.unanswered)} without an answer" if self.unanswered else "")

    def report(self, row: Mapping[str, Any]) -> Report:
        """Read the report of a row."""
        return Report.from_json(self.folder / row["report"])

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page that shows privacy against accuracy, for the pairs with a truth (needs `dpverify[report]`)."""
        write_comparison(path, f"{self.folder.name}: privacy against accuracy", self.rows)

    def __str__(self) -> str:
        parameters = [name for name in column_names(self.rows) if name.startswith(("mechanism.", "pair."))]
        header = ("mechanism", "pair", *parameters, "seed", "verdict", "epsilon >=", "epsilon <= (cells)")
        lines = []
        for row in self.rows[:PRINTED_ROWS]:
            identity = [format_value(row[name]) for name in ("mechanism", "pair", *parameters, "seed")]
            if row["problem"] is None:
                bounds = [format_lower(row["epsilon_lower"]), format_upper(row["epsilon_upper_on_partition"])]
                lines.append([*identity, row["verdict"], *bounds])
            else:
                lines.append([*identity, "failed", "", ""])
        hidden = len(self.rows) - len(lines)
        more = [f"  and {hidden} more rows in {self.folder / TABLE_FILE}"] if hidden else []
        return "\n".join([f"{self.folder.name}: {self.summary}", *format_table(header, lines), *more])


def run_study(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    executor: int | Executor | None = None,
    progress: bool = False,
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
    progress : bool
        Whether progress is shown.
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
    ... test_runs = 2000
    ... ''')
    >>> study = dpv.run_study(folder / "study.toml")
    >>> print(study.summary)
    1 verification, 1 refuted (each at its own alpha), 0 failed
    >>> temporary.cleanup()
    """
    plan, path = read_study(path), Path(path)
    target = Path(folder) if folder is not None else path.with_suffix("")
    if target == path:
        raise InputError(f"{path}: found no .toml at the end of the name; expected it, or another folder; set folder=")
    runs = 2 * (plan.settings.select_runs + plan.settings.test_runs)
    show = Progress(progress, True)
    show.plan(len(plan.combinations) * runs)
    rows: list[Row] = []
    with open_checkpoint(target) as checkpoint:
        checkpoint.acquire(plan.identity, {"study": path.name, **versions()})
        try:
            (target / REPORTS_FOLDER).mkdir(exist_ok=True)
            options = RunOptions(settings=plan.settings, executor=executor, trust_results=trust_results)
            with options.share_executor() as options:
                runner = _StudyRunner(plan, target, options)
                for combination in plan.combinations:
                    show.stage(str(combination))
                    finished = runner.find_finished(combination)
                    if finished is not None:
                        rows.append(_report_row(combination, finished))
                        show.skip(runs)
                    else:
                        rows.append(runner.run(combination))
                        show.advance(runs)
                        _write_table(target, plan, rows)
            columns = _write_table(target, plan, rows)
            shutil.rmtree(target / RUNNING_FOLDER, ignore_errors=True)
            return Study(target, tuple({name: row.get(name) for name in columns} for row in rows))
        except KeyboardInterrupt:
            raise _stopped_error(StopReason.KEYBOARD, "", target, len(rows), plan) from None
        except Stopped as problem:
            raise _stopped_error(problem.reason, "", target, len(rows), plan) from problem
        except OSError as problem:
            raise _stopped_error(StopReason.DISK, problem.strerror or str(problem), target, len(rows), plan) from None
        finally:
            show.close()


class _StudyRunner:
    """Verifies combinations, and keeps mechanisms and pairs that several combinations use."""

    def __init__(self, plan: StudyPlan, folder: Path, options: RunOptions) -> None:
        self.plan, self.folder, self.options = plan, folder, options
        self.mechanisms: dict[Variant, Mechanism] = {}
        self.pairs: dict[Variant, tuple[PairData, Record]] = {}

    def find_finished(self, combination: Combination) -> Report | None:
        """Return the report of a combination if it is finished and unchanged; warn if it has to be run again."""
        path = self.folder / combination.report
        if not path.exists():
            return None
        report = read_finished(path, self.plan, combination)
        try:
            inputs = self._inputs(combination)
        except InputError:  # the combination is run again, which reports the reason
            return None
        result, changed = check_finished(report, self.plan, combination, inputs, self.options.trust_results)
        if result in (Finished.CURRENT, Finished.TRUSTED):
            return report
        warn_of_change(combination, result, changed)
        return None

    def run(self, combination: Combination) -> Row:
        """Verify a combination, write its report, and return its row; a failure becomes a row with the reason."""
        running = self.folder / RUNNING_FOLDER / f"{combination.number:04d}"
        try:
            report = self._verify(combination, running)
        except (Stopped, FolderError):  # these do not concern this combination alone
            raise
        except Exception as problem:
            reason = " ".join(str(problem).split())
            if not isinstance(problem, (InputError, MechanismError)):
                reason = f"{type(problem).__name__}: {reason}"
            warnings.warn(f"{combination} failed: {reason}", DPVerifyWarning, stacklevel=2)
            return {**combination.columns, "problem": reason}
        report.to_json(running / "report.json")
        keep_old_report(self.folder / combination.report)
        replace_file(self.folder / combination.report, (running / "report.json").read_bytes())
        shutil.rmtree(running, ignore_errors=True)
        return _report_row(combination, report)

    def _verify(self, combination: Combination, running: Path) -> Report:
        """Return the report of a combination, which is bound to it."""
        plan, inputs = self.plan, self._inputs(combination)
        record = make_record(plan, combination, inputs)
        options = dataclasses.replace(
            self.options,
            settings=plan.settings.change(seed=combination.seed),
            folder=running,
            error=inputs.pair.error,
        )
        first, second, _ = inputs.pair
        try:
            report = options.verify(inputs.mechanism, first, second, plan.epsilon, plan.delta)
        except FolderError:
            if not was_started_otherwise(running, record):
                raise
            warnings.warn(
                f"{combination}: its sources or its data changed while it was unfinished; it is started again",
                DPVerifyWarning,
                stacklevel=2,
            )
            shutil.rmtree(running)
            report = options.verify(inputs.mechanism, first, second, plan.epsilon, plan.delta)
        report.run[STUDY_KEY] = add_behaviour(record, running)
        return report

    def _inputs(self, combination: Combination) -> Inputs:
        """Return the mechanism and the pair of a combination; each is made once."""
        plan = self.plan
        if combination.mechanism not in self.mechanisms:
            self.mechanisms[combination.mechanism] = make_mechanism(plan, combination.mechanism)
        if combination.pair not in self.pairs:
            pair = make_pair(plan, combination.pair)
            self.pairs[combination.pair] = pair, make_pair_record(plan, combination.pair, pair)
        return Inputs(self.mechanisms[combination.mechanism], *self.pairs[combination.pair])


def _report_row(combination: Combination, report: Report) -> Row:
    """Return the row of a finished combination."""
    results = {name: value for name, value in report.row().items() if name not in ("name", "seed")}
    return {**combination.columns, **results, "report": combination.report}


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
