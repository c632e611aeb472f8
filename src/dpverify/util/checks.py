"""TODO."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpverify.errors import InputError


def check_level(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise InputError(f"{name}: found {value}; expected a number between 0 and 1")


def check_epsilon(epsilon: float) -> None:
    if not (isinstance(epsilon, (int, float, np.number)) and 0 <= epsilon < math.inf):
        raise InputError(f"epsilon: found {epsilon!r}; expected a finite number from 0 up")


def check_delta(delta: float) -> None:
    if not (isinstance(delta, (int, float, np.number)) and 0 <= delta < 1):
        raise InputError(f"delta: found {delta!r}; expected a number from 0 up and below 1")


def runs_per_side(runs: Any) -> tuple[int, int]:
    m1, m2 = (runs, runs) if np.ndim(runs) == 0 else runs
    if not (m1 >= 1 and m2 >= 1 and int(m1) == m1 and int(m2) == m2):
        raise InputError(f"runs: found {runs}; expected a whole number from 1 up, or one a side")
    return int(m1), int(m2)


def checked_columns(counts1: Any, counts2: Any, runs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two columns of cell counts, checked: a sum above the runs would turn limits into NaN further down."""
    c1, c2 = np.asarray(counts1, float), np.asarray(counts2, float)
    if c1.shape != c2.shape or c1.ndim != 1:
        raise InputError(
            f"counts: found shapes {c1.shape} and {c2.shape}; expected one number a cell, both sides alike"
        )
    for c, m in zip((c1, c2), runs_per_side(runs), strict=True):
        if not ((c >= 0).all() and c.sum() <= m):
            raise InputError(
                f"counts: found a sum of {c.sum():g} for {m} runs; expected counts from 0 up, at most one a run"
            )
    return c1, c2
