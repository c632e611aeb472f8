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


GALLERY = sorted(EXAMPLES.glob("gallery/*.py"))


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=() if path.stem == "quantiser" else pytest.mark.slow) for path in GALLERY]
)
def test_an_example_of_the_gallery(path):
    done = subprocess.run([sys.executable, path], check=True, capture_output=True, text=True)
    assert "REFUTED" in done.stdout or "BOUNDED" in done.stdout
    assert len(path.read_text().splitlines()) <= 25


@pytest.mark.slow
def test_the_nile_example_prints_what_its_page_shows():
    done = subprocess.run([sys.executable, EXAMPLES / "nile.py"], check=True, capture_output=True, text=True)
    same(done.stdout, next(block.code for block in blocks(PROJECT / "docs" / "nile.md") if block.language == "text"))
