"""Draws the figures of the README and of the documentation into docs/figures: python docs/make_figures.py [NAME ...]

Every figure carries, as a text of the PNG file, the numbers that it shows. `tests/test_committed_figures.py` computes
them again. Some minutes; needs dpverify[all], and Chromium for the pictures of a page.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import json
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import dpverify as dpv
from dpverify import render
from dpverify.demo import PrivateTracker

PROJECT = Path(__file__).parent.parent
FIGURES = PROJECT / "docs" / "figures"
CARRIED = "Shows"  # the name of the text in a PNG file
PARTITION_RUNS = 400_000  # fresh runs per dataset that estimate the delta of a partition
PAGE_WIDTH, PAGE_HEIGHT = 1000, 985  # pixels: the headline and the picture of the outputs
SCHEMES = {"page": 1, "page-dark": 0}  # Chromium's numbers for light and dark


def readme_report():
    """Return the report of the README's first example."""
    example = runpy.run_path(str(PROJECT / "examples" / "readme.py"))
    return dpv.verify(example["noisy_sum"], example["first"], example["second"], epsilon=0.5)


def page():
    """Return what the page of the README's first example says, and the page itself."""
    report = readme_report()
    report.provenance.clear()  # the page says nothing of this machine
    text = render.report_page(report).html()
    said = html.unescape(re.sub(r"<(style|script|svg).*?</\1>|<footer.*?</footer>|<[^>]*>", " ", text, flags=re.DOTALL))
    style = re.search(r"<style>.*?</style>", text, re.DOTALL)[0]
    return {"page": hashlib.sha256((" ".join(said.split()) + style).encode()).hexdigest()}, text


def peers():
    """Draw the bounds of dpverify and of two other tools as shares of the best expected bound, from docs/tools.md."""
    text = (PROJECT / "docs" / "tools.md").read_text().partition("| distributions | best |")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()[2:10]]
    names, numbers = [row[0] for row in rows], [[float(cell.strip("*()")) for cell in row[1:]] for row in rows]
    shown = {  # the best of the variants of a tool
        "dpverify": [row[1] / row[0] for row in numbers],
        "DP-Sniper": [max(row[3], row[5]) / row[0] for row in numbers],
        "DP-Auditorium": [row[7] / row[0] for row in numbers],
    }
    with render.styled():
        figure = render.canvas(3.4, 8.0)
        axes, places = figure.add_subplot(), np.arange(len(names))
        for number, (tool, shares) in enumerate(shown.items()):
            colour = (render.FIRST, render.SECOND, render.WITNESS)[number]
            axes.bar(places + 0.27 * (number - 1), shares, 0.25, color=colour, label=tool)
        axes.set_xticks(places, [textwrap.fill(name, 12) for name in names], fontsize=8)
        axes.set_ylim(0, 1.2)
        axes.legend(ncols=3, fontsize=8.5, loc="upper right")
        render.label(axes, "", "proved ε, as a share of the best expected bound")
    return shown, figure


def two_axes(height=3.4):
    """Return a figure with two axes side by side."""
    figure = render.canvas(height, 9.0)
    return figure, figure.subplots(1, 2)


def finish(axes, title, x, y):
    """Name an axes and what it shows."""
    axes.set_title(title, loc="left", fontsize=10.5, pad=22)
    render.label(axes, x, y)
    axes.legend(fontsize=8.5)


def resolution():
    """Draw bounds against the number of cells: grids with 2 to 12 bins per coordinate, trees, a learned score."""
    first = np.sin(0.3 * np.arange(4))
    second = first + 0.1 * (np.arange(4) == 1)
    tracker, epsilon = PrivateTracker(noise=0.12), 1.0
    shown = {"exact": tracker.delta(epsilon, first, second)}
    chosen = {"grid": (2, 3, 4, 6, 8, 12), "tree": (16, 64, 256), "learned": (None,)}
    for kind, sizes in chosen.items():
        rows = []
        for size in sizes:
            own = {} if size is None else {"partition": kind, "resolution": size, "events": "union"}
            report = dpv.verify(tracker, first, second, select_runs=400_000, test_runs=400_000, **own)
            part = report.on_partition
            delta = delta_of_cells(report, epsilon, tracker, (first, second))
            rows.append((part.cells, report.epsilon_lower, part.delta_upper(epsilon), delta))
        shown[kind] = dict(zip(("cells", "lower", "upper", "delta"), map(list, zip(*rows, strict=True)), strict=True))
    with render.styled():
        figure, (left, right) = two_axes()
        for kind, colour, mark in (("grid", render.FIRST, "o"), ("tree", render.SECOND, "s")):
            own = shown[kind]
            left.plot(own["cells"], own["lower"], f"{mark}-", color=colour, ms=5, label=kind)
            right.plot(own["cells"], own["upper"], f"{mark}-", color=colour, ms=5, label=f"{kind}: bound")
            right.plot(
                own["cells"], own["delta"], f"{mark}:", color=colour, mfc="none", ms=5, label=f"{kind}: its delta"
            )
        left.axhline(shown["learned"]["lower"][0], color=render.MUTED, ls="--", lw=1, label="learned score")
        right.axhline(shown["learned"]["upper"][0], color=render.MUTED, ls=":", lw=1, label="learned score: bound")
        right.axhline(shown["exact"], color=render.MUTED, ls="--", lw=1, label="exact, all events")
        for axes in (left, right):
            axes.set_xscale("log")
        finish(left, "Proved", "number of cells", "ε at δ = 0")
        finish(right, "Over the cells", "number of cells", "δ at ε = 1")
    return shown, figure


def delta_of_cells(report, epsilon, tracker, data, runs=PARTITION_RUNS):
    """Estimate the delta of a frozen partition from fresh runs: one half selects the cells, the other measures them.

    With too many cells for these runs the estimate is NaN.
    """
    if report.on_partition.cells > runs / 10:
        return np.nan
    rng = np.random.default_rng(7)
    codes = [report.witness.event.partition.codes(tracker(d, 2 * runs, rng)) for d in data]
    names = np.unique(np.concatenate(codes))
    shares = [
        [np.bincount(np.searchsorted(names, c[half::2]), minlength=names.size) / runs for c in codes] for half in (0, 1)
    ]
    excess = []
    for first, second in ((0, 1), (1, 0)):
        selected = shares[0][first] > np.exp(epsilon) * shares[0][second]
        excess.append(float((shares[1][first] - np.exp(epsilon) * shares[1][second])[selected].sum()))
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
    epsilons, shown = np.linspace(0, 2, 21), {}
    for where, scale in (("output", 0.05), ("input", 0.1)):
        mechanism = PrivateKalman(track, scale, where)
        truth = mechanism.truth(first, second)
        # The event is selected for this delta, in the middle of the figure.
        report = dpv.verify(mechanism, first, second, delta=0.15, select_runs=200_000, test_runs=200_000)
        shown[where] = {
            "mu": truth.mu,
            "lower": [report.delta_lower(e) for e in epsilons],
            "exact": [truth.delta(e) for e in epsilons],
            "upper": [report.on_partition.delta_upper(e) for e in epsilons],
        }
    with render.styled():
        figure, both = two_axes()
        for axes, (where, own) in zip(both, shown.items(), strict=True):
            axes.plot(epsilons, own["upper"], "_", color=render.CELLS, ms=7, label="at most, over the cells")
            axes.plot(epsilons, own["exact"], color=render.MUTED, lw=1.2, label="closed form, all events")
            axes.plot(epsilons, own["lower"], "o", color=render.INK, ms=3.5, label="at least, all events")
            axes.set_ylim(0, 1.05 * max(own["upper"]))
            finish(axes, f"Noise on the {where}, μ = {own['mu']:.2f}", "ε", "δ")
    return shown, figure


def nile():
    """Draw the readings of the Nile, the published estimates, and the epsilon of each year's reading."""
    example = runpy.run_path(str(PROJECT / "examples" / "nile.py"))
    pair, years = example["pair"], np.arange(1871, 1971)
    first, _ = pair(1871)
    kinds = {1000.0: "level before 1871 not known", 62.0: "known to within 62"}
    mechanisms = {before: example["nile"](before=before) for before in kinds}
    unknown = mechanisms[1000.0]
    few = {"select_runs": 10_000, "test_runs": 50_000}
    reports = {year: dpv.verify(unknown, *pair(year), epsilon=2.0, delta=0.01, **few) for year in (1871, 1913)}
    shown = {
        "exact": [[one.truth(*pair(year)).epsilon(0.01) for year in years] for one in mechanisms.values()],
        "proved": [report.epsilon_lower for report in reports.values()],
    }
    with render.styled():
        figure = render.canvas(5.4, 7.4)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        published = np.asarray(unknown(first, 1, np.random.default_rng(2)))[0, :, 0]
        above.plot(years, first[:, 0], "o", color=render.MUTED, ms=3, label="readings")
        above.plot(years, unknown.estimate(first)[:, 0], color=render.FIRST, lw=1.6, label="level, not published")
        above.plot(years, published, color=render.SECOND, lw=0.9, label="published")
        above.set_ylim(300, 1650)
        for exact, colour, name in zip(shown["exact"], (render.SECOND, render.FIRST), kinds.values(), strict=True):
            below.plot(years, exact, color=colour, label=f"exact, {name}")
        below.plot([*reports], shown["proved"], "o", color=render.BEYOND, ms=5, label="at least, from 50 000 runs")
        below.axhline(2.0, color=render.INK, ls="--", lw=1, label="claimed")
        below.set_ylim(0, None)
        finish(above, "The Nile at Aswan", "", "flow of a year (10⁸ m³)")
        finish(below, "Epsilon of each year's reading", "year", "ε at δ = 0.01")
    return shown, figure


def stream():
    """Draw the heat map of the page about streams, with its code."""
    text = (PROJECT / "docs" / "stream.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(None):
        Path("examples").symlink_to(PROJECT / "examples")
        for block in blocks[: 1 + next(i for i, block in enumerate(blocks) if "leaks.to_html" in block)]:
            exec(block, scope)
    leaks = scope["leaks"]
    return {"lower": leaks.epsilon_lower.tolist()}, leaks.plot()


DRAWN = {"page": page, "peers": peers, "resolution": resolution, "kalman": kalman, "nile": nile, "stream": stream}


def carry(path, shown):
    """Store in a PNG file what it shows."""
    text = PngInfo()
    text.add_text(CARRIED, json.dumps(shown))
    with Image.open(path) as image:
        image.load()
        image.save(path, pnginfo=text, optimize=True)


def carried(path):
    """Return what a figure says that it shows."""
    with Image.open(path) as image:
        return json.loads(image.text[CARRIED])


def photograph(text, name):
    """Take a picture of the upper part of a page in Chromium, in the colours that the name stands for."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("Chromium is not installed: the pictures of the page are not changed")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        (Path(folder) / "page.html").write_text(text, encoding="utf-8")
        shot = [f"--screenshot={FIGURES / name}.png", f"--window-size={PAGE_WIDTH},{PAGE_HEIGHT}", "--hide-scrollbars"]
        own = [f"--blink-settings=preferredColorScheme={SCHEMES[name]}", f"--user-data-dir={folder}/profile"]
        command = [chromium, *flags, *shot, *own, f"file://{folder}/page.html"]
        subprocess.run(command, check=True, capture_output=True)


def main(names):
    """Draw the figures with these names, by default all."""
    for name in names or DRAWN:
        shown, drawn = DRAWN[name]()
        for file in SCHEMES if name == "page" else (name,):
            if name == "page":
                photograph(drawn, file)
            else:
                drawn.savefig(FIGURES / f"{name}.png", dpi=150)
            carry(FIGURES / f"{file}.png", shown)
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
