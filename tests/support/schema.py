"""The JSON Schema of a report, generated from the annotations of its classes: `python tests/support/schema.py`.

It writes `report.schema.json` of the package, which is due after a change of the report's classes.
"""

import collections.abc
import enum
import inspect
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import dpverify as dpv
from dpverify.events.scores import SCORE_KINDS, Score
from dpverify.report import json as report_json
from dpverify.util.serialization import (
    INFINITY_TEXTS,
    annotation_text,
    annotations,
    field_names,
    is_union,
    nested_kinds,
)

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_FILE = Path(report_json.__file__).with_name("report.schema.json")
Schema = dict[str, Any]


def report_schema() -> Schema:
    """Return the JSON Schema of a report's document."""
    schema = json_schema(dpv.Report, {Score: SCORE_KINDS})
    result = schema["$defs"]["Report"]
    provenance = result["properties"].pop("provenance")
    return {
        "$schema": schema["$schema"],
        "title": "A report of dpverify",
        "type": "object",
        "required": ["format", "result", "provenance", "checksum"],
        "properties": {
            "format": {"const": report_json.FORMAT},
            "result": {"$ref": schema["$ref"]},
            "summary": {"type": "object"},
            "provenance": provenance,
            "checksum": {"type": "string"},
        },
        "$defs": schema["$defs"],
    }


def json_schema(kind: type, implementations: Mapping[type, tuple[type, ...]] | None = None) -> Schema:
    """Return the JSON Schema (draft 2020-12) of the objects of a kind, generated from its annotations.

    The schema accepts what `from_plain` accepts. Every kind that occurs is an entry of "$defs", under its name. Entries
    without a default are required, and unknown entries are allowed.

    Parameters
    ----------
    kind : type
        A dataclass, a NamedTuple or an enumeration.
    implementations : mapping, optional
        For each protocol that occurs as an annotation, the kinds that implement it.

    Raises
    ------
    TypeError
        If an annotation has no JSON form.

    Examples
    --------
    >>> import typing
    >>> schema = json_schema(typing.NamedTuple("Point", [("x", float), ("label", str | None)]))
    >>> schema["$ref"], schema["$defs"]["Point"]["required"]
    ('#/$defs/Point', ['kind', 'x', 'label'])
    """
    definitions: dict[str, Schema] = {}
    reference = _schema_of(kind, definitions, implementations or {})
    return {"$schema": SCHEMA_DIALECT, **reference, "$defs": dict(sorted(definitions.items()))}


NUMBER_SCHEMA: Schema = {"anyOf": [{"type": "number"}, {"enum": list(INFINITY_TEXTS)}]}
ARRAY_SCHEMA: Schema = {
    "description": "A NumPy array.",
    "type": "object",
    "required": ["kind", "dtype", "shape", "values"],
    "properties": {
        "kind": {"const": "array"},
        "dtype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "values": {"type": "array", "items": {"anyOf": [*NUMBER_SCHEMA["anyOf"], {"type": "boolean"}]}},
    },
}
SIMPLE_SCHEMAS: dict[object, Schema] = {
    Any: {},
    object: {},
    types.NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: NUMBER_SCHEMA,
    str: {"type": "string", "not": {"enum": list(INFINITY_TEXTS)}},
}


def _schema_of(hint: Any, definitions: dict[str, Schema], implementations: Mapping[type, tuple[type, ...]]) -> Schema:
    """Return the schema of an annotation; kinds and arrays are added to the definitions and referred to."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in SIMPLE_SCHEMAS:
        return SIMPLE_SCHEMAS[hint]
    if hint in implementations:
        return {"anyOf": [_schema_of(kind, definitions, implementations) for kind in implementations[hint]]}
    if is_union(hint):
        return {"anyOf": [_schema_of(part, definitions, implementations) for part in parts]}
    if origin is tuple and parts[-1] is ...:
        return {"type": "array", "items": _schema_of(parts[0], definitions, implementations)}
    if origin is tuple:
        items = [_schema_of(part, definitions, implementations) for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(parts[1], definitions, implementations)}
    if hint is dict:
        return {"type": "object"}
    if origin is collections.abc.Callable:
        return {"type": "string"}
    if (origin or hint) is np.ndarray:
        definitions["array"] = ARRAY_SCHEMA
        return {"$ref": "#/$defs/array"}
    if not (isinstance(hint, type) and (issubclass(hint, enum.Enum) or nested_kinds(hint))):
        raise TypeError(f"annotation: found {annotation_text(hint)}; expected a kind or plain data")
    if hint.__name__ not in definitions:
        definitions[hint.__name__] = {}  # kinds may refer to each other
        definitions[hint.__name__] = _kind_schema(hint, definitions, implementations)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _kind_schema(
    kind: type, definitions: dict[str, Schema], implementations: Mapping[type, tuple[type, ...]]
) -> Schema:
    """Return the schema of the objects of one kind."""
    properties: dict[str, Schema] = {"kind": {"const": kind.__name__}}
    if issubclass(kind, enum.Enum):
        properties["name"] = {"enum": list(kind.__members__)}
        required = ["kind", "name"]
    else:
        signature = inspect.signature(kind).parameters
        for name in field_names(kind):
            properties[name] = _schema_of(annotations(kind)[name], definitions, implementations)
        required = ["kind", *(name for name in field_names(kind) if signature[name].default is inspect.Parameter.empty)]
    summary = (kind.__doc__ or "").strip().partition("\n")[0]
    description = {} if summary.startswith(f"{kind.__name__}(") or not summary else {"description": summary}
    return {**description, "type": "object", "required": required, "properties": properties}


if __name__ == "__main__":
    SCHEMA_FILE.write_text(json.dumps(report_schema(), indent=2) + "\n", encoding="utf-8")
