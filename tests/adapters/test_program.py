"""Executables as mechanisms: their answers, one line for every failure, and no remaining process."""

import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest

import dpverify as dpv
from dpverify.cli import main
from mechanisms import ONE, ZERO

SCRIPT = str(Path(__file__).parent / "programs.py")
SMALL = {"select_runs": 3000, "test_runs": 6000, "block": 2048}
SOFTER = (signal.SIGTERM, signal.SIGINT)
PLACES = ["{data}", "{runs}", "{seed}", "{out}"]


@pytest.fixture
def pids(tmp_path):
    """The file that programs write their process ids to."""
    return tmp_path / "pids"


def no_process_remains(pids):
    """Return whether no running process has the name of this file among its arguments."""
    return not any(str(pids) in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))


def no_process_remains_soon(pids):
    """Wait until all programs have ended; another process may still be killing them."""
    until = time.monotonic() + 20
    while not no_process_remains(pids) and time.monotonic() < until:
        time.sleep(0.05)
    return no_process_remains(pids)


def script(kind, pids, shape=1, **options):
    return dpv.program([sys.executable, SCRIPT, kind, str(pids)], shape, **options)


# Answers.


def test_a_program_is_started_once_and_verified_like_any_mechanism(pids):
    report = dpv.verify(script("good", pids), ZERO, ONE, 0.5, **SMALL)
    assert report.refuted
    assert report.seeded
    assert report.epsilon_lower < 1
    assert len(pids.read_text().split()) == 1
    assert no_process_remains(pids)


PROCESSES = partial(ProcessPoolExecutor, mp_context=get_context("spawn"))  # JAX, where a test has it, minds a fork


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, pytest.param(PROCESSES, marks=pytest.mark.slow)])
def test_threads_and_processes_give_the_same_report(pids, kind):
    mechanism = script("good", pids)
    with kind(2) as executor:
        assert dpv.verify(mechanism, ZERO, ONE, executor=executor, **SMALL) == dpv.verify(mechanism, ZERO, ONE, **SMALL)
    assert no_process_remains_soon(pids)


def test_a_program_can_be_pickled_while_it_runs(pids):
    mechanism = script("good", pids)
    mechanism(ZERO, 10, np.random.default_rng(0))
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    mechanism.finish()
    assert no_process_remains(pids)


def test_a_program_with_placeholders_is_started_once_per_block(pids, tmp_path):
    mechanism = dpv.program([sys.executable, SCRIPT, "two", *PLACES], (1, 2))
    report = dpv.verify(mechanism, ZERO, ONE, 0.3, select_runs=1000, test_runs=4000, block=4000, beta=0.2)
    assert report.refuted
    again = script("two", pids, (1, 2))
    first, second = (m(np.ones((2, 3)), 50, np.random.default_rng(3)) for m in (mechanism, again))
    np.testing.assert_array_equal(first, second)
    assert first.shape == (50, 1, 2)
    again.finish()


def test_the_shape_is_stated_or_read_from_a_line(pids):
    for shape, expected in (((2, 1), (50, 2, 1)), (2, (50, 2)), (None, (50, 2))):
        mechanism = script("two", pids, shape)
        assert mechanism(ZERO, 50, np.random.default_rng(0)).shape == expected
        mechanism.finish()


def test_numbers_are_sent_and_received_exactly():
    """The dataset is sent row by row; NaN and infinity are accepted here and checked by the validation."""
    echo = (
        "import sys\nfor line in sys.stdin:\n    runs = int(line.split()[0]); row = sys.stdin.readline()\n"
        "    sys.stdout.write(row * runs); sys.stdout.flush()"
    )
    mechanism = dpv.program([sys.executable, "-c", echo], (2, 2))
    data = np.array([[0.1, 1e-300], [np.nan, -np.inf]])
    np.testing.assert_array_equal(mechanism(data, 3, np.random.default_rng(0)), np.stack([data] * 3))
    mechanism.finish()


def test_a_program_that_ignores_its_seed_gets_no_answer(pids):
    for kind, found in (
        ("unseeded", dpv.Diagnostic.UNREPEATABLE_BLOCK),
        ("deaf", dpv.Diagnostic.REPEATED_BLOCKS),
    ):
        with pytest.warns(dpv.DPVerifyWarning, match=found.value[:40]):
            assert dpv.verify(script(kind, pids), ZERO, ONE, **SMALL).voiding == (found,)
    with pytest.warns(dpv.DPVerifyWarning, match="cannot be seeded"):
        assert not dpv.verify(script("unseeded", pids, seeded=False), ZERO, ONE, **SMALL).seeded
    assert no_process_remains(pids)


# Failures.

FAILURES = {
    "hangs": "found 0 of 2048 lines after 0.5 s; expected one line per run",
    "short": "found 2047 of 2048 lines after 2 s; .*; its last line was '1.5'",
    "dies": "ended .exit status 1. after 1000 of 2048 lines; .*; its messages: state vector lost",
    "crashes": "ended .killed by SIGABRT. after 0 of 2048 lines",
    "mute": "ended .exit status 4. after 0 of 2048 lines; .*it wrote nothing to stderr",
    "garbage": "line 7 of the answer is 'Warning: matrix is singular'; expected 1 number; print nothing else",
    "endless": "line 1 of the answer is 'xxx",
    "ragged": "line 4 of the answer is '1.5', 1 number; expected 2 numbers, separated by spaces; print nothing else",
    "long": "found 2049 lines; expected the 2048",
    "drowns": "ended .exit status 1. after 0 of 2048 lines; .*: .*step size too small .{1,3}state vector lost",
    "nan": "found NaN or infinity in 3 of 2048 runs",
}


TIMEOUTS = {"hangs": 0.5, "short": 2}  # a program that answers needs time to start


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_gives_one_line_and_leaves_no_process(pids, kind):
    mechanism = script(kind, pids, shape=2 if kind == "ragged" else 1, timeout=TIMEOUTS.get(kind, 60))
    with pytest.raises(dpv.MechanismError, match=FAILURES[kind]) as problem:
        dpv.verify(mechanism, ZERO, ONE, **SMALL)
    assert "\n" not in str(problem.value)
    assert len(str(problem.value)) < 1200
    assert no_process_remains_soon(pids)  # the kernel ends a process that was started by the program a moment later


def test_a_suspension_does_not_count_as_time_of_the_program(pids):
    """The suspended process continues long after the timeout; the program needs a second after that."""
    code = (
        "import sys, time, numpy as np, dpverify as dpv\n"
        "slow = dpv.program(['sh', '-c', 'read a; read b; sleep 1; echo 1; cat'], 1, timeout=2)\n"
        "print('begins', flush=True)\n"
        "print(slow(0.0, 1, np.random.default_rng(0)))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "begins\n"
        time.sleep(0.3)
        running.send_signal(signal.SIGSTOP)
        time.sleep(2.5)
        running.send_signal(signal.SIGCONT)
        assert running.stdout.read() == "[[1.]]\n"


def test_many_messages_do_not_block_a_program(pids):
    mechanism = script("floods", pids)
    assert mechanism(ZERO, 50, np.random.default_rng(0)).shape == (50, 1)
    mechanism.finish()
    assert no_process_remains(pids)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("hangs", "found 0 of 64 lines after 0.3 s"),
        ("dies", "exit status 1.*its messages: no licence"),
        ("forgets", "exit status 0. after 0 of 64 lines; expected all lines"),
        ("short", "found 63 lines; expected the 64"),
    ],
)
def test_a_failure_of_a_program_that_is_started_once_per_block(kind, message):
    mechanism = dpv.program([sys.executable, SCRIPT, kind, *PLACES], 1, timeout=0.3 if kind == "hangs" else 60)
    with pytest.raises(dpv.InputError, match=message):
        mechanism(ZERO, 64, np.random.default_rng(0))


def test_a_program_that_cannot_be_started_is_refused(tmp_path):
    (tmp_path / "text").write_text("no program")
    for path, why in ((tmp_path / "absent", "No such file"), (tmp_path / "text", "Permission denied")):
        with pytest.raises(dpv.InputError, match=f"which cannot be started .*{why}.*expected an executable program"):
            dpv.program([path], 1)(ZERO, 4, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("perl x.pl", 1), "argv: found 'perl x.pl'; expected a list"),
        (([], 1), "argv: found"),
        ((["x", "{data}"], 1), "placeholders without {out}"),
        ((["x"], (1, 2, 3)), "shape: found"),
        ((["x"], 0), "shape: found 0"),
        ((["x"], 1, -1), "timeout: found -1"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(arguments, message):
    with pytest.raises(dpv.InputError, match=message):
        dpv.program(*arguments)
    with pytest.raises(dpv.InputError, match="data: found dict; expected numbers"):
        dpv.program(["x"], 1)({}, 1, np.random.default_rng(0))


# No process remains, whatever ends this process.


def test_programs_end_with_their_worker_processes(pids):
    with pytest.raises(dpv.MechanismError, match="after 2 s"):
        dpv.verify(Late(script("hangs", pids, timeout=2)), ZERO, ONE, executor=2, **SMALL)
    assert no_process_remains_soon(pids)


class Late:
    """A mechanism that works in the parent process and calls the program in the workers."""

    def __init__(self, program):
        self.program, self.parent = program, os.getpid()

    def __call__(self, data, runs, rng):
        return rng.random(runs) if os.getpid() == self.parent else self.program(data, runs, rng)


@pytest.mark.parametrize("kill", [signal.SIGKILL, *(pytest.param(s, marks=pytest.mark.slow) for s in SOFTER)])
def test_a_program_ends_with_a_killed_command(pids, tmp_path, kill):
    np.save(tmp_path / "a.npy", ZERO)
    command = [sys.executable, "-m", "dpverify", "verify", "--first", "a.npy", "--second", "a.npy", "--"]
    with subprocess.Popen(
        [*command, sys.executable, SCRIPT, "hangs", pids], cwd=tmp_path, stderr=subprocess.DEVNULL
    ) as running:
        while not pids.exists() or len(pids.read_text().split("\n")) < 3:
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(kill)
    assert no_process_remains_soon(pids)


# On the command line.


@pytest.fixture
def verify(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", ZERO)
    np.save("b.npy", ONE)
    quick = ["--set", "select_runs=3000", "--set", "test_runs=6000", "--set", "block=2048"]
    return lambda *rest: main(["verify", "--first", "a.npy", "--second", "b.npy", *quick, *rest])


@pytest.mark.filterwarnings("default::dpverify.DPVerifyWarning")
def test_the_command_accepts_a_program(verify, pids, capsys):
    program = ["--", sys.executable, SCRIPT]
    assert verify("--epsilon", "0.3", *program, "good", "pids") == 1
    assert "programs.py good pids: REFUTED" in capsys.readouterr().out
    assert verify("--shape", "2,1", "--json", "out.json", *program, "two", "pids") == 0
    assert dpv.Report.from_json("out.json").witness.shape == (2, 1)
    assert verify("--unseeded", *program, "unseeded", "pids") == 0
    assert "cannot be seeded" in capsys.readouterr().err
    assert no_process_remains(pids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", sys.executable, SCRIPT, "dies", "pids"], "its messages: state vector lost"),
        (
            ["--", "no-such-program"],
            "argv: found 'no-such-program', which cannot be started (No such file or directory)",
        ),
        (["mine:laplace", "--", "x"], "found both of MECHANISM and -- PROGRAM"),
        (["--"], "found neither of MECHANISM and -- PROGRAM"),
    ],
)
def test_the_command_reports_a_failure_in_one_line(verify, pids, capsys, arguments, message):
    assert verify(*arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not pids.exists() or no_process_remains(pids)


# Outputs in JSON.

JSON_LINES = """
import json, random, sys
for line in sys.stdin:
    runs, seed, n = map(int, line.split())
    value, rng = float(sys.stdin.readline()), random.Random(seed)
    for _ in range(runs):
        print(json.dumps({"total": rng.random(), **({"extra": None} if rng.random() < 0.3 * value else {})}))
    sys.stdout.flush()
"""


def test_a_line_may_be_an_output_in_json():
    mechanism = dpv.program([sys.executable, "-c", JSON_LINES], shape="json")
    report = dpv.verify(mechanism, 0.0, 1.0, 0.1, select_runs=500, test_runs=2000)
    assert report.refuted
    assert "['extra']" in report.witness.text


def test_a_line_that_is_not_json_is_named():
    code = "import sys; [print('oops', flush=True) for line in sys.stdin]"
    mechanism = dpv.program([sys.executable, "-c", code], shape="json")
    with pytest.raises(dpv.InputError, match="line 1 of the answer is 'oops'; expected one output in JSON"):
        mechanism(0.0, 2, np.random.default_rng(0))
