"""The command: `python -m reproduction --out FOLDER [--quick] [--workers N]`. The same command resumes.

FOLDER/measured/HASH/    what was measured with one state of dpverify's source files: rows of the paper under a
                         reading, draws of the sensors, pairs
FOLDER/own/              the verifications by the library's own test, with their reports
FOLDER/index.html        the page; table.md and figures/ are its main parts for the documentation
FOLDER/*.csv             readings.csv, claims.csv: the ranking and the claims; rows.csv: the best reading's rows
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import dpverify as dpv
from dpverify.studies import compute_many, verify_many
from reproduction import fit, measure
from reproduction.measure import RowResult, RowTask
from reproduction.page import write_page
from reproduction.paper import FOLDER, MECHANISMS, PLAN


def reproduce(folder: Path, effort: str, workers: int) -> Path:
    """Measure everything into the folder, and return the path of the page."""
    plan, measured = PLAN[effort], folder / "measured" / hash_sources()
    ranking = fit.ranking_tasks(effort)
    shifts, *results = compute_many(
        {"shifts": measure.measure_shifts} | row_tasks("ranking", ranking), measured, workers
    )
    rankings = fit.make_rankings(read_rows(ranking, results))
    best = fit.best_joint(rankings)
    tasks = fit.best_tasks(best.reading, effort)
    second = {"pairs": partial(measure.measure_pairs, plan["pairs"])} | row_tasks("best reading", tasks)
    second |= {f"draw {number}": partial(measure.measure_draw, plan["draw"], number) for number in range(plan["draws"])}
    pairs, *results = compute_many(second, measured, workers)
    readings = fit.make_results(rankings, best, read_rows(tasks, results[: len(tasks)]))
    draws = [measure.read_draw(one) for one in results[len(tasks) :]]
    by_mechanism = {name: fit.mechanism_reading(best.reading, name) for name in MECHANISMS}
    jobs, about = zip(*measure.own_jobs(effort, by_mechanism), strict=True)
    own = measure.own_rows(about, verify_many(jobs, folder / "own", workers))
    return write_page(folder, effort, shifts, readings, draws, pairs, own)


def row_tasks(what: str, groups: Sequence[Sequence[RowTask]]) -> dict[str, partial[list[Any]]]:
    """Return one task for each group of rows, which share compiled estimators."""
    return {f"{what} {k}, {group[0].row}": partial(measure.measure_rows, group) for k, group in enumerate(groups)}


def read_rows(groups: Sequence[Sequence[RowTask]], results: Sequence[list[Any]]) -> list[RowResult]:
    """Return what these groups have measured."""
    pairs = zip(itertools.chain(*groups), itertools.chain(*results), strict=True)
    return [measure.read_row(task, stored) for task, stored in pairs]


def hash_sources() -> str:
    """Return a hash of dpverify's source files and of the printed numbers, on which every measurement depends."""
    digest = hashlib.sha256((FOLDER / "printed.toml").read_bytes())
    for path in sorted(Path(str(files("dpverify"))).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> int:
    """Read the arguments, and say where the page is, or how to resume."""
    parser = argparse.ArgumentParser(
        "python -m reproduction", description="Repeat the experiments of the source paper."
    )
    parser.add_argument("--quick", action="store_true", help="fewer seeds and readings: minutes instead of an hour")
    parser.add_argument("--out", type=Path, required=True, help="the folder; the same command resumes")
    parser.add_argument("--workers", type=int, default=2, help="number of processes (default 2)")
    arguments = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the worker processes
    try:
        print(reproduce(arguments.out, "quick" if arguments.quick else "full", arguments.workers))
    except (KeyboardInterrupt, dpv.Stopped, OSError, MemoryError) as problem:
        print(f"stopped: {problem or type(problem).__name__}; the same command resumes", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
