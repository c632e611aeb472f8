"""What the command `dpverify` writes: exit statuses, error lines, warnings and files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import TextIO

from dpverify.errors import DPVerifyWarning, InputError
from dpverify.over_time import PrivacyOverTime, PrivacyTable
from dpverify.report.report import Report, load_pages
from dpverify.util.formatting import one_line

REFUTED, BAD_INPUT, NO_ANSWER = 1, 2, 3  # exit statuses; 0 means not refuted
STDOUT_DESCRIPTOR, STDERR_DESCRIPTOR = 1, 2
MAX_ERROR_LENGTH = 2000

Result = Report | PrivacyOverTime | PrivacyTable


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect standard output to standard error, so that standard output contains the report only.

    The redirection covers what a mechanism prints in Python, in C and in worker processes.
    """
    if sys.stdout is None:  # standard output is closed
        yield
        return
    sys.stdout.flush()
    saved = os.dup(STDOUT_DESCRIPTOR)
    os.dup2(STDERR_DESCRIPTOR, STDOUT_DESCRIPTOR)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).fflush(None)  # C libraries buffer their output until then
        os.dup2(saved, STDOUT_DESCRIPTOR)
        os.close(saved)


def check_outputs(json: str | None, html: str | None) -> None:
    """Raise InputError before a long run if a file could not be written, or the page could not be made."""
    if html:
        load_pages()
    for path in filter(None, (json, html)):
        write_output(_check_writable, path)


def _check_writable(path: str) -> None:
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


def write_stdout(writer: Callable[[TextIO], None] = lambda stream: None) -> None:
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


def print_output(text: object) -> None:
    """Print a text to standard output; failures are those of `write_stdout`."""
    write_stdout(lambda stream: print(text, file=stream))


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
    message: object,
    category: type,
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning in one line, without the source line."""
    prefix = "dpverify" if issubclass(category, DPVerifyWarning) else category.__name__
    print(f"{prefix}: {message}", file=sys.stderr)


def write_results(report: Result, json: str | None, html: str | None, quiet: bool, text: str | None = None) -> None:
    """Write a report in all forms, JSON first. A form that cannot be written does not prevent the others.

    `text` is printed instead of the text of the report.
    """
    steps: list[Callable[[], None]] = []
    if json == "-":
        steps.append(partial(write_stdout, report.to_json))
    elif json is not None:
        steps.append(partial(write_output, report.to_json, json))
    if not quiet and json != "-":
        steps.append(partial(print_output, report if text is None else text))
    if html is not None:
        steps.append(partial(write_output, report.to_html, html))
    problems: list[InputError | BrokenPipeError] = []
    for step in steps:
        try:
            step()
        except (InputError, BrokenPipeError) as problem:
            problems.append(problem)
    if problems:
        raise problems[0]
