"""Results as JSON documents with a checksum, for reports and for results over time.

A document has the keys `format` (a whole number), `result`, `summary`, `provenance` and `checksum`. `result` has the
stored fields; the reader computes everything else from them. `summary` has derived numbers for other readers and is
never read back. Any change of a file is found by its checksum, so only structure, types and sizes are checked besides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import numpy as np

from dpverify.errors import InputError
from dpverify.util.files import write_text
from dpverify.util.formatting import one_line, too_little_memory
from dpverify.util.serialization import from_plain, to_plain

if TYPE_CHECKING:
    from dpverify.report.report import Report

Document = dict[str, Any]  # a JSON object
R = TypeVar("R")

FORMAT = 1
MAX_OCCUPIED_CELLS = 2 * 10**7  # the bounds over so many cells need 1 GB


def dump(document: Mapping[str, object]) -> str:
    """Return compact JSON with sorted keys; NaN and infinity are refused."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: object) -> str:
    """Return a hash of what is stored as the result; the provenance is not part of it."""
    plain = {name: entry for name, entry in to_plain(value).items() if name != "provenance"}
    return hashlib.sha256(dump(plain).encode()).hexdigest()


def with_checksum(document: Mapping[str, object]) -> Document:
    """Return the document with a checksum over everything else in it."""
    content = {name: value for name, value in document.items() if name != "checksum"}
    return {**content, "checksum": hashlib.sha256(dump(content).encode()).hexdigest()}


def write(value: object, summary: Mapping[str, object], target: str | Path | TextIO) -> None:
    """Write a result to a file, or to a text stream that is open."""
    result = to_plain(value)
    document = {"format": FORMAT, "provenance": result.pop("provenance", {}), "result": result}
    text = dump(with_checksum({**document, "summary": to_plain(dict(summary))})) + "\n"
    if isinstance(target, (str, Path)):
        write_text(target, text)
    else:
        target.write(text)


def read(kind: type[R], path: str | Path, kinds: tuple[type, ...], check: Callable[[R], None] | None = None) -> R:
    """Read a result; raise InputError if the file is damaged, has another format, or holds another kind of result."""
    noun = kind.__name__
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        found, result = document["format"], document["result"]
        if found == FORMAT and result["kind"] == noun:
            if document["checksum"] != with_checksum(document)["checksum"]:
                raise ValueError("found another checksum")
            value: R = from_plain({**result, "provenance": document["provenance"]}, (kind, *kinds))
            if check is not None:
                check(value)
            return value
        advice = "update dpverify to read it" if found > FORMAT else "verify again"
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror}; expected a {noun} written by to_json") from None
    except MemoryError as problem:
        raise InputError(too_little_memory(path, problem)) from None
    except Exception as problem:  # a damaged file can raise any exception
        reason = f"{type(problem).__name__}: {one_line(problem)}"
        raise InputError(
            f"{path}: found no {noun}, a damaged one or one of a later version ({reason}); expected JSON as to_json "
            "wrote it; write it again, or update dpverify"
        ) from None
    if found == FORMAT:
        raise InputError(f"{path}: found a {one_line(result['kind'])}; expected a {noun}; read it with that class")
    raise InputError(f"{path}: found format {one_line(found)}; expected {FORMAT}; {advice}")


def check_report(report: Report) -> None:
    """Raise ValueError unless the columns of counts fit together and need no more memory than a verification."""
    cells, delta, sequence = report.cell_counts, report.delta_events, report.sequence
    groups = [((cells.c1, cells.c2, cells.number), cells.runs)]
    groups += [] if report.certificate_counts is None else [report.certificate_counts.columns]
    groups += [((delta.c1, delta.c2), delta.runs)] if delta else []
    groups += [((sequence.bets.c1, sequence.bets.c2), sequence.runs_used)] if sequence else []
    groups += [((np.array(one.counts),), one.runs) for one in report.tested]
    for columns, runs in groups:
        if any(column.shape != columns[0].shape or column.dtype.kind != "i" for column in columns):
            raise ValueError("counts: expected columns of whole numbers with equal lengths")
        if any(((column < 0) | (column > max(runs, 1))).any() for column in columns[:2]):
            raise ValueError(f"counts: expected numbers from 0 to {runs}")
    most = min(2 * cells.runs, MAX_OCCUPIED_CELLS)  # every occupied cell has a run
    if not report.tested or not 0 <= sum(cells.number.tolist()) <= most:
        raise ValueError(f"counts: expected a tested event, and at most {most} occupied cells")


def _refuse_constant(constant: str) -> None:
    """Raise ValueError: NaN and Infinity are not JSON."""
    raise ValueError(f"{constant} is not JSON")
