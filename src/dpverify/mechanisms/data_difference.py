"""How two data sets differ, in words, and which neighbour relation that may be.

A claim of differential privacy is about one relation between neighbouring data sets, for example one record replaced,
or one record added or removed. A mechanism that satisfies the claim for one relation may violate it for another.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpverify.util.formatting import format_count, format_number, one_line
from dpverify.util.hashing import fingerprint

MAX_EXAMPLES = 2
MAX_VALUE_LENGTH = 30
MAX_REMOVAL_ROWS = 100_000  # beyond it the search for a removed row is not worth its time


class Relation(enum.Enum):
    """The neighbour relation that the difference of two data sets looks like; the value is printed."""

    ONE_NUMBER = "one value changed"
    ONE_ROW = "one row changed, as if one record was replaced"
    ONE_COLUMN = "one column changed, as if one sensor or one attribute was replaced"
    ONE_MORE_ROW = "one row more, as if one record was added or removed"
    COUNT_PLUS_ONE = "one value replaced; or, if the numbers are counts, one record added or removed"
    COUNT_MOVED = "two values replaced; or, if the numbers are counts, one record replaced"
    EQUAL = "equal"
    OTHER = "several values changed"
    UNKNOWN = "not comparable"


@dataclass(frozen=True)
class DataDifference:
    """How two data sets differ.

    Attributes
    ----------
    relation : Relation
        The neighbour relation that this looks like.
    text : str
        What differs, for example "1 of 32 numbers: data[1, 2] from 0.3 to 0.8".
    """

    relation: Relation
    text: str


def describe_difference(first: object, second: object) -> DataDifference:
    """Describe how two data sets differ.

    Parameters
    ----------
    first, second : object
        The data sets. Arrays and sequences of numbers are compared number by number, dictionaries entry by entry.

    Returns
    -------
    DataDifference
        What differs, and which neighbour relation that looks like.

    Examples
    --------
    >>> describe_difference([0.0, 0.3], [0.0, 0.8]).text
    '1 of 2 numbers: data[1] from 0.3 to 0.8'
    >>> describe_difference([3, 5, 0], [3, 4, 1]).relation.value
    'two values replaced; or, if the numbers are counts, one record replaced'
    """
    a, b = _numbers(first), _numbers(second)
    if a is not None and b is not None:
        found = _compare_arrays(a, b)
        has_more = type(first) is type(second) and type(first) is not np.ndarray and hasattr(first, "__array__")
        if found.relation is Relation.EQUAL and has_more and not _same(first, second):
            return DataDifference(Relation.OTHER, "labels or missing values, and in no number")
        return found
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return _compare_mappings(first, second)
    if _same(first, second):
        return DataDifference(Relation.EQUAL, f"equal, {_kind(first)}")
    return DataDifference(Relation.UNKNOWN, f"{_kind(first)} and {_kind(second)}, which are not compared")


def are_equal(first: object, second: object) -> bool:
    """Return whether two data sets of any kind are equal; False if they cannot be compared.

    Examples
    --------
    >>> are_equal([1, 2], [1, 2]), are_equal({"y": np.zeros(2)}, {"y": np.ones(2)})
    (True, False)
    """
    return describe_difference(first, second).relation is Relation.EQUAL


def _numbers(data: object) -> np.ndarray | None:
    """Return a data set as an array of numbers, or None if it is something else."""
    if not isinstance(data, (np.ndarray, np.generic, int, float, Sequence)) and not hasattr(data, "__array__"):
        return None
    try:
        array = np.asanyarray(data)  # a mask stays
    except MemoryError:
        raise
    except Exception:  # an object of the user can raise anything
        return None
    return array if array.dtype.kind in "fiub" else None


def _compare_arrays(a: np.ndarray, b: np.ndarray) -> DataDifference:
    """Compare two arrays of numbers."""
    if a.shape != b.shape:
        return _compare_lengths(a, b)
    (x, missing_x), (y, missing_y) = ((np.ma.getdata(one), np.ma.getmaskarray(one)) for one in (a, b))
    differs = np.where(missing_x | missing_y, missing_x != missing_y, (x != y) & ~(np.isnan(x) & np.isnan(y)))
    changed = np.argwhere(differs)
    if not len(changed):
        return DataDifference(Relation.EQUAL, f"equal, {_plural(a.size, 'number')}")
    examples = [_example(a, b, index) for index in changed[:MAX_EXAMPLES]]
    more = ", ..." if len(changed) > MAX_EXAMPLES else ""
    text = f"{format_count(len(changed))} of {_plural(a.size, 'number')}: {', '.join(examples)}{more}"
    return DataDifference(_relation(a, b, differs), text)


def _relation(a: np.ndarray, b: np.ndarray, differs: np.ndarray) -> Relation:
    """Return the relation that two different arrays of the same shape are in."""
    if a.ndim == 1 and _are_counts(a) and _are_counts(b):
        steps = sorted((b[differs].astype(float) - a[differs].astype(float)).tolist())
        if steps in ([1.0], [-1.0]):
            return Relation.COUNT_PLUS_ONE
        if steps == [-1.0, 1.0]:
            return Relation.COUNT_MOVED
    if differs.sum() == 1:
        return Relation.ONE_NUMBER
    if a.ndim < 2:
        return Relation.OTHER
    if differs.reshape(len(a), -1).any(1).sum() == 1:
        return Relation.ONE_ROW
    if differs.reshape(-1, a.shape[-1]).any(0).sum() == 1:
        return Relation.ONE_COLUMN
    return Relation.OTHER


def _are_counts(array: np.ndarray) -> bool:
    """Return whether these look like the counts of a histogram: whole numbers from 0, more than one."""
    return len(array) > 1 and bool((array >= 0).all() and (array == np.floor(array)).all() and array.max() > 1)


def _compare_lengths(a: np.ndarray, b: np.ndarray) -> DataDifference:
    """Compare arrays of different shapes; one may have one row more than the other."""
    text = f"shapes {a.shape} and {b.shape}"
    longer, shorter = (a, b) if a.size > b.size else (b, a)
    is_one_longer = a.ndim == b.ndim >= 1 and a.shape[1:] == b.shape[1:] and len(longer) == len(shorter) + 1
    if not is_one_longer or len(longer) > MAX_REMOVAL_ROWS:
        return DataDifference(Relation.UNKNOWN, text)
    unequal = (longer[:-1] != shorter).any(tuple(range(1, longer.ndim)))
    row = int(np.argmax(unequal)) if unequal.any() else len(shorter)
    if not np.array_equal(np.delete(longer, row, 0), shorter):
        return DataDifference(Relation.OTHER, text)
    side = "first" if longer is a else "second"
    return DataDifference(Relation.ONE_MORE_ROW, f"row {row} is in the {side} data set only; {text}")


def _compare_mappings(first: Mapping[object, object], second: Mapping[object, object]) -> DataDifference:
    """Compare two dictionaries entry by entry."""
    names = list(dict.fromkeys([*first, *second]))
    changed = [
        name for name in names if name not in first or name not in second or not _same(first[name], second[name])
    ]
    if len(changed) == 1 and changed[0] in first and changed[0] in second:
        inner = describe_difference(first[changed[0]], second[changed[0]])
        return DataDifference(inner.relation, f"entry {_show(changed[0])}: {inner.text}")
    entries = _plural(len(names), "entry", "entries")
    if not changed:
        return DataDifference(Relation.EQUAL, f"equal, {entries}")
    return DataDifference(Relation.OTHER, f"{len(changed)} of {entries}: {_join(changed)}")


def _same(a: object, b: object) -> bool:
    """Return whether two values of any kind are equal; values that cannot be hashed count as different."""
    try:
        # The hash of a function is that of its name and its file, which two functions may share.
        return a is b or (not hasattr(a, "__qualname__") and fingerprint(a) == fingerprint(b))
    except MemoryError:
        raise
    except Exception:  # an object of the user can raise anything
        return False


def _example(a: np.ndarray, b: np.ndarray, index: np.ndarray) -> str:
    """Return one changed number with its place, for example "data[1, 2] from 0.3 to 0.8"."""
    place = tuple(index.tolist())
    where = f"data[{', '.join(map(str, place))}] " if place else ""
    before, after = (math.nan if one[place] is np.ma.masked else float(one[place]) for one in (a, b))
    texts = format_number(before), format_number(after)
    if texts[0] == texts[1]:  # four digits do not show the difference
        texts = repr(before), repr(after)
    return f"{where}from {texts[0]} to {texts[1]}"


def _join(names: Iterable[object]) -> str:
    shown = [_show(name) for name in names]
    return ", ".join(shown[:MAX_EXAMPLES]) + (", ..." if len(shown) > MAX_EXAMPLES else "")


def _show(value: object) -> str:
    return one_line(repr(value), MAX_VALUE_LENGTH)


def _plural(number: int, singular: str, plural: str | None = None) -> str:
    return f"{format_count(number)} {singular if number == 1 else plural or singular + 's'}"


def _kind(data: object) -> str:
    return f"objects of type {type(data).__name__}"
