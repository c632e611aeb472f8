"""Run all benchmarks that take minutes, and write their output to docs/benchmarks.md.

Two benchmarks are not included: the table of published mechanisms, which takes half an hour (bench_mechanisms.py), and
the benchmark of an accelerator, which needs one (bench_device.py).
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
    "verify": "The time of a verification relative to drawing its samples",
    "ekf": "The private EKF compared with filterpy",
    "mhe": "The W2-MHE compared with a plain version and with CasADi",
    "ellipsoid": "The minimum-volume ellipsoid compared with cvxpy",
    "buehler": "The exact lower bound",
    "memory": "Memory",
    "scaling": "Scaling",
}
HEAD = """# Benchmarks

`make bench` writes this page (version {version}, Python {python}, {cores} cores). The machine was shared with other
work, so absolute times are not reliable. Compare ratios within one run.

`python benchmarks/bench_mechanisms.py` makes the table of
[published mechanisms](tools.md#mechanisms-with-known-epsilon), and
`python benchmarks/bench_device.py` the table for a [GPU](scale.md#a-gpu).
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
        output = done.stdout.strip()
        page.append(f"## {title}\n\n`python benchmarks/{script.name}`\n\n```text\n{output}\n```\n{picture}")
    (DOCS / "benchmarks.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
