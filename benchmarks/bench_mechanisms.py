"""The published mechanisms: what is certified, beside the exact epsilon, the best possible event and other tools.

    python benchmarks/bench_mechanisms.py                     the table: 2e7 test runs, at most 1e7 selection runs
    python benchmarks/bench_mechanisms.py --coverage          how often a bound exceeds the truth (20 seeds)
    python benchmarks/bench_mechanisms.py --rows RNM4 SVT3    some rows only

The pair is searched among the listed ones with selection runs; the figures of other tools are the published ones.
Time is that of the processor, compared with drawing the same number of runs, in the same process.
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
from dpverify.studies.search import search_plan
from mechanisms import ROWS

SEEDS = 5


def bare_seconds(row, pair, runs, block):
    """Drawing so many runs a side and doing nothing with them, from a sample of blocks."""
    source = SampleSource(row.mechanism, pair, 0, block)
    draw_block(source, "test", 0, 0)
    start = time.process_time()
    for b in range(8):
        draw_block(source, "test", b % 2, b)
    return (time.process_time() - start) / (8 * block) * 2 * runs


def one(row, seed, select, test):
    """The winner's runs in the search are among those that it is verified with: in all, `select` runs a side."""
    search = select // 4
    own = select - search + search_plan(len(row.pairs), search)[-1]
    start = time.process_time()
    found = dpv.search_pairs(
        row.mechanism, row.pairs, row.claimed, runs=search, select_runs=own, test_runs=test, seed=100 * seed
    )
    return found, time.process_time() - start


def table(rows, seeds, select, test, out):
    print("mechanism        claimed   exact  oracle     ours    goal  pair  seconds   bare")
    lines = []
    for row in rows:
        results = [one(row, seed, select, test) for seed in range(seeds)]
        ours = statistics.median(found.report.epsilon_lower for found, _ in results)
        seconds = statistics.median(s for _, s in results)
        pair = results[0][0].pair
        bare = bare_seconds(row, row.pairs[pair], select + test, results[0][0].report.settings.block)
        met = "met" if ours >= row.goal else "MISSED"
        time_met = "" if seconds <= 2 * bare + 20 else " SLOW"
        print(
            f"{row.name:16}{row.claimed:8.4g}{row.exact:8.4g}{row.oracle:8.4g}{ours:9.4f}{row.goal:8.4f}  {pair:4}"
            f"{seconds:9.1f}{bare:7.1f}  {met}{time_met}",
            flush=True,
        )
        values = " ".join(f"{found.report.epsilon_lower:.4f}" for found, _ in results)
        lines.append(
            [
                row.name,
                row.claimed,
                row.exact,
                row.oracle,
                f"{ours:.4f}",
                row.sniper,
                row.statdp,
                pair,
                f"{seconds:.1f}",
                f"{bare:.1f}",
                values,
            ]
        )
        if out:
            with Path(out).open("w", newline="") as file:
                head = [
                    "mechanism",
                    "claimed",
                    "exact",
                    "oracle",
                    "ours",
                    "DP-Sniper",
                    "StatDP",
                    "pair",
                    "seconds",
                    "bare",
                    "all seeds",
                ]
                csv.writer(file).writerows([head, *lines])


def coverage(rows, seeds, select, test):
    print(f"{'mechanism':16}{'exact':>8}{'median':>9}{'above':>6}  limit")
    limit = int(binom.ppf(0.999, seeds, 0.05))
    for row in rows:
        values = [one(row, 1000 + seed, select, test)[0].report.epsilon_lower for seed in range(seeds)]
        above = sum(value > row.exact + 5e-5 for value in values)  # the exact values are printed to four digits
        print(f"{row.name:16}{row.exact:8.4g}{statistics.median(values):9.4f}{above:6}  {limit}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--select", type=float)
    parser.add_argument("--test", type=float)
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--out")
    a = parser.parse_args()
    rows = [row for row in ROWS if not a.rows or row.name in a.rows]
    if a.coverage:
        coverage(rows, a.seeds or 20, int(a.select or 1e6), int(a.test or 2e6))
    else:
        table(rows, a.seeds or SEEDS, int(a.select or 1e7), int(a.test or 2e7), a.out)


if __name__ == "__main__":
    main()
