"""Many verifications: one engine that resumes, uses several processes, and keeps a table.

    folder/dpverify.json        marks the folder, which one process uses at a time
    folder/reports/NAME.json    the report of a finished job
    folder/running/NAME         the checkpoint of a job that is not finished
    folder/table.csv            one row per job

`verify_many`, `verify_pairs`, `search_pairs`, `calibrate`, `tradeoff`, studies and checks call it. A job is finished
when its report exists and its mechanism, data, claim and settings are those of the report. Mechanisms are compared by
value, by their source files, and, if they are seeded, by 64 runs per dataset. A report that is replaced is kept, too.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import multiprocessing.connection
import pickle
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Unpack

from dpverify.claims import resolve_claim
from dpverify.errors import (
    DPVerifyWarning,
    FolderError,
    InputError,
    MechanismError,
    Stopped,
    StopReason,
    describe_exception,
)
from dpverify.mechanisms.protocol import Mechanism, is_seeded
from dpverify.pipeline import verify
from dpverify.report.report import Report
from dpverify.report.text import describe_weakness
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.checkpoint import OWNER_FILE, describe_changes, open_checkpoint, run_sources
from dpverify.sampling.executors import end_with_parent, open_pool
from dpverify.sampling.probe import PROBE_RUNS, behaviour_hash, probe_mechanism
from dpverify.settings import Settings, SettingsChanges, VerifyOptions
from dpverify.studies.tables import ResultTable, Row
from dpverify.util.files import check_regular, replace_file
from dpverify.util.formatting import one_line
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import Progress
from dpverify.util.provenance import UNNAMED
from dpverify.util.results import column_names, write_csv
from dpverify.util.serialization import to_plain
from dpverify.util.sources import changed_sources

REPORTS_FOLDER, RUNNING_FOLDER, TABLE_FILE = "reports", "running", "table.csv"
JOB_KEY = "job"  # the entry of `report.provenance` that binds a report to its job
TASKS = "task"  # what `compute_many` calls its jobs
OWNER = {"many": 1}  # what identifies a folder of this engine: its format
SECONDS_TO_END = 1.0  # of a process that has closed its connection, until it is killed
SECONDS_BETWEEN_TABLES = 10.0  # writing 10 000 rows takes a fifth of a second, so a long table costs little
PROCESS_ENDED = "the process ended while it was verified ({}); the mechanism, or a library, ended it"
NOT_STARTED = (
    "workers: found that a new process ended before its first job ({}); expected processes that can import the calling "
    'script; put the call under if __name__ == "__main__":'
)
TIME_LIMIT = f"{StopReason.TIME_LIMIT.value} ({{:g}} s); increase timeout, or check the mechanism"
FATAL = (KeyboardInterrupt, Stopped, FolderError, MemoryError, OSError)  # these concern all jobs, not one


class Outcome(NamedTuple):
    """What became of a task.

    Attributes
    ----------
    result : object
        The result, for a job its report; None if it failed.
    problem : BaseException or None
        Why it failed.
    is_new : bool
        Whether it was computed in this call.
    messages : tuple of str
        The warnings of another process.
    """

    result: Any = None
    problem: BaseException | None = None
    is_new: bool = True
    messages: tuple[str, ...] = ()


def planned_runs(settings: Settings) -> int:
    """Return the number of selection and test runs of both datasets."""
    return 2 * (settings.select_runs + settings.test_runs)


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
        Further keyword arguments of `verify`: delta, error, log_lipschitz, log_density, learn.
    columns : mapping or None
        What its row of the table begins with; None is its name, as "job".
    detects : float or None
        A number above 1: a claim that is not refuted is too weak unless the runs notice a violation by this factor.
    """

    name: str
    mechanism: Mechanism
    first: object
    second: object
    claim: object = None
    settings: Settings = Settings()
    options: Mapping[str, Any] | None = None
    columns: Mapping[str, Any] | None = None
    detects: float | None = None

    @property
    def runs(self) -> int:
        """The number of selection and test runs of both datasets."""
        return planned_runs(self.settings)

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of modules that count as sources of the mechanism."""
        return ()

    def make(self) -> Job:
        """Return the job, as `Planned` does."""
        return self

    def verify(self, folder: Path | None = None, **options: Any) -> Report:
        """Call `verify` with this job."""
        call = {**(self.options or {}), **options}
        return verify(
            self.mechanism, self.first, self.second, claim=self.claim, settings=self.settings, folder=folder, **call
        )


class Planned(Protocol):
    """A job that is made when it is run, for example a `Combination` of a study file."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, Any] | None: ...
    @property
    def detects(self) -> float | None: ...
    @property
    def runs(self) -> int: ...
    @property
    def modules(self) -> tuple[str, ...]: ...
    def make(self) -> Job: ...


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
    check_workers(workers)
    listed = check_jobs(jobs)
    with open_engine(folder, workers, progress=progress, trust_results=trust_results) as engine:
        return engine.reports(listed)


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
    check_names(tasks)
    with open_engine(folder, workers, progress=progress, kind=TASKS) as engine:
        calls = [partial(_run_task, name, task, engine.folder) for name, task in tasks.items()]
        outcomes = dict(engine.outcomes(list(tasks), calls, [1] * len(calls)))
        raise_first_problem(outcomes, list(tasks), engine)
    return [outcomes[number].result for number in range(len(calls))]


def file_name(name: str) -> str:
    """Return a name as part of a file name: a name with other characters gets a hash."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,99}", name):
        return name
    return f"{re.sub(r'[^A-Za-z0-9_.+=-]+', '-', name)[:60].strip('-.')}-{fingerprint(name)[:8]}"


def check_names(names: Iterable[object]) -> None:
    """Raise InputError unless the names are texts whose files differ."""
    files: set[str] = set()
    for name in names:
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


def check_jobs(jobs: Iterable[Job | tuple[Any, ...]]) -> list[Job]:
    """Return the jobs with their claims as `Claim`s; raise InputError if one of them cannot be used."""
    listed = []
    for one in jobs:
        fields: Any = one
        try:
            job = Job(*fields)
        except TypeError:
            raise InputError(
                f"jobs: found {one_line(repr(one), 80)}; expected Job(name, mechanism, first, second, claim, settings)"
            ) from None
        if not isinstance(job.settings, Settings):
            raise InputError(f"job {job.name}: found settings {job.settings!r}; expected a Settings")
        if job.claim is not None:  # an accountant is evaluated once
            job = job._replace(claim=resolve_claim(None, 0.0, job.claim)[0])
        listed.append(job)
    check_names(job.name for job in listed)
    return listed


@dataclass
class Engine:
    """Runs tasks in its folder, here or in processes of their own, and keeps the rows of the table.

    Attributes
    ----------
    folder : Path or None
        The folder.
    workers : int or None
        The number of processes in which jobs are run, one in each at a time; None runs them in this process.
    executor : Executor or None
        Draws the runs of the jobs of this process.
    progress, trust_results, timeout, release, kind
        As in `open_engine`.
    rows : dict
        The row of every job by its name, in the order of the table; None until it is done.
    """

    folder: Path | None
    workers: int | None
    executor: Executor | None
    progress: bool | None
    trust_results: bool
    timeout: float | None
    release: str
    kind: str
    rows: dict[str, Row | None] = field(default_factory=dict)
    last_table: float = 0.0

    def run(self, jobs: Sequence[Planned]) -> Iterator[tuple[int, Outcome]]:
        """Yield the number of every job and what became of it, in the order of completion."""
        check_names(job.name for job in jobs)
        is_single = len(jobs) == 1 and self.workers is None
        options: dict[str, Any] = {"trust_results": self.trust_results, "progress": is_single and self.progress}
        if self.workers is None:
            options["executor"] = self.executor
        calls = [partial(_run_job, job, self.folder, self.release, options) for job in jobs]
        names = [job.name for job in jobs]
        self.rows.update(dict.fromkeys(names))
        progress = False if is_single else self.progress
        for number, outcome in self.outcomes(names, calls, [job.runs for job in jobs], progress):
            self.rows[names[number]] = make_row(jobs[number], outcome)
            if time.monotonic() - self.last_table > SECONDS_BETWEEN_TABLES:
                self.write_table()
            yield number, outcome

    def reports(self, jobs: Sequence[Planned]) -> list[Report]:
        """Return the reports of jobs; raise the first failure when the others are finished."""
        outcomes = dict(self.run(jobs))
        raise_first_problem(outcomes, [job.name for job in jobs], self)
        return [outcomes[number].result for number in range(len(jobs))]

    def outcomes(
        self, names: Sequence[str], tasks: Sequence[Callable[[], Outcome]], costs: Sequence[int], progress: Any = None
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield the number of every task and what became of it, in the order of completion."""
        show, done = Progress(progress, self.folder is not None), 0
        show.plan(sum(costs))
        try:
            for number, outcome in self._outcomes(names, tasks, costs):
                if isinstance(outcome.problem, FATAL):
                    raise outcome.problem
                show.stage(names[number])
                (show.advance if outcome.is_new else show.skip)(costs[number])
                for message in outcome.messages:
                    warnings.warn(f"{names[number]}: {message}", DPVerifyWarning, stacklevel=3)
                done += outcome.problem is None
                yield number, outcome
        except KeyboardInterrupt:
            raise self._stopped(StopReason.KEYBOARD, "", done, len(tasks)) from None
        except Stopped as problem:
            raise self._stopped(problem.reason, "", done, len(tasks)) from problem
        except MemoryError as problem:
            raise self._stopped(StopReason.OUT_OF_MEMORY, "", done, len(tasks)) from problem
        except OSError as problem:
            raise self._stopped(StopReason.DISK, problem.strerror or str(problem), done, len(tasks)) from None
        finally:
            show.close()

    def _outcomes(
        self, names: Sequence[str], tasks: Sequence[Callable[[], Outcome]], costs: Sequence[int]
    ) -> Iterator[tuple[int, Outcome]]:
        if self.workers is None:
            return ((number, _attempt(task)) for number, task in enumerate(tasks))
        for name, task in zip(names, tasks, strict=True):
            _check_picklable(self.kind, name, task)
        # The longest tasks come first, so that all workers are busy until the end.
        order = sorted(range(len(tasks)), key=lambda number: -costs[number])
        return _run_in_processes(tasks, order, self.workers, self.timeout)

    def table(self) -> tuple[Row, ...]:
        """Return the rows of all jobs that are done, each with all columns."""
        rows = [row for row in self.rows.values() if row is not None]
        names = column_names(sorted(rows, key=len, reverse=True))  # a row of a failure has few columns
        return tuple({name: row.get(name) for name in names} for row in rows)

    def write_table(self) -> None:
        """Write the table of all jobs that are done."""
        rows = self.table()
        if self.folder is not None and rows:
            write_csv(self.folder / TABLE_FILE, rows)
        self.last_table = time.monotonic()

    def _stopped(self, reason: StopReason, detail: str, done: int, number: int) -> Stopped:
        cause = f"{reason.value} ({detail})" if detail else reason.value
        advice = "nothing was saved; use folder="
        if self.folder is not None:
            advice = f"they are kept in {self.folder}; repeat the same call to resume"
        folder = None if self.folder is None else str(self.folder)
        return Stopped(f"{cause} after {done} of {number} {self.kind}s; {advice}", folder, done, reason)


@contextlib.contextmanager
def open_engine(
    folder: str | PathLike[str] | None = None,
    workers: int | None = None,
    executor: int | Executor | None = None,
    *,
    progress: bool | None = None,
    trust_results: bool = False,
    timeout: float | None = None,
    release: str = UNNAMED,
    kind: str = "job",
) -> Iterator[Engine]:
    """Open an engine in a folder that is new or belongs to an earlier call; the table is written at the end.

    Parameters
    ----------
    folder, workers, progress, trust_results
        As in `verify_many`.
    executor : int, Executor or None
        Draws the runs of each job, as in `verify`. It is not used with `workers`.
    timeout : float or None
        The time limit of a job in seconds; a job that reaches it has failed. It needs `workers`.
    release : str
        What new reports are results of.
    kind : str
        What a task is called in messages.
    """
    with open_checkpoint(folder) as checkpoint, open_pool(None if workers else executor) as pool:
        checkpoint.acquire({**OWNER, "kind": kind}, {})
        place = checkpoint.folder  # absolute, because a mechanism may change the working folder
        if place is not None:
            (place / REPORTS_FOLDER).mkdir(exist_ok=True)
            (place / RUNNING_FOLDER).mkdir(exist_ok=True)
        engine = Engine(place, workers, pool.executor, progress, trust_results, timeout, release, kind)
        try:
            yield engine
        finally:
            engine.write_table()
            if place is not None:
                with contextlib.suppress(OSError):  # it holds the checkpoint of a job that failed
                    (place / RUNNING_FOLDER).rmdir()


def raise_first_problem(outcomes: Mapping[int, Outcome], names: Sequence[str], engine: Engine) -> None:
    """Raise the problem of the first task that has failed, with a note that names it."""
    problems = {number: one.problem for number, one in sorted(outcomes.items()) if one.problem is not None}
    for number, problem in problems.items():
        place = "" if engine.folder is None else f"; their results are in {engine.folder}"
        finished = f"{len(outcomes) - len(problems)} of {len(outcomes)} {engine.kind}s are finished{place}"
        problem.add_note(f"in {engine.kind} {names[number]}; {finished}")
        raise problem


def _attempt(task: Callable[[], Outcome]) -> Outcome:
    """Return the outcome of a task; whatever it raises is its problem, also SystemExit of a function of the user."""
    try:
        return task()
    except BaseException as problem:
        return Outcome(problem=problem)


def _check_picklable(kind: str, name: str, task: object) -> None:
    try:
        pickle.dumps(task)
    except Exception as problem:  # any class can refuse in its own way
        raise InputError(
            f"{kind} {name}: found something that cannot be sent to another process ({one_line(problem)}); expected "
            "objects that can be pickled; define them at the top level of a module, wrap a function that makes the "
            "mechanism (dpverify.factory), or use workers=None"
        ) from None


# Tasks in processes of their own.


def _serve(connection: multiprocessing.connection.Connection, tasks: Sequence[Callable[[], Outcome]]) -> None:
    """Run tasks in a worker process: send None when it is ready, then an outcome for every number that is received."""
    end_with_parent()
    connection.send(None)
    while True:
        number = connection.recv()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DPVerifyWarning)
            outcome = _attempt(tasks[number])
        found = tuple(str(each.message) for each in caught if issubclass(each.category, DPVerifyWarning))
        problem = outcome.problem
        if problem is not None and not type(problem).__module__.startswith(("dpverify.", "builtins")):
            problem = MechanismError(describe_exception(problem, one_line), "", 0, 0)  # its class may not be picklable
        connection.send(outcome._replace(problem=problem, messages=(*outcome.messages, *found)))


class _Worker:
    """A process that runs one task at a time.

    Attributes
    ----------
    number : int or None
        The number of its task; None while it starts.
    is_lost : bool
        Whether it has ended.
    """

    def __init__(self, tasks: Sequence[Callable[[], Outcome]]):
        spawn = multiprocessing.get_context("spawn")
        self.connection, other = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(other, tasks))
        self.process.start()
        other.close()
        self.number: int | None = None
        self.is_lost, self.deadline = False, math.inf

    def give(self, number: int, timeout: float | None) -> None:
        """Start a task."""
        self.connection.send(number)
        self.number, self.deadline = number, math.inf if timeout is None else time.monotonic() + timeout

    def receive(self) -> Outcome | None:
        """Return the outcome of its task, or None if it is ready for the first one."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            end = self.end(SECONDS_TO_END)
        if self.number is None:
            raise InputError(NOT_STARTED.format(end))
        return Outcome(problem=MechanismError(PROCESS_ENDED.format(end), "", 0, 0))

    def end(self, seconds: float = 0.0) -> str:
        """Wait for the end of the process, then kill it; return how it has ended."""
        self.process.join(seconds)
        self.process.kill()
        self.process.join()
        self.connection.close()
        self.is_lost, code = True, self.process.exitcode or 0
        return f"exit status {code}" if code >= 0 else f"signal {-code}"


def _run_in_processes(
    tasks: Sequence[Callable[[], Outcome]], order: Iterable[int], number_of_workers: int, timeout: float | None
) -> Iterator[tuple[int, Outcome]]:
    """Yield the number and the outcome of every task in the order of completion.

    A task that ends its process, or reaches the time limit, has failed; the next one gets a new process.
    """
    left, workers = list(order)[::-1], dict[Any, _Worker]()

    def start() -> None:
        worker = _Worker(tasks)
        workers[worker.connection] = worker

    try:
        for _ in range(min(number_of_workers, len(left))):
            start()
        while workers:
            seconds = max(0.0, min(worker.deadline for worker in workers.values()) - time.monotonic())
            ready = multiprocessing.connection.wait(list(workers), None if seconds == math.inf else seconds)
            late = [one for one, worker in workers.items() if one not in ready and worker.deadline <= time.monotonic()]
            for connection in [*ready, *late]:
                worker = workers[connection]
                number = worker.number
                if connection in late:
                    worker.end()
                    outcome = Outcome(problem=MechanismError(TIME_LIMIT.format(timeout), "", 0, 0))
                else:
                    outcome = worker.receive()
                if left and not worker.is_lost:
                    worker.give(left.pop(), timeout)
                else:
                    del workers[connection]
                    if worker.is_lost and left:
                        start()
                    worker.end()
                if number is not None and outcome is not None:
                    yield number, outcome
    finally:
        for worker in workers.values():
            worker.end()


# One task.


def _run_job(planned: Planned, folder: Path | None, release: str, options: dict[str, Any]) -> Outcome:
    """Return the report of a job; a report that is finished and current is read."""
    job = planned.make()
    if folder is None:
        return Outcome(job.verify(**options))
    file = file_name(job.name)
    path, running = folder / REPORTS_FOLDER / f"{file}.json", folder / RUNNING_FOLDER / file
    record, messages = _make_record(job, planned.modules), list[str]()
    check_regular(path)
    if path.exists():
        reason, report = "its report is damaged", None
        with contextlib.suppress(InputError):
            report = Report.from_json(path)
            reason = _why_again(report, job, record, options["trust_results"])
        if report is not None and reason is None:
            return Outcome(report, is_new=False)
        messages.append(f"{reason}; it is run again")
    try:
        try:
            report = job.verify(running, **options)
        except FolderError as problem:  # unfinished runs of another mechanism, or with other data or settings
            if not running.exists():
                raise
            messages.append(f"{one_line(problem)}; it is started again")
            shutil.rmtree(running)
            report = job.verify(running, **options)
    except BaseException as problem:
        return Outcome(problem=problem, messages=tuple(messages))
    owner = json.loads((running / OWNER_FILE).read_text(encoding="utf-8"))
    report.provenance[JOB_KEY] = {**record, "behaviour": owner["run"].get("probe"), "release": release}
    _keep_old(path)
    report.to_json(path)
    shutil.rmtree(running, ignore_errors=True)
    return Outcome(report, messages=tuple(messages))


def _keep_old(path: Path) -> None:
    """Copy a report that is about to be replaced to a name with a number."""
    if path.exists():
        number = 1
        while (copy := path.with_name(f"{path.name}.old-{number}")).exists():
            number += 1
        replace_file(copy, path.read_bytes())


def _run_task(name: str, task: Callable[[], Any], folder: Path | None) -> Outcome:
    """Return the result of a task of `compute_many`; one that is finished and current is read."""
    if folder is None:
        return Outcome(task())
    path, key = folder / REPORTS_FOLDER / f"{file_name(name)}.json", None
    with contextlib.suppress(InputError, RecursionError, ValueError):  # a task that cannot be compared is repeated
        key = fingerprint(task, closures=True)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(path.read_text(encoding="utf-8"))
        if key is not None and stored["task"] == key:
            return Outcome(stored["result"], is_new=False)
    result = task()
    try:
        text = json.dumps({"task": key, "result": result})
    except (TypeError, ValueError) as problem:
        raise InputError(
            f"task {name}: found a result that cannot be stored ({one_line(problem)}); expected plain data"
        ) from None
    replace_file(path, text.encode())
    return Outcome(json.loads(text)["result"])


def _make_record(job: Job, modules: Iterable[str]) -> dict[str, Any]:
    """Return what identifies a job: its row, and hashes of its call, data, mechanism and sources."""
    value, options = None, dict(job.options or {})
    with contextlib.suppress(InputError, RecursionError, ValueError):  # some objects cannot be compared by value
        value = fingerprint(job.mechanism, sources=False, closures=True)
    return {
        "name": job.name,
        "columns": to_plain(dict(job.columns or {JOB_KEY: job.name})),
        "detects": job.detects,
        "call": fingerprint((to_plain(job.claim), to_plain(job.settings), options), sources=False),
        "data": fingerprint((job.first, job.second)),
        "mechanism": value,
        "sources": run_sources(job.mechanism, job.settings, options.get("error"), modules),
    }


def _why_again(report: Report, job: Job, record: Mapping[str, Any], trust_results: bool) -> str | None:
    """Return why a finished job is verified again; None if its report is used."""
    stored = report.provenance.get(JOB_KEY)
    if not isinstance(stored, dict):
        return "its report was not written by verify_many"
    for name, what in (("name", "it is the report of another job"), ("call", "its claim, settings or options changed")):
        if stored.get(name) != record[name]:
            return what
    changed = changed_sources(stored.get("sources") or {}, record["sources"])
    files = f"{describe_changes(changed)}; " if changed else ""
    if stored.get("data") != record["data"]:
        return f"{files}its data changed"
    seeded = is_seeded(job.mechanism)  # then a cause outside of all sources, such as a file that it reads, is seen too
    if seeded and _probe(job, report.settings) != stored.get("behaviour"):
        return f"{files}its runs are others than in its report"
    if stored.get("mechanism") != record["mechanism"]:
        return f"{files}its mechanism changed"
    if trust_results or not changed:
        return None
    why = "64 runs per dataset are the same as in its report" if seeded else "runs without a seed cannot be compared"
    return f"{files}{why} and trust_results=True (--trust-results) would use it"


def _probe(job: Job, settings: Settings) -> str | None:
    """Return the hash of the first 64 runs per dataset, with the settings of a report; None if the mechanism fails."""
    assert settings.block is not None  # the settings of a report have the block size
    source = SampleSource(job.mechanism, (job.first, job.second), settings.seed, settings.block, settings.nonfinite)
    try:
        return behaviour_hash(probe_mechanism(source, runs=PROBE_RUNS)[1])
    except MechanismError:
        return None
    finally:
        finish = getattr(job.mechanism, "finish", None)
        if finish is not None:
            finish()


def make_row(job: Planned, outcome: Outcome) -> Row:
    """Return the row of the table of a job that is done: its columns, and the results or the problem."""
    columns = dict(job.columns or {JOB_KEY: job.name})
    if outcome.problem is not None:
        return {**columns, "problem": describe_problem(outcome.problem)}
    return report_row(columns, outcome.result, job.detects, job.name)


def report_row(columns: Row, report: Report, detects: float | None = None, name: str | None = None) -> Row:
    """Return the row of a report; `too_weak` says why its runs would not notice a violation.

    With the name of its job the row has the path of the report, too.
    """
    weakness = None if detects is None else describe_weakness(report, detects)
    results = {key: value for key, value in report.row().items() if key not in columns}
    path = {} if name is None else {"report": f"{REPORTS_FOLDER}/{file_name(name)}.json"}
    return {**columns, **results, "too_weak": weakness, **path, "problem": None}


def describe_problem(problem: BaseException) -> str:
    """Return why a job has failed, in one line."""
    text = " ".join(str(problem).split())
    return text if isinstance(problem, (InputError, MechanismError)) else f"{type(problem).__name__}: {text}"


class CallOptions(NamedTuple):
    """The keyword arguments of `verify` that a function passes on to all of its verifications.

    Attributes
    ----------
    settings : Settings
        The settings, from which each verification gets a seed of its own.
    executor, folder, progress, trust_results
        As in `verify`; they are those of the engine.
    call : dict
        error, log_lipschitz, log_density and learn, if they are given.
    """

    settings: Settings
    executor: int | Executor | None
    folder: Path | None
    progress: bool | None
    trust_results: bool
    call: dict[str, Any]

    @classmethod
    def of(cls, **options: Unpack[VerifyOptions]) -> CallOptions:
        """Return the options of these keyword arguments; raise InputError for an unknown one, with the nearest name.

        Examples
        --------
        >>> CallOptions.of(test_runs=1000, progress=True).settings.test_runs
        1000
        >>> CallOptions.of(test_run=1000)
        Traceback (most recent call last):
            ...
        dpverify.errors.InputError: unknown setting 'test_run'; did you mean 'test_runs'?
        """
        call = {
            name: options.pop(name) for name in ("error", "log_lipschitz", "log_density", "learn") if name in options
        }
        settings, folder = options.pop("settings", Settings()), options.pop("folder", None)
        executor, progress = options.pop("executor", None), options.pop("progress", None)
        trusts = options.pop("trust_results", False)
        settings = settings.change(**options)  # the keywords that are left are settings, or unknown
        return cls(settings, executor, None if folder is None else Path(folder), progress, trusts, call)

    def open_engine(self) -> contextlib.AbstractContextManager[Engine]:
        """Open the engine."""
        return open_engine(self.folder, None, self.executor, progress=self.progress, trust_results=self.trust_results)

    def job(
        self,
        number: int,
        name: str,
        mechanism: Mechanism,
        pair: tuple[object, object],
        claim: object,
        delta: float,
        columns: Mapping[str, Any],
        detects: float | None = None,
        **changes: Unpack[SettingsChanges],
    ) -> Job:
        """Return verification `number`, with a seed of its own."""
        settings, call = self.settings.spawn(number).change(**changes), {**self.call, "delta": delta}
        return Job(name, mechanism, *pair, claim, settings, call, columns, detects)


@dataclass(frozen=True)
class Results(ResultTable):
    """The reports of `verify_many` as a table. `print` shows it.

    Attributes
    ----------
    names : tuple of str
        The names of the jobs.
    reports : tuple of Report
        Their reports.

    Examples
    --------
    >>> import dpverify as dpv
    >>> from dpverify.studies import Job, Results, verify_many
    >>> def noisy(data, runs, rng):
    ...     return data + rng.laplace(size=(runs, 1))
    >>> settings = dpv.Settings(select_runs=500, test_runs=2000)
    >>> job = Job("count", noisy, 0.0, 2.0, dpv.claims.pure(1.0), settings)
    >>> results = Results.of([job], verify_many([job]))
    >>> results.headline
    '1 verification: 1 refuted'
    """

    names: tuple[str, ...]
    reports: tuple[Report, ...]
    identity = (JOB_KEY,)

    @classmethod
    def of(cls, jobs: Iterable[Job | tuple[Any, ...]], reports: Iterable[Report]) -> Results:
        """Return the results of these jobs."""
        return cls(tuple(job[0] for job in jobs), tuple(reports))

    @property
    def rows(self) -> tuple[Row, ...]:
        """One row per job: its name as "job", and the columns of `Report.row`."""
        return tuple({JOB_KEY: name, **one.row()} for name, one in zip(self.names, self.reports, strict=True))

    @property
    def headline(self) -> str:
        """How many verifications there are, and in which states."""
        return self.count_states()
