"""Draws the figures of the README and of the documentation into docs/figures.

Run: make figures (a few minutes; needs dpverify[all], and Chromium for the screenshot of a page).
"""

from __future__ import annotations

import contextlib
import re
import runpy
import shutil
import subprocess
import tempfile
import textwrap
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

import dpverify as dpv
from dpverify.demo import PrivateTracker

PROJECT = Path(__file__).parent.parent
FIGURES = PROJECT / "docs" / "figures"
FIRST_COLOUR, SECOND_COLOUR, EVENT_COLOUR = "#1f5fa8", "#c25a12", "#e9c46a"
PARTITION_RUNS = 1_000_000  # fresh runs per data set that estimate the delta of a partition


def label_axes(axes, title, x, y):
    """Set title and axis labels."""
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure, name):
    """Write a figure as PNG."""
    figure.savefig(FIGURES / f"{name}.png", dpi=160, bbox_inches="tight")
    plt.close(figure)


def peers():
    """Draw the bounds of dpverify and of two other tools as shares of the best expected bound, from docs/tools.md."""
    text = (PROJECT / "docs" / "tools.md").read_text().partition("| distributions | best |")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()[2:10]]
    numbers = [[float(cell.strip("*()")) for cell in row[1:]] for row in rows]
    columns = {  # the best of the variants of a tool
        "dpverify": [row[1] / row[0] for row in numbers],
        "DP-Sniper": [max(row[3], row[5]) / row[0] for row in numbers],
        "DP-Auditorium": [row[7] / row[0] for row in numbers],
    }
    figure, axes = plt.subplots(figsize=(7.2, 3.2))
    places = np.arange(len(rows))
    for number, (name, shares) in enumerate(columns.items()):
        color = (FIRST_COLOUR, SECOND_COLOUR, EVENT_COLOUR)[number]
        axes.bar(places + 0.27 * (number - 1), shares, 0.25, color=color, label=name)
    axes.set_xticks(places, [textwrap.fill(row[0], 12) for row in rows], fontsize=7)
    axes.set_ylim(0, 1.2)
    axes.legend(frameon=False, ncols=3, fontsize=8, loc="upper right")
    label_axes(axes, "Proved epsilon, as a share of the best expected bound", "", "")
    save(figure, "peers")


def resolution():
    """Draw bounds against the number of cells: grids with 2 to 12 bins per coordinate, trees, a learned score."""
    first = np.sin(0.3 * np.arange(4))
    second = first + 0.1 * (np.arange(4) == 1)
    tracker = PrivateTracker(noise=0.12)
    epsilon, runs = 1.0, {"select_runs": 400_000, "test_runs": 400_000}
    true = tracker.delta(epsilon, first, second)
    rows = []
    for r in (2, 3, 4, 5, 6, 8, 10, 12):
        report = dpv.verify(tracker, first, second, partition="grid", resolution=r, events="union", **runs)
        rows.append(measure_partition(f"r = {r}", report, epsilon, tracker, (first, second)))
    for leaves in (16, 64, 256):
        report = dpv.verify(tracker, first, second, partition="tree", resolution=leaves, events="union", **runs)
        rows.append(measure_partition(f"tree, {leaves} leaves", report, epsilon, tracker, (first, second)))
    auto = dpv.verify(tracker, first, second, **runs)
    rows.append(measure_partition("learned score", auto, epsilon, tracker, (first, second)))
    for row in rows:
        print("{:20} cells {:>10}  epsilon_lower {:.3f}  delta_P about {:.4f}  delta_upper {:.4f}".format(*row))
    print(f"exact delta over all events {true:.4f}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.6))
    grids, trees, learned = rows[:8], rows[8:11], rows[11]
    for results, colour, mark, kind in ((grids, FIRST_COLOUR, "o", "grid"), (trees, SECOND_COLOUR, "s", "tree")):
        cells = [result.cells for result in results]
        name = "grid, r 2 to 12" if kind == "grid" else kind
        left.plot(cells, [result.epsilon_lower for result in results], f"{mark}-", color=colour, label=name)
        right.plot(cells, [result.delta_upper for result in results], f"{mark}-", color=colour, label=f"{kind}: bound")
        deltas = [result.delta_of_cells for result in results]
        right.plot(cells, deltas, f"{mark}:", color=colour, mfc="white", label=f"{kind}: delta of the cells")
    left.axhline(learned.epsilon_lower, color="0.4", ls="--", lw=1, label="learned score")
    right.axhline(true, color="0.4", ls="--", lw=1, label="exact delta, all events")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.legend(frameon=False, fontsize=8)
    label_axes(left, "Proved epsilon (delta 0)", "number of cells", "epsilon_lower")
    label_axes(right, "Bound over unions of cells, epsilon 1", "number of cells", "delta")
    figure.suptitle(
        "A private Kalman filter over 4 steps, 400 000 test runs per data set", fontsize=11, x=0.02, ha="left"
    )
    figure.tight_layout()
    save(figure, "resolution")


class PartitionResult(NamedTuple):
    """Bounds from one partition, with the exact delta of that partition."""

    name: str
    cells: int
    epsilon_lower: float
    delta_of_cells: float
    delta_upper: float


def measure_partition(name, report, epsilon, tracker, data):
    """Return the bounds of a report."""
    return PartitionResult(
        name,
        report.on_partition.cells,
        report.epsilon_lower,
        delta_of_cells(report, epsilon, tracker, data),
        report.on_partition.delta_upper(epsilon),
    )


def delta_of_cells(report, epsilon, tracker, data, runs=PARTITION_RUNS):
    """Estimate the delta of a frozen partition from fresh runs: one half selects the cells, the other measures them.

    With too many cells for these runs the estimate is NaN.
    """
    if report.on_partition.cells > runs / 10:
        return np.nan
    rng = np.random.default_rng(7)
    codes = [report.witness.event.partition.codes(tracker(d, 2 * runs, rng)) for d in data]
    names = np.unique(np.concatenate(codes), return_counts=True)[0]
    shares = [
        [np.bincount(np.searchsorted(names, c[half::2]), minlength=names.size) / runs for c in codes] for half in (0, 1)
    ]
    excess = []
    for first, second in ((0, 1), (1, 0)):
        selected = shares[0][first] > np.exp(epsilon) * shares[0][second]
        excess.append((shares[1][first] - np.exp(epsilon) * shares[1][second])[selected].sum())
    return max(*excess, 0.0)


def kalman():
    """Draw bounds on a private Kalman filter and its closed form, for noise on the output and on the input."""
    from dpverify.estimation import Normal, PrivateKalman, System

    track = System(
        A=[[1.0, 0.1], [0.0, 1.0]],
        C=[[1.0, 0.0]],
        start=(0.0, 0.5),
        disturbance=Normal((0.03, 0.05)),
        noise=Normal(0.2),
        initial=Normal(0.3),
    )
    first = np.sin(0.3 * np.arange(6))[:, None]
    second = first + 0.1 * (np.arange(6) == 2)[:, None]
    epsilons = np.linspace(0, 2, 21)
    figure, both = plt.subplots(1, 2, figsize=(9.6, 3.4), sharey=True)
    for axes, where, scale in zip(both, ("output", "input"), (0.05, 0.1), strict=True):
        mechanism = PrivateKalman(track, scale, where)
        truth = mechanism.truth(first, second)
        # The event is selected for this delta, in the middle of the figure.
        report = dpv.verify(mechanism, first, second, delta=0.15, select_runs=200_000, test_runs=200_000)
        lower = [report.delta_lower(e) for e in epsilons]
        upper = [report.on_partition.delta_upper(e) for e in epsilons]
        exact = [truth.delta(e) for e in epsilons]
        print(where, f"mu {truth.mu:.3f}; lower, exact, upper at epsilon 1:", lower[10], exact[10], upper[10])
        axes.fill_between(epsilons, 0, lower, color=FIRST_COLOUR, alpha=0.12, lw=0)
        axes.plot(epsilons, upper, "v", color=SECOND_COLOUR, ms=4, label="over its cells")
        axes.plot(epsilons, exact, color="0.25", lw=1.2, label="closed form, all events")
        axes.plot(epsilons, lower, "^", color=FIRST_COLOUR, ms=4, label="proved, all events")
        axes.set_ylim(0, None)
        label_axes(axes, f"Noise on the {where} (Mahalanobis length {truth.mu:.2f})", "epsilon", "delta")
        both[0].legend(frameon=False, fontsize=8)
    both[1].set_ylabel("")
    figure.suptitle(
        "A private Kalman filter over 6 steps, 200 000 test runs per data set", fontsize=11, x=0.02, ha="left"
    )
    figure.tight_layout()
    save(figure, "kalman")


def nile():
    """Draw the readings of the Nile, the published estimates, and the epsilon of each year's reading."""
    example = runpy.run_path(str(PROJECT / "examples" / "nile.py"))
    pair, years = example["pair"], np.arange(1871, 1971)
    figure, (above, below) = plt.subplots(2, 1, figsize=(7.2, 5.2), sharex=True, height_ratios=(3, 2))
    first, _ = pair(1871)
    mechanism = example["nile"](before=1000.0)
    above.plot(years, first[:, 0], "o", color="0.6", ms=3, label="readings")
    above.plot(
        years, mechanism.estimate(first)[:, 0], color=FIRST_COLOUR, lw=1.6, label="the filter's level, not published"
    )
    published = np.asarray(mechanism(first, 1, np.random.default_rng(2)))[0, :, 0]
    above.plot(years, published, color=SECOND_COLOUR, lw=0.9, label="published")
    above.set_ylim(300, 1650)
    above.legend(frameon=False, fontsize=8, ncols=3, loc="upper right")
    for before, color, name in (
        (1000.0, SECOND_COLOUR, "level before 1871 not known"),
        (62.0, FIRST_COLOUR, "known to within 62"),
    ):
        mechanism = example["nile"](before=before)
        below.plot(years, [mechanism.truth(*pair(y)).epsilon(0.01) for y in years], color=color, label=f"exact, {name}")
    mechanism = example["nile"](before=1000.0)
    for year in (1871, 1913):
        report = dpv.verify(mechanism, *pair(year), epsilon=2.0, delta=0.01, select_runs=10_000, test_runs=50_000)
        proved = "proved, from 50 000 runs per data set" if year == 1871 else None
        below.plot(year, report.epsilon_lower, "^", color="0.2", ms=6, label=proved)
    below.axhline(2.0, color="0.4", ls="--", lw=1)
    below.text(1970, 2.15, "claimed", ha="right", fontsize=8)
    below.set_ylim(0, None)
    below.legend(frameon=False, fontsize=8)
    label_axes(above, "The Nile at Aswan", "", "flow of a year, $10^8$ m³")
    label_axes(below, "Epsilon of each year's reading, delta 0.01", "year", "epsilon")
    figure.align_ylabels()
    figure.tight_layout()
    save(figure, "nile")


def stream():
    """Draw the heat map of the tutorial about streams, with its code."""
    text = (PROJECT / "docs" / "stream.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("examples").symlink_to(PROJECT / "examples")
        for block in blocks[:5]:  # up to the heat map
            exec(block, scope)
    save(scope["leaks"].plot(), "stream")


def page():
    """Take screenshots, light and dark, of the page of the README's first example, if Chromium is installed."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("Chromium is not installed: page.png is not changed")
        return
    example = runpy.run_path(str(PROJECT / "examples" / "readme.py"))
    report = dpv.verify(example["noisy_sum"], example["first"], example["second"], epsilon=0.5)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        report.to_html(Path(folder) / "page.html")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        for scheme, name in enumerate(("page-dark", "page")):  # Chromium's numbers of the colour schemes
            shot = [f"--screenshot={FIGURES / name}.png", "--hide-scrollbars", "--window-size=1180,1100"]
            scheme_flags = [f"--blink-settings=preferredColorScheme={scheme}", f"--user-data-dir={folder}/profile"]
            command = [chromium, *flags, *shot, *scheme_flags, f"file://{folder}/page.html"]
            subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    page()
    peers()
    resolution()
    kalman()
    nile()
    stream()
