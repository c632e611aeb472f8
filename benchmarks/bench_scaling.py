"""Measures how the cost of a verification grows with runs, cells, steps K, coordinates d and workers.

The cost is the processor time of all cores. It is printed in seconds, and relative to drawing the same runs (pilot,
selection and test runs) in the same process. The growth compares the largest with the smallest size: the cost grows at
most linearly where it is multiplied by no more than the size. The number of pilot runs grows with the square of d,
because the region around them has so many parameters; so the growth between two large d may exceed that of d.

For workers the figure is the elapsed time of one process, which counts in a second thread already, divided by the
elapsed time with so many threads.

Run: python benchmarks/bench_scaling.py (about a quarter of an hour). A part: --only steps.
A figure too, as scaling.png: --out docs/figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import dpverify as dpv
from dpverify.sampling.blocks import SampleSource, draw_block
from dpverify.sampling.probe import plan_pilot

ROUNDS = 3


def gaussian(data, runs, rng):
    """Add Gaussian noise to an array."""
    return data + rng.standard_normal((runs, *data.shape))


def slow_gaussian(data, runs, rng):
    """Draw ten times as many random numbers as needed, so that a second worker is useful."""
    return data + np.mean(rng.standard_normal((10, runs, *data.shape)), axis=0)


class Cost(NamedTuple):
    """The processor time of a verification and of drawing its runs, in seconds."""

    verification: float
    drawing: float

    @property
    def ratio(self):
        """The time of the verification relative to drawing."""
        return self.verification / self.drawing


def verification_cost(shape, test_runs, rounds=ROUNDS, **settings):
    """Return the cost of a verification, the median over rounds by its ratio to drawing."""
    data = np.zeros(shape), np.full(shape, 0.3 / np.sqrt(np.prod(shape)))
    dpv.verify(gaussian, *data, test_runs=1000, select_runs=1000)  # imports
    costs = []
    for _ in range(rounds):
        start = time.process_time()
        report = dpv.verify(gaussian, *data, test_runs=test_runs, **settings)
        middle = time.process_time()
        block = report.settings.block
        source = SampleSource(gaussian, data, 1, block)
        pilot_runs = plan_pilot(report.settings, (1, *shape)[-2:]).pilot_runs
        for number in range(-(-(pilot_runs + report.settings.select_runs + test_runs) // block)):
            for side in (0, 1):
                draw_block(source, "test", side, number)
        costs.append(Cost(middle - start, time.process_time() - middle))
    return sorted(costs, key=lambda cost: cost.ratio)[rounds // 2]


def speed_up(executor):
    """Return the time with one process divided by the time with this executor, the median over rounds."""
    data = np.zeros((4, 2)), np.full((4, 2), 0.1)
    ratios = []
    for _ in range(ROUNDS):
        seconds = []
        for used in (None, executor):
            start = time.perf_counter()
            dpv.verify(slow_gaussian, *data, test_runs=4_000_000, executor=used)
            seconds.append(time.perf_counter() - start)
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios)


def measure(only):
    """Yield the label of each axis whose name contains a text, and its points (x, cost)."""
    grid = {"partition": "grid", "events": "union", "select_runs": 200_000}
    few = {"test_runs": 20_000, "select_runs": 20_000}
    axes = {
        "runs per dataset": ((10**4, 10**5, 10**6, 10**7), lambda runs: verification_cost((4, 2), runs)),
        "runs per dataset (one number)": ((10**4, 10**6, 10**7, 10**8), lambda runs: verification_cost((1,), runs, 1)),
        "cells (grid, 10^6 runs)": (
            (257, 6562, 390_626, 10**8 + 1),
            lambda cells: verification_cost((4, 2), 10**6, resolution=round((cells - 1) ** (1 / 8)), **grid),
        ),
        "steps K (d 2, 10^6 runs)": ((1, 4, 16, 64), lambda k: verification_cost((k, 2), 10**6)),
        "steps K (d 1, 2 x 10^4 runs)": ((1, 10, 100, 1000), lambda k: verification_cost((k, 1), rounds=1, **few)),
        "coordinates d (K 4, 10^6 runs)": ((1, 2, 4, 8), lambda d: verification_cost((4, d), 10**6)),
        "coordinates d (K 4, 2 x 10^4 runs)": ((1, 2, 10, 50), lambda d: verification_cost((4, d), rounds=1, **few)),
    }
    for title, (points, cost) in axes.items():
        if only in title:
            yield title, [(x, cost(x)) for x in points]


def measure_workers():
    """Return the speed-up of some numbers of threads."""
    points = [(1, 1.0)]
    for threads in (2, 4):
        with ThreadPoolExecutor(threads) as pool:
            points.append((threads, speed_up(pool)))
    return points


def growth(points):
    """Return how many times as large the largest size and its cost are, compared with the smallest size."""
    (smallest, cheapest), *_, (largest, dearest) = points
    return largest / smallest, dearest.verification / cheapest.verification


def tick_label(x):
    """Write a large number as a power of ten."""
    return f"{x:.0e}".replace("e+0", "e") if x > 100 else f"{x}"


def draw_figure(series, folder):
    """Draw one panel for each axis except the workers."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 4, figsize=(12, 6), layout="constrained")
    for panel in panels.flat[len(series) :]:
        panel.set_axis_off()
    for panel, (title, points) in zip(panels.flat, series, strict=False):
        x, costs = zip(*points, strict=True)
        verification, drawing = (np.array(seconds) for seconds in zip(*costs, strict=True))
        linear = verification[0] * np.array(x) / x[0]
        panel.plot(x, linear, color="0.6", lw=1, ls="--", label="proportional to the size")
        panel.plot(x, verification, "o-", color="#3b6ea5", label="verification")
        panel.plot(x, drawing, "s-", color="#c2703d", ms=4, lw=1, label="drawing alone")
        panel.set(xscale="log", yscale="log", xlabel=title, ylim=(0.5 * drawing.min(), 4 * verification.max()))
        panel.set_xticks(x, [tick_label(value) for value in x])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[:, 0]:
        panel.set_ylabel("seconds of processor time")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    panels[-1, -1].legend(handles, labels, frameon=False, loc="center")
    figure.suptitle("Cost of a verification (Gaussian noise, NumPy)")
    figure.savefig(folder / "scaling.png", dpi=110)


def main():
    """Print the costs with their ratios to drawing in parentheses, and draw them if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="a folder for the figure")
    parser.add_argument("--only", default="", help="axes whose name contains this text")
    options = parser.parse_args()
    series = []
    for title, points in measure(options.only):
        listed = ", ".join(f"{x:.3g}: {cost.verification:.3g} s ({cost.ratio:.1f})" for x, cost in points)
        size, factor = growth(points)
        print(f"{title}: {listed}; size times {size:.3g}, cost times {factor:.3g}", flush=True)
        series.append((title, points))
    if options.only in "workers":
        listed = ", ".join(f"{threads}: {ratio:.2f}" for threads, ratio in measure_workers())
        print(f"workers: speed-up of threads on {os.cpu_count()} cores: {listed}", flush=True)
    if options.out:
        draw_figure(series, Path(options.out))


if __name__ == "__main__":
    main()
