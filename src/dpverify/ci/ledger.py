"""The ledger: the evidence of all versions of a project against its claims, in one file.

    {"format": 1, "content": {"kind": "Ledger", ...}, "checksum": "..."}

A test with a fresh seed that runs a thousand times raises a false alarm sooner or later, and a test with a fixed seed
looks at the same runs again and again. The ledger keeps the e-values of every version instead. The probability that any
claim of the project ever raises a false alarm is at most alpha, over all versions together (docs/method.md, section
5.11).

A version is written before its runs are drawn, as a version without evidence, and again with its result. Its share of
alpha is therefore spent whether or not it finishes. The file is replaced as a whole, under a lock.
"""

from __future__ import annotations

import dataclasses
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from dpverify.claims import Approximate, Claim, resolve_claim, sloped_boundary
from dpverify.early import OUTPUTS_KEY, WATCHED_KEY, Family, Request
from dpverify.errors import InputError
from dpverify.events.event import EVENT_KINDS
from dpverify.mechanisms.protocol import Mechanism
from dpverify.pipeline import run_verification
from dpverify.report.report import Report
from dpverify.settings import SEED_BITS, VerifyOptions
from dpverify.stats.anytime import (
    SHIFTS,
    STRATEGY_WEIGHTS,
    CarriedBet,
    Evidence,
    carried_log_e_values,
    carry_bet,
    combine_versions,
    start_weight,
)
from dpverify.studies.engine import CallOptions
from dpverify.util.arrays import is_plain_data
from dpverify.util.checks import check_probability
from dpverify.util.files import locked, read_document, write_document
from dpverify.util.formatting import format_lower, format_number, one_line
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import from_plain, to_plain

MAX_CELLS = 256  # that are watched one by one; of more, only the witness is watched
KEY_LENGTH = 8  # digits of a hash
READER_LEVEL = 1e-6  # of a run that only reads the ledger, for example of a pull request
# Half of this level is for the verification by itself, half for its e-value, which includes the carried predictions.
READER_SHARE = READER_LEVEL / 2
NO_EVIDENCE = (0.0,) * len(STRATEGY_WEIGHTS)  # the logarithms of the e-values of a version that has not finished
MAX_EXPONENT = 700.0  # of an e-value in double precision


@dataclass(frozen=True)
class VersionRun:
    """The result of one version of a mechanism.

    Attributes
    ----------
    version : str
        The version, for example a commit.
    seed : int
        The seed of the verification.
    log_e_values : tuple of float
        The logarithms of the e-values: of the bets of this version itself, and of each carried prediction.
    bet : CarriedBet or None
        What the earlier versions predicted; None in the first versions.
    outputs : str or None
        A hash of the first outputs; None if independent runs could have the same ones (`outputs_hash`).
    finished : bool
        Whether the result is known. A version that was stopped counts as one without evidence. It can be repeated with
        its seed, because it then has the same runs.
    """

    version: str
    seed: int
    log_e_values: tuple[float, ...] = NO_EVIDENCE
    bet: CarriedBet | None = None
    outputs: str | None = None
    finished: bool = True

    @property
    def log_e_value(self) -> float:
        """The logarithm of the e-value of this version alone."""
        return float(np.logaddexp.reduce(np.array(self.log_e_values) + np.log(STRATEGY_WEIGHTS)))


@dataclass(frozen=True)
class ClaimRecord:
    """The evidence against one claim.

    Attributes
    ----------
    name : str
        The name of the test.
    claim : str
        The claim in words.
    runs : tuple of VersionRun
        All versions.
    restart : int
        How many of them are before the last alarm that was confirmed. They are no evidence any more.
    watched : Family or None
        The cells that are counted in all later versions; they are those of the first version's witness.
    shape : tuple of int or None
        The steps and dimensions of the outputs for which the cells were made.
    cells : ndarray or None
        The counts of both datasets in these cells, over all versions; an array of shape (2, cells).
    cell_runs : int
        The number of these runs per dataset.
    alarm : str or None
        The version that raised an alarm; None if there is none. The alarm stays until it is confirmed.
    confirmed : int
        The number of alarms that were confirmed.
    """

    name: str
    claim: str
    runs: tuple[VersionRun, ...] = ()
    restart: int = 0
    watched: Family | None = None
    shape: tuple[int, int] | None = None
    cells: np.ndarray | None = None
    cell_runs: int = 0
    alarm: str | None = None
    confirmed: int = 0

    @property
    def title(self) -> str:
        """The name and the claim: what identifies the record."""
        return f"{self.name} [{self.claim}]"

    @property
    def current(self) -> tuple[VersionRun, ...]:
        """The versions since the last alarm that was confirmed."""
        return self.runs[self.restart :]

    @property
    def evidence(self) -> Evidence:
        """The evidence of all current versions together."""
        return combine_versions([run.log_e_values for run in self.current])

    def repeated(self, run: VersionRun) -> VersionRun | None:
        """Return a finished version that had the same seed or the same first outputs; None if there is none."""
        for each in self.runs:
            if each.finished and (each.seed == run.seed or (run.outputs is not None and each.outputs == run.outputs)):
                return each
        return None


@dataclass(frozen=True)
class Ledger:
    """The evidence against all claims of a project.

    Attributes
    ----------
    alpha : float
        The probability of a false alarm over all versions and claims is at most alpha.
    records : tuple of ClaimRecord
        One record per claim, in the order in which the claims were first tested.

    Examples
    --------
    >>> ledger = Ledger(0.05).with_claim("laplace", "epsilon 1").with_claim("counts", "epsilon 2")
    >>> [round(1 / ledger.level(record)) for record in ledger.records]
    [80, 240]
    """

    alpha: float
    records: tuple[ClaimRecord, ...] = ()

    def find(self, name: str, claim: str) -> ClaimRecord:
        """Return the record of a claim; a new one if it was never tested."""
        new = ClaimRecord(name, claim)
        return next((record for record in self.records if record.title == new.title), new)

    def with_claim(self, name: str, claim: str) -> Ledger:
        """Return the ledger with a record of this claim."""
        record = self.find(name, claim)
        return self if record in self.records else dataclasses.replace(self, records=(*self.records, record))

    def level(self, record: ClaimRecord) -> float:
        """Return the level of a claim: its share of alpha, of which every confirmed alarm leaves half.

        The claim with number j has the share 1 / (j (j + 1)). The first alarm may use half of it, the second a quarter.
        """
        number = 1 + [other.title for other in self.records].index(record.title)
        return self.alpha * start_weight(number) * 0.5 ** (1 + record.confirmed)

    def replace(self, record: ClaimRecord) -> Ledger:
        """Return the ledger with this record in place of the one with the same name and claim."""
        records = (record if other.title == record.title else other for other in self.records)
        return dataclasses.replace(self, records=tuple(records))

    def add(self, record: ClaimRecord, run: VersionRun) -> tuple[Ledger, ClaimRecord]:
        """Return the ledger and the record with one more version, or with the result of one that has started.

        The record has an alarm if its evidence is large enough.

        Raises
        ------
        InputError
            If a finished version had the same seed or outputs: the same runs are no new evidence.
        """
        repeated = record.repeated(run)
        if repeated is not None and repeated.seed == run.seed:
            raise InputError(
                f"seed: found {run.seed}, which an earlier version of {record.name} had; expected a new one, because "
                "the same runs are no new evidence; leave the seed out"
            )
        if repeated is not None:
            raise InputError(
                f"{record.name}: found the first outputs of an earlier version again; expected new runs in every "
                "version, because the same runs are no new evidence; draw all noise from rng, or do not seed the "
                "generator that the mechanism uses"
            )
        runs = {**{each.seed: each for each in record.runs}, run.seed: run}  # a version keeps its place
        record = dataclasses.replace(record, runs=tuple(runs.values()))
        if record.alarm is None and record.evidence.log_value >= -math.log(self.level(record)):
            record = dataclasses.replace(record, alarm=run.version)
        return self.replace(record), record

    def confirm(self, name: str) -> Ledger:
        """Return the ledger after the alarm of a claim was confirmed: its evidence starts again, at half its level."""
        ledger = self
        for record in self._named("confirm", name, [each for each in self.records if each.alarm is not None]):
            finished = tuple(run for run in record.runs if run.finished)
            others = tuple(run for run in record.runs if not run.finished)
            restarted = ClaimRecord(
                record.name, record.claim, (*finished, *others), len(finished), confirmed=record.confirmed + 1
            )
            ledger = ledger.replace(restarted)
        return ledger

    def rename(self, old: str, new: str) -> Ledger:
        """Return the ledger after a test was renamed: the versions of `old` are those of `new` from now on."""
        chosen = self._named("rename", old, self.records)
        for record in chosen:
            if self.find(new, record.claim) in self.records:
                raise InputError(
                    f"rename: found versions of {one_line(repr(new))} with the same claim; expected a new name; rename "
                    "before the first run, or take the ledger from before it"
                )
        records = (dataclasses.replace(each, name=new) if each in chosen else each for each in self.records)
        return dataclasses.replace(self, records=tuple(records))

    def merge(self, other: Ledger) -> Ledger:
        """Return the ledger with all versions that only another copy of it has, and with their alarms."""
        ledger = self
        for theirs in other.records:
            ledger = ledger.with_claim(theirs.name, theirs.claim)
            ours = ledger.find(theirs.name, theirs.claim)
            added = [run for run in theirs.current if ours.repeated(run) is None]
            if not ours.runs:
                ours = theirs
            for run in added if ours is not theirs else ():
                ledger, ours = ledger.add(ours, run)
            if ours.alarm is None and theirs.alarm in [run.version for run in added]:
                ours = dataclasses.replace(ours, alarm=theirs.alarm)
            ledger = ledger.replace(ours)
        return ledger

    @staticmethod
    def _named(option: str, name: str, records: Sequence[ClaimRecord]) -> list[ClaimRecord]:
        """Return the records with this name, or with this name and claim; an unknown name is an InputError."""
        chosen = [record for record in records if name in (record.name, record.title)]
        if not chosen:
            names = ", ".join(repr(record.name) for record in records) or "a claim, but there is none"
            raise InputError(f"{option}: found {one_line(repr(name))}; expected {names}")
        return chosen

    def __str__(self) -> str:
        number = len(self.records)
        claims = f"{number} claim{'s' * (number != 1)}"
        lines = [f"ledger: {claims}; a false alarm ever has probability {self.alpha:g} at most"]
        for record in self.records:
            lines.append(f"  {one_line(f'{record.title}: {describe_record(self, record)}', 1000)}")
        return "\n".join(lines)


LEDGER_KINDS = (Ledger, ClaimRecord, VersionRun, CarriedBet, Family, *EVENT_KINDS)


def describe_record(ledger: Ledger, record: ClaimRecord) -> str:
    """Return the state of a claim in one line."""
    number, evidence = len(record.current), record.evidence
    if not number:
        return "no run since the last confirmed alarm" if record.confirmed else "no run"
    text = f"{number} run{'s' * (number > 1)}, evidence {format_e_value(evidence.log_value)}"
    text += f", alarm at {format_e_value(-math.log(ledger.level(record)))}"
    if record.alarm is None:
        return text
    return f"ALARM at version {record.alarm}; {text}; it began at version {record.current[evidence.start].version}"


def format_e_value(log_value: float) -> str:
    """Return an e-value as text, from its logarithm.

    Examples
    --------
    >>> format_e_value(0.0), format_e_value(10.0), format_e_value(5000.0)
    ('1', '2.203e+04', 'above 1e+304')
    """
    return "above 1e+304" if log_value > MAX_EXPONENT else format_number(math.exp(log_value))


def read_ledger(path: str | os.PathLike[str], alpha: float = 0.05) -> Ledger:
    """Read a ledger; a file that does not exist gives an empty ledger with this alpha.

    Parameters
    ----------
    path : path
        The file.
    alpha : float
        The probability of a false alarm over the life of a new ledger. An existing ledger keeps its own.

    Raises
    ------
    InputError
        If the file is damaged, or if a newer version of dpverify wrote it.
    """
    check_probability("alpha", alpha)
    found = read_document(path, "ledger", _make_ledger)
    return Ledger(alpha) if found is None else found


def _make_ledger(content: Any) -> Ledger:
    """Return the ledger; raise any exception if it cannot be shown."""
    ledger = from_plain(content, LEDGER_KINDS)
    check_probability("alpha", ledger.alpha)
    str(ledger)
    return ledger


def write_ledger(path: str | os.PathLike[str], ledger: Ledger) -> None:
    """Write a ledger; an existing file is replaced as a whole."""
    write_document(path, to_plain(ledger))


@dataclass(frozen=True)
class VersionResult:
    """The result of one version.

    Attributes
    ----------
    report : Report
        The verification of this version alone.
    run : VersionRun
        What this version adds to the ledger.
    record : ClaimRecord
        All versions since the last confirmed alarm, this one included, and the alarm.
    level : float
        The alarm is raised if the evidence of all versions together reaches 1 / level.
    decided_by_ledger : bool
        Whether all versions together decide: the version is written to the ledger, or a version of the ledger is
        repeated. Otherwise this version alone decides.
    """

    report: Report
    run: VersionRun
    record: ClaimRecord
    level: float
    decided_by_ledger: bool

    @property
    def evidence(self) -> Evidence:
        """The evidence of all versions together, this one included."""
        return self.record.evidence

    @property
    def failed(self) -> bool:
        """Whether the claim is refuted: by all versions together, or, if the ledger is only read, by this one alone."""
        if self.decided_by_ledger:
            return self.record.alarm is not None
        return self.report.refuted or self.run.log_e_value >= -math.log(READER_SHARE)

    @property
    def start(self) -> str:
        """The version in which a fault most likely began."""
        return self.record.current[self.evidence.start].version

    def describe(self) -> str:
        """Return the result in one line."""
        number = len(self.record.current)
        together = f"evidence {format_e_value(self.evidence.log_value)} from {number} run{'s' * (number > 1)}"
        text = f"{together}, alarm at {format_e_value(-math.log(self.level))}"
        text += f"; this run alone {format_e_value(self.run.log_e_value)}"
        if self.decided_by_ledger:
            return text
        if not self.failed and self.evidence.log_value >= -math.log(self.level):
            return f"{text}; WARNING: a run that is written to the ledger would probably raise the alarm"
        return (
            f"{text}; the ledger is only read, so this run fails only if it refutes the claim at level {READER_LEVEL:g}"
        )

    def properties(self) -> dict[str, str]:
        """Return what a test record stores: e-value, evidence, epsilon_lower, detectable epsilon, seed and version."""
        return {
            "e_value": format_e_value(self.run.log_e_value),
            "evidence": format_e_value(self.evidence.log_value),
            "epsilon_lower": format_lower(self.report.epsilon_lower or 0.0),
            "epsilon_detectable": f"{self.report.epsilon_detectable:.6g}",
            "seed": str(self.run.seed),
            "version": self.run.version,
        }


def verify_version(
    mechanism: Mechanism,
    first: object,
    second: object,
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    claim: object = None,
    name: str,
    version: str,
    ledger: str | os.PathLike[str],
    write: bool = True,
    lifetime_alpha: float = 0.05,
    **options: Unpack[VerifyOptions],
) -> VersionResult:
    """Test one version of a mechanism, and add its evidence to a ledger.

    Parameters
    ----------
    mechanism, first, second, epsilon, delta, claim
        As in `verify`.
    name : str
        The name of the test. The name and the claim identify a record of the ledger.
    version : str
        The version, for example a commit.
    ledger : path
        The ledger. It is made if it does not exist.
    write : bool
        Whether this version is added. Otherwise the ledger is read, and the version is judged by its own runs, at a
        level of 1e-6. If the ledger has a version with this seed, that version is repeated.
    lifetime_alpha : float
        The probability of a false alarm over the life of a new ledger.
    **options
        Keyword arguments of `verify`. Without `seed`, the seed is new in every call. `folder` cannot be used.

    Returns
    -------
    VersionResult
        The report of this version, and the evidence of all versions.

    Raises
    ------
    InputError
        If the seed or the runs occurred in an earlier version, or the ledger is damaged or cannot be written.
    """
    tested, delta = resolve_claim(epsilon, delta, claim)
    if tested is None:
        raise InputError("there is no claim; pass epsilon or claim, because a ledger collects evidence against it")
    if options.get("folder") is not None:
        raise InputError("use folder or a ledger, not both, because every version draws new runs")
    seed = options.pop("seed", None)
    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    text = claim_key(tested)
    chosen = CallOptions.of(**options)
    if write:  # the share of alpha and the place of this version are spent before anything is drawn
        before, record = _add(ledger, lifetime_alpha, name, text, VersionRun(version, seed, finished=False))
    else:
        before = read_ledger(ledger, lifetime_alpha).with_claim(name, text)
        record = before.find(name, text)
    repeats = not write and seed in [run.seed for run in record.current if run.finished]
    planned = chosen.settings.select_runs + chosen.settings.test_runs
    bet = None
    if repeats:
        record, bet = _before(record, seed)
    elif record.cells is not None:
        bet = carry_bet(record.cells, record.cell_runs, planned, sloped_boundary(tested))
    # A wealth that ends the verification also raises the alarm, whichever version a fault began in.
    number = [*(run.seed for run in record.current), seed].index(seed) + 1
    level = before.level(record) * start_weight(number) if write or repeats else READER_SHARE
    settings = chosen.settings.change(seed=seed, stop_early=True, alpha=level)
    request = Request(tested, delta, watched=record.watched, watched_shape=record.shape, **chosen.call)
    report = run_verification(mechanism, first, second, request, settings, chosen.executor, None, chosen.progress)
    if report.voiding:
        raise AssertionError(f"{report.voiding[0].value}\n{report}")
    if WATCHED_KEY not in report.provenance:
        bet = None
    run = VersionRun(version, seed, _log_e_values(report, tested, bet), bet, report.provenance[OUTPUTS_KEY])
    if write:
        try:
            after, record = _add(ledger, lifetime_alpha, name, text, run, report)
        except InputError as problem:
            e_value = format_e_value(run.log_e_value)
            raise InputError(f"{problem}; the result is not in the ledger: e-value {e_value}, seed {seed}") from None
    else:
        after, record = before.add(dataclasses.replace(record, runs=record.current, restart=0), run)
    return VersionResult(report, run, record, after.level(record), write or repeats)


def _add(
    path: str | os.PathLike[str], alpha: float, name: str, claim: str, run: VersionRun, report: Report | None = None
) -> tuple[Ledger, ClaimRecord]:
    """Add a version, or its result with its report, to the file as it is now; return the ledger and the record."""
    with locked(path):  # another test may have written meanwhile
        latest = read_ledger(path, alpha).with_claim(name, claim)
        record = latest.find(name, claim)
        after, record = latest.add(record if report is None else _watch(record, report), run)
        write_ledger(path, after)
    return after, record


def claim_key(claim: Claim) -> str:
    """Return the text by which a ledger finds the record of a claim. Different claims have different texts.

    Examples
    --------
    >>> from dpverify.claims import pure
    >>> claim_key(pure(1.0))
    'epsilon 1, delta 0'
    >>> claim_key(pure(1.0004)) == claim_key(pure(1.0003))
    False
    """
    text = claim.describe()
    if isinstance(claim, Approximate) and text == f"epsilon {claim.epsilon:.12g}, delta {claim.delta:.12g}":
        return text
    return f"{text} [{fingerprint(to_plain(claim))[:KEY_LENGTH]}]"


def _before(record: ClaimRecord, seed: int) -> tuple[ClaimRecord, CarriedBet | None]:
    """Return the record as it was before the current version with this seed, and the bet of this version."""
    number = [run.seed for run in record.current].index(seed)
    watched, shape = (record.watched, record.shape) if number else (None, None)
    runs = record.runs[: record.restart + number]
    return dataclasses.replace(record, runs=runs, watched=watched, shape=shape, alarm=None), record.current[number].bet


def _log_e_values(report: Report, claim: Claim, bet: CarriedBet | None) -> tuple[float, ...]:
    """Return the logarithms of the e-values of a version: of its own bets, and of each carried prediction."""
    assert report.sequence is not None
    own = float(report.sequence.log_wealth(claim)[-1])
    if bet is None:
        return own, *(0.0 for _ in SHIFTS)
    counted = report.provenance[WATCHED_KEY]
    return own, *carried_log_e_values(np.array(counted["cells"]), counted["runs"], bet, sloped_boundary(claim))


def _watch(record: ClaimRecord, report: Report) -> ClaimRecord:
    """Return the record with the counts of a version, or with the cells that later versions count.

    A score function of the user cannot be stored, so its cells are not watched.
    """
    if record.shape == report.witness.shape:
        counted = report.provenance.get(WATCHED_KEY)
        if counted is None:
            return record
        cells = np.array(counted["cells"]) + (0 if record.cells is None else record.cells)
        return dataclasses.replace(record, cells=cells, cell_runs=record.cell_runs + counted["runs"])
    event, shape = report.witness.event, report.witness.shape
    if not is_plain_data(event.partition):
        return record
    all_cells = event.partition.size <= MAX_CELLS
    watched = Family(event.partition, None if all_cells else event.codes)
    return dataclasses.replace(record, watched=watched, shape=shape, cells=None, cell_runs=0)
