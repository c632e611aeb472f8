"""How well a reading predicts the printed numbers: the log predictive probability of each of them.

A printed number is rounded to a cell of a fixed grid: a point of the paper's sweep for epsilon_c, 1/1000 for eta, and
1% for an error. Its predictive probability is that of its cell under a kernel estimate of the simulated values, mixed
with a broad distribution of weight `SMOOTHING`. A vague reading spreads its probability over many cells, so that it is
not rewarded for containing the printed value somewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr
from scipy.stats import hypergeom

from dpverify.paper.printed import PrintedCell
from dpverify.paper.readings.results import CeilingByRuns, FinerFit, NumberFit, Reading, RowFit, Summary
from dpverify.paper.readings.runs import FittedParameter, SeedResult
from dpverify.stats.paper_test import PAPER_EPSILON_SWEEP

SMOOTHING = 0.01  # weight of the broad distribution
SWEEP_STEP = PAPER_EPSILON_SWEEP[1] - PAPER_EPSILON_SWEEP[0]
BROAD_SWEEP_POINTS = 160  # epsilon_c up to 3
ERROR_CELL = 0.01  # width of a cell of ln(error)
BROAD_ERRORS = (1e-4, 1.0)
SELECT_RUNS = 1000
PAPER_CELLS = 256
SELECTION_EPSILON = 1.0
LEVEL = 0.05


def summarise(values: Sequence[float]) -> Summary:
    """Return median and 5% to 95% range as order statistics, so that an infinite value stays infinite."""
    low, median, high = np.quantile(np.asarray(values, float), (0.05, 0.5, 0.95), method="inverted_cdf")
    return Summary(float(median), float(low), float(high), len(values))


def cell_probability(values: np.ndarray, target: int, reflect: bool = True) -> float:
    """Return the probability of a cell under a normal kernel estimate of simulated cell numbers.

    The bandwidth is Silverman's, and at least half a cell. `reflect` moves the mass below cell 0 to its mirror image.
    """
    spread = min(float(np.std(values)), float(np.subtract(*np.quantile(values, (0.75, 0.25)))) / 1.34)
    bandwidth = max(0.9 * spread * len(values) ** -0.2, 0.5)

    def mass(distance: np.ndarray) -> float:
        return float(np.mean(ndtr((distance + 0.5) / bandwidth) - ndtr((distance - 0.5) / bandwidth)))

    return mass(target - values) + (mass(target + values + 1) if reflect else 0.0)


def _mixed(probability: float, broad: float) -> float:
    """Return the logarithm of the probability with the broad distribution mixed in."""
    return math.log((1 - SMOOTHING) * probability + SMOOTHING * broad)


def log_probability_of_epsilon(values: Sequence[float], printed: float) -> float:
    """Return the log predictive probability of a printed critical epsilon, on the points of the sweep."""
    cells = np.rint((np.asarray(values) - PAPER_EPSILON_SWEEP[0]) / SWEEP_STEP)
    target = round((printed - PAPER_EPSILON_SWEEP[0]) / SWEEP_STEP)
    return _mixed(cell_probability(cells, target), 1 / BROAD_SWEEP_POINTS)


def log_probability_of_eta(values: Sequence[float], printed: float) -> float:
    """Return the log predictive probability of a printed eta, on the multiples of 1/1000."""
    target = round(printed * SELECT_RUNS)
    broad = 1 / (target * np.sum(1 / np.arange(1, SELECT_RUNS + 1)))
    return _mixed(cell_probability(np.rint(np.asarray(values) * SELECT_RUNS), target), float(broad))


def log_probability_of_error(values: Sequence[float], printed: float) -> float:
    """Return the log predictive probability of a printed error, on cells of 1%."""
    cells = np.log(np.asarray(values)) / ERROR_CELL
    probability = cell_probability(cells, math.log(printed) / ERROR_CELL, reflect=False)  # type: ignore[arg-type]
    return _mixed(probability, ERROR_CELL / math.log(BROAD_ERRORS[1] / BROAD_ERRORS[0]))


def log_probability_of_fitted_error(fitted: FittedParameter) -> float:
    """Return the log probability of the printed error if the parameter that it was fitted with is uniform on [0, 1]."""
    probability = min(1.0, ERROR_CELL * math.exp(fitted.log_density))
    return _mixed(probability, ERROR_CELL / math.log(BROAD_ERRORS[1] / BROAD_ERRORS[0]))


def _number_fit(name: str, printed: float, values: Sequence[float], log_probability: float | None) -> NumberFit:
    """Return the fit of one number."""
    measured, array = summarise(values), np.asarray(values)
    tail = min(np.mean(array <= printed), np.mean(array >= printed))
    return NumberFit(name, printed, measured, log_probability, measured.low <= printed <= measured.high, float(tail))


def fit_row(
    cell: PrintedCell,
    reading: Reading,
    value: float,
    results: Sequence[SeedResult],
    fitted: FittedParameter | None = None,
) -> RowFit:
    """Return a printed row under one reading.

    `fitted` is given where the printed error of this row fixed the parameter.
    """
    epsilons, etas = [r.epsilon_c for r in results], [r.eta for r in results]
    one = reading.error_runs == "one"
    errors = [r.error_one if one else r.error for r in results]
    adjacent = [r.error_adjacent_one if one else r.error_adjacent for r in results]
    lambdas, ceilings = [r.lambda_ for r in results], [r.ceiling for r in results]
    fits = []
    if math.isfinite(cell.epsilon_c):
        fits.append(
            _number_fit("epsilon_c", cell.epsilon_c, epsilons, log_probability_of_epsilon(epsilons, cell.epsilon_c))
        )
    if cell.implied_eta is not None:
        fits.append(_number_fit("eta", cell.implied_eta, etas, log_probability_of_eta(etas, cell.implied_eta)))
    if cell.lambda_ is not None:
        fits.append(_number_fit("lambda", cell.lambda_, lambdas, None))
    if cell.error is not None:
        log_probability = (
            log_probability_of_error(errors, cell.error) if fitted is None else log_probability_of_fitted_error(fitted)
        )
        fits.append(_number_fit("error", cell.error, errors, log_probability))
    if cell.error_adjacent is not None:
        log_probability = log_probability_of_error(adjacent, cell.error_adjacent)
        fits.append(_number_fit("error_adjacent", cell.error_adjacent, adjacent, log_probability))
    return RowFit(
        row=cell.key,
        reading=reading,
        parameter=value,
        fitted=cell.assumed is not None,
        epsilon_c=summarise(epsilons),
        eta=summarise(etas),
        lambda_=summarise(lambdas),
        error=summarise(errors),
        error_adjacent=summarise(adjacent),
        ceiling=summarise(ceilings),
        saturated_share=float(np.mean([r.epsilon_c == r.ceiling and min(r.counts) == 0 for r in results])),
        fits=tuple(fits),
        counts=tuple(result.counts for result in results),
    )


def fit_grid(r: int, printed: float | None, results: Sequence[SeedResult]) -> FinerFit:
    """Return the critical epsilon on a finer grid beside the printed one."""
    epsilons = [result.epsilon_c for result in results]
    return FinerFit(
        r,
        printed,
        summarise(epsilons),
        summarise([result.ceiling for result in results]),
        float(np.mean([min(result.counts) == 0 for result in results])),
        None if printed is None else log_probability_of_epsilon(epsilons, printed),
    )


def ceiling_sweep(counts: np.ndarray, runs: int, rng: np.random.Generator, alpha: float = LEVEL) -> np.ndarray:
    """Return the critical epsilon of the counts (c, 0), for many counts c at once.

    With the other count 0 the p-value of a thinned count c' is P[H >= c'], H ~ Hypergeometric(2m, m, c'): it exceeds
    alpha as long as c' is small enough. The sweep ends at the first point with so small a thinned count.
    """
    candidates = np.arange(1, 64)
    accepted = int(np.sum(hypergeom.sf(candidates - 1, 2 * runs, runs, candidates) > alpha))
    points = PAPER_EPSILON_SWEEP[0] + SWEEP_STEP * np.arange(6 * len(PAPER_EPSILON_SWEEP))
    thinned = rng.binomial(np.asarray(counts)[:, None], np.exp(-points))
    return points[np.argmax(thinned <= accepted, axis=1)]


def ceiling_by_runs(
    runs: Sequence[int], printed: Sequence[float], repetitions: int, cells: int = PAPER_CELLS, seed: int = 0
) -> tuple[CeilingByRuns, ...]:
    """Return the paper's procedure on two disjoint distributions with equally likely cells, for each m.

    The selection runs choose the cell with the smallest p-value at epsilon 1, which is the one with the largest
    thinned count; fresh test runs give its count (c, 0).
    """
    rng = np.random.default_rng(seed)
    models = []
    for m in runs:
        selection = rng.multinomial(SELECT_RUNS, np.full(cells, 1 / cells), size=repetitions)
        test_counts = rng.binomial(m, 1 / cells, size=repetitions)  # every cell has the same probability
        epsilons = ceiling_sweep(test_counts, m, rng)
        models.append(
            CeilingByRuns(
                m,
                summarise(epsilons.tolist()),
                summarise((selection.max(1) / SELECT_RUNS).tolist()),
                tuple(log_probability_of_epsilon(epsilons.tolist(), value) for value in printed),
            )
        )
    return tuple(models)
