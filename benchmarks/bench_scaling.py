"""Measures how the time of a verification grows with runs, cells, steps K, coordinates d and workers.

Every figure is a ratio: to the processor time of drawing the same runs in the same process; for workers, to the elapsed
time of one process.

Run: python benchmarks/bench_scaling.py (about ten minutes).
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

ROUNDS = 3


def gaussian(data, runs, rng):
    """Add Gaussian noise to an array."""
    return data + rng.standard_normal((runs, *data.shape))


def slow_gaussian(data, runs, rng):
    """Draw ten times as many random numbers as needed, so that a second worker is useful."""
    return data + np.mean(rng.standard_normal((10, runs, *data.shape)), axis=0)


def verification_ratio(shape, test_runs, **settings):
    """Return the time of a verification divided by that of drawing its samples, the median over rounds."""
    data = np.zeros(shape), np.full(shape, 0.3 / np.sqrt(np.prod(shape)))
    ratios = []
    for _ in range(ROUNDS):
        start = time.process_time()
        report = dpv.verify(gaussian, *data, test_runs=test_runs, **settings)
        middle = time.process_time()
        block = report.settings.block
        source = SampleSource(gaussian, data, 1, block)
        for number in range(-(-(test_runs + report.settings.select_runs) // block)):
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


def measure():
    """Yield the label of each axis, and its points (x, ratio)."""
    grid = {"partition": "grid", "events": "union", "select_runs": 200_000}
    yield "runs per data set", [(runs, verification_ratio((4, 2), runs)) for runs in (10**4, 10**5, 10**6, 10**7)]
    cells = [(r**8 + 1, verification_ratio((4, 2), 10**6, resolution=r, **grid)) for r in (2, 3, 5, 10)]
    yield "cells (grid, 10^6 runs)", cells
    yield "steps K (d 2, 10^6 runs)", [(k, verification_ratio((k, 2), 10**6)) for k in (1, 4, 16, 64)]
    yield "coordinates d (K 4, 10^6 runs)", [(d, verification_ratio((4, d), 10**6)) for d in (1, 2, 4, 8)]
    with ThreadPoolExecutor(2) as pool:
        yield "workers: speed-up", [(1, 1.0), (2, speed_up(pool))]


def tick_label(x):
    """Write a large number as a power of ten."""
    return f"{x:.0e}".replace("e+0", "e") if x > 100 else f"{x}"


def draw_figure(series, folder):
    """Draw one panel for each axis except the workers."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 4, figsize=(12, 3), sharey=True, layout="constrained")
    for panel, (title, points) in zip(panels, series, strict=False):
        x, y = zip(*points, strict=True)
        panel.plot(x, y, "o-", color="#3b6ea5")
        panel.axhline(1, color="0.6", lw=1, ls="--")
        panel.set(xscale="log", xlabel=title, ylim=(0, None))
        panel.set_xticks(x, [tick_label(value) for value in x])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("verify / draw")
    figure.suptitle("Time of a verification relative to drawing its samples (Gaussian noise, NumPy, one core)")
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"scaling.{suffix}", dpi=110)


def main():
    """Print the ratios, and draw them if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="a folder for the figure")
    options = parser.parse_args()
    series = []
    for title, points in measure():
        print(f"{title}: " + ", ".join(f"{x:.3g}: {y:.2f}" for x, y in points), flush=True)
        series.append((title, points))
    if options.out:
        draw_figure(series, Path(options.out))


if __name__ == "__main__":
    main()
