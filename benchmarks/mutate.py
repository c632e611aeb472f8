"""Would anyone notice? One small change at a time to a module, and its tests against each of them.

    python benchmarks/mutate.py src/dpverify/stats/paper_test.py tests/stats/test_paper_test.py

Changed is a copy, never the working tree. What no test notices is printed: a test is missing, or the change changes
nothing.
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

import hypothesis  # noqa: F401 -- this and SciPy are loaded once, for all changes
import pytest
import scipy.stats  # noqa: F401

ROOT = Path(__file__).parent.parent
HUNG = 120  # seconds, where all tests take a few
OPERATORS: dict[type, list[type]] = {
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
TWINS = (
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
TWIN = {a: b for pair in TWINS for a, b in (pair, pair[::-1])}


def changes(node: ast.AST) -> Iterator[Callable[[], None]]:
    """Every small change to this one node, each made where it stands."""

    def put(name: str, value: object) -> Callable[[], None]:
        return lambda: setattr(node, name, value)

    match node:
        case ast.Compare(ops=[*operators]):
            for i, old in enumerate(operators):
                for new in OPERATORS.get(type(old), ()):
                    yield put("ops", [*operators[:i], new(), *operators[i + 1 :]])
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign():
            for new in OPERATORS.get(type(node.op), ()):
                yield put("op", new())
        case ast.UnaryOp(op=ast.USub() | ast.Invert()):
            yield put("op", ast.UAdd())
        case ast.Constant(value=bool(value)):
            yield put("value", not value)
        case ast.Constant(value=int(value) | float(value)):
            yield put("value", value + 1)
            yield put("value", value - 1)
        case ast.If() | ast.IfExp():
            yield put("test", ast.UnaryOp(ast.Not(), node.test))
        case ast.Call(args=[first, second, *rest]) if not isinstance(second, ast.Starred):
            yield put("args", [second, first, *rest])
        case ast.Tuple(elts=[first, second, *rest], ctx=ast.Load()):
            yield put("elts", [second, first, *rest])
        case ast.Name(id=name, ctx=ast.Load()) if name in TWIN:
            yield put("id", TWIN[name])
        case ast.Attribute(attr=name) if name in TWIN:
            yield put("attr", TWIN[name])
    for field in ("body", "orelse"):
        lines = getattr(node, field, ())
        for i, line in enumerate(lines if isinstance(lines, list) else ()):
            if isinstance(line, (ast.Raise, ast.Expr, ast.AugAssign)) and not is_text(line):
                yield put(field, [*lines[:i], ast.Pass(), *lines[i + 1 :]])
            elif isinstance(line, ast.Return) and line.value is not None:
                yield put(field, [*lines[:i], ast.Return(None), *lines[i + 1 :]])


def is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def code_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that never run: annotations, and the text of messages."""
    for name, child in ast.iter_fields(tree):
        if name in ("annotation", "returns", "format_spec") or isinstance(tree, ast.JoinedStr):
            continue
        for one in child if isinstance(child, list) else [child]:
            if isinstance(one, ast.AST):
                yield one
                yield from code_nodes(one)


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """What was changed, and the source with this change."""
    number = sum(1 for node in code_nodes(ast.parse(source)) for _ in changes(node))
    plain = ast.unparse(ast.parse(source)).splitlines()
    for wanted in range(number):
        tree = ast.parse(source)
        node, change = [(node, change) for node in code_nodes(tree) for change in changes(node)][wanted]
        line = getattr(node, "lineno", 0)
        change()
        text = ast.unparse(ast.fix_missing_locations(tree))
        new = [line for line in text.splitlines() if line not in plain] or ["(a line less)"]
        yield f"line {line}: {new[0].strip()}", text


def notices(tests: list[str], src: Path) -> bool:
    """In a process that has everything loaded but the module's own package, which it finds in the copy."""
    child = os.fork()
    if child == 0:
        signal.alarm(HUNG)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.path.insert(0, str(src))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        os._exit(int(pytest.main([*options, *tests])))
    return os.waitpid(child, 0)[1] != 0


def main(module: str, *tests: str) -> None:
    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    source = Path(module).read_text()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree("src", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        place = Path(folder) / Path(module).relative_to("src")
        if notices([*tests], Path(folder)):
            raise SystemExit("the tests fail without any change")
        place.write_text("raise RuntimeError\n")
        if not notices([*tests], Path(folder)):
            raise SystemExit("the tests do not import the copy")
        survivors = total = 0
        for what, text in mutants(source):
            place.write_text(text)
            total += 1
            if total % 50 == 0:
                print(f"({total})", flush=True)
            if not notices([*tests], Path(folder)):
                survivors += 1
                print(what, flush=True)
    print(f"{total} changes, {total - survivors} noticed, {survivors} not")


if __name__ == "__main__":
    main(*sys.argv[1:])
