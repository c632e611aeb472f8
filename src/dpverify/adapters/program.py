"""Executables in any language as mechanisms.

A program is started once in each process, without a shell. For each block it reads two lines: `runs seed n`, and the n
numbers of the dataset, row by row. It writes `runs` lines of K*d numbers, flushes its output, and ends when its input
ends. If the arguments contain the placeholders `{data} {runs} {seed} {out}`, the program is started once per block
instead, and writes its lines to the file `{out}`.

A child process never outlives this process. It and the processes of its group are killed when it fails or is no longer
needed. A second process, the guard, waits on a pipe from this process. When this process ends for any reason, also by a
signal that cannot be caught, the pipe closes and the guard kills the group.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import io
import json
import math
import os
import selectors
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.util.files import is_readable
from dpverify.util.formatting import printable
from dpverify.util.sources import is_own_file

PLACEHOLDERS = ("{data}", "{runs}", "{seed}", "{out}")
SEED_LIMIT = 1 << 31  # seeds below this limit are accepted by the generators of all languages
MAX_BYTES_PER_NUMBER = 64
MAX_NUMBERS_PER_RUN = 1 << 16  # if the shape is not stated
MESSAGE_BYTES = 600  # bytes that are stored of the messages of a child
CHUNK_BYTES = 1 << 16
POLL_SECONDS = 0.02  # interval of checks whether a silent child has ended
SUSPENDED_SECONDS = 1.0  # a longer pause between two checks means that this process did not run
GRACE_SECONDS = 2.0  # time for a child to end after its input has ended
# The guard reads the process group, waits for the end of its input, and ends the group.
GUARD = """
import os, signal, sys
group = sys.stdin.readline()
sys.stdin.read()
try:
    os.killpg(int(group), signal.SIGKILL)
except (OSError, ValueError):
    pass  # the group has ended, or never started
"""


@dataclass(frozen=True)
class Program:
    """The mechanism that `program` returns.

    Attributes
    ----------
    argv : tuple of str
        The program and its arguments.
    shape : tuple of int, "json" or None
        The shape of one output; None if it is as long as a line; "json" if a line is one output of any kind in JSON.
    timeout : float
        The largest number of seconds per block.
    seeded : bool
        Whether the program uses its seed.
    """

    argv: tuple[str, ...]
    shape: tuple[int, ...] | Literal["json"] | None
    timeout: float
    seeded: bool

    @property
    def name(self) -> str:
        return shlex.join([Path(self.argv[0]).name, *self.argv[1:]])

    @property
    def _starts_per_block(self) -> bool:
        return any(placeholder in part for part in self.argv for placeholder in PLACEHOLDERS)

    def source_files(self) -> list[Path]:
        """Return the files of the user that the command line names, by which a change of the program is noticed."""
        system = (sys.prefix, sys.base_prefix, "/usr", "/bin")
        found = []
        for part in self.argv:
            file = Path(part).absolute()
            if is_readable(file) and is_own_file(file) and not any(file.is_relative_to(folder) for folder in system):
                found.append(file)
        return found

    def __call__(self, data: ArrayLike, runs: int, rng: np.random.Generator) -> np.ndarray | list[Any]:
        seed, rows = int(rng.integers(SEED_LIMIT)), plain_rows(data)
        deadline = time.monotonic() + self.timeout
        if self._starts_per_block:
            return self._parse(self._run_once(rows, runs, seed, deadline), runs)
        idle = _idle.setdefault((os.getpid(), self), [])
        try:
            child = idle.pop()
        except IndexError:
            child = Child(self.argv, answers=True)
        samples = self._ask(child, rows, runs, seed, deadline)
        idle.append(child)
        return samples

    def _ask(self, child: Child, rows: list[list[float]], runs: int, seed: int, deadline: float) -> Any:
        """Return the runs that a started program answers; it is ended if it fails."""
        try:
            unrequested = child.unrequested_output()
            numbers = [number for row in rows for number in row]
            request = f"{runs} {seed} {len(numbers)}\n{' '.join(map(repr, numbers))}\n".encode()
            answer = child.exchange(request, runs, lambda content: self._max_bytes(content, runs), deadline)
            if answer.end is not End.COMPLETE:
                raise InputError(self._failure(child, answer, runs))
            return self._parse(unrequested + answer.content, runs)
        except BaseException:
            child.end()
            raise

    def _run_once(self, rows: list[list[float]], runs: int, seed: int, deadline: float) -> bytes:
        """Start the program for one block, with two files, and return the content of the output file."""
        with tempfile.TemporaryDirectory(prefix="dpverify-") as folder:
            data, out = Path(folder, "data.txt"), Path(folder, "out.txt")
            data.write_text("".join(" ".join(map(repr, row)) + "\n" for row in rows))
            values = (str(data), str(runs), str(seed), str(out))
            child = Child([_fill(part, values) for part in self.argv], answers=False)
            try:
                answer = child.exchange(b"", math.inf, lambda _: math.inf, deadline)
                content = out.read_bytes() if out.is_file() else b""
                status = child.end()
                if answer.end is End.TIMEOUT or status or not out.is_file():
                    raise InputError(self._failure(child, answer._replace(content=content), runs))
                return content
            finally:
                child.end()

    def _max_bytes(self, content: bytes | bytearray, runs: int) -> int:
        """Return the largest number of bytes that an answer may have; its first line shows how long an output is."""
        numbers = math.prod(self.shape) if isinstance(self.shape, tuple) else MAX_NUMBERS_PER_RUN
        longest_line = MAX_BYTES_PER_NUMBER * numbers
        end = content.find(b"\n", 0, longest_line + 1)
        if self.shape is not None or end < 0:
            return longest_line * (1 if end < 0 else runs)
        return MAX_BYTES_PER_NUMBER * max(1, len(content[:end].split())) * runs

    def _parse(self, content: bytes, runs: int) -> np.ndarray | list[Any]:
        """Return the runs that an answer contains."""
        if self.shape == "json":
            rows: Any = read_json(content)
        else:
            rows = read_rows(content, None if self.shape is None else math.prod(self.shape))
        if len(rows) != runs:
            raise InputError(
                f"found {len(rows)} lines; expected the {runs} that were requested; print one line per run"
            )
        if self.shape == "json":
            return rows
        return rows.reshape(runs, *(self.shape if self.shape is not None else rows.shape[1:]))

    def _failure(self, child: Child, answer: Answer, runs: int) -> str:
        """Return the message for an answer that is not complete."""
        lines = answer.content.split(b"\n")
        progress = f"{len(lines) - 1} of {runs} lines"
        if answer.end is End.TIMEOUT:
            message = (
                f"found {progress} after {self.timeout:g} s; expected one line per run, and a flush after the last; "
                "fix the program, or use a longer timeout (timeout=, --timeout) or a smaller block"
            )
        else:
            status = _describe_status(child.end(GRACE_SECONDS))
            message = f"the program ended ({status}) after {progress}; expected "
            message += (
                "all lines and exit status 0" if self._starts_per_block else "a program that reads until its input ends"
            )
        last_line = next((line for line in reversed(lines) if line.strip()), b"")
        if last_line:
            message += f"; its last line was {quote(last_line)}"
        messages = child.messages
        return f"{message}; its messages: {messages}" if messages else f"{message}; it wrote nothing to stderr"

    def finish(self) -> None:
        """End the idle child processes of this process; another call starts new ones."""
        for child in _idle.pop((os.getpid(), self), []):
            child.end(GRACE_SECONDS)


# The started programs that wait for a request, by process: a fork must not use the pipes of its parent.
_idle: dict[tuple[int, Program], list[Child]] = {}


@atexit.register
def _finish_all() -> None:
    for process, program in list(_idle):
        if process == os.getpid():
            program.finish()


def program(
    argv: Sequence[str | os.PathLike[str]],
    shape: int | Sequence[int] | Literal["json"] | None = None,
    timeout: float = 60,
    *,
    seeded: bool = True,
) -> Program:
    """Make a mechanism from an executable, in any language.

    The program is started once in each process. For each block it reads two lines, `runs seed n` and the n numbers of
    the dataset, and writes `runs` lines of numbers. With placeholders in `argv` it is started once per block.

    Parameters
    ----------
    argv : sequence of str or path-like
        The program and its arguments. No shell reads them. If they contain `{out}` (and `{data}`, `{runs}`, `{seed}`),
        these are replaced for each block, and the program writes its lines to the file `{out}`.
    shape : int, sequence of int or "json", optional
        The shape of one output: (K, d), (d,) or d. By default an output is as long as the first line. With "json" each
        line is one output of any kind in JSON: an object, an array of any length, a text.
    timeout : float
        The largest number of seconds per block.
    seeded : bool
        False if the program does not use its seed.

    Returns
    -------
    Program
        A mechanism. Its method `finish` ends the program; `verify` calls it.

    Raises
    ------
    InputError
        If an argument is invalid, or if the system has no process groups (Windows).

    Examples
    --------
    >>> import sys
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> code = '''
    ... import random, sys
    ... for line in sys.stdin:
    ...     runs, seed, n = map(int, line.split())
    ...     total = sum(map(float, sys.stdin.readline().split()))
    ...     rng = random.Random(seed)
    ...     for _ in range(runs):
    ...         print(total + rng.expovariate(1) - rng.expovariate(1))
    ...     sys.stdout.flush()
    ... '''
    >>> mechanism = dpv.program([sys.executable, "-c", code], shape=1)
    >>> mechanism(np.array([1.0, 2.0]), 5, np.random.default_rng(0)).shape
    (5, 1)
    >>> mechanism.finish()
    """
    if os.name != "posix":
        raise InputError("program: found a system without process groups; expected Linux or macOS; wrap it in Python")
    if isinstance(argv, (str, bytes)) or not argv:
        raise InputError(f"argv: found {argv!r}; expected a list of the program and its arguments; no shell reads it")
    parts = tuple(os.fspath(part) for part in argv)
    if any(name in part for part in parts for name in PLACEHOLDERS) and not any("{out}" in part for part in parts):
        raise InputError("argv: found placeholders without {out}; expected the file that the program writes; add it")
    is_numeric = shape is not None and shape != "json"
    sizes: Any = tuple(np.atleast_1d(np.asarray(shape)).tolist()) if is_numeric else shape
    if is_numeric and not (len(sizes) <= 2 and all(isinstance(size, int) and size >= 1 for size in sizes)):
        raise InputError(f"shape: found {shape!r}; expected (K, d), (d,) or d, whole numbers from 1, or 'json'")
    if isinstance(timeout, str) or not 0 < timeout < math.inf:
        raise InputError(f"timeout: found {timeout!r}; expected a positive number of seconds")
    return Program(parts, sizes, float(timeout), bool(seeded))


def _fill(part: str, values: Sequence[str]) -> str:
    for placeholder, value in zip(PLACEHOLDERS, values, strict=True):
        part = part.replace(placeholder, value)
    return part


def _describe_status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


# Child processes.


class End(enum.Enum):
    """Why reading an answer has ended."""

    COMPLETE = enum.auto()  # all lines, or too many bytes, were read
    EXITED = enum.auto()  # the child has ended
    TIMEOUT = enum.auto()


class Answer(NamedTuple):
    """The bytes that a child has written to stdout, and why reading has ended."""

    content: bytes
    end: End


class Child:
    """A child process.

    Parameters
    ----------
    argv : sequence of str
        The program and its arguments. No shell is used.
    answers : bool
        If True, requests are written to stdin, answers are read from stdout, and stderr contains messages. If False,
        stdin is empty, and both stdout and stderr contain messages.
    """

    def __init__(self, argv: Sequence[str], answers: bool):
        guard = [sys.executable, "-I", "-S", "-c", GUARD]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if answers else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if answers else subprocess.STDOUT,
                start_new_session=True,  # a group of its own, so that one signal reaches the processes that it starts
            )
        except BaseException as problem:
            self._end_guard()
            if not isinstance(problem, (OSError, ValueError)):
                raise
            reason = getattr(problem, "strerror", None) or problem
            raise InputError(
                f"argv: found {argv[0]!r}, which cannot be started ({reason}); expected an executable program; "
                "give its path (./name in this folder), or install it"
            ) from None
        self._answer_pipe = self._process.stdout if answers else None
        self._message_pipe = self._process.stderr if answers else self._process.stdout
        self._messages = b""
        for pipe in (self._process.stdin, self._answer_pipe, self._message_pipe):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        with contextlib.suppress(OSError):
            os.write(self._guard.stdin.fileno(), f"{self._process.pid}\n".encode())  # type: ignore[union-attr]

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the process group."""
        return self._process.pid

    @property
    def messages(self) -> str:
        """The end of the messages, as one printable line."""
        lines = self._messages.decode(errors="replace").split("\n")
        text = " | ".join(" ".join(line.split()) for line in lines if line.strip())
        return printable(text)

    def exchange(
        self, request: bytes, lines: float, max_bytes: Callable[[bytearray], float], deadline: float
    ) -> Answer:
        """Send a request, and read until a number of lines or too many bytes have arrived.

        The limit of the bytes, `max_bytes`, depends on what has arrived so far.

        Messages are read at the same time, so that a child with many messages is never blocked. `deadline` is a time of
        `time.monotonic`.
        """
        content, lines_read, before = bytearray(), 0, time.monotonic()
        with selectors.DefaultSelector() as selector:
            for pipe in (self._answer_pipe, self._message_pipe):
                if pipe is not None and not pipe.closed:
                    selector.register(pipe, selectors.EVENT_READ)
            if request and self._process.stdin is not None:
                selector.register(self._process.stdin, selectors.EVENT_WRITE)
            while lines_read < lines and len(content) <= max_bytes(content):
                # The state is read before the pipes: if the child has ended, all its output is in the pipes by now.
                has_ended = self._process.poll() is not None
                events = selector.select(0 if has_ended else POLL_SECONDS)
                if has_ended and not events:
                    return Answer(bytes(content), End.EXITED)
                now = time.monotonic()
                if now - before > SUSPENDED_SECONDS:  # this process was suspended, and probably the program too
                    deadline += now - before
                before = now
                if now >= deadline:
                    return Answer(bytes(content), End.TIMEOUT)
                for key, _ in events:
                    if key.fileobj is self._process.stdin:
                        request = request[_write(key.fd, request) :]
                        if not request:
                            selector.unregister(key.fileobj)
                        continue
                    try:
                        chunk = os.read(key.fd, CHUNK_BYTES)
                    except BlockingIOError:  # the pipe was reported as ready, but is empty
                        continue
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._answer_pipe:
                        content += chunk
                        lines_read += chunk.count(b"\n")
                    else:
                        self._messages = (self._messages + chunk)[-MESSAGE_BYTES:]
        return Answer(bytes(content), End.COMPLETE)

    def unrequested_output(self) -> bytes:
        """Return what the child has written to stdout without a request."""
        try:
            return os.read(self._answer_pipe.fileno(), CHUNK_BYTES) if self._answer_pipe is not None else b""
        except BlockingIOError:
            return b""

    def end(self, grace_seconds: float = 0.0) -> int:
        """Close the input, wait for the child to end, kill all its processes, and return the exit status."""
        if self._guard.returncode is not None:
            return self._process.returncode
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if grace_seconds:
            self.exchange(b"", float("inf"), lambda _: CHUNK_BYTES, time.monotonic() + grace_seconds)
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        status = self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._end_guard()
        return status

    def _end_guard(self) -> None:
        self._guard.kill()  # before its pipe closes, so that it does not kill a new group with the same id
        self._guard.wait()
        self._guard.stdin.close()  # type: ignore[union-attr]


def _write(fd: int, request: bytes) -> int:
    """Return how many bytes of the request need not be written again; all of them if the pipe has no reader."""
    try:
        return os.write(fd, request[:CHUNK_BYTES])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(request)


# The text format: datasets are sent, and runs are received, as lines of numbers.


def plain_rows(data: ArrayLike) -> list[list[float]]:
    """Return the numbers of a dataset, row by row; integers stay integers."""
    try:
        array = np.asarray(data)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        raise InputError(f"data: found {type(data).__name__}; expected numbers, which can be sent to a program")
    if not array.size:
        return []
    array = array.astype(int) if array.dtype.kind == "b" else array
    return np.atleast_2d(array).reshape(-1, array.shape[-1] if array.ndim else 1).tolist()


def read_rows(content: bytes, size: int | None) -> np.ndarray:
    """Return the numbers of lines that all have `size` numbers, separated by spaces; None means any equal size."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns of an empty answer
            rows = np.loadtxt(io.BytesIO(content), comments=None, ndmin=2)
        if not rows.size or size is None or rows.shape[1] == size:
            return rows
    except ValueError:
        pass
    expected_size = size or len(content.split(b"\n", 1)[0].split())
    for number, line in enumerate(content.split(b"\n"), 1):
        found = _count_numbers(line)
        if not line.strip() or found == expected_size:
            continue
        expected = "1 number" if expected_size == 1 else f"{expected_size} numbers, separated by spaces"
        about, advice = "", "print nothing else"
        if found is not None:
            about = ", 1 number" if found == 1 else f", {found} numbers"
            if size is not None:
                advice += ", or change the shape of an output (shape=, --shape)"
        raise InputError(f"line {number} of the answer is {quote(line)}{about}; expected {expected}; {advice}")
    raise InputError(f"found an answer that cannot be read: {quote(content)}; expected lines of numbers")


def read_json(content: bytes) -> list[Any]:
    """Return the outputs of lines that each contain one in JSON."""
    outputs = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            outputs += [json.loads(line)] if line.strip() else []
        except ValueError:
            raise InputError(f"line {number} of the answer is {quote(line)}; expected one output in JSON") from None
    return outputs


def _count_numbers(line: bytes) -> int | None:
    """Return how many numbers a line has; None if it contains anything else."""
    try:
        return len([float(number) for number in line.split()])
    except ValueError:
        return None


def quote(content: bytes, max_bytes: int = 60) -> str:
    """Return the beginning of some bytes for a message."""
    text = content[:max_bytes].decode(errors="replace").strip()
    return repr(text + ("..." if len(content) > max_bytes else ""))
