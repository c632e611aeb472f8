"""Faults of a mechanism never look like a result: the exit status and the line that the user sees."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from user_folder import make_user_folder

import dpverify as dpv
from dpverify.cli import app, main
from dpverify.errors import OutputError

MECHANISMS = """
import asyncio, multiprocessing, os, signal, threading, time
import numpy as np

class Own(BaseException):
    def __str__(self):
        raise ValueError("no text")

def laplace(data, runs, rng):
    return np.sum(data) + rng.laplace(size=runs)

def late(action):  # the first blocks are drawn in this process; a fault in a worker is later
    def mechanism(data, runs, rng):
        if rng.bit_generator.seed_seq.spawn_key[0] == 4:
            action()
        return laplace(data, runs, rng)
    return mechanism

def cancelled():
    raise asyncio.CancelledError("too late")

def closed():
    raise GeneratorExit

def own():
    raise Own

raises_cancelled, raises_closed, raises_own = late(cancelled), late(closed), late(own)
ends_0, ends_1 = late(lambda: os._exit(0)), late(lambda: os._exit(1))
aborts = late(os.abort)
NAMES = [name for name in globals() if name.startswith(("raises_", "ends_", "aborts"))]
for name in NAMES:
    globals()[name].__qualname__ = globals()[name].__name__ = name

def leaves_a_thread(data, runs, rng):
    if threading.active_count() < 9:
        threading.Thread(target=time.sleep, args=(9999,)).start()
    return laplace(data, runs, rng)

def slow(data, runs, rng):
    open("started", "w").close()
    time.sleep(0.2)
    return laplace(data, runs, rng)

def moves(data, runs, rng):
    os.chdir("/")
    return laplace(data, runs, rng)

class Untidy:
    name = "estimate of \\u03b5 \\udcff"

    def __call__(self, data, runs, rng):
        return laplace(data, runs, rng)

    def remarks(self, data):
        raise KeyError("no remark")

    def finish(self):
        raise SystemExit(0)

untidy = Untidy()

class Blocky:
    block = "x"
    __call__ = staticmethod(laplace)

blocky = Blocky()
"""
ARGUMENTS = ["--first", "a.txt", "--second", "b.txt", "--set", "select_runs=2000", "--set", "test_runs=4000"]
ARGUMENTS += ["--set", "block=1000"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    return make_user_folder(tmp_path, monkeypatch, {"faults.py": MECHANISMS, "a.txt": "0\n", "b.txt": "1\n"})


def start(*arguments, **options):
    """Start the command. Ctrl-C is ignored if the tests run in the background; the command must not inherit this."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen([sys.executable, "-m", "dpverify", *arguments], start_new_session=True, **options)
    finally:
        signal.signal(signal.SIGINT, before)


def run(*arguments, **options):
    """Run the installed command, and return its exit status, stdout and stderr."""
    process = start(*arguments, **options)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.parametrize("workers", [[], ["--workers", "1"]], ids=["serial", "workers"])
@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("raises_cancelled", "CancelledError: too late (at faults.py, line 20)"),
        ("raises_closed", "GeneratorExit: (at faults.py, line 23)"),
        ("raises_own", "Own: its message cannot be read (at faults.py, line 26)"),
    ],
)
def test_any_exception_of_the_mechanism_exits_2_and_names_the_place(place, capsys, name, cause, workers):
    assert main(["verify", f"faults:{name}", *ARGUMENTS, *workers]) == 2
    line = capsys.readouterr().err
    # Worker processes draw both datasets at the same time, so either can fail first.
    lines = [
        f"dpverify: the mechanism failed in the test runs of the {side} dataset, block 0: {cause}\n"
        for side in (("first", "second") if workers else ("first",))
    ]
    assert line in lines


@pytest.mark.parametrize(
    ("name", "end"), [("ends_0", "exit status 0"), ("ends_1", "exit status 1"), ("aborts", "killed by SIGABRT")]
)
def test_a_mechanism_that_ends_the_process_exits_3(place, name, end):
    status, out, err = run("verify", f"faults.py:{name}", *ARGUMENTS, "--epsilon", "1", "--json", "out.json")
    assert (status, out) == (3, "")
    line = f"dpverify: the process ended without a report ({end}); the mechanism, or a library, ended it\n"
    assert err.endswith(line)
    assert not (place / "out.json").exists()


def test_a_thread_that_is_left_behind_does_not_keep_the_command_alive(place):
    """The thread sleeps far longer than the time limit of `run`."""
    status, out, err = run("verify", "faults.py:leaves_a_thread", *ARGUMENTS, "--epsilon", "0.3")
    assert (status, err) == (1, "")
    assert "REFUTED" in out


def wait_for(condition):
    """Wait until the condition is true, at most a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


def child_of(process):
    """Return the process that does the work of a command."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def is_alive(process_id):
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("target", "number", "status", "line"),
    [
        ("command", signal.SIGINT, 3, "dpverify: stopped by the keyboard after "),
        ("both", signal.SIGINT, 3, "dpverify: stopped by the keyboard after "),
        ("command", signal.SIGTERM, 3, "dpverify: the process ended without a report (killed by SIGTERM); stopped by"),
        ("child", signal.SIGKILL, 3, "dpverify: the process ended without a report (killed by SIGKILL); the mech"),
        ("command", signal.SIGKILL, -signal.SIGKILL, ""),
    ],
)
def test_signals_end_the_command_and_its_child(place, target, number, status, line):
    process = start("verify", "faults.py:slow", *ARGUMENTS)
    wait_for((place / "started").exists)
    child = child_of(process)
    if target == "both":
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid if target == "command" else child, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert err.startswith(line)
    assert err.count("\n") == bool(line)
    wait_for(lambda: not is_alive(child))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
def test_a_signal_says_how_to_resume_if_there_is_a_folder(place):
    process = start("verify", "faults.py:slow", *ARGUMENTS, "--quiet", "--folder", "night")
    wait_for((place / "night" / "dpverify.json").exists)
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert err == (
        "dpverify: the process ended without a report (killed by SIGTERM); stopped by a signal; the results up to the "
        "last checkpoint are saved in night; repeat the same command to resume\n"
    )


def test_the_streams_of_the_command(place):
    status, out, err = run("verify", "faults.py:laplace", *ARGUMENTS, "--json", "-", "--epsilon", "0.3")
    assert (status, err) == (1, "")
    (place / "copy.json").write_text(out)
    assert dpv.Report.from_json("copy.json").refuted
    reader, writer = os.pipe()
    os.close(reader)
    status, _, err = run("report", "copy.json", stdout=writer)
    os.close(writer)
    assert (status, err) == (3, "")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            status, _, err = run("report", "copy.json", stdout=full)
        assert (status, err) == (
            2,
            "dpverify: standard output: No space left on device; expected a stream with space left\n",
        )


def test_a_terminal_that_cannot_encode_a_name_and_methods_that_fail_cost_no_report(place):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict", "LC_ALL": "C"}
    command = ["verify", "faults.py:untidy", *ARGUMENTS, "--epsilon", "0.3", "--json", "out.json", "--html", "out.html"]
    status, out, err = run(*command, env=environment)
    assert status == 1, err
    assert out.startswith("estimate of \\u03b5 ?: REFUTED")
    assert "dpverify: the mechanism's method remarks failed: KeyError: 'no remark' (at faults.py, line " in err
    assert "dpverify: the mechanism's method finish failed: SystemExit: 0 (at faults.py, line " in err
    notes = dpv.Report.from_json("out.json").notes
    assert [note.partition(" failed")[0] for note in notes if "method" in note] == [
        "the mechanism's method remarks",
        "the mechanism's method finish",
    ]
    assert "REFUTED" in (place / "out.html").read_text(encoding="utf-8")


def test_a_mechanism_that_changes_the_folder_does_not_move_the_files(place, capsys):
    outputs = ["--json", "out.json", "--html", "out.html", "--folder", "kept"]
    assert main(["verify", "faults.py:moves", *ARGUMENTS, *outputs]) == 0
    assert {path.name for path in place.iterdir()} >= {"out.json", "out.html", "kept"}
    assert (place / "kept" / "test-1.record").exists()


def test_json_is_written_before_the_text_and_a_failure_loses_no_other_form(place, monkeypatch, capsys):
    class Stream:
        def write(self, text):
            assert (place / "out.json").exists()
            raise BrokenPipeError

        def flush(self):
            pass

        def fileno(self):
            raise ValueError

    command = ["verify", "faults.py:laplace", *ARGUMENTS, "--json", "out.json", "--html", "out.html"]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Stream())
        assert main(command) == 3
    assert (place / "out.html").exists()

    def fails(self, path):
        raise OSError(28, "No space left on device")

    (place / "out.html").unlink()
    monkeypatch.setattr(dpv.Report, "to_json", fails)
    assert main(command) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("laplace: MEASURED")
    assert captured.err == "dpverify: out.json: No space left on device; expected a path that can be written\n"
    assert (place / "out.html").exists()


def test_a_disk_that_fails_during_the_work_is_no_answer(capsys, monkeypatch):
    """Such a file is not an argument of the command, so the exit status is not that of bad input."""

    def fails(arguments):
        raise OutputError(28, "No space left on device", "reports/a.json")

    monkeypatch.setattr(app, "execute", fails)
    assert main(["demo"]) == 3
    assert capsys.readouterr().err == (
        "dpverify: reports/a.json: No space left on device; expected a path that can be written\n"
    )


def test_a_file_beside_the_mechanism_does_not_replace_a_module_of_the_workers(place, capsys):
    (place / "random.py").write_text("raise ImportError('not the standard library')\nlaplace = None\n")
    (place / "code.py").write_text("laplace = None\n")
    assert main(["verify", "faults.py:laplace", *ARGUMENTS, "--workers", "1"]) == 0
    capsys.readouterr()
    for name in ("random.py:laplace", "random:laplace"):
        assert main(["verify", name, *ARGUMENTS]) == 2
        line = "dpverify: mechanism: found another module named random; expected random.py; rename the file\n"
        assert capsys.readouterr().err == line


def test_the_keyboard_during_imports_ends_with_one_line(tmp_path):
    package = tmp_path / "dpverify"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a background job ignores it
    code = f"{listen}; from dpverify_command import entry; entry()"
    source = Path(dpv.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(source)])}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.returncode == 3
    assert result.stderr == "dpverify: stopped by the keyboard\n"


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (MemoryError(), "dpverify: out of memory"),
        (OSError(5, "Input/output error", "kept/x"), "dpverify: kept/x: Input/output error; expected files that can"),
    ],
)
def test_a_machine_that_fails_outside_of_the_runs_exits_3_in_one_line(problem, line, capsys, monkeypatch):
    def fails(path):
        raise problem

    monkeypatch.setattr(dpv.Report, "from_json", fails)
    assert main(["report", "out.json"]) == 3
    complaint = capsys.readouterr().err
    assert complaint.startswith(line)
    assert complaint.count("\n") == 1


def test_an_attribute_that_cannot_be_used_is_named(place, capsys):
    assert main(["verify", "faults.py:blocky", *ARGUMENTS[:4]]) == 2
    line = "dpverify: the mechanism's attribute block must be a whole number of at least 1, not 'x'\n"
    assert capsys.readouterr().err == line
