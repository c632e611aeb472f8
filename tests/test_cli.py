"""The command dpverify: exit statuses, error lines, help."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import dpverify as dpv
from dpverify.cli import main
from dpverify.cli.commands import COMMANDS

MECHANISMS = """
import numpy as np

def laplace(data, runs, rng):
    return np.sum(data) + rng.laplace(size=runs)

def make():
    return laplace

def short(data, runs, rng):
    return np.zeros(runs - 1)

def raises(data, runs, rng):
    raise KeyError("no key")

def singular(data, runs, rng):
    return np.linalg.inv(np.zeros((2, 2)))

def one(data, rng):
    return rng.random()

def swapped(data, rng, runs):
    return data + rng.laplace(size=(runs, 1))

def rotated(runs, data, rng):
    return data + rng.laplace(size=(runs, 1))

def clumsy(data, runs, rng):
    return one(data, runs, rng)

class Scaled:
    def __call__(self, data, runs, rng):
        return data + rng.laplace(size=(runs, 1))

def smoother(scale):
    return lambda data, runs, rng: data + rng.laplace(scale=scale, size=(runs, 1))

class Needy:
    def __init__(self, scale):
        self.scale = scale

local = lambda data, runs, rng: rng.random(runs)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("mine", None)
    (tmp_path / "mine.py").write_text(MECHANISMS)
    (tmp_path / "broken.py").write_text("raise ImportError('half installed')")
    (tmp_path / "kf").touch()
    (tmp_path / "a.txt").write_text("1 2\n")
    (tmp_path / "b.csv").write_text("1,3\n")
    (tmp_path / "c.json").write_text("[1, 2]")
    np.save(tmp_path / "d.npy", np.array([1.0, 3.0]))
    np.save(tmp_path / "pickle.npy", np.array([{}]), allow_pickle=True)
    yield tmp_path
    sys.modules.pop("mine", None)


QUICK = ["--set", "select_runs=2000", "--set", "test_runs=4000"]


def run(*arguments):
    return main(["verify", *arguments, *QUICK])


def test_refuted_exits_1_and_prints(place, capsys):
    assert run("mine.py:laplace", "--first", "a.txt", "--second", "b.csv", "--epsilon", "0.3") == 1
    out = capsys.readouterr().out
    assert out.startswith("laplace: REFUTED")
    assert "witness" in out


@pytest.mark.parametrize("claim", [["--epsilon", "1.3"], []])
def test_not_refuted_or_no_claim_exits_0(place, claim):
    assert run("mine:laplace", "--first", "c.json", "--second", "d.npy", *claim) == 0


def test_a_factory_is_called_and_json_is_written(place, capsys):
    assert run("mine:make()", "--first", "a.txt", "--second", "b.csv", "--json", "out.json", "--quiet") == 0
    assert capsys.readouterr().out == ""
    assert dpv.Report.from_json("out.json").name == "laplace"
    assert json.loads((place / "out.json").read_text())["format"] == 1
    assert main(["report", "out.json"]) == 0
    assert "laplace: MEASURED" in capsys.readouterr().out


@pytest.mark.filterwarnings("always::dpverify.DPVerifyWarning")
def test_integers_in_a_text_file_become_floats_and_the_error_says_so(place, capsys):
    (place / "counts.py").write_text(
        "import numpy as np\n\n\ndef histogram(data, runs, rng):\n"
        "    return np.bincount(data, minlength=4) + rng.laplace(size=(runs, 4))\n"
    )
    assert run("counts.py:histogram", "--first", "a.txt", "--second", "b.csv") == 2
    err = capsys.readouterr().err
    assert "text files are read as floating-point numbers; .npy files keep integers" in err
    assert run("counts.py:histogram", "--first", "d.npy", "--second", "d.npy") == 2  # floats that are no text file
    assert "text files" not in capsys.readouterr().err
    (place / "study.toml").write_text(
        '[mechanisms.counts]\nuse = "counts.py:histogram"\n[pairs.one]\nfirst = "a.txt"\nsecond = "b.csv"\n'
    )
    assert main(["study", "study.toml"]) == 2
    assert ".npy files keep integers" in capsys.readouterr().err
    sys.modules.pop("counts", None)


FAILURES = [
    (["mine:short"], "runs; expected the"),
    (["mine:raises"], "KeyError: 'no key' (at mine.py, line 14)"),
    (["mine:singular"], "Singular matrix (at mine.py, line 17)"),
    (["mine:one"], "but 3 were given; a mechanism is called as (data, runs, rng); wrap a function of one run"),
    (
        ["mine:Scaled"],
        "found the class Scaled; expected a function or an object; add () to create an object: mine:Scaled()",
    ),
    (["mine:swapped"], "called as (data, runs, rng); compare the order of its parameters, (data, rng, runs)\n"),
    (["mine:rotated"], "compare the order of its parameters, (runs, data, rng)\n"),  # no advice about integers
    (["mine:clumsy"], "but 3 were given (at mine.py, line 29)\n"),
    (
        ["mine.py:laplac"],
        "mine.py has no laplac; did you mean 'lapl",
    ),
    (
        ["mine.py:smoother(1.0)"],
        "mechanism: found 'mine.py:smoother(1.0)'; expected module:name or path/file.py:name; arguments are not "
        "possible here; write `mine = smoother(1.0)` in the file and use mine.py:mine\n",
    ),
    (
        ["mine.py:smoother()"],
        "mechanism: found smoother(), but smoother needs arguments; expected a function without; arguments are not "
        "possible here; write `mine = smoother(...)` in the file and use mine.py:mine\n",
    ),
    (
        ["mine.py:smoother"],
        "if smoother makes a mechanism, call it first, for example mine = smoother(...); on the command line, write "
        "this in the file and use FILE.py:mine\n",
    ),
    (["mine.py:Needy"], "expected a function or an object; arguments are not possible here; write `mine = Needy(...)`"),
    (
        ["./kf"],
        "mechanism: found './kf', a file; expected module:name or path/file.py:name; a program follows after --, at "
        "the end of the command: -- ./kf\n",
    ),
    (["nowhere:f"], "No module named 'nowhere'"),
    (["nowhere.py:f"], "no file nowhere.py"),
    (["broken:f"], "half installed (at broken.py, line 1)"),
    (["mine"], "expected module:name"),
    (["mine:laplace", "--epsilon", "-1"], "epsilon must be"),
    (["mine:laplace", "--set", "test_run=9"], "did you mean 'test_runs'?"),
    (["mine:laplace", "--set", "alpha"], "expected NAME=VALUE"),
    (["mine:laplace", "--first", "absent.txt"], "absent.txt: no such file"),
    (["mine:laplace", "--first", "pickle.npy"], "pickle.npy"),
    (["mine:laplace", "--first", "mine.py"], "expected a file that ends in"),
    (["mine:local", "--workers", "2"], "factory"),
    (["mine:laplace", "--workers", "0"], "executor: found 0"),
    (["mine:raises", "--json", "nowhere/a.json"], "nowhere/a.json: No such file or directory; expected a path"),
    (["mine:raises", "--html", "."], ": Is a directory; expected a path"),
    (["mine:laplace", "--workers", "2", "--dask", "tcp://127.0.0.1:1"], "use --workers or --dask, not both"),
]


@pytest.mark.parametrize(("arguments", "message"), FAILURES, ids=lambda x: " ".join(x) if isinstance(x, list) else None)
def test_bad_input_exits_2_with_one_line(place, capsys, arguments, message):
    tail = QUICK if "--set" not in arguments else ["--set", "select_runs=2000"]
    quiet = [] if "--quiet" in arguments else ["--quiet"]  # on a busy machine a cost estimate would be a second line
    status = main(["verify", *quiet, "--first", "a.txt", "--second", "b.csv", *arguments, *tail])
    captured = capsys.readouterr()
    assert status == 2
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("dpverify: ")


def test_usage_errors_exit_2(capsys):
    for arguments in (
        [],
        ["verify"],
        ["frobnicate"],
        ["verify", "m:f", "--first", "a", "--second", "b", "--epsilon", "x"],
    ):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
        line = capsys.readouterr().err
        assert line.startswith("dpverify: ")
        assert line.endswith(" --help\n")
        assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["verify", "--test_runs", "100"], "unknown option --test_runs; did you mean --set test_runs=100?"),
        (["verify", "--test-runs=100"], "unknown option --test-runs; did you mean --set test_runs=100?"),
        (["verify", "--seed"], "unknown option --seed; did you mean --set seed=VALUE?"),
        (["verify", "--floder", "x"], "unknown option --floder; did you mean --folder?"),
        (["verify", "other:f"], "found the argument 'other:f'; expected no more arguments"),
        (["report", "--test_runs", "1"], "unknown option --test_runs"),
    ],
)
def test_an_unknown_option_names_the_help_of_its_command(capsys, arguments, line):
    command, *rest = arguments
    required = ["--first", "a", "--second", "b"] if command == "verify" else []
    with pytest.raises(SystemExit) as stop:
        main([command, "m:f", *required, *rest])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"dpverify: {line}; see dpverify {command} --help\n"


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_has_a_help_text_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.rstrip().splitlines()[-1].startswith(f"  dpverify {command}")


def test_version_and_help(capsys):
    for flag in ("--version", "--help"):
        with pytest.raises(SystemExit) as stop:
            main([flag])
        assert stop.value.code == 0
    assert dpv.__version__ in capsys.readouterr().out


def test_an_internal_error_exits_3_with_its_traceback(place, capsys, monkeypatch):
    monkeypatch.setattr("dpverify.verify", None)  # the call fails in the package
    assert run("mine:laplace", "--first", "a.txt", "--second", "b.csv") == 3
    assert "TypeError: 'NoneType' object is not callable" in capsys.readouterr().err


def test_dead_workers_exit_3(place, capsys):
    (place / "dies.py").write_text(
        "import os\ndef f(data, runs, rng):\n    import multiprocessing\n"
        "    if multiprocessing.parent_process(): os._exit(1)\n    return rng.random(runs)\n"
    )
    assert run("dies:f", "--first", "a.txt", "--second", "b.csv", "--workers", "1") == 3
    assert "the workers were lost" in capsys.readouterr().err


def test_the_installed_command(place):
    command = [sys.executable, "-m", "dpverify", "verify", "mine.py:laplace", "--first", "a.txt", "--second", "b.csv"]
    command += ["--epsilon", "0.3", "--workers", "2", *QUICK]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("laplace: REFUTED")
    quiet = subprocess.run([*command, "--quiet"], capture_output=True, text=True, env={**os.environ})
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (1, "", "")


def test_the_demo(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    assert "REFUTED" in (tmp_path / "dpverify-demo.html").read_text()
    out = capsys.readouterr().out
    assert "laplace_sum: REFUTED" in out
    assert "private Kalman filter: " in out
    assert "private Kalman filter: REFUTED" not in out
