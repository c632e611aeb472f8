"""How well a reading predicts the printed numbers: the ranking of the readings.

A printed number is rounded to a cell of a fixed grid: a point of its own sweep for epsilon_c, 1/1000 for eta, 1% for an
error, and 1 for the count that the slides show. Its predictive probability is that of its cell under a kernel estimate
of the simulated values, mixed with a broad distribution of weight `SMOOTHING`. A vague reading spreads its probability
over many cells, so that it is not rewarded for containing the printed value somewhere. Only independent numbers count:
lambda follows from eta and epsilon_c, and the error that fixed the EKF's parameter predicts nothing.

The readings are ranked on the rows of Q1 alone. The best one is then measured with other seeds on all rows, so that the
rows on Q2 and Q3 and the finer grids are predictions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

import dpverify as dpv
from reproduction import paper
from reproduction.claims import median_interval
from reproduction.experiment import STEPS
from reproduction.measure import RowResult, RowTask
from reproduction.paper import BASE, BETA, CELL, ERROR_RUNS, FINER, PLAN, PRINTED, SELECT_RUNS, SWEEP, Reading

SMOOTHING = 0.01  # weight of the broad distribution
BROAD_END = 3.0  # the broad distribution of epsilon_c is uniform up to here
ERROR_CELL = 0.01  # width of a cell of ln(error)
BROAD_ERRORS = ERROR_CELL / math.log(1e4)  # errors between 1e-4 and 1
BEST_FIRST_SEED = 1000  # the seeds of the best reading are not those of the ranking


class Summary(NamedTuple):
    """Median and 5% to 95% range over seeds."""

    median: float
    low: float
    high: float
    seeds: int


class NumberFit(NamedTuple):
    """How well a reading predicts one independent printed number.

    Attributes
    ----------
    name : {"epsilon_c", "eta", "error", "error_adjacent", "count"}
        The number; "count" is the smaller count of the tested event.
    printed : float
        Its printed value; an eta that is not printed is solved from the printed lambda and epsilon_c.
    measured : Summary
        The simulated values.
    log_probability : float
        Logarithm of the predictive probability of the printed value.
    inside : bool
        Whether the printed value lies in the 5% to 95% range.
    """

    name: str
    printed: float
    measured: Summary
    log_probability: float
    inside: bool


class RowFit(NamedTuple):
    """One printed row under one reading.

    Attributes
    ----------
    row : str
        The printed row, `PrintedCell.key`, for instance "Q1, W2-MHE, s 0.8".
    reading : Reading
        The reading. Choices that this row does not depend on have their base value.
    parameter : float
        The value of the mechanism's parameter.
    numbers : dict
        Summaries of the paper's numbers ("epsilon_c", "eta", "lambda", "error", "error_adjacent") and of the "count".
    fits : tuple of NumberFit
        One for each independent number that is printed, or follows from printed ones.
    both : float
        Share of seeds whose tested event occurred under both datasets.
    """

    row: str
    reading: Reading
    parameter: float
    numbers: dict[str, Summary]
    fits: tuple[NumberFit, ...]
    both: float


class ReadingFit(NamedTuple):
    """A reading with printed rows of one mechanism, or of all of them; `varies` is its difference from the base."""

    mechanism: str
    reading: Reading
    varies: str
    rows: tuple[RowFit, ...]

    def fits(self, *setups: str) -> list[NumberFit]:
        """Return the independent numbers of these set-ups."""
        return [fit for row in self.rows if row.row.startswith(setups) for fit in row.fits]

    @property
    def log_probability(self) -> float:
        """The score: the sum of the log predictive probabilities of the independent numbers on Q1."""
        return sum(fit.log_probability for fit in self.fits("Q1"))


class Trend(NamedTuple):
    """The direction of epsilon_c from one row to another: as printed, and over seeds with the same sensors."""

    what: str
    printed: tuple[float, float]
    median: float
    interval: tuple[float, float]
    share: float  # of the seeds with the printed direction

    @property
    def answer(self) -> str:
        """Whether the interval lies on the printed side of 0."""
        sign = math.copysign(1.0, self.printed[1] - self.printed[0])
        low, high = sorted(sign * end for end in self.interval)
        return "reproduced" if low > 0 else "contradicted" if high < 0 else "undecided"


class ReadingResults(NamedTuple):
    """Everything about the readings.

    Attributes
    ----------
    rankings : dict
        For each mechanism the measured readings, best first.
    best : ReadingFit
        The best single reading of the whole experiment (mechanism "all"): what several mechanisms share has one value.
    finer : dict
        The finer grids (T = 7, Q2) under the best reading, by the bins per coordinate.
    trends : list of Trend
        The directions of epsilon_c under the best reading.
    """

    rankings: dict[str, list[ReadingFit]]
    best: ReadingFit
    finer: dict[int, RowFit]
    trends: list[Trend]


def summarise(values: Sequence[float] | np.ndarray) -> Summary:
    """Return median and 5% to 95% range as order statistics."""
    low, median, high = np.quantile(np.asarray(values, float), (0.05, 0.5, 0.95), method="inverted_cdf")
    return Summary(float(median), float(low), float(high), len(values))


def cell_probability(values: np.ndarray, target: float, reflect: bool = True) -> float:
    """Return the probability of a cell under a normal kernel estimate of simulated cell numbers.

    The bandwidth is Silverman's, and at least half a cell. `reflect` moves the mass below cell 0 to its mirror image.
    """
    spread = min(float(np.std(values)), float(np.subtract(*np.quantile(values, (0.75, 0.25)))) / 1.34)
    bandwidth = max(0.9 * spread * len(values) ** -0.2, 0.5)

    def mass(distance: np.ndarray) -> float:
        return float(np.mean(ndtr((distance + 0.5) / bandwidth) - ndtr((distance - 0.5) / bandwidth)))

    return mass(target - values) + (mass(target + values + 1) if reflect else 0.0)


def log_probability(name: str, values: np.ndarray, printed: float, step: float) -> float:
    """Return the log predictive probability of a printed number; `step` is that of the sweep of its epsilon_c."""
    if name == "epsilon_c":
        cells, target = (np.rint((np.asarray(x) - SWEEP[0]) / step) for x in (values, printed))
        probability, broad = cell_probability(cells, float(target)), step / BROAD_END
    elif name in ("eta", "count"):
        scale = SELECT_RUNS if name == "eta" else 1
        target = round(printed * scale)
        probability = cell_probability(np.rint(values * scale), target)
        broad = 1 / (target * np.sum(1 / np.arange(1, SELECT_RUNS + 1)))
    else:
        cells, target = np.log(values) / ERROR_CELL, math.log(printed) / ERROR_CELL
        probability, broad = cell_probability(cells, target, reflect=False), BROAD_ERRORS
    return math.log((1 - SMOOTHING) * probability + SMOOTHING * float(broad))


def fit_row(result: RowResult, error_runs: int) -> RowFit:
    """Return the fit of a measured row, with the errors of means of so many runs."""
    task, cell, at = result.task, CELL[result.task.row], ERROR_RUNS.index(error_runs)
    seeds = result.results
    values = {
        "epsilon_c": np.array([seed.epsilon_c for seed in seeds]),
        "eta": np.array([seed.eta for seed in seeds]),
        "lambda": np.array([dpv.paper_lambda(BETA, seed.eta, seed.epsilon_c) for seed in seeds]),
        "error": np.array([seed.errors[at] for seed in seeds]),
        "error_adjacent": np.array([seed.errors_adjacent[at] for seed in seeds]),
        "count": np.array([min(seed.c1, seed.c2) for seed in seeds]),
    }
    if task.steps != STEPS:
        printed = {"epsilon_c": FINER[task.resolution]["epsilon_c"]}
    else:
        error = None if cell.error_is_fitted else cell.error
        printed = {"epsilon_c": cell.epsilon_c, "eta": cell.implied_eta}
        printed |= {"error": error, "error_adjacent": cell.error_adjacent, "count": cell.count}
    numbers, fits = {name: summarise(array) for name, array in values.items()}, []
    for name, value in printed.items():
        if value is not None:
            measured, log = numbers[name], log_probability(name, values[name], value, paper.sweep_step(task.sweep))
            fits.append(NumberFit(name, value, measured, log, measured.low <= value <= measured.high))
    both = float(np.mean(values["count"] > 0))
    return RowFit(task.row, task.reading._replace(error_runs=error_runs), result.value, numbers, tuple(fits), both)


# The ranking, on the rows of Q1


def ranking_tasks(effort: str) -> list[list[RowTask]]:
    """Return the tasks of the ranking, one group for each reading, whose rows share compiled estimators."""
    seeds = PLAN[effort]["seeds"]
    return [
        [
            RowTask(cell.key, reading, 0, seeds[mechanism])
            for cell in paper.finite_cells(mechanism)
            if cell.setup == "Q1"
        ]
        for mechanism in paper.MECHANISMS
        for reading in paper.all_readings(mechanism, effort == "quick")
    ]


def make_rankings(results: Iterable[RowResult]) -> dict[str, list[ReadingFit]]:
    """Return the readings of each mechanism, best first."""
    by_reading: dict[tuple[str, Reading], list[RowResult]] = {}
    for result in results:
        by_reading.setdefault((CELL[result.task.row].mechanism, result.task.reading), []).append(result)
    rankings: dict[str, list[ReadingFit]] = {mechanism: [] for mechanism in paper.MECHANISMS}
    for (mechanism, reading), measured in by_reading.items():
        if all(len(result.results) == result.task.seeds for result in measured):
            for error_runs in ERROR_RUNS:
                changed = reading._replace(error_runs=error_runs)
                rows = tuple(fit_row(result, error_runs) for result in measured)
                varies = paper.difference(changed, BASE, mechanism)
                rankings[mechanism].append(ReadingFit(mechanism, changed, varies, rows))
    return {name: sorted(fits, key=lambda fit: -fit.log_probability) for name, fits in rankings.items()}


def best_joint(rankings: dict[str, list[ReadingFit]]) -> ReadingFit:
    """Return the best reading of the whole experiment: what two mechanisms share has the same value in both.

    The score is the sum over all rows on Q1.
    """
    fields = {name: PLAN["readings"][name]["fields"] for name in rankings}
    best: ReadingFit | None = None
    for fits in itertools.product(*rankings.values()):
        combined: dict[str, Any] = {}
        for fit in fits:
            own = {name: getattr(fit.reading, name) for name in fields[fit.mechanism]}
            if any(combined.get(name, value) != value for name, value in own.items()):
                break
            combined |= own
        else:
            reading = BASE._replace(**combined)
            rows = tuple(row for fit in fits for row in fit.rows)
            joint = ReadingFit("all", reading, paper.difference(reading, BASE), rows)
            if best is None or joint.log_probability > best.log_probability:
                best = joint
    assert best is not None  # the base readings agree
    return best


# The best reading, on all rows


def mechanism_reading(best: Reading, mechanism: str) -> Reading:
    """Return the best reading with the base value in every choice that the mechanism does not depend on."""
    return BASE._replace(**{name: getattr(best, name) for name in PLAN["readings"][mechanism]["fields"]})


def best_tasks(best: Reading, effort: str) -> list[list[RowTask]]:
    """Return the tasks that follow the ranking: the best reading on all rows with other seeds, and on finer grids."""
    groups = []
    for mechanism in paper.MECHANISMS:
        reading, seeds = mechanism_reading(best, mechanism), PLAN[effort]["best"][mechanism]
        rows = [RowTask(cell.key, reading, BEST_FIRST_SEED, seeds) for cell in paper.finite_cells(mechanism)]
        groups += [[task] for task in rows]
        if mechanism == paper.W2MHE:
            on_q2, horizon = next(task.row for task in rows if CELL[task.row].setup == "Q2"), PRINTED["theory"]["steps"]
            groups += [[RowTask(on_q2, reading, BEST_FIRST_SEED, seeds, r, horizon)] for r in FINER]
    return groups


def make_results(
    rankings: dict[str, list[ReadingFit]], best: ReadingFit, results: Sequence[RowResult]
) -> ReadingResults:
    """Return everything about the readings from the measurements that followed the ranking."""
    main, finer = {}, {}
    for result in results:
        kept, key = (main, result.task.row) if result.task.steps == STEPS else (finer, result.task.resolution)
        kept[key] = result
    trends = []
    for first, second in itertools.pairwise(cell for cell in CELL.values() if cell.setup == "Q1"):
        if first.mechanism == second.mechanism and {first.key, second.key} <= set(main):
            what = f"{first.mechanism}: {first.parameter_text}, {second.parameter_text}"
            trends.append(make_trend(what, (first.epsilon_c, second.epsilon_c), main[first.key], main[second.key]))
    for a, b in itertools.combinations(FINER, 2):
        printed = FINER[a]["epsilon_c"], FINER[b]["epsilon_c"]
        trends.append(make_trend(f"Q2, T 7: r {a}, {b}", printed, finer[a], finer[b]))
    runs = best.reading.error_runs
    rows = tuple(fit_row(main[key], runs) for key in CELL if key in main)
    finer_fits = {r: fit_row(finer[r], runs) for r in sorted(finer)}
    return ReadingResults(rankings, best._replace(rows=rows), finer_fits, trends)


def make_trend(what: str, printed: tuple[float, float], first: RowResult, second: RowResult) -> Trend:
    """Compare the critical epsilons of two measured rows, seed by seed."""
    pairs = zip(first.results, second.results, strict=True)
    differences = np.array([b.epsilon_c - a.epsilon_c for a, b in pairs])
    share = float(np.mean(differences * (printed[1] - printed[0]) > 0))
    return Trend(what, printed, float(np.median(differences)), median_interval(differences), share)
