"""What a test module must not leave behind: open files, sockets, threads, child processes."""

import gc
import os
import sys
import threading
import time
from pathlib import Path

WAIT_SECONDS = 10.0  # for what is about to end; the check does not depend on it if nothing is left behind
OTHER_FOLDERS = ("/dev/", "/proc/", "/sys/", "/memfd:", sys.prefix, sys.base_prefix)  # fonts, and files of packages
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
        is_file = target.startswith("/") and not target.startswith(OTHER_FOLDERS)
        if is_file or target.startswith("socket:"):
            found.add(f"descriptor {entry}: {target}")
    return found
