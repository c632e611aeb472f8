"""JSON Schemas that are generated from the annotations of frozen dataclasses and NamedTuples.

The schema describes what `util.serialization.to_plain` writes: an object with its `kind` and its fields, an array as
dtype, shape and values, an infinity as the text "inf" or "-inf", a function as its name.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from dpverify.util.serialization import INFINITY_TEXTS

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
Limits = Mapping[str, float]

ARRAY_SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "required": ["kind", "dtype", "shape", "values"],
    "properties": {
        "kind": {"const": "array"},
        "dtype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "values": {
            "type": "array",
            "items": {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"enum": list(INFINITY_TEXTS)}]},
        },
    },
}


SIMPLE_TYPES = {type(None): "null", bool: "boolean", int: "integer", str: "string", dict: "object"}


class SchemaContext(NamedTuple):
    """What the schemas of one document share.

    Attributes
    ----------
    limits : mapping
        For each class name and field name, the limits of its numbers as keywords of JSON Schema.
    implementations : mapping
        For each Protocol, the classes that a document may contain in its place.
    definitions : dict
        The schemas of the classes that were met so far, by name.
    """

    limits: Mapping[str, Mapping[str, Limits]]
    implementations: Mapping[type, tuple[type, ...]]
    definitions: dict[str, JsonValue]


def json_schema(kind: type, context: SchemaContext, without: tuple[str, ...] = ()) -> dict[str, JsonValue]:
    """Return the schema of a dataclass or NamedTuple, and add those of its parts to the definitions.

    Fields in `without` are left out; "kind" leaves out the name of the class.
    """
    own_limits = context.limits.get(kind.__name__, {})
    properties: dict[str, JsonValue] = {} if "kind" in without else {"kind": {"const": kind.__name__}}
    for name, hint in typing.get_type_hints(kind).items():
        if name not in without and name in _field_names(kind):
            properties[name] = _schema_of(hint, own_limits.get(name, {}), context)
    return {"type": "object", "required": list(properties), "properties": properties}


def _schema_of(hint: object, limits: Limits, context: SchemaContext) -> dict[str, JsonValue]:
    """Return the schema of one annotation."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _any_of([_schema_of(part, limits, context) for part in parts])
    if origin is tuple:
        size: dict[str, JsonValue] = {} if parts[-1] is ... else {"minItems": len(parts), "maxItems": len(parts)}
        return {"type": "array", "items": _schema_of(parts[0], limits, context), **size}
    if hint is np.ndarray or origin is np.ndarray:
        context.definitions.setdefault("array", ARRAY_SCHEMA)
        return {"$ref": "#/$defs/array"}
    if origin is Callable:
        return {"type": "string"}
    if hint is float:
        return _number_schema(limits)
    kind = origin or hint
    if not isinstance(kind, type):
        return {}
    if kind in context.implementations:
        return _any_of([_reference(each, context) for each in context.implementations[kind]])
    if kind in SIMPLE_TYPES:
        return {"type": SIMPLE_TYPES[kind], **(limits if kind is int else {})}
    return _reference(kind, context) if issubclass(kind, enum.Enum) or _field_names(kind) else {}


def _any_of(options: list[dict[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return the schema of alternatives, each of them once."""
    distinct: list[JsonValue] = []
    for option in options:
        if option not in distinct:
            distinct.append(option)
    return {"anyOf": distinct} if len(distinct) > 1 else options[0]


def _number_schema(limits: Limits) -> dict[str, JsonValue]:
    """Return the schema of a real number; infinities are texts, and allowed only on a side without a limit."""
    number: dict[str, JsonValue] = {"type": "number", **limits}
    infinities: list[JsonValue] = []
    if not {"maximum", "exclusiveMaximum"} & set(limits):
        infinities.append("inf")
    if not {"minimum", "exclusiveMinimum"} & set(limits):
        infinities.append("-inf")
    return {"anyOf": [number, {"enum": infinities}]} if infinities else number


def _reference(kind: type, context: SchemaContext) -> dict[str, JsonValue]:
    """Return a reference to the schema of a class, which is added to the definitions if it is new."""
    name, definitions = kind.__name__, context.definitions
    if name not in definitions:
        if issubclass(kind, enum.Enum):
            members: list[JsonValue] = [member.name for member in kind]
            properties: dict[str, JsonValue] = {"kind": {"const": name}, "name": {"enum": members}}
            definitions[name] = {"type": "object", "required": ["kind", "name"], "properties": properties}
        else:
            definitions[name] = {}  # the class may contain itself
            definitions[name] = json_schema(kind, context)
    return {"$ref": f"#/$defs/{name}"}


def _field_names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or NamedTuple; none for any other class."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", ())
