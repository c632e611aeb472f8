"""Measures the check that runs are independent: dependent mechanisms that it finds, and independent ones that it voids.

The first part verifies two mechanisms whose runs share noise within a block, with the default numbers of runs. The
second part draws independent runs of the mechanisms of tests/support/known.py: it calls the check alone, on as many
blocks as a verification of the default size has, and makes some small verifications.

Run: python benchmarks/bench_dependence.py [--part NAME] [--seeds N] (the parts take minutes each on one core).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

import dpverify as dpv
from dpverify.events.event import Event
from dpverify.events.scores import Levels, Linear
from dpverify.mechanisms.protocol import Mechanism
from dpverify.sampling.block_counts import MAX_CHECKED_RUNS, BlockChecker, BlockCounts, runs_are_dependent
from dpverify.sampling.blocks import default_block_size

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))
from known import KNOWN

SHARED = 0.05  # of the standard deviation
DELTA = 0.12693  # of Gaussian noise with shift 1 at epsilon 1: nothing is decided before the budget is spent
SMALL = {"fixed": {"select_runs": 200, "test_runs": 1600}, "stop_early": {"select_runs": 128, "test_runs": 600}}


def one_noise_per_call(data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return one noisy number, repeated."""
    return np.full(runs, data + rng.laplace())


def shared_noise(data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return Gaussian noise of which a small part is shared by all runs of a call."""
    return data + SHARED * rng.standard_normal() + np.sqrt(1 - SHARED**2) * rng.standard_normal(runs)


def is_called_dependent(report: dpv.Report) -> bool:
    """Return whether the report is void because its runs are dependent."""
    return any(diagnostic.name == "DEPENDENT_RUNS" for diagnostic in report.voiding)


def dependent(seeds: int) -> None:
    """Print in how many seeds mechanisms with dependent runs have no answer, with the default numbers of runs."""
    print("dependent runs, default numbers of runs: voided as dependent, of seeds, mean runs per data set")
    for mechanism in (one_noise_per_call, shared_noise):
        for options, number in (({}, seeds), ({"stop_early": True}, max(seeds // 5, 1))):
            reports = [dpv.verify(mechanism, 0.0, 1.0, 1.0, DELTA, seed=seed, **options) for seed in range(number)]
            void = sum(map(is_called_dependent, reports))
            runs = np.mean([report.runs_used or report.witness.runs for report in reports])
            kind = "stop_early" if options else "fixed"
            print(f"  {mechanism.__name__:<20} {kind:<11} {void:4d} of {number:4d} {runs:9.0f}", flush=True)


def checked_blocks(mechanism: Mechanism, side: int, checker: BlockChecker, rng: np.random.Generator) -> BlockCounts:
    """Return the counts of the blocks that a verification with the default number of test runs checks."""
    block = default_block_size(dpv.Settings().test_runs)
    blocks = range(dpv.Settings().test_runs // block)
    samples = (as_runs(mechanism(float(side), min(block, MAX_CHECKED_RUNS), rng)) for _ in blocks)
    return BlockCounts.merge(
        [checker.measure_block(number, runs) for number, runs in zip(blocks, samples, strict=True)]
    )


def as_runs(output: ArrayLike) -> np.ndarray:
    """Return an output with steps and dimensions."""
    runs = np.asarray(output, float)
    return runs.reshape(len(runs), -1, 1)


def independent(seeds: int) -> None:
    """Print how often independent runs are called dependent: by the check alone, and by small verifications."""
    total = void = 0
    for number, (name, case) in enumerate(KNOWN.items()):
        for seed in range(seeds):
            rng = np.random.default_rng((seed, number))
            pilot = as_runs(case.mechanism(0.0, 1000, rng))
            score = Linear(np.eye(1, pilot[0].size)[0])
            edge = np.quantile(pilot[:, 0, 0], rng.choice([0.005, 0.1, 0.5, 0.9, 0.995]))
            checker = BlockChecker.make(Event(Levels(score, np.array([edge])), np.array([1]), 0), pilot)
            void += runs_are_dependent(*(checked_blocks(case.mechanism, side, checker, rng) for side in (0, 1)))
            total += 1
        print(f"  the check at default size: {void} of {total} after {name}", flush=True)
    total = void = 0
    for kind, runs in SMALL.items():
        for name, case in KNOWN.items():
            for seed in range(max(seeds // 50, 1)):
                epsilon, stops = 0.0 if name == "deaf" else 0.5, kind == "stop_early"
                report = dpv.verify(case.mechanism, 0.0, 1.0, epsilon, seed=seed, stop_early=stops, **runs)
                void += is_called_dependent(report)
                total += 1
        print(f"  small verifications: {void} of {total} after {kind}", flush=True)


PARTS = {"dependent": (dependent, 100), "independent": (independent, 1250)}


def main() -> None:
    """Run one part or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=[*PARTS])
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore", dpv.Warning)
    for name, (part, seeds) in PARTS.items():
        if options.part in (None, name):
            part(options.seeds or seeds)


if __name__ == "__main__":
    main()
