"""The claims of a project in one TOML file: mechanisms, pairs of data sets, and what is claimed about them.

`read_manifest` checks the whole file, and every file that it names, before the first verification starts
(docs/checks.md). Each claim becomes a study of one combination, so that a stopped check continues as a study does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpverify.claims import resolve_claim
from dpverify.errors import InputError
from dpverify.report.power import DETECTS, check_detects
from dpverify.report.statements import check_claim
from dpverify.settings import Settings
from dpverify.studies.files.claim_text import load_claim
from dpverify.studies.files.loading import load_object
from dpverify.studies.files.plans import (
    ENTRY_NAME,
    MAX_NAME_LENGTH,
    STUDY_FORMAT,
    Combination,
    StudyPlan,
    Table,
    Variant,
    check_timeout,
    combine_parameters,
    named_tables,
    pair_variants,
    read_document,
    read_settings,
)
from dpverify.util.checks import nearest_name, shorten
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import to_plain

MANIFEST_KEYS = ("claims", "mechanisms", "pairs", "settings", "timeout")
CLAIM_KEYS = ("name", "mechanism", "pair", "epsilon", "delta", "claim", "detects")
PAGE = "docs/checks.md"


@dataclass(frozen=True)
class ManifestClaim:
    """One claim of a manifest.

    Attributes
    ----------
    name : str
        Its name, which is unique in the manifest.
    plan : StudyPlan
        A study that consists of this claim alone.
    """

    name: str
    plan: StudyPlan

    @property
    def folder(self) -> str:
        """The name of the folder of its results; it changes with everything that is claimed."""
        return f"{self.name}-{fingerprint(self.plan.identity)[:8]}"


def read_manifest(path: str | os.PathLike[str]) -> tuple[ManifestClaim, ...]:
    """Return the claims of a manifest; raise InputError, with one line, if the file cannot be used.

    `alpha` of the settings is the probability that any true claim of the file is refuted. Each of n claims is tested at
    level alpha / n.
    """
    path = Path(path)
    document = read_document(path, MANIFEST_KEYS, "a manifest of claims", PAGE)
    base = path.resolve().parent
    mechanisms = {
        name: _single(f"mechanisms.{name}", combine_parameters(f"mechanisms.{name}", name, table))
        for name, table in named_tables(path, document, "mechanisms").items()
    }
    pairs = {
        name: _single(f"pairs.{name}", pair_variants(base, name, table))
        for name, table in named_tables(path, document, "pairs").items()
    }
    tables = document.get("claims")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{path}: found no [[claims]]; expected at least one; see {PAGE}")
    settings = read_settings(path, document.get("settings", {}))
    settings = settings.change(alpha=settings.alpha / len(tables))
    timeout = check_timeout(document.get("timeout"))
    claims: list[ManifestClaim] = []
    for number, table in enumerate(tables, 1):
        claim = _read_claim(f"{path}: claim {number}", table, mechanisms, pairs, settings, base, timeout)
        if claim.name in [other.name for other in claims]:
            raise InputError(
                f"{path}: claim {number}: found the name {claim.name} again; expected another one; add name = ..."
            )
        claims.append(claim)
    for variant in (*mechanisms.values(), *pairs.values()):
        if isinstance(variant.source, str):  # a missing function is reported now and not after minutes
            load_object(variant.source.removesuffix("()"), base, variant.name)
    return tuple(claims)


def _single(entry: str, variants: list[Variant]) -> Variant:
    """Return the only variant of an entry; a list of values, which a study accepts, is refused."""
    if len(variants) != 1:
        raise InputError(
            f"{entry}: found {len(variants)} combinations of parameters; expected one; add an entry for each"
        )
    return variants[0]


def _read_claim(
    where: str,
    table: Table,
    mechanisms: dict[str, Variant],
    pairs: dict[str, Variant],
    settings: Settings,
    base: Path,
    timeout: float | None,
) -> ManifestClaim:
    """Return one claim; `where` begins every error message."""
    for key in table:
        if key not in CLAIM_KEYS:
            nearest = nearest_name(key, CLAIM_KEYS)
            hint = f"the nearest is {nearest}; " if nearest else ""
            raise InputError(f"{where}: found {key!r}; {hint}expected {', '.join(CLAIM_KEYS)}")
    chosen = []
    for kind, entries in (("mechanism", mechanisms), ("pair", pairs)):
        name = table.get(kind)
        if not isinstance(name, str) or name not in entries:
            raise InputError(f"{where}: found {kind} {shorten(name)}; expected one of {', '.join(entries)}")
        chosen.append(entries[name])
    mechanism, pair = chosen
    name = table.get("name", f"{mechanism.name}-{pair.name}")
    if not isinstance(name, str) or not ENTRY_NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise InputError(
            f"{where}: found name {shorten(name)}; expected at most {MAX_NAME_LENGTH} letters, digits and the "
            "characters _ . -"
        )
    values: dict[str, Any] = {"delta": 0.0, "epsilon": None, "claim": None, **table}
    try:
        stated = None if values["claim"] is None else load_claim(values["claim"], base)
        claim, delta = resolve_claim(values["epsilon"], values["delta"], stated)
        if claim is None:
            raise InputError("found no claim; expected epsilon or claim")
        check_claim(settings, None, delta, claim)
        if "detects" in values:
            check_detects(values["detects"], claim)
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None
    identity: Table = {
        "study format": STUDY_FORMAT,
        "claim": fingerprint(to_plain(claim)),
        "delta": delta,
        "set of settings": fingerprint(settings.identity),
        "mechanism": fingerprint((mechanism.name, mechanism.source, mechanism.parameters)),
        "pair": fingerprint((pair.name, pair.source, pair.parameters)),
    }
    combination = Combination(0, mechanism, pair, settings.seed)
    details: Table = {"set of settings": settings.identity, "mechanism": mechanism.parameters, "pair": pair.parameters}
    detects = values.get("detects", DETECTS)
    plan = StudyPlan(base, (combination,), settings, claim, delta, identity, timeout, details, detects)
    return ManifestClaim(name, plan)
