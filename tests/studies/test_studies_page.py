"""The examples of docs/studies.md run as they stand, one after the other."""

import sys

import numpy as np
import pytest
from pages import PROJECT, blocks, python, run

import dpverify as dpv
from dpverify.cli import main

PAGE = PROJECT / "docs" / "studies.md"


@pytest.mark.parametrize("short", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_python_examples(short, tmp_path, monkeypatch):
    scope, printed = run(PAGE, tmp_path, monkeypatch, short, fewer=("2, 40)", "2, 8)"))
    assert "pairs passed (epsilon 1, delta 0)" in printed
    answer = scope["answer"]
    assert 0.5 < answer.parameter < 2
    assert (tmp_path / "tradeoff.csv").read_text().count("\n") == 4
    assert ">Laplace</td>" in (tmp_path / "tradeoff.html").read_text()
    if not short:
        assert scope["worst"][1].sum() > 1.8
        assert answer.insufficient < 1 / (1 - 2 * np.log(0.99)) < answer.sufficient


def test_the_study(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("mine", None)
    shifted = "\n\ndef shifted(by):\n    return np.zeros(2), np.array([0.0, by])\n"
    (tmp_path / "mine.py").write_text(python(PAGE)[0] + shifted)
    (tmp_path / "first.csv").write_text("1,2\n")
    (tmp_path / "second.csv").write_text("1,3\n")
    toml = next(block.code for block in blocks(PAGE) if block.language == "toml")
    (tmp_path / "noise.toml").write_text(
        toml.replace("seeds = 2", "seeds = 1").replace("10000", "2000").replace("[settings]", "[settings]\nseed = 1")
    )
    assert main(["study", str(tmp_path / "noise.toml")]) == 1
    assert "  9 verifications: 3 refuted" in capsys.readouterr().out
    for row in dpv.run_study(tmp_path / "noise.toml").rows:
        exact = {0.5: 2.0, 1.0: 1.0, 2.0: 0.5}[row["mechanism.scale"]] * (row["pair.by"] or 1.0)
        assert 0.3 * exact < row["epsilon_lower"] < 1.3 * exact  # each bound at 95%
        assert row["verdict"] != "REFUTED" or exact > 1.2
    sys.modules.pop("mine", None)
