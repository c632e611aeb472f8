"""Hashes of the source files that define an object, by which a change of a program is noticed.

The files are those of the modules that define the object, and of all modules that these import from the user's own
folders. Imports are read from the syntax tree, so an import inside a function counts although it has not been executed
yet. Of what is installed, the whole package that defines the object counts, and the version of any other imported
package. The standard library is left out. Files that a program reads as data are not known here.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from dpverify.errors import LIBRARY_FOLDERS, PACKAGE_FOLDER

INSTALLED_FOLDERS = ("site-packages", "dist-packages")
# The syntax trees of a whole installed package would take seconds.
IMPORTS = re.compile(rb"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)

SourceHashes = dict[str, str]  # the SHA-256 hash of each file, by a name that does not depend on the folder


class _Source(NamedTuple):
    """The hash of a module's file, and the names of the modules that it may import."""

    spec: ModuleSpec | None
    digest: str
    imported: tuple[str, ...]


# A loaded module keeps the hash of the file that it was loaded from, because its code does not change with the file.
_loaded: WeakKeyDictionary[ModuleType, _Source] = WeakKeyDictionary()


def source_hashes(*objects: object, modules: Iterable[str] = (), installed: bool = False) -> SourceHashes:
    """Return the hash of each file of the user that defines one of the objects, or is imported by such a file.

    Parameters
    ----------
    *objects
        Functions, classes and callable objects. None is ignored.
    modules : iterable of str
        Names of further modules.
    installed : bool
        Whether installed packages count: those that define an object by the hash of all their files, and all others
        that are imported by their versions, or by their files where no distribution has their name.

    Examples
    --------
    >>> source_hashes(len, Path)
    {}
    """
    hashes: SourceHashes = {}
    names: list[str] = list(modules)
    seen_objects: set[int] = set()
    for value in objects:
        _visit(value, names, hashes, seen_objects)
    seen: set[str] = set()
    packages = {name.partition(".")[0] for name in names}  # that define an object
    while names:
        name = names.pop()
        package = name.partition(".")[0]
        if name in seen or package in sys.stdlib_module_names - {"__main__"}:
            continue
        seen.add(name)
        names.append(name.rpartition(".")[0])  # importing a module executes the packages that contain it
        file = _module_file(name)
        if file is None:
            continue
        label = _label(name, file)
        if not is_own_file(file):
            if not installed or (name != package and _module_file(package) is not None):
                continue
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                hashes[f"the version of {package}"] = importlib.metadata.version(package)
                if package not in packages:
                    continue
            label = f"the package {name}"
        source = _read_module(name, file)
        if source is not None:
            hashes[label] = source.digest
            names.extend(source.imported)
    return dict(sorted(hashes.items()))


def changed_sources(recorded: Mapping[str, object], current: Mapping[str, str], moved: bool = True) -> tuple[str, ...]:
    """Return the names of the files that differ.

    Parameters
    ----------
    recorded, current : mapping
        The hashes of the files, by name.
    moved : bool
        Whether files that only one of the two contains count too.

    Examples
    --------
    >>> changed_sources({"a.py": "1", "b.py": "2"}, {"a.py": "1", "b.py": "3", "c.py": "4"})
    ('b.py', 'c.py')
    """
    names = {*recorded, *current} if moved else {*recorded} & {*current}
    return tuple(name for name in sorted(names) if recorded.get(name) != current.get(name))


def hash_file(path: Path) -> str:
    """Return the SHA-256 hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_own_file(file: Path) -> bool:
    """Return whether a file is in a folder of the user: not in a library, and not in this package."""
    folders = (*LIBRARY_FOLDERS, PACKAGE_FOLDER)
    if any(file.is_relative_to(folder) for folder in folders):
        return False
    return not any(part in INSTALLED_FOLDERS for part in file.parts)


def _visit(value: object, names: list[str], hashes: SourceHashes, seen: set[int]) -> None:
    """Add the modules that define an object and the functions in it; code without a file is hashed at once."""
    if value is None or id(value) in seen:
        return
    seen.add(id(value))
    if type(value).__module__.startswith("dpverify.") and hasattr(value, "source_files"):
        for file in value.source_files():  # type: ignore[attr-defined]  # a mechanism that runs a program states it
            hashes[file.name] = hash_file(file)
    if isinstance(value, functools.partial):
        parts: list[object] = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, type) or hasattr(value, "__qualname__"):
        names.append(str(getattr(value, "__module__", "")))
        parts = [getattr(value, "__wrapped__", None), getattr(value, "__self__", None)]
        parts += [cell.cell_contents for cell in getattr(value, "__closure__", None) or () if _is_filled(cell)]
        _hash_code(value, hashes)
    else:
        parts = [type(value)]
        if dataclasses.is_dataclass(value):
            parts += [getattr(value, field.name) for field in dataclasses.fields(value)]
        else:
            parts += list(getattr(value, "__dict__", {}).values())
    for part in parts:
        if callable(part):
            _visit(part, names, hashes, seen)


def _is_filled(cell: object) -> bool:
    """Return whether a cell of a closure has a value."""
    try:
        cell.cell_contents  # type: ignore[attr-defined]  # noqa: B018
    except ValueError:
        return False
    return True


def _hash_code(value: object, hashes: SourceHashes) -> None:
    """Add the hash of the compiled code of a function or class whose module has no file, as in a notebook."""
    if _module_file(str(getattr(value, "__module__", ""))) is not None:
        return
    functions = vars(value).values() if isinstance(value, type) else (value,)
    codes = [code for code in (getattr(each, "__code__", None) for each in functions) if isinstance(code, CodeType)]
    if codes:
        words = [word for code in codes for word in _code_words(code)]
        digest = hashlib.sha256("\n".join(words).encode(errors="surrogatepass")).hexdigest()
        hashes[str(getattr(value, "__qualname__", ""))] = digest


def _code_words(code: CodeType) -> Iterator[str]:
    """Yield what a code object does, without its file name and its line numbers."""
    yield code.co_code.hex()
    yield " ".join(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_words(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def _module_file(name: str) -> Path | None:
    """Return the file of a module, which need not be loaded; None if it has none."""
    module = sys.modules.get(name)
    if not name:
        return None
    if module is not None:
        origin = getattr(module, "__file__", None)
    else:
        spec = _find_spec(name)
        origin = spec.origin if spec is not None and spec.has_location else None
    if not isinstance(origin, str):
        return None
    file = Path(origin).absolute()
    return file if file.is_file() else None


def _find_spec(name: str) -> ModuleSpec | None:
    """Find a module that is not loaded, without executing the packages that contain it."""
    parent = name.rpartition(".")[0]
    path: list[str] | None = None
    if parent:
        package = sys.modules.get(parent)
        spec = _find_spec(parent) if package is None else None
        locations = getattr(package, "__path__", None) if spec is None else spec.submodule_search_locations
        if locations is None:
            return None
        path = list(locations)
    with contextlib.suppress(Exception):  # a name that is no module of this system can raise any exception
        return PathFinder.find_spec(name, path)
    return None


def _read_module(name: str, file: Path) -> _Source | None:
    """Return the hash and the imports of a module; None if its file cannot be read."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    known = None if module is None else _loaded.get(module)
    if known is not None and known.spec is spec:  # importlib.reload sets a new spec
        return known
    is_own = is_own_file(file)
    files = [file] if is_own or file.stem != "__init__" else sorted(file.parent.rglob("*"))  # the whole package
    digest, imported = hashlib.sha256(), set()
    for each in files:
        if not each.is_file() or each.suffix == ".pyc":
            continue
        try:
            content = each.read_bytes()
        except OSError:
            return None
        digest.update(content if is_own else each.name.encode() + hashlib.sha256(content).digest())
        if each.suffix == ".py" and is_own:
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                package = name if file.name == "__init__.py" else name.rpartition(".")[0]
                imported.update(_imported_names(ast.parse(content), package))
        elif each.suffix == ".py":
            imported.update(found.decode() for found in IMPORTS.findall(content))
    source = _Source(spec, digest.hexdigest(), tuple(sorted(imported)))
    if module is not None:
        _loaded[module] = source
    return source


def _imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the names of all modules that a file may import, and of the packages that contain them."""
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            found = [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            text = node.args[0].value
            if function in ("import_module", "__import__") and isinstance(text, str):
                found = [text]
        for name in found:
            parts = name.split(".")
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _label(name: str, file: Path) -> str:
    """Return the name of a module's file, relative to the folder that it was imported from."""
    if name == "__main__":
        return file.name
    folder = name.replace(".", "/")
    return f"{folder}/{file.name}" if file.stem == "__init__" else f"{folder}{file.suffix}"
