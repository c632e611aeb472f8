"""Measures how the library stands faults, and prints one figure for each kind (`make faults`).

    python tests/support/fault_figures.py            all kinds, about three hours on one core
    python tests/support/fault_figures.py kills      one kind: failures, kills, damage, threads or memory
    python tests/support/fault_figures.py --short    few of each, to see that it works

failures: every operation on the disk fails once, and memory ends at many arrays; the runs are resumed.
kills:    runs are killed at random times, again and again.
damage:   damaged reports, folders and studies are read.
threads:  a mechanism that is not safe in threads is always voided, a safe one never.
memory:   the resident memory of two large outputs.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
READERS = ("report", "folder", "study", "report command", "result folder")  # 10^5 inputs or more for the first three
MEMORY = "/dev/shm"  # thousands of folders are written faster to memory
KINDS = ("failures", "kills", "damage", "threads", "memory")
FAILURES = re.compile(r"(\d+) points, (\d+) resumed calls, (\d+) refused")
KILLS = re.compile(r"(\d+) kills, the same answers")


def run(command, **variables):
    """Run a command in the project folder, show its output, and return it; a failure ends this script."""
    path = os.pathsep.join([str(PROJECT / name) for name in ("src", "tests", "tests/support")])
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", **variables}
    lines = []
    words = [sys.executable, *map(str, command)]
    with subprocess.Popen(words, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return "".join(lines)


def run_tests(*files, is_short, select="", **variables):
    """Run the slow tests of some files, or their fast ones, with the lines that they print."""
    marker = "not slow" if is_short else "slow"
    return run(["-m", "pytest", "-n0", "-s", "-m", marker, *(["-k", select] if select else []), *files], **variables)


def in_memory():
    """Return the variable that lets the tests use a folder in memory, if there is one."""
    return {"TMPDIR": MEMORY} if os.path.isdir(MEMORY) else {}


def total(pattern, output):
    """Return the sums of the numbers that a pattern finds."""
    return [sum(map(int, numbers)) for numbers in zip(*pattern.findall(f"{output} "), strict=True)]


def measure(kind, is_short):
    """Measure one kind, and return its figure in words."""
    if kind == "failures":
        files = ["tests/sampling/test_every_failure.py"]
        points, resumed, refused = total(
            FAILURES, run_tests(*files, is_short=is_short, select="after_a_failure", **in_memory())
        )
        return f"{points} failures, {resumed} resumed calls: 0 wrong results, {refused} refused in one line"
    if kind == "kills":
        number = "1" if is_short else "30"
        output = run_tests("tests/sampling/test_random_kills.py", is_short=False, KILLS=number)
        found = [int(kills) for kills in KILLS.findall(output)]
        return f"{sum(found)} kills of {len(found)} kinds of runs: the same digests and tables"
    if kind == "damage":
        output = run(["-m", "fuzz", 2000 if is_short else 1_000_000, 0, *READERS])
        return f"0 broke a reader of\n{output.rstrip()}"
    if kind == "threads":
        run_tests("tests/sampling/test_threads.py", is_short=is_short, select="voided")
        return "the unsafe mechanism was voided in all runs, the safe one in none; see the numbers above"
    return run(["benchmarks/bench_memory.py", "--large"]).rstrip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--short", action="store_true", help="few of each kind")
    options = parser.parse_args()
    for kind in options.kinds:
        if kind not in KINDS:
            parser.error(f"found {kind}; expected one of {', '.join(KINDS)}")
    figures = {kind: measure(kind, options.short) for kind in options.kinds or KINDS}
    for kind, figure in figures.items():
        print(f"{kind}: {figure}")


if __name__ == "__main__":
    main()
