"""Measures memory and disk space of a verification; neither may grow with the number of runs.

One-dimensional Laplace noise is verified with a hundredth of the runs, then with all of them. Each size has its own
process. Resident memory is the sum of the peaks of this process and of its workers.

With --large, outputs of 200 x 50 and of 1000 x 6 numbers are verified instead, with 20 000 selection and test runs.

Run: python benchmarks/bench_memory.py (10^8 runs per dataset; about a minute).
More runs, in two threads instead of two processes: --runs 1e9 --threads.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import dpverify as dpv

WORKERS = 2
LARGE_SHAPES = ((200, 50), (1000, 6))
LARGE_RUNS = 20_000


def laplace(data, runs, rng):
    """Add Laplace noise to one number."""
    return data + rng.laplace(size=(runs, 1))


def peak_gigabytes(who):
    """Return the peak resident memory; Linux counts it in kilobytes."""
    return resource.getrusage(who).ru_maxrss / (1 << 20)


def measure(runs, threads):
    """Verify in this process; return seconds, peak memory, bytes on disk and the bound."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with ThreadPoolExecutor(WORKERS) as pool:
            executor = pool if threads else WORKERS
            report = dpv.verify(laplace, 0.0, 1.0, 1.0, test_runs=runs, executor=executor, folder=folder)
        seconds = time.perf_counter() - start
        disk = sum(path.stat().st_size for path in Path(folder).iterdir())
    workers = 0 if threads else WORKERS * peak_gigabytes(resource.RUSAGE_CHILDREN)
    resident = peak_gigabytes(resource.RUSAGE_SELF) + workers
    return {"seconds": seconds, "resident": resident, "disk": disk, "epsilon": report.epsilon_lower}


def measure_large(shape):
    """Verify Gaussian noise on a large output in this process; return seconds, peak memory and the bound."""

    def gaussian(data, runs, rng):
        return data + rng.standard_normal((runs, *shape))

    start = time.perf_counter()
    report = dpv.verify(gaussian, np.zeros(1), np.full(1, 0.01), 1.0, test_runs=LARGE_RUNS, select_runs=LARGE_RUNS)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "resident": peak_gigabytes(resource.RUSAGE_SELF), "epsilon": report.epsilon_lower}


def print_large():
    """Measure every large output in a new process."""
    for shape in LARGE_SHAPES:
        command = [sys.executable, __file__, "--shape", *map(str, shape)]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"output of {shape[0]} x {shape[1]}: {result['seconds']:.0f} s, {result['resident']:.2f} GB resident, "
            f"epsilon >= {result['epsilon']:.3f}",
            flush=True,
        )


def main():
    """Measure both sizes in new processes, and print them with their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=float, default=1e8, help="test runs per dataset")
    parser.add_argument("--threads", action="store_true", help="two threads instead of two processes")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--large", action="store_true", help="large outputs")
    parser.add_argument("--shape", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.shape:
        print(json.dumps(measure_large(tuple(options.shape))))
        return
    if options.large:
        print_large()
        return
    if options.one:
        print(json.dumps(measure(int(options.runs), options.threads)))
        return
    results = []
    for runs in (options.runs / 100, options.runs):
        command = [sys.executable, __file__, "--one", "--runs", str(runs), *["--threads"] * options.threads]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        results.append(result)
        print(
            f"{runs:.0e} runs per dataset: {result['seconds']:.1f} s, {result['resident']:.3f} GB resident, "
            f"{result['disk'] / 1e3:.0f} kB on disk, epsilon >= {result['epsilon']:.5f}",
            flush=True,
        )
    memory, disk = (results[1][name] / results[0][name] for name in ("resident", "disk"))
    print(f"a hundred times the runs: {memory:.2f} times the memory, {disk:.2f} times the disk space")


if __name__ == "__main__":
    main()
