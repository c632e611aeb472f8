"""Many verifications from one TOML file, in one folder (docs/studies.md).

    study/dpverify.json             whose folder it is: the study, and a hash of every file that it names
    study/table.csv                 a line for each combination that is settled, in the order of the study
    study/reports/0007-....json     its report
    study/running/                  the blocks of the one under way, gone when its report is written

A report that is there is done. Each file is replaced as a whole, so a study goes on from wherever it was ended.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpverify.errors import FolderError, InputError, MechanismError, Stopped, Warning
from dpverify.mechanisms.accuracy import rmse
from dpverify.pipeline import verify
from dpverify.report.report import Report
from dpverify.sampling.checkpoints import open_checkpoint
from dpverify.sampling.executors import open_pool
from dpverify.studies.loading import call_user_code, load_data, load_object
from dpverify.studies.plans import FILES, REPORTS, Combination, StudyPlan, Variant, read_study
from dpverify.studies.tables import columns_of, csv_text, parse_row, read_csv, write_comparison
from dpverify.util.files import replace_file
from dpverify.util.progress import Progress
from dpverify.util.timing import versions

TABLE, RUNNING = "table.csv", "running"


@dataclass(frozen=True)
class Study:
    """What a study came to: a row for each combination, a failed one with its `problem`."""

    folder: Path
    rows: tuple[dict[str, Any], ...]

    @property
    def failed(self) -> tuple[dict[str, Any], ...]:
        """The rows whose verification came to no report; their `problem` says why."""
        return tuple(row for row in self.rows if row["problem"] is not None)

    @property
    def refuted(self) -> tuple[dict[str, Any], ...]:
        """The rows whose claim is refuted."""
        return tuple(row for row in self.rows if row.get("verdict") == "REFUTED" and row.get("doubt") is None)

    @property
    def doubtful(self) -> tuple[dict[str, Any], ...]:
        """The rows beside whose verdict stands a `doubt`: they answer no question."""
        return tuple(row for row in self.rows if row.get("doubt") is not None)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Privacy against accuracy on one page (needs `dpverify[report]`); pairs without a truth are left out."""
        write_comparison(path, f"{self.folder.name}: privacy against accuracy", self.rows)

    def report(self, row: Mapping[str, Any]) -> Report:
        """The whole report behind a row."""
        return Report.from_json(self.folder / row["report"])


def made_with(plan: StudyPlan, kind: str, variant: Variant, always: bool) -> Any:
    """What `use` names, called with the parameters where there are some (or always)."""
    assert variant.use is not None
    where, call = f"{kind}.{variant.name}", always or variant.parameters
    found = load_object(variant.use.removesuffix("()") if call else variant.use, plan.base, where)
    return call_user_code(f"{where}: calling {variant.use}", lambda: found(**variant.parameters)) if call else found


def make_mechanism(plan: StudyPlan, variant: Variant) -> Any:
    return made_with(plan, "mechanisms", variant, always=False)


def make_pair(plan: StudyPlan, variant: Variant) -> tuple[Any, Any, Callable[[Any], Any] | None]:
    """(first, second, error): from files, or what `use` answers: (first, second), or a truth or an error besides."""
    if variant.use is None:
        pair = [load_data(text, plan.base) for text in map(variant.files.get, FILES) if text]
    else:
        answer = made_with(plan, "pairs", variant, always=True)
        pair = list(answer) if isinstance(answer, (tuple, list)) else []
    if len(pair) not in (2, 3):
        found = f"{len(pair)} parts" if pair else "no tuple"
        raise InputError(f"pairs.{variant.name}: found {found}; expected (first, second) or (first, second, truth)")
    if len(pair) == 2:
        return pair[0], pair[1], None
    return pair[0], pair[1], pair[2] if callable(pair[2]) else rmse(pair[2])


def run_study(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    executor: int | Executor | None = None,
    progress: bool = False,
) -> Study:
    """Every combination of the study verified; its folder (beside the file unless stated) has reports and table.

    The same call goes on from wherever it was ended. A combination that fails is a line of the table with its reason,
    and is tried again by the next call; the rest goes on.
    """
    plan, path = read_study(path), Path(path)
    place = Path(folder) if folder is not None else path.with_suffix("")
    if place == path:
        raise InputError(f"{path}: a folder can't have this name too; expected a file that ends in .toml, or a folder")
    runs, show = 2 * (plan.settings.select_runs + plan.settings.test_runs), Progress(progress, True)
    show.plan(len(plan.cells) * runs)
    made: dict[int, Any] = {}  # what several cells share is made once
    rows: list[dict[str, Any]] = []
    with open_checkpoint(place) as store:
        store.acquire(plan.identity, {"study": path.name, **versions()})
        try:
            (place / REPORTS).mkdir(exist_ok=True)
            known = {row["report"]: row for row in read_csv(place / TABLE) if row.get("report")}
            with open_pool(executor) as workers:
                for cell in plan.cells:
                    show.stage(str(cell))
                    if (place / cell.report).exists():
                        show.skip(runs)
                        rows.append(known.get(cell.report) or _row(cell, Report.from_json(place / cell.report)))
                        continue
                    rows.append(_settle(plan, cell, made, place, workers.executor))
                    show.advance(runs)
                    _write_table(place, plan, rows)
            _write_table(place, plan, rows)
            shutil.rmtree(place / RUNNING, ignore_errors=True)
            return Study(place, tuple(parse_row(row) for row in read_csv(place / TABLE)))
        except (KeyboardInterrupt, Stopped, OSError) as problem:
            why = "stopped by the keyboard"
            if not isinstance(problem, KeyboardInterrupt):
                why = getattr(problem, "strerror", None) or str(problem).split(" after ")[0]
            kept = f"kept in {place}: start the same again and it goes on from there"
            line = f"{why} after {len(rows)} of {len(plan.cells)} verifications; they are {kept}"
            raise Stopped(line, str(place), len(rows)) from None
        finally:
            show.close()


def _settle(
    plan: StudyPlan, cell: Combination, made: dict[int, Any], place: Path, executor: Executor | None
) -> dict[str, Any]:
    """The cell's report in its file, and its line of the table; what goes wrong in it ends nothing else."""
    running = place / RUNNING / f"{cell.number:04d}"
    try:
        for variant, make in ((cell.mechanism, make_mechanism), (cell.pair, make_pair)):
            if id(variant) not in made:
                made[id(variant)] = make(plan, variant)
        first, second, error = made[id(cell.pair)]
        report = verify(
            made[id(cell.mechanism)],
            first,
            second,
            plan.epsilon,
            plan.delta,
            settings=plan.settings.change(seed=cell.seed),
            executor=executor,
            folder=running,
            error=error,
        )
    except (Stopped, FolderError):  # not this cell's fault
        raise
    except Exception as problem:
        line = " ".join(str(problem).split())
        if not isinstance(problem, (InputError, MechanismError)):
            line = f"{type(problem).__name__}: {line}"
        warnings.warn(f"{cell} failed: {line}", Warning, stacklevel=2)
        return {**cell.columns, "problem": line}
    report.to_json(running / "report.json")
    replace_file(place / cell.report, (running / "report.json").read_bytes())
    shutil.rmtree(running, ignore_errors=True)
    return _row(cell, report)


def _row(cell: Combination, report: Report) -> dict[str, Any]:
    found = {name: value for name, value in report.row().items() if name not in ("name", "seed")}
    return {**cell.columns, **found, "report": cell.report}


def _write_table(place: Path, plan: StudyPlan, rows: list[dict[str, Any]]) -> None:
    """Where it comes from, what was found, and where to look; the same columns whatever has failed so far."""
    names = [name for name in columns_of(cell.columns for cell in plan.cells) if name != "seed"]
    last = ["report", "problem"]
    found = [name for name in columns_of(rows) if name not in (*names, "seed", *last)]
    replace_file(place / TABLE, csv_text(rows, [*names, "seed", *found, *last]).encode())
