"""Measures the search for the worst pair of datasets: in a box of 20 dimensions, and where the leak is rare.

W2-MHE: one of ten sensors may change its 20 readings by at most RADIUS each. The exhaustive search uses a linear model
of the mean output, from half a million runs, at all corners of the box. The share of its best epsilon and the runs per
dataset of the search are printed.

SVT3: the worst two of its eight pairs have the exact epsilon 0.5. Their best event has probability 6e-5. Printed is in
how many seeds one of them is found.

Run: python benchmarks/bench_pairs.py (W2-MHE some minutes, SVT3 about 2 minutes per seed on one free core).
One of the two, and other numbers of runs: --part mhe --runs 1e5 --seeds 10.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import dpverify as dpv
from dpverify.estimation import W2MHE, GaussianTruth, oscillator, sensor_circle, simulate
from dpverify.studies.search import SearchedPairs, two_level_design
from mechanisms import ROWS

RADIUS, DELTA, MODEL_RUNS = 2.0, 0.01, 8192
MHE_RUNS, SVT_RUNS = 1e5, 5e6
WORST_SVT_PAIRS = (5, 6)


class Counted:
    """A mechanism that counts its runs."""

    def __init__(self, mechanism):
        self.mechanism, self.block, self.runs = mechanism, getattr(mechanism, "block", None), 0

    def __call__(self, data, runs, rng):
        self.runs += runs
        return self.mechanism(data, runs, rng)


def find(mechanism, pairs, delta, runs, seed, test_runs):
    """Search without a verification; return the label of the worst pair, the runs per dataset and the seconds."""
    counted, start = Counted(mechanism), time.perf_counter()
    settings = dpv.Settings(test_runs=test_runs, seed=seed)
    found = SearchedPairs.of(pairs, None).find_worst(counted, delta, None, runs, settings, None)
    return found.label, counted.runs / 2, time.perf_counter() - start


def squared_distance(mechanism, ball):
    """Return the matrix Q of the squared Mahalanobis distance theta' Q theta of the two mean outputs of a pair."""
    design, means, covariances = two_level_design(len(ball.bounds)), [], []
    for number, signs in enumerate(design):
        runs = np.asarray(mechanism(ball(signs)[1], MODEL_RUNS, np.random.default_rng(number)))
        runs = runs.reshape(MODEL_RUNS, -1)
        means.append(runs.mean(0))
        covariances.append(np.cov(runs.T))
    jacobian = design.T @ np.array(means) / len(design)
    return jacobian @ np.linalg.solve(np.mean(covariances, axis=0), jacobian.T)


def epsilon_at(theta, squared):
    """Return the epsilon of the pair at a point of the box, by the linear model."""
    mu = float(np.sqrt(theta @ squared @ theta))
    return GaussianTruth(np.zeros((1, 1)), np.ones((1, 1)), np.eye(1), mu=mu).epsilon(DELTA)


def print_mhe(runs, seeds):
    """Print the share of the best epsilon that each seed finds."""
    system = oscillator(sensor_circle(10))
    data = simulate(system, np.random.default_rng(0), steps=9).data
    mechanism = W2MHE(system, window=5, s=0.8, tau=1.4e-5)
    ball = dpv.neighbours.ball(data, RADIUS, "inf", np.s_[:, :2])
    squared = squared_distance(mechanism, ball)
    dimension = len(ball.bounds)
    corners = 2.0 * (np.arange(1 << (dimension - 1))[:, None] >> np.arange(dimension) & 1) - 1
    best = corners[np.argmax(np.einsum("ij,ij->i", corners @ squared, corners))]
    largest = epsilon_at(best, squared)
    print(f"W2-MHE, {dimension} dimensions; best of {len(corners)} corners: epsilon {largest:.3f} at delta {DELTA}")
    for seed in seeds:
        label, drawn, seconds = find(mechanism, ball, DELTA, runs, seed, 200_000)
        share = epsilon_at(np.array(label), squared) / largest
        print(f"  seed {seed}: {share:.3f} of it from {drawn:.3g} runs per dataset, {seconds:.0f} s", flush=True)


def print_svt(runs, seeds):
    """Print in how many seeds a worst pair of SVT3 is found."""
    row, hits = next(row for row in ROWS if row.name == "SVT3"), 0
    print(f"SVT3, {len(row.pairs)} pairs; worst ones: {WORST_SVT_PAIRS}")
    for seed in seeds:
        label, drawn, seconds = find(row.mechanism, row.pairs, 0.0, runs, 100 * seed, 20_000_000)
        hits += label in WORST_SVT_PAIRS
        print(f"  seed {seed}: pair {label} from {drawn:.3g} runs per dataset, {seconds:.0f} s", flush=True)
    print(f"  a worst pair is found in {hits} of {len(seeds)} seeds")


def main():
    """Print both parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["mhe", "svt"])
    parser.add_argument("--runs", type=float, help="runs per dataset of one search")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if options.part != "svt":
        print_mhe(int(options.runs or MHE_RUNS), seeds)
    if options.part != "mhe":
        print_svt(int(options.runs or SVT_RUNS), seeds)


if __name__ == "__main__":
    main()
