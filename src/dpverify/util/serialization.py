"""Plain data to and from JSON: numbers, text, arrays, and the project's own frozen kinds. Never code."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

INFINITY_TEXTS = ("inf", "-inf")


def to_plain(value: Any) -> Any:
    """Strict JSON: infinities as "inf" and "-inf" (NaN is refused), arrays as nested lists with their dtype."""
    if isinstance(value, enum.Enum):
        return {"kind": type(value).__name__, "name": value.name}
    if isinstance(value, np.ndarray):
        return {
            "kind": "array",
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "values": to_plain(value.ravel().tolist()),
        }
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("NaN has no place in a report")
        return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, str) and value.lstrip("\\") in INFINITY_TEXTS:
        return "\\" + value  # text that reads like an infinity
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if dataclasses.is_dataclass(value):
        fields = {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    names = getattr(value, "_fields", None)
    if names is not None:
        return {"kind": type(value).__name__, **{name: to_plain(getattr(value, name)) for name in names}}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if callable(value):
        return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', type(value).__name__)}"
    raise TypeError(f"{type(value).__name__} can't be written")


def from_plain(value: Any, kinds: tuple[type, ...]) -> Any:
    """The inverse; lists become tuples. Only the given kinds are built, by their fields; unknown keys are ignored."""
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
            raise ValueError(f"an array of {dtype} is no plain data")
        return np.array([float(v) if isinstance(v, str) else v for v in value["values"]], dtype).reshape(value["shape"])
    kind = next((k for k in kinds if k.__name__ == value["kind"]), None)
    if kind is None:
        raise ValueError(f"unknown kind {value['kind']!r}")
    if issubclass(kind, enum.Enum):
        return kind[value["name"]]
    names = getattr(kind, "_fields", None) or [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    fields = {name: from_plain(value[name], kinds) for name in names if name in value}
    for name, item in fields.items():
        if not matches_annotation(item, _hints(kind)[name]):
            raise TypeError(f"{kind.__name__}.{name} is of the wrong type")
    return kind(**fields)


_hints = functools.cache(typing.get_type_hints)


def matches_annotation(value: Any, hint: Any) -> bool:
    """Whether plain data are of the type that an annotation names; a whole number passes for a real one."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(matches_annotation(value, part) for part in parts)
    if origin is tuple:
        parts = parts[:1] * len(value) if isinstance(value, tuple) and parts[-1] is ... else parts
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(matches_annotation, value, parts))
    if hint is Any:
        return True
    if origin is Callable:
        return callable(value) or isinstance(value, str)  # by its name where it was read from JSON
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def nested_kinds(kind: type) -> tuple[type, ...]:
    """A plain kind and those that its fields hold, read off the annotations."""
    found: list[type] = []
    queue: list[Any] = [kind]
    while queue:
        at = queue.pop()
        if isinstance(at, type) and (hasattr(at, "_fields") or dataclasses.is_dataclass(at)) and at not in found:
            found.append(at)
            queue += typing.get_type_hints(at).values()
        else:
            queue += typing.get_args(at)
    return tuple(found)
