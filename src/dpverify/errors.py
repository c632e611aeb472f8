"""What can go wrong, each kind once. Every message says what was found, what was expected and what to do."""

from __future__ import annotations

import enum
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

OURS = str(Path(__file__).parent)
INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def raised_at(problem: BaseException) -> str:
    """ " (at file.py, line 7)": the last line that ran of what is not ours, the user's own before a library's."""
    found = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(problem.__traceback__)]
    theirs = [place for place in found if not place[0].startswith(("<", OURS))]
    own = [place for place in theirs if not place[0].startswith(INSTALLED)]
    return next((f" (at {Path(name).name}, line {line})" for name, line in reversed(own or theirs)), "")


class InputError(ValueError):
    """Something handed in cannot be used."""


class MechanismError(RuntimeError):
    """The mechanism itself failed or answered badly; the original exception, if any, is the cause."""

    def __init__(self, message: str, stage: str, side: int, block: int):
        super().__init__(message)
        self.stage, self.side, self.block = stage, side, block

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self), (self.args[0], self.stage, self.side, self.block)


class FolderError(RuntimeError):
    """A checkpoint folder belongs to another run, was written by a newer version, or is damaged."""


class StopReason(enum.Enum):
    """Why a run ended before its result; the value is the phrase that messages contain."""

    KEYBOARD = "stopped by the keyboard"
    WORKERS_LOST = "the workers were lost"
    OUT_OF_MEMORY = "out of memory"
    DISK = "the disk failed"
    NO_SCHEDULER = "no scheduler was found"
    UNKNOWN = "the run ended early"


class Stopped(RuntimeError):
    """The run ended before its result.

    Attributes
    ----------
    folder : str or None
        The checkpoint folder that holds the finished part; None if nothing was saved.
    done : int
        The number of runs (in a study: of verifications) that were finished.
    reason : StopReason
        Why the run ended.
    """

    def __init__(
        self, message: str, folder: str | None = None, done: int = 0, reason: StopReason = StopReason.UNKNOWN
    ):
        super().__init__(message)
        self.folder, self.done, self.reason = folder, done, reason

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self), (self.args[0], self.folder, self.done, self.reason)


class Warning(UserWarning):
    """Worth knowing, not fatal; what concerns the result stands in `report.notes` too."""


class TooWeak(AssertionError):
    """Nothing was refuted, and too few runs were asked for to have seen the violation that had to be seen."""

    def __init__(self, message: str, report: Any = None, needed: int | None = None):
        super().__init__(message)
        self.report, self.needed = report, needed

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self), (self.args[0], self.report, self.needed)
