"""Every benchmark that takes minutes, one after the other; what they print becomes docs/benchmarks.md.

The table of published mechanisms takes half an hour and has a command of its own (bench_mechanisms.py); the device
needs one (bench_device.py).
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import dpverify

HERE, DOCS = Path(__file__).parent, Path(__file__).parent.parent / "docs"
SCRIPTS = {
    "verify": "A verification beside drawing its samples",
    "ekf": "The private EKF beside filterpy",
    "mhe": "The W2-MHE beside a plain one, and beside CasADi",
    "ellipsoid": "The minimum-volume ellipsoid beside cvxpy",
    "buehler": "The exact lower bound",
    "memory": "Memory",
    "scaling": "Scaling",
}
HEAD = """# Benchmarks

Written by `make bench` (version {version}, Python {python}, {cores} cores). Every figure that matters is a ratio within
one run; the machines on which these were taken are shared with others, so seconds are worth little.

The README's table of published mechanisms is made by `python benchmarks/bench_mechanisms.py`,
the figures of a [GPU](scale.md) by `python benchmarks/bench_device.py`.
"""


def main():
    page = [HEAD.format(version=dpverify.__version__, python=platform.python_version(), cores=os.cpu_count())]
    for name, title in SCRIPTS.items():
        script = HERE / f"bench_{name}.py"
        more = ["--out", str(DOCS / "figures")] if name == "scaling" else []
        print(f"== {title} ({script.name})", flush=True)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(script), *more], stdout=subprocess.PIPE, text=True, check=True
        )
        print(done.stdout, flush=True)
        picture = "![Scaling](figures/scaling.png)\n" if name == "scaling" else ""
        said = done.stdout.strip()
        page.append(f"## {title}\n\n`python benchmarks/{script.name}`\n\n```text\n{said}\n```\n{picture}")
    (DOCS / "benchmarks.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
