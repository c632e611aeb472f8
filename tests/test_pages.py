"""README and pages: their examples run and print what is shown, and their links lead to files."""

import re
import sys

import pytest
from pages import PAGES, PROJECT, blocks, python, run, same, shown
from refresh import outputs

# These pages have their own tests: test_recipes.py, test_studies_page.py; the example of the index is the README's.
TESTED_ELSEWHERE = {"adapters", "studies", "index"}
WITH_EXAMPLES = [page for page in PAGES if python(page) and page.stem not in TESTED_ELSEWHERE]
README = PROJECT / "README.md"
WITH_LINKS = [*PAGES, README, PROJECT / "CONTRIBUTING.md"]
MAX_README_WORDS = 500


@pytest.mark.parametrize("short", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_the_examples_of_a_page(page, short, tmp_path, monkeypatch):
    scope, printed = run(page, tmp_path, monkeypatch, short)
    assert len(printed.splitlines()) == len(shown(page).splitlines())
    if page.stem == "estimators":
        check_estimators(scope)
    if not short:
        same(printed, shown(page))
        run_pytest_block(page, scope, monkeypatch)


def check_estimators(scope):
    """The report of the private Kalman filter agrees with its closed form."""
    exact = scope["mechanism"].truth(scope["first"], scope["second"]).epsilon(0.01)
    assert scope["report"].epsilon_lower < exact < 1.0


def run_pytest_block(page, scope, monkeypatch):
    """Run the test that a page shows against the module `mine` that its reader has written by then."""
    monkeypatch.setitem(sys.modules, "mine", type(sys)("mine"))
    vars(sys.modules["mine"]).update(scope)
    for block in blocks(page):
        if block.mark == "pytest":
            tests = {}
            exec(block.code, tests)
            [test] = [value for name, value in tests.items() if name.startswith("test_")]
            test()


def test_the_tutorial_explains_the_numbers_that_it_shows():
    before, _, after = (PROJECT / "docs" / "tutorial.md").read_text().partition("## 2. Read the report")
    section = after.partition("The witness shows the mistake.")[0]
    explained = set(re.findall(r"\d+\.\d+%?", section)) - {"6.5", "2.72"}  # the ratio of the shares, and e
    assert {"6.17%", "0.951%", "1.822"} <= explained
    assert explained <= set(re.findall(r"\d+\.\d+%?", before))


def test_the_readme_is_short_and_begins_with_an_example_that_prints_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output = (block.code for block in blocks(README)[:2])
    assert code == (PROJECT / "examples" / "readme.py").read_text() == blocks(PROJECT / "docs" / "index.md")[1].code
    [printed] = outputs(README.read_text()).values()
    same(printed, output)
    assert len(re.sub("<[^>]*>", "", README.read_text()).split()) <= MAX_README_WORDS


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: page.stem)
def test_every_example_is_run_or_says_why_not_and_links_lead_to_files(page):
    for block in blocks(page):
        assert not block.mark or re.match(r"pytest$|needs: \S|not run: \S", block.mark), block
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        generated = target in ("commands.md", "glossary.md") or target.startswith("reference")
        assert (page.parent / target).exists() or generated, target
