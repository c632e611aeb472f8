"""What a person sees while runs are drawn: a bar on a terminal where rich is installed, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from dpverify.util.formatting import format_count, format_duration

ANNOUNCED_SECONDS = 10.0  # seconds; a shorter run needs no announcement
SECONDS_BETWEEN_LINES = 5.0  # seconds between two plain lines


class Progress:
    """Announces the cost of a long run once the speed is known, then shows how far it is."""

    def __init__(self, shown: bool, kept: bool = False, stream: Any = None):
        self._interrupt = "Ctrl-C keeps what is done" if kept else "Ctrl-C stops it"
        self._stream = stream or sys.stderr
        self._shown = shown
        self._total = self._done = self._skipped = self._timed = 0
        self._stage = ""
        self._first = self._last_line = None
        self._announced = False
        self._bar: Any = None
        self._task: Any = None

    def plan(self, runs: int) -> None:
        """All runs that are still to come, over all stages and both sides."""
        self._total = self._done + runs

    def stage(self, name: str) -> None:
        self._stage = name

    @property
    def done(self) -> int:
        return self._done

    def skip(self, runs: int) -> None:
        """Runs that need not be drawn: an earlier start has done it."""
        self._done += runs
        self._skipped += runs

    def look(self, runs: int, seconds: float) -> None:
        """A first block that took long: nobody should wait for the second one to hear of it."""
        if self._shown and seconds >= ANNOUNCED_SECONDS:
            self._say(f"the first {format_count(runs)} runs took {format_duration(seconds)}; {self._interrupt}")

    def advance(self, runs: int) -> None:
        self._done += runs
        if not self._shown:
            return
        now = time.monotonic()
        if self._first is None:  # the first block pays for compilation and imports: not timed
            self._first = now
            return
        self._timed += runs
        seconds = now - self._first
        if not self._announced and seconds > 0.5:
            self._announce(self._timed / seconds)
            self._last_line = now
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=self._stage)
        elif self._announced and now - (self._last_line or now) >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._say(f"{self._stage}: {format_count(self._done)} of {format_count(self._total)} runs")

    def _announce(self, rate: float) -> None:
        left = (self._total - self._done) / rate
        self._announced = True
        if left < ANNOUNCED_SECONDS:
            self._shown = False
            return
        runs = self._total - self._skipped
        self._say(
            f"about {format_duration(left)} for {format_count(runs)} runs at {format_count(rate)} runs/s; {self._interrupt}"
        )
        if getattr(self._stream, "isatty", lambda: False)():
            self._start_bar()

    def _start_bar(self) -> None:
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

    def _say(self, line: str) -> None:
        print(f"dpverify: {line}", file=self._stream, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
