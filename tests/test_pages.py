"""The pages of the documentation: their examples run and print what they show, their links lead somewhere."""

import re
import sys

import pytest
from pages import PAGES, PROJECT, blocks, python, run, same, shown

ELSEWHERE = {"adapters", "studies", "index"}  # test_recipes.py, test_studies_page.py; the last is the README's
WITH_EXAMPLES = [page for page in PAGES if python(page) and page.stem not in ELSEWHERE]
README = PROJECT / "README.md"
GENERATED = {"reference.md", "examples.md"}  # by docs/site


@pytest.mark.parametrize("short", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_the_examples_of_a_page(page, short, tmp_path, monkeypatch):
    scope, printed = run(page, tmp_path, monkeypatch, short)
    assert len(printed.splitlines()) == len(shown(page).splitlines())
    if not short:
        same(printed, shown(page))
        follow(page, scope, monkeypatch)


def follow(page, scope, monkeypatch):
    """The file that the tutorial's reader has in the end passes the test on the page."""
    monkeypatch.setitem(sys.modules, "mine", type(sys)("mine"))
    vars(sys.modules["mine"]).update(scope)
    for block in blocks(page):
        if block.mark == "pytest":
            tests = {}
            exec(block.code, tests)
            [test] = [value for name, value in tests.items() if name.startswith("test_")]
            test()


def test_the_first_page_begins_like_the_readme():
    index = PROJECT / "docs" / "index.md"
    assert blocks(index) == blocks(README)[:2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_is_run_or_says_why_not(page):
    for block in blocks(page):
        assert not block.mark or re.match(r"pytest$|needs: \S|not run: \S", block.mark), block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        assert (page.parent / target).exists() or target in GENERATED, target
