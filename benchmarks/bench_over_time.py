"""Measures `privacy_over_time` on private Kalman filters, whose exact privacy is known for every prefix.

Part `share`: each lower bound divided by the bound that the true likelihood ratio of the prefix gives on the same test
runs, at level alpha / K. Part `misses`: in how many of many seeds any lower bound exceeds the exact epsilon. Part
`cost`: processor time relative to one verification of the whole output.

Run: python benchmarks/bench_over_time.py [--part NAME] [--seeds N] [--runs N] [--where input|output] [--first-seed N]
     [--record N] (all parts: an hour)
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

import dpverify as dpv
from dpverify.estimation import GaussianTruth, Normal, PrivateKalman, System
from dpverify.events.prefix_scores import LinearPrefixes
from dpverify.over_time import PrefixEvents, count_test_runs, plan_looks
from dpverify.sampling.count import BlockChecker
from dpverify.sampling.probe import check_mechanism, open_run
from dpverify.stats.exact import epsilon_lower_bound

ALPHA = 0.05
DELTA = 0.01
STEPS = 20
RECORDS = ((2, 0), (2, 1), (2, 2), (8, 0), (8, 2), (14, 1))  # (step, sensor)
SCALES = {"output": 0.6, "input": 1.5}


def make_filter(where: str) -> tuple[PrivateKalman, np.ndarray]:
    """Return a filter of position and speed with three sensors, and recorded data of 20 steps."""
    system = System(
        A=[[1.0, 0.1], [0.0, 0.95]],
        C=[[1.0, 0.0], [1.0, 0.5], [0.0, 1.0]],
        start=(0.0, 0.0),
        noise=Normal(0.5),
        disturbance=Normal(0.3),
        initial=Normal(1.0),
    )
    data = np.random.default_rng(0).normal(size=(STEPS, 3))
    return PrivateKalman(system, SCALES[where], where=where), data


def make_pairs(data: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the six records: single readings, changed by 2."""
    pairs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for step, sensor in RECORDS:
        pairs |= dpv.neighbours.one_reading(data, 2.0, [step], [sensor])
    return pairs


def best_threshold(mu: float, runs: int, delta: float, alpha: float) -> float:
    """Return the threshold t of {T > t}, T from N(mu, 1) or N(0, 1), with the largest expected lower bound."""
    t = np.linspace(-4.0, mu + 5.0, 4000)
    p1, p2 = ndtr(mu - t), ndtr(-t)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt((p1 * (1 - p1) / (p1 - delta) ** 2 + (1 - p2) / p2) / runs)
        bound = np.where(p1 > delta, np.log((p1 - delta) / p2) + ndtri(alpha) * error, -np.inf)
    return float(t[np.nanargmax(bound)])


def true_ratio_events(truth: GaussianTruth, runs: int, delta: float, alpha: float) -> PrefixEvents:
    """Return for every prefix the best event of the true likelihood ratio."""
    steps, dimension = truth.first.shape
    weights, thresholds = np.zeros((steps * dimension, steps)), np.zeros(steps)
    for k in range(steps):
        size, prefix = (k + 1) * dimension, truth.prefix(k + 1)
        shift = (prefix.first - prefix.second).ravel()
        if prefix.mu > 0:
            weights[:size, k] = np.linalg.lstsq(prefix.covariance, shift, rcond=1e-12)[0] / prefix.mu
            centre = weights[:size, k] @ prefix.second.ravel()
            thresholds[k] = centre + best_threshold(prefix.mu, runs, delta, alpha)
    zeros = np.zeros(steps, np.int64)
    return PrefixEvents((LinearPrefixes(weights),), zeros, zeros, thresholds, thresholds[:, None], zeros == 0)


def true_ratio_bounds(mechanism: Any, result: dpv.PrivacyOverTime, first: Any, second: Any) -> np.ndarray:
    """Return the lower bounds that the true likelihood ratios give on the test runs of a result."""
    runs, alpha = result.runs, ALPHA / result.steps
    events = true_ratio_events(mechanism.truth(first, second), runs, result.delta, alpha)
    call = {"delta": result.delta, "over time": True}
    with open_run(mechanism, first, second, result.settings, None, False, None, call) as run:
        check_mechanism(run)
        checker = BlockChecker.make((events,), np.zeros((2, *result.shape)))
        ((counts, *_),) = count_test_runs(run, checker, plan_looks(run.settings))
    above = counts[:, :, 1]
    bounds = [epsilon_lower_bound(int(a), int(b), runs, result.delta, alpha) for a, b in above.T]
    return np.maximum.accumulate(bounds)


def measure_shares(where: str, seeds: range, runs: int, delta: float, records: slice) -> None:
    """Print for each record the smallest share over the steps, of the median over the seeds."""
    mechanism, data = make_filter(where)
    for record, (first, second) in list(make_pairs(data).items())[records]:
        shares, differences = [], []
        for seed in seeds:
            result = dpv.privacy_over_time(
                mechanism, first, second, delta, select_runs=runs // 4, test_runs=runs, seed=seed
            )
            best = true_ratio_bounds(mechanism, result, first, second)
            with np.errstate(divide="ignore", invalid="ignore"):
                shares.append(np.where(best > 0, result.epsilon_lower / best, 1.0))
            assert result.truth is not None
            finite = np.isfinite(result.truth)
            differences.append(float(np.abs(result.epsilon_lower - result.truth)[finite].max(initial=0.0)))
        median = np.median(shares, axis=0)
        step = int(np.argmin(median))
        text = f"smallest share {median[step]:.3f} at step {step}, single seeds from {np.min(shares):.3f}"
        print(
            f"{where}, {record}, delta {delta:g}: {text}; exact minus proved at most {max(differences):.3f}", flush=True
        )


def count_misses(where: str, seeds: range, delta: float) -> None:
    """Print in how many seeds the lower bound of any step exceeds the exact epsilon."""
    mechanism, data = make_filter(where)
    first, second = make_pairs(data)["reading 2 of sensor 0"]
    missed = 0
    for seed in seeds:
        result = dpv.privacy_over_time(mechanism, first, second, delta, select_runs=10_000, test_runs=20_000, seed=seed)
        assert result.truth is not None
        missed += bool((result.epsilon_lower > result.truth + 1e-12).any())
    most = int(binom.isf(0.001, len(seeds), ALPHA))
    print(
        f"{where}, seeds {seeds.start} to {seeds.stop - 1}: {missed} of {len(seeds)} with a false lower bound at any "
        f"step (99.9% limit at {ALPHA}: {most})",
        flush=True,
    )


def compare_cost(where: str, runs: int, delta: float) -> None:
    """Print the processor time of all prefixes relative to one verification of the whole output."""
    mechanism, data = make_filter(where)
    first, second = make_pairs(data)["reading 2 of sensor 0"]
    ratios = []
    for seed in range(3):
        seconds = []
        for measure in (dpv.privacy_over_time, dpv.verify):
            start = time.process_time()
            report = measure(mechanism, first, second, delta=delta, select_runs=runs // 4, test_runs=runs, seed=seed)
            assert np.all(report.epsilon_lower >= 0)
            seconds.append(time.process_time() - start)
        ratios.append(seconds[0] / seconds[1])
    print(f"{where}, {runs:g} test runs: all {STEPS} prefixes / one verification {np.median(ratios):.2f}", flush=True)


def main() -> None:
    """Run the parts that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=("share", "misses", "cost"))
    parser.add_argument("--where", choices=("input", "output"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--record", type=int, help="only this one of the six records")
    parser.add_argument("--runs", type=float, default=1e6)
    parser.add_argument("--delta", type=float, default=DELTA)
    options = parser.parse_args()
    seeds, runs = range(options.first_seed, options.first_seed + options.seeds), int(options.runs)
    for where in (options.where,) if options.where else ("output", "input"):
        if options.part in (None, "cost"):
            compare_cost(where, runs, options.delta)
        if options.part in (None, "share"):
            one = options.record
            measure_shares(where, seeds, runs, options.delta, slice(None) if one is None else slice(one, one + 1))
        if options.part in (None, "misses"):
            count_misses(where, seeds, options.delta)


if __name__ == "__main__":
    main()
