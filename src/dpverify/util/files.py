"""Atomic replacement of files, documents with a checksum, and locks of the operating system."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from dpverify.errors import DPVerifyWarning, FolderError, InputError, OutputError
from dpverify.util.formatting import one_line, too_little_memory
from dpverify.util.hashing import fingerprint

if sys.platform == "win32":
    import msvcrt

    LOCK, UNLOCK = msvcrt.LK_NBLCK, msvcrt.LK_UNLCK

    def _set_lock(file: IO[Any], mode: int) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), mode, 1)
else:
    import fcntl

    LOCK, UNLOCK = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
    _set_lock = fcntl.flock

T = TypeVar("T")

DOCUMENT_FORMAT = 1
LOCK_SECONDS = 60.0  # how long a writer waits for another one; a write takes milliseconds
POLL_SECONDS = 0.05  # between two attempts to take a lock; short beside the time that anybody notices
NEW_FILE_SUFFIX = ".dpverify-new"  # of a file that is being written; after a kill it may stay
NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
LOCK_FILE_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
NOT_REPLACEABLE = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS)  # but it may be writable


def replace_file(path: Path, content: bytes | bytearray | memoryview) -> None:
    """Write a file atomically: after a crash the path holds either the old or the new content, never a mixture.

    The new content is written to a file with a name of its own in the same folder, so several processes can write the
    same path. An existing file keeps its permissions.

    Raises
    ------
    OSError
        If the file cannot be written. The old file is unchanged then.
    """
    new = path.with_name(f".{path.name[:100]}-{secrets.token_hex(8)}{NEW_FILE_SUFFIX}")
    try:
        with open(os.open(new, NEW_FILE_FLAGS, 0o666), "wb") as file:  # the user's mask restricts the permissions
            with contextlib.suppress(FileNotFoundError):
                os.chmod(new, stat.S_IMODE(path.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the entry of the folder must survive a power failure, too
        with contextlib.suppress(OSError):  # some file systems cannot synchronise a folder
            handle = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8; a regular file is replaced atomically, and a link stays a link.

    A pipe or a device is written directly, and so is an existing file that can be written but not replaced, for example
    a mounted file. Characters that UTF-8 cannot encode are written as escape sequences.

    Raises
    ------
    OutputError
        If the file cannot be written. The message names the path of the caller, not that of a temporary file.
    """
    content = text.encode(errors="backslashreplace")
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return
        try:
            replace_file(target, content)
        except OSError as problem:
            if problem.errno not in NOT_REPLACEABLE or not target.is_file():
                raise
            target.write_bytes(content)
    except (OSError, ValueError) as problem:  # a null character in the name is a ValueError
        reason = getattr(problem, "strerror", None) or str(problem)
        raise OutputError(getattr(problem, "errno", None), reason, os.fspath(path)) from problem


def check_regular(path: Path) -> None:
    """Raise FolderError if a file of a folder is a pipe or a device: reading it can wait or read for ever."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FolderError(f"{path}: found a pipe or a device; expected a file; remove it")


def is_readable(path: Path) -> bool:
    """Return whether this is a file that can be read; an impossible file name gives False."""
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False


def write_document(path: str | os.PathLike[str], plain: object) -> None:
    """Write plain data with a checksum as JSON; an existing file is replaced as a whole."""
    document = {"format": DOCUMENT_FORMAT, "content": plain, "checksum": fingerprint(plain)}
    write_text(path, json.dumps(document, indent=0, allow_nan=False) + "\n")


def read_document(path: str | os.PathLike[str], kind: str, build: Callable[[Any], T]) -> T | None:
    """Return what `build` makes of the content of a document; None if there is no file.

    Raises
    ------
    InputError
        If the file is damaged (`build` may raise any exception), or if a newer version of dpverify wrote it.
    """
    path = Path(path)
    check_regular(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        file_format, content, checksum = document["format"], document["content"], document["checksum"]
        if file_format == DOCUMENT_FORMAT:
            if fingerprint(content) != checksum:
                raise ValueError("another checksum")
            return build(content)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InputError(f"{path}: found {problem.strerror or problem}; expected a {kind} that can be read") from None
    except MemoryError as problem:
        raise InputError(too_little_memory(path, problem)) from None
    except Exception as problem:  # a damaged file can raise any exception
        raise InputError(
            f"{path}: found no {kind} ({type(problem).__name__}: {one_line(problem)}); expected a {kind} as dpverify "
            "wrote it; restore it from version control"
        ) from None
    raise InputError(
        f"{path}: found format {one_line(repr(file_format))}; expected {DOCUMENT_FORMAT}; a newer version of dpverify "
        "wrote it; update dpverify"
    )


@contextlib.contextmanager
def hold_lock(path: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of a file, which is created if necessary and stays.

    The lock belongs to the operating system, which releases it when the process ends, however it ends. A link is not
    followed.

    Raises
    ------
    BlockingIOError
        If another process, or another thread of this one, holds the lock for so many seconds.
    OSError
        If the file cannot be opened.
    """
    check_regular(path)
    end = time.monotonic() + seconds
    with open(os.open(path, LOCK_FILE_FLAGS, 0o666), "r+b") as file:
        while True:
            try:
                _set_lock(file, LOCK)
                break
            except (BlockingIOError, PermissionError):  # the latter on Windows
                if time.monotonic() >= end:
                    raise BlockingIOError(errno.EAGAIN, "it is locked") from None
                time.sleep(POLL_SECONDS)
            except OSError as problem:  # a file system without locks
                message = f"{path}: found no locks ({problem.strerror}); use it in one process at a time"
                warnings.warn(message, DPVerifyWarning, stacklevel=4)
                break
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # closing is not enough: a child that was forked holds the lock too
                _set_lock(file, UNLOCK)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Exclude other writers of a file. What is locked is a file beside it, NAME.lock, which stays.

    Read, change and write the file inside this context, so that nothing that another process writes is lost.

    Raises
    ------
    InputError
        If another process holds the lock for a minute, or if the folder cannot be written.
    """
    lock = Path(f"{os.fspath(path)}.lock")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(lock, LOCK_SECONDS))
        except BlockingIOError:
            raise InputError(
                f"{lock}: another process has held this lock for {LOCK_SECONDS:g} s; wait until it ends, or end it"
            ) from None
        except (OSError, ValueError) as problem:  # a null character in the name is a ValueError
            raise InputError(f"{lock}: found {problem}; expected a folder that can be written") from None
        yield
