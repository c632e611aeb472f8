"""What a record of a run names: the versions of the software, and the commit that is being tested."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import numpy as np
import scipy

from dpverify.version import __version__

COMMIT_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA", "BITBUCKET_COMMIT", "GIT_COMMIT")  # of CI services
COMMIT_LENGTH = 12
UNNAMED = "unnamed"


def current_commit(folder: str | os.PathLike[str] | None = None) -> str:
    """Return the start of the current commit: from a variable of a CI service, or from git; else "unnamed"."""
    for name in COMMIT_VARIABLES:
        if os.environ.get(name):
            return os.environ[name][:COMMIT_LENGTH]
    command = ["git", "rev-parse", f"--short={COMMIT_LENGTH}", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder or Path.cwd(), check=True)
        return done.stdout.strip() or UNNAMED
    except (OSError, subprocess.CalledProcessError):
        return UNNAMED


def versions() -> dict[str, str]:
    """Return the versions of this package, Python, NumPy and SciPy.

    Examples
    --------
    >>> sorted(versions())
    ['dpverify', 'numpy', 'python', 'scipy']
    """
    return {
        "dpverify": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
