"""Measures how the time of a verification grows with runs, cells, steps K, coordinates d and workers.

Every figure is a ratio: to the processor time of drawing the same runs in the same process (pilot, selection and test
runs); for workers, to the elapsed time of one process, which counts in a second thread already. The number of pilot
runs grows with the square of d.

The cost of a verification grows at most linearly where this ratio does not rise.

Run: python benchmarks/bench_scaling.py (about a quarter of an hour). A part: --only steps.
A figure too, as scaling.png and scaling.svg: --out docs/figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import dpverify as dpv
from dpverify.sampling.blocks import SampleSource, draw_block
from dpverify.sampling.budget import plan_pilot

ROUNDS = 3


def gaussian(data, runs, rng):
    """Add Gaussian noise to an array."""
    return data + rng.standard_normal((runs, *data.shape))


def slow_gaussian(data, runs, rng):
    """Draw ten times as many random numbers as needed, so that a second worker is useful."""
    return data + np.mean(rng.standard_normal((10, runs, *data.shape)), axis=0)


def verification_ratio(shape, test_runs, rounds=ROUNDS, **settings):
    """Return the time of a verification divided by that of drawing its samples, the median over rounds."""
    data = np.zeros(shape), np.full(shape, 0.3 / np.sqrt(np.prod(shape)))
    ratios = []
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
        ratios.append((middle - start) / (time.process_time() - middle))
    return statistics.median(ratios)


def speed_up(executor):
    """Return the time with one process divided by the time with this executor, the median over rounds."""
    data = np.zeros((4, 2)), np.full((4, 2), 0.1)
    ratios = []
    for _ in range(ROUNDS):
        seconds = []
        for used in (None, executor):
            start = time.perf_counter()
            dpv.verify(slow_gaussian, *data, test_runs=1_000_000, executor=used)
            seconds.append(time.perf_counter() - start)
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios)


def measure(only):
    """Yield the label of each axis whose name contains a text, and its points (x, ratio)."""
    grid = {"partition": "grid", "events": "union", "select_runs": 200_000}
    few = {"test_runs": 20_000, "select_runs": 20_000}
    axes = {
        "runs per data set": ((10**4, 10**5, 10**6, 10**7), lambda runs: verification_ratio((4, 2), runs)),
        "runs per data set (one number)": ((10**6, 10**7, 10**8), lambda runs: verification_ratio((1,), runs, 1)),
        "cells (grid, 10^6 runs)": (
            (257, 6562, 390_626, 10**8 + 1),
            lambda cells: verification_ratio((4, 2), 10**6, resolution=round((cells - 1) ** (1 / 8)), **grid),
        ),
        "steps K (d 2, 10^6 runs)": ((1, 4, 16, 64), lambda k: verification_ratio((k, 2), 10**6)),
        "steps K (d 1, 2 x 10^4 runs)": ((1, 10, 100, 1000), lambda k: verification_ratio((k, 1), rounds=1, **few)),
        "coordinates d (K 4, 10^6 runs)": ((1, 2, 4, 8), lambda d: verification_ratio((4, d), 10**6)),
        "coordinates d (K 4, 2 x 10^4 runs)": ((2, 10, 50), lambda d: verification_ratio((4, d), rounds=1, **few)),
    }
    for title, (points, ratio) in axes.items():
        if only in title:
            yield title, [(x, ratio(x)) for x in points]
    if only in "workers":
        points = [(1, 1.0)]
        for threads in (2, 4):
            with ThreadPoolExecutor(threads) as pool:
                points.append((threads, speed_up(pool)))
        yield f"workers: speed-up of threads on {os.cpu_count()} cores", points


def tick_label(x):
    """Write a large number as a power of ten."""
    return f"{x:.0e}".replace("e+0", "e") if x > 100 else f"{x}"


def draw_figure(series, folder):
    """Draw one panel for each axis except the workers."""
    import matplotlib.pyplot as plt

    series = [one for one in series if "workers" not in one[0]]
    figure, panels = plt.subplots(2, 4, figsize=(12, 6), sharey=True, layout="constrained")
    for panel in panels.flat[len(series) :]:
        panel.set_axis_off()
    for panel, (title, points) in zip(panels.flat, series, strict=False):
        x, y = zip(*points, strict=True)
        panel.plot(x, y, "o-", color="#3b6ea5")
        panel.axhline(1, color="0.6", lw=1, ls="--")
        panel.set(xscale="log", xlabel=title, ylim=(0, None))
        panel.set_xticks(x, [tick_label(value) for value in x])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[:, 0]:
        panel.set_ylabel("verify / draw")
    figure.suptitle("Time of a verification relative to drawing its samples (Gaussian noise, NumPy, processor time)")
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"scaling.{suffix}", dpi=110)


def main():
    """Print the ratios, and draw them if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="a folder for the figure")
    parser.add_argument("--only", default="", help="axes whose name contains this text")
    options = parser.parse_args()
    series = []
    for title, points in measure(options.only):
        print(f"{title}: " + ", ".join(f"{x:.3g}: {y:.2f}" for x, y in points), flush=True)
        series.append((title, points))
    if options.out:
        draw_figure(series, Path(options.out))


if __name__ == "__main__":
    main()
