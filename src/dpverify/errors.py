"""The exceptions and the warning of the package.

Every message is one line: `X must be ..., not ...`, `unknown X; did you mean Y?`, `use A or B, not both`, or
`name: found X; expected Y; do Z`.
"""

from __future__ import annotations

import enum
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

PACKAGE_FOLDER = str(Path(__file__).parent)
LIBRARY_FOLDERS = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
COMPILED_SUFFIXES = (".pyx", ".pxd", ".pxi")  # sources of Cython


def _is_installed(file: str) -> bool:
    """Return whether a file of a traceback belongs to Python or to an installed library.

    Compiled libraries name their sources relative to a folder that is not here, for example numpy/random/_common.pyx.
    """
    return file.startswith(LIBRARY_FOLDERS) or (file.endswith(COMPILED_SUFFIXES) and not Path(file).is_file())


def raised_at(problem: BaseException) -> str:
    """Return " (at file.py, line 7)", the last line outside this package that ran before an exception.

    A line of the user's own code is preferred to a line of an installed library. The result is empty where there is
    none.
    """
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(problem.__traceback__)]
    outside = [(file, line) for file, line in lines if not file.startswith(("<", PACKAGE_FOLDER))]
    own = [(file, line) for file, line in outside if not _is_installed(file)]
    for file, line in reversed(own or outside):
        return f" (at {Path(file).name}, line {line})"
    return ""


def is_users(problem: BaseException) -> bool:
    """Return whether code of the user, called by this package, raised an exception."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(problem.__traceback__)]
    inside = [number for number, file in enumerate(files) if file.startswith(PACKAGE_FOLDER)]
    called = files[inside[-1] + 1 :] if inside else []
    return any(not file.startswith("<") and not _is_installed(file) for file in called)


def describe_exception(problem: BaseException, shorten: Callable[[str], str] = str) -> str:
    """Return the type of an exception, its message and the place, for example "KeyError: 'a' (at file.py, line 7)".

    `shorten` is applied to the message.
    """
    try:
        message = shorten(str(problem))
    except BaseException as second:  # the exception is a class of the user, and this method has an error
        if isinstance(second, KeyboardInterrupt):
            raise
        message = "its message cannot be read"
    return f"{type(problem).__name__.lstrip('_')}: {message}{raised_at(problem)}"


def how_to_install(extra: str) -> str:
    """Return the command that installs an optional part of the package.

    Examples
    --------
    >>> print(how_to_install("report"))
    pip install ".[report]" in a clone of dpverify
    """
    return f'pip install ".[{extra}]" in a clone of dpverify'


class InputError(ValueError):
    """An argument, a file or a setting cannot be used. The message names it, what was found and what was expected.

    Examples
    --------
    >>> import dpverify
    >>> dpverify.plan_runs(epsilon=-1, true_epsilon=1, event_mass=0.5)
    Traceback (most recent call last):
    dpverify.errors.InputError: epsilon must be 0 or more and finite, not -1
    """


class NoAnswer(InputError):
    """A diagnostic voids a verification that a function of several verifications needs; the message names the cause."""


class OutputError(OSError, InputError):
    """A file cannot be written. It is an InputError and an OSError, so that a program can catch either of them.

    Parameters
    ----------
    errno : int or None
        The number of the error.
    reason : str
        The reason in words.
    path : str
        The file, as the caller has named it.

    Examples
    --------
    >>> print(OutputError(2, "No such file or directory", "nowhere/report.html"))
    nowhere/report.html: No such file or directory; expected a path that can be written
    """

    def __init__(self, errno: int | None, reason: str, path: str):
        super().__init__(errno, reason, path)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}; expected a path that can be written"


class MechanismError(RuntimeError):
    """The mechanism raised an exception, or its output cannot be used. An exception of the mechanism is the cause.

    Parameters
    ----------
    message : str
        One line for the user.
    stage : str
        The stage of the verification: "pilot", "train", "propose", "decide" or "test".
    side : int
        0 for the first dataset, 1 for the second.
    block : int
        The number of the block, from 0 up.

    Examples
    --------
    >>> error = MechanismError("division by zero", "test", 0, 3)
    >>> error.stage, error.side, error.block
    ('test', 0, 3)
    """

    def __init__(self, message: str, stage: str, side: int, block: int):
        super().__init__(message)
        self.stage, self.side, self.block = stage, side, block

    def __reduce__(self) -> tuple[Callable[..., MechanismError], tuple[object, ...]]:
        return type(self), (self.args[0], self.stage, self.side, self.block)


class FolderError(RuntimeError):
    """A checkpoint folder belongs to another run, was written by a newer version, or is damaged.

    Examples
    --------
    >>> issubclass(FolderError, RuntimeError)
    True
    """


class StopReason(enum.Enum):
    """Why a run ended before its result; the value is the phrase that messages contain."""

    KEYBOARD = "stopped by the keyboard"
    WORKERS_LOST = "the workers were lost"
    OUT_OF_MEMORY = "out of memory"
    DISK = "the disk failed"
    NO_SCHEDULER = "no scheduler was found"
    TIME_LIMIT = "the time limit was reached"
    UNKNOWN = "the run ended early"


class Stopped(RuntimeError):
    """The verification ended before its result, for example by Ctrl-C.

    Parameters
    ----------
    message : str
        One line for the user.
    folder : str, optional
        The checkpoint folder from which the same call resumes; None if nothing was saved.
    done : int
        The number of runs (in a study: of verifications) that were finished.
    reason : StopReason
        Why the run ended.

    Examples
    --------
    >>> stopped = Stopped("stopped by the keyboard after 2 000 runs", "night", 2000, StopReason.KEYBOARD)
    >>> stopped.folder, stopped.done, stopped.reason.name
    ('night', 2000, 'KEYBOARD')
    """

    def __init__(self, message: str, folder: str | None = None, done: int = 0, reason: StopReason = StopReason.UNKNOWN):
        super().__init__(message)
        self.folder, self.done, self.reason = folder, done, reason

    def __reduce__(self) -> tuple[Callable[..., Stopped], tuple[object, ...]]:
        return type(self), (self.args[0], self.folder, self.done, self.reason)


class TimeLimitReached(KeyboardInterrupt):
    """The time limit of a combination of a study was reached. Code that lets Ctrl-C pass lets this pass, too."""


class DPVerifyWarning(UserWarning):
    """A problem that does not prevent a result. A warning that concerns the result is also part of `report.notes`."""


class TooWeak(AssertionError):
    """The claim was not refuted, but there were too few test runs to detect the violation that had to be detected.

    Parameters
    ----------
    message : str
        One line for the user.
    report : Report, optional
        The report of the verification.
    needed : int, optional
        A number of test runs per dataset that is enough; None if unknown.

    Examples
    --------
    >>> weak = TooWeak("2000 test runs are too few", needed=5000)
    >>> weak.needed
    5000
    """

    def __init__(self, message: str, report: object = None, needed: int | None = None):
        super().__init__(message)
        self.report, self.needed = report, needed

    def __reduce__(self) -> tuple[Callable[..., TooWeak], tuple[object, ...]]:
        return type(self), (self.args[0], self.report, self.needed)
