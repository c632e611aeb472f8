"""The ledger: the evidence of all versions of a project against its claims, in one file.

    {"format": 1, "content": {"kind": "Ledger", ...}, "checksum": "..."}

A test with a fresh seed that runs a thousand times raises a false alarm sooner or later, and a test with a fixed seed
looks at the same runs again and again. The ledger keeps the e-values of every version instead. The probability that any
claim of the project ever raises a false alarm is at most alpha, over all versions together (docs/method.md, section
5.11).

The file is replaced as a whole, while a lock file beside it excludes other writers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpverify.errors import InputError
from dpverify.events.event import EVENT_KINDS
from dpverify.sequential.bets import Family
from dpverify.stats.version_mixture import STRATEGY_WEIGHTS, CarriedBet, Evidence, combine_versions, start_weight
from dpverify.util.checks import check_probability
from dpverify.util.files import write_text
from dpverify.util.formatting import format_number, one_line, too_little_memory
from dpverify.util.hashing import content_checksum, fingerprint
from dpverify.util.serialization import from_plain, to_plain

FORMAT = 1
LOCK_SECONDS = 60.0  # how long a writer waits for another one
POLL_SECONDS = 0.05
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
    """

    version: str
    seed: int
    log_e_values: tuple[float, ...]
    bet: CarriedBet | None = None


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

    @property
    def seeds(self) -> set[int]:
        """All seeds that were used."""
        return {*self.earlier_seeds, *(run.seed for run in self.runs)}

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

    def find(self, name: str, claim: str) -> ClaimRecord | None:
        """Return the record of a claim; None if it was never tested."""
        return next((record for record in self.records if (record.name, record.claim) == (name, claim)), None)

    def with_claim(self, name: str, claim: str) -> Ledger:
        """Return the ledger with a record of this claim."""
        if self.find(name, claim) is not None:
            return self
        return dataclasses.replace(self, records=(*self.records, ClaimRecord(name, claim)))

    def level(self, record: ClaimRecord) -> float:
        """Return the level of a claim: its share of alpha, of which every confirmed alarm leaves half.

        The claim with number j has the share 1 / (j (j + 1)). The first alarm may use half of it, the second a quarter.
        """
        number = 1 + [(other.name, other.claim) for other in self.records].index((record.name, record.claim))
        return self.alpha * start_weight(number) * 0.5 ** (1 + record.confirmed)

    def replace(self, record: ClaimRecord) -> Ledger:
        """Return the ledger with this record in place of the one with the same name and claim."""
        same = (record.name, record.claim)
        records = tuple(record if (other.name, other.claim) == same else other for other in self.records)
        return dataclasses.replace(self, records=records)

    def add(self, record: ClaimRecord, run: VersionRun) -> tuple[Ledger, ClaimRecord]:
        """Return the ledger and the record with one more version; the record has an alarm if it is large enough.

        Raises
        ------
        InputError
            If the seed was used before: the same runs are no new evidence.
        """
        check_seed(record, run.seed)
        record = dataclasses.replace(record, runs=(*record.runs, run))
        if record.alarm is None and record.evidence.log_value >= -math.log(self.level(record)):
            record = dataclasses.replace(record, alarm=run.version)
        return self.replace(record), record

    def confirm(self, name: str) -> Ledger:
        """Return the ledger after the alarm of a claim was confirmed: its evidence starts again, at half its level."""
        alarms = [record for record in self.records if record.alarm is not None]
        chosen = [record for record in alarms if name in (record.name, f"{record.name} [{record.claim}]")]
        if not chosen:
            names = ", ".join(repr(record.name) for record in alarms) or "none"
            raise InputError(
                f"confirm: found {one_line(repr(name))}; expected a claim with an alarm; these are: {names}"
            )
        ledger = self
        for record in chosen:
            restarted = ClaimRecord(
                record.name, record.claim, confirmed=record.confirmed + 1, earlier_seeds=tuple(sorted(record.seeds))
            )
            ledger = ledger.replace(restarted)
        return ledger

    def __str__(self) -> str:
        number = len(self.records)
        claims = f"{number} claim{'s' * (number != 1)}"
        lines = [f"ledger: {claims}; a false alarm ever has probability {self.alpha:g} at most"]
        for record in self.records:
            lines.append(f"  {one_line(f'{record.name} [{record.claim}]: {describe_record(self, record)}', 1000)}")
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


def check_seed(record: ClaimRecord, seed: int) -> None:
    """Raise InputError if a version of this claim had the same seed."""
    if seed in record.seeds:
        raise InputError(
            f"seed: found {seed}, which an earlier version of {record.name} had; expected a new one, because the same "
            "runs are no new evidence; leave the seed out"
        )


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
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        file_format, content, checksum = document["format"], document["content"], document["checksum"]
    except FileNotFoundError:
        return Ledger(alpha)
    except OSError as problem:
        raise InputError(f"{path}: found {problem.strerror or problem}; expected a ledger that can be read") from None
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise _damaged(path, f"no ledger ({type(problem).__name__})") from None
    if file_format != FORMAT:
        raise InputError(
            f"{path}: found format {one_line(repr(file_format))}; expected {FORMAT}; a newer version of dpverify wrote "
            "it; update dpverify"
        )
    if content_checksum(content) != checksum:
        raise _damaged(path, "another checksum")
    try:
        ledger = from_plain(content, LEDGER_KINDS)
        check_ledger(ledger)
    except MemoryError as problem:
        raise InputError(too_little_memory(path, problem)) from None
    except Exception as problem:  # a damaged file can raise any exception
        raise _damaged(path, one_line(problem)) from None
    return ledger


def check_ledger(ledger: object) -> None:
    """Raise an exception if these are not values that a ledger can have."""
    if not isinstance(ledger, Ledger):
        raise TypeError(f"a {type(ledger).__name__}")
    check_probability("alpha", ledger.alpha)
    names = [(record.name, record.claim) for record in ledger.records]
    if len(set(names)) < len(names):
        raise ValueError("two records of one claim")
    for record in ledger.records:
        values = [value for run in record.runs for value in run.log_e_values]
        is_complete = all(len(run.log_e_values) == len(STRATEGY_WEIGHTS) for run in record.runs)
        if not is_complete or not all(value < math.inf for value in values):  # NaN is not smaller either
            raise ValueError("e-values that no version has")
        for bet in (run.bet for run in record.runs if run.bet is not None):
            numbers = [number for pair in bet.predictions for number in pair]
            if min(bet.cells, default=-1) < 0 or not all(0 < number < 1 for number in numbers):
                raise ValueError("a bet that no version has")
        if record.confirmed < 0 or (record.alarm is not None and not record.runs):
            raise ValueError("an alarm without a version")
        if len(record.seeds) < len(record.earlier_seeds) + len(record.runs):
            raise ValueError("a seed that was used twice")
        cells = record.cells
        if cells is not None and (cells.ndim != 2 or len(cells) != 2 or cells.dtype.kind != "i" or (cells < 0).any()):
            raise ValueError("counts that no version has")
        if cells is not None and (cells.sum(1) > record.cell_runs).any():
            raise ValueError("more counts than runs")


def _damaged(path: Path, found: str) -> InputError:
    """Return the error of a damaged ledger."""
    return InputError(f"{path}: found {found}; expected a ledger as dpverify wrote it; restore it from version control")


def write_ledger(path: str | os.PathLike[str], ledger: Ledger) -> None:
    """Write a ledger; an existing file is replaced as a whole."""
    content = to_plain(ledger)
    document = {"format": FORMAT, "content": content, "checksum": fingerprint(content)}
    write_text(path, json.dumps(document, indent=0, allow_nan=False) + "\n")


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Exclude other writers of a ledger; a lock file beside it exists meanwhile."""
    lock = Path(f"{os.fspath(path)}.lock")
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            if time.monotonic() > end:
                raise InputError(
                    f"{lock}: found this file for {LOCK_SECONDS:g} s; expected that another writer removes it; remove "
                    "it if no test is running"
                ) from None
            time.sleep(POLL_SECONDS)
        except OSError as problem:
            raise InputError(
                f"{lock}: found {problem.strerror or problem}; expected a folder that can be written"
            ) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the ledger is written; the next writer names a lock that has stayed
            lock.unlink(missing_ok=True)
