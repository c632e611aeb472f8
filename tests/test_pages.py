"""The pages of the documentation: their examples run and print what is shown, and their links lead to files."""

import re
import sys

import pytest
from pages import PAGES, PROJECT, blocks, python, run, same, shown

# These pages have their own tests: test_recipes.py, test_studies_page.py, test_readme.py; the example of the index is
# the README's.
TESTED_ELSEWHERE = {"adapters", "studies", "index", "start"}
WITH_EXAMPLES = [page for page in PAGES if python(page) and page.stem not in TESTED_ELSEWHERE]
README = PROJECT / "README.md"
METHOD = PROJECT / "docs" / "method.md"
GENERATED = {"reference.md", "examples.md"}  # written by docs/site/build.py


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
    text = (PROJECT / "docs" / "tutorial.md").read_text()
    section = text[text.index("## 3. Read the report") : text.index("The witness shows the mistake.")]
    printed = text[: text.index("## 3. Read the report")].rsplit("```text", 1)[1]
    explained = set(re.findall(r"\d+\.\d+%?", section)) - {"6.5", "2.72"}  # the ratio of the shares, and e
    assert {"6.17%", "0.951%", "1.822"} <= explained
    assert explained <= set(re.findall(r"\d+\.\d+%?", printed))


def test_the_first_page_begins_like_the_readme():
    index = PROJECT / "docs" / "index.md"
    assert blocks(index)[:2] == blocks(README)[:2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_is_run_or_says_why_not(page):
    for block in blocks(page):
        assert not block.mark or re.match(r"pytest$|saved as \S|needs: \S|not run: \S", block.mark), block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (page.parent / target).exists() or target in GENERATED, target


def test_the_tests_that_the_method_names_exist():
    files = {path.name: path.read_text() for path in (PROJECT / "tests").rglob("test_*.py")}
    code = "\n".join(files.values())
    for name in re.findall(r"`(test_\w+)(?:\.\.\.)?`", METHOD.read_text()):
        assert f"def {name}" in code, name
    for name in re.findall(r"`(?:tests/(?:\w+/)?)?(test_\w+\.py)`", METHOD.read_text()):
        assert name in files, name


def test_the_modules_that_the_method_names_exist():
    modules = {path.name for path in (PROJECT / "src" / "dpverify").rglob("*.py")}
    for name in re.findall(r"`([a-z]\w+\.py)`", METHOD.read_text()):
        assert name in modules or name.startswith("test_"), name
