"""Loading of what a command line or a study file names: objects from Python files and modules, data sets from files."""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dpverify.errors import InputError, describe_exception
from dpverify.mechanisms.diagnostics import CALL_ORDER
from dpverify.mechanisms.protocol import accepts_arguments
from dpverify.util.checks import nearest_name
from dpverify.util.formatting import one_line, too_little_memory

T = TypeVar("T")

# What Python and NumPy say about a number that should be an integer, for example "to dtype('int64')".
NEEDS_INTEGERS = re.compile(r"(TypeError|IndexError): .*\bu?int(egers?|\d+)\b", re.DOTALL)


def load_object(text: str, base: Path | None = None, what: str = "mechanism") -> Any:
    """Return the object that `module:name` or `path/file.py:name` names, or what it returns if `()` follows.

    Paths are relative to `base`. `what` names the object in error messages.
    """
    target = text.removesuffix("()")
    source, colon, name = target.rpartition(":")
    if not colon or not source or not name.isidentifier():
        called = re.fullmatch(r"(.+?):(\w+)\(.*\)", text, re.DOTALL)
        advice = "add () to call it first"
        if called is not None:
            advice = how_to_pass_arguments(called[1], text[called.start(2) :])
        raise InputError(
            f"{what}: found {one_line(repr(text))}; expected module:name or path/file.py:name; {one_line(advice)}"
        )
    module = _import_file(source, name, base, what) if source.endswith(".py") else _import_module(source, base, what)
    if not hasattr(module, name):
        near = nearest_name(name, (other for other in vars(module) if not other.startswith("_")))
        advice = "" if near is None else f"; the nearest is {near!r}"
        raise InputError(
            f"{what}: {one_line(source)} has no {one_line(name)}; expected the name of a function or object in it"
            f"{advice}"
        )
    loaded = getattr(module, name)
    if not text.endswith("()"):
        return loaded
    if callable(loaded) and not accepts_arguments(loaded, 0):
        advice = how_to_pass_arguments(source, f"{name}(...)")
        found = f"{one_line(name)}(), but {one_line(name)} needs arguments"
        raise InputError(f"{what}: found {found}; expected a function without; {advice}")
    return call_user_code(f"{what}: calling {one_line(name)}()", loaded)


def how_to_pass_arguments(source: str, call: str) -> str:
    """Return the advice for an object that only a call with arguments makes.

    Examples
    --------
    >>> how_to_pass_arguments("cv.py", "smoother(1.0)")
    'arguments are not possible here; write `mine = smoother(1.0)` in the file and use cv.py:mine'
    """
    return f"arguments are not possible here; write `mine = {call}` in the file and use {source}:mine"


def _import_module(name: str, base: Path | None, what: str) -> ModuleType:
    """Import a module by its name; modules in the folder `base` can be imported."""
    base = (base or Path.cwd()).resolve()
    _extend_path(base)
    module = call_user_code(f"{what}: importing {one_line(name)}", lambda: importlib.import_module(name))
    own = base.joinpath(*name.split("."))
    files = [path for path in (own.with_name(own.name + ".py"), own / "__init__.py") if is_file(path)]
    if files:
        _check_imported(module, files[0].resolve(), what, files[0].relative_to(base).as_posix())
    return module


def _import_file(source: str, name: str, base: Path | None, what: str) -> ModuleType:
    """Import a Python file as a module."""
    path, shown = (base or Path.cwd()) / source, one_line(source)
    if not is_file(path):
        raise InputError(f"{what}: no file {shown}; expected a Python file that defines {one_line(name)}")
    path = path.resolve()
    _extend_path(path.parent)
    module = call_user_code(f"{what}: importing {shown}", lambda: importlib.import_module(path.stem))
    _check_imported(module, path, what, shown)
    return module


def _check_imported(module: ModuleType, path: Path, what: str, shown: str) -> None:
    """Raise InputError if the import found another file than the expected one."""
    if Path(getattr(module, "__file__", None) or "").resolve() != path:
        name = module.__name__
        raise InputError(f"{what}: found another module named {name}; expected {shown}; rename the file")


def _extend_path(folder: Path) -> None:
    """Import from this folder, too. Worker processes get the same path, so that they import the same file.

    The folder comes last. Otherwise a file beside the mechanism, for example `random.py`, would replace a module of the
    standard library in the worker processes.
    """
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def call_user_code(action: str, function: Callable[[], T]) -> T:
    """Call a function of the user; whatever it raises, also SystemExit, becomes an InputError of one line."""
    try:
        return function()
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        raise InputError(f"{action} failed ({describe_exception(problem, one_line)})") from problem


def is_file(path: Path) -> bool:
    """Return whether the file exists; an impossible file name gives False."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def load_data(text: str, base: Path | None = None) -> Any:
    """Return the data set in a .npy (without pickle), .csv, .txt or .json file; paths are relative to `base`.

    A text file with one number per line, or with one line, gives an array of one dimension. A text file with several
    rows and columns gives an array of two dimensions.
    """
    path, text = (base or Path()) / text, one_line(text)
    if path.suffix not in FORMATS:
        raise InputError(f"data: found {text}; expected a file that ends in {', '.join(FORMATS)}")
    if not is_file(path):
        raise InputError(f"data: {text}: no such file; expected a data set")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy only warns if a file is empty
            return FORMATS[path.suffix].read(path)
    except OSError as problem:
        raise InputError(f"data: {text}: {problem.strerror or problem}; expected a readable file") from None
    except MemoryError as problem:
        raise InputError(too_little_memory(f"data: {text}", problem)) from None
    except Exception as problem:  # a damaged file can raise any exception
        cause = _name_lines(str(problem).split("; use ")[0], path).rstrip(".") or type(problem).__name__
        raise InputError(f"data: {text}: {one_line(cause)}; expected {FORMATS[path.suffix].expected}") from None


def integer_hint(problem: object, files: Iterable[object]) -> str:
    """Return advice if a mechanism failed because it needs integers, and a data set was read from a text file.

    Examples
    --------
    >>> integer_hint("IndexError: arrays used as indices must be of integer (or boolean) type", ["a.csv"])
    '; text files are read as floating-point numbers; .npy files keep integers'
    >>> integer_hint("IndexError: arrays used as indices must be of integer (or boolean) type", ["a.npy"])
    ''
    """
    if CALL_ORDER in str(problem):  # the number that should be an integer is another argument
        return ""
    if not NEEDS_INTEGERS.search(str(problem)) or not any(str(file).endswith((".csv", ".txt")) for file in files):
        return ""
    return "; text files are read as floating-point numbers; .npy files keep integers"


def _read_npy(path: Path) -> np.ndarray:
    """Read a NumPy file; objects, which need pickle, are refused."""
    return np.lib.format.read_array(io.BytesIO(path.read_bytes()), allow_pickle=False)


def _read_text(path: Path) -> np.ndarray:
    """Read a text file of numbers; columns are separated by commas in a .csv file, by spaces otherwise."""
    return np.loadtxt(path, delimiter="," if path.suffix == ".csv" else None, ndmin=1)


def _read_json(path: Path) -> Any:
    """Read a JSON file; lists of numbers become an array, anything else is passed to the mechanism as it is."""
    value = json.loads(path.read_text(encoding="utf-8"))
    try:
        array = np.asarray(value)
    except ValueError:
        return value
    return array if array.dtype.kind in "fiub" else value


class FileFormat(NamedTuple):
    """How a kind of data file is read, and what is expected in it."""

    read: Callable[[Path], Any]
    expected: str


FORMATS = {
    ".npy": FileFormat(_read_npy, "a NumPy array of numbers"),
    ".csv": FileFormat(_read_text, "numbers only, commas between them, rows of equal length, no header line"),
    ".txt": FileFormat(_read_text, "numbers only, spaces between them, rows of equal length, no header line"),
    ".json": FileFormat(_read_json, "a JSON document"),
}


def _name_lines(message: str, path: Path) -> str:
    """Replace the row number in a message of NumPy by the line number in the file.

    NumPy counts rows of numbers, from 0 if it also names the column, else from 1.
    """
    match = re.search(r"(?<= at )row (\d+)(, column)?", message)
    if match is None:
        return message
    lines = path.read_text(errors="replace").splitlines()
    data_lines = [number for number, line in enumerate(lines, 1) if line.partition("#")[0].strip()]
    row = int(match[1]) if match[2] else int(match[1]) - 1
    if row >= len(data_lines):
        return message
    return message.replace(match[0], f"line {data_lines[row]}{match[2] or ''}")
