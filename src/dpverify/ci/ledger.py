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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpverify.early import Family
from dpverify.errors import InputError
from dpverify.events.event import EVENT_KINDS
from dpverify.stats.anytime import STRATEGY_WEIGHTS, CarriedBet, Evidence, combine_versions, start_weight
from dpverify.util.checks import check_probability
from dpverify.util.files import read_document, write_document
from dpverify.util.formatting import format_number, one_line
from dpverify.util.serialization import from_plain, to_plain

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
    """The evidence against one claim since the last alarm that was confirmed.

    Attributes
    ----------
    name : str
        The name of the test.
    claim : str
        The claim in words.
    runs : tuple of VersionRun
        The versions so far.
    watched : Family or None
        The cells that are counted in all later versions; they are those of the first version's witness.
    shape : tuple of int or None
        The steps and dimensions of the outputs for which the cells were made.
    cells : ndarray or None
        The counts of both data sets in these cells, over all versions; an array of shape (2, cells).
    cell_runs : int
        The number of these runs per data set.
    alarm : str or None
        The version that raised an alarm; None if there is none. The alarm stays until it is confirmed.
    confirmed : int
        The number of alarms that were confirmed.
    earlier_seeds : tuple of int
        The seeds of the versions before the last confirmed alarm.
    earlier_outputs : tuple of str
        The hashes of their first outputs.
    """

    name: str
    claim: str
    runs: tuple[VersionRun, ...] = ()
    watched: Family | None = None
    shape: tuple[int, int] | None = None
    cells: np.ndarray | None = None
    cell_runs: int = 0
    alarm: str | None = None
    confirmed: int = 0
    earlier_seeds: tuple[int, ...] = ()
    earlier_outputs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name and the claim: what identifies the record."""
        return f"{self.name} [{self.claim}]"

    @property
    def seeds(self) -> set[int]:
        """The seeds of all finished versions."""
        return {*self.earlier_seeds, *(run.seed for run in self.runs if run.finished)}

    @property
    def outputs(self) -> set[str]:
        """The hashes of the first outputs of all finished versions."""
        return {*self.earlier_outputs, *(run.outputs for run in self.runs if run.outputs is not None)}

    @property
    def evidence(self) -> Evidence:
        """The evidence of all versions together."""
        return combine_versions([run.log_e_values for run in self.runs])


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
        if run.seed in record.seeds:
            raise InputError(
                f"seed: found {run.seed}, which an earlier version of {record.name} had; expected a new one, because "
                "the same runs are no new evidence; leave the seed out"
            )
        if run.outputs in record.outputs:
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
            restarted = ClaimRecord(
                record.name,
                record.claim,
                runs=tuple(run for run in record.runs if not run.finished),
                confirmed=record.confirmed + 1,
                earlier_seeds=tuple(sorted(record.seeds)),
                earlier_outputs=tuple(sorted(record.outputs)),
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
            added = [run for run in theirs.runs if run.seed not in ours.seeds and run.outputs not in ours.outputs]
            if not (ours.runs or ours.confirmed):
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
    number, evidence = len(record.runs), record.evidence
    if not number:
        return "no run since the last confirmed alarm" if record.confirmed else "no run"
    text = f"{number} run{'s' * (number > 1)}, evidence {format_e_value(evidence.log_value)}"
    text += f", alarm at {format_e_value(-math.log(ledger.level(record)))}"
    if record.alarm is None:
        return text
    return f"ALARM at version {record.alarm}; {text}; it began at version {record.runs[evidence.start].version}"


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
    found = read_document(path, "ledger", lambda content: check_ledger(from_plain(content, LEDGER_KINDS)))
    return Ledger(alpha) if found is None else found


def check_ledger(ledger: object) -> Ledger:
    """Return the ledger; raise an exception if these are not values that a ledger can have."""
    if not isinstance(ledger, Ledger):
        raise TypeError(f"a {type(ledger).__name__}")
    check_probability("alpha", ledger.alpha)
    names = [record.title for record in ledger.records]
    if len(set(names)) < len(names):
        raise ValueError("two records of one claim")
    for record in ledger.records:
        values = [value for run in record.runs for value in run.log_e_values]
        is_complete = all(len(run.log_e_values) == len(STRATEGY_WEIGHTS) for run in record.runs)
        if not is_complete or not all(value < math.inf for value in values):  # NaN is not smaller either
            raise ValueError("e-values that no version has")
        if record.confirmed < 0 or (record.alarm is not None and not record.runs):
            raise ValueError("an alarm without a version")
        all_seeds = [*record.earlier_seeds, *(run.seed for run in record.runs)]
        if len(set(all_seeds)) < len(all_seeds):
            raise ValueError("a seed that was used twice")
    return ledger


def write_ledger(path: str | os.PathLike[str], ledger: Ledger) -> None:
    """Write a ledger; an existing file is replaced as a whole."""
    write_document(path, to_plain(ledger))
