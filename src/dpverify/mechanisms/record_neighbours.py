"""Neighbouring data sets of a table of records, and balls around a data set.

These functions are part of `dpverify.neighbours`. The first axis of the data counts the records. Records count from 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.util.arrays import Array, array_namespace
from dpverify.util.checks import check_whole_number, is_real_number, shorten

Pairs = dict[str, tuple[np.ndarray, np.ndarray]]
Norm = Literal[1, 2, "inf"]

GROUPS_KEY = 104  # spawn key of the random groups


def replace_one(data: ArrayLike, values: ArrayLike, records: Iterable[int] | None = None) -> Pairs:
    """Return pairs of data sets of equal size that differ in one record (replace-one privacy).

    Parameters
    ----------
    data : array_like of shape (n,) or (n, ...)
        The first data set of every pair.
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
    """Return pairs of data sets of equal size that differ in a group of records (group privacy).

    All records of a group become the same value.

    Parameters
    ----------
    data : array_like of shape (n,) or (n, ...)
        The first data set of every pair.
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
    numbers = _check_numbers(records, len(table))
    size = check_whole_number("size", size, 1)
    if size > len(numbers):
        raise InputError(f"size: found {size}; expected at most {len(numbers)}, the number of records")
    pairs = {}
    for members in _groups(numbers, size, most, seed):
        for number, value in enumerate(new):
            second = table.astype(np.result_type(table, new))
            second[list(members)] = value
            differs = np.ma.filled(second != table, False) | (np.ma.getmaskarray(second) != np.ma.getmaskarray(table))
            if differs[list(members)].reshape(size, -1).any(1).all():
                pairs[f"{_name(members)} value {number}"] = table.copy(), second
    if not pairs:
        raise InputError("values: found no value that differs from the records; expected two different data sets")
    return pairs


def add_or_remove_one(data: ArrayLike, values: ArrayLike | None = None, records: Iterable[int] | None = None) -> Pairs:
    """Return pairs of data sets of which one has one record more (add-or-remove privacy).

    Parameters
    ----------
    data : array_like of shape (n,) or (n, ...)
        The first data set of every pair.
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
    table = _check_table(data)
    pairs = {
        f"without record {number}": (table.copy(), table[np.arange(len(table)) != number])
        for number in _check_numbers(records, len(table))
    }
    for number, value in enumerate([] if values is None else _check_values(data, values)):
        join = np.ma.concatenate if np.ma.isMaskedArray(table) or np.ma.isMaskedArray(value) else np.concatenate
        pairs[f"with value {number}"] = table.copy(), join([table, value[None]])
    return pairs


@dataclass(frozen=True, eq=False)
class Ball:
    """All data sets within a distance of a first one, as a function for `search_pairs`. Made by `ball`.

    Attributes
    ----------
    data : ndarray
        The first data set.
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
        """Return the first data set and the one that belongs to a point of the box.

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
    """Return the ball of all data sets within a distance of one data set, to be searched by `search_pairs`.

    Parameters
    ----------
    data : array_like
        The first data set, an array of numbers.
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
        A function from a point of its `bounds` to a pair of data sets.

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


def _name(members: tuple[int, ...]) -> str:
    """Return the records of a group with the verb."""
    if len(members) == 1:
        return f"record {members[0]} becomes"
    return f"records {', '.join(map(str, members))} become"


def _check_table(data: ArrayLike) -> np.ndarray:
    """Return the data as an array with at least one record."""
    table = np.asanyarray(data)
    if table.ndim == 0 or not table.size or table.dtype == object:
        raise InputError(f"data: found {shorten(data)}; expected an array with one record or more along its first axis")
    return table


def _check_values(data: ArrayLike, values: ArrayLike) -> np.ndarray:
    """Return the new records, each with the shape of a record of the data."""
    table, new = np.asanyarray(data), np.asanyarray(values)
    if new.ndim == 0 or not len(new) or new.shape[1:] != table.shape[1:]:
        raise InputError(
            f"values: found shape {new.shape}; expected records of shape {table.shape[1:]} along the first axis"
        )
    return new


def _check_numbers(records: Iterable[int] | None, most: int) -> list[int]:
    """Return the numbers of some records; raise InputError if one lies outside the data."""
    numbers = list(range(most)) if records is None else [check_whole_number("records", number) for number in records]
    if not numbers or max(numbers) >= most:
        raise InputError(f"records: found {numbers[:5]}; expected at least one number, each from 0 to {most - 1}")
    return numbers
