"""Measures how much of what the true likelihood ratio can prove a verification proves, on laws of many kinds.

For each law the table shows the median over the seeds of

- bound: the lower bound on epsilon of a default verification,
- true ratio: the bound if the exact log-likelihood ratio is given as the score (`events=`), from as many runs,
- best: the expected bound of the best level set of the exact ratio, which no selection knows,
- share: bound / best, and seconds: the time of one verification.

With `--profile` it shows the share of the exact delta that `report.delta_lower` proves at several epsilons, where that
delta is at least MIN_DELTA.

The rows are kept in build/power.json, so that an interrupted run can be resumed. docs/power.md shows them.

Run: python benchmarks/bench_power.py (more than an hour with the default sizes), then the same with --profile.
Smaller, without the page: --select 20000 --test 100000 --seeds 1. Some laws only: --only leak.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import statistics
import time
import warnings
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from laws import Law, laws
from power_page import COLUMNS, write_page
from scipy.special import expit
from structured_laws import structured_laws

import dpverify as dpv
from dpverify.selection.objective import SelectionObjective, approximate_bound

FOLDER = Path(__file__).parent
ALPHA = 0.05
MAX_DIMENSION = 8  # of one step
BEST_RUNS, MAX_BEST_RUNS = 400_000, 4_000_000  # runs per dataset that find the best level set
BEST_NUMBERS = 40_000_000  # coordinates times runs per dataset, within these limits
PIECE_RUNS = 10_000
EXACT_THRESHOLDS = 20  # thresholds at which the exact bound is evaluated
EPSILONS = (0.0, 0.1, 0.5, 1.0)  # of the profile
MIN_DELTA = 0.02  # the profile is compared where the exact delta is at least this


class Sizes(NamedTuple):
    """Runs per dataset, and the number of seeds."""

    select_runs: int
    test_runs: int
    seeds: int

    @property
    def text(self) -> str:
        """The sizes in words."""
        return f"{self.select_runs:,} selection and {self.test_runs:,} test runs, median of {self.seeds} seeds"


DEFAULT = Sizes(200_000, 1_000_000, 5)


class Mechanism:
    """A law as a mechanism: the dataset is 0 or 1."""

    def __init__(self, law: Law):
        self.law, self.__name__ = law, law.name

    def __call__(self, side, runs, rng):
        outputs = self.law.draw(side, runs, rng)
        # Many coordinates are steps of a trajectory: a region around all of them jointly would take long.
        return outputs[:, :, None] if outputs.shape[1] > MAX_DIMENSION else outputs


def exact_ratios(law: Law, numbers: int, seed: int) -> np.ndarray:
    """Return exact log-likelihood ratios, sorted downwards, of as many runs of either dataset.

    As many runs are drawn as give so many numbers per dataset, within the limits BEST_RUNS and MAX_BEST_RUNS.
    """
    coordinates = law.draw(0, 1, np.random.default_rng(0)).shape[1]
    pieces = max(BEST_RUNS, min(MAX_BEST_RUNS, numbers // coordinates)) // PIECE_RUNS
    ratios = []
    for side in (0, 1):
        rng = np.random.default_rng([seed, side])
        for _ in range(pieces):
            with np.errstate(invalid="ignore"):
                ratios.append(law.log_ratio(law.draw(side, PIECE_RUNS, rng)))
    return np.sort(np.concatenate(ratios))[::-1]


def best_bound(law: Law, test_runs: int, numbers: int, seed: int) -> float:
    """Return the largest expected lower bound over level sets of the exact ratio, in both directions.

    Each run counts for both datasets, with weights that follow from the exact ratio, so that an event needs hits under
    one of them only.
    """
    delta, best = law.settings.get("delta", 0.0), 0.0
    pooled = exact_ratios(law, numbers, seed)
    runs = len(pooled) // 2
    for ratio in (pooled, -pooled[::-1]):
        p1, p2 = (np.cumsum(expit(sign * ratio)) / runs for sign in (1, -1))
        last = np.append(ratio[1:] < ratio[:-1], True)  # equal ratios belong to the same event
        p1, p2 = p1[last], p2[last]
        objective = SelectionObjective(test_runs, delta, ALPHA, 0.0)
        rough = approximate_bound(np.minimum(p1, 1.0), np.minimum(p2, 1.0), objective)
        for i in np.argsort(-rough)[:: max(1, len(rough) // 2000)][:EXACT_THRESHOLDS]:
            c1, c2 = (min(round(float(p[i]) * test_runs), test_runs) for p in (p1, p2))
            best = max(best, dpv.epsilon_lower_bound(c1, c2, test_runs, delta, ALPHA))
    return best


def measure(law: Law, sizes: Sizes) -> dict[str, float]:
    """Return the row of one law."""
    mechanism = Mechanism(law)
    own, given, seconds = [], [], []

    def true_score(samples):
        values = law.log_ratio(samples.reshape(len(samples), -1))
        return np.clip(np.nan_to_num(values, nan=0.0, posinf=1e3, neginf=-1e3), -1e3, 1e3)

    for seed in range(sizes.seeds):
        settings = {"select_runs": sizes.select_runs, "test_runs": sizes.test_runs, "seed": seed, "alpha": ALPHA}
        start = time.perf_counter()
        report = dpv.verify(mechanism, 0, 1, **settings, **law.settings)
        seconds.append(time.perf_counter() - start)
        own.append(report.epsilon_lower)
        given.append(dpv.verify(mechanism, 0, 1, **settings, **law.settings, events=true_score).epsilon_lower)
    best = best_bound(law, sizes.test_runs, BEST_NUMBERS, 0)
    return {
        "bound": statistics.median(own),
        "true ratio": statistics.median(given),
        "best": best,
        "share": statistics.median(own) / best if best else 1.0,
        "seconds": statistics.median(seconds),
    }


def exact_deltas(law: Law) -> list[float]:
    """Return the exact delta at each of EPSILONS, the larger of the two directions, up to the simulation error."""
    ratios = exact_ratios(law, BEST_NUMBERS, 0)
    runs = len(ratios) / 2
    return [
        max(
            float(np.maximum(expit(sign * ratios) - np.exp(epsilon) * expit(-sign * ratios), 0).sum())
            for sign in (1, -1)
        )
        / runs
        for epsilon in EPSILONS
    ]


def measure_profile(law: Law, sizes: Sizes) -> dict[str, float]:
    """Return the median share of the exact delta at each epsilon where it is at least MIN_DELTA."""
    settings = {"select_runs": sizes.select_runs, "test_runs": sizes.test_runs, "alpha": ALPHA, **law.settings}
    reports = [dpv.verify(Mechanism(law), 0, 1, **settings, seed=seed) for seed in range(sizes.seeds)]
    return {
        f"{epsilon:g}": statistics.median(report.delta_lower(epsilon) for report in reports) / delta
        for epsilon, delta in zip(EPSILONS, exact_deltas(law), strict=True)
        if delta >= MIN_DELTA
    }


def kept_rows(path: Path, part: str, sizes: Sizes) -> dict[str, dict[str, float]]:
    """Return the rows of a part that were measured with the present sources and these sizes."""
    document = json.loads(path.read_text()) if path.exists() else {}
    is_present = document.get("source") == source_hash() and document.get("sizes") == list(sizes)
    return document.get(part, {}) if is_present else {}


def source_hash() -> str:
    """Hash everything that a row depends on."""
    package = (FOLDER.parent / "src" / "dpverify").rglob("*.py")
    sources = sorted([*package, FOLDER / "laws.py", FOLDER / "structured_laws.py", Path(__file__)])
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def main() -> None:
    """Print a table, and write the page if all laws were measured with the default sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--select", type=int, default=DEFAULT.select_runs, help="selection runs per dataset")
    parser.add_argument("--test", type=int, default=DEFAULT.test_runs, help="test runs per dataset")
    parser.add_argument("--seeds", type=int, default=DEFAULT.seeds)
    parser.add_argument("--only", default="", help="laws whose name contains this text")
    parser.add_argument("--profile", action="store_true", help="shares of the exact delta instead")
    parser.add_argument("--kept", type=Path, default=FOLDER.parent / "build" / "power.json", help="file of the rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = Sizes(arguments.select, arguments.test, arguments.seeds)
    parts = {part: kept_rows(arguments.kept, part, sizes) for part in ("shares", "profiles")}
    part, measure_row = ("profiles", measure_profile) if arguments.profile else ("shares", measure)
    columns = [f"{epsilon:g}" for epsilon in EPSILONS] if arguments.profile else COLUMNS
    print(f"{'law':<32}" + "".join(f"{column:>12}" for column in columns), flush=True)
    every = [*laws(), *structured_laws()]
    for law in every:
        if arguments.only not in law.name:
            continue
        if law.name not in parts[part]:
            parts[part][law.name] = measure_row(law, sizes)
            arguments.kept.parent.mkdir(exist_ok=True)
            arguments.kept.write_text(json.dumps({"source": source_hash(), "sizes": sizes, **parts}) + "\n")
        row = parts[part][law.name]
        print(f"{law.name:<32}" + "".join(f"{row.get(column, math.nan):12.3f}" for column in columns), flush=True)
    shares = [row["share"] for row in parts["shares"].values()]
    if shares:
        below = sum(share < 0.85 for share in shares)
        print(f"mean share {np.mean(shares):.3f}, smallest {min(shares):.3f}, below .85: {below} of {len(shares)}")
    if sizes == DEFAULT and len(shares) == len(every):
        shares_by_law, profiles_by_law = (
            {law.name: rows[law.name] for law in every if law.name in rows} for rows in parts.values()
        )
        write_page(shares_by_law, profiles_by_law, sizes.text)


if __name__ == "__main__":
    main()
