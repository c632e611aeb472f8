"""Combinations that end or block the process: what a study remembers about them, and the time limit.

A mechanism can end the process that calls it, so that no code of the study runs any more. Therefore a study writes the
file `running/started.json` before it starts a combination, and removes it afterwards. If the file still exists, the
process ended in between. The command `dpverify` has a second process that reads the file and records the combination
as failed. Without this process (a call of `run_study` in Python), nothing shows whether the mechanism ended the process
or somebody killed it. Then a combination counts as failed after two such ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from dpverify.errors import TimeLimitReached
from dpverify.util.files import replace_file

RUNNING_FOLDER, STARTED_FILE = "running", "started.json"
MAX_UNFINISHED_STARTS = 2
WORKER_ENDED = "a worker process ended while this combination was running; the mechanism, or a library, ended it"
GRACE_SECONDS = 5.0  # after the time limit, to save finished runs; then the process is ended


class Start(NamedTuple):
    """The content of `started.json`.

    Attributes
    ----------
    number : int
        The number of the combination.
    process : int
        The id of the process that has started it.
    starts : int
        How many processes have started it and not finished it, this one included.
    deadline : float or None
        When the time limit ends, on the monotonic clock, which all processes of a machine share.
    """

    number: int
    process: int
    starts: int = 1
    deadline: float | None = None


class CombinationFailed(Exception):
    """A combination has ended a worker or has reached the time limit; the message is the reason."""


_ended: Mapping[int, str] | None = None  # set in the processes of the command `dpverify`


def set_supervised(ended: Mapping[int, str]) -> None:
    """State that another process notices if this process ends.

    Parameters
    ----------
    ended : mapping
        The combinations that have ended an earlier process of the same command, by number, with the reasons.
    """
    global _ended
    _ended = ended


def read_start(folder: Path) -> Start | None:
    """Return which combination of the study in this folder was started and not finished, or None."""
    path = folder / RUNNING_FOLDER / STARTED_FILE
    if not path.is_file():
        return None
    try:
        return Start(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def describe_end(start: Start, end: str) -> str:
    """Return the reason why a combination failed that ended its process; `end` states how the process ended."""
    if start.deadline is not None and time.monotonic() >= start.deadline:
        return "the time limit was reached, and the mechanism did not react; the process was ended"
    return f"the process ended while this combination was running ({end}); the mechanism, or a library, ended it"


class StartLog:
    """The combinations that are known to end the process, and the file that names the one that is running.

    Parameters
    ----------
    folder : pathlib.Path
        The folder of the study.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_supervised = _ended is not None
        self._reasons = dict(_ended or {})
        self._earlier = None if self._is_supervised else read_start(folder)
        if self._earlier is not None and self._earlier.starts >= MAX_UNFINISHED_STARTS:
            self._reasons[self._earlier.number] = (
                f"the process ended {self._earlier.starts} times while this combination was running; the next start "
                "tries it again"
            )
            self._remove()
            self._earlier = None

    def reason(self, number: int) -> str | None:
        """Return why this combination is not started, or None."""
        return self._reasons.get(number)

    @contextlib.contextmanager
    def started(self, number: int, seconds: float | None) -> Iterator[None]:
        """Write the file, apply the time limit to the block, and remove the file."""
        starts = 1
        if self._earlier is not None and self._earlier.number == number:
            starts += self._earlier.starts
        deadline = None if seconds is None else time.monotonic() + seconds
        with contextlib.suppress(OSError):  # a full disk is reported when a report is written
            (self._folder / RUNNING_FOLDER).mkdir(exist_ok=True)
            document = Start(number, os.getpid(), starts, deadline)._asdict()
            replace_file(self._folder / RUNNING_FOLDER / STARTED_FILE, json.dumps(document).encode())
        try:
            with time_limit(seconds, self._is_supervised):
                yield
        finally:
            self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            (self._folder / RUNNING_FOLDER / STARTED_FILE).unlink(missing_ok=True)


@contextlib.contextmanager
def time_limit(seconds: float | None, may_end_process: bool) -> Iterator[None]:
    """Raise TimeLimitReached in the block after so many seconds.

    Code in C is not interrupted. With `may_end_process`, the process is ended some seconds later in this case. The
    limit works in the main thread of systems with `signal.setitimer`; elsewhere it is not applied.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not is_main or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeLimitReached

    with contextlib.ExitStack() as stack:
        if may_end_process:
            # The watchdog is a thread in C, so it also works while other code in C does not return.
            null = stack.enter_context(Path(os.devnull).open("w"))
            faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True, file=null)
            stack.callback(faulthandler.cancel_dump_traceback_later)
        previous = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
