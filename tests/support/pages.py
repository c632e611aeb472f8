"""The examples of the documentation: finding the fenced blocks of a page, running them, comparing their output."""

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import dpverify as dpv

PROJECT = Path(__file__).parents[2]
PAGES = sorted(PROJECT.glob("docs/*.md"))
FEW_RUNS = {"select_runs": 1000, "test_runs": 4000}
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")


class Block(NamedTuple):
    """A fenced block, and the comment before it: `pytest`, `needs: PACKAGES` or `not run: REASON`."""

    mark: str
    language: str
    code: str


def blocks(page):
    """Return all fenced blocks of a page that have a language."""
    matches = re.findall(r"(?:<!-- (.+?) -->\n)?```(\w+)\n(.*?)```", page.read_text(), re.DOTALL)
    return [Block(*match) for match in matches]


def python(page):
    """Return the Python blocks that run in order in one session."""
    return [block.code for block in blocks(page) if block.language == "python" and not block.mark]


def shown(page):
    """Return the output that a page shows: all text blocks after the first Python block."""
    relevant = [block for block in blocks(page) if block.language in ("python", "text")]
    start = next(index for index, block in enumerate(relevant) if block.language == "python")
    return "".join(block.code for block in relevant[start:] if block.language == "text")


def with_few_runs(function):
    """Return the function with few runs, whatever number the caller asks for.

    A mechanism that states its block size gets smaller blocks, because it would draw many more runs than these.
    """

    def call(mechanism, *args, **options):
        block = {"block": FEW_RUNS["select_runs"]} if hasattr(mechanism, "block") else {}
        return function(mechanism, *args, **{**options, **FEW_RUNS, **block})

    return call


def run(page, folder, monkeypatch, short, fewer=("", "")):
    """Run the examples of a page in an empty folder; return their namespace and their output.

    With `short`, verifications have few runs, and `fewer[0]` is replaced by `fewer[1]` in the code.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "page", type(sys)("page"))
    (folder / "examples").symlink_to(PROJECT / "examples")
    codes = python(page)
    if short:
        for name in ("verify", "verify_pairs", "privacy_over_time"):
            monkeypatch.setattr(dpv, name, with_few_runs(getattr(dpv, name)))
        if all(fewer):
            codes = [code.replace(*fewer) for code in codes]
        codes = [re.sub(r"(runs=)([\d_]+)\b", lambda match: f"{match[1]}{int(match[2]) // 10}", code) for code in codes]
    scope = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()) as output:
        for code in codes:
            exec(code.replace('__name__ == "__main__"', "True"), scope)
    return scope, output.getvalue()


def same(printed, expected):
    """Assert that two outputs have the same words, and numbers that agree within five per cent.

    Another processor may round differently, so that thresholds and counts differ a little.
    """
    assert NUMBER.sub("#", printed.strip()) == NUMBER.sub("#", expected.strip())
    for ours, theirs in zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=0.05) or float(theirs) < 1e-6
