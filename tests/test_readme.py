"""The README and the first steps: Python blocks run in order and print what is shown; links lead to files."""

import os
import re
import subprocess
import sys

import pytest
from pages import PROJECT, blocks, same
from refresh import outputs

from dpverify.cli import main

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}
README, START = PROJECT / "README.md", PROJECT / "docs" / "start.md"


def test_the_first_block_is_the_example_file():
    code = next(block.code for block in blocks(README) if block.language == "python")
    assert code == (PROJECT / "examples" / "readme.py").read_text()


@pytest.mark.parametrize("page", [README, START], ids=lambda page: page.stem)
def test_all_python_blocks_run_in_order_and_print_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    shown = [block.code for block in blocks(page) if block.language == "text"]
    printed = outputs(text)
    assert len(printed) == len(shown), "every text block follows the Python block that prints it"
    for output, expected in zip(printed.values(), shown, strict=True):
        same(output, expected)


def test_links_and_figures_exist():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", README.read_text()):
        assert (PROJECT / target).exists(), target


def save_files(folder):
    """Write the files that a reader of the first steps saves: the mechanism, the test and the study."""
    all_blocks = blocks(START)
    (folder / "mine.py").write_text(next(block.code for block in all_blocks if "def smoother" in block.code))
    (folder / "test_mine.py").write_text(next(block.code for block in all_blocks if block.mark == "pytest"))
    study = next(block.code for block in all_blocks if block.language == "toml")
    (folder / "noise.toml").write_text(study.replace("100_000", "4_000\nselect_runs = 1_000"))


@pytest.mark.slow
def test_the_test_of_a_project_passes(tmp_path):
    save_files(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_study_runs_as_it_stands(tmp_path, monkeypatch):
    save_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["study", "noise.toml", "--quiet", "--html", "noise.html"]) == 1  # scale 0.5 violates the claim
    assert "<h1>1 of 3 refuted; none at scale 1, 2.</h1>" in (tmp_path / "noise.html").read_text()
