"""Every reader, fed with what it should not be fed: `make fuzz`, or `python -m fuzz [inputs] [seed]` in tests/.

Valid documents are changed, bytes and structure alike, from a seed. A reader may take the result or refuse it with one
of our errors in one line; it may not raise anything else, hang, start anything, reach a network, unpickle, or write
outside the folder it was given. All of it happens in this process. Behind the command line the verification itself is
replaced: its own checks of claim and settings are kept, then a report from earlier is answered.
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

from dpverify import cli
from dpverify.errors import FolderError, InputError, MechanismError, Stopped
from fuzz.people import Commands, Studies
from fuzz.readers import Broken, Folders, Programs, Reports

CLEAN = (InputError, FolderError, MechanismError, Stopped)
SECONDS = 10  # for one input: more is a hang, and it is told twice, since a process that was stopped hears it once
ALL = 1_000_000
SHOWN = 5  # of what broke a reader
MEMORY = "/dev/shm"  # a million small files are no work for a disk
READERS = {"report": Reports, "folder": Folders, "study": Studies, "program": Programs, "command": Commands}
SHARES = {"report": 0.1, "folder": 0.1, "study": 0.15, "program": 0.5, "command": 0.15}  # the quick ones get more


class Hang(BaseException):
    """Not an Exception: no reader may swallow it."""


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
    """Sees what a reader does to the world, from Python's own audit events."""

    def __init__(self):
        self.folder, self.seen, self.alarms = None, [], 0
        sys.addaudithook(self._hear)

    def _hear(self, event, arguments):
        if self.folder is None:
            return
        if event.startswith(FORBIDDEN):
            self.seen.append(f"{event} {arguments}")
        elif event == "open" and (arguments[1] is None or set("wax+") & set(str(arguments[1]))):
            flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
            if arguments[1] is not None or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self._wrote(arguments[0])
        else:
            for place in WRITING.get(event, ()):
                self._wrote(arguments[place])

    def _wrote(self, path):
        if isinstance(path, int) or os.fspath(path) in (os.devnull, str(os.devnull).encode()):
            return
        full = os.path.realpath(os.fsdecode(path))
        if full != self.folder and not full.startswith(self.folder + os.sep) and "__pycache__" not in full:
            self.seen.append(f"wrote {full}")


_watches = []  # an audit hook stays: one for all


@contextlib.contextmanager
def watching(place):
    """In the folder, with a watch over it and an alarm set."""
    if not _watches:
        _watches.append(Watch())
    before, path, watch = os.getcwd(), [*sys.path], _watches[0]

    def late(*_):
        watch.alarms += 1
        if watch.alarms > 1:
            raise Hang

    old = signal.signal(signal.SIGALRM, late)
    cli.parser.cache_clear()  # a parser keeps what it names: the command itself before, stand-ins after
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)
        cli.parser.cache_clear()
        sys.path[:] = path
        sys.modules.pop("fuzzed", None)
        signal.signal(signal.SIGALRM, old)


def fuzz(name, inputs, seed, place):
    """So many inputs for one reader: how many were taken, or refused by which kind of error; and what broke it."""
    outcomes, broken, reader = Counter(), [], READERS[name](Path(place))
    with watching(place):
        for number in range(inputs):
            example = reader.example(random.Random(f"{name} {seed} {number}"))
            try:
                outcomes[attempt(reader, example, place)] += 1
            except Broken as problem:
                broken.append(problem)
    return outcomes, broken


def attempt(reader, example, place):
    """One input: "taken", or the name of the clean error; anything else is raised, with the input."""
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


def main(inputs=ALL, seed=0):
    """Counts for each reader; what broke it is shown."""
    broken = []
    for name in READERS:
        start, share = time.process_time(), round(SHARES[name] * inputs)
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY if os.path.isdir(MEMORY) else None) as place:
            outcomes, found = fuzz(name, share, seed, place)
        for problem in found[:SHOWN]:
            traceback.print_exception(problem)
        broken += found
        took = time.process_time() - start
        print(f"{name:8} {share} inputs in {took:.0f} s: {dict(outcomes)}, {len(found)} broke it", flush=True)
    return 1 if broken else 0
