"""The map holds: imports go downwards only, public names exist, the bare core needs NumPy and SciPy alone."""

import ast
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import dpverify as dpv

ROOT = Path(dpv.__file__).parent
PROJECT = ROOT.parent.parent

# A package may import packages of earlier lines, and itself.
PACKAGES = [
    {"errors", "version"},
    {"util"},
    {"settings"},
    {"mechanisms", "stats", "events"},
    {"claims"},
    {"adapters", "estimation", "sampling"},
    {"selection", "report"},
    {"render"},
    {"early"},
    {"pipeline"},
    {"studies"},
    {"over_time"},
    {"demo"},
    {"ci"},
    {"pytest_plugin"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]


def package(module):
    """The package of a dotted module name; a module of the top level is its own."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imported(path):
    """Every dpverify module that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dpverify":
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "dpverify")


def test_packages_import_one_way():
    level = {name: number for number, names in enumerate(PACKAGES) for name in names}
    for path in ROOT.rglob("*.py"):
        here = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for module in imported(path):
            target = package(module)
            if target != here:
                assert level[target] < level[here], f"{path.relative_to(ROOT)} imports {module}"


def test_public_names_exist_and_are_sorted():
    assert list(dpv.__all__) == sorted(dpv.__all__)
    for name in dpv.__all__:
        assert hasattr(dpv, name)


def test_importing_brings_no_optional_package():
    submodules = [f"scipy.{name}" for name in ("linalg", "optimize", "sparse", "special", "stats")]
    names = ("jax", "matplotlib", "jinja2", "rich", *submodules)
    code = f"import sys, dpverify; print([m for m in {names} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def imported_modules(code):
    """Return the modules that are imported after some code in a new process."""
    program = f"import dpverify\n{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_an_import_loads_only_what_a_verification_needs():
    slow = {"scipy.stats", "scipy.optimize", "scipy.special", "jax", "matplotlib", "xml.etree.ElementTree"}
    packages = {"dpverify.adapters", "dpverify.ci", "dpverify.studies", "dpverify.over_time", "dpverify.render"}
    assert not imported_modules("") & (slow | packages)
    later = imported_modules("dpverify.run_check\ndpverify.adapters\nimport scipy; scipy.special")
    assert later >= {"xml.etree.ElementTree", "dpverify.studies", "dpverify.adapters", "scipy.special"}


def test_estimators_are_imported_without_scipy_stats():
    assert "scipy.stats" not in imported_modules("import dpverify.estimation")


def test_names_that_are_imported_later_are_listed():
    assert set(dpv._IMPORTED_LATER) <= set(dpv.__all__)
    assert set(dpv.__all__) <= set(dir(dpv))
    with pytest.raises(AttributeError, match="no attribute 'verify_all'"):
        dpv.verify_all  # noqa: B018


@pytest.mark.slow
def test_the_bare_core_verifies_in_an_environment_of_its_own(tmp_path):
    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    constraints = PROJECT / "constraints.txt"
    install = [python, "-m", "pip", "install", "-q", "-c", constraints, PROJECT]
    subprocess.run(install, check=True, capture_output=True)
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], check=True, capture_output=True, text=True
    ).stdout
    installed = {line.split("==")[0].lower() for line in listed.split()}
    assert installed - {"pip", "setuptools"} == {"dpverify", "numpy", "scipy"}  # newer Pythons begin without setuptools
    code = (
        "import numpy as np, dpverify as dpv\n"
        "f = lambda data, runs, rng: data + rng.laplace(size=runs)\n"
        "print(dpv.verify(f, 0.0, 1.0, 0.5).verdict.name)"
    )
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "REFUTED"
