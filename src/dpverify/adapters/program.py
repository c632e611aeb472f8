"""Any executable as a mechanism, in any language.

It is started once in each process, without a shell. For each block it reads two lines, `runs seed n` and the n numbers
of the data, row by row; it answers `runs` lines of K*d numbers, flushes, and ends when its input ends. Where argv holds
`{data} {runs} {seed} {out}` it is started once a block instead, and writes its lines to the file `{out}`.
"""

from __future__ import annotations

import atexit
import io
import math
import os
import shlex
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpverify.adapters.process import GRACE, Child, Heard
from dpverify.errors import InputError

PLACES = ("{data}", "{runs}", "{seed}", "{out}")
SEEDS = 1 << 31  # a seed that the generators of all languages take
WIDEST = 64  # bytes that a number may be printed with
UNKNOWN = 4096  # numbers a run, at most, where the shape is not stated


@dataclass(frozen=True)
class Program:
    argv: tuple[str, ...]
    shape: tuple[int, ...] | None
    timeout: float
    seeded: bool

    @property
    def name(self) -> str:
        return shlex.join([Path(self.argv[0]).name, *self.argv[1:]])

    @property
    def _a_block_each(self) -> bool:
        return any(place in part for part in self.argv for place in PLACES)

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> np.ndarray:
        seed, rows = int(rng.integers(SEEDS)), plain_rows(data)
        crew = _crew(self)
        samples = self._ask(crew, rows, runs, seed)
        crew.check(rows, seed, samples, lambda: self._ask(crew, rows, runs, seed), self.seeded)
        return samples

    def _ask(self, crew: Crew, rows: list[list[float]], runs: int, seed: int) -> np.ndarray:
        deadline = time.monotonic() + self.timeout
        if self._a_block_each:
            text = self._start_for(rows, runs, seed, deadline)
            return self._read(text, runs)
        child = crew.take() or Child(self.argv, speaks=True)
        try:
            extra = child.left_over()
            numbers = [number for row in rows for number in row]
            request = f"{runs} {seed} {len(numbers)}\n{' '.join(map(repr, numbers))}\n".encode()
            heard = child.exchange(request, runs, self._most(runs), deadline)
            if heard.why != "lines":
                raise InputError(self._complaint(child, heard, runs))
            samples = self._read(extra + heard.answer, runs)
        except BaseException:
            child.end()
            raise
        crew.give(child)
        return samples

    def _start_for(self, rows: list[list[float]], runs: int, seed: int, deadline: float) -> bytes:
        """The placeholder form: one start, two files, one block."""
        with tempfile.TemporaryDirectory(prefix="dpverify-") as folder:
            data, out = Path(folder, "data.txt"), Path(folder, "out.txt")
            data.write_text("".join(" ".join(map(repr, row)) + "\n" for row in rows))
            values = (str(data), str(runs), str(seed), str(out))
            child = Child([_fill(part, values) for part in self.argv], speaks=False)
            try:
                heard = child.exchange(b"", math.inf, math.inf, deadline)
                text = out.read_bytes()[: int(self._most(runs)) + 1] if out.is_file() else b""
                status = child.end()
                if heard.why == "late" or status or not out.is_file():
                    raise InputError(self._complaint(child, heard._replace(answer=text), runs))
                return text
            finally:
                child.end()

    def _most(self, runs: int) -> int:
        """More bytes than this are no answer."""
        return WIDEST * runs * (UNKNOWN if self.shape is None else math.prod(self.shape))

    def _read(self, text: bytes, runs: int) -> np.ndarray:
        rows = read_rows(text, None if self.shape is None else math.prod(self.shape))
        if len(rows) != runs:
            raise InputError(f"found {len(rows)} lines, expected the {runs} that were asked for; print one line a run")
        return rows.reshape(runs, *(self.shape if self.shape is not None else rows.shape[1:]))

    def _complaint(self, child: Child, heard: Heard, runs: int) -> str:
        lines = heard.answer.split(b"\n")
        found = f"{len(lines) - 1} of {runs} lines"
        last = next((line for line in reversed(lines) if line.strip()), b"")
        if heard.why == "late":
            line = f"found {found} after {self.timeout:g} s; expected one a run, and a flush after the last; "
            line += "mend the program, or give it more time (timeout=, --timeout) or a smaller block"
        else:
            line = f"the program ended ({_status(child.end(GRACE))}) after {found}; expected "
            line += "all of them and exit status 0" if self._a_block_each else "it to read on until its input ends"
        shown = f"; its last line was {_quote(last)}" if last else ""
        return f"{line}{shown}; " + (f"it said: {child.said}" if child.said else "it said nothing on stderr")

    def finish(self) -> None:
        """Ends what rests in this process; another call would start it again."""
        with _lock:
            crew = _crews.pop((os.getpid(), self), None)
        if crew is not None:
            crew.finish()


@dataclass
class Crew:
    """The started programs of one mechanism in this process that wait for work, and what was seen of their answers."""

    idle: list[Child] = field(default_factory=list)
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    over: bool = False

    def take(self) -> Child | None:
        with _lock:
            return self.idle.pop() if self.idle else None

    def give(self, child: Child) -> None:
        with _lock:
            if not self.over:
                self.idle.append(child)
                return
        child.end(GRACE)

    def finish(self) -> None:
        with _lock:
            self.over, idle, self.idle = True, self.idle, []
        for child in idle:
            child.end(GRACE)

    def check(self, rows: Any, seed: int, samples: np.ndarray, again: Any, seeded: bool) -> None:
        """Runs that depend on the seed as promised: the same for the same (asked once), others for another.

        A program that draws the same for every seed would pass off one block as many.
        """
        data, drawn = repr(rows), hash(samples.tobytes())
        if seeded and not self.seen and hash(again().tobytes()) != drawn:
            raise InputError(
                "found other runs when asked twice with one seed; expected the same; seed the generator with the "
                "second number of the request, or say that it can't be: seeded=False (--unseeded)"
            )
        known = self.seen.get(data)
        if known is not None and known[0] != seed and known[1] == drawn and (samples != samples[:1]).any():
            raise InputError(
                f"found the same {len(samples)} runs for two seeds; expected others; seed the generator with the "
                "second number of the request"
            )
        self.seen[data] = (seed, drawn)


_lock = threading.Lock()
_crews: dict[tuple[int, Program], Crew] = {}  # by process too: a fork must not use its parent's pipes


def _crew(program: Program) -> Crew:
    with _lock:
        return _crews.setdefault((os.getpid(), program), Crew())


@atexit.register
def _finish_all() -> None:
    for process, program in list(_crews):
        if process == os.getpid():
            program.finish()


def program(
    argv: Sequence[str | os.PathLike[str]],
    shape: int | Sequence[int] | None = None,
    timeout: float = 60,
    *,
    seeded: bool = True,
) -> Program:
    """A mechanism that any executable computes; `shape` is (K, d), (d,) or d, None: as many numbers as a line has.

    `timeout` is in seconds a block. `seeded=False` says that the program takes no notice of its seed.
    """
    if os.name != "posix":
        raise InputError("program: found a system without process groups; expected Linux or macOS; wrap it in Python")
    if isinstance(argv, (str, bytes)) or not argv:
        raise InputError(f"argv: found {argv!r}; expected a list, the program and its arguments; no shell reads it")
    parts = tuple(os.fspath(part) for part in argv)
    if any(place in part for part in parts for place in PLACES) and not any("{out}" in part for part in parts):
        raise InputError("argv: found placeholders without {out}; expected the file that the program writes; add it")
    sizes = shape if shape is None else tuple(np.atleast_1d(np.asarray(shape)).tolist())
    if sizes is not None and not (len(sizes) <= 2 and all(isinstance(s, int) and s >= 1 for s in sizes)):
        raise InputError(f"shape: found {shape!r}; expected (K, d), (d,) or d: whole numbers from 1 up")
    if isinstance(timeout, str) or not 0 < timeout < math.inf:
        raise InputError(f"timeout: found {timeout!r}; expected seconds, more than 0")
    return Program(parts, sizes, float(timeout), bool(seeded))


def plain_rows(data: Any) -> list[list[float]]:
    """The numbers of the data, row by row; whole ones stay whole."""
    try:
        array = np.asarray(data)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        raise InputError(f"data: found {type(data).__name__}; expected numbers, all that a program can be sent")
    array = array.astype(int) if array.dtype.kind == "b" else array
    return np.atleast_2d(array).reshape(-1, array.shape[-1] if array.ndim else 1).tolist() if array.size else []


def read_rows(text: bytes, size: int | None) -> np.ndarray:
    """Lines of equally many numbers with spaces between."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty answer
            rows = np.loadtxt(io.BytesIO(text), comments=None, ndmin=2)
        if not rows.size or rows.shape[1] == (size or rows.shape[1]):
            return rows
    except ValueError:
        pass
    size = size or len(text.split(b"\n", 1)[0].split())
    for place, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            good = len([float(number) for number in line.split()]) == size
        except ValueError:
            good = False
        if not good:
            expected = "1 number" if size == 1 else f"{size} numbers, spaces between"
            raise InputError(f"line {place} of the answer is {_quote(line)}; expected {expected}; print nothing else")
    raise InputError(f"found an answer that can't be read: {_quote(text)}; expected lines of numbers")


def _fill(part: str, values: Sequence[str]) -> str:
    for place, value in zip(PLACES, values, strict=True):
        part = part.replace(place, value)
    return part


def _quote(text: bytes, most: int = 60) -> str:
    shown = text[:most].decode(errors="replace").strip()
    return repr(shown + ("..." if len(text) > most else ""))


def _status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
