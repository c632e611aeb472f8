"""A child process does the work of the command, and this process reports how the child has ended.

A mechanism can end the process that calls it, for example with `os._exit(0)` or by a crash in C code. Exit status 0
would then look like the result "not refuted". So the child sends its status when it is done, and only this status
counts.
"""

from __future__ import annotations

import contextlib
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

SAME_INTERRUPT_SECONDS = 1.0  # a terminal sends an interrupt to both processes; within this time two are one
PARENT_POLL_SECONDS = 0.5  # an orphaned child may compute so much longer
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
    reader, writer = os.pipe()
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED_SIGNALS)  # until both processes have their handlers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads of linear algebra libraries allow a fork
        child = os.fork()
    if child == 0:
        os.close(reader)
        _end_with(parent)
        _merge_interrupts()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED_SIGNALS)
        status = work()
        with contextlib.suppress(OSError):  # a mechanism may have closed the pipe; then the work counts as not done
            os.write(writer, bytes([status]))
        sys.exit(status)
    os.close(writer)
    with _forward_signals(child) as received:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # the id of the child stays valid until it is reaped
    end = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.set_blocking(reader, False)  # a process that the mechanism has started may have inherited the other end
    try:
        message = os.read(reader, 1)
    except BlockingIOError:
        message = b""
    os.close(reader)
    status = message[0] if message else None
    if end >= 0:
        return Outcome(child, status, f"exit status {end}", bool(received))
    stopped = bool(received) or -end in (*FORWARDED_SIGNALS, signal.SIGHUP)
    return Outcome(child, status, f"killed by {_signal_name(-end)}", stopped)


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
