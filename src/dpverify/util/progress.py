"""Progress messages while runs are drawn: a bar on a terminal where rich is installed, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

from dpverify.util.formatting import format_count, format_duration

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

MIN_ANNOUNCED_SECONDS = 10.0  # shorter runs are not announced
MIN_TIMED_SECONDS = 0.5  # after which the speed is known well enough
SECONDS_BETWEEN_LINES = 5.0  # between two plain lines


class Progress:
    """Announces the expected time of a long run as soon as the speed is known, then shows how many runs are done.

    Parameters
    ----------
    shown : bool
        Whether anything is written.
    kept : bool
        Whether finished runs are stored in a checkpoint folder; the messages say what Ctrl-C does.
    stream : text stream, optional
        Standard error unless given.
    """

    def __init__(self, shown: bool, kept: bool = False, stream: TextIO | None = None):
        self._interrupt = "Ctrl-C stops it and keeps the finished runs" if kept else "Ctrl-C stops it"
        self._stream = stream or sys.stderr
        self._shown = shown
        self._total = self._done = self._skipped = self._timed = 0
        self._stage = ""
        self._start: float | None = None
        self._last_line: float | None = None
        self._announced = False
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def plan(self, runs: int) -> None:
        """State how many runs are still to be drawn, over all stages and both data sets."""
        self._total = self._done + runs

    def stage(self, name: str) -> None:
        """State the name of the stage that begins."""
        self._stage = name

    @property
    def done(self) -> int:
        """The number of finished runs, over both data sets."""
        return self._done

    def skip(self, runs: int) -> None:
        """Count runs that were already finished when the verification was resumed."""
        self._done += runs
        self._skipped += runs

    def look(self, runs: int, seconds: float) -> None:
        """Report the time of the first block if it was long, before the second block begins."""
        if self._shown and seconds >= MIN_ANNOUNCED_SECONDS:
            self._write(f"the first {format_count(runs)} runs took {format_duration(seconds)}; {self._interrupt}")

    def advance(self, runs: int) -> None:
        """Count finished runs, and write a message if it is time for one."""
        self._done += runs
        if not self._shown:
            return
        now = time.monotonic()
        if self._start is None:  # the first block includes compilation and imports, so it is not timed
            self._start = now
            return
        self._timed += runs
        seconds = now - self._start
        if not self._announced and seconds > MIN_TIMED_SECONDS:
            self._announce(self._timed / seconds)
            self._last_line = now
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, description=self._stage)
        elif self._announced and now - (self._last_line or now) >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._write(f"{self._stage}: {format_count(self._done)} of {format_count(self._total)} runs")

    def _announce(self, rate: float) -> None:
        """Write the expected time, or nothing at all if the run is short."""
        seconds_left = (self._total - self._done) / rate
        self._announced = True
        if seconds_left < MIN_ANNOUNCED_SECONDS:
            self._shown = False
            return
        runs = format_count(self._total - self._skipped)
        speed = f"{format_count(rate)} runs/s"
        self._write(f"about {format_duration(seconds_left)} for {runs} runs at {speed}; {self._interrupt}")
        if getattr(self._stream, "isatty", lambda: False)():
            self._start_bar()

    def _start_bar(self) -> None:
        """Start a progress bar if rich is installed."""
        try:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
        except ImportError:
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=Console(file=self._stream), transient=True)
        self._task = self._bar.add_task(self._stage, total=self._total)
        self._bar.start()

    def _write(self, line: str) -> None:
        """Write one line."""
        print(f"dpverify: {line}", file=self._stream, flush=True)

    def close(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
