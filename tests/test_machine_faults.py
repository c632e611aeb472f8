"""A machine that runs out of memory, or whose disk fails, is named in one line; no file is called damaged for it."""

import pytest
from user_folder import make_user_folder

import dpverify as dpv
from dpverify.cli import main

ARGUMENTS = ["--first", "a.txt", "--second", "b.txt"]


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (MemoryError(), "dpverify: out of memory\n"),
        (
            OSError(5, "Input/output error", "kept/x"),
            "dpverify: kept/x: Input/output error; expected files that can be ",
        ),
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


def test_too_little_memory_is_not_taken_for_a_damaged_file(tmp_path, monkeypatch):
    """A user who is told that a file is damaged would remove it."""
    files = {"mine.py": "laplace = None\n", "a.txt": "0\n", "b.txt": "1\n"}
    make_user_folder(tmp_path, monkeypatch, files)
    few = {"select_runs": 500, "test_runs": 1000, "block": 250}
    pair = lambda data, runs, rng: data + rng.laplace(size=runs), 0.0, 1.0, 0.5
    dpv.verify(*pair, folder="kept", **few).to_json("out.json")

    def fails(*arguments, **more):
        raise MemoryError

    for name, action in {
        "dpverify.sampling.checkpoint.np.frombuffer": lambda: dpv.verify(*pair, folder="kept", **few),
        "dpverify.report.json.check_report": lambda: dpv.Report.from_json("out.json"),
        "dpverify.studies.loading.np.loadtxt": lambda: main(["verify", "mine.py:laplace", *ARGUMENTS]),
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(name, fails)
            if "loading" in name:
                assert action() == 2
                continue
            with pytest.raises((dpv.InputError, dpv.FolderError), match="too little memory to read this file"):
                action()
    assert dpv.verify(*pair, folder="kept", **few).provenance["resumed"]
