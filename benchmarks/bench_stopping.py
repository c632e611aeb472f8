"""Measures verifications that may stop early: false stops, runs until a false claim is refuted, and the final bound.

The first two parts use the bets and refits of `dpverify.early` without reports, so that thousands of repetitions
take minutes. The last two parts call `verify`.

Run: python benchmarks/bench_stopping.py [--part NAME] [--seeds N] (all parts: hours; each part alone: minutes).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

import dpverify as dpv
from dpverify.early import MAX_FITTED_RUNS, Portfolio, batch_size
from dpverify.report.sequence import EARLY_SHARE, EPSILON_GRID
from dpverify.sampling.blocks import FIRST_RUNS
from dpverify.sampling.count import count_cells
from dpverify.stats.anytime import log_wealth
from dpverify.stats.boundaries import Boundary, line_boundary

ALPHA = 0.05
HORIZON = 100_000  # runs per dataset
GAUSSIAN_SIGMA = math.sqrt(2 * math.log(1.25 / 1e-5))  # times the sensitivity over epsilon, for delta 1e-5

Draw = Callable[[int, int, np.random.Generator], np.ndarray]


class Case(NamedTuple):
    """A mechanism on a pair of datasets, and a claim.

    Attributes
    ----------
    draw : callable
        `draw(side, runs, rng)` returns outputs.
    epsilon, delta : float
        The claim.
    published : float
        Mean runs per dataset until refuted that the sequential auditor APT reports; NaN if it has no figure.
    """

    draw: Draw
    epsilon: float
    delta: float = 0.0
    published: float = math.nan


def laplace(scales: tuple[float, float], means: tuple[float, float]) -> Draw:
    """Return Laplace noise of two scales around two means."""
    return lambda side, runs, rng: means[side] + scales[side] * rng.laplace(size=runs)


def gaussian(scales: tuple[float, float], means: tuple[float, float]) -> Draw:
    """Return Gaussian noise of two scales around two means."""
    return lambda side, runs, rng: means[side] + scales[side] * rng.standard_normal(runs)


def response(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return randomised responses with epsilon 1."""
    return (rng.random(runs) < 1 / (1 + math.exp(-1.0 if side else 1.0))).astype(float)


def geometric(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return a count with two-sided geometric noise, with epsilon 1."""
    p = 1 - math.exp(-1.0)
    return (side + rng.geometric(p, runs) - rng.geometric(p, runs)).astype(float)


# Claims that hold with equality. The Gaussian delta is the exact one for shift 1, standard deviation 1 and epsilon 1.
TRUE_CASES = {
    "Laplace": Case(laplace((1, 1), (0, 1)), 1.0),
    "Gaussian": Case(gaussian((1, 1), (0, 1)), 1.0, float(ndtr(-0.5) - math.e * ndtr(-1.5))),
    "response": Case(response, 1.0),
    "geometric": Case(geometric, 1.0),
}
# A mean of n records in [-1, 1] with noise that is scaled by the true n, 1 against 2: not private at any epsilon.
FALSE_CASES = {
    "Laplace .01": Case(laplace((200, 100), (1, 0)), 0.01, 0.0, 81),
    "Laplace .1": Case(laplace((20, 10), (1, 0)), 0.1, 0.0, 115),
    "Gaussian .01": Case(gaussian((200 * GAUSSIAN_SIGMA, 100 * GAUSSIAN_SIGMA), (1, 0)), 0.01, 1e-5, 61),
    "Gaussian .1": Case(gaussian((20 * GAUSSIAN_SIGMA, 10 * GAUSSIAN_SIGMA), (1, 0)), 0.1, 1e-5, 72),
    "half the noise": Case(laplace((0.5, 0.5), (0, 1)), 1.0),
}


def play(draw: Draw, boundary: Boundary, horizon: int, seed: int, log_threshold: float = math.inf) -> Portfolio:
    """Return the portfolio after its wealth has reached a threshold, or after `horizon` runs."""
    rng = np.random.default_rng(seed)
    portfolio = Portfolio(boundary, (1, 1))
    samples = [draw(side, FIRST_RUNS, rng).reshape(-1, 1, 1) for side in (0, 1)]
    while portfolio.runs < horizon and portfolio.log_wealth < log_threshold:
        portfolio.fit_simple(samples)
        portfolio.place()
        size = min(batch_size(portfolio.runs), horizon - portfolio.runs)
        batch = [draw(side, size, rng).reshape(-1, 1, 1) for side in (0, 1)]
        counts = [
            (count_cells(family.partition, batch[0]), count_cells(family.partition, batch[1]))
            for family in portfolio.families
        ]
        portfolio.settle(counts, size)
        if len(samples[0]) < MAX_FITTED_RUNS:
            samples = [np.concatenate(pair) for pair in zip(samples, batch, strict=True)]
    return portfolio


def misses(portfolio: Portfolio, case: Case) -> bool:
    """Return whether the confidence sequence of epsilon ever exceeds the true epsilon, which is the claimed one."""
    grid = EPSILON_GRID[: int(np.searchsorted(EPSILON_GRID, case.epsilon)) + 1]
    # The last parameter is rejected in few repetitions; only then are the others needed.
    for parameters in (grid[-1:], grid):
        wealth = log_wealth(portfolio.all_bets(), line_boundary(parameters[:, None], case.delta))
        if (wealth.max(axis=-1) < math.log(1 / ALPHA)).any():
            return False
    return True


def false_stops(seeds: int) -> None:
    """Print how often a true claim is refuted at any time, and how often the confidence sequence is wrong."""
    limit = int(binom.ppf(0.999, seeds, ALPHA))
    print(f"false stops at alpha {ALPHA}, horizon {HORIZON} runs per dataset, {seeds} seeds; at most {limit} of each")
    for name, case in TRUE_CASES.items():
        stopped = missed = 0
        for seed in range(seeds):
            portfolio = play(case.draw, line_boundary(case.epsilon, case.delta), HORIZON, seed)
            stopped += max(wealth for _, wealth in portfolio.history) >= math.log(1 / ALPHA)
            missed += misses(portfolio, case)
        print(f"  {name:<12} refuted {stopped:4d}, confidence sequence wrong {missed:4d}", flush=True)


def runs_until_refuted(seeds: int) -> None:
    """Print the mean and median number of runs until false claims are refuted."""
    print(f"runs per dataset until a false claim is refuted, {seeds} seeds: mean, median, mean / published")
    for share in (1.0, EARLY_SHARE):
        print(f"  {share:g} of alpha {ALPHA} on the wealth")
        for name, case in FALSE_CASES.items():
            boundary, threshold = line_boundary(case.epsilon, case.delta), math.log(1 / (share * ALPHA))
            runs = [play(case.draw, boundary, HORIZON, seed, threshold).runs for seed in range(seeds)]
            mean, median = np.mean(runs), np.median(runs)
            ratio = "" if math.isnan(case.published) else f"{mean / case.published:.2f}"
            print(f"    {name:<15} {mean:6.1f} {median:6.0f}   {ratio}", flush=True)


def noisy(data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return a number with Laplace noise, epsilon 1."""
    return data + rng.laplace(size=runs)


def final_bounds(seeds: int) -> None:
    """Print the distance of the final lower bound from the truth, compared with the fixed design."""
    fixed = np.array([dpv.verify(noisy, 0.0, 1.0, 1.0, seed=seed).epsilon_lower for seed in range(seeds)])
    early = [dpv.verify(noisy, 0.0, 1.0, 1.0, stop_early=True, seed=seed) for seed in range(seeds)]
    full = np.array([report.stopped == "budget" for report in early])
    lower = np.array([report.epsilon_lower for report in early])
    ratio = (1 - lower[full]).mean() / (1 - fixed[full]).mean()
    print(f"distance of epsilon_lower from 1, {full.sum()} of {seeds} seeds with the full budget: {ratio:.3f} times")
    print(f"  means {1 - lower[full].mean():.5f} and {1 - fixed[full].mean():.5f} (fixed design)")


PARTS = {
    "false-stops": (false_stops, 2000),
    "until-refuted": (runs_until_refuted, 1000),
    "final-bound": (final_bounds, 200),
}


def main() -> None:
    """Run one part or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=[*PARTS])
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args()
    for name, (part, seeds) in PARTS.items():
        if options.part in (None, name):
            part(options.seeds or seeds)


if __name__ == "__main__":
    main()
