"""Checkpoint folders: a change of the source files of a mechanism is noticed."""

import json

import pytest
from user_folder import forget_modules, make_user_folder, rewrite

import dpverify as dpv
from dpverify.cli import main

HELPERS = "SCALE = 1.0\n"
MINE = """
from dataclasses import dataclass
import numpy as np
import helpers

def noise(data, runs, rng):
    return data.sum() + helpers.SCALE * rng.laplace(size=(runs, 1))

@dataclass(frozen=True)
class Hardware:
    gain: float = 1.0
    seeded: bool = False

    def __call__(self, data, runs, rng):
        return noise(self.gain * data, runs, np.random.default_rng())

hardware = Hardware()
strong = Hardware(2.0)
"""
COMMAND = ["verify", "mine.py:noise", "--first", "a.txt", "--second", "b.txt", "--folder", "kept", "--quiet"]
COMMAND += ["--set", "select_runs=200", "--set", "test_runs=500", "--set", "partition=grid"]
UNSEEDED = [part.replace("mine.py:noise", "mine.py:hardware") for part in COMMAND]


@pytest.fixture
def place(tmp_path, monkeypatch):
    files = {"mine.py": MINE, "helpers.py": HELPERS, "a.txt": "0\n", "b.txt": "1\n"}
    return make_user_folder(tmp_path, monkeypatch, files)


@pytest.mark.filterwarnings("default:.*changed since")
def test_a_change_without_effect_gives_a_warning_and_a_note(place, capsys):
    assert main(COMMAND) == 0
    forget_modules(place)
    assert main(COMMAND) == 0
    assert capsys.readouterr().err == ""
    rewrite(place / "helpers.py", HELPERS + "# a change\n")
    assert main([*COMMAND, "--json", "out.json"]) == 0
    err = capsys.readouterr().err
    assert "kept: helpers.py changed since the folder was started; its results are used, because 64 runs per" in err
    assert "a rarer change of the mechanism is not noticed" in err
    assert err.count("\n") == 1
    report = dpv.Report.from_json("out.json")
    assert report.provenance["resumed"]
    assert any("helpers.py changed since the folder was started" in note for note in report.notes)
    assert main([*COMMAND, "--trust-results"]) == 0
    assert capsys.readouterr().err == ""


def test_changed_behaviour_is_refused(place, capsys):
    assert main(COMMAND) == 0
    rewrite(place / "helpers.py", "SCALE = 3.0\n")
    assert main([*COMMAND, "--trust-results"]) == 2
    assert "kept: found the runs of another mechanism" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:the mechanism cannot be seeded")
def test_a_change_of_an_unseeded_mechanism_is_refused_unless_it_is_trusted(place, capsys):
    assert main(UNSEEDED) == 0
    forget_modules(place)
    assert main(UNSEEDED) == 0
    capsys.readouterr()
    rewrite(place / "helpers.py", "SCALE = 3.0\n")
    assert main(UNSEEDED) == 2
    err = capsys.readouterr().err
    assert "kept: found that helpers.py changed; expected the sources that the folder was started with" in err
    assert "confirm that the results can be trusted (--trust-results, trust_results=True)" in err
    assert err.count("\n") == 1
    assert main([*UNSEEDED, "--trust-results", "--json", "out.json"]) == 0
    notes = dpv.Report.from_json("out.json").notes
    line = "kept: helpers.py changed since the folder was started; its results are trusted"
    assert any(note.endswith(line) for note in notes)


@pytest.mark.filterwarnings("ignore:the mechanism cannot be seeded")
def test_other_parameters_of_an_unseeded_mechanism_are_refused(place, capsys):
    assert main(UNSEEDED) == 0
    capsys.readouterr()
    other = [part.replace(":hardware", ":strong") for part in UNSEEDED]
    assert main(other) == 2
    assert "kept: found that the parameters of the mechanism changed" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:the mechanism cannot be seeded")
def test_a_folder_without_a_record_of_sources(place, capsys):
    """A folder of an earlier version: a seeded mechanism is compared by its runs, an unseeded one is refused."""
    for command, status in ((COMMAND, 0), (UNSEEDED, 2)):
        command = [part.replace("kept", f"kept-{status}") for part in command]
        assert main(command) == 0
        owner = place / f"kept-{status}" / "dpverify.json"
        document = json.loads(owner.read_text())
        del document["sources"]
        owner.write_text(json.dumps(document))
        capsys.readouterr()
        assert main(command) == status
        assert ("found no record of the source files" in capsys.readouterr().err) == (status == 2)
        assert main([*command, "--trust-results"]) == 0
