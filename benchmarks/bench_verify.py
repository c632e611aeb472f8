"""Measures the time of a verification relative to drawing its samples.

The two are measured in turn within one run, as elapsed time. The W2-MHE of JAX draws with all cores, the other
mechanisms with one; a verification counts in a second thread. Then follow verifications with default settings, and the
time of `import dpverify`.

Run: python benchmarks/bench_verify.py (about five minutes; needs opendp).
One mechanism only: --only Laplace. Default settings only: --only default.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import dpverify as dpv
from dpverify.adapters import opendp
from dpverify.estimation import W2MHE, adjacent_recordings, oscillator
from dpverify.sampling.blocks import SampleSource, draw_block


def laplace(data, runs, rng):
    """Add Laplace noise to one number."""
    return data + rng.laplace(size=(runs, 1))


def trajectory(data, runs, rng):
    """Add Gaussian noise to every step of a trajectory."""
    return data + rng.standard_normal((runs, *data.shape))


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
    """Yield name, mechanism, datasets, test runs and further settings of each case."""
    system = oscillator()
    first, second, _ = adjacent_recordings(system, system.h, 0, 10.0, np.random.default_rng(0))
    yield "W2-MHE of the paper, JAX", W2MHE(system, 5, 0.8, 1.4e-5), first, second, 10**7, {}
    yield "Laplace noise, one number, NumPy", laplace, np.zeros(1), np.ones(1), 10**7, {}
    union = {"events": "union"}
    yield "Laplace noise, one number, NumPy, unions of cells", laplace, np.zeros(1), np.ones(1), 10**7, union
    yield "Gaussian noise, 4 steps in 2-D, NumPy", trajectory, np.zeros((4, 2)), np.full((4, 2), 0.1), 10**7, {}
    yield "OpenDP's Laplace mechanism, one call per run", opendp(make_opendp), 0.0, 1.0, 20_000, {}


def print_ratio(name, mechanism, first, second, runs, settings, rounds):
    """Print the median ratio of one case."""
    timed_verification(mechanism, first, second, test_runs=min(runs, 10**5), **settings)  # compiles and fills caches
    settings = {"test_runs": runs, "select_runs": min(runs, 50_000), **settings}
    ratios = []
    for _ in range(rounds):
        seconds, report = timed_verification(mechanism, first, second, **settings)
        ratios.append(seconds / drawing_seconds(mechanism, first, second, report))
    rate = 2 * (runs + report.settings.select_runs) / seconds
    print(f"{name}, {runs:.0e} test runs per dataset: verify / draw {statistics.median(ratios):.2f}; {rate:.3g} runs/s")


def print_default_verifications(seeds=5):
    """Print the median times of verifications with default settings, elapsed and of all cores."""
    pairs = {"one number, Laplace noise": (laplace, np.zeros(1), np.ones(1))}
    for shape in ((20, 2), (60, 1), (100, 2)):
        shift = np.full(shape, 0.3 / np.sqrt(np.prod(shape)))
        pairs[f"{shape[0]} x {shape[1]}, Gaussian noise"] = trajectory, np.zeros(shape), shift
    for name, (mechanism, first, second) in pairs.items():
        timed_verification(mechanism, first, second, seed=seeds)  # fills caches
        seconds, processor_seconds, ratios = [], [], []
        for seed in range(seeds):
            start = time.process_time()
            elapsed, report = timed_verification(mechanism, first, second, seed=seed)
            processor_seconds.append(time.process_time() - start)
            seconds.append(elapsed)
            ratios.append(elapsed / drawing_seconds(mechanism, first, second, report))
        elapsed, of_cores, ratio = map(statistics.median, (seconds, processor_seconds, ratios))
        times = f"{elapsed:.2f} s elapsed ({of_cores:.2f} s of all cores)"
        print(f"default settings, {name}: {times}, {ratio:.1f} times drawing", flush=True)


def print_import_time(rounds):
    """Print the time of `import dpverify` relative to `import numpy`, each less the start of Python."""

    def seconds(statement):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        return time.perf_counter() - start

    ratios = []
    for _ in range(3 * rounds):
        bare, one, two = seconds("pass"), seconds("import numpy"), seconds("import dpverify")
        ratios.append((two - bare) / (one - bare))
    print(f"import dpverify: {statistics.median(ratios):.1f} times import numpy")


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
    for name, mechanism, first, second, runs, settings in cases() if options.only != "default" else ():
        if options.only in name:
            print_ratio(name, mechanism, first, second, runs, settings, options.rounds)
    if options.only in ("", "default"):
        print_default_verifications()
        print_import_time(options.rounds)
    if not options.only:
        print_cost_of_cells(options.rounds)


if __name__ == "__main__":
    main()
