"""What a command line, a study file or a manifest of claims names: objects, datasets, claims, and combinations of them.

Objects come from Python files and modules, datasets from files. A claim is a text such as `gaussian(mu=1)`, a call of a
function of `dpverify.claims` with numbers as arguments; it is parsed and never executed. A TOML file has tables of
mechanisms and pairs, which `read_entries` reads. A `Combination` of them is a job for `verify_many`.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import io
import itertools
import json
import math
import re
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np

import dpverify.claims as claims
from dpverify.claims import Claim
from dpverify.errors import InputError, describe_exception
from dpverify.mechanisms.diagnostics import CALL_ORDER
from dpverify.mechanisms.outputs import rmse
from dpverify.mechanisms.protocol import Mechanism, accepts_arguments
from dpverify.report.power import DETECTS, check_detects
from dpverify.report.statements import check_claim
from dpverify.settings import Settings
from dpverify.studies.engine import Job, planned_runs
from dpverify.util.arrays import Array
from dpverify.util.checks import is_real_number, nearest_name, shorten
from dpverify.util.formatting import one_line, too_little_memory

T = TypeVar("T")

# What Python and NumPy say about a number that should be an integer, for example "to dtype('int64')".
ENCODING = "utf-8-sig"  # other programs, such as spreadsheets, write a byte order mark
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
        advice = "name a function or object in it" if near is None else f"did you mean {near!r}?"
        raise InputError(f"{what}: {one_line(source)} has no {one_line(name)}; {advice}")
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
    """Return the dataset in a .npy (without pickle), .csv, .txt or .json file; paths are relative to `base`.

    A text file with one number per line, or with one line, gives an array of one dimension. A text file with several
    rows and columns gives an array of two dimensions.
    """
    path, text = (base or Path()) / text, one_line(text)
    if path.suffix not in FORMATS:
        raise InputError(f"data: found {text}; expected a file that ends in {', '.join(FORMATS)}")
    if not is_file(path):
        raise InputError(f"cannot read {text}: no such file")
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
    """Return advice if a mechanism failed because it needs integers, and a dataset was read from a text file.

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
    return np.loadtxt(path, delimiter="," if path.suffix == ".csv" else None, ndmin=1, encoding=ENCODING)


def _read_json(path: Path) -> Any:
    """Read a JSON file; lists of numbers become an array, anything else is passed to the mechanism as it is."""
    value = json.loads(path.read_text(encoding=ENCODING))
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


FUNCTIONS: dict[str, Callable[..., Claim]] = {
    "pure": claims.pure,
    "approximate": claims.approximate,
    "points": claims.points,
    "gaussian": claims.gaussian,
    "zcdp": claims.zcdp,
    "renyi": claims.renyi,
}


def load_claim(text: object, base: Path | None = None) -> Claim:
    """Return the claim that a text describes.

    Parameters
    ----------
    text : str
        A call of a function of `dpverify.claims`, or `path/file.py:name` of a claim, of an accountant's privacy profile
        or of a function from epsilon to delta. `()` behind the name calls it first.
    base : Path, optional
        The folder to which a path is relative.

    Raises
    ------
    InputError
        If the text is neither, or the arguments are out of their ranges.

    Examples
    --------
    >>> load_claim("gaussian(mu=0.5).group(2)")
    Gaussian(mu=1.0)
    """
    if not isinstance(text, str):
        raise InputError(f"claim: found {shorten(text)}; expected a text such as 'gaussian(mu=1)'")
    if ":" in text and "{" not in text:
        return claims.as_claim(load_object(text, base, "claim"))
    try:
        return _read_call(ast.parse(text.strip(), mode="eval").body)
    except InputError:
        raise
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise InputError(
            f"claim: found {shorten(text)}; expected one of {', '.join(FUNCTIONS)} with numbers, such as "
            "gaussian(mu=1); for profile and tradeoff, which take a function, path/file.py:name of the claim"
        ) from None


def _read_call(node: ast.expr) -> Claim:
    """Return the claim of one call, or of a call of `.group` on a claim; raise TypeError for anything else."""
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        raise TypeError
    positional = [ast.literal_eval(argument) for argument in node.args]
    named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    if isinstance(node.func, ast.Attribute) and node.func.attr == "group":
        return _read_call(node.func.value).group(*positional, **named)
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        raise TypeError
    return FUNCTIONS[node.func.id](*positional, **named)


MAX_COMBINATIONS = 10**6
MAX_TIMEOUT = 10**8  # seconds; timers of the operating system have a limit
ENTRY_NAME = re.compile(r"[A-Za-z0-9_.-]+")
MAX_NAME_LENGTH = 100  # two names are parts of the name of a report's file, which has at most 255 characters

Table = dict[str, object]  # a table of the TOML file


class PairFiles(NamedTuple):
    """The files of a pair of datasets, and the file with the true values that estimates are compared with."""

    first: str
    second: str
    truth: str | None = None


class PairData(NamedTuple):
    """A pair of datasets, and the error function of the estimates if the truth is known."""

    first: object
    second: object
    error: Callable[[Array], Array] | None


@dataclass(frozen=True, eq=False)
class Variant:
    """A pair or a mechanism of a TOML file, with one value for each of its parameters. It is made once.

    Attributes
    ----------
    name : str
        The name of its table.
    source : str or PairFiles
        `module:name` or `path/file.py:name`; or the files of a pair.
    parameters : dict
        Keyword arguments of the named function or class.
    base : pathlib.Path
        The folder to which paths are relative.
    """

    name: str
    source: str | PairFiles
    parameters: Table
    base: Path

    @property
    def files(self) -> tuple[str, ...]:
        """The files with its data."""
        return () if isinstance(self.source, str) else tuple(filter(None, self.source))

    @functools.cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism: what `use` names, called with the parameters if there are some."""
        assert isinstance(self.source, str)
        if not self.parameters:
            return load_object(self.source, self.base, f"mechanisms.{self.name}")
        return self._call("mechanisms")

    @functools.cached_property
    def pair(self) -> PairData:
        """The pair, from files or from the function that `use` names; the function may return a truth, too."""
        if isinstance(self.source, str):
            returned = self._call("pairs")
            parts = list(returned) if isinstance(returned, (tuple, list)) else []
        else:
            parts = [load_data(file, self.base) for file in self.files]
        if len(parts) not in (2, 3):
            found = f"{len(parts)} parts" if parts else "no tuple"
            raise InputError(f"pairs.{self.name}: found {found}; expected (first, second) or (first, second, truth)")
        first, second, *truth = parts
        error: Any = truth[0] if truth and callable(truth[0]) else rmse(truth[0]) if truth else None
        return PairData(first, second, error)

    def _call(self, kind: str) -> Any:
        """Return what the named function or class returns for the parameters."""
        entry, source = f"{kind}.{self.name}", str(self.source)
        function = load_object(source.removesuffix("()"), self.base, entry)
        return call_user_code(f"{entry}: calling {source}", lambda: function(**self.parameters))

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.parameters.items())])


class Combination(NamedTuple):
    """A mechanism and a pair of a TOML file with a claim: a job of `verify_many` that is made when it is run.

    Attributes
    ----------
    name : str
        Its name, different from that of all others in the file.
    mechanism, pair : Variant
        What is verified.
    claim : Claim or None
        The claim; None measures.
    delta : float
        The delta of the claim, or the delta at which epsilon is bounded.
    settings : Settings
        The settings, seed included.
    detects : float
        A claim that is not refuted is too weak unless the runs notice a violation by this factor.
    columns : dict
        What its row of the table says about it.
    """

    name: str
    mechanism: Variant
    pair: Variant
    claim: Claim | None
    delta: float
    settings: Settings
    detects: float
    columns: Table

    @property
    def runs(self) -> int:
        """The number of selection and test runs of both datasets."""
        return planned_runs(self.settings)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that `use` names: a change in them is noticed although they only make the mechanism."""
        sources = [variant.source for variant in (self.mechanism, self.pair) if isinstance(variant.source, str)]
        return tuple(Path(source.rpartition(":")[0]).name.removesuffix(".py") for source in sources)

    def make(self) -> Job:
        """Return the job."""
        first, second, error = self.pair.pair
        options = {"error": error} if self.claim is not None else {"error": error, "delta": self.delta}
        mechanism = self.mechanism.mechanism
        return Job(self.name, mechanism, first, second, self.claim, self.settings, options, self.columns, self.detects)


class Plan(NamedTuple):
    """The combinations of a TOML file in the order of the table, and the time limit of each in seconds."""

    combinations: tuple[Combination, ...]
    timeout: float | None


def result_folder(path: str | PathLike[str], folder: str | PathLike[str] | None) -> Path:
    """Return the folder for the results of a TOML file: the given one, or the path of the file without `.toml`."""
    path = Path(path)
    target = Path(folder) if folder is not None else path.with_suffix("") if path.name else path
    if target == path:
        raise InputError(f"{path} must end in .toml, or pass folder=")
    return target


class Stated(NamedTuple):
    """A claim, the delta at which epsilon is bounded, and the factor by which a violation has to be noticed."""

    claim: Claim | None
    delta: float
    detects: float


def read_claim(table: Table, settings: Settings, base: Path) -> Stated:
    """Return what a table with the keys epsilon, delta, claim and detects states, after checking it."""
    values: dict[str, Any] = {"epsilon": None, "delta": 0.0, "claim": None, "detects": DETECTS, **table}
    stated = None if values["claim"] is None else load_claim(values["claim"], base)
    claim, delta = claims.resolve_claim(values["epsilon"], values["delta"], stated)
    check_claim(settings, None, delta, claim)
    if "detects" in table:
        check_detects(values["detects"], claim)
    return Stated(claim, delta, values["detects"])


def check_timeout(seconds: object) -> float | None:
    """Return a time limit in seconds, or None for no limit; raise InputError unless it is a number above 0."""
    if seconds is None:
        return None
    if not (is_real_number(seconds) and 0 < seconds <= MAX_TIMEOUT):
        raise InputError(f"timeout: found {shorten(seconds)}; expected a number of seconds above 0")
    return float(seconds)


def read_document(path: Path, keys: tuple[str, ...], what: str, page: str) -> Table:
    """Return a TOML document; raise InputError if it has another key. `page` documents the format."""
    try:
        document = tomllib.loads(path.read_text(encoding=ENCODING))
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}; expected {what}, a TOML file") from None
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{path}: not TOML ({one_line(problem)}); expected {what}; see {page}") from None
    for name in document:
        if name not in keys:
            nearest = difflib.get_close_matches(name, keys, 1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"the keys are {', '.join(keys)}"
            raise InputError(f"{path}: unknown key {name!r}; {hint}")
    return document


def read_entries(path: Path, document: Table, kind: str) -> dict[str, list[Variant]]:
    """Return what the tables [kind.NAME] describe, mechanisms or pairs: one variant for every combination of values.

    A missing or damaged file, or a missing function, is reported now and not after hours.
    """
    tables, base = document.get(kind), path.resolve().parent
    if not isinstance(tables, dict) or not tables:
        raise InputError(f"{path}: found no [{kind}.NAME]; expected at least one")
    entries: dict[str, list[Variant]] = {}
    for name, table in tables.items():
        if not isinstance(table, dict) or not ENTRY_NAME.fullmatch(name):
            raise InputError(
                f"{path}: found {kind}.{name}; expected a table whose name has letters, digits and the characters _ . -"
            )
        if len(name) > MAX_NAME_LENGTH:
            raise InputError(
                f"{path}: found a name of {len(name)} characters, {kind}.{name[:20]}...; expected at most "
                f"{MAX_NAME_LENGTH}; choose a shorter name"
            )
        if kind == "pairs" and "use" not in table:
            entries[name] = [Variant(name, _pair_files(f"pairs.{name}", table), {}, base)]
            for file in entries[name][0].files:
                load_data(file, base)
        else:
            entries[name] = _combine_parameters(f"{kind}.{name}", name, table, base)
            load_object(str(table["use"]).removesuffix("()"), base, name)
    return entries


def _combine_parameters(entry: str, name: str, table: Table, base: Path) -> list[Variant]:
    """Return a variant for every combination of the parameters of a table; a list means several values."""
    source = table.get("use")
    if not isinstance(source, str):
        raise InputError(f'{entry}: found use {source!r}; expected use = "module:name" or "path/file.py:name"')
    lists = {key: value if isinstance(value, list) else [value] for key, value in table.items() if key != "use"}
    for key, values in lists.items():
        if not values:
            raise InputError(f"{entry}: found no value for {key}; expected at least one")
    number = math.prod(map(len, lists.values()))
    if number > MAX_COMBINATIONS:
        raise InputError(f"{entry}: found {number} combinations of parameters; expected at most {MAX_COMBINATIONS}")
    product = itertools.product(*lists.values())
    return [Variant(name, source, dict(zip(lists, values, strict=True)), base) for values in product]


def _pair_files(entry: str, table: Table) -> PairFiles:
    """Return the files of a pair."""
    complete = {"first", "second"} <= set(table) <= set(PairFiles._fields)
    files = {key: value for key, value in table.items() if isinstance(value, str)}
    if not complete or files != table:
        found = ", ".join(table) or "nothing"
        raise InputError(
            f"{entry}: found {found}; expected the files first and second, and truth if it is known; or use"
        )
    return PairFiles(**files)


def read_settings(path: Path, table: object) -> Settings:
    """Return the settings of the table [settings]."""
    if not isinstance(table, dict):
        raise InputError(f"{path}: found settings {table!r}; expected a table, [settings]")
    for name in ("epsilon", "delta", "claim", "detects", "seeds", "timeout"):
        if name in table:
            raise InputError(f"{path}: {name} must be at the top of the file, not in [settings]")
    if table.get("preset", "paper") != "paper":
        raise InputError(f'{path}: found preset {table["preset"]!r}; expected "paper", or no preset')
    changes = {name: value for name, value in table.items() if name != "preset"}
    return (Settings.paper() if "preset" in table else Settings()).change(**changes)
