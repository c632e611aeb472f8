"""Studies: many verifications from one TOML file, in one folder that a stopped study resumes from (docs/studies.md).

    study/dpverify.json             the identity of the study, with a hash of every file that it names
    study/table.csv                 a row for each finished combination, in the order of the study
    study/reports/0007-....json     the report of a combination
    study/running/                  checkpoints of the verification that is running; removed when its report is written

A combination is finished when its report exists. Every file is replaced as a whole, so that a study can be stopped at
any time.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from dpverify.errors import DPVerifyWarning, FolderError, InputError, MechanismError, Stopped, StopReason
from dpverify.mechanisms.accuracy import rmse
from dpverify.mechanisms.protocol import Mechanism
from dpverify.report.report import Report
from dpverify.report.statements import Verdict
from dpverify.sampling.checkpoints import open_checkpoint
from dpverify.studies.loading import call_user_code, load_data, load_object
from dpverify.studies.options import RunOptions
from dpverify.studies.plans import REPORTS_FOLDER, Combination, PairFiles, StudyPlan, Variant, read_study
from dpverify.studies.tables import Row, column_names, csv_text, format_table, format_value, write_comparison
from dpverify.util.arrays import Array
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
    progress: bool | None = None,
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

    Returns
    -------
    Study
        One row per combination; the reports are in the folder.

    Raises
    ------
    InputError
        If the study file, or a file that it names, cannot be used.
    FolderError
        If the folder belongs to another study, or is damaged.
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
            with RunOptions(settings=plan.settings, executor=executor).share_executor() as options:
                runner = _StudyRunner(plan, target, options)
                for combination in plan.combinations:
                    show.stage(str(combination))
                    if (target / combination.report).exists():
                        rows.append(_report_row(combination, _read_report(target / combination.report)))
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


class PairData(NamedTuple):
    """A pair of data sets, and the error function of the estimates if the truth is known."""

    first: object
    second: object
    error: Callable[[Array], Array] | None


class _StudyRunner:
    """Verifies combinations, and keeps mechanisms and pairs that several combinations use."""

    def __init__(self, plan: StudyPlan, folder: Path, options: RunOptions) -> None:
        self.plan, self.folder, self.options = plan, folder, options
        self.mechanisms: dict[Variant, Mechanism] = {}
        self.pairs: dict[Variant, PairData] = {}

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
        replace_file(self.folder / combination.report, (running / "report.json").read_bytes())
        shutil.rmtree(running, ignore_errors=True)
        return _report_row(combination, report)

    def _verify(self, combination: Combination, running: Path) -> Report:
        """Return the report of a combination."""
        plan = self.plan
        if combination.mechanism not in self.mechanisms:
            self.mechanisms[combination.mechanism] = make_mechanism(plan, combination.mechanism)
        if combination.pair not in self.pairs:
            self.pairs[combination.pair] = make_pair(plan, combination.pair)
        mechanism = self.mechanisms[combination.mechanism]
        first, second, error = self.pairs[combination.pair]
        settings = plan.settings.change(seed=combination.seed)
        options = RunOptions(
            settings=settings, executor=self.options.executor, folder=running, error=error, progress=False
        )
        return options.verify(mechanism, first, second, plan.epsilon, plan.delta)


def make_mechanism(plan: StudyPlan, variant: Variant) -> Mechanism:
    """Return the mechanism: what `use` names, called with the parameters if there are some."""
    assert isinstance(variant.source, str)
    entry = f"mechanisms.{variant.name}"
    if not variant.parameters:
        return load_object(variant.source, plan.base, entry)
    return _call_source(plan, entry, variant.source, variant.parameters)


def make_pair(plan: StudyPlan, variant: Variant) -> PairData:
    """Return the pair: from files, or from the function that `use` names.

    The function returns (first, second), or (first, second, truth), where an error function can replace the truth.
    """
    if isinstance(variant.source, PairFiles):
        parts: list[Any] = [load_data(file, plan.base) for file in variant.source if file is not None]
    else:
        returned = _call_source(plan, f"pairs.{variant.name}", variant.source, variant.parameters)
        parts = list(returned) if isinstance(returned, (tuple, list)) else []
    if len(parts) not in (2, 3):
        found = f"{len(parts)} parts" if parts else "no tuple"
        raise InputError(f"pairs.{variant.name}: found {found}; expected (first, second) or (first, second, truth)")
    first, second, *rest = parts
    if not rest:
        return PairData(first, second, None)
    truth = rest[0]
    error = cast("Callable[[Array], Array]", truth) if callable(truth) else rmse(truth)
    return PairData(first, second, error)


def _call_source(plan: StudyPlan, entry: str, source: str, parameters: Mapping[str, object]) -> Any:
    """Return what a named function or class returns for these parameters."""
    function = load_object(source.removesuffix("()"), plan.base, entry)
    return call_user_code(f"{entry}: calling {source}", lambda: function(**parameters))


def _read_report(path: Path) -> Report:
    """Read the report of a finished combination; raise FolderError if it is damaged."""
    try:
        return Report.from_json(path)
    except InputError as problem:
        raise FolderError(f"{problem}; remove this file to verify its combination again") from None


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
