"""The text format of programs: data sets are sent, and runs are received, as lines of numbers."""

from __future__ import annotations

import io
import warnings

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError


def plain_rows(data: ArrayLike) -> list[list[float]]:
    """Return the numbers of a data set, row by row; integers stay integers."""
    try:
        array = np.asarray(data)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        raise InputError(f"data: found {type(data).__name__}; expected numbers, which can be sent to a program")
    if not array.size:
        return []
    array = array.astype(int) if array.dtype.kind == "b" else array
    return np.atleast_2d(array).reshape(-1, array.shape[-1] if array.ndim else 1).tolist()


def read_rows(content: bytes, size: int | None) -> np.ndarray:
    """Return the numbers of lines that all have `size` numbers, separated by spaces; None means any equal size."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns of an empty answer
            rows = np.loadtxt(io.BytesIO(content), comments=None, ndmin=2)
        if not rows.size or size is None or rows.shape[1] == size:
            return rows
    except ValueError:
        pass
    expected_size = size or len(content.split(b"\n", 1)[0].split())
    for number, line in enumerate(content.split(b"\n"), 1):
        found = _count_numbers(line)
        if not line.strip() or found == expected_size:
            continue
        expected = "1 number" if expected_size == 1 else f"{expected_size} numbers, separated by spaces"
        about, advice = "", "print nothing else"
        if found is not None:
            about = ", 1 number" if found == 1 else f", {found} numbers"
            if size is not None:
                advice += ", or change the shape of an output (shape=, --shape)"
        raise InputError(f"line {number} of the answer is {quote(line)}{about}; expected {expected}; {advice}")
    raise InputError(f"found an answer that cannot be read: {quote(content)}; expected lines of numbers")


def _count_numbers(line: bytes) -> int | None:
    """Return how many numbers a line has; None if it contains anything else."""
    try:
        return len([float(number) for number in line.split()])
    except ValueError:
        return None


def quote(content: bytes, max_bytes: int = 60) -> str:
    """Return the beginning of some bytes for a message."""
    text = content[:max_bytes].decode(errors="replace").strip()
    return repr(text + ("..." if len(content) > max_bytes else ""))
