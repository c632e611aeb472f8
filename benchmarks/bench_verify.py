"""What a verification costs beside drawing its samples and doing nothing with them.

Each ratio is taken within one run, by turns: the machine's mood is in both of its sides. Seconds on the clock; the
W2-MHE of JAX keeps all cores busy, the others one.
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
    return data + rng.laplace(size=(runs, 1))


def trajectory(data, runs, rng):
    return data + rng.standard_normal((runs, 4, 2))


def make_opendp():
    """OpenDP's own mechanism, one call a run."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=1.0)


def bare(mechanism, first, second, report):
    """Seconds for drawing as many runs as a verification drew, in the same blocks."""
    settings = report.settings
    source = SampleSource(mechanism, (first, second), 1, settings.block)
    start = time.perf_counter()
    for b in range(-(-(settings.select_runs + settings.test_runs) // settings.block)):
        for side in (0, 1):
            draw_block(source, "test", side, b)
    return time.perf_counter() - start


def verifying(mechanism, first, second, **settings):
    start = time.perf_counter()
    report = dpv.verify(mechanism, first, second, 1.0, **settings)
    return time.perf_counter() - start, report


def cases():
    system = oscillator()
    first, second, _ = adjacent_recordings(system, system.h, 0, 10.0, np.random.default_rng(0))
    yield "W2-MHE of the paper, JAX", W2MHE(system, 5, 0.8, 1.4e-5), first, second, 10**7
    yield "Laplace noise, one number, NumPy", laplace, np.zeros(1), np.ones(1), 10**7
    yield "Gaussian noise, 4 steps in 2-D, NumPy", trajectory, np.zeros((4, 2)), np.full((4, 2), 0.1), 10**7
    yield "OpenDP's Laplace mechanism, one call a run", opendp_measurement(make_opendp), 0.0, 1.0, 20_000


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", default="", help="cases whose name holds this")
    options = options.parse_args()
    for name, mechanism, first, second, runs in cases():
        if options.only not in name:
            continue
        _, report = verifying(mechanism, first, second, test_runs=min(runs, 10**5))  # warm
        ratios = []
        for _ in range(options.rounds):
            seconds, report = verifying(mechanism, first, second, test_runs=runs, select_runs=min(runs, 50_000))
            ratios.append(seconds / bare(mechanism, first, second, report))
        rate = 2 * (runs + report.settings.select_runs) / seconds
        print(f"{name}, {runs:.0e} test runs a side: verify / draw {statistics.median(ratios):.2f}; {rate:.3g} runs/s")
    few, many = [], []
    data = np.zeros((4, 2)), np.full((4, 2), 0.1)
    for _ in range(options.rounds if not options.only else 0):
        for resolution, times in ((2, few), (10, many)):
            runs = {"select_runs": 10**6, "test_runs": 10**6}
            grid = {"partition": "grid", "resolution": resolution, "events": "union"}
            seconds, report = verifying(trajectory, *data, **grid, **runs)
            times.append(seconds)
    if many:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        ratio = statistics.median(m / f for m, f in zip(many, few, strict=True))
        print(
            f"{report.on_partition.cells} cells against 257, 10^6 runs: {ratio:.2f} times as long; peak {peak:.2f} GB"
        )


if __name__ == "__main__":
    main()
