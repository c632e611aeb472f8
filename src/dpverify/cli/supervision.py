"""Supervision of the command: a child process does the work, and this process reports how the child has ended.

A mechanism can end the process that calls it, for example with `os._exit(0)` or by a crash in C code. Without
supervision, exit status 0 would then look like the result "not refuted". Therefore the child sends a message when it is
done. Its status counts only if this message has arrived. This process computes nothing, so it can start a new child
after a failure.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NamedTuple

from dpverify.cli.output import NO_ANSWER

MESSAGE_BYTES = 128  # more than the message needs: a process id, an exit status and the token
TOKEN_BYTES = 16
SAME_INTERRUPT_SECONDS = 1.0  # within this time two interrupts are one: a terminal sends it to both processes
PARENT_POLL_SECONDS = 0.5
SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux
FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Outcome(NamedTuple):
    """How a child process has ended.

    Attributes
    ----------
    process : int
        The process id of the child.
    status : int or None
        Its exit status; None if it ended without the message that it is done.
    end : str
        How it ended, in words, for example "exit status 0" or "killed by SIGSEGV".
    stopped : bool
        Whether a signal has asked this process or the child to stop.
    """

    process: int
    status: int | None
    end: str
    stopped: bool


def run_in_child(work: Callable[[], int]) -> Outcome:
    """Run `work` in a child process and wait for its end. The child exits with the status that `work` returns."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # otherwise both processes would write what is buffered
    gc.freeze()  # the child does not visit the objects of the imported modules again, so their memory stays shared
    reader, writer = os.pipe()
    token = os.urandom(TOKEN_BYTES).hex()
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED_SIGNALS)  # until both processes have their handlers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads of linear algebra libraries allow a fork
        child = os.fork()
    if child == 0:
        os.close(reader)
        _work_as_child(work, writer, parent, token)
    os.close(writer)
    with _forward_signals(child) as received:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # the id of the child stays valid until it is reaped
    wait_status = os.waitpid(child, 0)[1]
    status = _read_status(reader, child, token)
    os.close(reader)
    if not os.WIFSIGNALED(wait_status):
        return Outcome(child, status, f"exit status {os.WEXITSTATUS(wait_status)}", bool(received))
    number = os.WTERMSIG(wait_status)
    stopped = bool(received) or number in (*FORWARDED_SIGNALS, signal.SIGHUP)
    return Outcome(child, status, f"killed by {_signal_name(number)}", stopped)


def _work_as_child(work: Callable[[], int], writer: int, parent: int, token: str) -> None:
    """Do the work, send its status, and exit."""
    _end_with(parent)
    _merge_interrupts()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED_SIGNALS)
    status = work()
    with contextlib.suppress(OSError):  # a mechanism may have closed the pipe; then the work counts as not done
        os.write(writer, f"{os.getpid()} {status} {token}".encode())
    sys.exit(status)


def _read_status(reader: int, child: int, token: str) -> int | None:
    """Return the status in the message of the child, or None. A process that the child has forked sends none.

    A mechanism that writes to open files of the process does not know the token.
    """
    os.set_blocking(reader, False)  # a process that still runs may have inherited the other end
    try:
        process, status, found = os.read(reader, MESSAGE_BYTES).decode().split()
        return int(status) if (int(process), found) == (child, token) else None
    except (BlockingIOError, ValueError):
        return None


@contextlib.contextmanager
def _forward_signals(child: int) -> Iterator[list[int]]:
    """Send SIGINT and SIGTERM on to the child. Yield the list of the signals that were sent."""
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    # A command in the background ignores SIGINT; this stays so.
    handled = [number for number in FORWARDED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, forward) for number in handled}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED_SIGNALS)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _merge_interrupts() -> None:
    """Raise KeyboardInterrupt once if an interrupt arrives from the terminal and from the parent process."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a command in the background
        return
    last = -SAME_INTERRUPT_SECONDS

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SAME_INTERRUPT_SECONDS:
            last = now
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


def _end_with(parent: int) -> None:
    """End this process when its parent ends, also if the parent is killed."""
    try:
        set_by_kernel = ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL) == 0
    except (OSError, AttributeError, TypeError):  # not Linux
        set_by_kernel = False
    if os.getppid() != parent:  # it ended before the call
        os._exit(NO_ANSWER)
    if set_by_kernel:
        return

    def wait_for_parent() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(NO_ANSWER)

    threading.Thread(target=wait_for_parent, daemon=True).start()


def _signal_name(number: int) -> str:
    """Return the name of a signal, for example SIGSEGV."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
