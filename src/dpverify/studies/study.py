"""Studies: every combination of pairs, mechanisms, parameters and seeds of a TOML file (docs/studies.md).

`read_study` checks the whole file, and every file that it names, before the first verification starts. The combinations
are jobs of the engine, which keeps their reports and their table in the folder of the study.
"""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpverify.errors import DPVerifyWarning, FolderError, InputError
from dpverify.report.report import Report, load_pages
from dpverify.report.statements import Verdict
from dpverify.sampling.checkpoint import LOCK_FILE, OWNER_FILE, Checkpoint, open_checkpoint
from dpverify.settings import type_one_error_factor
from dpverify.stats.many import holm
from dpverify.studies.engine import (
    JOB_KEY,
    REPORTS_FOLDER,
    RUNNING_FOLDER,
    TABLE_FILE,
    TASKS,
    file_name,
    open_engine,
)
from dpverify.studies.loading import (
    MAX_COMBINATIONS,
    Combination,
    Plan,
    check_timeout,
    integer_hint,
    read_claim,
    read_document,
    read_entries,
    read_settings,
    result_folder,
)
from dpverify.studies.tables import (
    FAILED,
    GOOD_STATES,
    TOO_WEAK,
    ResultTable,
    Row,
    accuracy_drawings,
    bounds_drawings,
    claims_headline,
    format_parameter,
    is_answered,
    short_names,
)
from dpverify.util.checks import is_real_number
from dpverify.util.files import NEW_FILE_SUFFIX, check_regular
from dpverify.util.formatting import format_count
from dpverify.util.provenance import UNNAMED, current_commit

if TYPE_CHECKING:
    from dpverify.render import Drawing

TOP_LEVEL_KEYS = ("pairs", "mechanisms", "settings", "seeds", "epsilon", "delta", "claim", "detects", "timeout")
PAGES_FOLDER = "pages"
DATASETS = ("first", "second")


@dataclass(frozen=True)
class Study(ResultTable):
    """The result of `run_study`. `print` shows a short table.

    Attributes
    ----------
    folder : pathlib.Path
        The folder with the reports and the table.
    rows : tuple of dict
        One row per combination, with the columns of `table.csv`: the parameters, the columns of `Report.row`, the path
        of the report, and `problem`, the reason why a combination failed. A value that does not apply is None.
    stored : dict
        For each report of an earlier call, which was not run again, the release or commit that it belongs to.
    """

    folder: Path
    rows: tuple[Row, ...]
    stored: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def parameters(self) -> list[str]:
        """The columns of parameters."""
        return [name for name in self.rows[0] if name.startswith(("mechanism.", "pair."))]

    @property
    def identity(self) -> list[str]:
        """The columns that say what was verified."""
        return ["mechanism", "pair", *self.parameters, "seed"]

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows whose verification failed; the column `problem` has the reason."""
        return self.in_state(FAILED)

    @property
    def refuted(self) -> tuple[Row, ...]:
        """The rows whose claim is refuted, each at its own alpha."""
        return self.in_state(Verdict.REFUTED.name)

    @property
    def certain(self) -> tuple[Row, ...]:
        """The rows whose claim is refuted, all of them together with confidence 1 - alpha (Holm)."""
        if not self.refuted:
            return ()
        level = self.refuted[0]["alpha"] / type_one_error_factor(self.report(self.refuted[0]).settings)
        rows = [row for row in self.rows if row.get("p_value") is not None and is_answered(row)]
        return tuple(rows[index] for index in holm([row["p_value"] for row in rows], level))

    @property
    def unanswered(self) -> tuple[Row, ...]:
        """The rows with a voiding diagnostic, which have no answer; the column `diagnostic` has its name."""
        return self.in_state(Verdict.NO_ANSWER.name)

    @property
    def too_weak(self) -> tuple[Row, ...]:
        """The rows that are not refuted by runs that are too few; the column `too_weak` says why."""
        return self.in_state(TOO_WEAK)

    @property
    def state(self) -> str:
        """The state that decides the exit status: a refuted claim counts if it is refuted together with the others."""
        ignored = () if self.certain else self.refuted
        return self.worst_state([{"state": GOOD_STATES[0]} if row in ignored else row for row in self.rows])

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        return claims_headline(self.rows, short_names(self.rows, self.identity))

    @property
    def over(self) -> str:
        """What was verified."""
        return f"Study {self.folder.name}: {len(self.rows)} verifications"

    def sentences(self) -> list[str]:
        """Return what is said below the headline."""
        claim = next((row["claim"] for row in self.rows if row.get("claim") is not None), None)
        found = super().sentences()
        found += ["No claim was stated."] if claim is None else [f"Claimed: {claim}."]
        found.append(
            f"{self.count_states()}.{'' if claim is None else ' A claim that is not refuted may still be false.'}"
        )
        if self.refuted:
            found.append(f"Each claim is tested at its own alpha; {len(self.certain)} are refuted together (Holm).")
        if self.too_weak:
            first = self.too_weak[0]["too_weak"]
            found.append(f"The runs of some verifications are too few to notice a violation; the first is {first}.")
        if self.stored:
            old = ", ".join(sorted(set(self.stored.values())))
            found.append(f"{len(self.stored)} not run again: results of {old}.")
        return found

    def report(self, row: Mapping[str, Any]) -> Report:
        """Read the report of a row."""
        return Report.from_json(self.folder / row["report"])

    def links(self, page: Path) -> list[str]:
        """Write the page of every report unless it exists, and return the addresses relative to the page."""
        start = Path(os.path.relpath(self.folder.resolve(), page.resolve().parent))
        return [
            "" if row.get("report") is None else (start / write_report_page(self.folder, row)).as_posix()
            for row in self.rows
        ]

    def drawings(self) -> list[Drawing]:
        """Return the figures: a map for two parameters, the bounds, and accuracy where it is known."""
        answered = [row for row in self.rows if is_answered(row)]
        varied = [name for name in self.parameters if len({str(row[name]) for row in answered}) > 1]
        has_map = len(varied) == 2 and all(row[name] is not None for row in answered for name in varied)
        maps = [_draw_map(answered, varied[0], varied[1])] if has_map else []
        return [*maps, *bounds_drawings(self.rows, self.identity), *accuracy_drawings(self.rows)]


def write_report_page(folder: Path, row: Row) -> str:
    """Write the page of a row's report unless it exists for this digest, and return its path in the folder."""
    page = f"{PAGES_FOLDER}/{Path(row['report']).stem}-{row['digest'][:12]}.html"
    if not (folder / page).exists():
        (folder / PAGES_FOLDER).mkdir(exist_ok=True)
        Report.from_json(folder / row["report"]).to_html(folder / page)
    return page


def _draw_map(rows: Sequence[Row], across: str, down: str) -> Drawing:
    """Draw the largest lower bound for every pair of values of two parameters."""
    axes = [
        sorted({row[name] for row in rows}, key=lambda value: (value if is_real_number(value) else 0, str(value)))
        for name in (across, down)
    ]
    table = np.full((len(axes[1]), len(axes[0])), np.nan)
    for row in rows:
        place = axes[1].index(row[down]), axes[0].index(row[across])
        table[place] = np.fmax(table[place], row["epsilon_lower"])
    texts = [[format_parameter(value) for value in axis] for axis in axes]
    names = across.partition(".")[2], down.partition(".")[2]
    claims = {row["epsilon"] for row in rows}
    claim = claims.pop() if len(claims) == 1 else None
    title = f"Privacy loss by {names[0]} and {names[1]}"
    drawing: Drawing = load_pages().heat_map(texts[1], texts[0], table, title, names=names, claim=claim)
    return drawing


def read_study(path: str | os.PathLike[str]) -> Plan:
    """Return the plan in a study file; raise InputError, with one line, if the file cannot be used."""
    path = Path(path)
    document = read_document(path, TOP_LEVEL_KEYS, "a study", "docs/studies.md")
    pairs = list(itertools.chain(*read_entries(path, document, "pairs").values()))
    mechanisms = list(itertools.chain(*read_entries(path, document, "mechanisms").values()))
    settings = read_settings(path, document.get("settings", {}))
    stated, seeds = read_claim(document, settings, path.resolve().parent), document.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise InputError(f"{path}: found seeds {seeds!r}; expected the number of seeds, a whole number from 1 up")
    number = len(mechanisms) * len(pairs) * seeds
    if number > MAX_COMBINATIONS:
        raise InputError(f"{path}: found {number} combinations; expected at most {MAX_COMBINATIONS}; split the study")
    names = [f"mechanism.{name}" for one in mechanisms for name in one.parameters]
    names += [f"pair.{name}" for one in pairs for name in one.parameters]
    combinations = []
    for mechanism, pair, seed in itertools.product(mechanisms, pairs, range(settings.seed, settings.seed + seeds)):
        own = {f"mechanism.{name}": value for name, value in mechanism.parameters.items()}
        own |= {f"pair.{name}": value for name, value in pair.parameters.items()}
        columns = {"mechanism": mechanism.name, "pair": pair.name, **dict.fromkeys(names), **own, "seed": seed}
        name = f"{mechanism}, {pair}, seed {seed}"
        own_settings = settings.change(seed=seed)
        claim, delta, detects = stated
        combinations.append(Combination(name, mechanism, pair, claim, delta, own_settings, detects, columns))
    return Plan(tuple(combinations), check_timeout(document.get("timeout")))


def run_study(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    workers: int | None = None,
    executor: int | Executor | None = None,
    progress: bool | None = None,
    timeout: float | None = None,
    trust_results: bool = False,
) -> Study:
    """Verify every combination of a study file.

    The same call resumes a study that was stopped. A combination that fails has a row with the reason, and is tried
    again by the next call; the other combinations are verified. Combinations may be added and removed.

    Parameters
    ----------
    path : str or path-like
        The study, a TOML file (docs/studies.md).
    folder : str or path-like, optional
        The folder for reports and table. The default is beside the file, with its name without `.toml`.
    workers : int, optional
        How many combinations are verified at the same time, each in a process of its own. A combination that ends its
        process has failed. None verifies them in this process, one after the other.
    executor : int, concurrent.futures.Executor or None
        Where the runs of each combination are drawn, as in `verify`. It is not used with `workers`.
    progress : bool or None
        Whether progress is shown; None shows it on a terminal and in notebooks.
    timeout : float, optional
        The time limit of a combination in seconds; a combination that reaches it has failed. The default is the entry
        `timeout` of the file. With a time limit there is at least one worker.
    trust_results : bool
        Whether a finished report is used again although source files have changed, if 64 runs per dataset are the same
        as before or cannot be compared. Without it the combination is run again.

    Returns
    -------
    Study
        One row per combination; the reports are in the folder.

    Raises
    ------
    InputError
        If the study file, or a file that it names, cannot be used.
    FolderError
        If the folder belongs to something else, is in use, or is damaged.
    Stopped
        If the study was interrupted, or the disk failed. What is finished is in the folder.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import dpverify as dpv
    >>> temporary = tempfile.TemporaryDirectory()
    >>> folder = pathlib.Path(temporary.name)
    >>> _ = (folder / "first.csv").write_text("1, 2")
    >>> _ = (folder / "second.csv").write_text("1, 3")
    >>> _ = (folder / "study.toml").write_text('''
    ... epsilon = 0.5
    ... [pairs.sums]
    ... first = "first.csv"
    ... second = "second.csv"
    ... [mechanisms.laplace]
    ... use = "dpverify.demo:laplace_sum"
    ... [settings]
    ... select_runs = 500
    ... test_runs = 6000
    ... ''')
    >>> study = dpv.run_study(folder / "study.toml")
    >>> [row["verdict"] for row in study.rows]
    ['REFUTED']
    >>> temporary.cleanup()
    """
    target = result_folder(path, folder)
    plan = read_study(path)
    limit = plan.timeout if timeout is None else check_timeout(timeout)
    return run_combinations(
        plan.combinations,
        target,
        workers=workers or (None if limit is None else 1),
        executor=executor,
        progress=progress,
        timeout=limit,
        trust_results=trust_results,
        release=current_commit(Path(path).resolve().parent),
    )


def run_combinations(combinations: Sequence[Combination], folder: Path, **options: Any) -> Study:
    """Verify combinations in a folder; `options` are those of the engine."""
    stored: dict[str, str] = {}
    with open_engine(folder, **options) as engine:
        for number, outcome in engine.run(combinations):
            one = combinations[number]
            row = engine.rows[one.name]
            assert row is not None
            if outcome.problem is not None:
                row["problem"] += integer_hint(row["problem"], one.pair.files)
                warnings.warn(f"{one.name} failed: {row['problem']}", DPVerifyWarning, stacklevel=3)
            elif not outcome.is_new:
                stored[row["report"]] = str(outcome.result.provenance[JOB_KEY].get("release", UNNAMED))
        return Study(Path(folder), engine.table(), stored)


class Finding(NamedTuple):
    """What one file of a folder holds, or what is wrong with it."""

    text: str
    is_problem: bool = False


@dataclass(frozen=True)
class FolderCheck:
    """The result of `check_folder`. `print` shows every finding.

    Attributes
    ----------
    folder : pathlib.Path
        The folder.
    findings : tuple of Finding
        What each file holds, and what is wrong.
    """

    folder: Path
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, one line each."""
        return tuple(finding.text for finding in self.findings if finding.is_problem)

    def __str__(self) -> str:
        number = len(self.problems)
        result = "everything belongs together" if not number else f"{number} problem{'' if number == 1 else 's'}"
        lines = [f"  {'PROBLEM ' if finding.is_problem else ''}{finding.text}" for finding in self.findings]
        return "\n".join([f"{self.folder}: {result}", *lines])


def check_folder(folder: str | os.PathLike[str]) -> FolderCheck:
    """Check that the folder of a verification, or of many, is undamaged, by the checksums of its files.

    Nothing is run and nothing is changed. The table and the pages of many verifications are written from the reports
    and never read, so they are not checked.

    Parameters
    ----------
    folder : str or path-like
        A folder that `verify`, `run_study` or the command has written.

    Returns
    -------
    FolderCheck
        What the folder holds, and what is wrong with it.

    Raises
    ------
    InputError
        If it is no folder of dpverify.
    FolderError
        If the folder is in use, or the file that identifies it is damaged.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> from dpverify.demo import laplace_sum
    >>> from dpverify.studies.study import check_folder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = dpv.verify(laplace_sum, np.zeros(1), np.ones(1), folder=folder, select_runs=500, test_runs=2000)
    ...     check_folder(folder).problems
    ()
    """
    path = Path(folder)
    if not (path / OWNER_FILE).is_file():
        raise InputError(f"{path}: found no {OWNER_FILE}; expected a folder that dpverify has written")
    with open_checkpoint(path) as checkpoint:
        try:
            identity = dict(json.loads((path / OWNER_FILE).read_text(encoding="utf-8"))["run"])
        except Exception as problem:  # a damaged file can raise any exception
            raise FolderError(
                f"{path / OWNER_FILE}: damaged ({type(problem).__name__}); its content cannot be checked"
            ) from None
        checkpoint.acquire(identity, {})
        known = (OWNER_FILE, LOCK_FILE, REPORTS_FOLDER, TABLE_FILE, RUNNING_FOLDER, PAGES_FOLDER)
        files = [one for one in sorted(path.iterdir()) if one.name not in known]
        findings = [_check_file(one, lambda one: _read_record(checkpoint, one.stem), ".record") for one in files]
    reports = path / REPORTS_FOLDER
    if reports.is_dir() and identity.get("kind") != TASKS:  # the results of tasks are plain data
        findings += [_check_file(one, _read_report, ".json") for one in sorted(reports.iterdir())]
    for one in sorted((path / RUNNING_FOLDER).glob(f"*/{OWNER_FILE}")):
        try:
            found = check_folder(one.parent).findings
        except FolderError as problem:
            found = (Finding(str(problem), True),)
        findings += [each._replace(text=f"{RUNNING_FOLDER}/{one.parent.name}/{each.text}") for each in found]
    return FolderCheck(path, tuple(findings))


def _check_file(path: Path, read: Callable[[Path], str], suffix: str) -> Finding:
    """Return what a file holds; `read` reads and describes the files with this suffix."""
    if ".json.old-" in path.name:
        return Finding(f"{path.name}: an earlier report, which a new one has replaced")
    if path.name.endswith(NEW_FILE_SUFFIX):
        return Finding(f"{path.name}: the rest of an interrupted write; it is not used")
    if path.suffix != suffix:
        return Finding(f"{path.name}: not a file of dpverify; it is not used", True)
    try:
        check_regular(path)
        return Finding(f"{path.name}: {read(path)}")
    except (InputError, FolderError) as problem:
        return Finding(str(problem), True)


def _read_record(checkpoint: Checkpoint, name: str) -> str:
    """Return what a record holds; raise FolderError if it is damaged."""
    record = checkpoint.read(name)
    done = (None if record is None else record.head.get("done")) or {}
    blocks = [f"{format_count(number)} of the {DATASETS[int(side)]} dataset" for side, number in done.items()]
    return f"finished blocks: {', '.join(blocks)}" if blocks else "a frozen choice"


def _read_report(path: Path) -> str:
    """Return what a report states; raise InputError or FolderError if it is damaged, or that of another job."""
    report = Report.from_json(path)
    record: Any = report.provenance.get(JOB_KEY)
    if not isinstance(record, dict) or f"{file_name(str(record.get('name')))}.json" != path.name:
        raise FolderError(f"{path}: found the report of another job; expected one of this name")
    return report.verdict.name
