"""The streams and the processes of the command.

A child process does the work, and this process reports how the child has ended: a mechanism can end the process that
calls it, for example with `os._exit(0)` or by a crash in C code, and exit status 0 would look like "not refuted". So
only a status counts that the child has stated when it was done.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import mmap
import os
import signal
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NamedTuple, NoReturn, TextIO

from dpverify.errors import DPVerifyWarning, InputError
from dpverify.util.formatting import one_line

MAX_ERROR_LENGTH = 2000  # of an error line: a message names at most a few paths and numbers
PARENT_POLL_SECONDS = 0.5  # an orphaned child may compute so much longer
FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect standard output to standard error, so that standard output contains the report only.

    The redirection covers what a mechanism prints in Python, in C and in worker processes.
    """
    if sys.stdout is None:  # standard output is closed
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).fflush(None)  # C libraries buffer their output until then
        os.dup2(saved, 1)
        os.close(saved)


def check_writable(path: str) -> None:
    """Raise OSError if no file can be written at this path."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))).close()
    except ValueError as problem:  # the name is impossible
        raise OSError(str(problem)) from None
    else:  # an existing file is not opened here, because it can be a pipe
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def write_output(writer: Callable[[str], None], path: str) -> None:
    """Write a file; a failure is an InputError."""
    try:
        writer(path)
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}; expected a path that can be written") from None


def write_stdout(writer: Callable[[TextIO], None]) -> None:
    """Write to standard output and flush it; a failure is an InputError, and BrokenPipeError if nobody reads it."""
    if sys.stdout is None:  # standard output is closed
        return
    try:
        writer(sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        discard_stdout()
        raise InputError(f"standard output: {problem.strerror or problem}; expected a stream with space left") from None


def discard_stdout() -> None:
    """Discard standard output, because Python would otherwise try to write the rest at exit and fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def escape_unencodable_characters() -> None:
    """Write characters that the terminal cannot encode as escape sequences, so that they do not cost a report."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def print_error(problem: object, status: int) -> int:
    """Print one line to standard error, and return the exit status."""
    print("dpverify: " + one_line(problem, MAX_ERROR_LENGTH), file=sys.stderr)
    return status


def show_warning(
    message: object, category: type, filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    """Print a warning in one line, without the source line."""
    prefix = "dpverify" if issubclass(category, DPVerifyWarning) else category.__name__
    print(f"{prefix}: {message}", file=sys.stderr)


class Outcome(NamedTuple):
    """How a child process has ended.

    Attributes
    ----------
    status : int or None
        Its exit status; None if it ended without stating one.
    end : str
        How it ended, in words, for example "exit status 0" or "killed by SIGSEGV".
    stopped : bool
        Whether a signal has asked this process or the child to stop.
    """

    status: int | None
    end: str
    stopped: bool


def run_in_child(work: Callable[[], int]) -> Outcome:
    """Run `work` in a child process and wait for its end. The child exits with the status that `work` returns."""
    flush_streams()  # otherwise both processes would write what is buffered
    stated = mmap.mmap(-1, 1)  # memory that both processes see: 0, or 1 + the status
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED_SIGNALS)  # until both processes have their handlers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads of linear algebra libraries allow a fork
        child = os.fork()
    if child == 0:
        threading.Thread(target=end_with, args=(parent,), daemon=True).start()
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a command in the background ignores it
            signal.signal(signal.SIGINT, interrupt_once)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED_SIGNALS)
        status = work()
        stated[0] = 1 + status
        leave(status)
    with forwarded_signals(child) as received:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    names = {-each.value: each.name for each in signal.Signals}  # a real-time signal has no name
    end = f"exit status {code}" if code >= 0 else f"killed by {names.get(code, f'signal {-code}')}"
    stopped = bool(received) or -code in (*FORWARDED_SIGNALS, signal.SIGHUP)
    return Outcome(stated[0] - 1 if stated[0] else None, end, stopped)


def leave(status: int) -> NoReturn:
    """End this process. A thread that a mechanism, or a library, has left behind does not keep it alive."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    flush_streams()
    os._exit(status)


def flush_streams() -> None:
    """Write what Python has buffered."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it is closed
            stream.flush()


@contextlib.contextmanager
def forwarded_signals(child: int) -> Iterator[list[int]]:
    """Send SIGINT and SIGTERM on to the child, and SIGTERM for a second SIGINT. Yield the signals that were sent."""
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number if len(received) == 1 else signal.SIGTERM)

    # A command in the background ignores SIGINT; this stays so.
    handled = [number for number in FORWARDED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, forward) for number in handled}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED_SIGNALS)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def interrupt_once(number: int, frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt, the first time only: a terminal sends the signal, and so does the parent process."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def end_with(parent: int) -> None:
    """End this process when its parent ends, also if the parent is killed."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    os._exit(3)
