"""Prints code lines, files and numeric constants per package, beside the budgets of docs/architecture.md: `make lines`.

A code line is a line that is not blank, not a comment and not part of a docstring. A numeric constant is a name in
capitals that a module assigns a number to.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = "src/dpverify"
# The largest number of code lines of each package; None marks a package that is to be dissolved into others.
BUDGETS: dict[str, int | None] = {
    ".": 1900,
    "util": 900,
    "mechanisms": 800,
    "stats": 1300,
    "events": 1700,
    "sampling": 1300,
    "selection": 1150,
    "report": 950,
    "render": 1150,
    "studies": 1700,
    "ci": 750,
    "adapters": 400,
    "estimation": 2000,
    "cli": 700,
}
OUTSIDE = {PACKAGE: 17_000, "reproduction": 2000, "gallery": 1500, "tests": 15_000}
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Size(NamedTuple):
    """Files, code lines and numeric constants."""

    files: int = 0
    code: int = 0
    constants: int = 0

    def __add__(self, other: Size) -> Size:  # type: ignore[override]
        return Size(*(a + b for a, b in zip(self, other, strict=True)))


def measure(text: str) -> Size:
    """Return the size of one module."""
    tree = ast.parse(text)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return Size(1, len(lines), sum(_is_number(node) for node in tree.body))


def _is_number(node: ast.stmt) -> bool:
    """Return whether a statement assigns a number, or an expression of numbers, to names in capitals."""
    if not isinstance(node, ast.Assign) or not all(isinstance(x, ast.Name) and x.id.isupper() for x in node.targets):
        return False
    if any(isinstance(part, (ast.Name, ast.Attribute, ast.Call)) for part in ast.walk(node.value)):
        return False
    value = eval(compile(ast.Expression(node.value), "", "eval"), {"__builtins__": {}})
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def measure_folder(folder: Path, deep: bool = True) -> Size:
    """Return the size of all modules in a folder, with its subfolders unless `deep` is False."""
    total = Size()
    for path in sorted(folder.rglob("*.py") if deep else folder.glob("*.py")):
        total += measure(path.read_text(encoding="utf-8"))
    return total


def table(root: Path = ROOT) -> str:
    """Return the sizes of all packages and their budgets as text."""
    package = root / PACKAGE
    rows = [(name, measure_folder(package / name, name != "."), budget) for name, budget in BUDGETS.items()]
    others = {path.name for path in package.iterdir() if path.is_dir() and any(path.rglob("*.py"))} - {*BUDGETS}
    rows += [(name, measure_folder(package / name), None) for name in sorted(others)]
    rows += [(name, measure_folder(root / name), budget) for name, budget in OUTSIDE.items()]
    lines = [f"{'':14}{'files':>7}{'code lines':>12}{'budget':>8}{'constants':>11}"]
    for name, size, budget in rows:
        lines.append(f"{name:14}{size.files:7}{size.code:12}{budget if budget else '-':>8}{size.constants:11}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
