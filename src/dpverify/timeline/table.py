"""The privacy of many records over time: a table epsilon(record, step)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dpverify.errors import InputError
from dpverify.mechanisms.data_pairs import check_pairs
from dpverify.sampling.executors import open_pool
from dpverify.settings import Settings
from dpverify.timeline import documents, texts
from dpverify.timeline.record_bounds import RecordBounds
from dpverify.timeline.result import PrivacyOverTime
from dpverify.util.checks import shorten
from dpverify.util.files import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Measure = Callable[[str, tuple[object, object], Settings, int | Executor | None, str | None], PrivacyOverTime]


@dataclass(frozen=True, eq=False)
class PrivacyTable(RecordBounds):
    """The privacy of several records over time, as `privacy_over_time(..., pairs=...)` returns it.

    `print` shows one line per record.

    Attributes
    ----------
    curves : tuple of PrivacyOverTime
        The result of each record.
    jointly : bool
        Whether the bounds of all records hold together with confidence 1 - alpha. Otherwise the bounds of each record
        hold for all its steps together with this confidence.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def noisy_stream(data, runs, rng):
    ...     return data + rng.laplace(size=(runs, *data.shape))
    >>> pairs = dpv.neighbours.one_reading(np.zeros((3, 1)), change=2.0)
    >>> table = dpv.privacy_over_time(noisy_stream, pairs=pairs, select_runs=4000, test_runs=9000)
    >>> table.start
    (0, 1, 2)
    """

    curves: tuple[PrivacyOverTime, ...]

    def __getitem__(self, record: str) -> PrivacyOverTime:
        """Return the result of one record."""
        for curve in self.curves:
            if curve.record == record:
                return curve
        raise KeyError(record)

    @property
    def sentences(self) -> tuple[str, ...]:
        """For each record in words by which step it is proved to be visible and what it costs."""
        return tuple(texts.loss_sentence(curve) for curve in self.curves)

    def to_json(self, path: str | Path | TextIO) -> None:
        """Write the table as JSON to a file, or to a stream that is open for text."""
        documents.write_result(self, {"steps": self.rows()}, path)

    @classmethod
    def from_json(cls, path: str | Path) -> PrivacyTable:
        """Read a table that `to_json` wrote. All bounds are computed from the counts in the file."""
        return documents.read_result(cls, path, PrivacyOverTime)

    def to_html(self, path: str | Path) -> None:
        """Write the table as one self-contained HTML page (needs `dpverify[report]`)."""
        write_file(path, documents.load_pages().table_page(self))

    def plot(self) -> Figure:
        """Return a heat map of the lower bounds (needs `dpverify[report]`)."""
        return documents.load_pages().table_plot(self)

    def __str__(self) -> str:
        """Return the table as plain text."""
        return texts.table_text(self)


def measure_records(
    measure: Measure,
    pairs: Mapping[str, tuple[object, object]],
    jointly: bool,
    settings: Settings,
    executor: int | Executor | None,
    folder: str | os.PathLike[str] | None,
) -> PrivacyTable:
    """Measure every record with its own seed, and in its own sub-folder if there is a folder.

    Raises
    ------
    InputError
        If there is no pair, an entry is no pair, or the outputs of two records have different numbers of steps.
    """
    if not isinstance(pairs, Mapping) or not pairs:
        raise InputError(f"pairs: found {shorten(pairs)}; expected a mapping from names to (first, second)")
    check_pairs(pairs, tuple(pairs.values()))
    if jointly:
        settings = settings.change(alpha=settings.alpha / len(pairs))
    curves: list[PrivacyOverTime] = []
    with open_pool(executor) as pool:
        for number, (record, (first, second)) in enumerate(pairs.items()):
            place = None if folder is None else str(Path(folder) / str(number))
            curves.append(measure(str(record), (first, second), settings.spawn(number), pool.executor, place))
            if curves[-1].steps != curves[0].steps:
                raise InputError(
                    f"pairs: found outputs of {curves[0].steps} and {curves[-1].steps} steps for {curves[0].record!r} "
                    f"and {curves[-1].record!r}; expected equal lengths; use data sets of one horizon"
                )
    return PrivacyTable(tuple(curves), jointly)
