"""The study of the readings: which rows are measured under which readings, and what follows from the measurements.

The ranking comes first. The best reading is then measured again with other seeds and more of them, so that its figures
are not those that made it the best; it is also measured with the complement of the region as an event, and on finer
grids. Every row is stored when it is finished, so that an interrupted study resumes.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dpverify.estimation.system import STEPS
from dpverify.paper.plan import ReadingSeeds
from dpverify.paper.printed import PrintedCell, read_printed
from dpverify.paper.readings.definitions import BASE, FIELDS, RUNS, all_readings, difference, rank, relevant
from dpverify.paper.readings.fit import ceiling_by_runs, fit_grid, fit_row
from dpverify.paper.readings.results import FinerFit, Reading, ReadingFit, ReadingResults, RowFit
from dpverify.paper.readings.runs import FittedParameter, SeedResult, fit_parameter, measure_row

FIT_SEEDS = range(4)  # data on which an unprinted parameter is fitted
BEST_FIRST_SEED = 1000  # the seeds of the best reading are not those of the ranking
DETERMINISTIC_SEEDS = 10  # of the row s = 1
ERROR_RUNS = ("all", "one")


class ReadingTask(NamedTuple):
    """One printed row under one reading, on a range of seeds; finer grids have their own resolution and horizon."""

    row: str
    reading: Reading
    first_seed: int
    seeds: int
    resolution: int = 2
    steps: int = STEPS

    @property
    def name(self) -> str:
        """A name for the file of the result."""
        return hashlib.sha256(repr(tuple(self)).encode()).hexdigest()[:16]


class TaskResult(NamedTuple):
    """The seeds of one task, the value of the parameter, and its fit where the printed error of the row fixed it."""

    task: ReadingTask
    value: float
    fitted: FittedParameter | None
    results: tuple[SeedResult, ...]
    seconds: float = 0.0


def printed_rows() -> dict[str, PrintedCell]:
    """Return the printed rows by their keys."""
    return {cell.key: cell for cell in read_printed().cells}


def mechanism_rows(mechanism: str) -> list[PrintedCell]:
    """Return the rows of one mechanism that have a finite critical epsilon."""
    return [cell for cell in read_printed().cells if cell.mechanism == mechanism and cell.epsilon_c < float("inf")]


def seeds_of(reading: Reading, mechanism: str, seeds: ReadingSeeds) -> int:
    """Return the seeds of a row in the ranking."""
    if mechanism == "W2-MHE":
        return seeds.gibbs if reading.law == "gibbs" else seeds.blend
    return seeds.input if mechanism == "input perturbation" else seeds.ekf


def ranking_tasks(seeds: ReadingSeeds) -> list[list[ReadingTask]]:
    """Return the tasks of the ranking, grouped such that a group compiles few estimators."""
    groups: dict[tuple[object, ...], list[ReadingTask]] = {}
    for mechanism in FIELDS:
        for reading in all_readings(mechanism, seeds.quick):
            group = groups.setdefault(_compiled_part(mechanism, reading), [])
            number = seeds_of(reading, mechanism, seeds)
            group += [ReadingTask(cell.key, reading, 0, number) for cell in mechanism_rows(mechanism)]
    return list(groups.values())


def _compiled_part(mechanism: str, reading: Reading) -> tuple[object, ...]:
    """Return what decides which code is compiled."""
    if mechanism == "private EKF":
        return mechanism, reading.filter
    if mechanism == "W2-MHE":
        return mechanism, reading.law, reading.prior
    return mechanism, reading.prior, reading.noise, reading.support, reading.span, reading.tau


def run_task(task: ReadingTask) -> TaskResult:
    """Measure one row under one reading."""
    cell = printed_rows()[task.row]
    value, fitted = row_parameter(cell, task.reading)
    seeds = range(task.first_seed, task.first_seed + task.seeds)
    results = measure_row(cell, task.reading, value, seeds, task.resolution, task.steps)
    return TaskResult(task, value, fitted, results)


def row_parameter(cell: PrintedCell, reading: Reading) -> tuple[float, FittedParameter | None]:
    """Return the parameter of a row, and how it was fitted if this row's printed error fixed it.

    The EKF has one s_hat, from the error on Q1; in Table I the parameter of each row follows from its own error.
    """
    if cell.value is not None and cell.assumed is None:
        return cell.value, None
    plain = reading._replace(angle="paper", test_runs=BASE.test_runs, complement=False, error_runs="all")
    target = cell
    if cell.mechanism == "private EKF":
        target = mechanism_rows("private EKF")[0]
    fitted = _fitted(target.key, plain)
    return fitted.value, fitted if target is cell else None


@functools.lru_cache(maxsize=256)
def _fitted(row: str, reading: Reading) -> FittedParameter:
    return fit_parameter(printed_rows()[row], reading, FIT_SEEDS)


def fit_result(result: TaskResult, error_runs: str) -> RowFit:
    """Return the fit of a measured row, with the errors of one run or of all runs."""
    reading = result.task.reading._replace(error_runs=error_runs)
    return fit_row(printed_rows()[result.task.row], reading, result.value, result.results, result.fitted)


def make_rankings(results: Iterable[TaskResult]) -> dict[str, tuple[ReadingFit, ...]]:
    """Return the readings of each mechanism, best first."""
    by_reading: dict[tuple[str, Reading], list[TaskResult]] = {}
    rows = printed_rows()
    for result in results:
        if result.results:
            key = rows[result.task.row].mechanism, result.task.reading
            by_reading.setdefault(key, []).append(result)
    rankings: dict[str, tuple[ReadingFit, ...]] = {}
    for mechanism in FIELDS:
        fits = []
        for (name, reading), measured in by_reading.items():
            if name == mechanism and len(measured) == len(mechanism_rows(mechanism)):
                for error_runs in ERROR_RUNS:
                    changed = reading._replace(error_runs=error_runs)
                    fitted_rows = tuple(fit_result(result, error_runs) for result in measured)
                    fits.append(ReadingFit(mechanism, changed, difference(changed, BASE, mechanism), fitted_rows))
        rankings[mechanism] = rank(fits)
    return rankings


def best_tasks(best: Reading, seeds: ReadingSeeds) -> list[list[ReadingTask]]:
    """Return the tasks that follow the ranking: the best reading again, with the complement, and on finer grids."""
    groups = []
    for mechanism in FIELDS:
        reading = relevant(best, mechanism)._replace(error_runs="all")
        number = seeds.best_input if mechanism == "input perturbation" else seeds.best
        rows = mechanism_rows(mechanism)
        tasks = [ReadingTask(cell.key, reading, BEST_FIRST_SEED, number) for cell in rows]
        with_complement = reading._replace(complement=True)
        few = seeds_of(reading, mechanism, seeds)
        if not (seeds.quick and mechanism == "input perturbation"):  # these runs take the longest
            tasks += [ReadingTask(cell.key, with_complement, BEST_FIRST_SEED, few) for cell in rows]
        if mechanism == "W2-MHE":
            tasks += [ReadingTask(deterministic_row(), reading, BEST_FIRST_SEED, DETERMINISTIC_SEEDS)]
            tasks += finer_tasks(reading, seeds.best)
        groups.append(tasks)
    return groups


def deterministic_row() -> str:
    """Return the key of the row s = 1, for which the paper rejects every epsilon."""
    return next(cell.key for cell in read_printed().cells if cell.epsilon_c == float("inf"))


def finer_tasks(reading: Reading, seeds: int) -> list[ReadingTask]:
    """Return the tasks of the finer grids: Q2, s 0.8, T 7."""
    example = read_printed().theory
    row = next(cell.key for cell in mechanism_rows("W2-MHE") if cell.setup == "Q2")
    return [ReadingTask(row, reading, BEST_FIRST_SEED, seeds, grid.r, example.steps) for grid in read_printed().finer]


def make_results(
    rankings: dict[str, tuple[ReadingFit, ...]], best: ReadingFit, results: Sequence[TaskResult], seeds: ReadingSeeds
) -> ReadingResults:
    """Return everything about the readings from the measurements that followed the ranking."""
    error_runs = best.reading.error_runs
    printed = {grid.r: grid.epsilon_c for grid in read_printed().finer}
    main, complement, finer = [], [], []
    for result in results:
        task = result.task
        if task.steps != STEPS:
            finer.append(fit_grid(task.resolution, printed[task.resolution], result.results))
        elif task.reading.complement:
            complement.append(fit_result(result, error_runs))
        else:
            main.append(fit_result(result, error_runs))
    order = list(printed_rows())
    main.sort(key=lambda row: order.index(row.row))
    values = [cell.epsilon_c for cell in mechanism_rows("W2-MHE")]
    return ReadingResults(
        rankings=rankings,
        best=best._replace(rows=tuple(main)),
        with_complement=tuple(complement),
        by_runs=rows_by_runs(rankings["W2-MHE"], best.reading),
        ceiling_by_runs=ceiling_by_runs(RUNS, values, seeds.repetitions),
        finer=tuple(sorted(finer, key=_resolution)),
        seconds=sum(result.seconds for result in results),
    )


def _resolution(fit: FinerFit) -> int:
    return fit.r


def rows_by_runs(ranking: Sequence[ReadingFit], best: Reading) -> dict[int, tuple[RowFit, ...]]:
    """Return the rows of the W2-MHE under the best reading for each m that was measured."""
    wanted = relevant(best, "W2-MHE")
    return {
        fit.reading.test_runs: fit.rows
        for fit in sorted(ranking, key=lambda fit: fit.reading.test_runs)
        if fit.reading == wanted._replace(test_runs=fit.reading.test_runs)
    }
