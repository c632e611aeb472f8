"""Which names of dpverify a folder of Python files uses, and which of them are not public."""

import ast
import importlib
from pathlib import Path

PUBLIC_MODULES = {
    "dpverify",
    "dpverify.adapters",
    "dpverify.claims",
    "dpverify.estimation",
    "dpverify.render",
    "dpverify.studies",
}


def private_names(folder):
    """Return the names of dpverify that are used below a folder and are not public, as 'file:line name'."""
    return [
        f"{path.relative_to(folder)}:{line} {name}"
        for path in sorted(Path(folder).rglob("*.py"))
        for line, name in used_names(path.read_text(encoding="utf-8"))
        if not is_public(name)
    ]


def used_names(source):
    """Yield the line and the dotted name of everything that is imported from dpverify, and of its attributes."""
    tree = ast.parse(source)
    aliases = {}  # local name: dotted name
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and is_own(node.module):
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in filter(lambda alias: is_own(alias.name), node.names):
                yield node.lineno, alias.name
                aliases[alias.asname or "dpverify"] = alias.name if alias.asname else "dpverify"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            parts, inner = [node.attr], node.value
            while isinstance(inner, ast.Attribute):
                parts.append(inner.attr)
                inner = inner.value
            module = aliases.get(inner.id) if isinstance(inner, ast.Name) else None
            if module in PUBLIC_MODULES:
                name = ".".join([module, *reversed(parts)])
                yield node.lineno, name


def is_own(module):
    return module.split(".")[0] == "dpverify"


def is_public(name):
    """Return whether a dotted name is a public module, or begins with a public name of the longest of them.

    >>> is_public("dpverify.verify"), is_public("dpverify.claims.pure"), is_public("dpverify.pipeline.run_verification")
    (True, True, False)
    """
    if name in PUBLIC_MODULES:
        return True
    module, _, first = name.rpartition(".")
    while module and module not in PUBLIC_MODULES:
        module, _, first = module.rpartition(".")
    found = (
        importlib.import_module("dpverify").claims if module == "dpverify.claims" else importlib.import_module(module)
    )
    return first in found.__all__
