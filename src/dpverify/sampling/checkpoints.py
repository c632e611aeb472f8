"""A folder that survives kills: what a run has settled, and what its finished blocks came to.

    dpverify.json     whose folder it is: settings, data, and a hash of what the mechanism does
    lock              held while a run is under way; the system lets go of it however the process ends
    test-1.npz, ...   one file a step: the sum of its finished blocks, and which they are
    region.npz, ...   what is settled once and for all

Every file is replaced as a whole, carries a checksum and the digest of the run it belongs to, and is plain data:
arrays and JSON, never a pickle. A step's file holds sums, so its size does not grow with the number of runs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import DPVerifyWarning, FolderError
from dpverify.util.files import NEW_FILE_SUFFIX, replace_file
from dpverify.util.formatting import one_line
from dpverify.util.hashing import fingerprint

try:
    import fcntl
except ImportError:  # not on Windows: there nobody stops a second run in the same folder
    fcntl = None

FORMAT = 1
OWNER_FILE, LOCK_FILE = "dpverify.json", "lock"
MIN_SECONDS_BETWEEN_SAVES = 1.0  # seconds between two savings at least,
MIN_SAVE_INTERVAL_RATIO = 20  # and so many times as long as the last one took: saving costs a twentieth at most


class Record(NamedTuple):
    """What one file holds: plain data about it (JSON), and arrays."""

    head: dict[str, Any]
    arrays: Sequence[np.ndarray] = ()


class Checkpoint:
    """The folder of one run; without a folder nothing is kept and nothing is found."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder
        self.resumed = False  # whether anything was found
        self.problem: str | None = None  # why the last saving failed
        self._owner = ""
        self._steps: Counter[str] = Counter()
        self._saved, self._cost = time.monotonic(), 0.0

    def claim(self, run: dict[str, Any], about: dict[str, Any]) -> None:
        """The folder is this run's from now on, or a FolderError says whose it is.

        `run` holds what has to agree, in the order in which a difference is named; `about` is for readers.
        """
        if self.folder is None:
            return
        self._owner = fingerprint(run)
        path = self.folder / OWNER_FILE
        if not path.exists():
            document = {"format": FORMAT, "run": run, "about": about, "digest": self._owner}
            try:
                replace_file(path, (json.dumps(document, indent=1, default=str) + "\n").encode())
            except OSError as problem:
                raise _unusable(self.folder, problem) from None
            return
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            found, theirs, digest = document["format"], dict(document["run"]), document["digest"]
        except OSError as problem:
            raise _unusable(path, problem) from None
        except Exception as problem:  # a damaged file can raise anything
            raise FolderError(f"{path}: damaged ({type(problem).__name__}); begin anew in another folder") from None
        self._check_format(path, found)
        for name in run:
            if theirs.get(name) != run[name]:
                raise FolderError(_difference(self.folder, name, theirs.get(name), run[name]))
        if digest != self._owner:
            raise FolderError(f"{path}: damaged (its checksum is wrong); begin anew in another folder")

    def step(self, stage: str) -> str:
        """The name of the next step of a stage; a run repeats its steps in the same order."""
        self._steps[stage] += 1
        return f"{stage}-{self._steps[stage]}"

    def read(self, name: str) -> Record | None:
        """What was saved under this name, None if nothing was."""
        path = self._path(name)
        if path is None or not path.exists():
            return None
        try:
            content = path.read_bytes()
        except OSError as problem:
            raise _unusable(path, problem) from None
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                head = json.loads(file["head"].tobytes())
                arrays = [file[f"arr_{place}"] for place in range(len(file.files) - 1)]
            checksum, owner = head.pop("checksum"), head["owner"]
        except Exception as problem:  # a damaged archive can raise anything
            raise _damaged(path, type(problem).__name__) from None
        self._check_format(path, head.get("format"))
        if fingerprint((head, arrays)) != checksum:
            raise _damaged(path, "its checksum is wrong")
        del head["owner"]
        if owner != self._owner:
            raise FolderError(f"{path}: belongs to another run; expected files of this one; begin in another folder")
        self.resumed = True
        return Record(head, arrays)

    def write(self, name: str, page: Record) -> None:
        """Saved as a whole, or not at all: a full disk costs a warning, never what was saved before."""
        path = self._path(name)
        if path is None:
            return
        start = time.monotonic()
        head = json.loads(json.dumps({"format": FORMAT, "owner": self._owner, **page.head}))  # as it will be read
        arrays = [np.asarray(array) for array in page.arrays]
        head["checksum"] = fingerprint((head, arrays))
        buffer = io.BytesIO()
        words = np.frombuffer(json.dumps(head).encode(), np.uint8)
        np.savez(buffer, *arrays, head=words)
        try:
            replace_file(path, buffer.getbuffer())
        except OSError as problem:
            why = problem.strerror or problem
            line = f"{self.folder}: {why}; the run goes on; what this saving had to keep is not kept"
            if self.problem is None:
                warnings.warn(line, DPVerifyWarning, stacklevel=2)
            self.problem = line
        else:
            self.problem = None
        finally:
            self._saved = time.monotonic()
            self._cost = self._saved - start

    def forget(self, *stages: str) -> None:
        """The steps of these stages are no longer needed."""
        if self.folder is not None:
            for path in (path for stage in stages for path in self.folder.glob(f"{stage}-*.npz")):
                with contextlib.suppress(OSError):
                    path.unlink()

    @property
    def due(self) -> bool:
        return self.folder is not None and time.monotonic() - self._saved > max(
            MIN_SECONDS_BETWEEN_SAVES, MIN_SAVE_INTERVAL_RATIO * self._cost
        )

    def _path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{name}.npz"

    def _check_format(self, path: Path, found: Any) -> None:
        if found != FORMAT:
            newer = isinstance(found, int) and found > FORMAT
            advice = "update dpverify to go on" if newer else "begin anew in another folder"
            raise FolderError(f"{path}: found format {one_line(found)}, expected {FORMAT}; {advice}")


@contextlib.contextmanager
def open_checkpoint(folder: str | os.PathLike[str] | None) -> Iterator[Checkpoint]:
    """The folder, made if need be, and locked: one run at a time."""
    if folder is None:
        yield Checkpoint()
        return
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not (path / OWNER_FILE).exists():
            others = sorted(p.name for p in path.iterdir() if p.name not in (LOCK_FILE, OWNER_FILE + NEW_FILE_SUFFIX))
            if others:
                raise FolderError(f"{path}: found {others[0]}, no folder of dpverify; expected a new or an empty one")
        lock = (path / LOCK_FILE).open("a")
    except (OSError, ValueError) as problem:  # no folder can have a zero in its name
        raise _unusable(path, problem) from None
    with lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderError(
                    f"{path}: another run is under way in it; expected one at a time; wait, or take another folder"
                ) from None
            except OSError as problem:  # a file system without locks
                warnings.warn(f"{path}: no lock ({problem.strerror}); take care of one run at a time", DPVerifyWarning)
        try:
            yield Checkpoint(path)
        finally:
            if fcntl is not None:  # closing is not enough where a mechanism has forked: its child holds the lock too
                with contextlib.suppress(OSError):
                    fcntl.flock(lock, fcntl.LOCK_UN)


def _difference(folder: Path, name: str, found: Any, expected: Any) -> str:
    remedy = "repeat the call it was begun with, or take another folder"
    if name == "probe":
        return (
            f"{folder}: found the runs of another mechanism, or of another kind of machine; expected those that this "
            f"one makes (seeded = False marks one that can't be repeated); {remedy}"
        )
    if isinstance(expected, str) and len(expected) == 64:  # a hash tells a reader nothing
        return f"{folder}: found another {name}; expected the one of this call; {remedy}"
    return f"{folder}: found {name} {one_line(found)}, expected {expected} as in this call; {remedy}"


def _damaged(path: Path, why: str) -> FolderError:
    return FolderError(f"{path}: damaged ({why}); remove this file, and its part is drawn again")


def _unusable(path: Path, problem: Exception) -> FolderError:
    why = getattr(problem, "strerror", None) or problem
    return FolderError(f"{path}: {why}; expected a folder that can be read and written")
