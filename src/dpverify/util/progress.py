"""Progress messages while runs are drawn: a bar on a terminal with rich and in notebooks, plain lines elsewhere.

The expected time of a long run is also logged, and nobody waits for more than a minute unannounced: where nothing is
shown because there is no terminal, for example in tests and in CI services, a longer time is a warning.
"""

from __future__ import annotations

import contextlib
import html
import logging
import math
import sys
import time
import warnings
from typing import Any, Protocol, TextIO

from dpverify.errors import DPVerifyWarning
from dpverify.util.formatting import format_count, format_duration

LOGGER = logging.getLogger(__name__)
MIN_ANNOUNCED_SECONDS = 10.0  # shorter runs are not announced
MIN_WARNED_SECONDS = 60.0  # longer runs are announced by a warning where nothing is shown; people leave after a minute
MIN_TIMED_SECONDS = 0.5  # after which the speed is known well enough
SECONDS_BETWEEN_LINES = 5.0  # between two plain lines
SECONDS_BETWEEN_DISPLAYS = 0.5  # between two updates of a bar in a notebook


class Bar(Protocol):
    """A progress bar."""

    def update(self, done: int, stage: str) -> None: ...

    def close(self) -> None: ...


class Progress:
    """Announces the expected time of a long run before it starts, then shows how many runs are done.

    Parameters
    ----------
    shown : bool or None
        Whether anything is written. None writes on a terminal and in notebooks.
    kept : bool
        Whether finished runs are stored in a checkpoint folder; the messages say what Ctrl-C does.
    stream : text stream, optional
        Standard error unless given. In notebooks standard output, because notebooks show standard error as a failure.

    Attributes
    ----------
    done : int
        The number of finished runs, over both datasets.
    """

    def __init__(self, shown: bool | None, kept: bool = False, stream: TextIO | None = None):
        ipython = sys.modules.get("IPython")  # it is imported in every notebook; importing it elsewhere takes long
        in_notebook = stream is None and ipython is not None and hasattr(ipython.get_ipython(), "kernel")
        self._stream = stream or (sys.stdout if in_notebook else sys.stderr)
        is_terminal = bool(getattr(self._stream, "isatty", lambda: False)())
        self._make_bar = NotebookBar if in_notebook else RichBar if is_terminal else None
        self._shown = in_notebook or is_terminal if shown is None else shown
        self._warns = shown is None and not self._shown
        self._interrupt = "Ctrl-C stops it and keeps the finished runs" if kept else "Ctrl-C stops it"
        self.done = self._total = self._timed = 0
        self._stage = self._note = self._advice = ""
        self._later_rate: float | None = None
        self._start: float | None = None
        self._last_line = -math.inf
        self._announced = False
        self._bar: Bar | None = None

    def plan(self, runs: int, advice: str = "") -> None:
        """State how many runs are still to be drawn, over all stages and both datasets.

        Parameters
        ----------
        runs : int
            The number of runs.
        advice : str
            What the announcement of a run of more than a minute adds to the expected time.
        """
        self._total, self._advice = self.done + runs, advice

    def stage(self, name: str, is_drawn: bool = True) -> None:
        """State the stage that begins, after its finished runs were skipped, and whether any run is still drawn."""
        self._stage = name
        if is_drawn and self._later_rate is not None:
            rate, self._later_rate = self._later_rate, None
            self.announce(rate)

    def note(self, text: str) -> None:
        """State how far the verification is in other terms than runs; the messages repeat it after the stage."""
        self._note = f", {text}"

    def skip(self, runs: int) -> None:
        """Count runs that need not be drawn, for example because they were finished before a resumed start."""
        self.done += runs

    def announce(self, rate: float, is_resumed: bool = False) -> None:
        """Announce the expected time if it is long, given the number of runs per second.

        A resumed run does not know yet what is finished. It is announced when the first missing block is drawn.
        """
        if is_resumed:
            self._later_rate = rate
        elif (self._total - self.done) / rate >= MIN_ANNOUNCED_SECONDS:
            self._announce(rate)

    def advance(self, runs: int) -> None:
        """Count finished runs, and write a message if it is time for one."""
        self.done += runs
        if not self._shown:
            return
        now = time.monotonic()
        if self._start is None:  # the first block includes compilation and imports, so it is not timed
            self._start = now
        else:
            self._timed += runs
            seconds = now - self._start
            if not self._announced and seconds > MIN_TIMED_SECONDS:
                self._announce(self._timed / seconds)
                self._last_line = now
        if self._bar is not None:
            self._bar.update(self.done, self._stage + self._note)
        elif self._announced and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._write(f"{self._stage}{self._note}: {format_count(self.done)} of {format_count(self._total)} runs")

    def _announce(self, rate: float) -> None:
        """Write the expected time, or nothing at all if the run is short."""
        self._announced = True
        runs = self._total - self.done
        seconds_left = runs / rate
        if seconds_left < MIN_ANNOUNCED_SECONDS:
            self._shown = False
            return
        speed = f"{format_count(rate) if rate >= 10 else f'{rate:.2g}'} runs/s"
        advice = f"; {self._advice}" if self._advice and seconds_left >= MIN_WARNED_SECONDS else ""
        line = f"about {format_duration(seconds_left)} for {format_count(runs)} runs at {speed}{advice}"
        line += f"; {self._interrupt}"
        LOGGER.log(logging.INFO if seconds_left < MIN_WARNED_SECONDS else logging.WARNING, line)
        if not self._shown:
            if self._warns and seconds_left >= MIN_WARNED_SECONDS:
                with contextlib.suppress(DPVerifyWarning):  # where warnings are errors, a slow run is none
                    warnings.warn(line, DPVerifyWarning, stacklevel=2)
            return
        self._write(line)
        if self._make_bar is not None:
            with contextlib.suppress(ImportError):  # without rich there are lines
                self._bar = self._make_bar(self._total, self._stream)

    def _write(self, line: str) -> None:
        """Write one line."""
        print(f"dpverify: {line}", file=self._stream, flush=True)

    def close(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class RichBar:
    """A bar on a terminal."""

    def __init__(self, total: int, stream: TextIO):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        percent = TextColumn("{task.percentage:>3.0f}%")
        columns = TextColumn("{task.description}", markup=False), BarColumn(), percent, TimeRemainingColumn()
        self._bar = Progress(*columns, console=Console(file=stream), transient=True)
        self._task = self._bar.add_task("first runs", total=total)
        self._bar.start()

    def update(self, done: int, stage: str) -> None:
        self._bar.update(self._task, completed=done, description=stage)

    def close(self) -> None:
        self._bar.stop()


class NotebookBar:
    """A bar in a notebook: one output that is replaced."""

    def __init__(self, total: int, stream: TextIO):
        from IPython.display import display  # type: ignore[import-not-found]

        self._total, self._last = total, time.monotonic()
        self._handle: Any = display(self._content(0, "first runs"), raw=True, display_id=True)

    def _content(self, done: int, stage: str) -> dict[str, str]:
        text = f"{stage}: {format_count(done)} of {format_count(self._total)} runs"
        bar = f'<progress value="{done}" max="{self._total}" style="width: 20em"></progress>'
        return {"text/plain": text, "text/html": f"{bar} {html.escape(text)}"}

    def update(self, done: int, stage: str) -> None:
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_DISPLAYS:
            self._last = now
            self._handle.update(self._content(done, stage), raw=True)

    def close(self) -> None:
        self._handle.update({"text/plain": "", "text/html": ""}, raw=True)
