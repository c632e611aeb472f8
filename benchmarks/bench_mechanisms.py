"""Measures the certified epsilon of published mechanisms, next to the exact epsilon and to published results.

The pair of datasets is searched among the listed ones with at most half of the selection runs. The results of
other tools are the published ones. Times are processor times, compared with drawing the same number of runs in the same
process.

Run: python benchmarks/bench_mechanisms.py (2e7 test runs and at most 1e7 selection runs; an hour).
Coverage instead, that is, how often a bound exceeds the exact epsilon over 20 seeds: --coverage.
Some rows only: --rows RNM4 SVT3.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from pathlib import Path

from scipy.stats import binom

import dpverify as dpv
from dpverify.sampling.blocks import SampleSource, draw_block
from mechanisms import ROWS

DEFAULT_SEEDS = 5
SEARCH_SHARE = 0.5  # of the selection runs; those that the search does not need are selection runs of the verification
PRINTED_DIGITS_TOLERANCE = 5e-5  # the exact values have four digits
CSV_COLUMNS = [
    "mechanism",
    "claimed",
    "exact",
    "oracle",
    "ours",
    "DP-Sniper",
    "StatDP",
    "pairs",
    "seconds",
    "bare",
    "all seeds",
]


def drawing_seconds(row, pair, runs, block):
    """Estimate the processor time to draw `runs` runs per dataset, from eight blocks."""
    source = SampleSource(row.mechanism, pair, 0, block)
    draw_block(source, "test", 0, 0)
    start = time.process_time()
    for number in range(8):
        draw_block(source, "test", number % 2, number)
    return (time.process_time() - start) / (8 * block) * 2 * runs


def verify_row(row, seed, select_runs, test_runs):
    """Search the pair and verify the mechanism with at most `select_runs` selection runs per dataset in all.

    Return the result and the processor time.
    """
    search_runs = int(SEARCH_SHARE * select_runs)
    start = time.process_time()
    result = dpv.search_pairs(
        row.mechanism,
        row.pairs,
        row.claimed,
        runs=search_runs,
        select_runs=select_runs - search_runs,
        test_runs=test_runs,
        seed=100 * seed,
    )
    return result, time.process_time() - start


def print_table(rows, first_seed, seeds, select_runs, test_runs, out):
    """Print a line for each mechanism, and write the lines to the CSV file `out` after each."""
    print("mechanism        claimed   exact  oracle     ours    goal  pairs      seconds   bare")
    lines = []
    for row in rows:
        results = [verify_row(row, seed, select_runs, test_runs) for seed in range(first_seed, first_seed + seeds)]
        bounds = [result.report.epsilon_lower for result, _ in results]
        ours = statistics.median(bounds)
        seconds = statistics.median(spent for _, spent in results)
        pairs = " ".join(str(result.pair) for result, _ in results)
        block = results[0][0].report.settings.block
        drawing = drawing_seconds(row, row.pairs[results[0][0].pair], select_runs + test_runs, block)
        goal_text = "met" if ours >= row.goal else "MISSED"
        time_text = "" if seconds <= 2 * drawing + 20 else " SLOW"
        print(
            f"{row.name:16}{row.claimed:8.4g}{row.exact:8.4g}{row.oracle:8.4g}{ours:9.4f}{row.goal:8.4f}  {pairs:9}"
            f"{seconds:9.1f}{drawing:7.1f}  {goal_text}{time_text}",
            flush=True,
        )
        own = [f"{ours:.4f}", row.sniper, row.statdp, pairs, f"{seconds:.1f}", f"{drawing:.1f}"]
        all_seeds = " ".join(f"{bound:.4f}" for bound in bounds)
        lines.append([row.name, row.claimed, row.exact, row.oracle, *own, all_seeds])
        if out:
            with Path(out).open("w", newline="") as file:
                csv.writer(file).writerows([CSV_COLUMNS, *lines])


def print_coverage(rows, seeds, select_runs, test_runs):
    """Print how often the bound of each mechanism exceeds its exact epsilon, and how often it may."""
    print(f"{'mechanism':16}{'exact':>8}{'median':>9}{'above':>6}  limit")
    limit = int(binom.ppf(0.999, seeds, 0.05))
    for row in rows:
        results = [verify_row(row, 1000 + seed, select_runs, test_runs) for seed in range(seeds)]
        bounds = [result.report.epsilon_lower for result, _ in results]
        above = sum(bound > row.exact + PRINTED_DIGITS_TOLERANCE for bound in bounds)
        print(f"{row.name:16}{row.exact:8.4g}{statistics.median(bounds):9.4f}{above:6}  {limit}", flush=True)


def main():
    """Print the table, or the coverage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", help="names of mechanisms; all of them if left out")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--select", type=float, help="selection runs per dataset")
    parser.add_argument("--test", type=float, help="test runs per dataset")
    parser.add_argument("--coverage", action="store_true", help="count the bounds above the exact epsilon")
    parser.add_argument("--out", help="a CSV file for the table")
    options = parser.parse_args()
    rows = [row for row in ROWS if not options.rows or row.name in options.rows]
    if options.coverage:
        print_coverage(rows, options.seeds or 20, int(options.select or 1e6), int(options.test or 2e6))
    else:
        seeds = options.seeds or DEFAULT_SEEDS
        print_table(rows, options.first_seed, seeds, int(options.select or 1e7), int(options.test or 2e7), options.out)


if __name__ == "__main__":
    main()
