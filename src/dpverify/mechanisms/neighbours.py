"""Neighbouring datasets: which records or readings have to stay hidden.

A stream is an array with one row per time step and one column per sensor. A table is an array with one record along its
first axis, a list of records, or a DataFrame of pandas. Each function except `ball` returns pairs of datasets by the
name of the record in which they differ, as `dpverify.privacy_over_time(..., pairs=...)` and `dpverify.search_pairs`
take them. `ball` returns a function with a box, which `search_pairs` takes. Steps, sensors and records count from 0.

====================  =============================================  ==============================
function              what is hidden                                 name in the literature
====================  =============================================  ==============================
`one_reading`         one reading of one sensor                      event-level privacy
`window`              w consecutive rows                             w-event privacy
`one_sensor`          all readings of one sensor                     user-level privacy
`whole_stream`        all readings                                   user-level privacy, one user
`replace_one`         the value of one record                        replace-one, bounded
`add_or_remove_one`   whether one record is there                    add-or-remove, unbounded
`group`               the values of k records                        group privacy
`ball`                any change of limited l1, l2 or linf norm      metric adjacency
====================  =============================================  ==============================

Examples
--------
>>> import numpy as np
>>> import dpverify as dpv
>>> pairs = dpv.neighbours.one_reading(np.zeros((4, 2)), change=1.0, steps=[3], sensors=[0])
>>> list(pairs)
['reading 3 of sensor 0']
"""

from __future__ import annotations

import copy
import enum
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.util.arrays import Array, array_namespace
from dpverify.util.checks import check_whole_number, is_real_number, shorten
from dpverify.util.formatting import format_count, format_number, one_line
from dpverify.util.hashing import fingerprint

__all__ = [
    "Ball",
    "add_or_remove_one",
    "ball",
    "group",
    "one_reading",
    "one_sensor",
    "replace_one",
    "whole_stream",
    "window",
]

Pairs = dict[str, tuple[Any, Any]]
Norm = Literal[1, 2, "inf"]

GROUPS_KEY = 104  # spawn key of the random groups
MAX_EXAMPLES = 2
MAX_VALUE_LENGTH = 30


def one_reading(
    data: ArrayLike,
    change: ArrayLike,
    steps: Iterable[int] | None = None,
    sensors: Iterable[int] | None = None,
) -> Pairs:
    """Return pairs of datasets that differ in one reading of one sensor (event-level privacy).

    Parameters
    ----------
    data : array_like of shape (T,) or (T, sensors)
        The stream, which is the first dataset of every pair.
    change : array_like
        What is added to the reading: a number, or an array that broadcasts against the data.
    steps, sensors : iterable of int, optional
        The readings; by default all of them.

    Returns
    -------
    dict
        The pairs by name.

    Examples
    --------
    >>> first, second = one_reading([5.0, 6.0], change=1.0)["reading 1"]
    >>> second.tolist()
    [5.0, 7.0]
    """
    stream, added = _check_stream(data, change)
    places = {
        f"reading {step}{label}": (slice(step, step + 1), sensor)
        for step in _check_records("steps", steps, len(stream))
        for sensor, label in _sensors(stream, sensors)
    }
    return _pairs(stream, added, places)


def window(
    data: ArrayLike,
    width: int,
    change: ArrayLike,
    starts: Iterable[int] | None = None,
) -> Pairs:
    """Return pairs of datasets that differ in a window of consecutive rows (w-event privacy).

    Parameters
    ----------
    data : array_like of shape (T,) or (T, sensors)
        The stream, which is the first dataset of every pair.
    width : int
        The number of rows w.
    change : array_like
        What is added to the readings of the window: a number, or an array that broadcasts against the data.
    starts : iterable of int, optional
        The first rows of the windows; by default all windows.

    Returns
    -------
    dict
        The pairs by name.

    Examples
    --------
    >>> list(window(np.zeros(4), 2, change=1.0))
    ['readings 0 to 1', 'readings 1 to 2', 'readings 2 to 3']
    """
    stream, added = _check_stream(data, change)
    width = check_whole_number("width", width, 1)
    if width > len(stream):
        raise InputError(f"width: found {width}; expected at most the {len(stream)} steps of the data")
    places: dict[str, tuple[object, ...]] = {}
    for start in _check_records("starts", starts, len(stream) - width + 1):
        name = f"readings {start} to {start + width - 1}"
        if width == 1:
            name = f"reading {start}" if stream[start].size == 1 else f"readings of step {start}"
        places[name] = (slice(start, start + width),)
    return _pairs(stream, added, places)


def one_sensor(data: ArrayLike, change: ArrayLike, sensors: Iterable[int] | None = None) -> Pairs:
    """Return pairs of datasets that differ in all readings of one sensor (user-level privacy).

    Parameters
    ----------
    data : array_like of shape (T, sensors)
        The stream, which is the first dataset of every pair.
    change : array_like
        What is added to the readings: a number, or an array that broadcasts against the data.
    sensors : iterable of int, optional
        The sensors; by default all of them.

    Returns
    -------
    dict
        The pairs by name.

    Examples
    --------
    >>> list(one_sensor(np.zeros((4, 3)), change=1.0))
    ['sensor 0', 'sensor 1', 'sensor 2']
    """
    stream, added = _check_stream(data, change)
    if stream.ndim == 1:
        raise InputError("data: found one column; expected one column per sensor; use whole_stream")
    numbers = _check_records("sensors", sensors, stream.shape[1])
    return _pairs(stream, added, {f"sensor {number}": (slice(None), number) for number in numbers})


def whole_stream(data: ArrayLike, change: ArrayLike) -> Pairs:
    """Return one pair of datasets that differ in all readings (user-level privacy of one user).

    Parameters
    ----------
    data : array_like of shape (T,) or (T, sensors)
        The stream, which is the first dataset.
    change : array_like
        What is added to the readings: a number, or an array that broadcasts against the data.

    Returns
    -------
    dict
        The pair by its name.

    Examples
    --------
    >>> whole_stream(np.zeros(2), change=1.0)["the whole stream"][1].tolist()
    [1.0, 1.0]
    """
    stream, added = _check_stream(data, change)
    return _pairs(stream, added, {"the whole stream": (slice(None),)})


def _check_stream(data: ArrayLike, change: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the data as an array of numbers, and the change in the same shape."""
    try:
        stream, added = np.asanyarray(data, float), np.asarray(change, float)  # a mask stays
    except (TypeError, ValueError):
        raise InputError("data, change: found no arrays of numbers; expected one row per step") from None
    if stream.ndim not in (1, 2) or not stream.size:
        raise InputError(f"data: found shape {stream.shape}; expected (steps,) or (steps, sensors)")
    try:
        return stream, np.broadcast_to(added, stream.shape)
    except ValueError:
        raise InputError(
            f"change: found shape {added.shape}; expected a number, or an array that broadcasts to {stream.shape}"
        ) from None


def _check_records(name: str, numbers: Iterable[int] | None, most: int) -> list[int]:
    """Return the numbers of some records; raise InputError if one lies outside the data."""
    if numbers is None:
        return list(range(most))
    checked = [check_whole_number(name, number) for number in numbers]
    for number in checked:
        if number >= most:
            raise InputError(f"{name}: found {number}; expected at most {most - 1}, the last one of the data")
    if not checked:
        raise InputError(f"{name} must have at least one number from 0 to {most - 1}")
    return checked


def _sensors(stream: np.ndarray, sensors: Iterable[int] | None) -> list[tuple[int | slice, str]]:
    """Return the columns of the sensors with the end of their names."""
    if stream.ndim == 1 or (stream.shape[1] == 1 and sensors is None):
        return [(slice(None) if stream.ndim > 1 else (), "")]  # type: ignore[list-item]
    return [(number, f" of sensor {number}") for number in _check_records("sensors", sensors, stream.shape[1])]


def _pairs(stream: np.ndarray, added: np.ndarray, places: Mapping[str, tuple[object, ...]]) -> Pairs:
    """Return for each place the stream, and a copy in which the change was added there.

    A place whose readings are all missing (masked) has no pair: there is nothing to change.
    """
    pairs = {}
    for name, where in places.items():
        place = tuple(index for index in where if index != ())
        second = stream.copy()
        second[place] += added[place]  # type: ignore[index]
        if np.ma.getmaskarray(stream)[place].all():  # type: ignore[index]
            continue
        if are_equal(second, stream):
            raise InputError("change: found a change of 0 for a record; expected two different datasets")
        pairs[name] = stream.copy(), second
    if not pairs:
        raise InputError("data: found only missing readings; expected at least one that is not masked")
    return pairs


# Records of a table, and balls around a dataset.


def replace_one(data: ArrayLike, values: ArrayLike, records: Iterable[int] | None = None) -> Pairs:
    """Return pairs of datasets of equal size that differ in one record (replace-one privacy).

    Parameters
    ----------
    data : array_like of shape (n,) or (n, ...)
        The first dataset of every pair.
    values : array_like
        The possible records, along the first axis. Each of them replaces each record that differs from it.
    records : iterable of int, optional
        The records that are replaced; by default all of them.

    Returns
    -------
    dict
        The pairs by name.

    Examples
    --------
    >>> pairs = replace_one([0, 1], values=[0, 1])
    >>> {name: second.tolist() for name, (_, second) in pairs.items()}
    {'record 0 becomes value 1': [1, 1], 'record 1 becomes value 0': [0, 0]}
    """
    return group(data, values, 1, records)


def group(
    data: ArrayLike,
    values: ArrayLike,
    size: int,
    records: Iterable[int] | None = None,
    most: int | None = None,
    seed: int = 0,
) -> Pairs:
    """Return pairs of datasets of equal size that differ in a group of records (group privacy).

    All records of a group become the same value.

    Parameters
    ----------
    data : array_like of shape (n,) or (n, ...)
        The first dataset of every pair.
    values : array_like
        The possible records, along the first axis.
    size : int
        The number of records in a group.
    records : iterable of int, optional
        The records of which the groups consist; by default all of them.
    most : int, optional
        The largest number of groups. If there are more, so many of them are drawn at random. By default all of them.
    seed : int
        The seed of this draw.

    Returns
    -------
    dict
        The pairs by name.

    Examples
    --------
    >>> list(group([0, 0, 0], values=[1], size=2))
    ['records 0, 1 become value 0', 'records 0, 2 become value 0', 'records 1, 2 become value 0']
    """
    table, new = _check_table(data), _check_values(data, values)
    numbers = _check_records("records", records, len(table))
    size = check_whole_number("size", size, 1)
    if size > len(numbers):
        raise InputError(f"size: found {size}; expected at most {len(numbers)}, the number of records")
    pairs = {}
    for members in _groups(numbers, size, most, seed):
        for number in range(len(new)):
            value = _take(new, [number])
            if not any(are_equal(_take(table, [member]), value) for member in members):
                pairs[f"{_name(table, members)} value {number}"] = copy.copy(table), _replace(table, members, value)
    if not pairs:
        raise InputError("values: found no value that differs from the records; expected two different datasets")
    return pairs


def add_or_remove_one(data: ArrayLike, values: ArrayLike | None = None, records: Iterable[int] | None = None) -> Pairs:
    """Return pairs of datasets of which one has one record more (add-or-remove privacy).

    Parameters
    ----------
    data : array_like of shape (n,) or (n, ...)
        The first dataset of every pair.
    values : array_like, optional
        The records that may be added, along the first axis; by default none is added.
    records : iterable of int, optional
        The records that may be removed; by default all of them.

    Returns
    -------
    dict
        The pairs by name.

    Examples
    --------
    >>> pairs = add_or_remove_one([5, 6], values=[9])
    >>> {name: second.tolist() for name, (_, second) in pairs.items()}
    {'without record 0': [6], 'without record 1': [5], 'with value 0': [5, 6, 9]}
    """
    table, new = _check_table(data, at_least=0 if values is not None else 1), []
    pairs = {}
    for number in _check_records("records", records, len(table)):
        others = [other for other in range(len(table)) if other != number]
        pairs[f"without record {_label(table, number)}"] = copy.copy(table), _take(table, others)
    if values is not None:
        new = _check_values(data, values)
    for number in range(len(new)):
        pairs[f"with value {number}"] = copy.copy(table), _join([table, _take(new, [number])])
    return pairs


@dataclass(frozen=True, eq=False)
class Ball:
    """All datasets within a distance of a first one, as a function for `search_pairs`. Made by `ball`.

    Attributes
    ----------
    data : ndarray
        The first dataset.
    radius : float
        The largest norm of the change.
    norm : {1, 2, "inf"}
        The norm of the change.
    places : ndarray
        The positions in the flattened data that may change.
    """

    data: np.ndarray
    radius: float
    norm: Norm
    places: np.ndarray

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The box of the parameters: (-1, 1) for every position that may change."""
        return [(-1.0, 1.0)] * self.places.size

    def __call__(self, theta: Array) -> tuple[np.ndarray, Array]:
        """Return the first dataset and the one that belongs to a point of the box.

        The box is mapped onto the ball along rays from the centre, so that its surface becomes that of the ball.
        """
        xp = array_namespace(theta)
        theta = xp.asarray(theta, float)
        order = np.inf if self.norm == "inf" else self.norm
        length = xp.maximum(xp.linalg.norm(theta, order), np.finfo(np.float32).tiny)
        change = self.radius * theta * (xp.abs(theta).max() / length)
        flat = self.data.ravel()
        if xp is np:
            second = flat.copy()
            second[self.places] += change
        else:
            second = xp.asarray(flat).at[self.places].add(change)
        return self.data, second.reshape(self.data.shape)


def ball(data: ArrayLike, radius: float, norm: Norm | float = 2, where: object = None) -> Ball:
    """Return the ball of all datasets within a distance of one dataset, to be searched by `search_pairs`.

    Parameters
    ----------
    data : array_like
        The first dataset, an array of numbers.
    radius : float
        The largest norm of the change.
    norm : {1, 2, "inf"}
        The norm of the change.
    where : index, optional
        The part of the data that may change: an index or a mask of the array. `numpy.s_[:, 2]` is sensor 2 of a stream,
        `numpy.s_[4]` is record 4. By default all of the data.

    Returns
    -------
    Ball
        A function from a point of its `bounds` to a pair of datasets.

    Examples
    --------
    >>> sensor = ball(np.zeros((3, 2)), radius=5.0, where=np.s_[:2, 0])
    >>> sensor.bounds
    [(-1.0, 1.0), (-1.0, 1.0)]
    >>> sensor(np.array([0.75, 1.0]))[1].tolist()
    [[3.0, 0.0], [4.0, 0.0], [0.0, 0.0]]
    """
    try:
        centre = np.asanyarray(data, float)
    except (TypeError, ValueError):
        raise InputError(f"data: found {shorten(data)}; expected an array of numbers") from None
    if not (is_real_number(radius) and radius > 0):
        raise InputError(f"radius: found {shorten(radius)}; expected a positive number")
    kind = "inf" if norm == math.inf else norm
    if kind not in (1, 2, "inf"):
        raise InputError(f'norm: found {shorten(norm)}; expected 1, 2 or "inf"')
    numbers = np.arange(centre.size).reshape(centre.shape)
    try:
        places = numbers.ravel() if where is None else np.atleast_1d(numbers[where]).ravel()  # type: ignore[index]
    except (IndexError, TypeError):
        raise InputError(f"where: found {shorten(where)}; expected an index of data of shape {centre.shape}") from None
    if not places.size:
        raise InputError("where: found no position; expected at least one that may change")
    return Ball(centre, float(radius), kind, places)  # type: ignore[arg-type]


def _groups(numbers: list[int], size: int, most: int | None, seed: int) -> list[tuple[int, ...]]:
    """Return all groups of records, or some of them drawn at random."""
    if most is None or math.comb(len(numbers), size) <= check_whole_number("most", most, 1):
        return list(itertools.combinations(numbers, size))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(GROUPS_KEY,)))
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < most:
        drawn[tuple(sorted(rng.choice(numbers, size, replace=False).tolist()))] = None
    return list(drawn)


def _name(table: Any, members: tuple[int, ...]) -> str:
    """Return the records of a group with the verb."""
    if len(members) == 1:
        return f"record {_label(table, members[0])} becomes"
    return f"records {', '.join(_label(table, member) for member in members)} become"


def _label(table: Any, number: int) -> str:
    """Return what a record is called: its label in the index of a table of pandas, otherwise its number."""
    return str(table.index[number]) if hasattr(table, "iloc") else str(number)


def _take(table: Any, numbers: list[int]) -> Any:
    """Return some records of an array, a list or a table."""
    if hasattr(table, "iloc"):
        return table.iloc[numbers]
    return [table[number] for number in numbers] if isinstance(table, list) else table[np.array(numbers, int)]


def _join(parts: list[Any]) -> Any:
    """Return the records of several arrays, lists or tables one after the other."""
    if hasattr(parts[0], "iloc"):
        import pandas

        return pandas.concat(parts)
    if isinstance(parts[0], list):
        return list(itertools.chain(*parts))
    return (np.ma.concatenate if any(map(np.ma.isMaskedArray, parts)) else np.concatenate)(parts)


def _replace(table: Any, members: tuple[int, ...], value: Any) -> Any:
    """Return the data with the value, one record, in place of each of the members."""
    if hasattr(table, "iloc"):
        rows = [
            value.set_axis([label]) if number in members else table.iloc[[number]]
            for number, label in enumerate(table.index)
        ]
        return _join(rows)
    if isinstance(table, list):
        return [value[0] if number in members else one for number, one in enumerate(table)]
    second = table.astype(np.result_type(table, value))
    second[list(members)] = value[0]
    return second


def _check_table(data: Any, at_least: int = 1) -> Any:
    """Return the data as an array, a list of records that are not numbers, or a table of pandas."""
    if hasattr(data, "iloc"):
        table = data
    else:
        numbers = _numbers(data)
        table = list(data) if numbers is None and isinstance(data, (list, tuple)) else numbers
    if table is None or np.ndim(table) == 0 or len(table) < at_least:
        raise InputError(
            f"data: found {shorten(data)}; expected an array, a list or a table with one record or more along its "
            "first axis"
        )
    return table


def _check_values(data: Any, values: Any) -> Any:
    """Return the new records, of the same kind as the data."""
    table = _check_table(data, 0)
    if hasattr(table, "iloc") or isinstance(table, list):
        fits = type(values) is type(data) and len(values) > 0
        if not fits or (hasattr(data, "columns") and list(values.columns) != list(data.columns)):
            raise InputError(
                f"values: found {shorten(values)}; expected records in a {type(data).__name__}, like the data"
            )
        return list(values) if isinstance(table, list) else values
    new = np.asanyarray(values)
    if new.ndim == 0 or not len(new) or new.shape[1:] != table.shape[1:]:
        raise InputError(
            f"values: found shape {new.shape}; expected records of shape {table.shape[1:]} along the first axis"
        )
    return new


# How two datasets differ, in words.


class Relation(enum.Enum):
    """The neighbour relation that the difference of two datasets looks like; the value is printed."""

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
    """How two datasets differ.

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
    """Describe how two datasets differ.

    Parameters
    ----------
    first, second : object
        The datasets. Arrays and sequences of numbers are compared number by number, dictionaries entry by entry.

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
    listed = _listed_records(first), _listed_records(second)
    if listed[0] is not None and listed[1] is not None and type(first) is type(second):
        return _compare_records(*listed)
    return DataDifference(Relation.UNKNOWN, f"{_kind(first)} and {_kind(second)}, which are not compared")


def are_equal(first: object, second: object) -> bool:
    """Return whether two datasets of any kind are equal; False if they cannot be compared.

    Examples
    --------
    >>> are_equal([1, 2], [1, 2]), are_equal({"y": np.zeros(2)}, {"y": np.ones(2)})
    (True, False)
    """
    return describe_difference(first, second).relation is Relation.EQUAL


def _numbers(data: object) -> np.ndarray | None:
    """Return a dataset as an array of numbers, or None if it is something else."""
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
    if not is_one_longer:
        return DataDifference(Relation.UNKNOWN, text)
    unequal = (longer[:-1] != shorter).any(tuple(range(1, longer.ndim)))
    row = int(np.argmax(unequal)) if unequal.any() else len(shorter)
    if not np.array_equal(np.delete(longer, row, 0), shorter):
        return DataDifference(Relation.OTHER, text)
    side = "first" if longer is a else "second"
    return DataDifference(Relation.ONE_MORE_ROW, f"row {row} is in the {side} dataset only; {text}")


def _listed_records(data: Any) -> list[tuple[str, object]] | None:
    """Return the records of a table, a list, a set or a text with their names; None for other data."""
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return [(f"row {label!r}", row) for label, *row in data.itertuples(name=None)]
    if hasattr(data, "iter_rows"):  # polars
        return [(f"row {number}", row) for number, row in enumerate(data.iter_rows())]
    if isinstance(data, Set):
        return [(f"member {_show(one)}", one) for one in sorted(data, key=repr)]
    if isinstance(data, (str, bytes)):
        return [(f"character {number}", one) for number, one in enumerate(data)]
    return [(f"record {n}", one) for n, one in enumerate(data)] if isinstance(data, Sequence) else None


def _compare_records(first: list[tuple[str, object]], second: list[tuple[str, object]]) -> DataDifference:
    """Compare two lists of records that are not numbers."""
    if abs(len(first) - len(second)) == 1:
        longer, shorter, side = (first, second, "first") if len(first) > len(second) else (second, first, "second")
        pairs = enumerate(zip(longer, shorter, strict=False))
        place = next((number for number, (one, other) in pairs if not _same(one[1], other[1])), len(shorter))
        rest = zip(longer[place + 1 :], shorter[place:], strict=True)
        if all(_same(one[1], other[1]) for one, other in rest):
            return DataDifference(Relation.ONE_MORE_ROW, f"{longer[place][0]} is in the {side} dataset only")
    if len(first) != len(second):
        noun = (*first, *second)[0][0].partition(" ")[0]
        return DataDifference(Relation.OTHER, f"{format_count(len(first))} and {format_count(len(second))} {noun}s")
    changed = [one[0] for one, other in zip(first, second, strict=True) if not _same(one[1], other[1])]
    if not changed:  # the names differ
        return DataDifference(Relation.OTHER, "labels, and no record")
    more = ", ..." if len(changed) > MAX_EXAMPLES else ""
    text = f"{format_count(len(changed))} of {_plural(len(first), 'record')}: {', '.join(changed[:MAX_EXAMPLES])}{more}"
    return DataDifference(Relation.ONE_ROW if len(changed) == 1 else Relation.OTHER, text)


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
    return DataDifference(Relation.OTHER, f"{len(changed)} of {entries}: {_listed(changed)}")


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
    values = [one[place] for one in (a, b)]
    texts = ["missing" if value is np.ma.masked else format_number(float(value)) for value in values]
    if texts[0] == texts[1]:  # four digits do not show the difference
        texts = [repr(value.item()) for value in values]
    return f"{where}from {texts[0]} to {texts[1]}"


def _listed(names: Iterable[object]) -> str:
    shown = [_show(name) for name in names]
    return ", ".join(shown[:MAX_EXAMPLES]) + (", ..." if len(shown) > MAX_EXAMPLES else "")


def _show(value: object) -> str:
    return one_line(repr(value), MAX_VALUE_LENGTH)


def _plural(number: int, singular: str, plural: str | None = None) -> str:
    return f"{format_count(number)} {singular if number == 1 else plural or singular + 's'}"


def _kind(data: object) -> str:
    return f"objects of type {type(data).__name__}"


# Lists of pairs.


def check_pairs(pairs: Iterable[object] | Mapping[str, object], listed: Sequence[object]) -> None:
    """Raise InputError if one of the listed objects is no pair (first, second).

    A pair is a tuple or a list of two datasets. An array, a text or a mapping is a dataset, never a pair. Two numbers
    are a pair of datasets that are numbers. One case is ambiguous: exactly two objects of two numbers each, which can
    be two such pairs, or one pair of datasets with two numbers each. They are two pairs if they are tuples and `pairs`
    is no tuple, [(0.0, 1.0), (1.0, 2.0)]. Otherwise they are refused. Names make a mapping unambiguous.

    Parameters
    ----------
    pairs : iterable or mapping
        The argument of the user.
    listed : sequence
        What the iterable yields, or the values of the mapping.

    Examples
    --------
    >>> check_pairs([(0.0, 1.0), (1.0, 2.0)], [(0.0, 1.0), (1.0, 2.0)])
    >>> check_pairs(([0.0, 1.0], [1.0, 2.0]), ([0.0, 1.0], [1.0, 2.0]))
    Traceback (most recent call last):
    dpverify.errors.InputError: pairs: found an array as pair 0; expected (first, second); pass a list of pairs, \
[(first, second)]
    """
    labels = list(pairs) if isinstance(pairs, Mapping) else range(len(listed))
    is_ambiguous = not isinstance(pairs, Mapping) and len(listed) == 2 and all(map(_is_numbers, listed))
    are_data_sets = is_ambiguous and (isinstance(pairs, tuple) or not all(isinstance(pair, tuple) for pair in listed))
    for label, pair in zip(labels, listed, strict=True):
        found = "an array" if are_data_sets else _name_other(pair)
        if found:
            advice = "a list of pairs, [(first, second)]"
            if isinstance(pairs, Mapping):
                advice = "a mapping from names to pairs, {name: (first, second)}"
            raise InputError(f"pairs: found {found} as pair {one_line(label)}; expected (first, second); pass {advice}")


def _is_numbers(value: object) -> bool:
    """Return whether an object is a list or a tuple of two numbers."""
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_real_number, value))


def _name_other(value: object) -> str:
    """Return in words what was found instead of a pair; an empty text for a pair."""
    if hasattr(value, "__array__") and getattr(value, "shape", ()) != ():  # NumPy, JAX, pandas and others
        return "an array"
    if isinstance(value, (str, bytes)):
        return "text"
    if isinstance(value, (Mapping, Set)) or not isinstance(value, Sized):
        return type(value).__name__
    return "" if len(value) == 2 else f"{len(value)} parts"
