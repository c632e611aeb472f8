"""`dpverify reproduce`: the paper's experiments run again, into one folder, going on from wherever it was ended.

out/calibration.json    tau and s_hat, and the printed number that fixed each
out/studies/NAME.toml   what `dpverify study` could run by itself; beside it its folder: table.csv has every
                        seed, reports/ the median one of each cell
out/draws/NNN.json      one draw of sensors and seeds each
out/numbers.json, .csv  each printed number beside ours; claims.csv: the four claims
out/figures/*           every figure as PNG, SVG and PDF
out/index.html          the page
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from dpverify.errors import InputError, Stopped
from dpverify.paper.compare import kept
from dpverify.paper.plan import HERE, Task, planned, studies, to_toml
from dpverify.sampling.checkpoints import open_checkpoint
from dpverify.sampling.executors import open_pool
from dpverify.studies.study import Study, run_study
from dpverify.util.files import replace_file, write_text
from dpverify.util.formatting import format_duration
from dpverify.util.serialization import to_plain
from dpverify.util.timing import versions

WORKERS = 2


def reproduce(
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    workers: int = WORKERS,
    amount: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Path:
    """Everything, into `out`; answers with the page. The same call goes on from wherever it was ended."""
    publish = _publisher()
    place, plan = Path(out), planned()
    amount = amount or dict(plan["quick" if quick else "full"])
    with open_checkpoint(place) as store:
        store.acquire({"amount": json.dumps(amount, sort_keys=True), **_sources()}, versions())
        for part in ("studies", "draws"):
            (place / part).mkdir(exist_ok=True)
        with open_pool(workers) as pool:
            show = Show(progress)
            try:
                assert pool.executor is not None
                tuned = pool.executor.submit(calibrated, place, amount).result()
                show.line(f"tau {tuned['tau']:.4g}, s_hat {tuned['s_hat']:.5g} (calibrated)")
                todo = [task for task in studies(plan, amount, tuned) if _study_file(place, task)]
                groups = itertools.groupby(sorted(todo, key=lambda task: task.setup), key=lambda task: task.setup)
                jobs: dict[Future[Any], str] = {}
                for setup, own in groups:
                    jobs[pool.executor.submit(run_studies, place, list(own))] = f"studies of {setup}"
                for number in range(amount["draws"]):
                    if not (place / "draws" / f"{number:03d}.json").exists():
                        jobs[pool.executor.submit(run_draw, place, number, amount, tuned)] = f"draw {number}"
                show.finish(jobs)
            except KeyboardInterrupt:
                raise Stopped(_kept("stopped by the keyboard", place), str(place)) from None
            except BrokenProcessPool:
                raise Stopped(_kept("a worker process ended", place), str(place)) from None
        page = publish(place, plan, amount, tuned)
        show.line(f"done: {page}")
    return page


def _kept(why: str, place: Path) -> str:
    return f"{why}; what is finished is kept in {place}: start the same again and it goes on from there"


def _publisher() -> Any:
    """What draws and writes, loaded before a long run: what is missing for it is said now."""
    try:
        import jax  # noqa: F401

        from dpverify.paper.publish import publish
    except ImportError as problem:
        raise InputError(f"reproduce: {problem}; expected JAX, matplotlib, Jinja2; install dpverify[all]") from None
    return publish


def _sources() -> dict[str, str]:
    """What the numbers depend on: the same folder must not hold draws of two estimators."""
    own = [HERE / name for name in ("paper.toml", "printed.toml", "setting.py", "draws.py", "tuning.py")]
    files = [*own, *sorted((HERE.parent / "estimation").glob("*.py"))]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _study_file(place: Path, task: Task) -> Path:
    path = place / "studies" / f"{task.name}.toml"
    text = to_toml(task.document) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
    return path


# What a worker does. Each answers with the seconds of processor time that it took.


def calibrated(place: Path, amount: Mapping[str, Any]) -> dict[str, Any]:
    from dpverify.paper.tuning import tune

    path = place / "calibration.json"
    if not path.exists():
        before = time.process_time()
        tuned = tune(amount["tuning_runs"])
        _keep(path, {**tuned, "seconds": time.process_time() - before})
    return kept(path)


def run_studies(place: Path, tasks: Sequence[Task]) -> float:
    """All studies of one set-up in one process: what is compiled for it is compiled once."""
    before = time.process_time()
    for task in tasks:
        path = _study_file(place, task)
        if not path.with_suffix(".done").exists():
            study = run_study(path)
            if not study.failed:  # what failed is tried again by the next start
                keep_medians(study)
                write_text(path.with_suffix(".done"), "table.csv has every seed; of each cell one report is kept\n")
    spent = time.process_time() - before
    path = place / "studies" / f"{tasks[0].setup}.seconds"
    write_text(path, f"{spent + (float(path.read_text()) if path.exists() else 0.0):.1f}\n")
    return spent


def keep_medians(study: Study) -> None:
    """Of each cell the report with the median critical epsilon stays; two hundred of each are of no use to anybody."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in study.rows:
        cell = tuple(value for name, value in row.items() if name.startswith(("mechanism", "pair")))
        groups.setdefault(cell, []).append(row)
    for rows in groups.values():
        ordered = sorted(rows, key=lambda row: row["epsilon_critical"])
        for row in ordered[: len(ordered) // 2] + ordered[len(ordered) // 2 + 1 :]:
            (study.folder / row["report"]).unlink(missing_ok=True)


def run_draw(place: Path, number: int, amount: Mapping[str, Any], tuned: Mapping[str, float]) -> float:
    import jax

    from dpverify.paper.draws import measure

    before = time.process_time()
    found = measure(number, planned(), amount, tuned)
    jax.clear_caches()  # every draw compiles estimators of its own
    spent = time.process_time() - before
    _keep(place / "draws" / f"{number:03d}.json", {**found, "seconds": spent})
    return spent


def _keep(path: Path, document: Mapping[str, Any]) -> None:
    text = json.dumps(to_plain(dict(document)), indent=1, allow_nan=False)
    replace_file(path, (text + "\n").encode())


class Show:
    """One line for each part that is finished."""

    def __init__(self, shown: bool):
        self._shown, self._start = shown, time.monotonic()

    def line(self, text: str) -> None:
        if self._shown:
            print(f"dpverify: {text}", file=sys.stderr, flush=True)

    def finish(self, jobs: Mapping[Future[Any], str]) -> None:
        """Waits for all of them; the first that fails ends the rest."""
        left, number = set(jobs), 0
        while left:
            done, left = wait(left, return_when=FIRST_COMPLETED)
            for one in done:
                spent, number = one.result(), number + 1
                gone = format_duration(time.monotonic() - self._start)
                self.line(f"{number} of {len(jobs)} parts: {jobs[one]} ({spent:.0f} s of one core; {gone} so far)")
