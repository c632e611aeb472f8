"""Whether a report that was read can be one that a verification wrote: nobody should compute with any other.

This is about damage and nonsense. Who forges a report so that its counts add up is not found out: verify again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpverify.report.statements import check_claim
from dpverify.util.arrays import is_pytree

MAX_RUNS = 1 << 53  # a side
MAX_CELLS = 10**8  # that runs fell into


def check_consistent(report: Any) -> None:
    """Raises where parts of a report, each of its own type already, do not fit together."""
    part, witness, whole = report.on_partition, report.witness, report.on_all_events
    check_claim(report.settings, report.epsilon, report.delta)
    runs, event, picture = witness.runs, witness.event, report.picture
    _require("levels", all(0 < one.alpha < 1 for one in (report, part, witness, whole or part)))
    _require("runs", 1 <= runs <= MAX_RUNS and part.runs == runs)
    _require("counts", all(0 <= count <= runs for count in witness.counts))
    _require("event", event.direction in (0, 1) and event.codes.ndim == 1 and min(witness.shape) >= 1)
    _require("cells", 0 < sum(part.number.ravel().tolist()) <= min(part.cells, MAX_CELLS))
    _check_table(runs, part.c1, part.c2, part.number)
    if whole is not None:
        _require("certificate", whole.runs == runs and whole.variation >= 0)
        _check_table(runs, whole.c1, whole.c2, np.ones_like(whole.c1), whole.rest)
    _require("p-value", (report.p_value is None) == (report.epsilon is None) and 0 <= (report.p_value or 0) <= 1)
    sides = [picture.get(side) for side in ("first", "second")]
    _require("picture", all(isinstance(runs, np.ndarray) and runs.shape[1:] == witness.shape for runs in sides))
    if is_pytree(event.partition):
        event.contains(sides[0][:1])  # parts that do not fit together fail here


def _check_table(runs: int, c1: np.ndarray, c2: np.ndarray, number: np.ndarray, rest: tuple[int, int] = (0, 0)) -> None:
    """Cells by their counts: whole numbers, every run in one cell or in the rest."""
    for column in (c1, c2, number):
        _require("tables", column.ndim == 1 and column.shape == c1.shape and column.dtype == np.int64)
    _require("tables", min(rest) >= 0 and bool((number >= 1).all() and (c1 >= 0).all() and (c2 >= 0).all()))
    for column, left in zip((c1, c2), rest, strict=True):
        found = sum(count * many for count, many in zip(column.tolist(), number.tolist(), strict=True))
        _require("tables", found + left == runs)


def _require(what: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{what}: not what a verification comes to")
