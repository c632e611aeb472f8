"""Atomic replacement of files."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from dpverify.errors import InputError

NEW_FILE_SUFFIX = ".new"
NOT_REPLACEABLE = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS)  # but it may be writable


def replace_file(path: Path, content: bytes | bytearray | memoryview) -> None:
    """Write a file atomically: after a crash the path holds either the old or the new content, never a mixture.

    Raises
    ------
    OSError
        If the file cannot be written. The old file is unchanged then.
    """
    new = path.with_name(path.name + NEW_FILE_SUFFIX)
    try:
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def write_file(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8; a regular file is replaced atomically, and a link stays a link.

    A pipe or a device is written directly, and so is an existing file that can be written but not replaced, for example
    a mounted file. Characters that UTF-8 cannot encode are written as escape sequences.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    target, content = Path(os.path.realpath(path)), text.encode(errors="backslashreplace")
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
    except OSError as problem:
        raise InputError(
            f"{path}: found {problem.strerror or problem}; expected a path that can be written; choose another one"
        ) from None


def is_readable(path: Path) -> bool:
    """Return whether this is a file that can be read; an impossible file name gives False."""
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False
