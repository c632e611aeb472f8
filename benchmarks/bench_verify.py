"""What a verification costs beside drawing its samples, and what very many cells cost beside few.

Each ratio is taken within one run: the machine's mood is in both of its sides.
"""

from __future__ import annotations

import resource
import statistics
import time

import numpy as np

import dpverify as dpv


def laplace(data, runs, rng):
    return data + rng.laplace(size=(runs, 1))


def trajectory(data, runs, rng):
    return data + rng.standard_normal((runs, 4, 2))


def drawing(mechanism, data, runs, block=1 << 16):
    """Seconds for drawing so many runs a side with NumPy, in the same blocks."""
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    for _ in range(2 * runs // block):
        mechanism(data, block, rng)
    return time.perf_counter() - start


def verifying(mechanism, first, second, **settings):
    start = time.perf_counter()
    report = dpv.verify(mechanism, first, second, 1.0, **settings)
    return time.perf_counter() - start, report


def main():
    runs = 10**7
    for name, mechanism, first, second in (
        ("Laplace, 1-D", laplace, np.zeros(1), np.ones(1)),
        ("4 steps in 2-D", trajectory, np.zeros((4, 2)), np.full((4, 2), 0.1)),
    ):
        ratios = []
        for _ in range(3):
            bare = drawing(mechanism, first, runs)
            seconds, _ = verifying(mechanism, first, second, test_runs=runs)
            ratios.append(seconds / bare)
        print(f"{name}: verify / draw, 10^7 runs a side: {statistics.median(ratios):.2f}")
    few, many = [], []
    data = np.zeros((4, 2)), np.full((4, 2), 0.1)
    for _ in range(3):
        for resolution, times in ((2, few), (10, many)):
            runs = {"select_runs": 10**6, "test_runs": 10**6}
            seconds, report = verifying(
                trajectory,
                *data,
                partition="grid",
                resolution=resolution,
                events="union",
                **runs,
            )
            times.append(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    ratio = statistics.median(m / f for m, f in zip(many, few, strict=True))
    print(f"{report.on_partition.cells} cells against 257, 10^6 runs: {ratio:.2f} times as long; peak {peak:.2f} GB")


if __name__ == "__main__":
    main()
