"""Plain data to and from JSON.

A kind is a frozen dataclass, a NamedTuple or an enumeration. Its values are written as objects with the entry "kind",
the name of the class, and one entry per field. The annotations of the fields are the only description of the format:
the reader checks values against them (`matches_annotation`). No code is ever read.

==========================  ================================================================
annotation                  JSON
==========================  ================================================================
`float`                     a number, or the text "inf" or "-inf"; NaN is refused
`str`                       a text; a text that reads like an infinity gets a leading backslash
`int`, `bool`, `None`       a number, a truth value, null
`numpy.ndarray`             an object of the kind "array" with dtype, shape and values
`tuple[...]`                an array
`dict[str, ...]`            an object
a callable                  a text, "module:name"; it stays a text when it is read
a kind                      an object with "kind"; an enumeration has the entry "name", too
==========================  ================================================================
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import math
import types
import typing
from typing import Any

import numpy as np

INFINITY_TEXTS = ("inf", "-inf")


def to_plain(value: object) -> Any:
    """Return a value as data that `json.dumps` writes in strict JSON (see the table of this module).

    Raises
    ------
    ValueError
        If a number is NaN.
    TypeError
        If a value has no JSON form.

    Examples
    --------
    >>> to_plain({"bounds": (0.5, float("inf"))})
    {'bounds': [0.5, 'inf']}
    """
    if isinstance(value, enum.Enum):
        return {"kind": type(value).__name__, "name": value.name}
    if isinstance(value, np.ndarray):
        numbers = value.ravel().tolist()
        is_plain = value.dtype.kind in "biuf" and bool(np.isfinite(value).all())  # each number is its own JSON form
        return {
            "kind": "array",
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "values": numbers if is_plain else to_plain(numbers),
        }
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("found NaN; expected a number or an infinity")
        return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, str) and value.lstrip("\\") in INFINITY_TEXTS:
        return "\\" + value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return {"kind": type(value).__name__} | {name: to_plain(getattr(value, name)) for name in field_names(value)}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if callable(value):
        return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', type(value).__name__)}"
    raise TypeError(f"found a value of type {type(value).__name__}; expected plain data")


def from_plain(value: Any, kinds: tuple[type, ...]) -> Any:
    """Return the value that `to_plain` wrote; lists become tuples.

    Parameters
    ----------
    value : JSON data
        As `json.loads` returns it.
    kinds : tuple of type
        The only kinds that are built. Unknown entries of an object are ignored, and entries with a default may be
        absent.

    Raises
    ------
    ValueError
        If an object is of another kind, or an array does not hold numbers.
    TypeError
        If a field does not have the type of its annotation.

    Examples
    --------
    >>> from_plain({"bounds": [0.5, "inf"]}, ())
    {'bounds': (0.5, inf)}
    """
    if isinstance(value, str) and value.lstrip("\\") in INFINITY_TEXTS:
        return float(value) if value in INFINITY_TEXTS else value[1:]
    if isinstance(value, list):
        return tuple(from_plain(item, kinds) for item in value)
    if not isinstance(value, dict):
        return value
    if "kind" not in value:
        return {key: from_plain(item, kinds) for key, item in value.items()}
    if value["kind"] == "array":
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in "fiub":
            raise ValueError(f"dtype: found {dtype}; expected an array of numbers or truth values")
        return np.array([float(v) if isinstance(v, str) else v for v in value["values"]], dtype).reshape(value["shape"])
    kind = next((k for k in kinds if k.__name__ == value["kind"]), None)
    if kind is None:
        raise ValueError(f"kind: found {value['kind']!r}; expected one of {', '.join(k.__name__ for k in kinds)}")
    if issubclass(kind, enum.Enum):
        if value["name"] not in kind.__members__:
            raise ValueError(f"{kind.__name__}: found {value['name']!r}, which this version does not know")
        return kind[value["name"]]
    fields = {name: from_plain(value[name], kinds) for name in field_names(kind) if name in value}
    for name, item in fields.items():
        hint = annotations(kind)[name]
        if not matches_annotation(item, hint):
            raise TypeError(f"{kind.__name__}.{name}: found {type(item).__name__}; expected {annotation_text(hint)}")
    return kind(**fields)


def field_names(kind: object) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or a NamedTuple, or of an instance of one.

    Examples
    --------
    >>> import typing
    >>> field_names(typing.NamedTuple("Pair", [("first", int), ("second", int)]))
    ('first', 'second')
    """
    names = getattr(kind, "_fields", None)
    return names if names is not None else tuple(field.name for field in dataclasses.fields(kind))  # type: ignore[arg-type]


annotations = functools.cache(typing.get_type_hints)


def annotation_text(hint: object) -> str:
    """Return an annotation in the form in which it is written in code."""
    return getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)


def is_union(hint: object) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def matches_annotation(value: object, hint: Any) -> bool:
    """Return whether plain data have the type that an annotation names; a whole number is accepted as a `float`.

    Examples
    --------
    >>> matches_annotation((1, 2.5), tuple[int, float]), matches_annotation(True, int)
    (True, False)
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if is_union(hint):
        return any(matches_annotation(value, part) for part in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        items = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(value) == len(items) and all(map(matches_annotation, value, items))
    if origin is dict:
        return isinstance(value, dict) and all(matches_annotation(item, parts[1]) for item in value.values())
    if origin is collections.abc.Callable:
        return callable(value) or isinstance(value, str)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def nested_kinds(kind: type) -> tuple[type, ...]:
    """Return a kind and all dataclasses and NamedTuples that its fields hold, according to the annotations.

    Examples
    --------
    >>> import typing
    >>> Point = typing.NamedTuple("Point", [("x", float)])
    >>> [kind.__name__ for kind in nested_kinds(typing.NamedTuple("Line", [("ends", tuple[Point, Point])]))]
    ['Line', 'Point']
    """
    kinds: list[type] = []
    queue: list[Any] = [kind]
    while queue:
        hint = queue.pop()
        is_kind = isinstance(hint, type) and (hasattr(hint, "_fields") or dataclasses.is_dataclass(hint))
        if is_kind and hint not in kinds:
            kinds.append(hint)
            queue += typing.get_type_hints(hint).values()
        else:
            queue += typing.get_args(hint)
    return tuple(kinds)
