"""End all processes of a program. This file uses the standard library only, because it also runs as a script.

As a script it is the guard of a program: it waits on a pipe from the process that started it. When that process ends
for any reason, also by a signal that cannot be caught, the pipe closes and the guard ends the program.

A program runs in its own process group, which receives one signal. A process that has left the group, for example a
daemon, is found by a mark in its environment where the system shows the environments of processes (Linux).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

MARK_VARIABLE = "DPVERIFY_PROGRAM"
MAX_ROUNDS = 10  # a process may start another one while the processes are being listed
PROCESSES = "/proc"


def end_processes(group: int, mark: str) -> None:
    """Kill a process group and every process that has this mark in its environment."""
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    for _ in range(MAX_ROUNDS):
        marked = list(_marked_processes(mark))
        for process in marked:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if not marked:
            return


def _marked_processes(mark: str) -> Iterator[int]:
    """Yield the ids of the running processes that have this mark."""
    entry = f"{MARK_VARIABLE}={mark}".encode()
    try:
        names = os.listdir(PROCESSES)
    except OSError:  # not Linux
        return
    for name in names:
        if not name.isdecimal():
            continue
        try:
            with open(f"{PROCESSES}/{name}/environ", "rb") as file:  # empty for a process that has ended
                environment = file.read()
        except OSError:  # it has ended, or belongs to another user
            continue
        if entry in environment.split(b"\0"):
            yield int(name)


if __name__ == "__main__":
    request = sys.stdin.buffer.readline().split()
    sys.stdin.buffer.read()
    if len(request) == 2:
        end_processes(int(request[0]), request[1].decode())
