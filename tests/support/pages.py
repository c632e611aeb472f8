"""The examples of the documentation, as they stand on its pages."""

import contextlib
import io
import re
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import dpverify as dpv

PROJECT = Path(__file__).parents[2]
PAGES = sorted(PROJECT.glob("docs/*.md"))
FEW = {"select_runs": 1000, "test_runs": 4000}
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")


class Block(NamedTuple):
    """A fenced block, and what a comment before it says of it: `pytest`, `needs: PACKAGES`, `not run: WHY`."""

    mark: str
    language: str
    code: str


def blocks(page):
    found = re.findall(r"(?:<!-- (.+?) -->\n)?```(\w+)\n(.*?)```", page.read_text(), re.DOTALL)
    return [Block(*each) for each in found]


def python(page):
    """The blocks that run one after the other."""
    return [block.code for block in blocks(page) if block.language == "python" and not block.mark]


def shown(page):
    """What a page says that its examples print: all that stands after the first of them."""
    of_interest = [block for block in blocks(page) if block.language in ("python", "text")]
    start = next(place for place, block in enumerate(of_interest) if block.language == "python")
    return "".join(block.code for block in of_interest[start:] if block.language == "text")


def run(page, place, monkeypatch, short, fewer=("", "")):
    """The page's examples in an empty folder: what they left behind, and what they printed.

    Short: with few runs, and `fewer[1]` in the place of `fewer[0]`.
    """
    monkeypatch.chdir(place)
    monkeypatch.setitem(sys.modules, "page", type(sys)("page"))
    (place / "examples").symlink_to(PROJECT / "examples")
    codes = python(page)
    if short:
        for name in ("verify", "verify_pairs"):
            monkeypatch.setattr(dpv, name, partial(getattr(dpv, name), **FEW))
        codes = [code.replace(*fewer) for code in codes] if all(fewer) else codes
        codes = [re.sub(r"(runs=)([\d_]+)\b", lambda found: f"{found[1]}{int(found[2]) // 10}", code) for code in codes]
    scope = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for code in codes:
            exec(code.replace('__name__ == "__main__"', "True"), scope)
    return scope, out.getvalue()


def same(printed, expected):
    """The same words, and numbers within a few per cent: another processor may round differently and cut elsewhere."""
    assert NUMBER.sub("#", printed.strip()) == NUMBER.sub("#", expected.strip())
    for ours, theirs in zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=0.05) or float(theirs) < 1e-6
