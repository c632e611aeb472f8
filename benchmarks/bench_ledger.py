"""Measures the ledger: false alarms over whole lives of a project, and versions until a fault raises an alarm.

Real verifications fill a pool: mechanisms whose claims are exactly true, and the same mechanisms with less noise. Whole
lives are then made of versions that are drawn from the pool. A project has ten claims; every version has one
verification of 20 000 runs per dataset for each claim.

Run: python benchmarks/bench_ledger.py --seconds 3600 (one core; 2000 real verifications). The pool is kept in
build/ledger-pool.jsonl, and a further call adds to it. `--seconds 0` uses the pool as it is. `--life N` also runs one
real life of N versions through a ledger file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

from dpverify.ci.ledger import read_ledger, verify_version
from dpverify.claims import Approximate, sloped_boundary
from dpverify.early import WATCHED_KEY, Family, Request
from dpverify.pipeline import run_verification
from dpverify.report.report import Report
from dpverify.settings import Settings
from dpverify.stats.anytime import STRATEGY_WEIGHTS, Boundary, CarriedBet, carried_log_e_values, carry_bet, start_weight

ALPHA = 0.05
CLAIMS = 10
SELECT_RUNS, TEST_RUNS = 5_000, 15_000
NOISE = {"healthy": 1.0, "30% less noise": 0.7, "5% less noise": 0.95, "2% less noise": 0.98}
SHARES = (
    "healthy",
    "2% less noise",
    "healthy",
    "5% less noise",
    "healthy",
    "2% less noise",
    "healthy",
    "30% less noise",
)
BASE_VERSIONS = 5  # healthy verifications that the predictions use; they are in no life
HEALTHY_VERSIONS = 200  # before a fault
SURE = 0.999  # of the binomial limit


def laplace(scale):
    return lambda data, runs, rng: data + rng.laplace(scale=scale, size=runs)


def gaussian(scale):
    return lambda data, runs, rng: data + rng.normal(scale=scale, size=runs)


def geometric(scale):
    keep = math.exp(-1 / scale)  # two-sided geometric noise is epsilon 1 at scale 1
    return lambda data, runs, rng: data + rng.geometric(1 - keep, runs) - rng.geometric(1 - keep, runs)


GAUSSIAN_DELTA = float(ndtr(-0.5) - math.e * ndtr(-1.5))  # of epsilon 1 at scale 1
KINDS = {
    "Laplace": (laplace, Approximate(1.0, 0.0)),
    "Gaussian": (gaussian, Approximate(1.0, GAUSSIAN_DELTA)),
    "geometric": (geometric, Approximate(1.0, 0.0)),
}


def verification(kind: str, noise: float, seed: int, first: Report | None) -> Report:
    """Verify one version as `verify_version` does in the middle of a life."""
    make, claim = KINDS[kind]
    level = ALPHA * start_weight(CLAIMS // 2) / 2 * start_weight(HEALTHY_VERSIONS)
    settings = Settings(select_runs=SELECT_RUNS, test_runs=TEST_RUNS, stop_early=True, alpha=level, seed=seed)
    question = Request(claim, claim.delta)
    if first is not None:
        cells = Family(first.witness.event.partition)
        question = question._replace(watched=cells, watched_shape=first.witness.shape)
    return run_verification(make(noise), 0.0, 1.0, question, settings, progress=False)


def fill_pool(path: Path, seconds: float) -> None:
    """Add real verifications to the pool until the time is over."""
    end, rows = time.monotonic() + seconds, read_pool(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    firsts = {}
    with path.open("a") as file:
        for seed in itertools.count(1 + max((row["seed"] for row in rows), default=0)):
            for kind in KINDS:
                if time.monotonic() > end:
                    return
                if kind not in firsts:
                    firsts[kind] = verification(kind, 1.0, 0, None)
                fault = SHARES[seed % len(SHARES)]
                report = verification(kind, NOISE[fault], seed, firsts[kind])
                assert report.sequence is not None
                own = float(report.sequence.log_wealth(report.claim)[-1])
                row = {
                    "kind": kind,
                    "fault": fault,
                    "seed": seed,
                    "own": own,
                    "watched": report.provenance[WATCHED_KEY],
                }
                file.write(json.dumps(row) + "\n")
                file.flush()


def read_pool(path: Path) -> list[dict]:
    """Return the verifications of the pool."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def carried(watched: dict, bet: CarriedBet, boundary: Boundary) -> list[float]:
    """Return the logarithms of the e-values of the carried bet."""
    return carried_log_e_values(np.array(watched["cells"]), watched["runs"], bet, boundary)


def e_value_tables(rows: list[dict]) -> dict[tuple[str, str], np.ndarray]:
    """Return for each mechanism and fault a table of log e-values: a line per verification, a column per strategy."""
    tables = {}
    for kind, (_, claim) in KINDS.items():
        boundary = sloped_boundary(claim)
        healthy = [row for row in rows if (row["kind"], row["fault"]) == (kind, "healthy")]
        base = [row["watched"] for row in healthy[:BASE_VERSIONS]]
        cells, runs = np.sum([row["cells"] for row in base], axis=0), sum(row["runs"] for row in base)
        bet = carry_bet(cells, runs, SELECT_RUNS + TEST_RUNS, boundary)
        assert bet is not None
        for fault in NOISE:
            chosen = [row for row in rows if (row["kind"], row["fault"]) == (kind, fault)]
            chosen = chosen[BASE_VERSIONS:] if fault == "healthy" else chosen
            tables[kind, fault] = np.array([[row["own"], *carried(row["watched"], bet, boundary)] for row in chosen])
    return tables


class Lives:
    """Many lives of one claim at once: the terms of the mixture for every strategy, by its recursion."""

    def __init__(self, number: int, level: float) -> None:
        self.terms = np.zeros((number, len(STRATEGY_WEIGHTS)))
        self.versions, self.level = 0, level

    def add(self, log_e: np.ndarray) -> np.ndarray:
        """Add one version to each life, and return which lives raise an alarm."""
        self.versions += 1
        self.terms += start_weight(self.versions) * np.array(STRATEGY_WEIGHTS)
        self.terms = np.minimum(self.terms, 1e150) * np.exp(np.minimum(log_e, 300.0))
        return self.terms.sum(axis=1) + 1 / (self.versions + 1) >= 1 / self.level


def false_alarms(tables: dict, lives: int, versions: int, rng: np.random.Generator) -> int:
    """Return how many lives of a project without a fault have an alarm of any claim."""
    alarmed = np.zeros(lives, bool)
    for number in range(CLAIMS):
        table = tables[list(KINDS)[number % len(KINDS)], "healthy"]
        claim = Lives(lives, ALPHA * start_weight(number + 1) / 2)
        for _ in range(versions):
            alarmed |= claim.add(table[rng.integers(len(table), size=lives)])
    return int(alarmed.sum())


def versions_to_alarm(tables: dict, fault: str, number: int, lives: int, rng: np.random.Generator) -> np.ndarray:
    """Return after how many faulty versions claim `number` raises an alarm, in lives with a healthy past."""
    kind = list(KINDS)[number % len(KINDS)]
    claim, waiting = Lives(lives, ALPHA * start_weight(number + 1) / 2), np.full(lives, np.inf)
    for _ in range(HEALTHY_VERSIONS):
        table = tables[kind, "healthy"]
        claim.add(table[rng.integers(len(table), size=lives)])
    table = tables[kind, fault]
    for version in range(1, 301):
        alarm = claim.add(table[rng.integers(len(table), size=lives)])
        waiting = np.where(alarm & ~np.isfinite(waiting), version, waiting)
    return waiting


def real_life(versions: int) -> str:
    """Run one real life of three true claims through a ledger file, and return its end in words."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.json"
        for version in range(versions):
            for kind, (make, claim) in KINDS.items():
                verify_version(
                    make(1.0), 0.0, 1.0, None, claim.delta, claim=claim, name=kind, version=f"v{version}", ledger=path,
                    seed=10**6 + version, select_runs=SELECT_RUNS, test_runs=TEST_RUNS, progress=False,
                )  # fmt: skip
        ledger = read_ledger(path, ALPHA)
        alarms = [record.name for record in ledger.records if record.alarm is not None]
        return f"{versions} real versions of {len(KINDS)} true claims: {len(alarms)} alarms"


def main() -> None:
    """Fill the pool, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0, help="time for real verifications")
    parser.add_argument("--lives", type=int, default=2000)
    parser.add_argument("--versions", type=int, default=1000, help="of a life")
    parser.add_argument("--life", type=int, default=0, help="versions of a real life through a ledger file")
    parser.add_argument("--pool", type=Path, default=Path("build/ledger-pool.jsonl"))
    options = parser.parse_args()
    fill_pool(options.pool, options.seconds)
    rows = read_pool(options.pool)
    tables, rng = e_value_tables(rows), np.random.default_rng(0)
    print(f"{len(rows)} real verifications of {SELECT_RUNS + TEST_RUNS} runs per dataset")
    for kind in KINDS:
        means = np.exp(tables[kind, "healthy"]).mean(axis=0)
        logs = tables[kind, "healthy"].mean(axis=0)
        number = len(tables[kind, "healthy"])
        print(f"  {kind}, healthy: {number} e-values, means {means.round(2)}, mean logs {logs.round(2)}")
    alarms = false_alarms(tables, options.lives, options.versions, rng)
    limit = int(binom.ppf(SURE, options.lives, ALPHA))
    print(f"false alarms: {alarms} of {options.lives} lives of {options.versions} versions (limit {limit} at {ALPHA})")
    for fault in list(NOISE)[1:]:
        medians = []
        for number in range(CLAIMS):
            medians.append(float(np.median(versions_to_alarm(tables, fault, number, 200, rng))))
        print(f"{fault}: versions until the alarm, median of each claim {medians}, median {np.median(medians):g}")
    if options.life:
        print(real_life(options.life))


if __name__ == "__main__":
    main()
