"""The README's first example is run, and prints what the README shows."""

import re
import subprocess
import sys

from pages import PROJECT, same


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)


def test_the_first_example_prints_what_is_shown():
    code = blocks("python")[0]
    assert code.strip() == (PROJECT / "examples" / "readme.py").read_text().strip()
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    same(done.stdout, blocks("text")[0])


def test_links_and_figures_exist():
    for target in re.findall(r"\]\(([^)]+)\)", (PROJECT / "README.md").read_text()):
        assert (PROJECT / target).exists(), target


def test_the_estimators_of_the_readme_run():
    """Both blocks, one after the other, with a tenth of the runs."""
    one, two = (code for code in blocks("python") if "dpverify.estimation" in code)
    small = ", select_runs=8192, test_runs=16384)"
    scope = {}
    exec(one.replace("error=dpv.rmse(truth))", "error=dpv.rmse(truth)" + small), scope)
    assert scope["report"].error is not None
    exec(two.replace("delta=0.01)\nprint", "delta=0.01" + small + "\nprint"), scope)
    exact = scope["mechanism"].truth(scope["first"], scope["second"]).epsilon(0.01)
    assert scope["report"].epsilon_lower < exact < 1.0
