"""The README: its Python blocks run in order in one empty session and print what is shown; its links lead to files."""

import re

from pages import PROJECT, blocks, same
from refresh import outputs

README = PROJECT / "README.md"


def test_the_first_block_is_the_example_file():
    code = next(block.code for block in blocks(README) if block.language == "python")
    assert code == (PROJECT / "examples" / "readme.py").read_text()


def test_all_python_blocks_run_in_order_and_print_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = README.read_text()
    shown = [block.code for block in blocks(README) if block.language == "text"]
    printed = outputs(text)
    assert len(printed) == len(shown), "every text block follows the Python block that prints it"
    for output, expected in zip(printed.values(), shown, strict=True):
        same(output, expected)


def test_links_and_figures_exist():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", README.read_text()):
        assert (PROJECT / target).exists(), target
