"""Fuzz tests of everything that reads input: `make fuzz`, or `python -m fuzz [inputs] [seed] [reader...]` in tests/.

Valid documents are changed at random, in their bytes or in their structure. A reader must accept the result, or refuse
it with an error of this library in one line. It must not raise anything else, hang, start a process, use a network,
unpickle, or write outside its folder. Everything runs in this process. The command line runs without verifications: its
checks of claim and settings are made, and then an earlier report is returned.
"""

import contextlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from dpverify.errors import FolderError, InputError, MechanismError, Stopped
from fuzz.people import Commands, Studies
from fuzz.readers import Broken, Folders, Programs, Reports
from fuzz.results import CommandReports, Histories, Ledgers, ResultFolders

CLEAN = (InputError, FolderError, MechanismError, Stopped)
SECONDS = 10  # for one input; the alarm must ring twice, because a suspended process gets one when it wakes up
ALL = 1_000_000
SHOWN = 5  # failures that are printed for each reader
MEMORY = "/dev/shm"  # a million small files are written faster to memory
READERS = {
    **{"report": Reports, "folder": Folders, "study": Studies, "program": Programs, "command": Commands},
    **{"report command": CommandReports, "result folder": ResultFolders, "ledger": Ledgers, "history": Histories},
}
SHARES = {  # fast readers get more inputs
    **{"report": 0.1, "folder": 0.1, "study": 0.15, "program": 0.45, "command": 0.1},
    **{"report command": 0.04, "result folder": 0.02, "ledger": 0.03, "history": 0.01},
}


class Hang(BaseException):
    """A reader takes too long. It is not an Exception, so that no reader catches it."""


FORBIDDEN = ("subprocess.", "os.system", "os.exec", "os.fork", "os.spawn", "os.posix_spawn", "socket.", "pickle.")
WRITING = {
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
}


class Watch:
    """Records forbidden actions of a reader, from the audit events of Python."""

    def __init__(self):
        self.folder, self.seen, self.alarms = None, [], 0
        sys.addaudithook(self._record)

    def _record(self, event, arguments):
        if self.folder is None:
            return
        if event.startswith(FORBIDDEN):
            self.seen.append(f"{event} {arguments}")
        elif event == "open" and (arguments[1] is None or set("wax+") & set(str(arguments[1]))):
            flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
            if arguments[1] is not None or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self._record_write(arguments[0])
        else:
            for position in WRITING.get(event, ()):
                self._record_write(arguments[position])

    def _record_write(self, path):
        if isinstance(path, int) or os.fspath(path) in (os.devnull, str(os.devnull).encode()):
            return
        full = os.path.realpath(os.fsdecode(path))
        if full != self.folder and not full.startswith(self.folder + os.sep) and "__pycache__" not in full:
            self.seen.append(f"wrote {full}")


_watches = []  # an audit hook cannot be removed, so there is only one


@contextlib.contextmanager
def watching(place):
    """Work in the folder, with a watch and an alarm."""
    if not _watches:
        _watches.append(Watch())
    before, path, watch = os.getcwd(), [*sys.path], _watches[0]

    def late(*_):
        watch.alarms += 1
        if watch.alarms > 1:
            raise Hang

    old = signal.signal(signal.SIGALRM, late)
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        sys.modules.pop("fuzzed", None)
        signal.signal(signal.SIGALRM, old)


def fuzz(name, inputs, seed, place):
    """Give so many inputs to one reader; return the number of each outcome, the failures, and the longest time."""
    outcomes, broken, slowest, reader = Counter(), [], 0.0, READERS[name](Path(place))
    with watching(place):
        for number in range(inputs):
            example = reader.example(random.Random(f"{name} {seed} {number}"))
            start = time.perf_counter()
            try:
                outcomes[attempt(reader, example, place)] += 1
            except Broken as problem:
                broken.append(problem)
            slowest = max(slowest, time.perf_counter() - start)
    return outcomes, broken, slowest


def attempt(reader, example, place):
    """Return "taken" or the name of the permitted error for one input; raise Broken for anything else."""
    watch = _watches[0]
    watch.seen.clear()
    watch.alarms = 0
    signal.setitimer(signal.ITIMER_REAL, SECONDS / 2, SECONDS / 2)
    watch.folder = os.path.realpath(place)
    try:
        reader.read(example)
        outcome = "taken"
    except CLEAN as problem:
        outcome = type(problem).__name__
        if "\n" in str(problem) or len(str(problem)) > 3000:
            raise Broken(f"not one line: {problem!s:.500}, from {example!r:.3000}") from problem
    except (Exception, Hang) as problem:
        raise Broken(f"{type(problem).__name__}: {problem}, from {example!r:.3000}") from problem
    finally:
        watch.folder = None
        signal.setitimer(signal.ITIMER_REAL, 0)
    if watch.seen:
        raise Broken(f"{watch.seen}, from {example!r:.3000}")
    return outcome


def main(inputs=ALL, seed=0, names=()):
    """Print the outcomes of each reader, or of some, and some failures; return 1 if there is a failure."""
    broken = []
    for name in names or READERS:
        start, share = time.process_time(), round(SHARES[name] * inputs)
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY if os.path.isdir(MEMORY) else None) as place:
            outcomes, found, slowest = fuzz(name, share, seed, place)
        for problem in found[:SHOWN]:
            traceback.print_exception(problem)
        broken += found
        took = time.process_time() - start
        times = f"in {took:.0f} s, the slowest in {slowest:.1f} s"
        print(f"{name:13} {share} inputs {times}: {dict(outcomes)}, {len(found)} broke it", flush=True)
    return 1 if broken else 0
