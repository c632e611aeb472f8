"""The time that each stage takes, and the versions of the software, for the record of a run."""

from __future__ import annotations

import platform
import time

import numpy as np
import scipy

from dpverify.version import __version__


class StageClock:
    """A clock that measures the seconds of consecutive stages.

    Attributes
    ----------
    laps : dict
        The seconds of each finished stage, by its name.
    """

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Record the time since the end of the previous stage under this name."""
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now


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
