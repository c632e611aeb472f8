"""What a command line or a study names: objects in Python files and modules, data sets in files."""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpverify.errors import InputError, raised_at
from dpverify.util.formatting import one_line


def load_object(text: str, base: Path | None = None, what: str = "mechanism") -> Any:
    """`module:name` or `path/file.py:name`, with `()` behind it to call it first; paths as seen from `base`."""
    target, call = (text[:-2], True) if text.endswith("()") else (text, False)
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name.isidentifier():
        found = one_line(repr(text))
        raise InputError(f"{what}: found {found}; expected module:name or path/file.py:name, with () to call it first")
    base, shown, short = base or Path.cwd(), one_line(place), one_line(name)
    if place.endswith(".py"):
        if not is_file(base / place):
            raise InputError(f"{what}: no file {shown}; expected a Python file that defines {short}")
        path = (base / place).resolve()
        folder, module = str(path.parent), path.stem
    else:
        path, folder, module = None, str(base), place
    if folder not in sys.path:
        sys.path.insert(0, folder)  # spawned workers get sys.path too, so they import the same file
    found = call_user_code(f"{what}: importing {shown}", lambda: importlib.import_module(module))
    if path is not None and Path(getattr(found, "__file__", None) or "").resolve() != path:
        raise InputError(f"{what}: {shown} hides behind another module called {module}; rename the file")
    if not hasattr(found, name):
        raise InputError(f"{what}: {shown} has no {short}; expected one of its functions or objects")
    known = getattr(found, name)
    return call_user_code(f"{what}: calling {short}()", known) if call else known


def call_user_code(doing: str, function: Callable[[], Any]) -> Any:
    """Code that is not ours may raise anything, or even exit: one line, and never exit 1."""
    try:
        return function()
    except (Exception, SystemExit) as problem:
        what = f"{type(problem).__name__}: {one_line(problem)}{raised_at(problem)}"
        raise InputError(f"{doing} failed ({what})") from problem


def is_file(path: Path) -> bool:
    """Whether there is one; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def load_data(text: str, base: Path | None = None) -> Any:
    """.npy (never a pickle), .csv, .txt or .json; paths as seen from `base`."""
    path, text = (base or Path()) / text, one_line(text)
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": lambda p: np.lib.format.read_array(io.BytesIO(p.read_bytes()), allow_pickle=False),
        ".csv": lambda p: np.loadtxt(p, delimiter=",", ndmin=1),
        ".txt": lambda p: np.loadtxt(p, ndmin=1),
        ".json": lambda p: _from_json(json.loads(p.read_text(encoding="utf-8"))),
    }
    if path.suffix not in readers:
        raise InputError(f"data: found {text}; expected a file that ends in {', '.join(readers)}")
    if not is_file(path):
        raise InputError(f"data: {text}: no such file; expected a data set")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an empty file is only a warning to NumPy
            return readers[path.suffix](path)
    except OSError as problem:
        raise InputError(f"data: {text}: {problem.strerror or problem}; expected a readable file") from None
    except Exception as problem:  # a damaged file can raise anything
        found = one_line(_in_lines(str(problem).split(";")[0], path).rstrip(".") or type(problem).__name__)
        raise InputError(f"data: {text}: {found}; expected numbers only, rows of one length, no header line") from None


def _in_lines(message: str, path: Path) -> str:
    """NumPy counts rows of numbers, from 0 where it names the column too, else from 1; people count lines."""
    found = re.search(r"(?<= at )row (\d+)(, column)?", message)
    if found is None:
        return message
    lines = path.read_text(errors="replace").splitlines()
    numbers = [number for number, line in enumerate(lines, 1) if line.partition("#")[0].strip()]
    row = int(found[1]) - (found[2] is None)
    return message.replace(found[0], f"line {numbers[row]}{found[2] or ''}") if row < len(numbers) else message


def _from_json(value: Any) -> Any:
    """A list of numbers becomes an array; anything else reaches the mechanism as it is."""
    try:
        array = np.asarray(value)
    except ValueError:
        return value
    return array if array.dtype.kind in "fiub" else value
