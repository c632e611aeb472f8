"""Outputs of any kind as numbers: dictionaries, texts, sets, lists of any length, tables, nested (docs/outputs.md).

An `Encoding` is learned from a few runs of both datasets, before any run that selects or tests an event, and is plain
data. It maps every output to the same number of columns, also outputs that it has never seen. A column is a number, a
length, a count, or a code that stands for a phrase such as "is absent" or "is 'red'". What is absent is a value of its
own and never NaN. Any fixed map of the outputs keeps the statements of a report valid; a good one keeps what tells the
datasets apart.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.mechanisms.outputs import EXACT_INTEGER
from dpverify.mechanisms.protocol import has_fixed_block, inherited_attribute, mechanism_name
from dpverify.util.formatting import one_line

# The size of an encoding is bounded whatever the outputs are. The limits exceed what one verification can tell apart:
# with 50 000 selection runs, a value that is rarer than one in 64 values or items counts as "another value".
MAX_COLUMNS = 1000  # the columns that differ most between the datasets are kept
MAX_VALUES = 64  # texts with a code of their own, at one place
MAX_ITEMS = 200  # keys of a dictionary, and items of a set or a list of texts
MAX_ELEMENTS = 64  # elements of a list, and rows of a table
MAX_ROWS = 10_000  # of a table with columns of texts, which are read one by one; all rows are counted
MAX_BYTES_WITH_BITS = 16  # longer byte strings have columns for bytes only
MAX_DEPTH = 8  # deeper outputs are taken as text
MAX_CHUNK_BYTES = 64 << 20  # of the outputs that exist at the same time

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "absent"})()
IS_ABSENT, IS_OTHER = "is absent", "is another value"
ROW_KEY = "number of the row"  # of a row of a table that is found by its texts


class Column(NamedTuple):
    """One number of an encoded output.

    Attributes
    ----------
    name : str
        What it is, for example `total['north']`.
    phrases : tuple of str
        What the codes 0, 1, ... stand for, such as "is absent"; empty for a number.
    absent : float or None
        The number that stands for an absent one.
    """

    name: str
    phrases: tuple[str, ...] = ()
    absent: float | None = None


class Place(NamedTuple):
    """What outputs have at one place, for example under one key of a dictionary.

    Attributes
    ----------
    name : str
        The place, for example `total['north']`.
    phrases : tuple of str
        The values that have a code of their own, as phrases; empty if all values are of one kind that needs none.
    number : float or None
        The number that stands for "no number"; None if there are no numbers here.
    high : bool
        Whether integers need a second column, because double precision does not hold them.
    length : str
        The name of the column with the length of lists, sets and texts, or the number of rows; "" without it.
    elements : tuple of Place
        The elements of a list, the rows of a table, or the bytes of a byte string.
    bits : bool
        Whether the bits of the bytes are columns.
    items : tuple of str
        Items of sets and of lists of texts, and words of long texts; their numbers are columns, and that of all others.
    keys : tuple of str
        The keys of dictionaries; the number of other keys is a column.
    values : tuple of Place
        The value of each key.
    """

    name: str
    phrases: tuple[str, ...] = ()
    number: float | None = None
    high: bool = False
    length: str = ""
    elements: tuple[Place, ...] = ()
    bits: bool = False
    items: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    values: tuple[Place, ...] = ()

    def columns(self) -> Iterator[Column]:
        """Yield the columns, in the order of `encode`."""
        shown = self.name or "output"
        if self.phrases:
            present = [phrase for phrase in self.phrases if phrase != IS_ABSENT]
            is_presence = len(present) == 1 and present[0].startswith("is a ")  # of a list, a dictionary, ...
            phrases = ("is present" if is_presence and one in present else one for one in self.phrases)
            yield Column(shown, (*phrases, IS_OTHER))
        if self.number is not None:
            yield Column(shown, (), self.number)
        if self.high:
            yield Column(f"lower digits of {shown}")
        if self.length:
            yield Column(self.length)
        for element in self.elements:
            yield from element.columns()
            if self.bits:
                yield from (Column(f"bit {bit} of {element.name}") for bit in range(8))
        if self.items:
            yield from (Column(f"number of {item} in {shown}") for item in self.items)
            yield Column(f"number of other items in {shown}")
        for value in self.values:
            yield from value.columns()
        if self.keys:
            yield Column(f"number of other keys in {shown}")

    def encode(self, values: Sequence[Any]) -> Iterator[np.ndarray]:
        """Yield the columns of many values, some of which may be absent."""
        kinds = list(map(kind_of, values))
        if self.phrases:
            codes = {phrase: code for code, phrase in enumerate(self.phrases)}
            phrases = map(phrase_of, values, kinds)
            yield _array(codes.get(phrase, len(codes)) for phrase in phrases)
        if self.number is not None:
            found = [value if kind == "number" else self.number for value, kind in zip(values, kinds, strict=True)]
            yield _array(map(_to_float, found)) if self.high else np.array(found, float)
            if self.high:
                yield _array(value % (1 << 32) if isinstance(value, numbers.Integral) else -1 for value in found)
        lists: Sequence[Any] = ()
        if self.length or self.elements or self.items:
            lists = list(map(parts_of, values, kinds))
        if self.length:
            yield _array(map(_length, values, kinds))
        for number, element in enumerate(self.elements):
            column = [one[number] if one is not None and number < len(one) else ABSENT for one in lists]
            yield from element.encode(column)
            if self.bits:
                for bit in range(8):
                    yield _array(-1 if value is ABSENT else value >> bit & 1 for value in column)
        if self.items:
            counted = list(map(Counter, map(items_of, values, kinds, lists)))
            known = [_array(one.get(item, 0) for one in counted) for item in self.items]
            yield from known
            yield _array(one.total() for one in counted) - np.sum(known, axis=0)
        if self.keys:
            entries = list(map(entries_of, values, kinds))
            present = np.zeros(len(values))
            for key, place in zip(self.keys, self.values, strict=True):
                column = [one.get(key, ABSENT) for one in entries]
                present += _array(value is not ABSENT for value in column)
                yield from place.encode(column)
            yield _array(map(len, entries)) - present


def kind_of(value: Any) -> str:
    """Return the kind of a value: "number", "text", "bytes", "list", "set", "dictionary", "table" or "other"."""
    known = KINDS.get(type(value))
    if known is not None:
        return known if known != "number" or value == value else "NaN"
    if isinstance(value, enum.Enum) or value is ABSENT:
        return "other"
    module = type(value).__module__.partition(".")[0]
    if module in ("pandas", "polars") and hasattr(value, "columns"):
        return "table"
    if module in ("pandas", "polars") and hasattr(value, "to_list"):
        has_keys = hasattr(value, "index") and not callable(value.index) and _is_text(value.index)
        return "dictionary" if has_keys else "list"
    if isinstance(value, (bool, np.bool_)):
        return "other"
    if isinstance(value, numbers.Real):
        return "number" if value == value else "NaN"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Mapping) or hasattr(value, "_fields") or _is_record(value):
        return "dictionary"
    if isinstance(value, (set, frozenset)):
        return "set"
    if isinstance(value, (bytes, bytearray)):
        return "bytes"
    if isinstance(value, (list, tuple)) or (hasattr(value, "__array__") and np.ndim(value) > 0):
        return "list"
    if hasattr(value, "__array__") and np.asarray(value).dtype.kind in "biuf":
        return "number"
    if value is None or hasattr(value, "isoformat") or isinstance(value, np.generic) or module == "pandas":
        return "other"
    what = "a function" if callable(value) else f"an object of type {type(value).__name__}"
    raise InputError(
        f"found {what} in an output; expected numbers, texts, bytes, None, lists, sets, dictionaries and tables; "
        "convert it before returning"
    )


KINDS: dict[type, str] = {
    **dict.fromkeys((int, float, np.float64, np.int64), "number"),
    **{str: "text", bytes: "bytes", list: "list", tuple: "list", set: "set", frozenset: "set", dict: "dictionary"},
    **{bool: "other", type(None): "other", np.bool_: "other"},
}


def _is_record(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _is_text(column: Any) -> bool:
    """Return whether a column of a table, or an index, holds texts or categories."""
    return getattr(column.dtype, "kind", "O") not in "biufcmM"


def phrase_of(value: Any, kind: str) -> str:
    """Return a value as a phrase: what it is, for kinds that have parts or are numbers."""
    if kind == "other":
        if value is ABSENT:
            return IS_ABSENT
        return f"is {value.name if isinstance(value, enum.Enum) else value}"
    if kind in ("text", "bytes"):
        return f"is {value!r}"
    return "is NaN" if kind == "NaN" else f"is a {kind}"


def parts_of(value: Any, kind: str) -> Sequence[Any] | None:
    """Return the elements of a list, the rows of a table, the sorted numbers of a set, or single bytes."""
    if kind == "list":
        return (
            value if isinstance(value, (list, tuple)) else value.to_list() if hasattr(value, "to_list") else list(value)
        )
    if kind == "bytes":
        return value
    if kind == "set":
        return sorted((one for one in value if kind_of(one) == "number"), key=float)
    if kind == "table" and not _text_columns(value):
        return _records(value.head(MAX_ELEMENTS))
    return None


def _records(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a table of polars or pandas."""
    return table.to_dicts() if hasattr(table, "to_dicts") else table.to_dict("records")


def items_of(value: Any, kind: str, parts: Sequence[Any] | None) -> Iterable[str]:
    """Return the items that are counted: those of sets and lists as text, and the words of a text."""
    if kind == "text":
        return map(repr, value.split())
    if kind == "set":
        return (repr(one) for one in value)
    if kind == "list" and parts is not None:
        return (repr(one) for one in parts if isinstance(one, str))
    return ()


def entries_of(value: Any, kind: str) -> Mapping[str, Any]:
    """Return the keys, as text, and the values of a dictionary, a record, or a table with columns of texts."""
    if kind == "table":
        return _rows_by_text(value)
    if kind != "dictionary":
        return {}
    if hasattr(value, "_fields"):
        value = value._asdict()
    elif _is_record(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif not isinstance(value, Mapping):  # a series of pandas
        value = dict(zip(value.index.tolist(), value.to_list(), strict=True))
    if all(type(key) is str for key in value):
        return value
    return {key if isinstance(key, str) else f"key {key!r}": one for key, one in value.items()}


def _text_columns(table: Any) -> list[Any]:
    """Return the names of the columns of texts of a table."""
    return [name for name in table.columns if _is_polars_text(table[name])]


def _is_polars_text(column: Any) -> bool:
    if hasattr(column.dtype, "is_numeric"):  # polars
        return not (column.dtype.is_numeric() or column.dtype.is_temporal() or column.dtype == bool)
    return _is_text(column)


def _rows_by_text(table: Any) -> dict[str, Any]:
    """Return the rows of a table by their texts, with the number of the row; rows with equal texts get a number."""
    keys, rows = _text_columns(table), {}
    seen: Counter[str] = Counter()
    for number, record in enumerate(_records(table.head(MAX_ROWS)) if keys else []):
        text = ", ".join(str(record.pop(key)) for key in keys)
        seen[text] += 1
        rows[text if seen[text] == 1 else f"{text} ({seen[text]})"] = {**record, ROW_KEY: number}
    return rows


def _array(values: Iterable[Any]) -> np.ndarray:
    return np.fromiter(values, float)


def _to_float(value: Any) -> float:
    """Return the digits of an integer above the lowest 32 bits, and every other number as it is."""
    whole = value // (1 << 32) if isinstance(value, numbers.Integral) else value
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def _length(value: Any, kind: str) -> int:
    return len(value) if kind in ("text", "bytes", "list", "set", "table") else -1


def learn_place(name: str, values: Sequence[Any], depth: int = 0) -> Place:
    """Return what outputs have at one place, from examples, some of which may be absent."""
    kinds = list(map(kind_of, values))
    by_kind: dict[str, list[Any]] = {}
    for value, kind in zip(values, kinds, strict=True):
        by_kind.setdefault(kind, []).append(value)
    numbers_here, texts = by_kind.get("number", []), by_kind.get("text", []) + by_kind.get("bytes", [])
    distinct = Counter(map(phrase_of, values, kinds))
    has_many_texts = len(set(texts)) > MAX_VALUES or depth > MAX_DEPTH
    # A number has a value that stands for an absent one. Other kinds, and several of them, need a column of their own.
    is_uniform = len(by_kind) == 1 and not {"text", "bytes", "other"} & set(by_kind)
    is_uniform |= set(by_kind) == {"number", "other"} and all(one is ABSENT for one in by_kind["other"])
    lists = list(map(parts_of, values, kinds))
    place = Place(name)
    if not is_uniform:
        place = place._replace(phrases=tuple(sorted(phrase for phrase, _ in _most_common(distinct, MAX_VALUES))))
    if numbers_here:
        high = any(isinstance(one, numbers.Integral) and abs(int(one)) > EXACT_INTEGER for one in numbers_here)
        finite = [one for one in map(_to_float if high else float, numbers_here) if math.isfinite(one)] or [0.0]
        # The number that stands for "no number" lies outside of the range, so that it is a value of its own.
        place = place._replace(number=float(math.floor(min(finite) - (max(finite) - min(finite)) - 1)), high=high)
    if "table" in by_kind:
        place = place._replace(length=f"number of rows{f' of {name}' if name else ''}")
    elif has_many_texts or any(kind in by_kind and not _have_one_shape(by_kind[kind]) for kind in ("list", "set")):
        place = place._replace(length=f"length of {name or 'output'}")
    if depth > MAX_DEPTH:
        return place
    if any(one is not None for one in lists) and (has_many_texts or "bytes" not in by_kind):
        place = _learn_elements(place, lists, depth, is_bytes="bytes" in by_kind)
    counted = Counter[str]()
    for value, kind, parts in zip(values, kinds, lists, strict=True):
        if kind != "text" or has_many_texts:
            counted.update(items_of(value, kind, parts))
    if counted:
        place = place._replace(items=tuple(sorted(item for item, _ in _most_common(counted, MAX_ITEMS))))
    entries = list(map(entries_of, values, kinds))
    keys = Counter(key for one in entries for key in one)
    if keys:
        known = sorted(key for key, _ in _most_common(keys, MAX_ITEMS))
        parts = tuple(
            learn_place(_key_name(name, key), [one.get(key, ABSENT) for one in entries], depth + 1) for key in known
        )
        place = place._replace(keys=tuple(known), values=parts)
    return place


def _have_one_shape(values: Sequence[Any]) -> bool:
    """Return whether all values are arrays of one shape; the length of a list may change although it has not yet."""
    return all(isinstance(value, np.ndarray) for value in values) and len({value.shape for value in values}) == 1


def _most_common(counted: Counter[str], number: int) -> list[tuple[str, int]]:
    return sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:number]


def _key_name(name: str, key: str) -> str:
    """Return the name of an entry of a dictionary."""
    if key == ROW_KEY:
        return f"number of the row {name}"
    shown = key.removeprefix("key ") if key.startswith("key ") else repr(key)
    return f"{name}[{one_line(shown, 40)}]" if name else f"[{one_line(shown, 40)}]"


def _learn_elements(place: Place, lists: Sequence[Sequence[Any] | None], depth: int, is_bytes: bool) -> Place:
    """Return the place with its elements."""
    longest = min(max((len(one) for one in lists if one is not None), default=0), MAX_ELEMENTS)
    prefix = "byte {} of " + (place.name or "output") if is_bytes else (place.name or "x") + "[{}]"
    elements = []
    for number in range(longest):
        column = [one[number] if one is not None and number < len(one) else ABSENT for one in lists]
        elements.append(learn_place(prefix.format(number), column, depth + 1))
    return place._replace(elements=tuple(elements), bits=is_bytes and longest <= MAX_BYTES_WITH_BITS)


class Encoding(NamedTuple):
    """A fixed map from outputs of any kind to numbers.

    Attributes
    ----------
    place : Place
        What outputs consist of.
    kept : ndarray
        The columns that are used; all of them unless there are more than 1000.
    chunk : int
        The number of runs per call: a block is drawn in several calls if its outputs are large.
    """

    place: Place
    kept: np.ndarray
    chunk: int = 1 << 62

    @property
    def columns(self) -> list[Column]:
        """The columns that are used."""
        every = list(self.place.columns())
        return [every[number] for number in self.kept]

    def encode(self, outputs: Sequence[Any]) -> np.ndarray:
        """Return outputs as an array of shape (runs, columns, 1): one step per column, so that no columns are mixed."""
        every = list(self.place.encode(outputs))
        return np.stack([every[number] for number in self.kept], axis=1)[:, :, None]


def learn_encoding(first: Sequence[Any], second: Sequence[Any]) -> Encoding:
    """Learn an encoding from outputs of both datasets.

    Examples
    --------
    >>> outputs = [{"a": 1.5, "b": "red"}, {"a": 2.5}]
    >>> encoding = learn_encoding(outputs, outputs)
    >>> [column.name for column in encoding.columns]
    ["['a']", "['b']", 'number of other keys in output']
    >>> encoding.encode([{"a": 3.0, "c": None}])[0, :, 0].tolist()
    [3.0, 1.0, 1.0]
    """
    examples = [*first, *second]
    if all(one is None for one in examples):
        raise InputError(
            "found None in every run; expected outputs; a function without a return statement returns None"
        )
    place = learn_place("", examples)
    sides = [np.stack(list(place.encode(one)), axis=1) for one in (first, second)]
    number = sides[0].shape[1]
    if number <= MAX_COLUMNS:
        return Encoding(place, np.arange(number), chunk_size(examples))
    distances = [_largest_difference(sides[0][:, column], sides[1][:, column]) for column in range(number)]
    return Encoding(place, np.sort(np.argsort(distances, kind="stable")[-MAX_COLUMNS:]), chunk_size(examples))


def _largest_difference(first: np.ndarray, second: np.ndarray) -> float:
    """Return the largest difference between two empirical distribution functions."""
    points = np.unique(np.r_[first, second])
    shares = [np.searchsorted(np.sort(one), points, side="right") / len(one) for one in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


def as_outputs(output: Any, runs: int) -> Sequence[Any]:
    """Return what a mechanism returned for several runs as a sequence of outputs."""
    if isinstance(output, (str, bytes, Mapping, set, frozenset)) or not hasattr(output, "__len__"):
        raise InputError(
            f"found {type(output).__name__}; expected an array, or a list of {runs} outputs, one for each run; a "
            "function that returns one output needs per_run"
        )
    module = type(output).__module__.partition(".")[0]
    rows: Sequence[Any] = output
    if module in ("pandas", "polars") and hasattr(output, "columns"):  # one row per run
        rows = _records(output)
    elif isinstance(output, np.ndarray):
        rows = output.tolist() if output.dtype.kind != "O" or output.ndim == 1 else list(output)
    if len(rows) != runs:
        raise InputError(
            f"found {len(rows)} outputs; expected the {runs} that were requested; return one output per run, or use "
            "per_run for a function that returns one output"
        )
    return rows


@dataclass(frozen=True)
class Encoded:
    """A mechanism whose outputs are encoded.

    Attributes
    ----------
    mechanism : Mechanism
        The mechanism, whose outputs are of any kind.
    encoding : Encoding
        The encoding.
    """

    mechanism: Callable[..., Any]
    encoding: Encoding

    @property
    def name(self) -> str:
        return mechanism_name(self.mechanism)

    def __getattr__(self, attribute: str) -> Any:
        if attribute in ("output_names", "output_units", "times"):  # of outputs that are arrays
            raise AttributeError(attribute)
        return inherited_attribute(attribute, lambda: self.mechanism)

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> np.ndarray:
        parts = []
        chunk = runs if has_fixed_block(self.mechanism) else self.encoding.chunk
        for start in range(0, runs, chunk):
            number = min(chunk, runs - start)
            parts.append(self.encoding.encode(as_outputs(self.mechanism(data, number, rng), number)))
        return np.concatenate(parts)


def chunk_size(outputs: Sequence[Any]) -> int:
    """Return how many outputs of about this size may exist at the same time."""
    try:
        size = len(pickle.dumps(list(outputs[:2]))) / min(len(outputs), 2)
    except Exception:  # outputs need not be picklable
        size = 1.0
    return max(int(MAX_CHUNK_BYTES / max(size, 1.0)), 1)
