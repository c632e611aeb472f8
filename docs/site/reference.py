"""The pages that the code writes itself: the API on a page per module, the commands, and the glossary."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import inspect
import os
import re
import types
from collections.abc import Callable, Iterator
from types import ModuleType

from docstrings import indent_after_first_line, to_markdown

import dpverify
import dpverify.adapters
import dpverify.cli
import dpverify.estimation
import dpverify.render
import dpverify.studies
from dpverify.cli.app import make_parser
from dpverify.estimation import theory
from dpverify.render.pages import TERMS
from dpverify.report.certificate import DensityCertificate, LipschitzCertificate
from dpverify.report.statements import CellBounds, Paper

MAX_SIGNATURE_WIDTH = 88
# Every public name of `dpverify` belongs to one group; a test checks this.
GROUPS = {
    "Verify": "verify Settings Report Verdict Diagnostic Witness assert_private",
    "Mechanisms": "Mechanism per_run jax_run jax_key factory program rmse frobenius_error rounding_score",
    "Many verifications": "verify_pairs ManyPairs search_pairs Search calibrate Calibration tradeoff Tradeoff run_study"
    " Study run_check Check compare_reports Comparison",
    "Privacy over time": "privacy_over_time PrivacyOverTime PrivacyTable",
    "Counts": "epsilon_lower_bound delta_lower_bound epsilon_upper_bound delta_upper_bound critical_epsilon p_values"
    " paper_lambda plan_runs",
    "Geometry": "scenario_size high_likely_set Region minimum_volume_ellipsoid Ellipsoid",
    "Errors": "InputError MechanismError FolderError Stopped TooWeak DPVerifyWarning",
}
REPORT_PARTS = (CellBounds, DensityCertificate, LipschitzCertificate, Paper)  # of a report; they have no public name
MODULES = {
    "dpverify.claims": dpverify.claims,
    "dpverify.neighbours": dpverify.neighbours,
    "dpverify.studies": dpverify.studies,
    "dpverify.estimation": dpverify.estimation,
    "dpverify.estimation.theory": theory,
    "dpverify.adapters": dpverify.adapters,
    "dpverify.render": dpverify.render,
}
# Words of the documentation that the pages of reports do not need; `TERMS` has the others.
WORDS = {
    "neighbouring datasets": "Two datasets that differ only in what must stay secret: one value replaced "
    "(replace-one), or one record added or removed (add-remove).",
    "mechanism": "A randomised function of the data; in Python a callable `(data, runs, rng)`.",
    "run": "One execution of the mechanism. Its result is an output.",
    "block": "The runs of one call of the mechanism, which share a random generator.",
    "pilot, selection, test runs": "Different runs that locate the outputs, choose the events, and count them.",
    "score": "One number per run, large where the first dataset is more likely.",
    "direction": "The dataset with which an event is expected to be more frequent.",
    "lower confidence bound": "A number that is at most the true value with the stated confidence.",
    "not refuted": "No violation was found. This is not a proof.",
    "too weak": "Not refuted, by runs that would not have noticed a violation of the stated size.",
    "detectable epsilon": "The smallest true epsilon of the witness that these runs refute about 80 % of the time.",
    "diagnostic": "A finding about the mechanism or the datasets; a voiding one leaves the test without an answer.",
    "e-value": "The evidence at the end of a verification that may stop early.",
    "ledger": "The evidence of all versions of a project against its claims, in one file.",
    "digest": "A hash of the result of a report, without times, versions and workers.",
}


def pages() -> dict[str, str]:
    """Return every generated page by its file name."""
    parts = ["# dpverify\n\n`import dpverify as dpv`. Every name below is public; all other names are internal.\n"]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [entry(name, getattr(dpverify, name)) for name in names.split()]
        if title == "Verify":
            parts += [entry(part.__name__, part) for part in REPORT_PARTS]
    result = {"reference.md": "\n".join(parts), "commands.md": commands_page(), "glossary.md": glossary_page()}
    for name, module in MODULES.items():
        members = [entry(member, value) for member, value in public_members(module)]
        words = "\n".join([f"# {name}\n\n{docstring(module)}\n", *members])
        result[f"reference-{name.rpartition('.')[2]}.md"] = words
    return result


def commands_page() -> str:
    """Return the exit statuses and the help of every command."""
    statuses = inspect.cleandoc(dpverify.cli.__doc__ or "").partition("\n\n")[2]
    rows = re.findall(r"^(\d) +(.+(?:\n {4}.+)*)", statuses, re.MULTILINE)
    parts = [
        "# Commands\n",
        "## Exit statuses\n",
        "The first one that applies counts.\n",
        "| status | meaning |\n|---|---|",
    ]
    parts += [f"| {status} | {' '.join(meaning.split())} |" for status, meaning in rows]
    parts.append("\nA fault never looks like a result: a mechanism that crashes or ends its process gives status 3.\n")
    os.environ["COLUMNS"] = "88"  # the width of the help
    for action in make_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, parser in action.choices.items():
                parts.append(f"## {name}\n\n```\n{parser.format_help().strip()}\n```\n")
    return "\n".join(parts)


def glossary_page() -> str:
    """Return the words that reports, their pages and the documentation use, in alphabetical order."""
    words = sorted((TERMS | WORDS).items(), key=lambda item: item[0].lower())
    return "\n".join(
        ["# Glossary\n", "| term | meaning |\n|---|---|", *(f"| {term} | {text} |" for term, text in words), ""]
    )


def public_members(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield the names in `__all__`, or those defined in the module where it has no `__all__`."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [n for n, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    for name in names:
        value = getattr(module, name)
        if not name.startswith("_") and not inspect.ismodule(value) and not isinstance(value, str):  # not a colour
            yield name, value


def entry(name: str, value: object) -> str:
    """Return heading, signature, docstring and members of one name."""
    words = "Any of these kinds of claim." if isinstance(value, types.UnionType) else docstring(value)
    parts = [f"### {name}\n", f"```python\n{signature(name, value)}\n```\n", f"{words}\n"]
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        parts += [f"- `{member.name}`: {member.value}" for member in value] + [""]
    elif inspect.isclass(value):
        items = [member_item(member, item) for member, item in class_members(value)]
        items = [item for item in items if item]
        if items:
            # The blank lines keep an item out of the list inside the item before it.
            parts.append("**Methods and properties**\n\n" + "\n\n".join(items) + "\n")
    return "\n".join(parts)


def class_members(value: type) -> Iterator[tuple[str, object]]:
    """Yield methods, properties and class attributes; the fields of a dataclass are part of its signature."""
    fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    return ((name, item) for name, item in vars(value).items() if not name.startswith("_") and name not in fields)


def underlying_function(item: object) -> object:
    """Return the function behind a property, a cached property, a class method or a static method."""
    for attribute in ("fget", "func", "__func__"):
        function = getattr(item, attribute, None)
        if function is not None:
            return function
    return item


def member_item(name: str, item: object) -> str:
    """Return a method or property as a list item; "" if it has no docstring."""
    function = underlying_function(item)
    words = docstring(function)
    if not words or not inspect.isfunction(function):
        return ""
    is_called = function is item or isinstance(item, classmethod | staticmethod)
    arguments = re.sub(r"^\((self|cls)(, )?", "(", call_signature(function)) if is_called else ""
    return indent_after_first_line(f"- `{name}{arguments}`: {words}")


def signature(name: str, value: object) -> str:
    """Return a class with its fields, or a function with its parameters, one per line if they need the space."""
    if inspect.isclass(value):
        fields = field_lines(value)
        return "\n".join([f"class {name}:" if fields else f"class {name}", *fields])
    if isinstance(value, types.UnionType):
        return f"{name} = {' | '.join(kind.__name__ for kind in value.__args__)}"
    assert callable(value)
    line = f"{name}{call_signature(value)}"
    if len(line) <= MAX_SIGNATURE_WIDTH:
        return line
    opening, _, rest = line.partition("(")
    parameters, _, result = rest.rpartition(")")
    return f"{opening}(\n    " + ",\n    ".join(split_parameters(parameters)) + f",\n){result}"


def field_lines(value: type) -> list[str]:
    """Return the fields of a class as they are written in the code; for a protocol, its call signature."""
    source = inspect.getsource(value)
    kind = ast.FunctionDef if getattr(value, "_is_protocol", False) else ast.AnnAssign
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    nodes = [node for node in definition.body if isinstance(node, kind)]
    return source.splitlines()[nodes[0].lineno - 1 : nodes[-1].end_lineno] if nodes else []


def call_signature(value: Callable[..., object]) -> str:
    """Return the parameters and the result as they are written in the code, where annotations are strings."""
    shown = inspect.signature(value)
    parameters = []
    for parameter in shown.parameters.values():
        if parameter.annotation is not parameter.empty:
            parameter = parameter.replace(annotation=Annotation(parameter.annotation))
        if isinstance(parameter.default, dpverify.Settings):
            parameter = parameter.replace(default=Annotation("Settings()"))
        parameters.append(parameter)
    result = shown.return_annotation
    has_result = not inspect.isclass(value) and result not in (None, "None", shown.empty)
    written = shown.replace(
        parameters=parameters, return_annotation=Annotation(result) if has_result else inspect.Signature.empty
    )
    return re.sub(r" at 0x[0-9a-f]+", "", str(written))


class Annotation:
    """An annotation that prints without quotes and without module names."""

    def __init__(self, annotation: object):
        written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        self.written = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", written)

    def __repr__(self) -> str:
        return self.written


def split_parameters(parameters: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth = [""], 0
    for letter in parameters:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def docstring(value: object) -> str:
    """Return a docstring as Markdown; "" for the docstring that `dataclass` or `NamedTuple` generates."""
    text = inspect.getdoc(value) or ""
    if text.startswith(f"{getattr(value, '__name__', '')}("):
        return ""
    return to_markdown(text).replace("docs/method.md", "[the method](method.md)")
