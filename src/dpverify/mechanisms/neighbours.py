"""Neighbouring data sets: which records or readings have to stay hidden.

A stream is an array with one row per time step and one column per sensor. A table is an array with one record along its
first axis. Each function except `ball` returns pairs of data sets by the name of the record in which they differ, as
`dpverify.privacy_over_time(..., pairs=...)` and `dpverify.search_pairs` take them. `ball` returns a function with a
box, which `search_pairs` takes. Steps, sensors and records count from 0.

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

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.mechanisms.data_difference import are_equal
from dpverify.mechanisms.record_neighbours import Ball, Pairs, add_or_remove_one, ball, group, replace_one
from dpverify.util.checks import check_whole_number

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


def one_reading(
    data: ArrayLike,
    change: ArrayLike,
    steps: Iterable[int] | None = None,
    sensors: Iterable[int] | None = None,
) -> Pairs:
    """Return pairs of data sets that differ in one reading of one sensor (event-level privacy).

    Parameters
    ----------
    data : array_like of shape (T,) or (T, sensors)
        The stream, which is the first data set of every pair.
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
    """Return pairs of data sets that differ in a window of consecutive rows (w-event privacy).

    Parameters
    ----------
    data : array_like of shape (T,) or (T, sensors)
        The stream, which is the first data set of every pair.
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
    """Return pairs of data sets that differ in all readings of one sensor (user-level privacy).

    Parameters
    ----------
    data : array_like of shape (T, sensors)
        The stream, which is the first data set of every pair.
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
    """Return one pair of data sets that differ in all readings (user-level privacy of one user).

    Parameters
    ----------
    data : array_like of shape (T,) or (T, sensors)
        The stream, which is the first data set.
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
        raise InputError(f"{name}: found none; expected at least one number from 0 to {most - 1}")
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
            raise InputError("change: found a change of 0 for a record; expected two different data sets")
        pairs[name] = stream.copy(), second
    if not pairs:
        raise InputError("data: found only missing readings; expected at least one that is not masked")
    return pairs
