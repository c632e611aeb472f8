"""What a study file asks for: every pair with every mechanism, parameter and seed (docs/studies.md)."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import itertools
import math
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dpverify.errors import InputError
from dpverify.report.statements import check_claim
from dpverify.settings import Settings
from dpverify.studies.loading import load_data, load_object
from dpverify.util.formatting import one_line
from dpverify.util.hashing import fingerprint

TOP_LEVEL_KEYS = ("pairs", "mechanisms", "settings", "seeds", "epsilon", "delta")
FILES = ("first", "second", "truth")
REPORTS = "reports"
MAX_COMBINATIONS = 10**6  # combinations
NAME = re.compile(r"[A-Za-z0-9_.-]+")


class Variant(NamedTuple):
    """A pair or a mechanism of the study with one value for each of its parameters; or a pair of files."""

    name: str
    use: str | None
    parameters: dict[str, Any]
    files: dict[str, str]

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.parameters.items())])


class Combination(NamedTuple):
    """One verification of the study."""

    number: int
    mechanism: Variant
    pair: Variant
    seed: int

    @property
    def report(self) -> str:
        """Its file, as seen from the folder."""
        return f"{REPORTS}/{self.number:04d}-{self.mechanism.name}-{self.pair.name}-seed{self.seed}.json"

    @property
    def columns(self) -> dict[str, Any]:
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
    """What a study file asks for."""

    base: Path
    cells: tuple[Combination, ...]
    settings: Settings
    epsilon: float | None
    delta: float
    identity: dict[str, Any]


def read_study(path: str | os.PathLike[str]) -> StudyPlan:
    """The plan of a study file, or an InputError in one line."""
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}; expected a study, a TOML file") from None
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{path}: not TOML ({one_line(problem)}); expected a study; see docs/studies.md") from None
    for name in document:
        if name not in TOP_LEVEL_KEYS:
            near = difflib.get_close_matches(name, TOP_LEVEL_KEYS, 1)
            hint = f"the nearest is {near[0]}; " if near else ""
            raise InputError(f"{path}: found {name!r}; {hint}expected {', '.join(TOP_LEVEL_KEYS)}")
    base = path.resolve().parent
    pairs = [v for name, spec in _tables(path, document, "pairs") for v in _pair_variants(base, name, spec)]
    mechanisms = [
        v for name, spec in _tables(path, document, "mechanisms") for v in _variants("mechanisms", name, spec)
    ]
    settings = _settings(path, document.get("settings", {}))
    epsilon, delta = document.get("epsilon"), document.get("delta", 0.0)
    check_claim(settings, epsilon, delta)
    seeds = document.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise InputError(f"{path}: found seeds {seeds!r}; expected how many, a whole number from 1 up")
    number = len(mechanisms) * len(pairs) * seeds
    if number > MAX_COMBINATIONS:
        raise InputError(f"{path}: found {number} combinations; expected at most {MAX_COMBINATIONS}; split the study")
    combinations = itertools.product(mechanisms, pairs, range(settings.seed, settings.seed + seeds))
    cells = tuple(Combination(number, *combination) for number, combination in enumerate(combinations))
    entries = [f"{kind}.{name}" for kind in ("pairs", "mechanisms") for name in document[kind]]
    identity = {
        "entries": ", ".join(entries),
        **{name: document.get(name) for name in ("seeds", "epsilon", "delta")},
        "set of settings": fingerprint(settings),
        **{entry: fingerprint(document[entry.split(".")[0]][entry.split(".", 1)[1]]) for entry in entries},
        **{name: _hash(found) for name, found in sorted(_sources(base, pairs + mechanisms).items())},
    }
    return StudyPlan(base, cells, settings, epsilon, delta, identity)


def _tables(path: Path, document: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    tables = document.get(kind)
    if not isinstance(tables, dict) or not tables:
        raise InputError(f"{path}: found no [{kind}.NAME]; expected one at least")
    for name, spec in tables.items():
        if not isinstance(spec, dict) or not NAME.fullmatch(name):
            raise InputError(f"{path}: found {kind}.{name}; expected a table, its name of letters, digits, _ . -")
    return list(tables.items())


def _variants(where: str, name: str, spec: dict[str, Any]) -> list[Variant]:
    """Every combination of a table's parameters; a list means several values."""
    use = spec.get("use")
    if not isinstance(use, str):
        raise InputError(f'{where}: found use {use!r}; expected use = "module:name" or "path/file.py:name"')
    lists = {key: value if isinstance(value, list) else [value] for key, value in spec.items() if key != "use"}
    for key, values in lists.items():
        if not values:
            raise InputError(f"{where}: found no value for {key}; expected one at least")
    number = math.prod(map(len, lists.values()))
    if number > MAX_COMBINATIONS:
        raise InputError(f"{where}: found {number} combinations of parameters; expected at most {MAX_COMBINATIONS}")
    combinations = itertools.product(*lists.values())
    return [Variant(name, use, dict(zip(lists, values, strict=True)), {}) for values in combinations]


def _pair_variants(base: Path, name: str, spec: dict[str, Any]) -> list[Variant]:
    if "use" in spec:
        return _variants(f"pairs.{name}", name, spec)
    if not {"first", "second"} <= set(spec) <= set(FILES) or not all(isinstance(text, str) for text in spec.values()):
        found = ", ".join(spec) or "nothing"
        raise InputError(f"pairs.{name}: found {found}; expected first and second (and truth), files, or use")
    for text in spec.values():
        load_data(text, base)  # a missing or damaged file is found now, not after hours
    return [Variant(name, None, {}, spec)]


def _settings(path: Path, table: Any) -> Settings:
    if not isinstance(table, dict):
        raise InputError(f"{path}: found settings {table!r}; expected a table, [settings]")
    for name in ("epsilon", "delta", "seeds"):
        if name in table:
            raise InputError(f"{path}: found {name} in [settings]; expected it at the top of the file")
    changes = {name: value for name, value in table.items() if name != "preset"}
    if table.get("preset", "paper") != "paper":
        raise InputError(f'{path}: found preset {table["preset"]!r}; expected "paper", or none')
    return (Settings.paper() if "preset" in table else Settings()).change(**changes)


def _sources(base: Path, variants: list[Variant]) -> dict[str, Path]:
    """The files that a study names: data, and the Python files that its objects stand in."""
    found: dict[str, Path] = {}
    for variant in variants:
        found |= {text: base / text for text in variant.files.values()}
        if variant.use is None:
            continue
        load_object(variant.use.removesuffix("()"), base, variant.name)
        place = variant.use.rpartition(":")[0]
        if place.endswith(".py"):
            found[place] = base / place
        else:
            spec = importlib.util.find_spec(place)
            if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
                found[place] = Path(spec.origin)
    return found


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
