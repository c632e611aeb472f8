"""What a worker process measures. Every function returns plain data, which is stored as JSON.

A verification of a printed row is `dpverify.verify` with `Settings.paper()`. Its seed draws everything that is random
in the paper and not printed: the sensors, the sensor that moves, the trajectory, the noise, and all runs.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binomtest

import dpverify as dpv
from dpverify.estimation import theory
from dpverify.studies import Job
from reproduction import paper
from reproduction.experiment import (
    DISTANCE,
    SENSORS,
    SETUP_KEYS,
    STEPS,
    WINDOW,
    PaperMechanism,
    SetUp,
    build,
    build_family,
    family_reading,
    fixed_setup,
    fixed_system,
    seeded_setup,
)
from reproduction.paper import BASE, CELL, CELLS, PLAN, PRINTED, PrintedCell, Reading

BLOCK = 512
FIT_SEEDS = range(4)  # data on which an unprinted parameter is fitted
SINGLE_RUN_KEY = 7
SWEEP_KEY = 101  # the spawn key of `verify` for the sweep, so that a ceiling has the same random numbers
SEEDS_PER_ROW = 1_000_000  # rows share the data of a set-up and must not share the runs
REPEATED_DATA_SEED_OFFSET = 10**6
FIRST_PAIR_SEED = 5_000_000  # no other part of the reproduction draws data with these seeds


class SeedResult(NamedTuple):
    """The paper's numbers of one verification, its ceiling, and the counts of the tested event.

    The errors are means over the test runs; `error_one` and `error_adjacent_one` are those of a single run.
    """

    epsilon_c: float
    eta: float
    lambda_: float
    error: float
    error_adjacent: float
    ceiling: float
    c1: int
    c2: int
    error_one: float
    error_adjacent_one: float


class RowTask(NamedTuple):
    """One printed row under one reading, on a range of seeds; finer grids have their own resolution and horizon."""

    row: str
    reading: Reading
    first_seed: int
    seeds: int
    resolution: int = 2
    steps: int = STEPS


class RowResult(NamedTuple):
    """The seeds of one task, and the value of the parameter.

    `log_density` is given where the printed error of this row fixed the parameter: see `fit_parameter`.
    """

    task: RowTask
    value: float
    log_density: float | None
    results: tuple[SeedResult, ...]


def read_row(task: RowTask, stored: dict[str, Any]) -> RowResult:
    """Return the stored measurement of a row."""
    return RowResult(task, stored["value"], stored["log_density"], tuple(SeedResult(*x) for x in stored["results"]))


def measure_rows(tasks: Sequence[RowTask]) -> list[dict[str, Any]]:
    """Measure some rows, one after the other."""
    return [measure_row(task) for task in tasks]


def measure_row(task: RowTask) -> dict[str, Any]:
    """Measure one row under one reading; seeds whose distribution cannot be sampled are left out."""
    cell, reading = CELL[task.row], task.reading
    value, log_density = row_parameter(cell, reading)
    results = []
    for seed in range(task.first_seed, task.first_seed + task.seeds):
        data = seeded_setup(cell.setup, reading.angle, seed, task.steps)
        mechanism = build(cell.mechanism, reading, data.system, value)
        try:
            settings = paper_settings(reading, seed + SEEDS_PER_ROW * CELLS.index(cell), task.resolution)
            results.append(run_paper(mechanism, data, settings))
        except (dpv.MechanismError, dpv.InputError):
            if reading.law != "gibbs":
                raise
    return {"value": value, "log_density": log_density, "results": results}


def paper_settings(reading: Reading, seed: int, resolution: int = 2) -> dpv.Settings:
    """Return the settings of the paper's procedure; a run that the Gibbs sampler abandons counts as outside R."""
    return dpv.Settings.paper(
        test_runs=reading.test_runs,
        complement=reading.complement,
        resolution=resolution,
        nonfinite="event" if reading.law == "gibbs" else "error",
        block=BLOCK,
        seed=seed,
    )


def run_paper(mechanism: PaperMechanism, data: SetUp, settings: dpv.Settings) -> SeedResult:
    """Run the paper's procedure once."""
    error = dpv.rmse(data.truth) if settings.nonfinite == "error" else error_of_finite_runs(data.truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpv.DPVerifyWarning)  # s = 1 is deterministic
        report = dpv.verify(mechanism, data.first, data.second, settings=settings, error=error, progress=False)
    assert report.error is not None
    c1, c2 = report.witness.counts
    rng = np.random.default_rng((SINGLE_RUN_KEY, settings.seed))
    other_runs = np.asarray(mechanism(data.second, BLOCK, rng))
    return SeedResult(
        report.epsilon_critical,
        report.paper.eta,
        report.paper.lambda_,
        report.error[0][0],
        report.error[1][0],
        ceiling((c1, c2), settings),
        c1,
        c2,
        float(np.asarray(error(report.picture["first"][:1]))[0]),
        float(np.asarray(error(other_runs))[0]),
    )


def ceiling(counts: tuple[int, int], settings: dpv.Settings) -> float:
    """Return the critical epsilon if the data set with the smaller count never produced the event.

    It has the random numbers of the verification: where the smaller count is 0, it is the critical epsilon itself.
    """
    c1, c2 = counts
    disjoint = (c1, 0) if c1 >= c2 else (0, c2)
    rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(SWEEP_KEY,)))
    return float(dpv.critical_epsilon(*disjoint, settings.test_runs, settings.alpha, rng))


def error_of_finite_runs(truth: np.ndarray) -> Callable[[Any], np.ndarray]:
    """Return the error of each run; an abandoned run has the mean error of its block."""
    error = dpv.rmse(truth)

    def errors(samples: Any) -> np.ndarray:
        values = np.asarray(error(samples))
        return np.where(np.isfinite(values), values, np.nanmean(values))

    return errors


# Parameters that the paper does not print


def row_parameter(cell: PrintedCell, reading: Reading) -> tuple[float, float | None]:
    """Return the parameter of a row, and its log density if this row's printed error fixed it."""
    if cell.value is not None and cell.assumed is None:
        return cell.value, None
    target = cell if cell.error_is_fitted else paper.finite_cells(paper.EKF)[0]
    value, log_density = fit_parameter(
        target, reading._replace(angle="paper", test_runs=BASE.test_runs, complement=False)
    )
    return value, log_density if target is cell else None


@functools.lru_cache(maxsize=256)
def fit_parameter(cell: PrintedCell, reading: Reading) -> tuple[float, float]:
    """Return the parameter at which the error of a row is the printed one, and the logarithm of its density.

    The density is d value / d ln(error): under a uniform parameter the probability of an error in a small interval of
    logarithms is this density times its length. It is 0 where no value in [0, 1] has the printed error; the parameter
    is then the nearest value. All values are measured with the same random numbers.
    """
    assert cell.error is not None
    noises = np.geomspace(1e-3, 1.0, 8)  # 1 - s, 1 - s_bar, or (1 - s_hat)/s_hat
    is_ekf = cell.mechanism == paper.EKF
    values = 1 / (1 + noises) if is_ekf else 1 - noises
    errors = [mean_error_over_seeds(cell, reading, float(value)) for value in values]
    log_errors = np.maximum.accumulate(np.log(errors))  # rounding must not break the order
    log_target = math.log(cell.error)
    if not log_errors[0] <= log_target <= log_errors[-1]:
        return float(values[0] if log_target < log_errors[0] else values[-1]), -math.inf
    i = int(np.clip(np.searchsorted(log_errors, log_target), 1, len(noises) - 1))
    rise = max(log_errors[i] - log_errors[i - 1], 1e-6)
    step = math.log(noises[i] / noises[i - 1])
    noise = noises[i - 1] * math.exp(step * (log_target - log_errors[i - 1]) / rise)
    value = 1 / (1 + noise) if is_ekf else 1 - noise
    return float(value), math.log(noise * step / rise * (value**2 if is_ekf else 1.0))


def mean_error_over_seeds(cell: PrintedCell, reading: Reading, value: float) -> float:
    """Return the mean error under the first data set, over a few seeds."""
    errors = []
    for seed in FIT_SEEDS:
        data = seeded_setup(cell.setup, reading.angle, seed)
        mechanism = build(cell.mechanism, reading, data.system, value)
        samples = np.asarray(mechanism(data.first, BLOCK, np.random.default_rng(seed)))
        errors.append(float(np.nanmean(dpv.rmse(data.truth)(samples))))
    return float(np.mean(errors))


def calibrate(runs: int) -> dict[str, float]:
    """Return tau and s_hat, which the paper does not print: each is the value at which an error is the printed one."""
    targets = PRINTED["calibration"]

    def solve(
        target: float, family: str, setup: str, parameters: Callable[[float], Any], ends: Sequence[float]
    ) -> float:
        data = fixed_setup(setup)

        def excess(logarithm: float) -> float:
            mechanism = build_family(PLAN["families"][family], setup, *parameters(math.exp(logarithm)))
            rng, error, block = np.random.default_rng(0), dpv.rmse(data.truth), 4096
            blocks = [np.mean(error(np.asarray(mechanism(data.first, block, rng)))) for _ in range(-(-runs // block))]
            return float(np.mean(blocks)) - target

        return math.exp(float(brentq(excess, *map(math.log, ends), xtol=1e-4)))  # type: ignore[arg-type]

    tau, s_hat = targets["tau"], targets["s_hat"]
    return {
        "tau": solve(tau["error"], "gibbs", tau["setup"], lambda value: (tau["s"], value), (2e-6, 2e-4)),
        "s_hat": 1 / (1 + solve(s_hat["error"], "ekf", s_hat["setup"], lambda x: (1 / (1 + x), 0.0), (1e-4, 1e-1))),
    }


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
        Critical epsilon and error of each family by the paper's procedure.
    repeated : dict
        Some families again, on other data from the same sensors. Only draws with an even number have them: they show
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


def measure_draw(
    families: dict[str, dict[str, Any]],
    points: dict[str, Sequence[float]],
    matched: dict[str, float],
    sizes: dict[str, int],
    tau: float,
    number: int,
) -> SensorDraw:
    """Draw sensors and data with seed `number`, and measure every family on them.

    `points` are the parameters of each family, `matched` has the delta of the curves and the s of the theorem, and
    `sizes` are the numbers of runs.
    """
    data, settings = fixed_setup(number, seed=number), dpv.Settings(**sizes, seed=number)

    def curves(data: SetUp, names: Sequence[str], settings: dpv.Settings) -> dict[str, list[CurvePoint]]:
        def member_of(name: str) -> Callable[[float], PaperMechanism]:
            return lambda value: build_family(families[name], number, value, tau)

        measured = dpv.tradeoff(
            {name: (member_of(name), points[name]) for name in names},
            data.first,
            data.second,
            matched["delta"],
            dpv.rmse(data.truth),
            settings=settings,
            progress=False,
        )
        found: dict[str, list[CurvePoint]] = {name: [] for name in names}
        for row in measured.rows:
            found[row["mechanism"]].append(CurvePoint(row["parameter"], row["epsilon_estimate"], row["error_first"]))
        return found

    at_paper_values = {}
    for name, family in families.items():
        mechanism = build_family(family, number, family["yardstick"], tau)
        result = run_paper(mechanism, data, paper_settings(family_reading(family, tau), number))
        at_paper_values[name] = (result.epsilon_c, result.error)
    repeated: dict[str, list[CurvePoint]] = {}
    if number % 2 == 0:
        other = fixed_setup(number, seed=number + REPEATED_DATA_SEED_OFFSET)
        repeated = curves(other, [n for n, family in families.items() if family.get("repeated")], settings.spawn(1))
    gibbs = build_family(families["gibbs"], number, matched["theorem_s"], tau)
    sufficient = theory.sufficient_epsilon(gibbs, DISTANCE, STEPS + 1 - WINDOW)
    certified = theory.gibbs_epsilon(gibbs, data.first, data.second)
    return SensorDraw(curves(data, list(families), settings), at_paper_values, repeated, sufficient, certified)


# The share of adjacent pairs that pass, and the library's own test


def measure_pairs(number: int) -> list[dict[str, Any]]:
    """Measure how many sampled adjacent pairs pass the test of a printed critical epsilon, for the W2-MHE on Q1.

    The paper names this extension of its test, and prints no result of it. A pair is drawn anew each time: the
    trajectory, the measurement noise, and which of the ten sensors moves. The same pairs are also tested by the
    library's own test, which searches all events.
    """
    cell = CELL["Q1, W2-MHE, s 0.8"]
    mechanism = build(cell.mechanism, BASE, fixed_system(cell.setup), 0.8)
    moved = np.random.default_rng(FIRST_PAIR_SEED).integers(SENSORS, size=number)
    tests = {
        "paper": dpv.Settings.paper(test_runs=BASE.test_runs, block=1024),
        "own": dpv.Settings(select_runs=1024, test_runs=BASE.test_runs, block=1024, seed=1),
    }
    results = []
    for angle in ("paper", "exact"):
        setups = [fixed_setup(cell.setup, int(moved[k]), FIRST_PAIR_SEED + k, angle) for k in range(number)]
        pairs = [(data.first, data.second) for data in setups]
        found = {n: dpv.verify_pairs(mechanism, pairs, cell.epsilon_c, settings=s) for n, s in tests.items()}
        refuted = {n: sum(r.verdict is dpv.Verdict.REFUTED for r in many.reports) for n, many in found.items()}
        results.append(
            {
                "angle": angle,
                "epsilon": cell.epsilon_c,
                "pairs": number,
                "passed": number - refuted["paper"],
                "interval": tuple(binomtest(number - refuted["paper"], number).proportion_ci(method="exact")),
                "refuted": refuted["own"],
                "violating": found["own"].violating,
            }
        )
    return results


def own_jobs(effort: str, tau: float, s_hat: float) -> list[tuple[Job, dict[str, Any]]]:
    """Return the verifications by the library's own test at delta 0, each with what distinguishes it.

    They are those of the printed parameters, and of the W2-MHE with each sensor in turn as the one that moves.
    """
    wanted = [(t["mechanism"], t["law"], value, None) for t in PLAN["own"] for value in t["values"] or [s_hat]]
    wanted += [(paper.W2MHE, "gibbs", 0.8, sensor) for sensor in range(SENSORS)]
    jobs = []
    for setup in SETUP_KEYS:
        for mechanism, law, value, sensor in wanted:
            data = fixed_setup(setup, sensor or 0)
            reading = BASE._replace(support="growing", tau=tau, angle="exact", law=law)
            about = {"setup": setup, "mechanism": mechanism, "law": law, "value": value, "sensor": sensor}
            name = " ".join(str(part) for part in about.values())
            settings = dpv.Settings(**PLAN[effort]["certified" if sensor is None else "map"])
            options = {"error": dpv.rmse(data.truth)}
            built = build(mechanism, reading, data.system, value)
            jobs.append((Job(name, built, data.first, data.second, None, settings, options), about))
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
