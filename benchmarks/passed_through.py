"""Prints how many modules and distinct functions of dpverify a default verification of Laplace noise passes through.

It is a measure of how much somebody has to read who wants to know what `verify` does. Code at the level of a module,
which runs at import, does not count, nor do comprehensions and lambdas, which have no name.

Run: python benchmarks/passed_through.py (add --list for the names).
"""

from __future__ import annotations

import collections
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import dpverify as dpv

PACKAGE = str(Path(dpv.__file__).parent)


def noisy_count(data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return a number with Laplace noise."""
    return data + rng.laplace(size=runs)


def functions_of_a_verification() -> set[CodeType]:
    """Return the functions of the package that one verification calls, and the text of its report."""
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            called.add(code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        report = dpv.verify(noisy_count, 0.0, 1.0, epsilon=1.0)
        str(report)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return called


def main() -> None:
    """Print the numbers."""
    called = functions_of_a_verification()
    modules = collections.Counter(code.co_filename.removeprefix(PACKAGE)[1:] for code in called)
    print(f"modules {len(modules)}, functions {len(called)}")
    if "--list" in sys.argv:
        for module, number in sorted(modules.items()):
            names = sorted(code.co_qualname for code in called if code.co_filename == f"{PACKAGE}/{module}")
            print(f"{module} ({number}): {', '.join(names)}")


if __name__ == "__main__":
    main()
