"""Measures the check that runs are independent: dependent mechanisms that it finds, and independent ones that it voids.

The first part verifies mechanisms whose runs share noise within a block, or a part of whose noise has a fixed seed. The
second part calls the check alone on counts of independent runs, which are binomial whatever the mechanism is, and makes
small verifications of the mechanisms of tests/support/known.py.

Run: python benchmarks/bench_dependence.py [--part NAME] [--seeds N] (the parts take minutes each on one core).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

import dpverify as dpv
from dpverify.sampling.count import (
    MAX_CHECKED_COORDINATES,
    NO_LEVELS,
    POSITIONS,
    EventTables,
    runs_are_dependent,
)

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))
from known import KNOWN

SHARED = 0.05  # of the standard deviation
DELTA = 0.12693  # of Gaussian noise with shift 1 at epsilon 1: nothing is decided before the budget is spent
# Blocks of the default size, of few runs, and of the growing batches of a verification that may stop early.
BLOCK_SIZES = (
    np.full(98, 2048),
    np.full(25, 64),
    np.repeat(2 ** np.arange(2, 11), 12),
)
SMALL = {
    "fixed": dpv.Settings(select_runs=200, test_runs=1600),
    "stop_early": dpv.Settings(select_runs=128, test_runs=600, stop_early=True),
}


def one_noise_per_call(data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return one noisy number, repeated."""
    return np.full(runs, data + rng.laplace())


def shared_noise(data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return Gaussian noise of which a small part is shared by all runs of a call."""
    return data + SHARED * rng.standard_normal() + np.sqrt(1 - SHARED**2) * rng.standard_normal(runs)


def reused_noise(data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return Laplace noise; a call draws 1024 numbers and uses them again."""
    return data + np.resize(rng.laplace(size=1024), runs)


def fixed_mask(data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return randomised answers; which of them are true is drawn with a fixed seed."""
    is_true = np.random.default_rng(42).random(runs) < np.tanh(0.5)
    return np.where(is_true, data, rng.integers(2, size=runs))


def is_called_dependent(report: dpv.Report) -> bool:
    """Return whether the report is void because its runs are dependent."""
    return any(diagnostic.name == "DEPENDENT_RUNS" for diagnostic in report.voiding)


def dependent(seeds: int) -> None:
    """Print in how many seeds mechanisms with dependent runs have no answer, with the default numbers of runs."""
    print("dependent runs, default numbers of runs: voided as dependent, of seeds, mean runs per dataset")
    for mechanism in (one_noise_per_call, shared_noise, reused_noise, fixed_mask):
        for stop_early, number in ((False, seeds), (True, max(seeds // 5, 1))):
            reports = [
                dpv.verify(mechanism, 0.0, 1.0, 1.0, DELTA, seed=seed, stop_early=stop_early) for seed in range(number)
            ]
            void = sum(map(is_called_dependent, reports))
            runs = np.mean([report.runs_used or report.witness.runs for report in reports])
            kind = "stop_early" if stop_early else "fixed"
            print(f"  {mechanism.__name__:<20} {kind:<11} {void:4d} of {number:4d} {runs:9.0f}", flush=True)


def checked_runs(sizes: np.ndarray, probabilities: np.ndarray, rng: np.random.Generator) -> EventTables:
    """Return what the check counts in blocks of independent runs; the counts of an event are binomial."""
    at_positions = (sizes[:, None] + POSITIONS - 1 - np.arange(POSITIONS)) // POSITIONS
    cells = rng.binomial(at_positions[:, :, None], probabilities)
    counts = np.concatenate([at_positions[:, :, None], cells], axis=2)
    return EventTables(counts.sum(1), counts.sum(0), NO_LEVELS)


def independent(seeds: int) -> None:
    """Print how often independent runs are called dependent: by the check alone, and by small verifications."""
    rng, void = np.random.default_rng(1), 0
    for seed in range(seeds):
        sizes = BLOCK_SIZES[seed % len(BLOCK_SIZES)]
        tested = rng.choice([0.001, 0.005, 0.05, 0.3, 0.9, 0.995])
        simple = rng.uniform(0.3, 0.7, MAX_CHECKED_COORDINATES)  # medians of few first runs are not exact
        sides = ([checked_runs(sizes, np.append(simple, tested), rng)] for _ in range(2))
        void += runs_are_dependent(*sides)
    print(f"independent runs, the check on binomial block counts: {void} of {seeds} called dependent", flush=True)
    total = void = 0
    for kind, settings in SMALL.items():
        for name, case in KNOWN.items():
            for seed in range(max(seeds // 400, 1)):
                epsilon = 0.0 if name == "deaf" else 0.5
                report = dpv.verify(case.mechanism, 0.0, 1.0, epsilon, settings=settings, seed=seed)
                void += is_called_dependent(report)
                total += 1
        print(f"  small verifications: {void} of {total} called dependent after {kind}", flush=True)


PARTS = {"dependent": (dependent, 100), "independent": (independent, 10_000)}


def main() -> None:
    """Run one part or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=[*PARTS])
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore", dpv.DPVerifyWarning)
    for name, (part, seeds) in PARTS.items():
        if options.part in (None, name):
            part(options.seeds or seeds)


if __name__ == "__main__":
    main()
