"""Verification of single combinations of a study: reuse of finished reports, failures, and time limits."""

from __future__ import annotations

import dataclasses
import shutil
import warnings
from concurrent.futures import Executor
from pathlib import Path

from dpverify.errors import (
    DPVerifyWarning,
    FolderError,
    InputError,
    MechanismError,
    Stopped,
    StopReason,
    TimeLimitReached,
)
from dpverify.mechanisms.protocol import Mechanism
from dpverify.report.report import Report
from dpverify.report.text import describe_weakness
from dpverify.studies.files.finished import (
    STUDY_KEY,
    Finished,
    Inputs,
    Record,
    add_behaviour,
    check_finished,
    keep_old_report,
    make_pair_record,
    make_record,
    read_finished,
    warn_of_change,
    was_started_otherwise,
)
from dpverify.studies.files.inputs import PairData, make_mechanism, make_pair
from dpverify.studies.files.interruptions import RUNNING_FOLDER, WORKER_ENDED, CombinationFailed, StartLog
from dpverify.studies.files.loading import integer_hint
from dpverify.studies.files.plans import Combination, PairFiles, StudyPlan, Variant
from dpverify.studies.options import RunOptions
from dpverify.studies.tables import Row
from dpverify.util.files import replace_file
from dpverify.util.formatting import format_lower


class StudyRunner:
    """Verifies combinations, and keeps mechanisms and pairs that several combinations use."""

    def __init__(self, plan: StudyPlan, folder: Path, owns_workers: bool, release: str) -> None:
        self.plan, self.folder, self.owns_workers, self.release = plan, folder, owns_workers, release
        self.options = RunOptions()
        self.starts = StartLog(folder)
        self.lost_workers = False
        self.mechanisms: dict[Variant, Mechanism] = {}
        self.pairs: dict[Variant, tuple[PairData, Record]] = {}

    def find_finished(self, combination: Combination) -> Report | None:
        """Return the report of a combination if it is finished and unchanged; warn if it has to be run again."""
        path = self.folder / combination.report
        if not path.exists():
            return None
        report = read_finished(path, self.plan, combination)
        if self.starts.reason(combination.number) is not None:  # it has ended the process; `run` gives the reason
            return None
        try:
            inputs = self._inputs(combination)
            with self.starts.started(combination.number, self.plan.timeout):
                result, changed = check_finished(report, self.plan, combination, inputs, self.options.trust_results)
        except (InputError, TimeLimitReached):  # the combination is run again, which reports the reason
            return None
        if result in (Finished.CURRENT, Finished.TRUSTED):
            return report
        warn_of_change(combination, result, changed)
        return None

    def use(self, options: RunOptions) -> None:
        """Use the workers of these options.

        If workers were lost before, or if there is a time limit, wait until a new worker has started. BrokenExecutor is
        raised if the new workers end, too.
        """
        self.options = options
        must_wait = self.lost_workers or (self.owns_workers and self.plan.timeout is not None)
        if must_wait and isinstance(options.executor, Executor):
            options.executor.submit(format_lower, 0.0).result()  # a worker imports this package first
        self.lost_workers = False

    def run(self, combination: Combination) -> Row:
        """Verify a combination, write its report, and return its row; a failure becomes a row with the reason.

        A failure after which the workers cannot be used any more is raised as CombinationFailed.
        """
        running = self.folder / RUNNING_FOLDER / f"{combination.number:04d}"
        reason = self.starts.reason(combination.number)
        if reason is not None:
            return failed_row(combination, reason)
        limit = self.plan.timeout
        try:
            with self.starts.started(combination.number, limit):
                report = self._verify(combination, running)
        except (Stopped, TimeLimitReached) as problem:
            if isinstance(problem, TimeLimitReached) or problem.reason is StopReason.TIME_LIMIT:
                advice = "increase timeout, or check the mechanism"
                raise CombinationFailed(f"{StopReason.TIME_LIMIT.value} ({limit:g} s); {advice}") from None
            self.lost_workers = self.owns_workers and problem.reason is StopReason.WORKERS_LOST
            if self.lost_workers:
                raise CombinationFailed(WORKER_ENDED) from None
            raise  # this does not concern this combination alone
        except (FolderError, KeyboardInterrupt):
            raise
        except BaseException as problem:  # also SystemExit and CancelledError of a function of the user
            if isinstance(problem, OSError) and str(problem.filename).startswith(str(self.folder)):
                raise  # the disk of the study failed, which concerns all combinations
            reason = " ".join(str(problem).split())
            if not isinstance(problem, (InputError, MechanismError)):
                reason = f"{type(problem).__name__}: {reason}"
            files = combination.pair.source
            reason += integer_hint(reason, files if isinstance(files, PairFiles) else ())
            return failed_row(combination, reason)
        report.to_json(running / "report.json")
        keep_old_report(self.folder / combination.report)
        replace_file(self.folder / combination.report, (running / "report.json").read_bytes())
        shutil.rmtree(running, ignore_errors=True)
        return report_row(combination, report, self.plan.detects)

    def _verify(self, combination: Combination, running: Path) -> Report:
        """Return the report of a combination, which is bound to it."""
        plan, inputs = self.plan, self._inputs(combination)
        record = make_record(plan, combination, inputs)
        options = dataclasses.replace(
            self.options,
            settings=plan.settings.change(seed=combination.seed),
            folder=running,
            error=inputs.pair.error,
            progress=False,
        )
        first, second, _ = inputs.pair
        try:
            report = options.verify(inputs.mechanism, first, second, None, plan.delta, plan.claim)
        except FolderError:
            if not was_started_otherwise(running, record):
                raise
            warnings.warn(
                f"{combination}: its sources or its data changed while it was unfinished; it is started again",
                DPVerifyWarning,
                stacklevel=2,
            )
            shutil.rmtree(running)
            report = options.verify(inputs.mechanism, first, second, None, plan.delta, plan.claim)
        report.provenance[STUDY_KEY] = add_behaviour({**record, "release": self.release}, running)
        return report

    def _inputs(self, combination: Combination) -> Inputs:
        """Return the mechanism and the pair of a combination; each is made once."""
        plan = self.plan
        if combination.mechanism not in self.mechanisms:
            self.mechanisms[combination.mechanism] = make_mechanism(plan, combination.mechanism)
        if combination.pair not in self.pairs:
            pair = make_pair(plan, combination.pair)
            self.pairs[combination.pair] = pair, make_pair_record(plan, combination.pair, pair)
        return Inputs(self.mechanisms[combination.mechanism], *self.pairs[combination.pair])


def report_row(combination: Combination, report: Report, detects: float) -> Row:
    """Return the row of a finished combination; the column `too_weak` says why it could not notice a violation."""
    results = {name: value for name, value in report.row().items() if name not in ("name", "seed")}
    weakness = describe_weakness(report, detects)
    return {**combination.columns, **results, "too_weak": weakness, "report": combination.report}


def failed_row(combination: Combination, reason: str) -> Row:
    """Return the row of a combination that has failed, and warn."""
    warnings.warn(f"{combination} failed: {reason}", DPVerifyWarning, stacklevel=3)
    return {**combination.columns, "problem": reason}
