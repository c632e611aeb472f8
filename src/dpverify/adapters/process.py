"""A child process that is not lost: it has a group of its own, which ends with it, with a failure, and with us.

Whatever ends this process, its pipe to the guard closes, and the guard kills the group: also where nobody could catch
the signal. On the orderly way the guard has nothing to do.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from dpverify.errors import InputError

TAIL = 600  # bytes kept of what it says
CHUNK = 1 << 16
TICK = 0.02  # seconds between two looks at a process that says nothing
GRACE = 2.0  # seconds that it has to end once its input has ended
GUARD = """
import os, signal, sys
group = sys.stdin.buffer.readline()
sys.stdin.buffer.read()
try:
    os.killpg(int(group), signal.SIGKILL)
except (OSError, ValueError):
    pass
"""


class Heard(NamedTuple):
    """The bytes of an answer, and why there are no more: all "lines" are there, it "ended", or it is "late"."""

    answer: bytes
    why: str


class Child:
    """With `speaks`, stdin and stdout carry requests and answers; without, all that it prints is talk."""

    def __init__(self, argv: Sequence[str], speaks: bool):
        guard = [sys.executable, "-I", "-S", "-c", GUARD]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if speaks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if speaks else subprocess.STDOUT,
                start_new_session=True,  # its own group: one signal reaches whatever it starts
            )
        except BaseException as problem:
            self._dismiss()
            if not isinstance(problem, (OSError, ValueError)):
                raise
            why = getattr(problem, "strerror", None) or problem
            raise InputError(
                f"can't start {argv[0]!r} ({why}); expected a program that can be run; "
                "give its path (./name in this folder), or install it"
            ) from None
        self._answers = self._process.stdout if speaks else None
        self._talk = self._process.stderr if speaks else self._process.stdout
        self._said = b""
        for pipe in (self._process.stdin, self._answers, self._talk):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        with contextlib.suppress(OSError):
            os.write(self._guard.stdin.fileno(), b"%d\n" % self._process.pid)  # type: ignore[union-attr]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        """The end of its talk, on one line."""
        lines = self._said.decode(errors="replace").split("\n")
        text = " | ".join(" ".join(line.split()) for line in lines if line.strip())
        return "".join(letter if letter.isprintable() else "?" for letter in text)

    def exchange(self, request: bytes, lines: float, most: float, deadline: float) -> Heard:
        """Sends, and hears until so many lines or more than `most` bytes are there. Its talk never blocks it."""
        answer, found = bytearray(), 0
        with selectors.DefaultSelector() as selector:
            for pipe in (self._answers, self._talk):
                if pipe is not None and not pipe.closed:
                    selector.register(pipe, selectors.EVENT_READ)
            if request and self._process.stdin is not None:
                selector.register(self._process.stdin, selectors.EVENT_WRITE)
            while found < lines and len(answer) <= most:
                gone = self._process.poll() is not None  # before the look: by then its last words are in the pipes
                events = selector.select(0 if gone else TICK)
                if gone and not events:
                    return Heard(bytes(answer), "ended")
                if time.monotonic() >= deadline:
                    return Heard(bytes(answer), "late")
                for key, _ in events:
                    if key.fileobj is self._process.stdin:
                        request = request[_write(key.fd, request) :]
                        if not request:
                            selector.unregister(key.fileobj)
                        continue
                    try:
                        chunk = os.read(key.fd, CHUNK)
                    except BlockingIOError:  # announced, and gone
                        continue
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._answers:
                        answer += chunk
                        found += chunk.count(b"\n")
                    else:
                        self._said = (self._said + chunk)[-TAIL:]
        return Heard(bytes(answer), "lines")

    def left_over(self) -> bytes:
        """What it has answered without being asked."""
        try:
            return os.read(self._answers.fileno(), CHUNK) if self._answers is not None else b""
        except BlockingIOError:
            return b""

    def end(self, grace: float = 0.0) -> int:
        """Its input ends, then it does, by itself or by force, with all that it has started; its exit status."""
        if self._guard.returncode is not None:
            return self._process.returncode
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if grace:
            self.exchange(b"", float("inf"), CHUNK, time.monotonic() + grace)
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        status = self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._dismiss()
        return status

    def _dismiss(self) -> None:
        self._guard.kill()  # before its pipe closes: it must not look for a group that has gone
        self._guard.wait()
        self._guard.stdin.close()  # type: ignore[union-attr]


def _write(fd: int, request: bytes) -> int:
    """How much of the request is done with; all of it where nobody reads any more."""
    try:
        return os.write(fd, request[:CHUNK])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(request)
