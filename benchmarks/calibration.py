"""Do the statements of a report hold as often as they say? python benchmarks/calibration.py [--workers N]

Thousands of verifications of mechanisms whose truth is known (tests/known.py). Every setting is a line of JSON in
build/calibration, written anew as seeds are done, so a run that was ended goes on. Writes docs/calibration.md and
docs/figures/calibration.png.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import dpverify as dpv

PROJECT = Path(__file__).parent.parent
sys.path.append(str(PROJECT / "tests"))
from known import EPSILON, KNOWN, cell_probabilities, partition_truth, region_masses  # noqa: E402
from limits import most  # noqa: E402

SEEDS, CONTROLS = 2000, 50
BATCH = 100  # seeds between two writings
REFERENCE = 40_000  # runs a side that stand for the law of a trajectory
SURE = 0.999  # that no rate of the whole table exceeds its limit, if every level is met
ROUNDING = 1e-9  # of a closed form
WORDS = {
    "false alarm": "a true claim refuted",
    "epsilon_lower": "above the truth",
    "delta_lower": "above the truth",
    "delta_upper": "below the partition's own",
    "epsilon_upper": "below the partition's own",
    "region_mass": "above the region's own",
    "all events": "delta below the truth",
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
    "union": {"events": "union"},
    "grid": {"events": "union", "partition": "grid"},
    "equal mass": {"events": "union", "partition": "equal-mass", "resolution": 16},
    "tree": {"events": "union", "partition": "tree"},
    "paper": {},
}
ALPHAS = 0.05, 0.01, 0.2
RUNS = (250, 500), (500, 1000), (1000, 2000)
LARGER = [Setting("laplace", "grid", 0.05, 1000, 8000), Setting("geometric", "union", 0.05, 1000, 8000)]
NOTHING = [Setting("deaf", "default", 0.05, 500, 1000), Setting("deaf", "tree", 0.2, 500, 1000)]


def settings() -> list[Setting]:
    """Every mechanism with every choice of events; levels and runs take turns, so that all pairs of them occur."""
    names = [name for name in KNOWN if name != "deaf"]
    turns = [
        Setting(name, choice, ALPHAS[(i + j) % 3], *RUNS[(i + 2 * j) % 3])
        for i, name in enumerate(names)
        for j, choice in enumerate(CHOICES)
    ]
    return [*turns, *LARGER, *NOTHING]


def report_of(setting: Setting, seed: int, mechanism, claim: tuple[float | None, float]) -> dpv.Report:
    return dpv.verify(
        mechanism,
        0,
        1,
        *claim,
        settings=dpv.Settings.paper() if setting.choice == "paper" else dpv.Settings(**CHOICES[setting.choice]),
        log_lipschitz=KNOWN[setting.mechanism].lipschitz,
        alpha=setting.alpha,
        select_runs=setting.select_runs,
        test_runs=setting.test_runs,
        block=min(setting.test_runs, 1000),
        seed=seed,
    )


def claim_of(setting: Setting) -> tuple[float | None, float]:
    """The least true claim; the paper's test knows delta 0 only, where Gaussian noise has none."""
    epsilon, delta = KNOWN[setting.mechanism].claim
    return (None, 0.0) if delta > 0 and setting.choice == "paper" else (epsilon, delta)


def misses(setting: Setting, report: dpv.Report) -> dict[str, bool]:
    """Which statements of one report are false."""
    name, known, part = setting.mechanism, KNOWN[setting.mechanism], report.on_partition
    delta, epsilon = partition_truth(*cell_probabilities(name, report.witness.event.partition, REFERENCE), EPSILON)
    true = known.epsilon if report.delta == 0 else EPSILON
    found = {
        "false alarm": report.refuted,
        "epsilon_lower": report.epsilon_lower > true + ROUNDING,
        "delta_lower": report.delta_lower(EPSILON) > known.delta(EPSILON) + ROUNDING,
        "delta_upper": part.delta_upper(EPSILON) < delta - ROUNDING,
        "epsilon_upper": part.epsilon_upper() < epsilon - ROUNDING,
        "region_mass": part.region_mass > min(region_masses(name, report.picture["region"], REFERENCE)) + ROUNDING,
    }
    if report.epsilon is None:
        del found["false alarm"]
    if report.on_all_events is not None:
        found["all events"] = report.on_all_events.delta_upper(EPSILON) < known.delta(EPSILON) - ROUNDING
    return {name: bool(missed) for name, missed in found.items()}


def levels(alpha: float) -> dict[str, float]:
    """What each statement may miss: those about the partition share alpha, nine tenths and one."""
    most = {"delta_upper": 0.9 * alpha, "epsilon_upper": 0.9 * alpha, "region_mass": 0.1 * alpha}
    return dict.fromkeys(WORDS, alpha) | most | {"all events": 0.9 * alpha}


def go_on(setting: Setting, seeds: int, controls: int, folder: Path) -> dict:
    """The line of a setting, brought up to so many seeds."""
    path = folder / setting.path
    line = json.loads(path.read_text()) if path.exists() else {}
    line = {"setting": setting, "seeds": 0, "missed": {}, "lower": 0.0, "controls": 0, "caught": 0, "seconds": 0} | line
    claim, known = claim_of(setting), KNOWN[setting.mechanism]
    control = setting.mechanism != "deaf" and claim[0] is not None
    while line["seeds"] < seeds or (control and line["controls"] < controls):
        start = time.process_time()
        for seed in range(line["seeds"], min(seeds, line["seeds"] + BATCH)):
            report = report_of(setting, seed, known.mechanism, claim)
            for name, missed in misses(setting, report).items():
                line["missed"][name] = line["missed"].get(name, 0) + missed
            line["lower"] += report.epsilon_lower
            line["seeds"] += 1
        if control:
            for seed in range(line["controls"], controls):
                line["caught"] += report_of(setting, seed, known.half_noise, claim).refuted
                line["controls"] += 1
        line["seconds"] += time.process_time() - start
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(line) + "\n")
        os.replace(fresh, path)
    return line


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
            for line in pool.map(work, settings()):
                print(line, flush=True)


if __name__ == "__main__":
    main()
