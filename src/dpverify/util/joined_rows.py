"""Tables one below the other, with little memory: large arrays are copied once, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def join_and_release(parts: list[np.ndarray]) -> np.ndarray:
    """Return the rows of all parts one after the other, and empty the list.

    Each part is released when it is copied, so that hardly more memory is needed than for the result.

    Examples
    --------
    >>> parts = [np.array([1.0, 2.0]), np.array([3.0])]
    >>> join_and_release(parts).tolist(), parts
    ([1.0, 2.0, 3.0], [])
    """
    end = sum(map(len, parts))
    joined = np.empty((end, *parts[0].shape[1:]), np.result_type(*parts))
    while parts:
        part = parts.pop()
        joined[end - len(part) : end] = part
        end -= len(part)
    return joined


def join_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the rows of all parts one after the other: a view if they are all rows of one array, in this order.

    Examples
    --------
    >>> whole = np.arange(4.0)
    >>> np.shares_memory(join_rows(np.split(whole, 2)), whole)
    True
    """
    whole = parts[0].base
    if isinstance(whole, np.ndarray) and whole.flags.c_contiguous and _follow_each_other(parts, whole):
        return whole.reshape(-1, *parts[0].shape[1:])
    return np.concatenate(parts)


def _follow_each_other(parts: Sequence[np.ndarray], whole: np.ndarray) -> bool:
    """Return whether the parts fill all of an array, one after the other."""
    address, shape = whole.__array_interface__["data"][0], parts[0].shape[1:]
    for part in parts:
        is_next = part.__array_interface__["data"][0] == address
        if not (is_next and part.base is whole and part.dtype == whole.dtype and part.flags.c_contiguous):
            return False
        if part.shape[1:] != shape:
            return False
        address += part.nbytes
    return sum(part.size for part in parts) == whole.size > 0
