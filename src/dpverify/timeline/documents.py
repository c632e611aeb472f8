"""JSON documents of results over time, and the import of the pages, which need matplotlib and Jinja2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO, TypeVar

import numpy as np

from dpverify.errors import InputError, how_to_install
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.document import dump_json, has_checksum, with_checksum
from dpverify.settings import Settings
from dpverify.stats.claim_kinds import CLAIM_KINDS
from dpverify.timeline.events import PREFIX_EVENT_KINDS, PrefixEvents
from dpverify.timeline.looks import PlannedLook, plan_looks
from dpverify.util.files import write_file
from dpverify.util.formatting import one_line, too_little_memory
from dpverify.util.serialization import from_plain, to_plain

SCHEMA = 1
KINDS = (*PREFIX_EVENT_KINDS, Settings, Diagnostic, *CLAIM_KINDS)
R = TypeVar("R")


def write_result(result: object, columns: Mapping[str, object], target: str | Path | TextIO) -> None:
    """Write a result to a file or a stream; `columns` are derived numbers for other readers."""
    document = {"schema": SCHEMA, "result": to_plain(result), **to_plain(dict(columns))}
    text = dump_json(with_checksum(document)) + "\n"
    if isinstance(target, (str, Path)):
        write_file(target, text)
    else:
        target.write(text)


def read_result(kind: type[R], path: str | Path, *parts: type) -> R:
    """Read a result; raise InputError if the file is damaged, has a newer schema, or holds another kind of result."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        schema, found = document["schema"], document["result"]["kind"]
        if not isinstance(schema, int):
            raise TypeError("no schema that is a whole number")
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror}; expected a result written by to_json") from None
    except MemoryError as problem:
        raise InputError(too_little_memory(path, problem)) from None
    except Exception as problem:  # a damaged file can raise any exception
        raise InputError(f"{path}: not a result over time ({one_line(problem)}); expected JSON of to_json") from None
    if schema > SCHEMA:
        raise InputError(f"{path}: found schema {schema}; expected at most {SCHEMA}; update dpverify to read it")
    if found != kind.__name__:
        raise InputError(f"{path}: found a {one_line(found)}; expected a {kind.__name__}; read it with that class")
    try:
        result = from_plain(document["result"], (kind, *parts, *KINDS))
        for curve in getattr(result, "curves", (result,)):
            check_counts(curve.events, curve.counts, curve.shape, plan_looks(curve.settings))
        if not has_checksum(document):
            raise ValueError("found another checksum")
    except MemoryError as problem:
        raise InputError(too_little_memory(path, problem)) from None
    except Exception as problem:
        reason = f"{type(problem).__name__}: {one_line(problem)}"
        raise InputError(f"{path}: a damaged result ({reason}); write it again") from None
    return result


def check_counts(
    events: PrefixEvents, counts: np.ndarray, shape: tuple[int, int], looks: tuple[PlannedLook, ...]
) -> None:
    """Raise ValueError unless the events and the counts fit each other and one of the looks."""
    check_events(events, shape[0])
    size = shape[0], events.edges.shape[1] + 1
    if counts.shape != (2, *size) or counts.dtype.kind != "i":
        raise ValueError(f"counts: found shape {counts.shape}; expected {(2, *size)}")
    numbers = [look.runs for look in looks]
    totals = np.unique(counts.sum(-1))
    if (counts < 0).any() or totals.size != 1 or totals[0] not in numbers:
        raise ValueError(f"counts: expected {' or '.join(map(str, numbers))} test runs in every row")


def check_events(events: PrefixEvents, steps: int) -> None:
    """Raise ValueError if the events of all prefixes do not fit together."""
    edges = events.edges
    columns = (events.choice, events.direction, events.threshold, events.tested)
    if any(column.shape != (steps,) for column in columns) or edges.ndim != 2 or len(edges) != steps:
        raise ValueError(f"events: expected one entry for each of {steps} steps")
    if not all(threshold in own for threshold, own in zip(events.threshold, edges, strict=True)):
        raise ValueError("events: expected every threshold among the edges")
    if not events.tested.any() or not np.isin(events.direction, (0, 1)).all():
        raise ValueError("events: expected a tested step, and directions 0 or 1")


def load_pages() -> Any:
    """Return the module that draws figures and pages. It needs matplotlib and Jinja2, so it is imported when used."""
    try:
        from dpverify.timeline import pages
    except ImportError as problem:
        raise InputError(f"a page: {problem}; expected matplotlib and Jinja2; {how_to_install('report')}") from None
    module: ModuleType = pages
    return module
