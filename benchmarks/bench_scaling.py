"""How the cost of a verification grows: with runs, cells, steps K, coordinates d, and workers.

    python benchmarks/bench_scaling.py                    prints a table
    python benchmarks/bench_scaling.py --out docs/figures     draws scaling.png and scaling.svg there too

Everything is a ratio: to drawing the same runs and doing nothing with them, in the same process, by turns (seconds of
the processor); for workers, to one process (seconds on the clock).
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
    return data + rng.standard_normal((runs, *data.shape))


def slow(data, runs, rng):
    """A run costs ten times as much as its numbers: worth a worker."""
    return data + np.mean(rng.standard_normal((10, runs, *data.shape)), axis=0)


def ratio(shape, test_runs, **settings):
    """Verify / draw, the median of some rounds."""
    data = np.zeros(shape), np.full(shape, 0.3 / np.sqrt(np.prod(shape)))
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        report = dpv.verify(gaussian, *data, test_runs=test_runs, **settings)
        middle = time.process_time()
        source, block = SampleSource(gaussian, data, 1, report.settings.block), report.settings.block
        for b in range(-(-(test_runs + report.settings.select_runs) // block)):
            for side in (0, 1):
                draw_block(source, "test", side, b)
        found.append((middle - start) / (time.process_time() - middle))
    return statistics.median(found)


def speed_up(executor):
    """One process / this executor."""
    data = np.zeros((4, 2)), np.full((4, 2), 0.1)
    found = []
    for _ in range(ROUNDS):
        seconds = []
        for who in (None, executor):
            start = time.perf_counter()
            dpv.verify(slow, *data, test_runs=1_000_000, executor=who)
            seconds.append(time.perf_counter() - start)
        found.append(seconds[0] / seconds[1])
    return statistics.median(found)


def measure():
    """Title, label of the axis, and (x, ratio) of every point."""
    grid = {"partition": "grid", "events": "union", "select_runs": 200_000}
    yield "runs a side", [(m, ratio((4, 2), m)) for m in (10**4, 10**5, 10**6, 10**7)]
    cells = [(r**8 + 1, ratio((4, 2), 10**6, resolution=r, **grid)) for r in (2, 3, 5, 10)]
    yield "cells (grid, 10^6 runs)", cells
    yield "steps K (d 2, 10^6 runs)", [(k, ratio((k, 2), 10**6)) for k in (1, 4, 16, 64)]
    yield "coordinates d (K 4, 10^6 runs)", [(d, ratio((4, d), 10**6)) for d in (1, 2, 4, 8)]
    with ThreadPoolExecutor(2) as pool:
        yield "workers: speed-up", [(1, 1.0), (2, speed_up(pool))]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out")
    options = options.parse_args()
    found = []
    for title, points in measure():
        print(f"{title}: " + ", ".join(f"{x:.3g}: {y:.2f}" for x, y in points), flush=True)
        found.append((title, points))
    if options.out:
        draw_figure(found, Path(options.out))


def draw_figure(found, folder):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(12, 3), sharey=True, layout="constrained")
    for axis, (title, points) in zip(axes, found, strict=False):
        x, y = zip(*points, strict=True)
        axis.plot(x, y, "o-", color="#3b6ea5")
        axis.axhline(1, color="0.6", lw=1, ls="--")
        axis.set(xscale="log", xlabel=title, ylim=(0, None))
        axis.set_xticks(x, [f"{one:.0e}".replace("e+0", "e") if one > 100 else f"{one}" for one in x])
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("verify / draw")
    figure.suptitle("The cost of a verification, in units of drawing its samples (Gaussian noise, NumPy, one core)")
    for ending in ("png", "svg"):
        figure.savefig(folder / f"scaling.{ending}", dpi=110)


if __name__ == "__main__":
    main()
