"""The examples run, and print what the documentation shows."""

import subprocess
import sys
from pathlib import Path

import pytest
from pages import PROJECT, blocks, same

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["pendulum", "tracker"])
def test_an_example_with_its_own_system(name):
    path = EXAMPLES / f"{name}.py"
    done = subprocess.run([sys.executable, path], check=True, capture_output=True, text=True)
    assert "proved" in done.stdout
    assert "witness" in done.stdout
    assert len(path.read_text().splitlines()) <= 30


@pytest.mark.slow
def test_the_nile_example_prints_what_its_page_shows():
    done = subprocess.run([sys.executable, EXAMPLES / "nile.py"], check=True, capture_output=True, text=True)
    same(done.stdout, next(block.code for block in blocks(PROJECT / "docs" / "nile.md") if block.language == "text"))


@pytest.mark.slow
def test_the_bounds_of_the_w2mhe_are_in_order(monkeypatch):
    """The proved lower bound is below the certified epsilon, and that is below the paper's, for every s."""
    monkeypatch.syspath_prepend(EXAMPLES)
    from w2mhe import rows

    for mechanism, report, certified, paper in rows((0.8, 0.5)):
        assert 0 < report.epsilon_lower <= certified <= paper
        assert report.name == mechanism.name
