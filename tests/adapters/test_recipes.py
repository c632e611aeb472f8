"""The recipes of docs/adapters.md and docs/checks.md. Those with large packages run in separate environments."""

import re
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path

import pytest

import dpverify as dpv

PROJECT = Path(__file__).parent.parent.parent
PAGES = (PROJECT / "docs" / name for name in ("adapters.md", "checks.md"))
# (requirement, packages, code)
RECIPES = [
    (kind, packages, code.replace('__name__ == "__main__"', "True"))
    for page in PAGES
    for kind, packages, code in re.findall(
        r"(?:<!-- (\S+) ?([^\n]*?) ?-->\n)?```python\n(.*?)```", page.read_text(), re.DOTALL
    )
]


def recipes(word, without=()):
    return [
        pytest.param(code, id=f"recipe {place}")
        for place, (kind, _, code) in enumerate(RECIPES)
        if kind == word and not any(name in code for name in without)
    ]


def output_of(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


VERDICTS = {"opendp": "NOT REFUTED", "diffprivlib": "NOT REFUTED", "casadi": "NOT REFUTED"}  # others are refuted


def check_verdict(out, code):
    assert "proved    epsilon >= " in out
    verdict = next((verdict for name, verdict in VERDICTS.items() if name in code), "REFUTED")
    assert f": {verdict}\n" in out
    assert "half of it: REFUTED" in out or "half of it" not in code


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", recipes("", without=("opendp", "program")))  # tested elsewhere
def test_recipes_of_this_environment(code, tmp_path, monkeypatch, capsys):
    """A tenth of the default runs is used, unless the recipe states a number."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dpv, "verify", partial(dpv.verify, select_runs=5000, test_runs=20_000))
    exec(code, {})
    check_verdict(capsys.readouterr().out, code)


@pytest.mark.slow
@pytest.mark.parametrize("code", recipes(""))
def test_recipes_of_this_environment_with_all_runs(code, tmp_path):
    check_verdict(
        output_of(subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)), code
    )


@pytest.mark.parametrize("code", recipes("pytest"))
def test_the_recipe_for_tests_of_a_project(code):
    scope = {}
    exec(code, scope)
    tests = [value for name, value in scope.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packages", "code"),
    [pytest.param(names.split(), code, id=names.split()[0]) for kind, names, code in RECIPES if kind == "needs:"],
)
def test_recipes_that_need_a_separate_environment(packages, code, tmp_path):
    venv.create(tmp_path / "own", with_pip=True)
    python = tmp_path / "own" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", PROJECT, *packages]
    output_of(subprocess.run(install, capture_output=True, text=True))
    out = output_of(subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True))
    print(out)
    check_verdict(out, code)
