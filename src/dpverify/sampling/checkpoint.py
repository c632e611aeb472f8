"""Checkpoints: a run stores its frozen choices and the sums over its finished blocks in a folder, and can be resumed.

    dpverify.json       the run that owns the folder: settings, datasets, a hash of what the mechanism does, and
                        hashes of the source files
    lock                locked while a run uses the folder; the operating system releases it when the process ends
    test-1.record, ...  one file per step: the sums over its finished blocks, and which blocks these are
    region.record, ...  choices that are made once

Every file is replaced as a whole. A record is a checksum, a line of JSON, and the numbers of its arrays. It names its
file and the run that it belongs to. The file of a step holds sums; its size hardly grows with the number of runs.

A folder belongs to a run with the same settings, data and behaviour of the mechanism. Source files are compared
separately: a changed source with unchanged behaviour is a warning, and the runs of a mechanism without a seed cannot be
compared at all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dpverify.errors import DPVerifyWarning, FolderError
from dpverify.mechanisms.protocol import Mechanism, is_seeded
from dpverify.settings import Settings
from dpverify.util.arrays import Array
from dpverify.util.files import NEW_FILE_SUFFIX, check_regular, hold_lock, replace_file
from dpverify.util.formatting import one_line, too_little_memory
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import from_plain
from dpverify.util.sources import SourceHashes, changed_sources, source_hashes

T = TypeVar("T")

FORMAT = 1
SECONDS_TO_END = 5.0  # a worker whose parent was killed holds the lock until it notices, on a busy machine for seconds
OWNER_FILE, LOCK_FILE, RECORD_SUFFIX = "dpverify.json", "lock", ".record"
NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
MIN_SECONDS_BETWEEN_SAVES = 1.0
MIN_SAVE_INTERVAL_RATIO = 20  # between two saves, in durations of the last save: saving takes a twentieth of the time
HASH_LENGTH = 64  # hexadecimal digits of a fingerprint


class Record(NamedTuple):
    """The content of one file.

    Attributes
    ----------
    head : dict
        Plain data that JSON can represent.
    arrays : sequence of numpy.ndarray
        The arrays.
    """

    head: dict[str, Any]
    arrays: Sequence[np.ndarray] = ()


class Checkpoint:
    """The folder of one run. Without a folder nothing is stored.

    Attributes
    ----------
    folder : pathlib.Path or None
        The folder.
    is_started : bool
        Whether a run has used the folder before.
    resumed : bool
        Whether anything was read from the folder.
    problem : str or None
        Why the last save failed; None if it succeeded.
    source_note : str or None
        Which source files have changed since the folder was started; None if none has.
    """

    def __init__(self, folder: Path | None = None):
        self.folder = folder
        self.is_started = folder is not None and (folder / OWNER_FILE).exists()
        self.resumed = False
        self.problem: str | None = None
        self.source_note: str | None = None
        self._owner = ""
        self._steps: Counter[str] = Counter()
        self._last_save, self._save_seconds = time.monotonic(), 0.0

    def acquire(
        self, run: dict[str, Any], about: Mapping[str, object], sources: SourceHashes | None = None
    ) -> SourceHashes | None:
        """Take possession of a new folder, or check that the folder belongs to this run.

        Parameters
        ----------
        run : dict
            What identifies the run. The first entry that differs is named in the error.
        about : mapping
            Further information for readers of the file.
        sources : dict, optional
            The hashes of the source files of the run. They are stored outside of `run`.

        Returns
        -------
        dict or None
            The source hashes with which the folder was started; None if the folder has no record of them.

        Raises
        ------
        FolderError
            If the folder belongs to another run, cannot be used, or was written in another format.
        """
        if self.folder is None:
            return sources
        self._owner = fingerprint(run)
        path = self.folder / OWNER_FILE
        if not path.exists():
            document = {"format": FORMAT, "run": run, "about": about, "digest": self._owner, "sources": sources or {}}
            try:
                replace_file(path, (json.dumps(document, indent=1, default=str) + "\n").encode())
            except OSError as problem:
                raise _unusable(self.folder, problem) from None
            return sources
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            file_format, owner, digest = document["format"], dict(document["run"]), document["digest"]
            recorded = None if document.get("sources") is None else dict(document["sources"])
        except OSError as problem:
            raise _unusable(path, problem) from None
        except MemoryError as problem:
            raise FolderError(too_little_memory(path, problem)) from None
        except Exception as problem:  # a damaged file can raise any exception
            raise FolderError(f"{path}: damaged ({type(problem).__name__}); start in a new folder") from None
        if file_format != FORMAT:
            raise FolderError(
                f"{path}: found format {one_line(file_format)}; expected {FORMAT}; resume with the version of dpverify "
                "that started this run, or start in a new folder"
            )
        for name in {**run, **owner}:
            if owner.get(name) != run.get(name):
                raise FolderError(_difference(self.folder, name, owner.get(name), run.get(name)))
        if digest != self._owner:
            raise FolderError(f"{path}: damaged (wrong checksum); start in a new folder")
        return recorded

    def step(self, stage: str) -> str:
        """Return the name of the next step of a stage. A resumed run repeats its steps in the same order."""
        self._steps[stage] += 1
        return f"{stage}-{self._steps[stage]}"

    def read(self, name: str) -> Record | None:
        """Return the record that was saved under this name, or None."""
        path = None if self.folder is None else self.folder / f"{name}{RECORD_SUFFIX}"
        if path is None or not path.exists():
            return None
        check_regular(path)
        try:
            head, arrays = unpack_record(path.read_bytes())
            owner, file, content = head["run"], head["file"], head["content"]
        except MemoryError as problem:
            raise FolderError(too_little_memory(path, problem)) from None
        except OSError as problem:
            raise _unusable(path, problem) from None
        except Exception as problem:  # a damaged file can raise any exception
            raise FolderError(
                f"{path}: damaged ({one_line(problem)}); remove this file; its runs are drawn again"
            ) from None
        if owner != self._owner:
            raise FolderError(f"{path}: found a file of another run; expected files of this run; use another folder")
        if file != name:
            raise FolderError(f"{path}: found the content of {one_line(file)}{RECORD_SUFFIX}; remove this file")
        self.resumed = True
        return Record(content, arrays)

    def read_choice(self, name: str, kinds: tuple[type, ...], build: Callable[[Any], T] | None = None) -> T | None:
        """Return a frozen choice of an earlier start of this run, or None.

        Parameters
        ----------
        name : str
            The name of the record.
        kinds : tuple of type
            The kinds that the record may hold, besides plain data.
        build : callable, optional
            Makes the choice from the content of the record; it may raise any exception for a damaged one. Without it,
            the content must be of the first kind.
        """
        record = self.read(name)
        if record is None:
            return None
        try:
            content = from_plain(record.head, kinds)
            if build is None and not isinstance(content, kinds[0]):
                raise TypeError(f"found no {kinds[0].__name__}")
            return content if build is None else build(content)
        except MemoryError:
            raise
        except Exception as problem:  # another version may have written anything
            raise FolderError(
                f"{self.folder}: found {name} of another version of dpverify ({one_line(problem)}); expected this "
                "version; resume with that version, or use another folder"
            ) from None

    def write(self, name: str, record: Record) -> None:
        """Save a record. If this fails, for example on a full disk, a warning is given and the old file remains."""
        if self.folder is None:
            return
        start = time.monotonic()
        head = {"run": self._owner, "file": name, "content": record.head}
        try:
            replace_file(self.folder / f"{name}{RECORD_SUFFIX}", pack_record(head, record.arrays))
        except OSError as problem:
            message = f"{self.folder}: {problem.strerror or problem}; the run continues; its last results are not saved"
            if self.problem is None:
                warnings.warn(message, DPVerifyWarning, stacklevel=2)
            self.problem = message
        else:
            self.problem = None
        finally:
            self._last_save = time.monotonic()
            self._save_seconds = self._last_save - start

    def forget(self, *stages: str) -> None:
        """Delete the files of stages whose result is frozen."""
        if self.folder is None:
            return
        for stage in stages:
            with contextlib.suppress(OSError):  # a file that stays is not read again
                for path in list(self.folder.glob(f"{stage}-*{RECORD_SUFFIX}")):
                    path.unlink()

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the last save."""
        if self.folder is None:
            return False
        interval = max(MIN_SECONDS_BETWEEN_SAVES, MIN_SAVE_INTERVAL_RATIO * self._save_seconds)
        return time.monotonic() - self._last_save > interval


def pack_record(head: Mapping[str, object], arrays: Sequence[np.ndarray]) -> bytearray:
    """Return the content of a file: its checksum, a line of JSON, and the numbers of all arrays."""
    kinds = [(array.dtype.str, array.shape) for array in arrays]
    content = bytearray(HASH_LENGTH)
    content += json.dumps({**head, "arrays": kinds}).encode() + b"\n"
    for array in arrays:
        content += array.tobytes()
    content[:HASH_LENGTH] = _checksum(content)
    return content


def unpack_record(content: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return the head and the arrays of a file. The arrays are parts of its content, so they need no more memory."""
    if content[:HASH_LENGTH] != _checksum(content):
        raise ValueError("wrong checksum")
    end, arrays = content.index(b"\n") + 1, list[np.ndarray]()
    head = json.loads(content[HASH_LENGTH:end])
    for kind, shape in head.pop("arrays"):
        array = np.frombuffer(content, kind, math.prod(shape), end) if math.prod(shape) else np.zeros(0, kind)
        arrays.append(array.reshape(shape))
        end += array.nbytes
    return head, arrays


def _checksum(content: bytes | bytearray) -> bytes:
    """Return the checksum of what follows the checksum of a file."""
    return hashlib.sha256(memoryview(content)[HASH_LENGTH:]).hexdigest().encode()


@contextlib.contextmanager
def open_checkpoint(folder: str | os.PathLike[str] | None) -> Iterator[Checkpoint]:
    """Open a checkpoint folder, create it if necessary, and lock it, so that only one run uses it at a time."""
    if folder is None:
        yield Checkpoint()
        return
    path = Path(folder).absolute()  # a mechanism may change the working folder
    try:
        path.mkdir(parents=True, exist_ok=True)
        check_regular(path / OWNER_FILE)
        if not (path / OWNER_FILE).exists():
            names = sorted(entry.name for entry in path.iterdir())
            others = [name for name in names if name != LOCK_FILE and not name.endswith(NEW_FILE_SUFFIX)]
            if others:
                raise FolderError(
                    f"{path}: found {others[0]}, so this is not a folder of dpverify; expected a new or an empty folder"
                )
    except (OSError, ValueError) as problem:  # a null character in the name is a ValueError
        raise _unusable(path, problem) from None
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold_lock(path / LOCK_FILE, SECONDS_TO_END))
        except BlockingIOError:
            raise FolderError(
                f"{path}: found another run that uses this folder; expected one run at a time; wait, or use "
                "another folder"
            ) from None
        except OSError as problem:
            # In a folder that cannot be written, a finished run can still be read.
            if problem.errno not in NOT_WRITABLE or not (path / OWNER_FILE).exists():
                raise _unusable(path, problem) from None
        else:
            with contextlib.suppress(OSError):
                for rest in list(path.glob(f".*{NEW_FILE_SUFFIX}")):  # of an interrupted write
                    rest.unlink()
        yield Checkpoint(path)


def _difference(folder: Path, name: str, found: object, expected: object) -> str:
    """Return the message for a folder whose run differs in the entry `name`."""
    advice = "repeat the call that the folder was started with, or use another folder (--folder, folder=)"
    if name == "probe":
        return (
            f"{folder}: found the runs of another mechanism, or of another kind of machine; expected the runs of this "
            f"mechanism; state that a mechanism cannot be seeded: per_run(f, seeded=False), or a class attribute "
            f"seeded = False; {advice}"
        )
    if any(isinstance(value, str) and len(value) == HASH_LENGTH for value in (found, expected)):  # nobody reads a hash
        return f"{folder}: found another {name}; expected the one of this call; {advice}"
    shown = ["none" if value is None else one_line(value) for value in (found, expected)]
    return f"{folder}: found {name} {shown[0]}; expected {shown[1]} as in this call; {advice}"


def _unusable(path: Path, problem: Exception) -> FolderError:
    reason = getattr(problem, "strerror", None) or problem
    return FolderError(f"{path}: {reason}; expected a folder that can be read and written")


def run_sources(
    mechanism: Mechanism,
    settings: Settings,
    error: Callable[[Array], Array] | None = None,
    modules: Iterable[str] = (),
) -> SourceHashes:
    """Return the hashes of the sources of a run: of the mechanism, its error function, its score function and modules.

    What is installed counts, as `source_hashes` explains.

    The runs of a mechanism without a seed cannot be compared, so its parameters count as a source too. They are the
    plain fields of a frozen dataclass: other objects may change with each call.
    """
    score = settings.events if callable(settings.events) else None
    hashes = source_hashes(mechanism, error, score, modules=modules, installed=True)
    if not is_seeded(mechanism) and dataclasses.is_dataclass(mechanism):
        fields = {field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)}
        plain = {name: value for name, value in fields.items() if isinstance(value, (int, float, str, tuple))}
        if type(mechanism).__dataclass_params__.frozen:  # type: ignore[attr-defined]
            hashes["the parameters of the mechanism"] = fingerprint(plain, sources=False)
    return hashes


def check_sources(
    checkpoint: Checkpoint, recorded: SourceHashes | None, current: SourceHashes, seeded: bool, trusted: bool
) -> None:
    """Warn of source files that changed since the folder was started; refuse the folder of an unseeded mechanism.

    A seeded mechanism is compared by its first runs, which `run_identity` contains, so that it may be moved to another
    file. Runs of an unseeded mechanism cannot be compared, so the user has to state that the results can be trusted.

    Parameters
    ----------
    checkpoint : Checkpoint
        The folder.
    recorded : dict or None
        The source hashes with which the folder was started; None if the folder has no record of them.
    current : dict
        The source hashes of this run.
    seeded : bool
        Whether the mechanism can be seeded.
    trusted : bool
        Whether the user states that the results can be trusted.
    """
    changed = changed_sources(recorded or {}, current, moved=not seeded)
    if recorded is not None and not changed:
        return
    if seeded or trusted:
        if changed:
            note = f"{checkpoint.folder}: {describe_changes(changed)} since the folder was started; its results are "
            reason = "used, because 64 runs per dataset are the same; a rarer change of the mechanism is not noticed"
            checkpoint.source_note = note + (reason if seeded else "trusted")
            if not trusted:
                warnings.warn(checkpoint.source_note, DPVerifyWarning, stacklevel=5)
        return
    found = "no record of the source files" if recorded is None else f"that {describe_changes(changed)}"
    raise FolderError(
        f"{checkpoint.folder}: found {found}; expected the sources that the folder was started with, because runs "
        "without a seed cannot be compared; use another folder, or confirm that the results can be trusted "
        "(--trust-results, trust_results=True)"
    )


def describe_changes(names: tuple[str, ...]) -> str:
    """Return which files changed, in words; after three names the others are counted.

    Examples
    --------
    >>> describe_changes(("a.py", "b.py"))
    'a.py and b.py changed'
    """
    shown = list(names[:3]) + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    text = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f"{one_line(text)} changed"
