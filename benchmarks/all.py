"""Runs every benchmark that takes minutes, and writes what they print to docs/benchmarks.md.

Run: python benchmarks/all.py, or `make bench` (about three quarters of an hour).
Some of them only, while the page keeps the other sections: --only verify ekf.
Some benchmarks are run by themselves: bench_mechanisms.py and bench_power.py take an hour, bench_peers.py needs other
tools, bench_device.py needs a GPU, and bench_structure.py measures the code instead of its speed.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

import dpverify

FOLDER = Path(__file__).parent
DOCS = FOLDER.parent / "docs"
TITLES = {
    "verify": "The time of a verification relative to drawing its samples",
    "ekf": "The private EKF compared with filterpy",
    "mhe": "The W2-MHE compared with a plain version and with CasADi",
    "ellipsoid": "The minimum-volume ellipsoid compared with cvxpy",
    "buehler": "The exact lower bound",
    "memory": "Memory",
    "scaling": "Scaling",
    "dask": "A Dask cluster on one machine",
}
HEAD = """# Benchmarks

`make bench` writes this page (version {version}, Python {python}, {cores} cores). The machine was shared with other
work, so absolute times are not reliable. Compare ratios within one run.

Other pages show the benchmarks of [power](power.md), of
[published mechanisms](tools.md#mechanisms-with-known-epsilon), of [other tools](tools.md#side-by-side) and of a
[GPU](scale.md#a-gpu).
"""


def run_benchmark(name: str, title: str) -> str:
    """Run a benchmark, and return its section of the page."""
    script = FOLDER / f"bench_{name}.py"
    options = ["--out", str(DOCS / "figures")] if name == "scaling" else []
    print(f"== {title} ({script.name})", flush=True)
    command = [sys.executable, "-W", "ignore", str(script), *options]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(result.stdout, flush=True)
    picture = "![Scaling](figures/scaling.png)\n" if name == "scaling" else ""
    return f"## {title}\n\n`python benchmarks/{script.name}`\n\n```text\n{result.stdout.strip()}\n```\n{picture}"


def read_sections(page: Path) -> dict[str, str]:
    """Return the sections of the page by their titles."""
    parts = page.read_text(encoding="utf-8").split("\n## ")[1:] if page.exists() else []
    return {part.split("\n", 1)[0]: f"## {part.rstrip()}\n" for part in parts}


def main() -> None:
    """Run the benchmarks one after the other, and write the page after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(TITLES), default=list(TITLES), help="some benchmarks")
    options = parser.parse_args()
    page = DOCS / "benchmarks.md"
    sections = read_sections(page)
    head = HEAD.format(version=dpverify.__version__, python=platform.python_version(), cores=os.cpu_count())
    for name in options.only:
        sections[TITLES[name]] = run_benchmark(name, TITLES[name])
        known = [sections[title] for title in TITLES.values() if title in sections]
        page.write_text("\n".join([head, *known]), encoding="utf-8")


if __name__ == "__main__":
    main()
