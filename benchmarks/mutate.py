"""Mutation testing: makes one small change at a time to a module, and runs the module's tests on each mutant.

Mutants that no test detects are printed: either a test is missing, or the change has no effect. The changes are made in
a copy, never in the working tree.

Run: python benchmarks/mutate.py src/dpverify/stats/paper_test.py tests/stats/test_paper_test.py
(seconds per mutant; a module of 100 lines has some 300 mutants).
"""

from __future__ import annotations

import ast
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis  # noqa: F401 -- hypothesis and SciPy are loaded once, for all mutants
import pytest
import scipy.stats  # noqa: F401

ROOT = Path(__file__).parent.parent
TIME_LIMIT_SECONDS = 120  # a mutant that runs longer counts as detected
REPLACED_OPERATORS: dict[type, list[type]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.Pow: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
}
NAME_PAIRS = (
    ("minimum", "maximum"),
    ("min", "max"),
    ("any", "all"),
    ("less", "greater"),
    ("zeros_like", "ones_like"),
    ("betainc", "betaincc"),
    ("betaincinv", "betainccinv"),
    ("sf", "cdf"),
    ("exp", "expm1"),
    ("True", "False"),
)
REPLACED_NAMES = {old: new for pair in NAME_PAIRS for old, new in (pair, pair[::-1])}


def changes(node: ast.AST) -> Iterator[Callable[[], None]]:
    """Yield functions that each make one small change to this node in place."""

    def set_field(name: str, value: object) -> Callable[[], None]:
        return lambda: setattr(node, name, value)

    match node:
        case ast.Compare(ops=[*operators]):
            for i, old in enumerate(operators):
                for new in REPLACED_OPERATORS.get(type(old), ()):
                    yield set_field("ops", [*operators[:i], new(), *operators[i + 1 :]])
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign():
            for new in REPLACED_OPERATORS.get(type(node.op), ()):
                yield set_field("op", new())
        case ast.UnaryOp(op=ast.USub() | ast.Invert()):
            yield set_field("op", ast.UAdd())
        case ast.Constant(value=bool(value)):
            yield set_field("value", not value)
        case ast.Constant(value=int(value) | float(value)):
            yield set_field("value", value + 1)
            yield set_field("value", value - 1)
        case ast.If() | ast.IfExp():
            yield set_field("test", ast.UnaryOp(ast.Not(), node.test))
        case ast.Call(args=[first, second, *rest]) if not isinstance(second, ast.Starred):
            yield set_field("args", [second, first, *rest])
        case ast.Tuple(elts=[first, second, *rest], ctx=ast.Load()):
            yield set_field("elts", [second, first, *rest])
        case ast.Name(id=name, ctx=ast.Load()) if name in REPLACED_NAMES:
            yield set_field("id", REPLACED_NAMES[name])
        case ast.Attribute(attr=name) if name in REPLACED_NAMES:
            yield set_field("attr", REPLACED_NAMES[name])
    for field in ("body", "orelse"):
        lines = getattr(node, field, ())
        for i, line in enumerate(lines if isinstance(lines, list) else ()):
            if isinstance(line, (ast.Raise, ast.Expr, ast.AugAssign)) and not is_text(line):
                yield set_field(field, [*lines[:i], ast.Pass(), *lines[i + 1 :]])
            elif isinstance(line, ast.Return) and line.value is not None:
                yield set_field(field, [*lines[:i], ast.Return(None), *lines[i + 1 :]])


def is_text(line: ast.stmt) -> bool:
    """Return whether a statement is a docstring."""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def code_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except annotations and the texts of messages."""
    for name, child in ast.iter_fields(tree):
        if name in ("annotation", "returns", "format_spec") or isinstance(tree, ast.JoinedStr):
            continue
        for node in child if isinstance(child, list) else [child]:
            if isinstance(node, ast.AST):
                yield node
                yield from code_nodes(node)


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yield a description of each change, and the source with this change."""
    number = sum(1 for node in code_nodes(ast.parse(source)) for _ in changes(node))
    unchanged = ast.unparse(ast.parse(source)).splitlines()
    for wanted in range(number):
        tree = ast.parse(source)
        node, change = [(node, change) for node in code_nodes(tree) for change in changes(node)][wanted]
        line = getattr(node, "lineno", 0)
        change()
        text = ast.unparse(ast.fix_missing_locations(tree))
        new_lines = [line for line in text.splitlines() if line not in unchanged] or ["(a line removed)"]
        yield f"line {line}: {new_lines[0].strip()}", text


def tests_fail(tests: list[str], src: Path) -> bool:
    """Run the tests in a forked process that imports the package from the copy; return whether they fail."""
    child = os.fork()
    if child == 0:
        signal.alarm(TIME_LIMIT_SECONDS)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.path.insert(0, str(src))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        os._exit(int(pytest.main([*options, *tests])))
    return os.waitpid(child, 0)[1] != 0


def main(module: str, *tests: str) -> None:
    """Run the tests on every mutant of the module, and print the undetected mutants."""
    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    source = Path(module).read_text()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree("src", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        mutated = Path(folder) / Path(module).relative_to("src")
        if tests_fail([*tests], Path(folder)):
            raise SystemExit(f"{module}: the tests fail without any change; expected them to pass")
        mutated.write_text("raise RuntimeError\n")
        if not tests_fail([*tests], Path(folder)):
            raise SystemExit(f"{module}: the tests do not import the copy; expected tests of this module")
        undetected = total = 0
        for description, text in mutants(source):
            mutated.write_text(text)
            total += 1
            if total % 50 == 0:
                print(f"({total})", flush=True)
            if not tests_fail([*tests], Path(folder)):
                undetected += 1
                print(description, flush=True)
    print(f"{total} mutants, {total - undetected} detected, {undetected} not detected")


if __name__ == "__main__":
    main(*sys.argv[1:])
