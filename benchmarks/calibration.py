"""Count how often the statements of a report are false: python benchmarks/calibration.py [--workers N]

The script makes thousands of verifications of mechanisms whose exact privacy is known (tests/support/known.py). It
takes an hour on one core. The results of each setting are one JSON file in build/calibration, which is updated after
each batch of seeds, so an interrupted run can be resumed. It writes docs/calibration.md and its figure.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from scipy.optimize import brentq
from scipy.stats import binom

import dpverify as dpv

PROJECT = Path(__file__).parent.parent
DOCS = PROJECT / "docs"
sys.path.append(str(PROJECT / "tests" / "support"))
from known import EPSILON, KNOWN, cell_probabilities, partition_truth, region_masses  # noqa: E402
from limits import most  # noqa: E402

SEEDS, CONTROLS = 2000, 50
BATCH = 100  # seeds between two writings
REFERENCE = 40_000  # runs a side that stand for the law of a trajectory
SURE = 0.999  # that no rate of the whole table exceeds its limit, if every level is met
ROUNDING = 1e-9  # of a closed form
MARK = "<!-- what follows is written by benchmarks/calibration.py -->"
STATEMENTS = {  # and their share of alpha: those about the partition have one together
    "false alarm": 1.0,
    "epsilon_lower": 1.0,
    "delta_lower": 1.0,
    "delta_upper": 0.9,
    "epsilon_upper": 0.9,
    "region_mass": 0.1,
    "all events": 0.9,
}


class Setting(NamedTuple):
    mechanism: str
    choice: str
    alpha: float
    select_runs: int
    test_runs: int

    @property
    def path(self) -> str:
        return "-".join(map(str, self)).replace(" ", "-") + ".json"


CHOICES = {
    "default": {},
    "union": {"events": "union", "resolution": 16},
    "grid": {"events": "union", "partition": "grid"},
    "equal mass": {"events": "union", "partition": "equal-mass", "resolution": 16},
    "tree": {"events": "union", "partition": "tree"},
    "paper": {},
}
ALPHAS = 0.01, 0.05, 0.2
RUNS = (200, 400), (400, 800), (800, 1600)
# Enough runs for the joint limit of a union at this alpha (docs/method.md, section 5.4).
LARGER = [Setting("laplace", "grid", 0.05, 800, 8000), Setting("geometric", "union", 0.05, 800, 8000)]
DOUBLED = Setting("deaf", "paper", 0.05, 400, 800)  # its false alarms: docs/method.md, section 4.9
NOTHING = [Setting("deaf", "default", 0.05, 400, 800), Setting("deaf", "tree", 0.2, 400, 800), DOUBLED]


def settings() -> list[Setting]:
    """Every mechanism with every choice of events; levels and runs take turns, so that all pairs of them occur."""
    names = [name for name in KNOWN if name != "deaf"]
    turns = [
        Setting(name, choice, ALPHAS[(1 - i - j) % 3], *RUNS[(i + 2 * j) % 3])
        for i, name in enumerate(names)
        for j, choice in enumerate(CHOICES)
    ]
    return [*turns, *NOTHING, *LARGER]


def report_of(setting: Setting, number: int, mechanism) -> dpv.Report:
    """Verification `number` of a setting, with runs that no other verification draws."""
    start = dpv.Settings.paper() if setting.choice == "paper" else dpv.Settings(**CHOICES[setting.choice])
    changed = start.change(
        alpha=setting.alpha,
        select_runs=setting.select_runs,
        test_runs=setting.test_runs,
        block=min(setting.test_runs, 1000),
        seed=zlib.crc32(setting.path.encode()),
    )
    lipschitz = KNOWN[setting.mechanism].lipschitz
    _, delta = claim_of(setting)
    return dpv.verify(mechanism, 0, 1, None, delta, settings=changed.spawn(number), log_lipschitz=lipschitz)


def claim_of(setting: Setting) -> tuple[float | None, float]:
    """The least true claim; the paper's test knows delta 0 only, where Gaussian noise has none."""
    epsilon, delta = KNOWN[setting.mechanism].claim
    return (None, 0.0) if delta > 0 and setting.choice == "paper" else (epsilon, delta)


def refuted(report: dpv.Report, epsilon: float) -> bool:
    """The verdict on a claim. The exact test refutes exactly where its bound lies above: only there it is asked."""
    asked = report.settings.test == "thinned" or report.epsilon_lower > epsilon
    return asked and report.against(epsilon, report.delta).refuted


def misses(setting: Setting, report: dpv.Report) -> dict[str, bool]:
    """Which statements of one report are false."""
    name, known, part = setting.mechanism, KNOWN[setting.mechanism], report.on_partition
    cells = report.picture["partition"] or report.witness.event.partition
    delta, epsilon = partition_truth(*cell_probabilities(name, cells, REFERENCE), EPSILON)
    claimed, _ = claim_of(setting)
    true = math.inf if claimed is None else claimed
    found = {
        "epsilon_lower": report.epsilon_lower > true + ROUNDING,
        "delta_lower": report.delta_lower(EPSILON) > known.delta(EPSILON) + ROUNDING,
        "delta_upper": part.delta_upper(EPSILON) < delta - ROUNDING,
        "epsilon_upper": part.epsilon_upper() < epsilon - ROUNDING,
        "region_mass": part.region_mass > min(region_masses(name, report.picture["region"], REFERENCE)) + ROUNDING,
    }
    if claimed is None:
        del found["epsilon_lower"]  # no epsilon is too high for this law
    else:
        found["false alarm"] = refuted(report, claimed)
    if report.on_all_events is not None:
        found["all events"] = report.on_all_events.delta_upper(EPSILON) < known.delta(EPSILON) - ROUNDING
    return {name: bool(missed) for name, missed in found.items()}


def level(statement: str, alpha: float) -> float:
    """How often a statement may be false."""
    return alpha * STATEMENTS[statement]


def code() -> str:
    """A fingerprint of all that a line depends on: whatever else was counted by another one is counted anew."""
    sources = sorted(
        [*(PROJECT / "src" / "dpverify").rglob("*.py"), PROJECT / "tests" / "support" / "known.py", Path(__file__)]
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def go_on(setting: Setting, seeds: int, controls: int, folder: Path) -> dict:
    """The line of a setting, brought up to so many seeds."""
    path = folder / setting.path
    line = json.loads(path.read_text()) if path.exists() else {}
    if line.get("code") != code():
        fresh = {"seeds": 0, "missed": {}, "lower": 0.0, "controls": 0, "caught": 0, "seconds": 0.0}
        line = {"setting": list(setting), "code": code(), **fresh}
    (claimed, _), known = claim_of(setting), KNOWN[setting.mechanism]
    control = setting.mechanism != "deaf" and claimed is not None
    while line["seeds"] < seeds or (control and line["controls"] < controls):
        start = time.process_time()
        for seed in range(line["seeds"], min(seeds, line["seeds"] + BATCH)):
            report = report_of(setting, seed, known.mechanism)
            for name, missed in misses(setting, report).items():
                line["missed"][name] = line["missed"].get(name, 0) + missed
            line["lower"] += report.epsilon_lower
            line["seeds"] += 1
        if control:
            for seed in range(line["controls"], controls):
                line["caught"] += refuted(report_of(setting, seed, known.half_noise), claimed)
                line["controls"] += 1
        line["seconds"] += time.process_time() - start
        new = path.with_suffix(".new")
        new.write_text(json.dumps(line) + "\n")
        os.replace(new, path)
    return line


class Rate(NamedTuple):
    """How often one statement of one setting was false, and how often it may be."""

    line: dict
    statement: str
    level: float
    limit: int  # of this many seeds

    @property
    def missed(self) -> int:
        return self.line["missed"][self.statement]

    @property
    def too_high(self) -> bool:
        return self.missed > self.limit


def rates(lines: list[dict]) -> list[Rate]:
    """All of the table. If every level is met, one of them exceeds its limit with probability 1 - SURE at most."""
    found = []
    for line in lines:
        setting = Setting(*line["setting"])
        twice = {"false alarm": 2} if setting == DOUBLED else {}
        found += [(line, name, twice.get(name, 1) * level(name, setting.alpha)) for name in line["missed"]]
    return [Rate(*one, limit(one[2], one[0]["seeds"], len(found))) for one in found]


def limit(level: float, seeds: int, number: int) -> int:
    """What a statement at this level exceeds with probability (1 - SURE) / number at most."""
    return most(seeds, level, 1 - (1 - SURE) / number)


def power(line: dict) -> float | None:
    """The mean of what is proved over what is true; None where that is infinite, or nothing."""
    setting = Setting(*line["setting"])
    true = claim_of(setting)[0]
    return line["lower"] / line["seeds"] / true if true else None


def draw(lines: list[dict], path: Path) -> None:
    import matplotlib.pyplot as plt

    colours = dict(zip(ALPHAS, ("#1f5fa8", "#2a9d6f", "#c25a12"), strict=True))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(1.5, 1))
    for alpha, colour in colours.items():
        some = [rate for rate in rates(lines) if rate.line["setting"][2] == alpha]
        for at, name in enumerate(STATEMENTS):
            here = [rate for rate in some if rate.statement == name]
            x = at + 0.24 * (ALPHAS.index(alpha) - 1)
            spread = [x + 0.06 * (i % 3 - 1) for i in range(len(here))]
            left.scatter(spread, [rate.missed / rate.limit for rate in here], 13, colour, alpha=0.7, lw=0)
            for rate in here[:1]:
                where = rate.level * rate.line["seeds"] / rate.limit
                left.plot([x - 0.11, x + 0.11], [where] * 2, color=colour, lw=1.4)
        left.scatter([], [], 13, colour, label=f"alpha {alpha:g}")
    left.axhline(1, color="#333", lw=1, ls="--")
    left.set_xticks(
        range(len(STATEMENTS)), [name.replace("_", "\n").replace(" ", "\n") for name in STATEMENTS], fontsize=8
    )
    left.set_title("False statements, as a share of the limit", loc="left", fontsize=11)
    left.set_ylim(-0.03, 1.1)
    left.legend(frameon=False, fontsize=8, ncols=3, loc="upper right", bbox_to_anchor=(1, 0.88))
    shown = [(Setting(*line["setting"]), value) for line in lines if (value := power(line)) is not None]
    for at, name in enumerate(dict.fromkeys(setting.mechanism for setting, _ in shown)):
        for setting, value in shown:
            if setting.mechanism == name:
                marker = "ox^sDv"[list(CHOICES).index(setting.choice)]
                right.plot(value, at, marker, color=colours[setting.alpha], ms=5, alpha=0.8, ls="")
    names = list(dict.fromkeys(setting.mechanism for setting, _ in shown))
    right.set_yticks(range(len(names)), names, fontsize=8)
    right.invert_yaxis()
    right.axvline(1, color="#333", lw=1, ls="--")
    right.set_xlim(-0.03, 1.1)
    right.set_title("Mean proved epsilon over the true one", loc="left", fontsize=11)
    for marker, choice in zip("ox^sDv", CHOICES, strict=True):
        right.plot([], [], marker, color="#333", ms=5, ls="", label=choice)
    right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160, bbox_inches="tight")
    plt.close(figure)


def percent(share: float) -> str:
    return f"{round(100 * share, 2):g}"


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def row(line: dict, found: dict[str, Rate]) -> list[str]:
    setting, seeds = Setting(*line["setting"]), line["seeds"]
    cells = [setting.mechanism, setting.choice, f"{setting.alpha:g}", f"{setting.select_runs} / {setting.test_runs}"]
    cells.append(str(seeds))
    for name in STATEMENTS:
        rate = found.get(name)
        text = "" if rate is None else percent(rate.missed / seeds)
        cells.append(f"**{text}**" if rate is not None and rate.too_high else text)
    proved = power(line)
    caught = percent(line["caught"] / line["controls"]) if line["controls"] else ""
    return [*cells, "" if proved is None else f"{proved:.2f}", caught]


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def noticed(seeds: int, number: int) -> str:
    """Return the true rates that the table detects with probability 80%."""
    limits = {level: limit(level, seeds, number) for level in ALPHAS}
    found = [
        f"{percent(brentq(lambda p, most=most: binom.sf(most, seeds, p) - 0.8, 0, 1))}% at a level of {percent(level)}%"
        for level, most in limits.items()
        if most < seeds
    ]
    return f"A true rate of at least {', '.join(found)} exceeds its limit with probability 80%."


def seen(lines: list[dict]) -> str:
    """The part of the page that is measured."""
    found, seeds = rates(lines), max(line["seeds"] for line in lines)
    least = min(line["seeds"] for line in lines)
    each = f"{seeds} seeds each" if least == seeds else f"{least} to {seeds} seeds"
    worst = max(found, key=lambda rate: rate.missed / rate.limit)
    over = sum(rate.too_high for rate in found)
    where = Setting(*worst.line["setting"])
    total = sum(line["seeds"] for line in lines)
    bounds = {
        ", ".join(f"`{name}`" if "_" in name else name for name in STATEMENTS if STATEMENTS[name] == share): [
            (share * alpha, limit(share * alpha, seeds, len(found)) / seeds) for alpha in ALPHAS
        ]
        for share in dict.fromkeys(STATEMENTS.values())
    }
    rows = [[words, *(f"{percent(x)}, limit {percent(y)}" for x, y in pairs)] for words, pairs in bounds.items()]
    return "\n\n".join(
        [
            "## Results",
            f"Version {dpv.__version__}: {spaced(total)} verifications, {len(lines)} settings of {each}, "
            f"{len(found)} rates. "
            + (f"**{over} of them exceed their limit** (bold). " if over else "**None of them exceeds its limit.** ")
            + f"The rate closest to its limit is `{worst.statement}` of *{where.mechanism}*, *{where.choice}*, "
            f"at alpha {where.alpha:g}: {percent(worst.missed / worst.line['seeds'])}%; the level is "
            f"{percent(worst.level)}% and the limit {percent(worst.limit / worst.line['seeds'])}%.",
            "![Rates relative to their limit, and proved epsilon relative to the true one](figures/calibration.png)",
            "*Left: each dot is a setting; 1 is the limit, and the short lines are the levels. "
            "Right: the same colours; the verifications are small.*",
            f"Levels and limits in per cent; the limits are for {seeds} seeds. {noticed(seeds, len(found))}",
            table(["", *(f"alpha {alpha:g}" for alpha in ALPHAS)], rows),
            "Every setting; rates in per cent:",
            table(
                ["mechanism", "events", "alpha", "runs", "seeds", *STATEMENTS, "power", "half the noise"],
                [row(line, {rate.statement: rate for rate in found if rate.line is line}) for line in lines],
            ),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--controls", type=int, default=CONTROLS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=PROJECT / "build" / "calibration")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(asked.workers, multiprocessing.get_context("spawn")) as pool:
        # A twentieth of the seeds of all settings first: what is wrong with one of them shows early.
        for seeds in (math.ceil(asked.seeds / 20), asked.seeds):
            work = partial(go_on, seeds=seeds, controls=asked.controls * seeds // asked.seeds, folder=asked.folder)
            lines = []
            for line in pool.map(work, settings()):
                lines.append(line)
                print(line, flush=True)
    publish(lines)


def publish(lines: list[dict]) -> None:
    draw(lines, DOCS / "figures" / "calibration.png")
    page = DOCS / "calibration.md"
    prose = page.read_text(encoding="utf-8").split(MARK)[0]
    page.write_text(f"{prose}{MARK}\n\n{seen(lines)}\n", encoding="utf-8")
    if any(rate.too_high for rate in rates(lines)):
        raise SystemExit("a statement is false more often than its level allows: docs/calibration.md has it in bold")


if __name__ == "__main__":
    main()
