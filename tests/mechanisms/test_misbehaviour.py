"""Mechanisms that break their contract, each with the message that a user reads.

Other failures are tested elsewhere: programs in tests/adapters/test_program.py; killed runs, clusters and disks in
tests/sampling.
"""

import ast
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import dpverify as dpv
from dpverify.errors import StopReason
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.sampling.count import Accumulator
from dpverify.sampling.probe import FALSE_REPEAT_PROBABILITY, blocks_repeat
from mechanisms import ONE, ZERO, laplace

SMALL = {"select_runs": 1000, "test_runs": 4000, "block": 256}
QUICK = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
SOURCE = Path(dpv.__file__).parent


def diagnostics(mechanism, first=ZERO, second=ONE, **more):
    """Return the diagnostics that a verification warns of, which are also part of its report."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = dpv.verify(mechanism, first, second, 0.5, **{**SMALL, **more})
    found = {Diagnostic(str(warning.message)) for warning in caught}
    assert found <= set(report.diagnostics)
    return found


def run_child(code, *arguments):
    path = os.pathsep.join([str(SOURCE.parent), str(Path(__file__).parents[1] / "support"), str(Path(__file__).parent)])
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    words = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# Noise that does not come from the generator of the block.


class OwnGenerator:
    """A mechanism with its own generator: the runs of a block depend on the calls before it."""

    def __init__(self):
        self.rng = np.random.default_rng(7)

    def __call__(self, data, runs, rng):
        return laplace(data, runs, self.rng)


def global_generator(data, runs, rng):
    return np.sum(data) + np.random.laplace(size=runs)  # noqa: NPY002


def python_generator(data, runs, rng):
    return np.sum(data) + np.array([random.gauss(0, 1) for _ in range(runs)])


def fixed_seed(data, runs, rng):
    return laplace(data, runs, np.random.default_rng(7))


def fixed_bits(data, runs, rng):
    return np.random.default_rng(7).random(runs) < 0.4 + 0.2 * np.sum(data)


class Cycle:
    """A mechanism that cycles through seeds: consecutive blocks differ, and so does a block that is drawn twice."""

    def __init__(self):
        self.seeds = itertools.cycle(range(3))

    def __call__(self, data, runs, rng):
        return laplace(data, runs, np.random.default_rng(next(self.seeds)))


FEW = {"select_runs": 200, "test_runs": 500}


@pytest.mark.parametrize(
    ("mechanism", "block"),
    [(OwnGenerator(), 64), (global_generator, 4096), (python_generator, 8), (Cycle(), 16)],
    ids=["own", "NumPy's", "Python's", "cycle"],
)
def test_a_block_that_differs_when_it_is_drawn_twice_is_diagnosed(mechanism, block):
    assert diagnostics(mechanism, block=block, **FEW) >= {Diagnostic.UNREPEATABLE_BLOCK}


@pytest.mark.parametrize(
    ("mechanism", "block"), [(fixed_seed, 8), (fixed_seed, 256), (fixed_seed, 4096), (fixed_bits, 64)]
)
def test_repeated_blocks_are_diagnosed(mechanism, block):
    assert diagnostics(mechanism, block=block, **FEW) == {Diagnostic.REPEATED_BLOCKS}


def constant(data, runs, rng):
    return np.zeros(runs)


def rare_bits(data, runs, rng):
    return rng.random(runs) < 1e-3


def bits(data, runs, rng):
    return rng.random(runs) < 0.4 + 0.2 * np.sum(data)


def sometimes_nan(data, runs, rng):
    return np.where(rng.random(runs) < 0.5, np.nan, laplace(data, runs, rng)[:, 0])


@pytest.mark.parametrize(
    ("mechanism", "block"), [(laplace, 16), (constant, 64), (rare_bits, 64), (bits, 256), (sometimes_nan, 64)]
)
def test_a_mechanism_that_uses_its_generator_has_no_diagnostics(mechanism, block):
    assert not diagnostics(mechanism, block=block, nonfinite="event", **FEW)


def test_an_unseeded_mechanism_has_no_other_diagnostics():
    class Hardware(OwnGenerator):
        seeded = False

    assert diagnostics(Hardware()) == {Diagnostic.UNSEEDED}


@pytest.mark.parametrize("p", [1e-3, 0.01, 0.1, 0.17, 0.3, 0.5])
def test_independent_blocks_are_almost_never_taken_for_repeated_ones(p):
    """Computed exactly for bits, as a sum over the number k of ones in both blocks."""
    k = np.arange(65)
    repeated = np.array([blocks_repeat(block, block) for block in (np.arange(64)[:, None] < k[:, None, None])])
    assert repeated[32]
    assert not repeated[0]
    probability = (binom.pmf(k, 64, p) * p**k * (1 - p) ** (64 - k))[repeated].sum()
    assert probability <= FALSE_REPEAT_PROBABILITY


# Data that is changed, and buffers that are reused.


def test_an_array_cannot_be_changed():
    def centres(data, runs, rng):
        data -= data.mean()
        return laplace(data, runs, rng)

    with pytest.raises(dpv.MechanismError, match=r"first dataset, block 0: ValueError: .* read-only"):
        dpv.verify(centres, ZERO, ONE, **SMALL)


def grows(data, runs, rng):
    data.append(0.0)
    return len(data) + laplace(0.0, runs, rng)


def notes_down(data, runs, rng):
    data["seen"] = data.get("seen", 0) + runs
    return laplace(data["value"], runs, rng)


def test_changed_data_are_diagnosed():
    assert diagnostics(grows, [1.0], [2.0], **FEW) == {Diagnostic.CHANGED_DATA}
    assert diagnostics(notes_down, {"value": 0.0}, {"value": 1.0}, **FEW) == {Diagnostic.CHANGED_DATA}
    assert not diagnostics(
        lambda data, runs, rng: laplace(data["value"], runs, rng), {"value": 0.0}, {"value": 1.0}, **FEW
    )


def test_per_run_copies_an_output_buffer_that_is_reused():
    buffer = np.zeros(2)

    def reusing(data, rng):
        buffer[:] = np.sum(data) + rng.laplace(size=2)
        return buffer

    def fresh(data, rng):
        return np.sum(data) + rng.laplace(size=2)

    outputs = [dpv.per_run(function)(ONE, 9, np.random.default_rng(0)) for function in (reusing, fresh)]
    np.testing.assert_array_equal(*outputs)


LEAK = """
import resource, sys
import numpy as np
import dpverify as dpv
from mechanisms import ONE, ZERO, laplace

small = {"select_runs": 1000, "test_runs": 8000, "block": 256}
hoard = []

def leaks(data, runs, rng):
    hoard.append(np.ones(4_000_000))
    return laplace(data, runs, rng)

leaks.name = "laplace"
with open("/proc/self/statm") as file:
    here = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (here + 20 * 32_000_000, resource.RLIM_INFINITY))
starts, report = 0, None
while report is None:
    hoard.clear()  # as in a new process
    starts += 1
    try:
        report = dpv.verify(leaks, ZERO, ONE, 0.5, folder=sys.argv[1], **small)
    except dpv.MechanismError as problem:
        print(problem)
print(starts)
print(report.digest)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits its memory as Linux does")
def test_a_run_that_ends_by_a_memory_leak_is_resumed(tmp_path):
    *lines, starts, digest = run_child(LEAK, tmp_path / "kept")
    assert len(lines) == int(starts) - 1 > 1
    for line in lines:
        assert line.startswith("the mechanism failed in the ")
        assert "MemoryError: Unable to allocate 30.5 MiB" in line
    expected = dpv.verify(laplace, ZERO, ONE, 0.5, **{**SMALL, "test_runs": 8000})
    assert digest == expected.digest


def test_a_memory_error_outside_the_mechanism_raises_stopped(tmp_path, monkeypatch):
    calls = itertools.count()

    whole = Accumulator.add

    def add(self, block, samples, runs=None):
        if next(calls) == 9:
            raise MemoryError
        whole(self, block, samples, runs)

    monkeypatch.setattr(Accumulator, "add", add)
    with pytest.raises(
        dpv.Stopped, match=r"out of memory after .* runs; they are saved in .*; repeat the same call to resume"
    ) as stop:
        dpv.verify(laplace, ZERO, ONE, 0.5, folder=tmp_path, **SMALL)
    assert stop.value.reason is StopReason.OUT_OF_MEMORY
    assert dpv.verify(laplace, ZERO, ONE, 0.5, folder=tmp_path, **SMALL).provenance["resumed"]


# A void test is short.


@pytest.mark.filterwarnings("ignore::dpverify.DPVerifyWarning")
def test_a_voiding_diagnostic_stops_the_long_part():
    """The mechanism repeats its runs: the report still comes, after few runs, and it says so."""
    asked = []

    def repeats(data, runs, rng):
        if rng.bit_generator.seed_seq.spawn_key[0] in (1, 2, 3, 4):  # selection and test
            asked.append(runs)
        return laplace(data, runs, np.random.default_rng(0))

    report = dpv.verify(repeats, ZERO, ONE, 0.5, test_runs=10**9, select_runs=10**8)
    assert report.verdict.name == "NO_ANSWER"
    assert report.diagnostics[:2] == (Diagnostic.REPEATED_BLOCKS, Diagnostic.SHORTENED)
    assert (report.settings.test_runs, report.settings.select_runs) == (1000, 1000)
    assert Diagnostic.SHORTENED.value in report.notes
    assert max(asked) <= 1000
    assert sum(asked) <= 8000  # four stages of two datasets


# Time.


@pytest.fixture
def keyboard():
    """Handle Ctrl-C: a background job of a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("stage", [0, 4], ids=["the first block", "the test runs"])
def test_ctrl_c_stops_a_block_that_never_ends(stage, keyboard, tmp_path):
    def hangs(data, runs, rng):
        if rng.bit_generator.seed_seq.spawn_key[0] == stage:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(600)
        return laplace(data, runs, rng)

    with pytest.raises(dpv.Stopped, match=r"stopped by the keyboard after .* runs; they are saved in"):
        dpv.verify(hangs, ZERO, ONE, folder=tmp_path, **SMALL)


def test_the_wall_clock_is_never_read():
    """It can be changed while a run is in progress; monotonic clocks cannot."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"now", "utcnow", "today"}, path.name
                assert ast.unparse(node) != "time.time", path.name
            if isinstance(node, ast.ImportFrom):
                assert node.module != "time", path.name


# Processes and printed text.

RUDE = """
import ctypes, os, sys
import numpy as np

print("loading")

def laplace(data, runs, rng):
    print("a line of Python")
    os.write(1, b"a line of the system\\n")
    ctypes.CDLL(None).printf(b"a line of C\\n")
    return np.sum(data) + rng.laplace(size=runs)

forked = []

def forks(data, runs, rng):
    answer = laplace(data, runs, rng)
    if len(forked) < 2:  # a limit: without the check of the process id, every block would double the processes
        forked.append(True)
        if os.fork() == 0 and len(forked) == 2:
            sys.exit(5)
    return answer

def dies(data, runs, rng):
    import multiprocessing, signal
    if multiprocessing.parent_process() and rng.bit_generator.seed_seq.spawn_key[:3] == (4, 1, 9):
        os.kill(os.getpid(), signal.SIGKILL)
    return laplace(data, runs, rng)

dies.name = forks.name = "laplace"
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "rude.py").write_text(RUDE)
    (tmp_path / "a.txt").write_text("0\n")
    (tmp_path / "b.txt").write_text("1\n")
    return tmp_path


def command(place, mechanism, *more):
    words = [
        sys.executable,
        "-m",
        "dpverify",
        "verify",
        f"rude.py:{mechanism}",
        "--first",
        "a.txt",
        "--second",
        "b.txt",
    ]
    return subprocess.run([*words, "--epsilon", "0.5", *QUICK, *more], cwd=place, capture_output=True, text=True)


@pytest.fixture(scope="module")
def digest():
    def laplace(data, runs, rng):
        return np.sum(data) + rng.laplace(size=runs)

    return dpv.verify(laplace, ZERO, ONE, 0.5, **SMALL).digest


def test_text_that_a_mechanism_prints_is_not_part_of_the_report(place, digest):
    """The child process of a mechanism that forks prints no second report."""
    done = command(place, "forks", "--json", "-")
    assert done.returncode == 1, done.stderr
    (place / "report.json").write_text(done.stdout)
    assert json.loads(done.stdout)["format"] == 1
    assert dpv.Report.from_json(place / "report.json").digest == digest
    for line in ("loading", "a line of Python", "a line of the system", "a line of C"):
        assert f"{line}\n" in done.stderr


def test_a_run_that_loses_a_worker_is_resumed(place, digest):
    done = command(place, "dies", "--json", "-", "--folder", "kept", "--workers", "1")
    assert done.returncode == 3
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("dpverify: the workers were lost (")
    assert last.endswith("saved in kept; repeat the same call to resume")
    done = command(place, "dies", "--folder", "kept")
    assert done.returncode == 1
    assert done.stdout.startswith("laplace: REFUTED\n")
    assert done.stdout.count("REFUTED") == 1


SERVER = """
import os, sys, time
import dpverify as dpv
from mechanisms import ONE, ZERO, laplace

children = []

def starts_a_server(data, runs, rng):
    if not children:
        children.append(os.fork())
        if children[0] == 0:
            time.sleep(600)
    return laplace(data, runs, rng)

try:
    for _ in range(2):
        print(dpv.verify(starts_a_server, ZERO, ONE, 0.5, folder=sys.argv[1], select_runs=1000, test_runs=4000).refuted)
finally:
    os.kill(children[0], 9)
"""


@pytest.mark.slow
def test_a_child_process_that_remains_does_not_lock_the_folder(tmp_path):
    """A forked child inherits the lock."""
    assert run_child(SERVER, tmp_path / "kept") == ["True", "True"]
