"""Progress messages while runs are drawn: a bar on a terminal with rich and in notebooks, plain lines elsewhere.

The expected time of a long run is also logged, and nobody waits for more than a minute unannounced: where nothing is
shown because there is no terminal, for example in tests and in CI services, a longer time is a warning.
"""

from __future__ import annotations

import contextlib
import html
import logging
import sys
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from dpverify.errors import DPVerifyWarning
from dpverify.util.formatting import format_count, format_duration

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

LOGGER = logging.getLogger(__name__)
MIN_ANNOUNCED_SECONDS = 10.0  # shorter runs are not announced
MIN_WARNED_SECONDS = 60.0  # longer runs are announced by a warning where nothing is shown; people leave after a minute
MIN_TIMED_SECONDS = 0.5  # after which the speed is known well enough
SECONDS_BETWEEN_LINES = 5.0  # between two plain lines
SECONDS_BETWEEN_DISPLAYS = 0.5  # between two updates of a bar in a notebook


def is_terminal(stream: TextIO | None = None) -> bool:
    """Return whether a stream, by default stderr, is a terminal."""
    return bool(getattr(stream or sys.stderr, "isatty", lambda: False)())


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")  # it is imported in every notebook; importing it elsewhere takes long
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


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
    """

    def __init__(self, shown: bool | None, kept: bool = False, stream: TextIO | None = None):
        self._interrupt = "Ctrl-C stops it and keeps the finished runs" if kept else "Ctrl-C stops it"
        self._in_notebook = stream is None and is_notebook()
        self._stream = stream or (sys.stdout if self._in_notebook else sys.stderr)
        self._shown = self._in_notebook or is_terminal(self._stream) if shown is None else shown
        self._warns = shown is None and not self._shown
        self._total = self._done = self._skipped = self._timed = 0
        self._advice: Callable[[float], str] | None = None
        self._stage = self._note = ""
        self._start: float | None = None
        self._later_rate: float | None = None
        self._last_line: float | None = None
        self._announced = False
        self._lines: set[str] = set()
        self._bar: Bar | None = None

    def plan(self, runs: int, advice: Callable[[float], str] | None = None) -> None:
        """State how many runs are still to be drawn, over all stages and both data sets.

        Parameters
        ----------
        runs : int
            The number of runs.
        advice : callable, optional
            Returns what an announcement adds to the expected time, given the number of runs per second.
        """
        self._total, self._advice = self._done + runs, advice

    def stage(self, name: str) -> None:
        """State the name of the stage that begins."""
        self._stage = name

    def note(self, text: str) -> None:
        """State how far the verification is in other terms than runs; the messages repeat it after the stage."""
        self._note = f", {text}"

    @property
    def done(self) -> int:
        """The number of finished runs, over both data sets."""
        return self._done

    def skip(self, runs: int) -> None:
        """Count runs that need not be drawn, for example because they were finished before a resumed start."""
        self._done += runs
        self._skipped += runs

    def include(self, runs: int) -> None:
        """Count runs that were drawn before the stage began, without using them to measure the speed."""
        self._done += runs

    def announce(self, rate: float) -> None:
        """Announce the expected time before the first block if it is long, given the number of runs per second."""
        if (self._total - self._done) / rate >= MIN_ANNOUNCED_SECONDS:
            self._announce(rate)

    def announce_later(self, rate: float) -> None:
        """Announce the expected time when the first missing block is drawn, because finished runs are not known yet."""
        self._later_rate = rate

    def begin_drawing(self) -> None:
        """State that blocks of a stage are drawn now; an announcement that was postponed counts what is left."""
        rate, self._later_rate = self._later_rate, None
        if rate is not None:
            self.announce(rate)

    def announce_once(self, line: str) -> None:
        """Write a line, unless it was written before."""
        if self._shown and line not in self._lines:
            self._lines.add(line)
            self._write(line)

    def report_first_block(self, runs: int, seconds: float) -> None:
        """Report the time of the first block if it was long and nothing was announced before it."""
        if self._shown and not self._announced and seconds >= MIN_ANNOUNCED_SECONDS:
            self._write(f"the first {format_count(runs)} runs took {format_duration(seconds)}; {self._interrupt}")

    def advance(self, runs: int) -> None:
        """Count finished runs, and write a message if it is time for one."""
        self._done += runs
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
            self._bar.update(self._done, self._stage + self._note)
        elif self._announced and (self._last_line is None or now - self._last_line >= SECONDS_BETWEEN_LINES):
            self._last_line = now
            self._write(f"{self._stage}{self._note}: {format_count(self._done)} of {format_count(self._total)} runs")

    def _announce(self, rate: float) -> None:
        """Write the expected time, or nothing at all if the run is short."""
        seconds_left = (self._total - self._done) / rate
        self._announced = True
        if seconds_left < MIN_ANNOUNCED_SECONDS:
            self._shown = False
            return
        runs = format_count(self._total - self._skipped)
        speed = f"{format_count(rate) if rate >= 10 else f'{rate:.2g}'} runs/s"
        advice = f"; {self._advice(rate)}" if self._advice is not None else ""
        line = f"about {format_duration(seconds_left)} for {runs} runs at {speed}{advice}; {self._interrupt}"
        LOGGER.log(logging.INFO if seconds_left < MIN_WARNED_SECONDS else logging.WARNING, line)
        if not self._shown:
            if self._warns and seconds_left >= MIN_WARNED_SECONDS:
                with contextlib.suppress(DPVerifyWarning):  # where warnings are errors, a slow run is none
                    warnings.warn(line, DPVerifyWarning, stacklevel=2)
            return
        self._write(line)
        if self._in_notebook:
            self._bar = NotebookBar(self._total)
        elif is_terminal(self._stream):
            self._bar = start_rich_bar(self._stream, self._total)

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

    def __init__(self, bar: RichProgress, task: TaskID):
        self._bar, self._task = bar, task

    def update(self, done: int, stage: str) -> None:
        self._bar.update(self._task, completed=done, description=stage)

    def close(self) -> None:
        self._bar.stop()


def start_rich_bar(stream: TextIO, total: int) -> RichBar | None:
    """Start a bar on a terminal; None if rich is not installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
    except ImportError:
        return None
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    bar = RichProgress(*columns, console=Console(file=stream), transient=True)
    task = bar.add_task("first runs", total=total)
    bar.start()
    return RichBar(bar, task)


class NotebookBar:
    """A bar in a notebook: one output that is replaced."""

    def __init__(self, total: int):
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
