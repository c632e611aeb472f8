"""TODO."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from dpverify.errors import InputError

NEW_FILE_SUFFIX = ".new"


def replace_file(path: Path, content: Any) -> None:
    """Either the old file or the new one, whatever happens; never a mixture."""
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
    try:
        replace_file(Path(path), text.encode())
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}; expected a place that can be written") from None
