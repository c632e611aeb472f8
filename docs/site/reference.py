"""The public names as a page: signatures and docstrings, as they stand in the code."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from typing import Any

import dpverify
import dpverify.adapters
import dpverify.estimation
from dpverify.estimation import theory
from dpverify.report.statements import OnAllEvents, OnPartition, Paper

# Every public name stands in one group.
GROUPS = {
    "Verify": "verify Settings Report Verdict Diagnostic Witness assert_private",
    "Mechanisms": "Mechanism per_run jax_run jax_key factory program rmse",
    "Many verifications": "verify_pairs ManyPairs search_pairs Search calibrate Calibration tradeoff Tradeoff run_study"
    " Study",
    "Counts": "epsilon_lower_bound delta_lower_bound epsilon_upper_bound delta_upper_bound critical_epsilon p_values"
    " paper_lambda plan_runs",
    "Geometry": "scenario_size high_likely_set Region minimum_volume_ellipsoid Ellipsoid",
    "Errors": "InputError MechanismError FolderError Stopped TooWeak Warning",
}
PARTS = (OnPartition, OnAllEvents, Paper)  # of a report, reached through it
PLACES = {
    "dpverify.estimation": dpverify.estimation,
    "dpverify.estimation.theory": theory,
    "dpverify.adapters": dpverify.adapters,
}


def page() -> str:
    parts = ["# Reference\n\n`import dpverify as dpv`; every name below is public, and nothing else is.\n"]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [entry(name, getattr(dpverify, name)) for name in names.split()]
        if title == "Verify":
            parts += [entry(part.__name__, part) for part in PARTS]
    for place, module in PLACES.items():
        parts.append(f"## {place}\n\n{text(module)}\n")
        parts += [entry(name, value) for name, value in public(module)]
    return "\n".join(parts)


def public(module: Any) -> Iterator[tuple[str, Any]]:
    """What a module offers; functions of its own where it lists no names."""
    names = getattr(module, "__all__", None)
    for name in names or [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]:
        value = getattr(module, name)
        if not name.startswith("_") and not inspect.ismodule(value):
            yield name, value


def entry(name: str, value: Any) -> str:
    parts = [f"### {name}\n", f"```python\n{signature(name, value)}\n```\n", f"{text(value)}\n"]
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        parts += [f"- `{member.name}`: {member.value}" for member in value] + [""]
    elif inspect.isclass(value):
        parts += [line for member, item in members(value) if (line := one_line(member, item))] + [""]
    return "\n".join(parts)


def members(value: type) -> Iterator[tuple[str, Any]]:
    fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    return ((n, item) for n, item in vars(value).items() if not n.startswith("_") and n not in fields)


def one_line(name: str, item: Any) -> str:
    """A method or property with the docstring that it has; what has none is no promise."""
    plain = getattr(item, "fget", None) or getattr(item, "func", None) or getattr(item, "__func__", item)
    words = text(plain)
    if not words or not inspect.isfunction(plain):
        return ""
    called = plain is item or isinstance(item, classmethod | staticmethod)
    arguments = re.sub(r"^\((self|cls)(, )?", "(", bare(plain)) if called else ""
    return f"- `{name}{arguments}`: " + words.replace("\n", "\n  ")


def signature(name: str, value: Any) -> str:
    if inspect.isclass(value):
        return "\n".join([f"class {name}:" if fields(value) else f"class {name}", *fields(value)])
    line = f"{name}{bare(value)}"
    if len(line) <= 88:
        return line
    opened, _, inner = line.partition("(")
    inner, _, after = inner.rpartition(")")
    return f"{opened}(\n    " + ",\n    ".join(split(inner)) + f",\n){after}"


def fields(value: type) -> list[str]:
    """The fields as they are written, comments and all; of a protocol, how it is called."""
    source = inspect.getsource(value)
    kind = ast.FunctionDef if getattr(value, "_is_protocol", False) else ast.AnnAssign
    nodes = [node for node in ast.parse(source).body[0].body if isinstance(node, kind)]  # type: ignore
    return source.splitlines()[nodes[0].lineno - 1 : nodes[-1].end_lineno] if nodes else []


def bare(value: Any) -> str:
    """The signature as it is written in the code: annotations are strings there."""
    shown = inspect.signature(value)
    kept = [
        p if p.annotation is p.empty else p.replace(annotation=Words(p.annotation)) for p in shown.parameters.values()
    ]
    kept = [p.replace(default=Words("Settings()")) if isinstance(p.default, dpverify.Settings) else p for p in kept]
    back = shown.return_annotation
    back = inspect.Signature.empty if inspect.isclass(value) or back in (None, "None", shown.empty) else Words(back)
    return re.sub(r" at 0x[0-9a-f]+", "", str(shown.replace(parameters=kept, return_annotation=back)))


class Words:
    """An annotation that prints without quotes and without the rooms it comes from."""

    def __init__(self, annotation: Any):
        written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        self.written = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", written)

    def __repr__(self) -> str:
        return self.written


def split(arguments: str) -> list[str]:
    """At the commas that stand in no bracket."""
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def text(value: Any) -> str:
    """The docstring; not the one that a dataclass writes itself."""
    words = inspect.getdoc(value) or ""
    words = "" if words.startswith(f"{getattr(value, '__name__', '')}(") else words
    return words.replace("docs/method.md", "[the method](method.md)")
