"""The JSON document of a report: its schema, how it is read, and how older documents are converted.

A document has the keys `schema` (a whole number), `result`, `run` and `checksum`. The result has the fields of
`Report` and, for other readers, the profile and the notes. The JSON Schema is generated from the annotations of the
report's classes and from the limits in `report.validation`, so the reader and the schema cannot disagree.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO, TypeVar

from dpverify.errors import DPVerifyWarning, InputError
from dpverify.events.event import EVENT_KINDS
from dpverify.events.scores import SCORE_KINDS, Score
from dpverify.events.selected import DeltaAims
from dpverify.mechanisms.data_difference import DataDifference, Relation
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.delta_bounds import DeltaEvents
from dpverify.report.evaluate import next_step
from dpverify.report.fields import ReportFields
from dpverify.report.recomputation import find_difference, is_recomputable
from dpverify.report.sequence import Sequence, StoppedBy
from dpverify.report.statements import OnAllEvents, OnPartition, Paper, Verdict, Witness
from dpverify.report.validation import FIELD_LIMITS, Limits, check_consistent
from dpverify.settings import Settings
from dpverify.stats.anytime import Bets
from dpverify.stats.claim_kinds import CLAIM_KINDS, Approximate
from dpverify.util import serialization as serial
from dpverify.util.files import write_file
from dpverify.util.formatting import one_line, too_little_memory

Document = dict[str, Any]  # a JSON object
R = TypeVar("R", bound=ReportFields)

SCHEMA = 2
SCHEMA_FILE = "report.schema.json"
RUN_KEYS = ("seconds", "versions", "device", "workers", "resumed")
PROFILE_COLUMNS = ("eps", "delta_lower", "delta_upper")
KINDS = (
    *EVENT_KINDS,
    Witness,
    OnPartition,
    OnAllEvents,
    Paper,
    Settings,
    Verdict,
    Diagnostic,
    Sequence,
    StoppedBy,
    Bets,
    DeltaEvents,
    DeltaAims,
    DataDifference,
    Relation,
    *CLAIM_KINDS,
)

# Documents of schema 1 have no diagnostics: their remarks contain these sentences instead.
SCHEMA_1_DIAGNOSTICS = {
    "both data sets are the same: nothing could tell them apart": Diagnostic.SAME_DATA,
    "the mechanism changes its data: a run finds what the one before has left of it, and nothing said here can be "
    "trusted; let it work on a copy": Diagnostic.CHANGED_DATA,
    "asked twice for one block, the mechanism gave two answers, so nothing said here can be trusted: draw from the "
    "generator that is handed in and remember nothing, or say mechanism.seeded = False where noise can't be "
    "seeded": Diagnostic.UNREPEATABLE_BLOCK,
    "blocks of runs repeat each other: the mechanism ignores its generator, and nothing said here can be trusted; draw "
    "from the one that is handed in": Diagnostic.REPEATED_BLOCKS,
    "every run of both data sets gave the same output: identical as far as these runs can "
    "tell": Diagnostic.IDENTICAL_OUTPUTS,
    "all pilot runs of a side gave one output, and the two differ: if deterministic, it breaks every "
    "epsilon": Diagnostic.DETERMINISTIC_OUTPUTS,
    "this mechanism can't be seeded: the numbers can't be repeated run for run": Diagnostic.UNSEEDED,
    "values repeat, so there is no density: the stated Lipschitz constant was not used": Diagnostic.NO_DENSITY,
    "a certificate for all events is of use in one or two dimensions: the constant was not "
    "used": Diagnostic.LIPSCHITZ_DIMENSION,
}


def result_document(report: ReportFields) -> Document:
    """Return the fields of a report that are functions of mechanism, data sets and settings, as JSON values."""
    names = [field.name for field in dataclasses.fields(report) if field.name != "run"]
    document = {name: serial.to_plain(getattr(report, name)) for name in names}
    # This setting is newer than others. Without it, reports of earlier versions keep their digest.
    if not report.settings.coupled_selection:
        del document["settings"]["coupled_selection"]
    return document


def report_digest(report: ReportFields) -> str:
    """Return a hash of the result. It does not depend on executor, number of workers or order of blocks."""
    return hashlib.sha256(dump_json(result_document(report)).encode()).hexdigest()


def write_report(report: ReportFields, target: str | Path | TextIO) -> None:
    """Write a report to a file, or to a text stream that is open."""
    extra = {"profile": serial.to_plain(report.profile), "notes": list(report.notes)}
    result = {**result_document(report), **extra}
    document = {"schema": SCHEMA, "result": result, "run": serial.to_plain(report.run)}
    text = dump_json(with_checksum(document)) + "\n"
    if isinstance(target, (str, Path)):
        write_file(target, text)
    else:
        target.write(text)


def read_report(kind: type[R], path: str | Path) -> R:
    """Read a report from a file; raise InputError if it is damaged or has a newer schema."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        schema = document.get("schema") if isinstance(document, dict) else None
        if not isinstance(schema, int):
            raise TypeError("no schema, or none that is a whole number")
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror}; expected a report written by to_json") from None
    except MemoryError as problem:
        raise InputError(too_little_memory(path, problem)) from None
    except Exception as problem:  # a damaged file can raise any exception
        reason = one_line(problem)
        raise InputError(f"{path}: not a report ({reason}); expected JSON written by to_json") from None
    if schema > SCHEMA:
        raise InputError(f"{path}: found schema {schema}; expected at most {SCHEMA}; update dpverify to read it")
    try:
        result = document["result"]
        if schema < 2:
            result = _convert_schema_1(result)
        names = [field.name for field in dataclasses.fields(kind) if field.name != "run"]
        fields = {name: result[name] for name in names if name in result}
        report = serial.from_plain({"kind": kind.__name__, **fields, "run": document["run"]}, (kind, *KINDS))
        if report.claim is None and report.epsilon is not None:  # written before reports had a claim of any kind
            claim = Approximate(report.epsilon, report.delta)
            report = dataclasses.replace(report, claim=claim, claim_lower=report.epsilon_lower)
        if schema < 2:
            report = _convert_voided(report)
        check_consistent(report)
        report.run.pop("checked", None)
        recomputable = is_recomputable(report)
        difference = find_difference(report) if recomputable else None
        is_changed = not has_checksum(document)
    except MemoryError as problem:
        raise InputError(too_little_memory(path, problem)) from None
    except Exception as problem:
        reason = f"{type(problem).__name__}: {one_line(problem)}"
        refused = "a damaged report, or one of a later version"
        raise InputError(f"{path}: {refused} ({reason}); write it again, or update dpverify") from None
    if difference is not None:
        raise InputError(
            f"{path}: {difference}, recomputed from the counts of the report; do not use this file; verify again"
        )
    if is_changed:
        raise InputError(f"{path}: found another checksum; expected the report as dpverify wrote it; verify again")
    if not recomputable:
        report.run["checked"] = False
        warnings.warn(
            f"{path}: the verdict and the bounds were not recomputed from the counts, because that takes long with "
            "this number of cells; an edited number is not noticed",
            DPVerifyWarning,
            stacklevel=3,
        )
    return report


def _convert_schema_1(result: Mapping[str, object]) -> Document:
    """Return the result of a document of schema 1 with its diagnostics separated from the mechanism's remarks."""
    sentences = result["remarks"]
    if not isinstance(sentences, list):
        raise TypeError("remarks is not a list")
    found = [SCHEMA_1_DIAGNOSTICS[text] for text in sentences if isinstance(text, str) and text in SCHEMA_1_DIAGNOSTICS]
    remarks = [text for text in sentences if not isinstance(text, str) or text not in SCHEMA_1_DIAGNOSTICS]
    return {**result, "diagnostics": serial.to_plain(found), "remarks": remarks}


def _convert_voided(report: R) -> R:
    """Return a report of schema 1 with the verdict and the next step that a voiding diagnostic requires."""
    if not report.voiding:
        return report
    verdict = Verdict.NO_ANSWER
    advice = next_step(verdict, report.witness, report.claim, report.delta, report.alpha)
    return dataclasses.replace(report, verdict=verdict, next_step=advice)


def report_schema(kind: type[ReportFields]) -> Document:
    """Return the JSON Schema of a report's document. The file `report.schema.json` of this package contains it."""
    schema = copy.deepcopy(serial.json_schema(kind, {Score: SCORE_KINDS}))
    definitions = schema["$defs"]
    for name, fields in FIELD_LIMITS.items():
        for field, limits in fields.items():
            properties = definitions[name]["properties"]
            properties[field] = _with_limits(properties[field], limits)
    result = definitions.pop(kind.__name__)
    for name in ("kind", "run"):
        del result["properties"][name]
    columns = {name: {"$ref": "#/$defs/array"} for name in PROFILE_COLUMNS}
    result["properties"]["profile"] = {"type": "object", "required": list(columns), "properties": columns}
    result["properties"]["notes"] = {"type": "array", "items": {"type": "string"}}
    added = {field.name for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING}
    result["required"] = [name for name in result["properties"] if name not in added]  # old reports lack the others
    seconds = {"type": "object", "additionalProperties": {"type": "number"}}
    run = {"type": "object", "required": list(RUN_KEYS), "properties": {"seconds": seconds}}
    return {
        "$schema": schema["$schema"],
        "title": "A report of dpverify",
        "type": "object",
        "required": ["schema", "result", "run"],
        "properties": {"schema": {"const": SCHEMA}, "result": result, "run": run},
        "$defs": definitions,
    }


def _with_limits(schema: Document, limits: Limits) -> Document:
    """Return a schema whose numbers have these limits; an infinity is allowed only where there is no limit."""
    if schema.get("type") in ("number", "integer"):
        return {**schema, **limits}
    if schema.get("enum") == list(serial.INFINITY_TEXTS):
        excluded = {"inf"} if {"maximum", "exclusiveMaximum"} & set(limits) else set()
        excluded |= {"-inf"} if {"minimum", "exclusiveMinimum"} & set(limits) else set()
        return {"enum": [text for text in serial.INFINITY_TEXTS if text not in excluded]}
    if "anyOf" in schema:
        options = [_with_limits(option, limits) for option in schema["anyOf"]]
        return {"anyOf": [option for option in options if option.get("enum") != []]}
    if "items" in schema:
        return {**schema, "items": _with_limits(schema["items"], limits)}
    if "prefixItems" in schema:
        return {**schema, "prefixItems": [_with_limits(item, limits) for item in schema["prefixItems"]]}
    return schema


def write_schema(kind: type[ReportFields]) -> None:
    """Write the file `report.schema.json` of this package; call it after a change of the report's classes."""
    path = Path(__file__).with_name(SCHEMA_FILE)
    path.write_text(json.dumps(report_schema(kind), indent=2) + "\n", encoding="utf-8")


def dump_json(document: Mapping[str, object]) -> str:
    """Return compact JSON with sorted keys; NaN and infinity are refused."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def with_checksum(document: Mapping[str, object]) -> Document:
    """Return the document with a checksum over everything else in it."""
    content = {name: value for name, value in document.items() if name != "checksum"}
    return {**content, "checksum": hashlib.sha256(dump_json(content).encode()).hexdigest()}


def has_checksum(document: Mapping[str, object]) -> bool:
    """Return whether a document has the checksum of its content; earlier versions wrote none."""
    return "checksum" not in document or document["checksum"] == with_checksum(document)["checksum"]


def _refuse_constant(constant: str) -> None:
    """Raise ValueError: NaN and Infinity are not JSON."""
    raise ValueError(f"{constant} is not JSON")
