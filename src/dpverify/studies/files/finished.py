"""Finished combinations of a study: which report belongs to which combination, and whether it can be used again.

`report.provenance["study"]` binds a report to its combination. It contains a hash of the study and the combination,
hashes of the data sets and of the source files, and a hash of 64 runs per data set. The report of another combination
is refused. A report whose sources have changed is used again only if the behaviour is the same and the user trusts the
results.
"""

from __future__ import annotations

import enum
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dpverify.claims import CLAIM_KINDS
from dpverify.errors import DPVerifyWarning, FolderError, InputError, MechanismError
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import Mechanism, is_seeded, mechanism_name
from dpverify.report.report import Report
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.checkpoint import OWNER_FILE, describe_changes, run_sources
from dpverify.sampling.probe import behaviour_hash, probe_mechanism, shorten_settings
from dpverify.settings import Settings
from dpverify.studies.files.inputs import PairData
from dpverify.studies.files.plans import Combination, PairFiles, StudyPlan, Variant
from dpverify.util.files import check_regular, replace_file
from dpverify.util.hashing import fingerprint
from dpverify.util.sources import SourceHashes, changed_sources, hash_file

STUDY_KEY = "study"  # the entry of `report.provenance`
JSON_VALUES = (str, int, float, bool, type(None))
REMOVE = "remove this file to verify its combination again"

Record = dict[str, object]


class Inputs(NamedTuple):
    """What a combination verifies, and the record of its pair (`make_pair_record`)."""

    mechanism: Mechanism
    pair: PairData
    pair_record: Record


class Finished(enum.Enum):
    """Whether a finished combination is run again, and why; the value is part of a warning."""

    CURRENT = "its report is used"
    TRUSTED = "its report is trusted"
    OTHER_DATA = "the data sets are others than in its report; it is run again"
    OTHER_BEHAVIOUR = "its runs are others than in its report; it is run again"
    SAME_BEHAVIOUR = (
        "64 runs per data set are the same as in its report; it is run again, unless the results are trusted "
        "(--trust-results, trust_results=True)"
    )
    NO_SEED = (
        "runs without a seed cannot be compared; it is run again, unless the results are trusted "
        "(--trust-results, trust_results=True)"
    )


def make_pair_record(plan: StudyPlan, variant: Variant, pair: PairData) -> Record:
    """Return hashes of the data sets, of the error function's name or truth, and of the data files."""
    files: SourceHashes = {}
    if isinstance(variant.source, PairFiles):
        files = {file: hash_file(plan.base / file) for file in variant.source if file is not None}
    return {
        "first data set": fingerprint(pair.first),
        "second data set": fingerprint(pair.second),
        "error": fingerprint(pair.error, sources=False),  # its sources are those of the combination
        "files": files,
    }


def make_record(plan: StudyPlan, combination: Combination, inputs: Inputs) -> Record:
    """Return the record that binds a report to its combination, without its behaviour."""
    return {
        "combination": combination_hash(plan.identity, combination.number, combination.columns),
        "number": combination.number,
        "columns": plain_columns(combination.columns),
        **{name: value for name, value in inputs.pair_record.items() if name != "files"},
        "sources": _combination_sources(plan, combination, inputs),
    }


def add_behaviour(record: Record, running: Path) -> Record:
    """Return the record with the hash of the first runs, which the checkpoint folder of the verification contains."""
    return {**record, "behaviour": _read_owner(running, "run").get("probe")}


def combination_hash(identity: Mapping[str, object], number: int, columns: Mapping[str, object]) -> str:
    """Return a hash of the study's identity and of a combination, whatever the order of the columns in a file is."""
    return fingerprint((identity, number, sorted(plain_columns(columns).items())))


def plain_columns(columns: Mapping[str, object]) -> Record:
    """Return the columns as JSON represents them; a date or a list becomes text."""
    return {name: value if isinstance(value, JSON_VALUES) else str(value) for name, value in columns.items()}


def _combination_sources(plan: StudyPlan, combination: Combination, inputs: Inputs) -> SourceHashes:
    """Return the hashes of the source files of a combination and of its data files."""
    named = combination.mechanism.source
    modules = [Path(named.rpartition(":")[0]).name.removesuffix(".py")] if isinstance(named, str) else []
    sources = run_sources(inputs.mechanism, plan.settings, inputs.pair.error, modules)
    files = inputs.pair_record["files"]
    assert isinstance(files, dict)
    return dict(sorted({**sources, **files}.items()))


def read_finished(path: Path, plan: StudyPlan, combination: Combination) -> Report:
    """Read the report of a finished combination; raise FolderError if it is damaged or belongs elsewhere."""
    check_regular(path)
    try:
        report = Report.from_json(path)
    except InputError as problem:
        raise FolderError(f"{problem}; {REMOVE}") from None
    for name, found, expected in (("claim", report.claim, plan.claim), ("delta", report.delta, plan.delta)):
        if found != expected:
            shown = [value.describe() if isinstance(value, CLAIM_KINDS) else value for value in (found, expected)]
            raise FolderError(f"{path}: found {name} {shown[0]}; expected {shown[1]} as in the study; {REMOVE}")
    settings = plan.settings.change(seed=combination.seed)
    if plan.claim is None:  # nothing stops early
        settings = settings.change(stop_early=False)
    if Diagnostic.SHORTENED in report.diagnostics:
        settings = shorten_settings(settings)
    settings = settings.change(block=report.settings.block)  # verify sets the block size
    if report.settings != settings:
        raise FolderError(f"{path}: found other settings; expected those of the study; {REMOVE}")
    record = report.provenance.get(STUDY_KEY)
    expected = combination_hash(plan.identity, combination.number, combination.columns)
    if not isinstance(record, dict) or record.get("combination") != expected:
        raise FolderError(
            f"{path}: found the report of another study or combination; expected the report of {combination}; {REMOVE}"
        )
    return report


def check_finished(
    report: Report, plan: StudyPlan, combination: Combination, inputs: Inputs, trust_results: bool
) -> tuple[Finished, tuple[str, ...]]:
    """Return whether the report of a combination can be used again, and which files have changed."""
    record = report.provenance[STUDY_KEY]
    current = make_record(plan, combination, inputs)
    changed = _changed_files(record, current)
    if any(record.get(name) != current[name] for name in ("first data set", "second data set", "error")):
        return Finished.OTHER_DATA, changed
    if report.name != mechanism_name(inputs.mechanism):
        return Finished.OTHER_BEHAVIOUR, changed
    seeded = is_seeded(inputs.mechanism)
    if seeded and record.get("behaviour") != _probe(inputs, report.settings):  # a cause can be outside of all sources
        return Finished.OTHER_BEHAVIOUR, changed
    if not changed:
        return Finished.CURRENT, ()
    if trust_results:
        return Finished.TRUSTED, changed
    return (Finished.SAME_BEHAVIOUR if seeded else Finished.NO_SEED), changed


def _probe(inputs: Inputs, settings: Settings) -> str | None:
    """Return the hash of the first 64 runs per data set; None if the mechanism fails."""
    mechanism, (first, second, _) = inputs.mechanism, inputs.pair
    assert settings.block is not None  # the settings of a report have the block size
    source = SampleSource(mechanism, (first, second), settings.seed, settings.block, settings.nonfinite)
    try:
        return behaviour_hash(probe_mechanism(source, True)[1])
    except MechanismError:
        return None
    finally:
        finish = getattr(mechanism, "finish", None)
        if finish is not None:
            finish()


def warn_of_change(combination: Combination, result: Finished, changed: tuple[str, ...]) -> None:
    """Warn, in one line, that a finished combination is run again."""
    files = f"{describe_changes(changed)}; " if changed else ""
    warnings.warn(f"{combination}: {files}{result.value}", DPVerifyWarning, stacklevel=3)


def keep_old_report(path: Path) -> Path | None:
    """Copy a report that is about to be replaced to a name with a number; return the copy, None without a report."""
    if not path.exists():
        return None
    number = 1
    while (copy := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    replace_file(copy, path.read_bytes())
    return copy


def was_started_otherwise(running: Path, record: Record) -> bool:
    """Return whether a checkpoint folder was started with other source files or data sets than the record has."""
    if not (running / OWNER_FILE).exists():
        return False
    owner = _read_owner(running, "run")
    if any(owner.get(name) != record[name] for name in ("first data set", "second data set")):
        return True
    return bool(_changed_files({"sources": _read_owner(running, "sources")}, record, moved=False))


def _changed_files(recorded: Record, current: Record, moved: bool = True) -> tuple[str, ...]:
    """Return which source and data files differ between two records."""
    before, now = recorded.get("sources"), current["sources"]
    assert isinstance(now, dict)
    return changed_sources(before if isinstance(before, dict) else {}, now, moved)


def _read_owner(running: Path, part: str) -> Record:
    """Return a part of the identity of a checkpoint folder; empty if it cannot be read."""
    try:
        document = json.loads((running / OWNER_FILE).read_text(encoding="utf-8"))
        return dict(document[part])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
