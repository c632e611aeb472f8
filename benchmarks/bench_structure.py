"""Measures the structure of the code base: packages, imports, types, and the calls that cross module boundaries.

The static figures are read from the syntax trees. An import inside a function, or only for type checking, counts like
any other import. The dynamic figures are counted with a profiler while a Laplace mechanism is verified. A cross-module
call is a call of a function of this package from another file of this package. The calls of one block of test runs are
those between two successive calls of the mechanism.

Run: python benchmarks/bench_structure.py (about ten seconds).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import dpverify as dpv

PACKAGE = Path(dpv.__file__).parent
# The kinds of partitions and scores. What differs between kinds belongs into their methods.
KINDS = {"Levels", "Partition", "Tree", "Bins", "Edges", "Atoms"}
KINDS |= {"Linear", "Quadratic", "Additive", "General", "Patterned", "CellScore", "UserScore"}
KINDS |= {"Banded", "Shared", "Transformed", "Interaction"}
RUNS_PER_BLOCK, TEST_BLOCKS = 1000, 40  # of the traced verification; the number of blocks is that per dataset


class Module(NamedTuple):
    """A module of the package: its dotted name, its file and its syntax tree."""

    name: str
    path: Path
    source: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The subpackage that the module belongs to; a module of the top level is a package by itself."""
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def read_modules() -> dict[str, Module]:
    """Return all modules of the package by name."""
    modules = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("dpverify", *path.relative_to(PACKAGE).with_suffix("").parts)
        name = ".".join(parts).removesuffix(".__init__")
        source = path.read_text(encoding="utf-8")
        modules[name] = Module(name, path, source, ast.parse(source))
    return modules


def imported_modules(module: Module, modules: Mapping[str, Module]) -> set[str]:
    """Return the names of the modules of this package that a module imports anywhere in its code."""
    names = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                names.add(submodule if submodule in modules else node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name in modules and name != module.name}


def import_components(imports: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the number of the strongly connected component of each module; a cycle is a component of several."""
    names = list(imports)
    index = {name: number for number, name in enumerate(names)}
    edges = [(index[name], index[target]) for name, targets in imports.items() for target in targets]
    rows, columns = np.array(edges).T
    matrix = csr_array((np.ones(len(edges)), (rows, columns)), shape=(len(names), len(names)))
    _, labels = connected_components(matrix, directed=True, connection="strong")
    return {name: int(labels[number]) for name, number in index.items()}


def import_cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others."""
    groups: dict[int, list[str]] = {}
    for name, component in import_components(imports).items():
        groups.setdefault(component, []).append(name)
    return [sorted(group) for group in groups.values() if len(group) > 1]


def deepest_chain(imports: Mapping[str, set[str]]) -> list[str]:
    """Return the longest chain of modules of which each imports the next; a cycle counts as one module."""
    component = import_components(imports)
    longest: dict[str, list[str]] = {}

    def chain(name: str) -> list[str]:
        if name not in longest:
            others = [chain(target) for target in imports[name] if component[target] != component[name]]
            longest[name] = [name, *max(others, key=len, default=[])]
        return longest[name]

    return max(map(chain, imports), key=len)


def mutual_packages(modules: Mapping[str, Module], imports: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Return the pairs of packages that import each other."""
    edges = set()
    for name, targets in imports.items():
        edges |= {(modules[name].package, modules[target].package) for target in targets}
    return sorted((a, b) for a, b in edges if a < b and (b, a) in edges)


def count_any(modules: Mapping[str, Module]) -> int:
    """Return how often the word `Any` occurs."""
    return sum(len(re.findall(r"\bAny\b", module.source)) for module in modules.values())


def count_kind_checks(modules: Mapping[str, Module]) -> int:
    """Return the number of `isinstance` calls on kinds of partitions and scores outside the files that define them."""
    count = 0
    for module in modules.values():
        defined = {node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                checked = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                count += bool(checked & KINDS - defined)
    return count


def laplace(data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Add Laplace noise to one number."""
    return data + rng.laplace(size=(runs, 1))


Call = tuple[str, str]  # the calling file and the called file


def trace_calls(function: Callable[[], object]) -> list[list[Call]]:
    """Return the cross-module calls of a function, split at the calls of the mechanism."""
    folder = str(PACKAGE)
    segments: list[list[Call]] = [[]]

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        if frame.f_code is laplace.__code__:
            segments.append([])
            return
        called = frame.f_code.co_filename
        caller = frame.f_back.f_code.co_filename if frame.f_back is not None else ""
        if called.startswith(folder) and caller.startswith(folder) and caller != called:
            segments[-1].append((caller, called))

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return segments


def calls_of_one_block() -> tuple[int, list[str]]:
    """Return the cross-module calls of one block of test runs, and the files that it passes through.

    Some blocks also end a task or store a checkpoint. The figures are those of the block with the median number of
    calls.
    """

    def verify() -> object:
        sizes = {"select_runs": 4 * RUNS_PER_BLOCK, "test_runs": TEST_BLOCKS * RUNS_PER_BLOCK}
        return dpv.verify(laplace, 0.0, 1.0, 0.5, block=RUNS_PER_BLOCK, **sizes)

    verify()  # fills caches, and loads what is imported inside functions
    segments = trace_calls(verify)
    test_blocks = segments[-TEST_BLOCKS:-1]  # the last segment includes the report
    calls = sorted(test_blocks, key=len)[len(test_blocks) // 2]
    files = {file for call in calls for file in call}
    return len(calls), sorted(str(Path(file).relative_to(PACKAGE)) for file in files)


def calls_of_default_verification() -> int:
    """Return the cross-module calls of one verification with default settings."""

    def verify() -> object:
        return dpv.verify(laplace, 0.0, 1.0, 0.5)

    verify()
    return sum(map(len, trace_calls(verify)))


def main() -> None:
    """Print every figure as a line of a table."""
    modules = read_modules()
    imports = {name: imported_modules(module, modules) for name, module in modules.items()}
    chain, cycles = deepest_chain(imports), import_cycles(imports)
    mutual = mutual_packages(modules, imports)
    packages = Counter(
        module.package if module.path.parent != PACKAGE else "(top level)" for module in modules.values()
    )
    longest = max(modules.values(), key=lambda module: module.source.count("\n"))
    block_calls, block_files = calls_of_one_block()
    figures = {
        "modules": (len(modules), ""),
        **{f"  in {package}": (count, "") for package, count in sorted(packages.items())},
        "lines": (sum(module.source.count("\n") for module in modules.values()), ""),
        "lines of the longest module": (longest.source.count("\n"), longest.name),
        "deepest import chain, in modules": (len(chain), " > ".join(name.removeprefix("dpverify.") for name in chain)),
        "import cycles": (len(cycles), "; ".join(", ".join(cycle) for cycle in cycles)),
        "pairs of packages that import each other": (len(mutual), "; ".join(f"{a}, {b}" for a, b in mutual)),
        "occurrences of Any": (count_any(modules), ""),
        "isinstance on kinds outside their files": (count_kind_checks(modules), ""),
        "files that one block of test runs passes through": (len(block_files), ", ".join(block_files)),
        "cross-module calls of one block of test runs": (block_calls, ""),
        "cross-module calls of a default verification": (calls_of_default_verification(), ""),
    }
    for name, (value, details) in figures.items():
        print(f"{name:50}{value:8}  {details}".rstrip())


if __name__ == "__main__":
    main()
