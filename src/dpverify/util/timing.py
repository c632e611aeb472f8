"""TODO."""

from __future__ import annotations

import platform
import time

import numpy as np
import scipy

from dpverify.version import __version__


class StageClock:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now


def versions() -> dict[str, str]:
    return {
        "dpverify": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
