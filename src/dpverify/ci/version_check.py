"""The test of one version of a mechanism against a claim, with the evidence of all earlier versions in a ledger."""

from __future__ import annotations

import dataclasses
import math
import os
import secrets
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from dpverify.ci.ledger import (
    ClaimRecord,
    Ledger,
    VersionRun,
    format_e_value,
    read_ledger,
    write_ledger,
)
from dpverify.claims import Approximate, Claim, resolve_claim, sloped_boundary
from dpverify.early import OUTPUTS_KEY, WATCHED_KEY, Family, Request
from dpverify.errors import InputError
from dpverify.mechanisms.protocol import Mechanism
from dpverify.pipeline import run_verification
from dpverify.report.report import Report
from dpverify.settings import SEED_BITS, VerifyOptions
from dpverify.stats.anytime import SHIFTS, CarriedBet, Evidence, carried_log_e_values, carry_bet, start_weight
from dpverify.studies.options import RunOptions
from dpverify.util.arrays import is_plain_data
from dpverify.util.files import locked
from dpverify.util.formatting import format_lower
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import to_plain

MAX_CELLS = 256  # that are watched one by one; of more, only the witness is watched
KEY_LENGTH = 8  # digits of a hash
READER_LEVEL = 1e-6  # of a run that only reads the ledger, for example of a pull request
# Half of this level is for the verification by itself, half for its e-value, which includes the carried predictions.
READER_SHARE = READER_LEVEL / 2


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
        return self.record.runs[self.evidence.start].version

    def describe(self) -> str:
        """Return the result in one line."""
        number = len(self.record.runs)
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
        raise InputError("claim: found none; expected epsilon or claim, because a ledger collects evidence against it")
    if options.get("folder") is not None:
        raise InputError("folder: found it with a ledger; expected none, because every version draws new runs")
    seed = options.pop("seed", None)
    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    text = claim_key(tested)
    chosen = RunOptions.from_keywords(**options)
    if write:  # the share of alpha and the place of this version are spent before anything is drawn
        before, record = _add(ledger, lifetime_alpha, name, text, VersionRun(version, seed, finished=False))
    else:
        before = read_ledger(ledger, lifetime_alpha).with_claim(name, text)
        record = before.find(name, text)
    repeats = not write and seed in [run.seed for run in record.runs if run.finished]
    planned = chosen.settings.select_runs + chosen.settings.test_runs
    bet = None
    if repeats:
        record, bet = _before(record, seed)
    elif record.cells is not None:
        bet = carry_bet(record.cells, record.cell_runs, planned, sloped_boundary(tested))
    # A wealth that ends the verification also raises the alarm, whichever version a fault began in.
    number = [*(run.seed for run in record.runs), seed].index(seed) + 1
    level = before.level(record) * start_weight(number) if write or repeats else READER_SHARE
    settings = chosen.settings.change(seed=seed, stop_early=True, alpha=level)
    request = Request(tested, delta, chosen.error, chosen.log_lipschitz, chosen.learn, record.watched, record.shape)
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
        after, record = before.add(dataclasses.replace(record, earlier_seeds=()), run)
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
    """Return the record as it was before the version with this seed, and the bet of this version."""
    number = [run.seed for run in record.runs].index(seed)
    watched, shape = (record.watched, record.shape) if number else (None, None)
    record_before = dataclasses.replace(record, runs=record.runs[:number], watched=watched, shape=shape, alarm=None)
    return record_before, record.runs[number].bet


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
