"""The recipes of docs/adapters.md, as they stand there; those with heavy packages in environments of their own."""

import re
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path

import pytest

import dpverify as dpv

PROJECT = Path(__file__).parent.parent.parent
PAGE = (PROJECT / "docs" / "adapters.md").read_text()
# (what it needs, packages, code)
RECIPES = re.findall(r"(?:<!-- (\S+) ?(.*?) -->\n)?```python\n(.*?)```", PAGE, re.DOTALL)


def recipes(word, without=()):
    return [
        pytest.param(code, id=f"recipe {place}")
        for place, (kind, _, code) in enumerate(RECIPES)
        if kind == word and not any(name in code for name in without)
    ]


def said(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


STAND = {"opendp": "NOT REFUTED", "diffprivlib": "NOT REFUTED", "casadi": "BOUNDED"}  # the other claims are false


def judged(out, code):
    assert "proved    epsilon >= " in out
    verdict = next((verdict for name, verdict in STAND.items() if name in code), "REFUTED")
    assert f": {verdict}\n" in out
    assert "half of it: REFUTED" in out or "half of it" not in code


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", recipes("", without=("opendp", "program")))  # these have tests of their own
def test_what_this_environment_has(code, tmp_path, monkeypatch, capsys):
    """With a tenth of the runs, unless the recipe names its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dpv, "verify", partial(dpv.verify, select_runs=5000, test_runs=20_000))
    exec(code, {})
    judged(capsys.readouterr().out, code)


@pytest.mark.slow
@pytest.mark.parametrize("code", recipes(""))
def test_what_this_environment_has_as_it_stands(code, tmp_path):
    judged(said(subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)), code)


@pytest.mark.parametrize("code", recipes("pytest"))
def test_a_projects_own_tests(code):
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
def test_what_needs_an_environment_of_its_own(packages, code, tmp_path):
    venv.create(tmp_path / "own", with_pip=True)
    python = tmp_path / "own" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", PROJECT, *packages]
    said(subprocess.run(install, capture_output=True, text=True))
    out = said(subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True))
    print(out)
    judged(out, code)


def test_links_exist():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE):
        assert (PROJECT / "docs" / target).exists(), target
