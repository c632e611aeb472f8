"""Executables in any language as mechanisms.

A program is started once in each process, without a shell. For each block it reads two lines: `runs seed n`, and the n
numbers of the data set, row by row. It writes `runs` lines of K*d numbers, flushes its output, and ends when its input
ends. If the arguments contain the placeholders `{data} {runs} {seed} {out}`, the program is started once per block
instead, and writes its lines to the file `{out}`.
"""

from __future__ import annotations

import atexit
import math
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from dpverify.adapters.process import GRACE_SECONDS, Answer, Child, End
from dpverify.adapters.text_format import plain_rows, quote, read_rows
from dpverify.errors import InputError
from dpverify.util.files import is_readable
from dpverify.util.sources import is_own_file

PLACEHOLDERS = ("{data}", "{runs}", "{seed}", "{out}")
SEED_LIMIT = 1 << 31  # seeds below this limit are accepted by the generators of all languages
MAX_BYTES_PER_NUMBER = 64
MAX_NUMBERS_PER_RUN = 1 << 16  # if the shape is not stated


@dataclass(frozen=True)
class Program:
    """The mechanism that `program` returns.

    Attributes
    ----------
    argv : tuple of str
        The program and its arguments.
    shape : tuple of int or None
        The shape of one output; None if it is as long as a line.
    timeout : float
        The largest number of seconds per block.
    seeded : bool
        Whether the program uses its seed.
    """

    argv: tuple[str, ...]
    shape: tuple[int, ...] | None
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

    def __call__(self, data: ArrayLike, runs: int, rng: np.random.Generator) -> np.ndarray:
        seed, rows = int(rng.integers(SEED_LIMIT)), plain_rows(data)
        children = _idle_children(self)
        samples = self._draw(children, rows, runs, seed)
        children.check_seed(rows, seed, samples, lambda: self._draw(children, rows, runs, seed), self.seeded)
        return samples

    def _draw(self, children: IdleChildren, rows: list[list[float]], runs: int, seed: int) -> np.ndarray:
        """Return the runs of one block."""
        deadline = time.monotonic() + self.timeout
        if self._starts_per_block:
            return self._parse(self._run_once(rows, runs, seed, deadline), runs)
        child = children.take() or Child(self.argv, answers=True)
        try:
            unrequested = child.unrequested_output()
            numbers = [number for row in rows for number in row]
            request = f"{runs} {seed} {len(numbers)}\n{' '.join(map(repr, numbers))}\n".encode()
            answer = child.exchange(request, runs, lambda content: self._max_bytes(content, runs), deadline)
            if answer.end is not End.COMPLETE:
                raise InputError(self._failure(child, answer, runs))
            samples = self._parse(unrequested + answer.content, runs)
        except BaseException:
            child.end()
            raise
        children.give(child)
        return samples

    def _run_once(self, rows: list[list[float]], runs: int, seed: int, deadline: float) -> bytes:
        """Start the program for one block, with two files, and return the content of the output file."""
        with tempfile.TemporaryDirectory(prefix="dpverify-") as folder:
            data, out = Path(folder, "data.txt"), Path(folder, "out.txt")
            data.write_text("".join(" ".join(map(repr, row)) + "\n" for row in rows))
            values = (str(data), str(runs), str(seed), str(out))
            child = Child([_fill(part, values) for part in self.argv], answers=False)
            try:
                answer = child.exchange(b"", math.inf, lambda _: math.inf, deadline)
                content = self._read_output(out, runs)
                status = child.end()
                if answer.end is End.TIMEOUT or status or not out.is_file():
                    raise InputError(self._failure(child, answer._replace(content=content), runs))
                return content
            finally:
                child.end()

    def _read_output(self, out: Path, runs: int) -> bytes:
        """Return the content of the output file, cut off behind the largest size that an answer may have."""
        if not out.is_file():
            return b""
        with out.open("rb") as file:
            content = file.read(MAX_BYTES_PER_NUMBER * MAX_NUMBERS_PER_RUN)
            return content + file.read(max(0, self._max_bytes(content, runs) + 1 - len(content)))

    def _max_bytes(self, content: bytes | bytearray, runs: int) -> int:
        """Return the largest number of bytes that an answer may have; its first line shows how long an output is."""
        longest_line = MAX_BYTES_PER_NUMBER * (MAX_NUMBERS_PER_RUN if self.shape is None else math.prod(self.shape))
        end = content.find(b"\n", 0, longest_line + 1)
        if self.shape is not None or end < 0:
            return longest_line * (1 if end < 0 else runs)
        return MAX_BYTES_PER_NUMBER * max(1, len(content[:end].split())) * runs

    def _parse(self, content: bytes, runs: int) -> np.ndarray:
        """Return the runs that an answer contains."""
        rows = read_rows(content, None if self.shape is None else math.prod(self.shape))
        if len(rows) != runs:
            raise InputError(
                f"found {len(rows)} lines; expected the {runs} that were requested; print one line per run"
            )
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
        with _lock:
            children = _children.pop((os.getpid(), self), None)
        if children is not None:
            children.finish()


@dataclass
class IdleChildren:
    """The started programs of one mechanism that wait for a request, and what is known about their seeds.

    Attributes
    ----------
    idle : list of Child
        The child processes that wait.
    last_blocks : dict
        The seed and the hash of the last block of each data set.
    is_finished : bool
        Whether `finish` was called. Then a child that becomes idle is ended.
    """

    idle: list[Child] = field(default_factory=list)
    last_blocks: dict[str, tuple[int, int]] = field(default_factory=dict)
    is_finished: bool = False

    def take(self) -> Child | None:
        """Return an idle child, or None."""
        with _lock:
            return self.idle.pop() if self.idle else None

    def give(self, child: Child) -> None:
        """Store a child that has answered."""
        with _lock:
            if not self.is_finished:
                self.idle.append(child)
                return
        child.end(GRACE_SECONDS)

    def finish(self) -> None:
        """End all idle children."""
        with _lock:
            self.is_finished, idle, self.idle = True, self.idle, []
        for child in idle:
            child.end(GRACE_SECONDS)

    def check_seed(
        self,
        rows: list[list[float]],
        seed: int,
        samples: np.ndarray,
        draw_again: Callable[[], np.ndarray],
        seeded: bool,
    ) -> None:
        """Raise an InputError if one seed gives different runs (checked once), or if two seeds give the same runs."""
        data, samples_hash = repr(rows), hash(samples.tobytes())
        if seeded and not self.last_blocks and hash(draw_again().tobytes()) != samples_hash:
            raise InputError(
                "found different runs for the same seed; expected the same runs; seed the generator with the second "
                "number of the request, or state that the program cannot be seeded: seeded=False (--unseeded)"
            )
        last = self.last_blocks.get(data)
        if last is not None and last[0] != seed and last[1] == samples_hash and (samples != samples[:1]).any():
            raise InputError(
                f"found the same {len(samples)} runs for two seeds; expected different runs; seed the generator with "
                "the second number of the request"
            )
        self.last_blocks[data] = (seed, samples_hash)


_lock = threading.Lock()
_children: dict[tuple[int, Program], IdleChildren] = {}  # by process: a fork must not use the pipes of its parent


def _idle_children(program: Program) -> IdleChildren:
    with _lock:
        return _children.setdefault((os.getpid(), program), IdleChildren())


@atexit.register
def _finish_all() -> None:
    for process, program in list(_children):
        if process == os.getpid():
            program.finish()


def program(
    argv: Sequence[str | os.PathLike[str]],
    shape: int | Sequence[int] | None = None,
    timeout: float = 60,
    *,
    seeded: bool = True,
) -> Program:
    """Make a mechanism from an executable, in any language.

    The program is started once in each process. For each block it reads two lines, `runs seed n` and the n numbers of
    the data set, and writes `runs` lines of numbers. With placeholders in `argv` it is started once per block.

    Parameters
    ----------
    argv : sequence of str or path-like
        The program and its arguments. No shell reads them. If they contain `{out}` (and `{data}`, `{runs}`, `{seed}`),
        these are replaced for each block, and the program writes its lines to the file `{out}`.
    shape : int or sequence of int, optional
        The shape of one output: (K, d), (d,) or d. By default an output is as long as the first line.
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
    sizes = None if shape is None else tuple(np.atleast_1d(np.asarray(shape)).tolist())
    if sizes is not None and not (len(sizes) <= 2 and all(isinstance(size, int) and size >= 1 for size in sizes)):
        raise InputError(f"shape: found {shape!r}; expected (K, d), (d,) or d, whole numbers from 1")
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
