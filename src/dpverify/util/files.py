"""Atomic replacement of files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from dpverify.errors import InputError

NEW_FILE_SUFFIX = ".new"


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


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically, in UTF-8; raise InputError where the path cannot be written."""
    try:
        replace_file(Path(path), text.encode())
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
