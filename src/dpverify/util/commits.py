"""The name of the version that is being tested: a commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

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
