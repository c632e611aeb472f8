"""Child processes that never outlive this process.

A child and the processes of its group are killed when the child fails or is no longer needed. A second process, the
guard, waits on a pipe from this process. When this process ends for any reason, also by a signal that cannot be caught,
the pipe closes and the guard kills the group.
"""

from __future__ import annotations

import contextlib
import enum
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dpverify.errors import InputError

MESSAGE_BYTES = 600  # bytes that are stored of the messages of a child
CHUNK_BYTES = 1 << 16
POLL_SECONDS = 0.02  # interval of checks whether a silent child has ended
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
        return "".join(letter if letter.isprintable() else "?" for letter in text)

    def exchange(
        self, request: bytes, lines: float, max_bytes: Callable[[bytearray], float], deadline: float
    ) -> Answer:
        """Send a request, and read until a number of lines or too many bytes have arrived.

        The limit of the bytes, `max_bytes`, depends on what has arrived so far.

        Messages are read at the same time, so that a child with many messages is never blocked. `deadline` is a time of
        `time.monotonic`.
        """
        content, lines_read = bytearray(), 0
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
                if time.monotonic() >= deadline:
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
