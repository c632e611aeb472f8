"""What tests must not leave behind: open files, sockets, threads, child processes, and temporary files."""

import gc
import os
import sys
import threading
import time
from pathlib import Path

WAIT_SECONDS = 10.0  # for what is about to end; the check does not depend on it if nothing is left behind
PREFIXES = sys.prefix, os.path.realpath(sys.prefix), sys.base_prefix  # fonts, and files of packages
OTHER_FOLDERS = ("/dev/", "/proc/", "/sys/", "/memfd:", *PREFIXES)
UNTIL_EXIT = ("pymp-",)  # folders of multiprocessing, which removes them when the process ends
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")  # one per process, for its whole life


def resources():
    """Return the resources of this process as a set of texts."""
    return {*_threads(), *_children(), *_files()}


def left_behind(before):
    """Return what is in use now and was not before. Resources that are about to be released are waited for."""
    left = resources() - before
    deadline = time.monotonic() + WAIT_SECONDS
    while left and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
        left = resources() - before
    return sorted(left)


def files_left_in(folder):
    """Return the names of what is in a temporary folder, without what lives until this process ends."""
    return sorted(entry for entry in os.listdir(folder) if not entry.startswith(UNTIL_EXIT))


def _threads():
    return {f"thread {thread.name}" for thread in threading.enumerate() if not thread.daemon}


def _children():
    found = set()
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            for process in task.read_text().split():
                command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if not any(name in command for name in HELPERS):
                    found.add(f"process {process}: {command[:200]}")
        except OSError:  # it ended in the meantime
            continue
    return found


def _files():
    found = set()
    folder = Path("/proc/self/fd")
    for entry in os.listdir(folder) if folder.exists() else ():
        try:
            target = os.readlink(folder / entry)
        except OSError:
            continue
        is_file = target.startswith("/") and not target.startswith(OTHER_FOLDERS) and "/site-packages/" not in target
        if is_file or target.startswith("socket:"):
            found.add(f"descriptor {entry}: {target}")
    return found
