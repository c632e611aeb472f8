"""Memory and disk must not grow with the number of runs: 1-D Laplace noise, a hundredth of the runs and all of them.

    python benchmarks/bench_memory.py                            10^8 runs a side
    python benchmarks/bench_memory.py --runs 1e9 --threads       10^9, in two threads instead of two processes

Each size has a process of its own, so that its peak is its own. Resident memory is that of the process and its
workers together: what was the peak of each, added up.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dpverify as dpv

WORKERS = 2


def laplace(data, runs, rng):
    return data + rng.laplace(size=(runs, 1))


def peak(who):
    return resource.getrusage(who).ru_maxrss / (1 << 20)  # Linux counts in kilobytes: this is in GB


def one(runs, threads):
    """One verification in this process: seconds, peak memory, bytes on the disk, digest."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with ThreadPoolExecutor(WORKERS) as pool:
            executor = pool if threads else WORKERS
            report = dpv.verify(laplace, 0.0, 1.0, 1.0, test_runs=runs, executor=executor, folder=folder)
        seconds = time.perf_counter() - start
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    resident = peak(resource.RUSAGE_SELF) + (0 if threads else WORKERS * peak(resource.RUSAGE_CHILDREN))
    return {"seconds": seconds, "resident": resident, "disk": size, "epsilon": report.epsilon_lower}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=float, default=1e8)
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(int(arguments.runs), arguments.threads)))
        return
    found = []
    for runs in (arguments.runs / 100, arguments.runs):
        command = [sys.executable, __file__, "--one", "--runs", str(runs), *["--threads"] * arguments.threads]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        f = found[-1]
        print(
            f"{runs:.0e} runs a side: {f['seconds']:.1f} s, {f['resident']:.3f} GB resident, {f['disk'] / 1e3:.0f} kB "
            f"on the disk, epsilon >= {f['epsilon']:.5f}",
            flush=True,
        )
    ratio = found[1]["resident"] / found[0]["resident"]
    print(f"a hundred times the runs: {ratio:.2f} times the memory, {found[1]['disk'] / found[0]['disk']:.2f} the disk")


if __name__ == "__main__":
    main()
