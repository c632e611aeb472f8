"""The examples of docs/studies.md run as they stand, one after the other."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import dpverify as dpv
from dpverify.cli import main

PAGE = (Path(__file__).parent.parent / "docs" / "studies.md").read_text()


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def shorter(text):
    """Few runs and few pairs: what can be said of the answers then is little."""
    few = {"80_000": "4000", "20_000": "1000", "10_000": "600", "5000": "400", "2, 40)": "2, 4)"}
    for old, new in few.items():
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("short", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_python_examples(short, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "page", type(sys)("page"))
    scope = {"__name__": "page"}
    for code in blocks("python"):
        exec(shorter(code) if short else code, scope)
    assert "pairs passed (epsilon 1, delta 0)" in capsys.readouterr().out
    answer = scope["answer"]
    assert 0.4 < answer.parameter < 2.5
    assert (tmp_path / "tradeoff.csv").read_text().count("\n") == 4
    assert "<td>Laplace</td>" in (tmp_path / "tradeoff.html").read_text()
    if not short:
        assert scope["worst"][1].sum() > 1.8
        assert answer.insufficient < 1 / (1 - 2 * np.log(0.99)) < answer.sufficient


def test_the_study(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("mine", None)
    shifted = "\n\ndef shifted(by):\n    return np.zeros(2), np.array([0.0, by])\n"
    (tmp_path / "mine.py").write_text(blocks("python")[0] + shifted)
    (tmp_path / "first.csv").write_text("1,2\n")
    (tmp_path / "second.csv").write_text("1,3\n")
    (tmp_path / "noise.toml").write_text(blocks("toml")[0].replace("seeds = 2", "seeds = 1").replace("10000", "2000"))
    assert main(["study", str(tmp_path / "noise.toml")]) == 1
    assert capsys.readouterr().out.startswith("9 verifications, ")
    for row in dpv.run_study(tmp_path / "noise.toml").rows:
        exact = {0.5: 2.0, 1.0: 1.0, 2.0: 0.5}[row["mechanism.scale"]] * (row["pair.by"] or 1.0)
        assert 0.4 * exact < row["epsilon_lower"] < 1.1 * exact
        assert row["verdict"] != "REFUTED" or exact > 1.2
    sys.modules.pop("mine", None)
