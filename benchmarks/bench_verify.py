"""Measures the time of a verification relative to drawing its samples.

The two are measured in turn within one run, as elapsed time. The W2-MHE of JAX uses all cores, the other mechanisms
one.

Run: python benchmarks/bench_verify.py (about five minutes; needs opendp).
One mechanism only: --only Laplace.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import dpverify as dpv
from dpverify.adapters import opendp_measurement
from dpverify.estimation import W2MHE, adjacent_recordings, oscillator
from dpverify.sampling.blocks import SampleSource, draw_block


def laplace(data, runs, rng):
    """Add Laplace noise to one number."""
    return data + rng.laplace(size=(runs, 1))


def trajectory(data, runs, rng):
    """Add Gaussian noise to four steps in two dimensions."""
    return data + rng.standard_normal((runs, 4, 2))


def make_opendp():
    """Build OpenDP's Laplace mechanism, which draws one run per call."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=1.0)


def drawing_seconds(mechanism, first, second, report):
    """Return the time to draw as many runs as the verification drew, in the same blocks."""
    settings = report.settings
    source = SampleSource(mechanism, (first, second), 1, settings.block)
    start = time.perf_counter()
    for number in range(-(-(settings.select_runs + settings.test_runs) // settings.block)):
        for side in (0, 1):
            draw_block(source, "test", side, number)
    return time.perf_counter() - start


def timed_verification(mechanism, first, second, **settings):
    """Return the time of a verification, and its report."""
    start = time.perf_counter()
    report = dpv.verify(mechanism, first, second, 1.0, **settings)
    return time.perf_counter() - start, report


def cases():
    """Yield name, mechanism, data sets and test runs of each case."""
    system = oscillator()
    first, second, _ = adjacent_recordings(system, system.h, 0, 10.0, np.random.default_rng(0))
    yield "W2-MHE of the paper, JAX", W2MHE(system, 5, 0.8, 1.4e-5), first, second, 10**7
    yield "Laplace noise, one number, NumPy", laplace, np.zeros(1), np.ones(1), 10**7
    yield "Gaussian noise, 4 steps in 2-D, NumPy", trajectory, np.zeros((4, 2)), np.full((4, 2), 0.1), 10**7
    yield "OpenDP's Laplace mechanism, one call per run", opendp_measurement(make_opendp), 0.0, 1.0, 20_000


def print_ratio(name, mechanism, first, second, runs, rounds):
    """Print the median ratio of one case."""
    timed_verification(mechanism, first, second, test_runs=min(runs, 10**5))  # compiles and fills caches
    ratios = []
    for _ in range(rounds):
        seconds, report = timed_verification(mechanism, first, second, test_runs=runs, select_runs=min(runs, 50_000))
        ratios.append(seconds / drawing_seconds(mechanism, first, second, report))
    rate = 2 * (runs + report.settings.select_runs) / seconds
    print(
        f"{name}, {runs:.0e} test runs per data set: verify / draw {statistics.median(ratios):.2f}; {rate:.3g} runs/s"
    )


def print_cost_of_cells(rounds):
    """Print how much longer a verification with 10^8 cells takes than one with 257."""
    seconds_of = {2: [], 10: []}  # by the resolution of the grid
    data = np.zeros((4, 2)), np.full((4, 2), 0.1)
    sizes = {"select_runs": 10**6, "test_runs": 10**6}
    for _ in range(rounds):
        for resolution, times in seconds_of.items():
            grid = {"partition": "grid", "resolution": resolution, "events": "union"}
            seconds, report = timed_verification(trajectory, *data, **grid, **sizes)
            times.append(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    ratio = statistics.median(many / few for few, many in zip(seconds_of[2], seconds_of[10], strict=True))
    print(f"{report.on_partition.cells} cells against 257, 10^6 runs: {ratio:.2f} times as long; peak {peak:.2f} GB")


def main():
    """Print the ratio of each case, then the cost of cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    options = parser.parse_args()
    for name, mechanism, first, second, runs in cases():
        if options.only in name:
            print_ratio(name, mechanism, first, second, runs, options.rounds)
    if not options.only:
        print_cost_of_cells(options.rounds)


if __name__ == "__main__":
    main()
