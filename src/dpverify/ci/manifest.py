"""The claims of a project in one TOML file: mechanisms, pairs of datasets, and what is claimed about them.

`read_manifest` checks the whole file, and every file that it names, before the first verification starts
(docs/checks.md). Each claim is a job of the engine.
"""

from __future__ import annotations

import os
from pathlib import Path

from dpverify.errors import InputError
from dpverify.settings import Settings
from dpverify.studies.loading import (
    ENTRY_NAME,
    MAX_NAME_LENGTH,
    Combination,
    Plan,
    Table,
    Variant,
    check_timeout,
    read_claim,
    read_document,
    read_entries,
    read_settings,
)
from dpverify.util.checks import nearest_name, shorten

MANIFEST_KEYS = ("claims", "mechanisms", "pairs", "settings", "timeout")
CLAIM_KEYS = ("name", "mechanism", "pair", "epsilon", "delta", "claim", "detects")
PAGE = "docs/checks.md"


def read_manifest(path: str | os.PathLike[str]) -> Plan:
    """Return the claims of a manifest; raise InputError, with one line, if the file cannot be used.

    `alpha` of the settings is the probability that any true claim of the file is refuted. Each of n claims is tested at
    level alpha / n.
    """
    path = Path(path)
    document = read_document(path, MANIFEST_KEYS, "a manifest of claims", PAGE)
    entries = {
        kind: {
            name: _single(f"{kind}s.{name}", found) for name, found in read_entries(path, document, f"{kind}s").items()
        }
        for kind in ("mechanism", "pair")
    }
    tables = document.get("claims")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{path}: there must be at least one [[claims]]; see {PAGE}")
    settings = read_settings(path, document.get("settings", {}))
    settings = settings.change(alpha=settings.alpha / len(tables))
    claims: list[Combination] = []
    for number, table in enumerate(tables, 1):
        claim = _read_claim(f"{path}: claim {number}", table, entries, settings, path.resolve().parent)
        if claim.name in [other.name for other in claims]:
            raise InputError(
                f"{path}: claim {number}: found the name {claim.name} again; expected another one; add name = ..."
            )
        claims.append(claim)
    return Plan(tuple(claims), check_timeout(document.get("timeout")))


def _single(entry: str, variants: list[Variant]) -> Variant:
    """Return the only variant of an entry; a list of values, which a study accepts, is refused."""
    if len(variants) != 1:
        raise InputError(
            f"{entry}: found {len(variants)} combinations of parameters; expected one; add an entry for each"
        )
    return variants[0]


def _read_claim(
    where: str, table: Table, entries: dict[str, dict[str, Variant]], settings: Settings, base: Path
) -> Combination:
    """Return one claim; `where` begins every error message."""
    for key in table:
        if key not in CLAIM_KEYS:
            nearest = nearest_name(key, CLAIM_KEYS)
            hint = f"did you mean {nearest!r}?" if nearest else f"the keys are {', '.join(CLAIM_KEYS)}"
            raise InputError(f"{where}: unknown key {key!r}; {hint}")
    chosen = []
    for kind, variants in entries.items():
        name = table.get(kind)
        if not isinstance(name, str) or name not in variants:
            raise InputError(f"{where}: found {kind} {shorten(name)}; expected one of {', '.join(variants)}")
        chosen.append(variants[name])
    mechanism, pair = chosen
    name = table.get("name", f"{mechanism.name}-{pair.name}")
    if not isinstance(name, str) or not ENTRY_NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise InputError(
            f"{where}: found name {shorten(name)}; expected at most {MAX_NAME_LENGTH} letters, digits and the "
            "characters _ . -"
        )
    try:
        claim, delta, detects = read_claim(table, settings, base)
        if claim is None:
            raise InputError("there is no claim; set epsilon or claim")
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None
    return Combination(name, mechanism, pair, claim, delta, settings, detects, {"name": name})
