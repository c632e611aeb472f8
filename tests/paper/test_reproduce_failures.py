"""A reproduction whose disk, memory or power fails at one operation is resumed to the same numbers.

The measurements and what follows from them are made up, in this process, so that a reproduction takes a tenth of a
second. Its folder and its studies are the real ones.
"""

import contextlib
import dataclasses
import json
import math
import os
from concurrent.futures import Executor, Future
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from failure_points import KINDS, save_after_every_task, sweep
from made_draws import make_draw

from dpverify.errors import FolderError, InputError, Stopped, StopReason
from dpverify.paper.measurements import CalibratedNumbers, PassingPairs
from dpverify.paper.plan import ReadingSeeds, StudyTask, read_plan
from dpverify.paper.readings.definitions import BASE
from dpverify.paper.readings.runs import SeedResult
from dpverify.paper.readings.study import TaskResult, ranking_tasks
from dpverify.paper.reproduce import reproduce
from dpverify.sampling.executors import WorkerPool
from dpverify.util.files import write_text
from dpverify.util.serialization import to_plain

pytest.importorskip("jax", reason="the extra estimation is not installed")
CALIBRATED = CalibratedNumbers(tau=1.4e-5, s_hat=0.993, says="")
PAIRS = (PassingPairs("paper", 0.39947, 40, 13, (0.19, 0.49), 40, 0.93),)
EFFORT = dataclasses.replace(
    read_plan().quick, readings=ReadingSeeds(True, 2, 2, 2, 2, 2, 2, repetitions=50), draws=2, pairs=3
)
TASKS = [task for group in ranking_tasks(EFFORT.readings) for task in group]
STUDY = {
    "seeds": 2,
    "pairs": {"Q1": {"use": f"{Path(__file__).stem}:pair"}},
    "mechanisms": {"gibbs": {"use": f"{Path(__file__).stem}:gibbs", "s": 0.5}},
    "settings": {"select_runs": 200, "test_runs": 400, "block": 400, "partition": "grid", "events": "cell"},
}
FEW, FEW_ARRAYS, MANY_ARRAYS = 131, 401, 1  # the fast test takes every so-manieth operation


def pair():
    return np.zeros(1), np.ones(1)


def gibbs(s):
    return lambda data, runs, rng: data + rng.laplace(scale=1 / s, size=(runs, 1))


class SameProcess(Executor):
    """Runs every task when it is submitted."""

    def submit(self, function, /, *arguments):
        job = Future()
        try:
            job.set_result(function(*arguments))
        except Exception as problem:
            job.set_exception(problem)
        return job


def make_task_result(task):
    """Return made-up measurements of one row, a function of its name."""
    epsilon_c, error = np.random.default_rng(int(task.name, 16)).uniform(0.8, 1.2, 2).tolist()
    made = (0.02, 0.1, error, 0.02, 1.1, (10, 0), 0.004, 0.02)
    seeds = range(task.first_seed, task.first_seed + task.seeds)
    return TaskResult(task, 0.99, None, tuple(SeedResult(seed, epsilon_c, *made) for seed in seeds))


def write_measurements(folder, plan, effort, results):
    """Write all measurements without their times, instead of the page."""
    rankings, measured = results.readings
    document = {
        "tau": results.calibrated.tau,
        "tables": {name: [row._asdict() for row in rows] for name, rows in results.tables.items()},
        "draws": [draw._replace(seconds=0.0) for draw in results.draws],
        "readings": [result._replace(seconds=0.0) for result in [*rankings, *measured]],
        "pairs": results.pairs,
    }
    page = folder / "index.html"
    write_text(page, json.dumps(to_plain(without_nan(document))))
    return page


def without_nan(value):
    """Replace NaN, which a study without an error function has, by text."""
    if isinstance(value, dict):
        return {name: without_nan(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else value


@pytest.fixture
def made_measurements(monkeypatch):
    """Replace what is measured, and the worker processes."""
    tasks = [StudyTask("made-Q1", "Q1", STUDY)]
    for name, value in {
        "reproduce._load_output_writer": lambda: write_measurements,
        "reproduce.open_pool": lambda workers: contextlib.nullcontext(WorkerPool(SameProcess())),
        "reproduce.study_tasks": lambda *arguments: tasks,
        "calibration.calibrate_numbers": lambda runs: CALIBRATED,
        "sensor_draws.measure_draw": lambda number, *rest: make_draw(number, np.random.default_rng(number)),
        "passing_pairs.measure_passing_pairs": lambda *arguments: PAIRS,
        "readings.runs.build": lambda *arguments: None,
        "readings.study.run_task": make_task_result,
        "readings.study.ranking_tasks": lambda seeds: [TASKS[:2], TASKS[2:4]],
        "readings.study.best_tasks": lambda best, seeds: [TASKS[4:6]],
        "readings.study.make_rankings": tuple,
        "readings.study.make_results": lambda rankings, best, measured, seeds: (rankings, measured),
        "readings.definitions.best_joint": lambda rankings: SimpleNamespace(reading=BASE, varies="base"),
    }.items():
        monkeypatch.setattr(f"dpverify.paper.{name}", value)
    save_after_every_task(monkeypatch)


def reproduce_all(folder):
    """Reproduce twice, so that the second call reads what the first one has stored; return what was written."""
    pages = [read_as_user(reproduce(folder, effort=EFFORT)) for _ in range(2)]
    return *pages, read_as_user(folder / "studies" / "made-Q1" / "table.csv")


def read_as_user(path):
    """Return the text of a file; a disk that fails while a user reads is no fault of the library."""
    try:
        return path.read_text()
    except OSError as problem:
        raise InputError("the user cannot read the file") from problem


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_after_a_failure_the_same_numbers_or_a_refusal(is_whole, kind, made_measurements, tmp_path, monkeypatch):
    steps = (FEW_ARRAYS, MANY_ARRAYS) if kind == "memory" else (FEW, 1)
    found = sweep(reproduce_all, kind, steps[is_whole], tmp_path, monkeypatch)
    print(f"reproduce, {kind}: {found.points} points, {found.resumed} resumed calls, {len(found.refusals)} refused")
    assert found.points >= 3
    assert len(found.refusals) <= found.resumed // 10


def test_a_full_disk_stops_a_reproduction_in_one_line(made_measurements, tmp_path, monkeypatch):
    def fails(handle):
        raise OSError(28, "No space left on device")

    out = tmp_path / "out"
    reproduce(out, effort=EFFORT)
    next((out / "readings").iterdir()).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(Stopped, match=r"^the disk failed \(No space left on device\); the finished parts") as stop:
            reproduce(out, effort=EFFORT)
    assert stop.value.reason is StopReason.DISK


def test_a_study_with_a_failed_verification_stops_a_reproduction(made_measurements, tmp_path, monkeypatch):
    """The page has all rows, or it is not written."""
    out = tmp_path / "out"

    def fails(data, runs, rng):
        raise RuntimeError("too hot")

    with monkeypatch.context() as patch:
        patch.setattr(f"{__name__}.gibbs", lambda s: fails)
        patch.setattr("warnings.warn", lambda *arguments, **more: None)
        with pytest.raises(Stopped, match=r"^study made-Q1: 2 of 2 verifications failed, the first with: .*too hot"):
            reproduce(out, effort=EFFORT)
    assert not (out / "index.html").exists()
    reproduce(out, effort=EFFORT)


@pytest.mark.parametrize("part", ["draws", "readings"])
def test_measurements_that_were_exchanged_are_refused(part, made_measurements, tmp_path):
    out = tmp_path / "out"
    reproduce(out, effort=EFFORT)
    first, second = sorted((out / part).iterdir())[:2]
    first.write_text(second.read_text())
    with pytest.raises(FolderError, match="found another measurement; expected the one of this name; remove it"):
        reproduce(out, effort=EFFORT)


@pytest.mark.parametrize("name", ["made-Q1.toml", "made-Q1.done", "Q1.seconds"])
def test_damaged_notes_of_a_study_are_written_again(name, made_measurements, tmp_path):
    out = tmp_path / "out"
    page = reproduce(out, effort=EFFORT).read_text()
    (out / "studies" / name).write_bytes(b"\xff\0")
    assert reproduce(out, effort=EFFORT).read_text() == page
