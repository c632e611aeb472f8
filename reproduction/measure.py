"""What a worker process measures. Every function returns plain data, which is stored as JSON.

A verification of a printed row is `dpverify.verify` with `Settings.paper(test="averaged")`. Its seed draws everything
that is random in the paper and not printed: the sensors, the sensor that moves, the noise, and all runs.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest

import dpverify as dpv
from dpverify.estimation import W2MHE, theory
from dpverify.studies import Job
from reproduction import paper
from reproduction.experiment import (
    DISTANCE,
    SENSORS,
    STEPS,
    WINDOW,
    PaperMechanism,
    SetUp,
    build,
    build_family,
    family_reading,
    fixed_setup,
    fixed_system,
    record,
    seeded_setup,
)
from reproduction.paper import BASE, CELL, CELLS, ERROR_RUNS, PLAN, PRINTED, Reading, sweep_step

BLOCK = 512
FIT_SEEDS = range(4)  # data on which the EKF's parameter is fitted
MAPPED_ROW = "Q2, W2-MHE, s 0.8"  # the row of the map of sensors
FIT_S_HAT = 0.995  # the error of the EKF is proportional to its noise near this value
SHIFT_SEEDS = 24
SWEEP_END = 40.0  # sweeps are extended with their own step; at this epsilon every thinned count is 0
SEEDS_PER_ROW = 1_000_000  # rows share the data of a set-up and must not share the runs
REPEATED_DATA_SEED_OFFSET = 10**6
FIRST_PAIR_SEED = 5_000_000  # no other part of the reproduction draws data with these seeds


class SeedResult(NamedTuple):
    """The paper's numbers of one verification, and the counts of the tested event.

    `errors` has one entry for each number in `ERROR_RUNS`: the norm of the error of the mean of so many runs, under the
    first dataset; `errors_adjacent` has those under the second.
    """

    epsilon_c: float
    eta: float
    errors: tuple[float, ...]
    errors_adjacent: tuple[float, ...]
    c1: int
    c2: int


class RowTask(NamedTuple):
    """One printed row under one reading, on a range of seeds; finer grids have their own resolution and horizon."""

    row: str
    reading: Reading
    first_seed: int
    seeds: int
    resolution: int = 2
    steps: int = STEPS

    @property
    def sweep(self) -> Sequence[float]:
        """The sweep of epsilon of the printed number."""
        if self.steps == STEPS:
            return CELL[self.row].sweep
        return paper.FINER[self.resolution].get("sweep", CELL[self.row].sweep)


class RowResult(NamedTuple):
    """The seeds of one task, and the value of the parameter."""

    task: RowTask
    value: float
    results: tuple[SeedResult, ...]


def read_row(task: RowTask, stored: dict[str, Any]) -> RowResult:
    """Return the stored measurement of a row."""
    return RowResult(task, stored["value"], tuple(SeedResult(*x) for x in stored["results"]))


def measure_rows(tasks: Sequence[RowTask]) -> list[dict[str, Any]]:
    """Measure some rows, one after the other."""
    return [measure_row(task) for task in tasks]


def measure_row(task: RowTask) -> dict[str, Any]:
    """Measure one row under one reading; seeds whose distribution cannot be sampled are left out."""
    cell, reading, results = CELL[task.row], task.reading, []
    value = fit_s_hat(reading) if cell.value is None else cell.value
    for seed in range(task.first_seed, task.first_seed + task.seeds):
        data = seeded_setup(cell.setup, seed, reading.angle, reading.recording, task.steps)
        mechanism = build(cell.mechanism, reading, data.system, value)
        settings = paper_settings(reading, seed + SEEDS_PER_ROW * CELLS.index(cell), task.resolution)
        try:
            results.append(run_paper(mechanism, data, settings, task.sweep))
        except (dpv.MechanismError, dpv.InputError):
            if cell.mechanism != paper.W2MHE or reading.law != "gibbs":
                raise
    return {"value": value, "results": results}


def paper_settings(reading: Reading, seed: int, resolution: int = 2) -> dpv.Settings:
    """Return the settings of the authors' procedure; a run that the Gibbs sampler abandons counts as outside R."""
    return dpv.Settings.paper(
        test="averaged",
        test_runs=reading.test_runs,
        resolution=resolution,
        nonfinite="event",
        block=BLOCK,
        seed=seed,
    )


def run_paper(mechanism: PaperMechanism, data: SetUp, settings: dpv.Settings, sweep: Sequence[float]) -> SeedResult:
    """Run the authors' procedure once."""
    report = dpv.verify(mechanism, data.first, data.second, settings=settings, progress=False)
    c1, c2 = report.witness.counts
    errors = [errors_of_means(np.asarray(report.picture[side]), data.truth) for side in ("first", "second")]
    return SeedResult(critical_epsilon((c1, c2), settings.test_runs, sweep), report.paper.eta, *errors, c1, c2)


def critical_epsilon(counts: tuple[int, int], runs: int, sweep: Sequence[float]) -> float:
    """Return the first point of a sweep at which both p-values, averaged over all thinnings, exceed alpha."""
    step, first = sweep_step(sweep), paper.SWEEP[0]

    def p_value(index: int) -> float:
        return float(min(dpv.p_values(*counts, runs, first + index * step, None)))

    # The averaged p-values increase with epsilon.
    return first + step * bisect.bisect_right(range(int(SWEEP_END / step)), PRINTED["constants"]["alpha"], key=p_value)


def errors_of_means(samples: np.ndarray, truth: np.ndarray) -> tuple[float, ...]:
    """Return the norm of the error of the mean of the first runs, for each number in `ERROR_RUNS`."""
    finite = samples.reshape(len(samples), *truth.shape)
    finite = finite[np.isfinite(finite).all((1, 2))]
    return tuple(float(np.linalg.norm(finite[:runs].mean(0) - truth)) for runs in ERROR_RUNS)


@functools.lru_cache(maxsize=64)
def fit_s_hat(reading: Reading) -> float:
    """Return the parameter of the EKF at which its mean error on Q1 is the printed one."""
    errors = []
    for seed in FIT_SEEDS:
        data = seeded_setup("Q1", seed, reading.angle, reading.recording)
        mechanism = build(paper.EKF, reading, data.system, FIT_S_HAT)
        samples = np.asarray(mechanism(data.first, BLOCK, np.random.default_rng(seed)))
        errors.append(errors_of_means(samples, data.truth)[ERROR_RUNS.index(BASE.error_runs)])
    noise = (1 - FIT_S_HAT) / FIT_S_HAT * paper.finite_cells(paper.EKF)[0].error / float(np.mean(errors))
    return 1 / (1 + noise)


# The estimator without noise


def measure_shifts() -> list[dict[str, Any]]:
    """Return both errors of the estimator at s = 1, and the shift at the last step over that at the first."""
    results = []
    for changes in PLAN["shift"]["candidates"]:
        reading, shifts = BASE._replace(**changes), []
        for seed in range(SHIFT_SEEDS):
            data = seeded_setup("Q1", seed, reading.angle, reading.recording)
            mechanism = build(paper.W2MHE, reading, data.system, 1.0)
            rng = np.random.default_rng(0)  # not used: the estimator has no noise
            first, second = (np.asarray(mechanism(y, 1, rng))[0] for y in (data.first, data.second))
            norms = np.linalg.norm(second - first, axis=1)
            errors = np.linalg.norm(first - data.truth), np.linalg.norm(second - data.truth)
            distance = np.linalg.norm(data.second - data.first)
            shifts.append([*errors, norms[-1] / norms[0], distance])
        names = ("error", "error_adjacent", "ratio", "distance")
        results.append({"changes": changes} | dict(zip(names, np.transpose(shifts).tolist(), strict=True)))
    return results


# Draws of the sensors, on which the claims are judged


class CurvePoint(NamedTuple):
    """Privacy (an estimate on the partition) and error of a family at one value of its parameter."""

    parameter: float
    epsilon: float
    error: float


class SensorDraw(NamedTuple):
    """Everything that is measured on one draw of the sensor positions.

    Attributes
    ----------
    curves : dict
        Each family along its parameter.
    paper : dict
        Critical epsilon and error of each family by the authors' procedure.
    repeated : dict
        Some families again, with other runs on the same sensors. Only draws with an even number have them: they show
        how much of a difference between set-ups is a difference between seeds.
    sufficient, certified : float
        Two proved bounds of the Gibbs distribution's epsilon: the paper's theorem, and ours for this pair. Both are
        proportional to s/(1 - s), so one value of s is enough.
    """

    curves: dict[str, list[CurvePoint]]
    paper: dict[str, tuple[float, float]]
    repeated: dict[str, list[CurvePoint]]
    sufficient: float
    certified: float


def read_draw(stored: list[Any]) -> SensorDraw:
    """Return the stored measurements on a draw."""
    curves, at_paper_values, repeated, sufficient, certified = stored
    typed = [{name: [CurvePoint(*point) for point in points] for name, points in c.items()} for c in (curves, repeated)]
    return SensorDraw(typed[0], at_paper_values, typed[1], sufficient, certified)


def measure_draw(sizes: dict[str, int], number: int) -> SensorDraw:
    """Draw sensors and data with seed `number`, and measure every family on them, with these numbers of runs."""
    families, matched = PLAN["families"], PLAN["matched"]
    data, settings = fixed_setup(number, seed=number), dpv.Settings(**sizes, seed=number)

    def curves(names: Sequence[str], settings: dpv.Settings) -> dict[str, list[CurvePoint]]:
        def member_of(name: str) -> Callable[[float], PaperMechanism]:
            return lambda value: build_family(families[name], number, value)

        measured = dpv.tradeoff(
            {name: (member_of(name), families[name]["points"]) for name in names},
            data.first,
            data.second,
            matched["delta"],
            dpv.frobenius_error(data.truth),
            settings=settings,
            progress=False,
        )
        found: dict[str, list[CurvePoint]] = {name: [] for name in names}
        for row in measured.rows:
            found[row["mechanism"]].append(CurvePoint(row["parameter"], row["epsilon_estimate"], row["error_first"]))
        return found

    at_paper_values = {}
    for name, family in families.items():
        mechanism, reading = build_family(family, number, family["yardstick"]), family_reading(family)
        result = run_paper(mechanism, data, paper_settings(reading, number), CELLS[0].sweep)
        at_paper_values[name] = (result.epsilon_c, result.errors[ERROR_RUNS.index(reading.error_runs)])
    again = [name for name, family in families.items() if family.get("repeated")]
    repeated = curves(again, settings.change(seed=number + REPEATED_DATA_SEED_OFFSET)) if number % 2 == 0 else {}
    gibbs = build_family(families["gibbs"], number, matched["theorem_s"])
    assert isinstance(gibbs, W2MHE)
    sufficient = theory.sufficient_epsilon(gibbs, DISTANCE, STEPS + 1 - WINDOW)
    certified = theory.gibbs_epsilon(gibbs, data.first, data.second)
    return SensorDraw(curves(list(families), settings), at_paper_values, repeated, sufficient, certified)


# The share of adjacent pairs that pass, and the library's own test


def measure_pairs(number: int) -> list[dict[str, Any]]:
    """Measure how many sampled adjacent pairs pass the test of a printed critical epsilon, for the W2-MHE on Q1.

    The paper names this extension of its test, and prints no result of it. The same pairs are also tested by the
    library's own test, which searches all events.
    """
    cell = CELL["Q1, W2-MHE, s 0.8"]
    system = fixed_system(cell.setup)
    mechanism = build(cell.mechanism, BASE, system, 0.8)
    moved = np.random.default_rng(FIRST_PAIR_SEED).integers(SENSORS, size=number)
    generators = [np.random.default_rng(FIRST_PAIR_SEED + k) for k in range(number)]
    setups = [record(system, int(m), rng, BASE.angle, "noisy") for m, rng in zip(moved, generators, strict=True)]
    pairs = [(data.first, data.second) for data in setups]
    tests = {
        "paper": paper_settings(BASE, 0),
        "own": dpv.Settings(select_runs=1024, test_runs=BASE.test_runs, block=BLOCK, seed=1),
    }
    found = {name: dpv.verify_pairs(mechanism, pairs, cell.epsilon_c, settings=s) for name, s in tests.items()}
    refuted = {n: sum(r.verdict is dpv.Verdict.REFUTED for r in many.reports) for n, many in found.items()}
    return [
        {
            "epsilon": cell.epsilon_c,
            "pairs": number,
            "passed": number - refuted["paper"],
            "interval": tuple(binomtest(number - refuted["paper"], number).proportion_ci(method="exact")),
            "refuted": refuted["own"],
            "violating": found["own"].violating,
        }
    ]


def own_jobs(effort: str, readings: dict[str, Reading]) -> list[tuple[Job, dict[str, Any]]]:
    """Return the verifications by the library's own test at delta 0, each with its row.

    They are those of the printed rows, and of the W2-MHE on Q2 with each sensor in turn as the one that moves.
    `readings` has the reading of each mechanism.
    """
    wanted: list[tuple[str, int | None]] = [(key, None) for key in CELL]
    wanted += [(MAPPED_ROW, sensor) for sensor in range(SENSORS)]
    jobs, settings = [], dpv.Settings(**PLAN[effort]["certified"])
    for row, sensor in wanted:
        cell, reading = CELL[row], readings[CELL[row].mechanism]
        rng = np.random.default_rng(0)
        data = record(fixed_system(cell.setup), sensor or 0, rng, reading.angle, reading.recording)
        value = fit_s_hat(reading) if cell.value is None else cell.value
        mechanism = build(cell.mechanism, reading, data.system, value)
        options = {"error": dpv.frobenius_error(data.truth)}
        name = row if sensor is None else f"{row}, sensor {sensor}"
        job = Job(name, mechanism, data.first, data.second, None, settings, options)
        jobs.append((job, {"row": row, "sensor": sensor}))
    return jobs


def own_rows(about: Iterable[dict[str, Any]], reports: Iterable[dpv.Report]) -> list[dict[str, Any]]:
    """Return the bounds and the error of each verification by the library's own test."""
    return [
        one
        | {
            "lower": report.epsilon_lower,
            "upper": report.on_partition.epsilon_upper(),
            "error": report.error[0][0] if report.error else math.nan,
        }
        for one, report in zip(about, reports, strict=True)
    ]
