"""Many verifications: one engine that resumes, uses several processes, and keeps a table (`verify_many`).

    folder/reports/NAME.json    the report of a finished job
    folder/running/NAME         the checkpoint of a job that is not finished
    folder/table.csv            one row per finished job

A job is finished when its report exists and its mechanism, data, claim and settings are those of the report. Mechanisms
are compared by value, by their source files, and, if they are seeded, by 64 runs per dataset.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dpverify.claims import resolve_claim
from dpverify.errors import DPVerifyWarning, FolderError, InputError, MechanismError, Stopped, StopReason
from dpverify.mechanisms.protocol import Mechanism, is_seeded
from dpverify.pipeline import verify
from dpverify.report.report import Report
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.checkpoint import OWNER_FILE, describe_changes, open_checkpoint, run_sources
from dpverify.sampling.executors import open_pool
from dpverify.sampling.probe import behaviour_hash, probe_mechanism
from dpverify.settings import Settings
from dpverify.studies.tables import Row, format_table, is_curve, write_csv
from dpverify.util.files import replace_file
from dpverify.util.formatting import format_count, format_lower, format_upper, one_line
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import Progress
from dpverify.util.serialization import to_plain
from dpverify.util.sources import changed_sources

if TYPE_CHECKING:
    from dpverify.render.builder import Page

REPORTS_FOLDER, RUNNING_FOLDER, TABLE_FILE = "reports", "running", "table.csv"
JOB_KEY = "job"  # the entry of `report.provenance` that binds a report to its job
PROCESS_ENDED = (
    "the process ended; the mechanism, or a library, ended it; in a script, processes need the call under "
    'if __name__ == "__main__":'
)


class Outcome(NamedTuple):
    """The result of a task, whether it is new, and the warnings of another process."""

    result: Any
    is_new: bool = True
    messages: tuple[str, ...] = ()


class Job(NamedTuple):
    """One verification of many.

    Attributes
    ----------
    name : str
        Its name, different from that of all other jobs.
    mechanism : Mechanism
        The mechanism, as in `verify`.
    first, second : object
        The two neighbouring datasets.
    claim : claim or None
        The claim, one of `dpverify.claims`; None measures.
    settings : Settings
        The settings.
    options : mapping or None
        Further keyword arguments of `verify`: delta, error, log_lipschitz, learn.
    """

    name: str
    mechanism: Mechanism
    first: object
    second: object
    claim: object = None
    settings: Settings = Settings()
    options: Mapping[str, Any] | None = None

    @property
    def runs(self) -> int:
        """The number of selection and test runs of both datasets."""
        return 2 * (self.settings.select_runs + self.settings.test_runs)

    def verify(self, folder: Path | None = None, trust_results: bool = False) -> Report:
        """Call `verify` with this job."""
        options: dict[str, Any] = dict(self.options or {})
        return verify(
            self.mechanism,
            self.first,
            self.second,
            claim=self.claim,
            settings=self.settings,
            folder=folder,
            progress=False,
            trust_results=trust_results,
            **options,
        )


def verify_many(
    jobs: Iterable[Job | tuple[Any, ...]],
    folder: str | PathLike[str] | None = None,
    workers: int | None = None,
    *,
    progress: bool | None = None,
    trust_results: bool = False,
) -> list[Report]:
    """Verify many jobs, one after the other or in several processes.

    With a folder, the same call continues where an earlier one was stopped. A job that is finished is not verified
    again, unless its mechanism, its data, its claim or its settings have changed. A job that fails does not prevent the
    others; its exception is raised when they are finished.

    Parameters
    ----------
    jobs : iterable of Job
        What is verified: `Job(name, mechanism, first, second, claim, settings, options)`, or tuples of these.
    folder : path, optional
        The folder for the reports, the checkpoints and the table. None keeps nothing.
    workers : int, optional
        How many jobs are verified at the same time, each in a process of its own. None verifies them in this process;
        then mechanisms may be lambdas and closures.
    progress : bool or None
        Whether progress is shown on stderr; None shows it on a terminal and in notebooks.
    trust_results : bool
        Whether a finished report is used again although source files have changed, if 64 runs per dataset are the same
        as before or cannot be compared.

    Returns
    -------
    list of Report
        One report per job, in the order of the jobs. `Results` makes a table and a page of them.

    Raises
    ------
    InputError
        If a job cannot be used, or cannot be sent to another process.
    MechanismError
        If a mechanism fails, after all other jobs are finished.
    Stopped
        If the run is interrupted. What is finished is in the folder.

    Examples
    --------
    >>> import dpverify as dpv
    >>> from dpverify.studies import Job, verify_many
    >>> def noisy(scale):
    ...     return lambda data, runs, rng: data + rng.laplace(scale=scale, size=(runs, 1))
    >>> settings = dpv.Settings(select_runs=500, test_runs=2000)
    >>> jobs = [Job(f"scale {b}", noisy(b), 0.0, 1.0, dpv.claims.pure(1.0), settings) for b in (0.5, 2.0)]
    >>> [report.refuted for report in verify_many(jobs)]
    [True, False]
    """
    listed = check_jobs(jobs, workers)
    work = Work(None if folder is None else Path(folder), workers, progress, "job")
    names, costs = [job.name for job in listed], [job.runs for job in listed]
    tasks = [partial(run_job, job, work.folder, trust_results) for job in listed]
    reports: dict[int, Report] = {}
    try:
        for number, report in work.results(names, tasks, costs):
            reports[number] = report
    finally:
        if work.folder is not None and reports:
            table = [{JOB_KEY: names[number], **reports[number].row()} for number in sorted(reports)]
            write_csv(work.folder / TABLE_FILE, table)
    return [reports[number] for number in range(len(listed))]


def compute_many(
    tasks: Mapping[str, Callable[[], Any]],
    folder: str | PathLike[str] | None = None,
    workers: int | None = None,
    *,
    progress: bool | None = None,
) -> list[Any]:
    """Compute many results that are plain data, with the engine of `verify_many`.

    It suits verifications that are so short that a report and a checkpoint for each would take longer: a task verifies
    some of them and returns what is kept.

    Parameters
    ----------
    tasks : mapping from str to callable
        A callable without arguments for each name, such as `functools.partial(function, argument)`. It returns numbers,
        text, booleans, None, and lists, tuples and dictionaries of them.
    folder : path, optional
        The folder for the results. The same call continues from there; a task whose arguments or source files have
        changed is computed again.
    workers, progress
        As in `verify_many`.

    Returns
    -------
    list
        One result per task, in their order. With a folder, tuples become lists.

    Raises
    ------
    InputError
        If a task or its result cannot be used.
    Stopped
        If the computation is interrupted. What is finished is in the folder.

    Examples
    --------
    >>> from functools import partial
    >>> from dpverify.studies import compute_many
    >>> compute_many({"first": partial(pow, 2, 3), "second": partial(pow, 3, 2)})
    [8, 9]
    """
    check_workers(workers)
    work, files = Work(None if folder is None else Path(folder), workers, progress, "task"), set[str]()
    for name, task in tasks.items():
        check_name(name, files)
        if workers is not None:
            _check_picklable("task", name, task)
    calls = [partial(run_task, name, task, work.folder) for name, task in tasks.items()]
    found = dict(work.results(list(tasks), calls, [1] * len(tasks)))
    return [found[number] for number in range(len(tasks))]


def file_name(name: str) -> str:
    """Return a name as part of a file name: a name with other characters gets a hash."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,99}", name):
        return name
    return f"{re.sub(r'[^A-Za-z0-9_.+=-]+', '-', name)[:60].strip('-.')}-{fingerprint(name)[:8]}"


def check_name(name: object, files: set[str]) -> None:
    """Raise InputError unless the name is a text whose file differs from `files`, to which it is added."""
    if not isinstance(name, str) or not name:
        raise InputError(f"jobs: found the name {name!r}; expected a text")
    file = file_name(name).casefold()  # some file systems do not distinguish capital letters
    if file in files:
        raise InputError(f"jobs: found the name {name!r} twice; expected different names")
    files.add(file)


def check_workers(workers: object) -> None:
    """Raise InputError unless this is None or a number of processes."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise InputError(f"workers: found {workers!r}; expected None, or a number of processes")


def check_jobs(jobs: Iterable[Job | tuple[Any, ...]], workers: int | None) -> list[Job]:
    """Return the jobs with their claims as `Claim`s; raise InputError if one of them cannot be used."""
    check_workers(workers)
    listed, files = [], set[str]()
    for one in jobs:
        fields: Any = one
        try:
            job = Job(*fields)
        except TypeError:
            raise InputError(
                f"jobs: found {one_line(repr(one), 80)}; expected Job(name, mechanism, first, second, claim, settings)"
            ) from None
        check_name(job.name, files)
        if not isinstance(job.settings, Settings):
            raise InputError(f"job {job.name}: found settings {job.settings!r}; expected a Settings")
        if job.claim is not None:  # an accountant is evaluated once
            job = job._replace(claim=resolve_claim(None, 0.0, job.claim)[0])
        if workers is not None:
            _check_picklable("job", job.name, job)
        listed.append(job)
    return listed


def _check_picklable(kind: str, name: str, value: object) -> None:
    try:
        pickle.dumps(value)
    except Exception as problem:  # any class can refuse in its own way
        raise InputError(
            f"{kind} {name}: found something that cannot be sent to another process ({one_line(problem)}); expected "
            "objects that can be pickled; define them at the top level of a module, wrap a function that makes the "
            "mechanism (dpverify.factory), or use workers=None"
        ) from None


@dataclass(frozen=True)
class Work:
    """Where and how tasks are run: the folder, the number of processes, and what is shown.

    Attributes
    ----------
    folder : Path or None
        The folder, which one process uses at a time.
    workers : int or None
        The number of processes; None for this one.
    progress : bool or None
        Whether progress is shown.
    kind : str
        What a task is called in messages.
    """

    folder: Path | None
    workers: int | None
    progress: bool | None
    kind: str

    def results(
        self, names: Sequence[str], tasks: Sequence[Callable[[], Outcome]], costs: Sequence[int]
    ) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of every task in the order of completion; then raise the first failure."""
        show, problems = Progress(self.progress, self.folder is not None), dict[int, Exception]()
        done, number_of_tasks = 0, len(tasks)
        show.plan(sum(costs))
        # With several workers the longest tasks come first, so that all of them are busy until the end.
        order = sorted(range(len(tasks)), key=lambda number: 0 if self.workers is None else -costs[number])
        with self._open_folder():
            try:
                for number, found in run_tasks(tasks, self.workers, order):
                    show.stage(names[number])
                    is_new = isinstance(found, Exception) or found.is_new
                    (show.advance if is_new else show.skip)(costs[number])
                    if isinstance(found, Exception):
                        problems[number] = found
                        continue
                    for message in found.messages:
                        warnings.warn(f"{names[number]}: {message}", DPVerifyWarning, stacklevel=3)
                    done += 1
                    yield number, found.result
            except KeyboardInterrupt:
                raise self._stopped(StopReason.KEYBOARD, done, number_of_tasks) from None
            except Stopped as problem:
                raise self._stopped(problem.reason, done, number_of_tasks) from problem
            except MemoryError as problem:
                raise self._stopped(StopReason.OUT_OF_MEMORY, done, number_of_tasks) from problem
            finally:
                show.close()
            for number, problem in sorted(problems.items()):
                place = "" if self.folder is None else f"; their results are in {self.folder}"
                finished = f"{done} of {number_of_tasks} {self.kind}s are finished{place}"
                problem.add_note(f"in {self.kind} {names[number]}; {finished}")
                raise problem
            if self.folder is not None:
                shutil.rmtree(self.folder / RUNNING_FOLDER, ignore_errors=True)

    @contextlib.contextmanager
    def _open_folder(self) -> Iterator[None]:
        """Lock the folder, which may be new or belong to an earlier call."""
        with open_checkpoint(self.folder) as checkpoint:
            checkpoint.acquire({"many": self.kind}, {})
            if self.folder is not None:
                for part in (REPORTS_FOLDER, RUNNING_FOLDER):
                    (self.folder / part).mkdir(exist_ok=True)
            yield

    def _stopped(self, reason: StopReason, done: int, number: int) -> Stopped:
        advice = "nothing was saved; use folder="
        if self.folder is not None:
            advice = f"they are kept in {self.folder}; repeat the same call to resume"
        folder = None if self.folder is None else str(self.folder)
        return Stopped(f"{reason.value} after {done} of {number} {self.kind}s; {advice}", folder, done, reason)


def run_tasks(
    tasks: Sequence[Callable[[], Outcome]], workers: int | None, order: Iterable[int]
) -> Iterator[tuple[int, Outcome | Exception]]:
    """Yield the number and the result of every task in the order of completion, or the exception that it raised.

    A mechanism can end its process. The tasks that were lost with it are repeated, each in a new process; one that ends
    this process too has failed.
    """
    left = list(order)
    if workers is None:
        for number in left:
            yield number, _result(tasks[number])
        return
    try:
        with open_pool(workers) as pool:
            assert pool.executor is not None
            futures = {pool.executor.submit(recorded, tasks[number]): number for number in left}
            for future in as_completed(futures):
                result = _result(future.result)
                if isinstance(result, BrokenExecutor):
                    raise result
                left.remove(futures[future])
                yield futures[future], result
    except BrokenExecutor:
        pass
    for number in left:
        with open_pool(1) as pool:
            assert pool.executor is not None
            result = _result(pool.executor.submit(recorded, tasks[number]).result)
        yield number, MechanismError(PROCESS_ENDED, "", 0, 0) if isinstance(result, BrokenExecutor) else result


def _result(task: Callable[[], Outcome]) -> Outcome | Exception:
    """Return the result of a task, or its exception. What concerns all tasks is raised."""
    try:
        return task()
    except (Stopped, MemoryError, OSError):
        raise
    except Exception as problem:
        return problem


def recorded(task: Callable[[], Outcome]) -> Outcome:
    """Run a task in another process; its warnings are added to its messages."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DPVerifyWarning)
        result = task()
    messages = [str(each.message) for each in caught if issubclass(each.category, DPVerifyWarning)]
    return result._replace(messages=(*result.messages, *messages))


def run_job(job: Job, folder: Path | None, trust_results: bool) -> Outcome:
    """Return the report of a job; a report that is finished and current is read."""
    if folder is None:
        return Outcome(job.verify())
    file = file_name(job.name)
    path, running = folder / REPORTS_FOLDER / f"{file}.json", folder / RUNNING_FOLDER / file
    record = make_record(job)
    if path.exists():
        reason, report = "its report is damaged", None
        with contextlib.suppress(InputError):
            report = Report.from_json(path)
            reason = why_again(report, job, record, trust_results)
        if report is not None and reason is None:
            return Outcome(report, False)
        warnings.warn(f"{job.name}: {reason}; it is run again", DPVerifyWarning, stacklevel=2)
    try:
        report = job.verify(running, trust_results)
    except FolderError as problem:  # unfinished runs of another mechanism, or with other data or settings
        if not running.exists():
            raise
        warnings.warn(f"{one_line(problem)}; {job.name} is started again", DPVerifyWarning, stacklevel=2)
        shutil.rmtree(running)
        report = job.verify(running, trust_results)
    owner = json.loads((running / OWNER_FILE).read_text(encoding="utf-8"))
    report.provenance[JOB_KEY] = {**record, "behaviour": owner["run"].get("probe")}
    report.to_json(path)
    shutil.rmtree(running, ignore_errors=True)
    return Outcome(report)


def run_task(name: str, task: Callable[[], Any], folder: Path | None) -> Outcome:
    """Return the result of a task of `compute_many`; one that is finished and current is read."""
    if folder is None:
        return Outcome(task())
    path, key = folder / REPORTS_FOLDER / f"{file_name(name)}.json", None
    with contextlib.suppress(InputError, RecursionError, ValueError):  # a task that cannot be compared is repeated
        key = fingerprint(task, closures=True)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(path.read_text(encoding="utf-8"))
        if key is not None and stored["task"] == key:
            return Outcome(stored["result"], False)
    result = task()
    try:
        text = json.dumps({"task": key, "result": result})
    except (TypeError, ValueError) as problem:
        raise InputError(
            f"task {name}: found a result that cannot be stored ({one_line(problem)}); expected plain data"
        ) from None
    replace_file(path, text.encode())
    return Outcome(json.loads(text)["result"])


def make_record(job: Job) -> dict[str, Any]:
    """Return what identifies a job: hashes of its call, of its data, of its mechanism's value, and of its sources."""
    value = None
    with contextlib.suppress(InputError, RecursionError, ValueError):  # some objects cannot be compared by value
        value = fingerprint(job.mechanism, sources=False, closures=True)
    return {
        "call": fingerprint((to_plain(job.claim), to_plain(job.settings), dict(job.options or {}))),
        "data": fingerprint((job.first, job.second)),
        "mechanism": value,
        "sources": run_sources(job.mechanism, job.settings, (job.options or {}).get("error")),
    }


def why_again(report: Report, job: Job, record: Mapping[str, Any], trust_results: bool) -> str | None:
    """Return why a finished job is verified again; None if its report is used."""
    stored = report.provenance.get(JOB_KEY)
    if not isinstance(stored, dict):
        return "its report was not written by verify_many"
    for name, what in (("call", "its claim, settings or options have"), ("data", "its data have")):
        if stored.get(name) != record[name]:
            return f"{what} changed"
    if stored.get("mechanism") != record["mechanism"]:
        return "its mechanism has changed"
    changed = changed_sources(stored.get("sources") or {}, record["sources"])
    seeded = is_seeded(job.mechanism)  # then a cause outside of all sources, such as a file that it reads, is seen too
    if seeded and probe_behaviour(job.mechanism, (job.first, job.second), report.settings) != stored.get("behaviour"):
        return "its runs are others than in its report"
    if trust_results or not changed:
        return None
    why = "64 runs per dataset are the same" if seeded else "runs without a seed cannot be compared"
    return f"{describe_changes(changed)}; {why}; trust_results=True uses its report"


def probe_behaviour(mechanism: Mechanism, data: tuple[object, object], settings: Settings) -> str | None:
    """Return the hash of the first 64 runs per dataset, with the settings of a report; None if the mechanism fails."""
    assert settings.block is not None  # the settings of a report have the block size
    source = SampleSource(mechanism, data, settings.seed, settings.block, settings.nonfinite)
    try:
        return behaviour_hash(probe_mechanism(source, True)[1])
    except MechanismError:
        return None
    finally:
        finish = getattr(mechanism, "finish", None)
        if finish is not None:
            finish()


class ResultColumn(NamedTuple):
    """A column of a table of results: in text, in CSV and in a page.

    Attributes
    ----------
    name : str
        The key of a row: "job", or a key of `Report.row`.
    header : str
        The heading.
    format : callable
        Makes the text of a value that is not None.
    is_number : bool
        Whether the page aligns and sorts the column as numbers.
    """

    name: str
    header: str
    format: Callable[[Any], str] = str
    is_number: bool = False


COLUMNS = (
    ResultColumn(JOB_KEY, "job"),
    ResultColumn("verdict", "verdict", lambda verdict: verdict.replace("_", " ").lower()),
    ResultColumn("claim", "claim"),
    ResultColumn("claim_lower", "its parameter at least", format_lower, True),
    ResultColumn("delta", "delta", lambda delta: f"{delta:.4g}", True),
    ResultColumn("epsilon_lower", "epsilon at least", format_lower, True),
    ResultColumn("epsilon_upper_on_partition", "epsilon at most (over the cells)", format_upper, True),
    ResultColumn("test_runs", "test runs", format_count, True),
)


@dataclass(frozen=True)
class Results:
    """The reports of `verify_many` as a table. `print` shows it.

    Attributes
    ----------
    names : tuple of str
        The names of the jobs.
    reports : tuple of Report
        Their reports.
    columns : tuple of ResultColumn
        The columns of the text and of the page.

    Examples
    --------
    >>> import dpverify as dpv
    >>> from dpverify.studies import Job, Results, verify_many
    >>> def noisy(data, runs, rng):
    ...     return data + rng.laplace(size=(runs, 1))
    >>> settings = dpv.Settings(select_runs=500, test_runs=2000)
    >>> job = Job("count", noisy, 0.0, 2.0, dpv.claims.pure(1.0), settings)
    >>> results = Results.of([job], verify_many([job]))
    >>> results.summary
    '1 verification, 1 refuted'
    """

    names: tuple[str, ...]
    reports: tuple[Report, ...]
    columns: tuple[ResultColumn, ...] = COLUMNS

    @classmethod
    def of(cls, jobs: Iterable[Job | tuple[Any, ...]], reports: Iterable[Report]) -> Results:
        """Return the results of these jobs."""
        return cls(tuple(job[0] for job in jobs), tuple(reports))

    @property
    def rows(self) -> tuple[Row, ...]:
        """One row per job: its name as "job", and the columns of `Report.row`."""
        return tuple({JOB_KEY: name, **one.row()} for name, one in zip(self.names, self.reports, strict=True))

    @property
    def summary(self) -> str:
        """How many verifications there are, how many of them have no answer, and how many claims are refuted."""
        number, refuted = len(self.reports), sum(report.refuted for report in self.reports)
        void = [name for name, report in zip(self.names, self.reports, strict=True) if report.voiding]
        no_answer = f"{len(void)} without an answer ({', '.join(void)}), " if void else ""
        return f"{number} verification{'s' * (number != 1)}, {no_answer}{refuted} refuted"

    def texts(self) -> tuple[tuple[ResultColumn, ...], list[list[str]]]:
        """Return the columns that have a value, and the text of every cell."""
        rows = [row if is_curve(row) else {**row, "claim_lower": None} for row in self.rows]  # it is epsilon_lower
        shown = tuple(column for column in self.columns if any(row.get(column.name) is not None for row in rows))
        texts = [["" if (x := row.get(one.name)) is None else one.format(x) for one in shown] for row in rows]
        return shown, texts

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write all columns of the rows as a CSV file."""
        write_csv(path, self.rows)

    def page(self, title: str = "", sentence: str = "") -> Page:
        """Return a page with the headline, the table and the figure of all bounds (needs `dpverify[report]`)."""
        import dpverify.render as render

        shown, texts = self.texts()
        columns = [render.Column(column.header, column.is_number) for column in shown]
        rows = [
            [
                render.Cell(text, style=row["verdict"] if column.name == "verdict" else "", sort=row.get(column.name))
                for column, text in zip(shown, line, strict=True)
            ]
            for row, line in zip(self.rows, texts, strict=True)
        ]
        bounds = [
            render.Bounds(name, one.epsilon_lower, one.on_partition.epsilon_upper(one.delta), None, one.epsilon)
            for name, one in zip(self.names, self.reports, strict=True)
            if one.epsilon_lower is not None and one.on_partition is not None  # a void test has no bounds
        ]
        scope = "The lower bounds hold over all events, the upper bounds over the cells of one partition only."
        lead = sentence or f"A claim that is not refuted is not proved. {scope}"
        return render.Page(
            title or self.summary,
            (
                render.Sentence(lead, style="lead"),
                render.Section("All results", (render.Table(columns, rows, sortable=True),)),
                render.Section("Bounds on ε", (render.Figures((render.draw_bounds(bounds, "Bounds on ε"),)),)),
            ),
        )

    def __str__(self) -> str:
        shown, texts = self.texts()
        return "\n".join([self.summary, *format_table([column.header for column in shown], texts)])
