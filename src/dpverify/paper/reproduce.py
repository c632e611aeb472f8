"""The command `dpverify reproduce`: run the paper's experiments into one folder, and resume after an interruption.

    out/calibration.json    tau and s_hat, and the printed number that fixed each
    out/studies/NAME.toml   a study file that `dpverify study` can run by itself, with its folder: table.csv has every
                            seed, reports/ has the report with the median critical epsilon of each cell
    out/draws/NNN.json      the measurements on one draw of the sensor positions
    out/numbers.json, .csv  each printed number and ours; claims.csv: the four claims
    out/figures/*           every figure as PNG, SVG and PDF
    out/index.html          the page

Worker processes measure, and return what they measured; the files serve to resume, and to look up details.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dpverify.errors import FolderError, InputError, Stopped, how_to_install
from dpverify.paper.measurements import CalibratedNumbers, Results, SensorDraw, StudyRow
from dpverify.paper.plan import FOLDER, Effort, Plan, StudyTask, read_plan, study_tasks, to_toml
from dpverify.paper.study_results import TABLE_FILE, read_study_table, typed_rows
from dpverify.sampling.checkpoints import open_checkpoint
from dpverify.sampling.executors import open_pool
from dpverify.studies.study import Study, run_study
from dpverify.util.files import replace_file, write_text
from dpverify.util.formatting import format_duration
from dpverify.util.serialization import from_plain, nested_kinds, to_plain
from dpverify.util.sources import hash_file
from dpverify.util.timing import versions

DEFAULT_WORKERS = 2
SOURCE_FILES = ("paper.toml", "printed.toml", "experiment.py", "sensor_draws.py", "calibration.py")
Value = TypeVar("Value")


def reproduce(
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    workers: int = DEFAULT_WORKERS,
    effort: Effort | None = None,
    progress: bool = False,
) -> Path:
    """Run every experiment into the folder `out`, and return the path of the page.

    The same call resumes an interrupted reproduction.

    Parameters
    ----------
    out : path
        The folder.
    quick : bool
        Fewer seeds, draws and runs; too few to answer a claim.
    workers : int
        Number of worker processes.
    effort : Effort, optional
        How much is measured, instead of the quick or the full plan.
    progress : bool
        Write a line to stderr when a part is finished.
    """
    write_outputs = _load_output_writer()
    folder, plan = Path(out), read_plan()
    effort = effort or (plan.quick if quick else plan.full)
    printer = ProgressPrinter(progress)
    with open_checkpoint(folder) as checkpoint:
        identity = {"effort": json.dumps(dataclasses.asdict(effort), sort_keys=True), **_source_hashes()}
        checkpoint.acquire(identity, versions())
        for part in ("studies", "draws"):
            (folder / part).mkdir(exist_ok=True)
        with open_pool(workers) as pool:
            assert pool.executor is not None
            try:
                results = _measure(pool.executor, folder, plan, effort, printer)
            except KeyboardInterrupt:
                raise Stopped(_stopped_message("stopped by the keyboard", folder), str(folder)) from None
            except BrokenProcessPool:
                raise Stopped(_stopped_message("a worker process ended", folder), str(folder)) from None
        page = write_outputs(folder, plan, effort, results)
        printer.line(f"done: {page}")
    return page


def _measure(executor: Executor, folder: Path, plan: Plan, effort: Effort, printer: ProgressPrinter) -> Results:
    """Submit every part to the workers, and collect the results in memory."""
    calibrated = executor.submit(calibrate_once, folder, effort.tuning_runs).result()
    printer.line(f"tau {calibrated.tau:.4g}, s_hat {calibrated.s_hat:.5g} (calibrated)")
    tasks = sorted(study_tasks(plan, effort, calibrated), key=lambda task: task.setup)
    study_jobs: dict[Future[SetupResult], str] = {}
    for setup, group in itertools.groupby(tasks, key=lambda task: task.setup):
        study_jobs[executor.submit(run_studies, folder, list(group))] = f"studies of {setup}"
    draw_jobs: dict[Future[SensorDraw], str] = {}
    finished_draws = []
    for number in range(effort.draws):
        path = _draw_file(folder, number)
        if path.exists():
            finished_draws.append(_read_value(path, SensorDraw))
        else:
            draw_jobs[executor.submit(run_draw, folder, number, effort, calibrated)] = f"draw {number}"
    printer.wait_for({**study_jobs, **draw_jobs})
    tables: dict[str, tuple[StudyRow, ...]] = {}
    for job in study_jobs:
        tables |= job.result().tables
    draws = sorted([*finished_draws, *(job.result() for job in draw_jobs)], key=lambda draw: draw.number)
    return Results(calibrated, tables, draws)


def _stopped_message(why: str, folder: Path) -> str:
    return f"{why}; the finished parts are stored in {folder}; run the same command again to resume"


def _load_output_writer() -> Callable[[Path, Plan, Effort, Results], Path]:
    """Import what writes the page before the long run starts, so that a missing package is reported at once."""
    try:
        import jax  # noqa: F401

        from dpverify.paper.output import write_outputs
    except ImportError as problem:
        raise InputError(f"reproduce: {problem}; expected JAX, matplotlib, Jinja2; {how_to_install('all')}") from None
    return write_outputs


def _source_hashes() -> dict[str, str]:
    """Hash the files that the numbers depend on: one folder must not mix measurements of two versions."""
    files = [*(FOLDER / name for name in SOURCE_FILES), *sorted((FOLDER.parent / "estimation").glob("*.py"))]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# The functions that run in a worker process. Each returns what it measured and the processor time it took.


class SetupResult(NamedTuple):
    """The rows of all studies of one set-up, by the name of the study."""

    tables: dict[str, tuple[StudyRow, ...]]
    seconds: float


def calibrate_once(folder: Path, runs: int) -> CalibratedNumbers:
    """Return the calibrated numbers; an earlier start may have stored them."""
    from dpverify.paper.calibration import calibrate_numbers

    path = folder / "calibration.json"
    if path.exists():
        return _read_value(path, CalibratedNumbers)
    before = time.process_time()
    calibrated = calibrate_numbers(runs)
    calibrated = calibrated._replace(seconds=time.process_time() - before)
    _write_value(path, calibrated)
    return calibrated


def run_studies(folder: Path, tasks: Sequence[StudyTask]) -> SetupResult:
    """Run all studies of one set-up in one process, so that its estimators are compiled once."""
    before = time.process_time()
    tables = {task.name: _run_one_study(folder / "studies" / f"{task.name}.toml", task) for task in tasks}
    seconds = time.process_time() - before
    path = folder / "studies" / f"{tasks[0].setup}.seconds"
    earlier = float(path.read_text()) if path.exists() else 0.0
    write_text(path, f"{earlier + seconds:.1f}\n")
    return SetupResult(tables, seconds)


def _run_one_study(path: Path, task: StudyTask) -> tuple[StudyRow, ...]:
    """Run a study and return its rows; a finished study is read from its table, unless the table was changed."""
    text = to_toml(task.document) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
    finished, table = path.with_suffix(".done"), path.with_suffix("") / TABLE_FILE
    # Most reports of a finished study are deleted, so that its rows cannot be computed again from them.
    if finished.exists() and table.exists() and hash_file(table) in finished.read_text(encoding="utf-8"):
        return read_study_table(path.with_suffix(""))
    study = run_study(path)
    if not study.failed:  # a failed verification is repeated by the next start
        delete_all_but_median_reports(study)
        write_text(finished, f"table.csv has every seed; one report per cell is kept; SHA-256 {hash_file(table)}\n")
    return typed_rows(study.rows)


def delete_all_but_median_reports(study: Study) -> None:
    """Keep, for each cell, the report with the median critical epsilon; delete those of the other seeds."""
    groups: dict[Hashable, list[dict[str, object]]] = {}
    for row in study.rows:
        cell = tuple(value for name, value in row.items() if name.startswith(("mechanism", "pair")))
        groups.setdefault(cell, []).append(row)
    for rows in groups.values():
        ordered = sorted(rows, key=lambda row: float(str(row["epsilon_critical"])))
        median = len(ordered) // 2
        for row in ordered[:median] + ordered[median + 1 :]:
            (study.folder / str(row["report"])).unlink(missing_ok=True)


def run_draw(folder: Path, number: int, effort: Effort, calibrated: CalibratedNumbers) -> SensorDraw:
    """Measure one draw of the sensor positions, and store it."""
    import jax

    from dpverify.paper.sensor_draws import measure_draw

    before = time.process_time()
    draw = measure_draw(number, read_plan(), effort, calibrated)
    jax.clear_caches()  # no other draw uses the estimators compiled for this one
    draw = draw._replace(seconds=time.process_time() - before)
    _write_value(_draw_file(folder, number), draw)
    return draw


def _draw_file(folder: Path, number: int) -> Path:
    return folder / "draws" / f"{number:03d}.json"


def _read_value(path: Path, kind: type[Value]) -> Value:
    """Read a value that an earlier start stored."""
    try:
        value = from_plain(json.loads(path.read_text(encoding="utf-8")), nested_kinds(kind))
    except (ValueError, TypeError, KeyError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise FolderError(f"{path}: found a damaged file; expected a {kind.__name__}; remove it to measure it again")
    return value


def _write_value(path: Path, value: NamedTuple) -> None:
    """Store a value as JSON."""
    text = json.dumps(to_plain(value), indent=1, allow_nan=False)
    replace_file(path, (text + "\n").encode())


class ProgressPrinter:
    """Writes one line to stderr for each finished part."""

    def __init__(self, enabled: bool):
        self._enabled, self._start = enabled, time.monotonic()

    def line(self, text: str) -> None:
        """Write a line."""
        if self._enabled:
            print(f"dpverify: {text}", file=sys.stderr, flush=True)

    def wait_for(self, jobs: Mapping[Future[Any], str]) -> None:
        """Wait for all jobs; the first exception of a job is raised here. A result has the attribute `seconds`."""
        remaining, finished = set(jobs), 0
        while remaining:
            done, remaining = wait(remaining, return_when=FIRST_COMPLETED)
            for job in done:
                seconds, finished = job.result().seconds, finished + 1
                elapsed = format_duration(time.monotonic() - self._start)
                self.line(
                    f"{finished} of {len(jobs)} parts: {jobs[job]} ({seconds:.0f} s of one core; {elapsed} in total)"
                )
