"""The command `dpverify reproduce`: run the paper's experiments into one folder, and resume after an interruption.

    out/calibration.json    tau and s_hat, and the printed number that fixed each
    out/studies/NAME.toml   a study file that `dpverify study` can run by itself, with its folder: table.csv has every
                            seed, reports/ has the report with the median critical epsilon of each cell
    out/readings/*.json     one printed row under one reading, with every seed
    out/draws/NNN.json      the measurements on one draw of the sensor positions
    out/pairs.json          the share of adjacent pairs that pass
    out/numbers.json        each printed number and ours; readings.csv, claims.csv: the readings, the four claims
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
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpverify.errors import InputError, Stopped, StopReason, how_to_install
from dpverify.paper.measurements import Results, SensorDraw, StudyRow
from dpverify.paper.plan import FOLDER, Effort, Plan, read_plan, study_tasks
from dpverify.sampling.checkpoints import open_checkpoint
from dpverify.sampling.executors import open_pool
from dpverify.util.formatting import format_duration
from dpverify.util.timing import versions

if TYPE_CHECKING:
    from dpverify.paper.parts import ReadingGroup, SetupResult

DEFAULT_WORKERS = 2
SOURCE_FILES = (
    "paper.toml",
    "printed.toml",
    "experiment.py",
    "sensor_draws.py",
    "calibration.py",
    "readings/definitions.py",
    "readings/runs.py",
    "readings/study.py",
)


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
        try:
            for part in ("studies", "draws", "readings"):
                (folder / part).mkdir(exist_ok=True)
            with open_pool(workers) as pool:
                assert pool.executor is not None
                results = _measure(pool.executor, folder, plan, effort, printer)
            page = write_outputs(folder, plan, effort, results)
        except KeyboardInterrupt:
            raise _stopped(StopReason.KEYBOARD, "", folder) from None
        except BrokenProcessPool:
            raise _stopped(StopReason.WORKERS_LOST, " (a worker process ended)", folder) from None
        except MemoryError as problem:
            raise _stopped(StopReason.OUT_OF_MEMORY, "", folder) from problem
        except OSError as problem:
            raise _stopped(StopReason.DISK, f" ({problem.strerror or problem})", folder) from problem
        printer.line(f"done: {page}")
    return page


def _measure(executor: Executor, folder: Path, plan: Plan, effort: Effort, printer: ProgressPrinter) -> Results:
    """Submit every part to the workers, and collect the results in memory."""
    # These need JAX; a missing package was reported before.
    from dpverify.paper import parts
    from dpverify.paper.readings.definitions import best_joint
    from dpverify.paper.readings.study import best_tasks, make_rankings, make_results, ranking_tasks

    ranking_jobs: dict[Future[ReadingGroup], str] = {
        executor.submit(parts.run_readings, folder, group): f"readings of {group[0].row}, group {number}"
        for number, group in enumerate(ranking_tasks(effort.readings), 1)
    }
    calibrated = executor.submit(parts.calibrate_once, folder, effort.tuning_runs).result()
    printer.line(f"tau {calibrated.tau:.4g}, s_hat {calibrated.s_hat:.5g} (calibrated)")
    tasks = sorted(study_tasks(plan, effort, calibrated), key=lambda task: task.setup)
    study_jobs: dict[Future[SetupResult], str] = {}
    for setup, group in itertools.groupby(tasks, key=lambda task: task.setup):
        study_jobs[executor.submit(parts.run_studies, folder, list(group))] = f"studies of {setup}"
    pairs_job = executor.submit(parts.run_pairs, folder, effort.pairs)
    draw_jobs: dict[Future[SensorDraw], str] = {}
    finished_draws = []
    for number in range(effort.draws):
        path = parts.draw_file(folder, number)
        if path.exists():
            finished_draws.append(parts.read_draw(path, number))
        else:
            draw_jobs[executor.submit(parts.run_draw, folder, number, effort, calibrated)] = f"draw {number}"
    printer.wait_for(ranking_jobs)
    ranked = [result for job in ranking_jobs for result in job.result().results]
    rankings = make_rankings(ranked)
    best = best_joint(rankings)
    printer.line(f"best reading: {best.varies}")
    best_jobs: dict[Future[ReadingGroup], str] = {
        executor.submit(parts.run_readings, folder, group): f"best reading, {group[0].row}"
        for group in best_tasks(best.reading, effort.readings)
    }
    printer.wait_for({**study_jobs, pairs_job: "pairs that pass", **draw_jobs, **best_jobs})
    tables: dict[str, tuple[StudyRow, ...]] = {}
    for job in study_jobs:
        tables |= job.result().tables
    draws = sorted([*finished_draws, *(job.result() for job in draw_jobs)], key=lambda draw: draw.number)
    measured = [result for job in best_jobs for result in job.result().results]
    readings = make_results(rankings, best, measured, effort.readings)
    return Results(calibrated, tables, draws, readings, pairs_job.result().pairs)


def _stopped(reason: StopReason, detail: str, folder: Path) -> Stopped:
    """Return the error of a reproduction that ended early."""
    advice = f"the finished parts are stored in {folder}; run the same command again to resume"
    return Stopped(f"{reason.value}{detail}; {advice}", str(folder), reason=reason)


def _load_output_writer() -> Callable[[Path, Plan, Effort, Results], Path]:
    """Import what writes the page before the long run starts, so that a missing package is reported at once."""
    try:
        import jax  # noqa: F401

        from dpverify.paper.page.output import write_outputs
    except ImportError as problem:
        raise InputError(f"reproduce: {problem}; expected JAX, matplotlib, Jinja2; {how_to_install('all')}") from None
    return write_outputs


def _source_hashes() -> dict[str, str]:
    """Hash the files that the numbers depend on: one folder must not mix measurements of two versions."""
    files = [*(FOLDER / name for name in SOURCE_FILES), *sorted((FOLDER.parent / "estimation").glob("*.py"))]
    return {path.relative_to(FOLDER.parent).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


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
