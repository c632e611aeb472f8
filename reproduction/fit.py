"""How well a reading predicts the printed numbers: the ranking of the readings, and the ceiling of the procedure.

A printed number is rounded to a cell of a fixed grid: a point of the paper's sweep for epsilon_c, 1/1000 for eta, and
1% for an error. Its predictive probability is that of its cell under a kernel estimate of the simulated values, mixed
with a broad distribution of weight `SMOOTHING`. A vague reading spreads its probability over many cells, so that it is
not rewarded for containing the printed value somewhere.

The ranking comes first. The best reading is then measured again with other seeds and more of them, so that its figures
are not those that made it the best; it is also measured with the complement of the region as an event, and on finer
grids.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import hypergeom

from reproduction import paper
from reproduction.experiment import STEPS
from reproduction.measure import RowResult, RowTask
from reproduction.paper import ALL_REJECTED, BASE, CELL, FINER, PLAN, PRINTED, SELECT_RUNS, SWEEP, Reading

SMOOTHING = 0.01  # weight of the broad distribution
SWEEP_STEP = SWEEP[1] - SWEEP[0]
BROAD_SWEEP_POINTS = 160  # epsilon_c up to 3
ERROR_CELL = 0.01  # width of a cell of ln(error)
BROAD_ERRORS = ERROR_CELL / math.log(1e4)  # errors between 1e-4 and 1
EQUAL_CELLS = 256
BEST_FIRST_SEED = 1000  # the seeds of the best reading are not those of the ranking
DETERMINISTIC_SEEDS = 10  # of the row s = 1
RUNS: list[int] = sorted(PLAN["readings"][paper.W2MHE]["quick"][1]["test_runs"])  # every m that is measured


class Summary(NamedTuple):
    """Median and 5% to 95% range over seeds."""

    median: float
    low: float
    high: float
    seeds: int


class NumberFit(NamedTuple):
    """How well a reading predicts one printed number.

    Attributes
    ----------
    name : {"epsilon_c", "eta", "lambda", "error", "error_adjacent"}
        The number.
    printed : float
        Its printed value; an eta that is not printed is solved from the printed lambda and epsilon_c.
    measured : Summary
        The simulated values.
    log_probability : float or None
        Logarithm of the predictive probability of the printed value. None for lambda: it follows from eta and
        epsilon_c, so that it must not count twice.
    inside : bool
        Whether the printed value lies in the 5% to 95% range.
    tail : float
        Share of simulated values that are at least as far out as the printed one, on the nearer side.
    independent : bool
        Whether the number says anything about the reading by itself: not lambda, and not an error that was fitted.
    """

    name: str
    printed: float
    measured: Summary
    log_probability: float | None
    inside: bool
    tail: float
    independent: bool


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
        Summaries of the paper's five numbers ("epsilon_c", "eta", "lambda", "error", "error_adjacent") and of the
        "ceiling", the critical epsilon that the same procedure reports if the second data set never produces the event.
    at_ceiling : float
        Share of seeds whose critical epsilon equals its ceiling, because the smaller count is 0.
    fits : tuple of NumberFit
        One for each number that is printed, or follows from printed ones.
    counts : tuple of (int, int)
        The counts of the tested event over seeds, from which the figures of p-values are drawn.
    """

    row: str
    reading: Reading
    parameter: float
    numbers: dict[str, Summary]
    at_ceiling: float
    fits: tuple[NumberFit, ...]
    counts: tuple[tuple[int, int], ...]


class ReadingFit(NamedTuple):
    """A reading with all printed rows of one mechanism, or of all of them; `varies` is its difference from the base."""

    mechanism: str
    reading: Reading
    varies: str
    rows: tuple[RowFit, ...]

    @property
    def log_probability(self) -> float:
        """The fit: the sum of the log predictive probabilities of all printed numbers."""
        return sum(fit.log_probability or 0.0 for row in self.rows for fit in row.fits)

    @property
    def independent(self) -> list[NumberFit]:
        """The independent numbers."""
        return [fit for row in self.rows for fit in row.fits if fit.independent]

    @property
    def inside(self) -> str:
        """How many independent numbers lie in their 5% to 95% range, for instance "16 of 26"."""
        return f"{sum(fit.inside for fit in self.independent)} of {len(self.independent)}"


class FinerFit(NamedTuple):
    """The critical epsilon on a grid with r bins per coordinate, under one reading; `printed` None: not printed."""

    r: int
    printed: float | None
    epsilon_c: Summary
    ceiling: Summary
    at_ceiling: float


class ReadingResults(NamedTuple):
    """Everything about the readings.

    Attributes
    ----------
    rankings : dict
        For each mechanism the measured readings, best first.
    best : ReadingFit
        The best single reading of the whole experiment (mechanism "all"): what several mechanisms share has one value.
    with_complement : dict
        The rows of the best reading with the complement of the region as an event, by their keys.
    by_runs : dict
        For each m, the W2-MHE rows of the best reading.
    ceiling_by_runs : dict
        For each m, the critical epsilon of two disjoint distributions on 256 equally likely cells.
    finer : list of FinerFit
        The finer grids (T = 7, Q2) under the best reading.
    """

    rankings: dict[str, list[ReadingFit]]
    best: ReadingFit
    with_complement: dict[str, RowFit]
    by_runs: dict[int, tuple[RowFit, ...]]
    ceiling_by_runs: dict[int, Summary]
    finer: list[FinerFit]


# The fit of one number


def summarise(values: Sequence[float] | np.ndarray) -> Summary:
    """Return median and 5% to 95% range as order statistics, so that an infinite value stays infinite."""
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


def log_probability(name: str, values: np.ndarray, printed: float, log_density: float | None = None) -> float | None:
    """Return the log predictive probability of a printed number; `log_density` is that of a fitted error."""
    if name == "lambda":
        return None
    if name == "epsilon_c":
        cells, target = (np.rint((np.asarray(x) - SWEEP[0]) / SWEEP_STEP) for x in (values, printed))
        probability, broad = cell_probability(cells, float(target)), 1 / BROAD_SWEEP_POINTS
    elif name == "eta":
        target = round(printed * SELECT_RUNS)
        probability = cell_probability(np.rint(values * SELECT_RUNS), target)
        broad = 1 / (target * np.sum(1 / np.arange(1, SELECT_RUNS + 1)))
    elif log_density is not None:
        probability, broad = min(1.0, ERROR_CELL * math.exp(log_density)), BROAD_ERRORS
    else:
        cells, target = np.log(values) / ERROR_CELL, math.log(printed) / ERROR_CELL
        probability, broad = cell_probability(cells, target, reflect=False), BROAD_ERRORS
    return math.log((1 - SMOOTHING) * probability + SMOOTHING * float(broad))


def fit_row(result: RowResult, error_runs: str) -> RowFit:
    """Return the fit of a measured row, with the errors of one run or of all runs."""
    task, cell, of_one = result.task, CELL[result.task.row], "_one" if error_runs == "one" else ""
    sources = {"epsilon_c": "epsilon_c", "eta": "eta", "lambda": "lambda_", "error": f"error{of_one}"}
    sources |= {"error_adjacent": f"error_adjacent{of_one}", "ceiling": "ceiling"}
    values = {name: np.array([getattr(seed, source) for seed in result.results]) for name, source in sources.items()}
    printed = {
        "epsilon_c": cell.epsilon_c,
        "eta": cell.implied_eta,
        "lambda": cell.lambda_,
        "error": cell.error,
        "error_adjacent": cell.error_adjacent,
    }
    numbers, fits = {name: summarise(array) for name, array in values.items()}, []
    for name, value in printed.items():
        if value is not None and math.isfinite(value):
            measured, array = numbers[name], values[name]
            log = log_probability(name, array, value, result.log_density if name == "error" else None)
            inside = measured.low <= value <= measured.high
            tail = min(np.mean(array <= value), np.mean(array >= value))
            independent = name != "lambda" and not (name == "error" and cell.error_is_fitted)
            fits.append(NumberFit(name, value, measured, log, inside, float(tail), independent))
    counts = tuple((seed.c1, seed.c2) for seed in result.results)
    at_ceiling = float(np.mean([s.epsilon_c == s.ceiling and min(s.c1, s.c2) == 0 for s in result.results]))
    reading = task.reading._replace(error_runs=error_runs)
    return RowFit(task.row, reading, result.value, numbers, at_ceiling, tuple(fits), counts)


# The ranking


def seeds_of(reading: Reading, mechanism: str, seeds: dict[str, int]) -> int:
    """Return the seeds of a row in the ranking."""
    if mechanism == paper.W2MHE:
        return seeds[reading.law]
    return seeds["input" if mechanism == paper.INPUT else "ekf"]


def ranking_tasks(effort: str) -> list[list[RowTask]]:
    """Return the tasks of the ranking, one group for each reading, whose rows share compiled estimators."""
    return [
        [RowTask(cell.key, reading, 0, seeds_of(reading, mechanism, PLAN[effort]["seeds"])) for cell in cells]
        for mechanism in paper.MECHANISMS
        for cells in [paper.finite_cells(mechanism)]
        for reading in paper.all_readings(mechanism, effort == "quick")
    ]


def make_rankings(results: Iterable[RowResult]) -> dict[str, list[ReadingFit]]:
    """Return the readings of each mechanism, best first."""
    by_reading: dict[tuple[str, Reading], list[RowResult]] = {}
    for result in results:
        if result.results:
            by_reading.setdefault((CELL[result.task.row].mechanism, result.task.reading), []).append(result)
    rankings: dict[str, list[ReadingFit]] = {mechanism: [] for mechanism in paper.MECHANISMS}
    for (mechanism, reading), measured in by_reading.items():
        if len(measured) == len(paper.finite_cells(mechanism)):
            for error_runs in ("all", "one"):
                changed = reading._replace(error_runs=error_runs)
                rows = tuple(fit_row(result, error_runs) for result in measured)
                varies = paper.difference(changed, BASE, mechanism)
                rankings[mechanism].append(ReadingFit(mechanism, changed, varies, rows))
    return {name: sorted(fits, key=lambda fit: -fit.log_probability) for name, fits in rankings.items()}


def best_joint(rankings: dict[str, list[ReadingFit]]) -> ReadingFit:
    """Return the best reading of the whole experiment: what two mechanisms share has the same value in both.

    The fit is the sum over all printed rows.
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


# The best reading


def best_tasks(best: Reading, effort: str) -> list[list[RowTask]]:
    """Return the tasks that follow the ranking: the best reading again, with the complement, and on finer grids."""
    groups, seeds = [], PLAN[effort]["seeds"]
    for mechanism in paper.MECHANISMS:
        reading = paper.relevant(best, mechanism)._replace(error_runs="all")
        keys = [cell.key for cell in paper.finite_cells(mechanism)]
        number = seeds["best_input"] if mechanism == paper.INPUT else seeds["best"]
        groups.append([RowTask(key, reading, BEST_FIRST_SEED, number) for key in keys])
        if not (effort == "quick" and mechanism == paper.INPUT):  # these runs take the longest
            few, with_complement = seeds_of(reading, mechanism, seeds), reading._replace(complement=True)
            groups.append([RowTask(key, with_complement, BEST_FIRST_SEED, few) for key in keys])
        if mechanism == paper.W2MHE:
            on_q2, horizon = next(key for key in keys if CELL[key].setup == "Q2"), PRINTED["theory"]["steps"]
            finer = [RowTask(on_q2, reading, BEST_FIRST_SEED, number, r, horizon) for r in FINER]
            groups.append([RowTask(ALL_REJECTED.key, reading, BEST_FIRST_SEED, DETERMINISTIC_SEEDS), *finer])
    return groups


def make_results(
    rankings: dict[str, list[ReadingFit]], best: ReadingFit, results: Iterable[RowResult], effort: str
) -> ReadingResults:
    """Return everything about the readings from the measurements that followed the ranking."""
    main, complement, finer = {}, {}, []
    for result in results:
        task, fit = result.task, fit_row(result, best.reading.error_runs)
        if task.steps != STEPS:
            share = float(np.mean([min(pair) == 0 for pair in fit.counts]))
            numbers = fit.numbers["epsilon_c"], fit.numbers["ceiling"]
            finer.append(FinerFit(task.resolution, FINER[task.resolution], *numbers, share))
        else:
            (complement if task.reading.complement else main)[task.row] = fit
    wanted = paper.relevant(best.reading, paper.W2MHE)
    by_runs = {
        fit.reading.test_runs: fit.rows
        for fit in sorted(rankings[paper.W2MHE], key=lambda fit: fit.reading.test_runs)
        if fit.reading == wanted._replace(test_runs=fit.reading.test_runs)
    }
    return ReadingResults(
        rankings,
        best._replace(rows=tuple(main[key] for key in CELL)),
        complement,
        by_runs,
        {m: summarise(epsilons) for m, epsilons in disjoint_epsilons(RUNS, PLAN[effort]["repetitions"]).items()},
        sorted(finer, key=lambda fit: fit.r),
    )


# The ceiling


def ceiling_sweep(counts: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return the critical epsilon of the counts (c, 0), for many counts c at once.

    With the other count 0 the p-value of a thinned count c' is P[H >= c'], H ~ Hypergeometric(2m, m, c'): it exceeds
    alpha as long as c' is small enough. The sweep ends at the first point with so small a thinned count.
    """
    candidates, alpha = np.arange(1, 64), PRINTED["constants"]["alpha"]
    accepted = int(np.sum(hypergeom.sf(candidates - 1, 2 * runs, runs, candidates) > alpha))
    points = SWEEP[0] + SWEEP_STEP * np.arange(6 * len(SWEEP))
    thinned = rng.binomial(np.asarray(counts)[:, None], np.exp(-points))
    return points[np.argmax(thinned <= accepted, axis=1)]


def disjoint_epsilons(runs: Sequence[int], repetitions: int) -> dict[int, np.ndarray]:
    """Return the critical epsilons of two disjoint distributions with equally likely cells, for each m.

    Every cell has the same probability, so it does not matter which one the selection runs choose; fresh test runs
    give its count (c, 0).
    """
    rng, epsilons = np.random.default_rng(0), {}
    for m in runs:
        rng.multinomial(SELECT_RUNS, np.full(EQUAL_CELLS, 1 / EQUAL_CELLS), size=repetitions)  # the selection runs
        epsilons[m] = ceiling_sweep(rng.binomial(m, 1 / EQUAL_CELLS, size=repetitions), m, rng)
    return epsilons
