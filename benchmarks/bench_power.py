"""Measures how much of what the true likelihood ratio can prove a verification proves, on laws of many kinds.

For each law the table shows the median over the seeds of

- bound: the lower bound on epsilon of a default verification,
- true ratio: the bound if the exact log-likelihood ratio is given as the score (`events=`), from as many runs,
- best: the expected bound of the best level set of the exact ratio, which no selection knows,
- share: bound / best, and seconds: the time of one verification.

With `--profile` it shows the share of the exact delta that `report.delta_lower` proves at several epsilons, where that
delta is at least MIN_DELTA.

Run: python benchmarks/bench_power.py (about an hour with the default sizes).
Smaller: --select 20000 --test 100000 --seeds 1. Some laws only: --only leak. Figure: --out docs/figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from laws import Law, laws
from scipy.special import expit
from structured_laws import structured_laws

import dpverify as dpv
from dpverify.selection.objective import SelectionObjective, approximate_bound

ALPHA = 0.05
MAX_DIMENSION = 8  # of one step
BEST_RUNS, MAX_BEST_RUNS = 400_000, 4_000_000  # runs per data set that find the best level set
BEST_NUMBERS = 40_000_000  # coordinates times runs per data set, within these limits
PIECE_RUNS = 10_000
EXACT_THRESHOLDS = 20  # thresholds at which the exact bound is evaluated
EPSILONS = (0.0, 0.1, 0.5, 1.0)  # of the profile
MIN_DELTA = 0.02  # the profile is compared where the exact delta is at least this


class Mechanism:
    """A law as a mechanism: the data set is 0 or 1."""

    def __init__(self, law: Law):
        self.law, self.__name__ = law, law.name

    def __call__(self, side, runs, rng):
        outputs = self.law.draw(side, runs, rng)
        # Many coordinates are steps of a trajectory: a region around all of them jointly would take long.
        return outputs[:, :, None] if outputs.shape[1] > MAX_DIMENSION else outputs


def exact_ratios(law: Law, numbers: int, seed: int) -> np.ndarray:
    """Return exact log-likelihood ratios, sorted downwards, of as many runs of either data set.

    As many runs are drawn as give so many numbers per data set, within the limits BEST_RUNS and MAX_BEST_RUNS.
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

    Each run counts for both data sets, with weights that follow from the exact ratio, so that an event needs hits under
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


def measure(law: Law, select_runs: int, test_runs: int, seeds: int) -> dict[str, float]:
    """Return the row of one law."""
    mechanism = Mechanism(law)
    own, given, seconds = [], [], []

    def true_score(samples):
        values = law.log_ratio(samples.reshape(len(samples), -1))
        return np.clip(np.nan_to_num(values, nan=0.0, posinf=1e3, neginf=-1e3), -1e3, 1e3)

    for seed in range(seeds):
        sizes = {"select_runs": select_runs, "test_runs": test_runs, "seed": seed, "alpha": ALPHA}
        start = time.perf_counter()
        report = dpv.verify(mechanism, 0, 1, **sizes, **law.settings)
        seconds.append(time.perf_counter() - start)
        own.append(report.epsilon_lower)
        given.append(dpv.verify(mechanism, 0, 1, **sizes, **law.settings, events=true_score).epsilon_lower)
    best = best_bound(law, test_runs, BEST_NUMBERS, 0)
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


def measure_profile(law: Law, select_runs: int, test_runs: int, seeds: int) -> dict[str, float]:
    """Return the median share of the exact delta at each epsilon where it is at least MIN_DELTA."""
    sizes = {"select_runs": select_runs, "test_runs": test_runs, "alpha": ALPHA}
    reports = [dpv.verify(Mechanism(law), 0, 1, **sizes, **law.settings, seed=seed) for seed in range(seeds)]
    return {
        f"{epsilon:g}": statistics.median(report.delta_lower(epsilon) for report in reports) / delta
        for epsilon, delta in zip(EPSILONS, exact_deltas(law), strict=True)
        if delta >= MIN_DELTA
    }


def print_shares(chosen: list[Law], select_runs: int, test_runs: int, seeds: int) -> dict[str, dict[str, float]]:
    """Print and return the rows of the laws."""
    columns = ("bound", "true ratio", "best", "share", "seconds")
    print(f"{'law':<32}" + "".join(f"{column:>12}" for column in columns), flush=True)
    rows = {}
    for law in chosen:
        rows[law.name] = measure(law, select_runs, test_runs, seeds)
        print(f"{law.name:<32}" + "".join(f"{rows[law.name][column]:12.3f}" for column in columns), flush=True)
    shares = [row["share"] for row in rows.values()]
    if shares:
        below = sum(share < 0.85 for share in shares)
        print(f"mean share {np.mean(shares):.3f}, smallest {min(shares):.3f}, below .85: {below} of {len(shares)}")
    return rows


def print_profiles(chosen: list[Law], select_runs: int, test_runs: int, seeds: int) -> None:
    """Print the shares of the exact profile of each law."""
    print(f"{'law':<32}" + "".join(f"{f'epsilon {epsilon:g}':>14}" for epsilon in EPSILONS), flush=True)
    for law in chosen:
        shares = measure_profile(law, select_runs, test_runs, seeds)
        values = [f"{shares[name]:.3f}" if (name := f"{epsilon:g}") in shares else "-" for epsilon in EPSILONS]
        print(f"{law.name:<32}" + "".join(f"{value:>14}" for value in values), flush=True)


def draw_figure(rows: dict[str, dict[str, float]], folder: Path) -> None:
    """Draw the shares of all laws."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 0.22 * len(rows) + 1), layout="constrained")
    names = list(rows)[::-1]
    axes.barh(names, [rows[name]["share"] for name in names], color="tab:blue")
    axes.plot(
        [rows[name]["true ratio"] / max(rows[name]["best"], 1e-9) for name in names], names, "k|", label="true ratio"
    )
    axes.set_xlabel("share of the best expected lower bound")
    axes.legend(loc="lower left")
    figure.savefig(folder / "power.png", dpi=120)


def main() -> None:
    """Print the table, and draw the figure if a folder is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--select", type=int, default=200_000, help="selection runs per data set")
    parser.add_argument("--test", type=int, default=1_000_000, help="test runs per data set")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="laws whose name contains this text")
    parser.add_argument("--profile", action="store_true", help="shares of the exact delta instead")
    parser.add_argument("--out", type=Path, help="folder for the figure")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = [law for law in [*laws(), *structured_laws()] if arguments.only in law.name]
    sizes = arguments.select, arguments.test, arguments.seeds
    if arguments.profile:
        print_profiles(chosen, *sizes)
    else:
        rows = print_shares(chosen, *sizes)
        if arguments.out:
            draw_figure(rows, arguments.out)


if __name__ == "__main__":
    main()
