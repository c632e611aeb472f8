"""Atomic replacement of files."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from dpverify.errors import FolderError, InputError, OutputError

NEW_FILE_SUFFIX = ".new"
NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
NEW_FILE_MODE = 0o666  # the user's mask restricts it
NOT_REPLACEABLE = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS)  # but it may be writable


def replace_file(path: Path, content: bytes | bytearray | memoryview) -> None:
    """Write a file atomically: after a crash the path holds either the old or the new content, never a mixture.

    The new content is written to a file of its own, beside the old one. A link with the name of that file is removed
    and never followed.

    Raises
    ------
    OSError
        If the file cannot be written. The old file is unchanged then.
    """
    new = path.with_name(path.name + NEW_FILE_SUFFIX)
    try:
        new.unlink(missing_ok=True)  # an interrupted write has left it
        with open(os.open(new, NEW_FILE_FLAGS, NEW_FILE_MODE), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Write the entries of a folder to the disk, so that a renamed file survives a power failure."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):  # the file exists; some file systems cannot synchronise a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_file(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8; a regular file is replaced atomically, and a link stays a link.

    A pipe or a device is written directly, and so is an existing file that can be written but not replaced, for example
    a mounted file. Characters that UTF-8 cannot encode are written as escape sequences.

    Raises
    ------
    OutputError
        If the file cannot be written. The message names the path of the caller, not that of a temporary file.
    """
    try:
        _write_bytes(Path(os.path.realpath(path)), text.encode(errors="backslashreplace"))
    except (OSError, ValueError) as problem:  # a null character in the name is a ValueError
        reason = getattr(problem, "strerror", None) or str(problem)
        raise OutputError(getattr(problem, "errno", None), reason, os.fspath(path)) from problem


def _write_bytes(target: Path, content: bytes) -> None:
    """Write a file as `write_file` explains; raise OSError where this is not possible."""
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    try:
        replace_file(target, content)
    except OSError as problem:
        if problem.errno not in NOT_REPLACEABLE or not target.is_file():
            raise
        target.write_bytes(content)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically, in UTF-8; raise InputError where the path cannot be written."""
    try:
        write_file(path, text)
    except OutputError as problem:
        raise InputError(
            f"{path}: found {problem.strerror}; expected a path that can be written; choose another one"
        ) from None


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
