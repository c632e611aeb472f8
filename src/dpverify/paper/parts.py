"""The parts of the reproduction that run in worker processes.

Each function returns what it measured and the processor time it took, and stores it, so that the next start reads it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from dpverify.errors import FolderError, Stopped
from dpverify.paper import experiment
from dpverify.paper.measurements import CalibratedNumbers, PassingPairs, SensorDraw, StudyRow
from dpverify.paper.plan import Effort, StudyTask, read_plan, to_toml
from dpverify.paper.printed import read_printed
from dpverify.paper.readings.study import ReadingTask, TaskResult
from dpverify.paper.study_results import TABLE_FILE, read_study_table, typed_rows
from dpverify.studies.files.study import Study, run_study
from dpverify.util.files import replace_file, write_text
from dpverify.util.serialization import from_plain, nested_kinds, to_plain
from dpverify.util.sources import hash_file

Value = TypeVar("Value")


class SetupResult(NamedTuple):
    """The rows of all studies of one set-up, by the name of the study."""

    tables: dict[str, tuple[StudyRow, ...]]
    seconds: float


def calibrate_once(folder: Path, runs: int) -> CalibratedNumbers:
    """Return the calibrated numbers; an earlier start may have stored them."""
    from dpverify.paper.calibration import calibrate_numbers

    path = folder / "calibration.json"
    if path.exists():
        return read_value(path, CalibratedNumbers)
    before = time.process_time()
    calibrated = calibrate_numbers(runs)
    calibrated = calibrated._replace(seconds=time.process_time() - before)
    write_value(path, calibrated)
    return calibrated


def run_studies(folder: Path, tasks: Sequence[StudyTask]) -> SetupResult:
    """Run all studies of one set-up in one process, so that its estimators are compiled once."""
    before = time.process_time()
    tables = {task.name: _run_one_study(folder / "studies" / f"{task.name}.toml", task) for task in tasks}
    seconds = time.process_time() - before
    path = folder / "studies" / f"{tasks[0].setup}.seconds"
    try:
        earlier = float(_read_note(path))
    except ValueError:
        earlier = 0.0
    write_text(path, f"{earlier + seconds:.1f}\n")
    return SetupResult(tables, seconds)


def _run_one_study(path: Path, task: StudyTask) -> tuple[StudyRow, ...]:
    """Run a study and return its rows; a finished study is read from its table, unless the table was changed."""
    text = to_toml(task.document) + "\n"
    if _read_note(path) != text:
        write_text(path, text)
    finished, table = path.with_suffix(".done"), path.with_suffix("") / TABLE_FILE
    # Most reports of a finished study are deleted, so that its rows cannot be computed again from them.
    if table.exists() and hash_file(table) in _read_note(finished):
        return read_study_table(path.with_suffix(""))
    study = run_study(path)
    if study.failed:  # without these rows the page would answer other questions than the paper's
        reason = study.failed[0]["problem"]
        raise Stopped(
            f"study {task.name}: {len(study.failed)} of {len(study.rows)} verifications failed, the first with: "
            f"{reason}; run the same command again to repeat them",
            str(study.folder),
        )
    delete_all_but_median_reports(study)
    write_text(finished, f"table.csv has every seed; one report per cell is kept; SHA-256 {hash_file(table)}\n")
    return typed_rows(study.rows)


def _read_note(path: Path) -> str:
    """Return the text of a file that is written again if it is lost; nothing if it does not exist or is damaged."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


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
    from dpverify.paper.sensor_draws import measure_draw

    before = time.process_time()
    draw = measure_draw(number, read_plan(), effort, calibrated)
    draw = draw._replace(seconds=time.process_time() - before)
    write_value(draw_file(folder, number), draw)
    return draw


class ReadingGroup(NamedTuple):
    """The measured tasks of one group."""

    results: tuple[TaskResult, ...]
    seconds: float


def run_readings(folder: Path, tasks: Sequence[ReadingTask]) -> ReadingGroup:
    """Measure rows under readings, and store each of them; what an earlier start stored is read."""
    from dpverify.paper.readings.study import run_task

    before = time.process_time()
    results = []
    for task in tasks:
        path = folder / "readings" / f"{task.name}.json"
        if path.exists():
            stored = read_value(path, TaskResult)
            if stored.task != task:
                raise _exchanged(path)
            results.append(stored)
            continue
        start = time.process_time()
        result = run_task(task)
        result = result._replace(seconds=time.process_time() - start)
        write_value(path, result)
        results.append(result)
    return ReadingGroup(tuple(results), time.process_time() - before)


class PairsResult(NamedTuple):
    """The shares of pairs that pass."""

    pairs: tuple[PassingPairs, ...]
    seconds: float = 0.0


def run_pairs(folder: Path, number: int) -> PairsResult:
    """Measure the share of adjacent pairs that pass at a printed critical epsilon, for the W2-MHE on Q1."""
    from dpverify.paper.passing_pairs import measure_passing_pairs
    from dpverify.paper.readings.definitions import BASE
    from dpverify.paper.readings.runs import build

    path = folder / "pairs.json"
    if path.exists():
        return read_value(path, PairsResult)
    before = time.process_time()
    cell = next(cell for cell in read_printed().cells if (cell.setup, cell.value) == ("Q1", 0.8))
    mechanism = build(cell.mechanism, BASE, experiment.system(cell.setup), cell.value or 0.0)
    pairs = measure_passing_pairs(mechanism, cell.setup, cell.epsilon_c, number, BASE.test_runs, ("paper", "exact"))
    result = PairsResult(pairs, time.process_time() - before)
    write_value(path, result)
    return result


def draw_file(folder: Path, number: int) -> Path:
    return folder / "draws" / f"{number:03d}.json"


def read_draw(path: Path, number: int) -> SensorDraw:
    """Read the draw of this number."""
    draw = read_value(path, SensorDraw)
    if draw.number != number:
        raise _exchanged(path)
    return draw


def _exchanged(path: Path) -> FolderError:
    return FolderError(
        f"{path}: found another measurement; expected the one of this name; remove it to measure it again"
    )


def read_value(path: Path, kind: type[Value]) -> Value:
    """Read a value that an earlier start stored."""
    try:
        value = from_plain(json.loads(path.read_text(encoding="utf-8")), nested_kinds(kind))
    except (ValueError, TypeError, KeyError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise FolderError(f"{path}: found a damaged file; expected a {kind.__name__}; remove it to measure it again")
    return value


def write_value(path: Path, value: NamedTuple) -> None:
    """Store a value as JSON."""
    text = json.dumps(to_plain(value), indent=1, allow_nan=False)
    replace_file(path, (text + "\n").encode())
