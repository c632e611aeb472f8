"""Study files: a TOML file that asks for every combination of pairs, mechanisms, parameters and seeds.

`read_study` checks the whole file, and every file that it names, before the first verification starts
(docs/studies.md).
"""

from __future__ import annotations

import difflib
import itertools
import math
import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dpverify.claims import Claim, resolve_claim
from dpverify.errors import InputError
from dpverify.report.power import DETECTS, check_detects
from dpverify.report.statements import check_claim
from dpverify.settings import Settings
from dpverify.studies.files.claim_text import load_claim
from dpverify.studies.files.loading import load_data, load_object
from dpverify.util.checks import is_real_number, shorten
from dpverify.util.formatting import one_line
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import to_plain

TOP_LEVEL_KEYS = ("pairs", "mechanisms", "settings", "seeds", "epsilon", "delta", "claim", "detects", "timeout")
REPORTS_FOLDER = "reports"
STUDY_FORMAT = 2  # since 2, a report is bound to its combination
MAX_COMBINATIONS = 10**6
MAX_TIMEOUT = 10**8  # seconds; timers of the operating system have a limit
ENTRY_NAME = re.compile(r"[A-Za-z0-9_.-]+")
MAX_NAME_LENGTH = 100  # two names are parts of the name of a report's file, which has at most 255 characters

Table = dict[str, object]  # a table of the TOML file


class PairFiles(NamedTuple):
    """The files of a pair of data sets, and the file with the true values that estimates are compared with."""

    first: str
    second: str
    truth: str | None = None


@dataclass(frozen=True, eq=False)
class Variant:
    """A pair or a mechanism of a study, with one value for each of its parameters.

    Attributes
    ----------
    name : str
        The name of its table in the study file.
    source : str or PairFiles
        `module:name` or `path/file.py:name`; or the files of a pair.
    parameters : dict
        Keyword arguments of the named function or class.
    """

    name: str
    source: str | PairFiles
    parameters: Table

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.parameters.items())])


class Combination(NamedTuple):
    """One verification of a study."""

    number: int
    mechanism: Variant
    pair: Variant
    seed: int

    @property
    def report(self) -> str:
        """The path of the report, relative to the folder of the study."""
        return f"{REPORTS_FOLDER}/{self.number:04d}-{self.mechanism.name}-{self.pair.name}-seed{self.seed}.json"

    @property
    def columns(self) -> Table:
        """The columns of the table that identify this combination."""
        return {
            "mechanism": self.mechanism.name,
            "pair": self.pair.name,
            **{f"mechanism.{name}": value for name, value in self.mechanism.parameters.items()},
            **{f"pair.{name}": value for name, value in self.pair.parameters.items()},
            "seed": self.seed,
        }

    def __str__(self) -> str:
        return f"{self.mechanism}, {self.pair}, seed {self.seed}"


@dataclass(frozen=True)
class StudyPlan:
    """The contents of a study file.

    Attributes
    ----------
    base : pathlib.Path
        The folder of the study file. Paths in the file are relative to it.
    combinations : tuple of Combination
        All verifications, in the order of the table.
    settings : Settings
        The settings of all verifications, except the seed.
    claim : Claim or None
        The claim; None measures without a claim.
    delta : float
        The delta of the claim, or the delta at which epsilon is bounded.
    identity : dict
        What must be unchanged when a study is resumed: the claim, the settings and the entries of the file. The files
        that it names are compared for each combination (`studies.finished`).
    timeout : float or None
        The time limit of each verification in seconds. It is not part of the identity.
    detects : float
        A claim that is not refuted is too weak unless the runs notice a violation by this factor. It is not part of the
        identity.
    details : dict
        The values of the entries of `identity` that are hashes, for the error of a folder that differs in them.
    """

    base: Path
    combinations: tuple[Combination, ...]
    settings: Settings
    claim: Claim | None
    delta: float
    identity: Table
    timeout: float | None = None
    details: Table = field(default_factory=dict)
    detects: float = DETECTS


def read_study(path: str | os.PathLike[str]) -> StudyPlan:
    """Return the plan in a study file; raise InputError, with one line, if the file cannot be used."""
    path = Path(path)
    document = read_document(path, TOP_LEVEL_KEYS, "a study", "docs/studies.md")
    base = path.resolve().parent
    pair_tables = named_tables(path, document, "pairs")
    mechanism_tables = named_tables(path, document, "mechanisms")
    pairs = [variant for name, table in pair_tables.items() for variant in pair_variants(base, name, table)]
    mechanisms = [
        variant
        for name, table in mechanism_tables.items()
        for variant in combine_parameters(f"mechanisms.{name}", name, table)
    ]
    settings = read_settings(path, document.get("settings", {}))
    text = document.get("claim")
    claim = None if text is None else load_claim(text, base)
    claim, delta = resolve_claim(document.get("epsilon"), document.get("delta", 0.0), claim)  # type: ignore[arg-type]
    check_claim(settings, None, delta, claim)
    if "detects" in document:
        check_detects(document["detects"], claim)
    seeds = document.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise InputError(f"{path}: found seeds {seeds!r}; expected the number of seeds, a whole number from 1 up")
    number = len(mechanisms) * len(pairs) * seeds
    if number > MAX_COMBINATIONS:
        raise InputError(f"{path}: found {number} combinations; expected at most {MAX_COMBINATIONS}; split the study")
    product = itertools.product(mechanisms, pairs, range(settings.seed, settings.seed + seeds))
    combinations = tuple(Combination(number, *combination) for number, combination in enumerate(product))
    entries = {f"pairs.{name}": table for name, table in pair_tables.items()}
    entries |= {f"mechanisms.{name}": table for name, table in mechanism_tables.items()}
    identity: Table = {
        "study format": STUDY_FORMAT,
        "entries": ", ".join(entries),
        **{name: document.get(name) for name in ("seeds", "epsilon", "delta")},
        **({} if text is None else {"claim": fingerprint(to_plain(claim))}),
        "set of settings": fingerprint(settings.identity),
        **{name: fingerprint(table) for name, table in entries.items()},
    }
    for variant in pairs + mechanisms:
        if isinstance(variant.source, str):  # a missing function is reported now and not after hours
            load_object(variant.source.removesuffix("()"), base, variant.name)
    timeout = check_timeout(document.get("timeout"))
    details: Table = {"set of settings": settings.identity, **entries}
    detects = document.get("detects", DETECTS)
    return StudyPlan(base, combinations, settings, claim, delta, identity, timeout, details, detects)


def check_timeout(seconds: object) -> float | None:
    """Return a time limit in seconds, or None for no limit; raise InputError unless it is a number above 0."""
    if seconds is None:
        return None
    if not (is_real_number(seconds) and 0 < seconds <= MAX_TIMEOUT):
        raise InputError(f"timeout: found {shorten(seconds)}; expected a number of seconds above 0")
    return float(seconds)


def read_document(path: Path, keys: tuple[str, ...], what: str, page: str) -> Table:
    """Return a TOML document; raise InputError if it has another key. `page` documents the format."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}; expected {what}, a TOML file") from None
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{path}: not TOML ({one_line(problem)}); expected {what}; see {page}") from None
    for name in document:
        if name not in keys:
            nearest = difflib.get_close_matches(name, keys, 1)
            hint = f"the nearest is {nearest[0]}; " if nearest else ""
            raise InputError(f"{path}: found {name!r}; {hint}expected {', '.join(keys)}")
    return document


def named_tables(path: Path, document: Table, kind: str) -> dict[str, Table]:
    """Return the tables [kind.NAME]."""
    tables = document.get(kind)
    if not isinstance(tables, dict) or not tables:
        raise InputError(f"{path}: found no [{kind}.NAME]; expected at least one")
    for name, table in tables.items():
        if not isinstance(table, dict) or not ENTRY_NAME.fullmatch(name):
            raise InputError(
                f"{path}: found {kind}.{name}; expected a table whose name has letters, digits and the characters _ . -"
            )
        if len(name) > MAX_NAME_LENGTH:
            raise InputError(
                f"{path}: found a name of {len(name)} characters, {kind}.{name[:20]}...; expected at most "
                f"{MAX_NAME_LENGTH}; choose a shorter name"
            )
    return tables


def combine_parameters(entry: str, name: str, table: Table) -> list[Variant]:
    """Return a variant for every combination of the parameters of a table; a list means several values."""
    source = table.get("use")
    if not isinstance(source, str):
        raise InputError(f'{entry}: found use {source!r}; expected use = "module:name" or "path/file.py:name"')
    lists = {key: value if isinstance(value, list) else [value] for key, value in table.items() if key != "use"}
    for key, values in lists.items():
        if not values:
            raise InputError(f"{entry}: found no value for {key}; expected at least one")
    number = math.prod(map(len, lists.values()))
    if number > MAX_COMBINATIONS:
        raise InputError(f"{entry}: found {number} combinations of parameters; expected at most {MAX_COMBINATIONS}")
    return [
        Variant(name, source, dict(zip(lists, values, strict=True))) for values in itertools.product(*lists.values())
    ]


def pair_variants(base: Path, name: str, table: Table) -> list[Variant]:
    """Return the variants of a table [pairs.NAME]: from a function, or from files."""
    if "use" in table:
        return combine_parameters(f"pairs.{name}", name, table)
    complete = {"first", "second"} <= set(table) <= set(PairFiles._fields)
    files = {key: value for key, value in table.items() if isinstance(value, str)}
    if not complete or files != table:
        found = ", ".join(table) or "nothing"
        raise InputError(
            f"pairs.{name}: found {found}; expected the files first and second, and truth if it is known; or use"
        )
    for file in files.values():
        load_data(file, base)  # a missing or damaged file is reported now and not after hours
    return [Variant(name, PairFiles(**files), {})]


def read_settings(path: Path, table: object) -> Settings:
    """Return the settings of the table [settings]."""
    if not isinstance(table, dict):
        raise InputError(f"{path}: found settings {table!r}; expected a table, [settings]")
    for name in ("epsilon", "delta", "claim", "detects", "seeds", "timeout"):
        if name in table:
            raise InputError(f"{path}: found {name} in [settings]; expected it at the top of the file")
    if table.get("preset", "paper") != "paper":
        raise InputError(f'{path}: found preset {table["preset"]!r}; expected "paper", or no preset')
    changes = {name: value for name, value in table.items() if name != "preset"}
    return (Settings.paper() if "preset" in table else Settings()).change(**changes)
