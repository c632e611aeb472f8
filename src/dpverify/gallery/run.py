"""The command `dpverify gallery`: verify every case into one folder, and resume after an interruption.

    out/reports/CASE.json   the report of each finished case
    out/running/CASE        the checkpoint folder of a case that is not finished
    out/table.csv, out/table.json   one row per case
    out/figures/ENTRY.png   one figure per mechanism
    out/gallery.md          the page as Markdown
    out/index.html          the page

Each case runs in one worker process. The reports serve to resume.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from dpverify.errors import DPVerifyWarning, InputError, MechanismError, Stopped, how_to_install
from dpverify.gallery.catalogue import choose_entries, find_case
from dpverify.gallery.entry import Case, Entry
from dpverify.gallery.rows import Result
from dpverify.pipeline import verify
from dpverify.report.report import Report
from dpverify.sampling.checkpoints import open_checkpoint
from dpverify.sampling.executors import open_pool
from dpverify.settings import Settings
from dpverify.stats.claims import Approximate
from dpverify.util.formatting import format_duration
from dpverify.util.timing import versions

DEFAULT_WORKERS = 2
ALPHA = 1e-3  # each statement of the gallery holds with confidence 99.9%
REPORTED_DELTA = 1e-3  # at which epsilon is bounded if the claim is not an (epsilon, delta)
REPORTS_FOLDER, RUNNING_FOLDER = "reports", "running"


def run_gallery(
    out: str | os.PathLike[str],
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    workers: int = DEFAULT_WORKERS,
    progress: bool = False,
) -> tuple[Result, ...]:
    """Verify the mechanisms of the gallery into the folder `out`, and write its table, figures and page.

    The same call resumes an interrupted run. A call with other names adds to the folder.

    Parameters
    ----------
    out : path
        The folder.
    names : sequence of str
        The entries that are verified; all of them if there is no name.
    quick : bool
        Fewer runs, so that all entries take minutes instead of an hour.
    workers : int
        Number of worker processes.
    progress : bool
        Write a line to stderr when a case is finished.

    Returns
    -------
    tuple of Result
        One result per entry. An entry whose program is not installed has no reports and says what is missing.

    Raises
    ------
    InputError
        If a name is unknown, or the packages that draw the page are missing.
    FolderError
        If the folder belongs to another run: another form, or other code of the gallery.
    Stopped
        If the run is interrupted. Finished cases are in the folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (result,) = run_gallery(folder, ["bounded-laplace"], quick=True, workers=1)
    >>> [report.verdict.name for report in result.reports]
    ['REFUTED', 'NOT_REFUTED']
    """
    write_outputs = _load_output_writer()
    entries = choose_entries(names)
    folder = Path(out)
    with open_checkpoint(folder) as checkpoint:
        checkpoint.acquire({"gallery": "quick" if quick else "full", "code": _code_hash()}, versions())
        for part in (REPORTS_FOLDER, RUNNING_FOLDER):
            (folder / part).mkdir(exist_ok=True)
        missing = {entry.name: entry.requirement() if entry.requirement else None for entry in entries}
        for name, what in missing.items():
            if what is not None:
                _say(progress, f"{name}: skipped; {what}")
        cases = [case for entry in entries if missing[entry.name] is None for case in entry.cases]
        _verify_cases(folder, cases, quick, workers, progress)
        results = tuple(_collect(folder, entry, missing[entry.name]) for entry in entries)
        shutil.rmtree(folder / RUNNING_FOLDER, ignore_errors=True)
        write_outputs(folder, results, quick)
    return results


def _verify_cases(folder: Path, cases: Sequence[Case], quick: bool, workers: int, progress: bool) -> None:
    """Verify the cases that have no report yet, the longest first."""
    open_cases = [case for case in cases if not report_file(folder, case.name).is_file()]
    open_cases.sort(key=lambda case: -sum(case.quick if quick else case.full))
    start = time.monotonic()
    with open_pool(workers) as pool:
        assert pool.executor is not None
        jobs: dict[Future[float], str] = {
            pool.executor.submit(verify_case, folder, case.name, quick): case.name for case in open_cases
        }
        try:
            for number, job in enumerate(as_completed(jobs), 1):
                elapsed = format_duration(time.monotonic() - start)
                _say(progress, f"{number} of {len(jobs)}: {jobs[job]} ({job.result():.0f} s; {elapsed} in total)")
        except KeyboardInterrupt:
            for job in jobs:
                job.cancel()
            raise Stopped(_stopped_message("stopped by the keyboard", folder), str(folder)) from None
        except BrokenProcessPool:
            raise Stopped(_stopped_message("a worker process ended", folder), str(folder)) from None
        except MechanismError:
            for job in jobs:
                job.cancel()
            raise


def verify_case(folder: Path, name: str, quick: bool) -> float:
    """Verify one case, write its report, and return the seconds it took."""
    case, start = find_case(name), time.monotonic()
    runs = case.quick if quick else case.full
    settings = Settings(alpha=ALPHA, select_runs=runs.select, test_runs=runs.test, events=case.events)
    checkpoints = folder / RUNNING_FOLDER / name
    delta = 0.0 if isinstance(case.claim, Approximate) else REPORTED_DELTA
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DPVerifyWarning)  # a program that cannot be seeded; the page says so
        report = verify(
            case.mechanism,
            case.first,
            case.second,
            delta=delta,
            claim=case.claim,
            settings=settings,
            folder=checkpoints,
            progress=False,
            trust_results=True,
        )
    report.to_json(report_file(folder, name))
    shutil.rmtree(checkpoints, ignore_errors=True)
    return time.monotonic() - start


def report_file(folder: Path, name: str) -> Path:
    """Return the file of the report of a case."""
    return folder / REPORTS_FOLDER / f"{name}.json"


def _collect(folder: Path, entry: Entry, missing: str | None) -> Result:
    """Return the reports of an entry."""
    if missing is not None:
        return Result(entry, (), missing)
    return Result(entry, tuple(Report.from_json(report_file(folder, case.name)) for case in entry.cases), None)


def _load_output_writer() -> Callable[[Path, Sequence[Result], bool], Path]:
    """Import what draws the page before the long run starts, so that a missing package is reported at once."""
    try:
        from dpverify.gallery.output import write_outputs
    except ImportError as problem:
        raise InputError(f"gallery: {problem}; expected matplotlib and Jinja2; {how_to_install('report')}") from None
    return write_outputs


def _code_hash() -> str:
    """Hash the files that define the mechanisms: one folder must not mix two versions of them."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), *(here / "drivers").glob("*")]):
        if path.name not in ("run.py", "output.py", "rows.py") and path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _say(enabled: bool, text: str) -> None:
    """Write one line to stderr."""
    if enabled:
        print(f"dpverify: {text}", file=sys.stderr, flush=True)


def _stopped_message(why: str, folder: Path) -> str:
    return f"{why}; the finished cases are stored in {folder}; run the same command again to resume"
