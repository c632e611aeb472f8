"""Counts how often the statements of a report are false, for mechanisms whose exact privacy is known.

The script makes thousands of small verifications of the mechanisms of tests/support/known.py. The results of each
setting are one JSON file in build/calibration, which is updated after each batch of seeds, so that an interrupted run
can be resumed. calibration_page.py writes docs/calibration.md and its figure.

Run: python benchmarks/calibration.py [--workers N], or `make calibration` (an hour on one core).
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import multiprocessing
import os
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dpverify as dpv
import dpverify.pipeline
from dpverify.events.event import Event
from dpverify.events.partition import Partition
from dpverify.events.scores import Levels
from dpverify.report.statements import CellBounds

PROJECT = Path(__file__).parent.parent
sys.path.append(str(PROJECT / "tests" / "support"))
from known import (  # noqa: E402
    EPSILON,
    EXACT_CELLS,
    KNOWN,
    cell_probabilities,
    partition_truth,
    region_masses,
)

DEFAULT_SEEDS, DEFAULT_CONTROLS = 2000, 50
SEEDS_PER_BATCH = 100
REFERENCE_RUNS = 40_000  # runs per dataset that represent the distribution of a trajectory
ROUNDING_TOLERANCE = 1e-9  # of closed forms
SHARES_OF_ALPHA = {  # the statements about the partition share one alpha
    "false alarm": 1.0,
    "epsilon_lower": 1.0,
    "own epsilon": 1.0,
    "delta_lower": 1.0,
    "delta_upper": 0.9,
    "epsilon_upper": 0.9,
    "region_mass": 0.1,
    "all events": 0.9,
}


class Setting(NamedTuple):
    """A mechanism, the choice of events, the level, and the runs per dataset."""

    mechanism: str
    choice: str
    alpha: float
    select_runs: int
    test_runs: int

    @property
    def file_name(self) -> str:
        """The name of the file with its result."""
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
# These have enough runs for the joint limit of a union at this alpha (docs/method.md, section 5.4).
LARGE_SETTINGS = [Setting("laplace", "grid", 0.05, 800, 8000), Setting("geometric", "union", 0.05, 800, 8000)]
# The paper's test takes the smaller of two p-values, so that its false alarms may be twice as frequent (section 4.9).
DOUBLED_SETTING = Setting("deaf", "paper", 0.05, 400, 800)
EQUAL_DISTRIBUTION_SETTINGS = [
    Setting("deaf", "default", 0.05, 400, 800),
    Setting("deaf", "tree", 0.2, 400, 800),
    DOUBLED_SETTING,
]


@dataclass
class SettingResult:
    """The counts of one setting.

    Attributes
    ----------
    setting : Setting
        The setting.
    source : str
        Hash of the sources that the counts depend on.
    seeds : int
        Number of verifications.
    false_counts : dict
        How often each statement was false.
    lower_sum : float
        Sum of the lower bounds on epsilon.
    voided : int
        How many verifications had no answer because of a diagnostic.
    controls, caught : int
        Verifications of the mechanism with half the noise, and how many of them refuted the claim.
    seconds : float
        Processor time.
    """

    setting: Setting
    source: str
    seeds: int = 0
    false_counts: dict[str, int] = field(default_factory=dict)
    lower_sum: float = 0.0
    voided: int = 0
    controls: int = 0
    caught: int = 0
    seconds: float = 0.0

    def add(self, report: dpv.Report) -> None:
        """Count the false statements of one more report."""
        for statement, is_false in false_statements(self.setting, report).items():
            self.false_counts[statement] = self.false_counts.get(statement, 0) + is_false
        self.lower_sum += report.epsilon_lower
        self.voided += bool(report.voiding)
        self.seeds += 1


def all_settings() -> list[Setting]:
    """Return every mechanism with every choice of events; levels and runs alternate, so that all pairs occur."""
    names = [name for name in KNOWN if name != "deaf"]
    combinations = [
        Setting(name, choice, ALPHAS[(1 - i - j) % 3], *RUNS[(i + 2 * j) % 3])
        for i, name in enumerate(names)
        for j, choice in enumerate(CHOICES)
    ]
    return [*combinations, *EQUAL_DISTRIBUTION_SETTINGS, *LARGE_SETTINGS]


def verify_setting(setting: Setting, number: int, mechanism: Callable[..., object]) -> dpv.Report:
    """Return verification `number` of a setting; no two verifications share a seed."""
    base = dpv.Settings.paper() if setting.choice == "paper" else dpv.Settings(**CHOICES[setting.choice])
    settings = base.change(
        alpha=setting.alpha,
        select_runs=setting.select_runs,
        test_runs=setting.test_runs,
        block=min(setting.test_runs, 1000),
        seed=zlib.crc32(setting.file_name.encode()),
    )
    lipschitz = KNOWN[setting.mechanism].lipschitz
    _, delta = true_claim(setting)
    return dpv.verify(mechanism, 0, 1, None, delta, settings=settings.spawn(number), log_lipschitz=lipschitz)


def true_claim(setting: Setting) -> tuple[float | None, float]:
    """Return the smallest true claim; None where there is none at delta 0, the only delta of the paper's test."""
    epsilon, delta = KNOWN[setting.mechanism].claim
    return (None, 0.0) if delta > 0 and setting.choice == "paper" else (epsilon, delta)


def is_refuted(report: dpv.Report, epsilon: float) -> bool:
    """Return the verdict on a claim.

    The exact test refutes a claim only if its lower bound exceeds the claim, so other claims need no test.
    """
    needs_test = report.settings.test == "thinned" or report.epsilon_lower > epsilon
    return needs_test and report.against(epsilon, report.delta).refuted


# A report has the counts of its cells, not the cells. The partition of the last verification is needed for the truth.
bounded_partitions: list[Partition | Levels] = []


class WatchedCellBounds(CellBounds):
    """Bounds over cells that note their partition."""

    @classmethod
    def of(cls, partition: Partition | Levels, *counted: Any) -> CellBounds:
        """Return the bounds."""
        bounded_partitions[:] = [partition]
        return CellBounds.of(partition, *counted)


dpverify.pipeline.CellBounds = WatchedCellBounds


def false_statements(setting: Setting, report: dpv.Report) -> dict[str, bool]:
    """Return, for each statement of a report, whether it is false."""
    name, known, part = setting.mechanism, KNOWN[setting.mechanism], report.on_partition
    partition = bounded_partitions[-1]
    delta, epsilon = partition_truth(*cell_probabilities(name, partition, REFERENCE_RUNS), EPSILON)
    true_region_mass = min(region_masses(name, report.picture["region"], REFERENCE_RUNS))
    claimed, _ = true_claim(setting)
    statements = {
        "delta_lower": report.delta_lower(EPSILON) > known.delta(EPSILON) + ROUNDING_TOLERANCE,
        "delta_upper": part.delta_upper(EPSILON) < delta - ROUNDING_TOLERANCE,
        "epsilon_upper": part.epsilon_upper() < epsilon - ROUNDING_TOLERANCE,
        "region_mass": part.region_mass > true_region_mass + ROUNDING_TOLERANCE,
    }
    if claimed is not None:  # otherwise the true epsilon is infinite, and no lower bound is false
        statements["epsilon_lower"] = report.epsilon_lower > claimed + ROUNDING_TOLERANCE
        statements["false alarm"] = is_refuted(report, claimed)
    if name in EXACT_CELLS:
        own = max(own_epsilon(name, witness.event, report.delta) for witness in report.tested)
        statements["own epsilon"] = report.epsilon_lower > own + ROUNDING_TOLERANCE
    if report.certificate is not None:
        true_delta = known.delta(EPSILON)
        statements["all events"] = report.certificate.delta_upper(EPSILON) < true_delta - ROUNDING_TOLERANCE
    return {statement: bool(is_false) for statement, is_false in statements.items()}


def own_epsilon(name: str, event: Event, delta: float) -> float:
    """Return the exact privacy loss of a tested event in its direction: log((p1 - delta) / p2), and 0 if negative."""
    p1, p2 = (float(side[event.codes].sum()) for side in cell_probabilities(name, event.partition))
    if event.direction == 1:
        p1, p2 = p2, p1
    if p1 - delta <= p2:
        return 0.0
    return math.log((p1 - delta) / p2) if p2 > 0 else math.inf


def source_hash() -> str:
    """Hash everything that a result depends on; results of other sources are counted anew."""
    package = (PROJECT / "src" / "dpverify").rglob("*.py")
    sources = sorted([*package, PROJECT / "tests" / "support" / "known.py", Path(__file__)])
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def read_result(path: Path, setting: Setting) -> SettingResult:
    """Return the stored result of a setting, or an empty one if there is none from the present sources."""
    source = source_hash()
    document = json.loads(path.read_text()) if path.exists() else {}
    if document.get("source") != source:
        return SettingResult(setting, source)
    return SettingResult(**{**document, "setting": Setting(*document["setting"])})


def measure_setting(setting: Setting, seeds: int, controls: int, folder: Path) -> SettingResult:
    """Verify a setting until it has this many seeds and negative controls; resumes from the stored result."""
    path = folder / setting.file_name
    result = read_result(path, setting)
    (claimed, _), known = true_claim(setting), KNOWN[setting.mechanism]
    # Equal distributions have no less noisy variant, and an infinite epsilon no claim to refute.
    has_control = setting.mechanism != "deaf" and claimed is not None
    while result.seeds < seeds or (has_control and result.controls < controls):
        start = time.process_time()
        for number in range(result.seeds, min(seeds, result.seeds + SEEDS_PER_BATCH)):
            result.add(verify_setting(setting, number, known.mechanism))
        if has_control:
            for number in range(result.controls, controls):
                result.caught += is_refuted(verify_setting(setting, number, known.half_noise), claimed)
                result.controls += 1
        result.seconds += time.process_time() - start
        new = path.with_suffix(".new")
        new.write_text(json.dumps(dataclasses.asdict(result)) + "\n")
        os.replace(new, path)
    return result


def main() -> None:
    """Measure every setting, and write the page."""
    from calibration_page import write_page

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=DEFAULT_SEEDS, help="verifications per setting")
    parser.add_argument("--controls", type=int, default=DEFAULT_CONTROLS, help="negative controls per setting")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=PROJECT / "build" / "calibration")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    results: list[SettingResult] = []
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        # A twentieth of the seeds of all settings comes first, so that a problem of any setting shows early.
        for seeds in (math.ceil(options.seeds / 20), options.seeds):
            controls = options.controls * seeds // options.seeds
            work = partial(measure_setting, seeds=seeds, controls=controls, folder=options.folder)
            results = []
            for result in pool.map(work, all_settings()):
                results.append(result)
                print(result, flush=True)
    write_page(results)


if __name__ == "__main__":
    main()
