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

# From the ground up: a module may import modules of earlier lines only.
FLOORS = [
    {"errors", "arrays", "serial", "progress", "tails"},
    {"counts"},
    {"ellipsoid", "buehler", "settings", "store", "totals", "loading"},
    {"mechanism", "exact", "region", "workers", "tables"},
    {"sampling", "partition", "power", "unions"},
    {"scores"},
    {"selection", "learning"},
    {"trees"},
    {"contest", "words"},
    {"statements"},
    {"soundness"},
    {"report", "assemble"},
    {"start"},
    {"verify"},
    {"boxes", "plans"},
    {"assertion", "demo", "pairs", "tune", "study"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
ESTIMATION = [
    {"laws", "intervals", "gibbs", "small"},
    {"system"},
    {"blocks", "bounds", "cells", "horizon"},
    {"near", "faithful", "kalman", "particle"},
    {"mhe", "perturb"},
    {"theory"},
    {"demo", "__init__"},
]
ADAPTERS = [{"process", "python"}, {"program"}, {"__init__"}]
RENDER = [{"__init__", "style", "sections"}, {"numbers", "scene"}, {"planes"}, {"estimates", "figures"}, {"page"}]
PAPER = [
    {"__init__", "plan", "claims", "setting"},
    {"tuning", "draws", "compare"},
    {"figures", "remarks"},
    {"texts"},
    {"publish"},
    {"reproduce"},
]
GROUND = {"errors", "arrays", "mechanism"}  # all of the core that the estimators stand on; their demo verifies one
BELOW_RENDER = set().union(*FLOORS[: FLOORS.index({"report", "assemble"}) + 1])
LATE = {
    ("assemble", "__init__"),
    ("report", "render"),
    ("tables", "render"),
}  # the version, read when a report is made; a page, when asked


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dpverify":
            parts = node.module.split(".")
            if len(parts) > 1:
                yield parts[1]
            else:
                for alias in node.names:
                    yield alias.name if (ROOT / f"{alias.name}.py").exists() else "__init__"


def levels(floors, room):
    level = {name: floor for floor, names in enumerate(floors) for name in names}
    assert {path.stem for path in room.glob("*.py")} == set(level), "a module is missing from the map"
    return level


def test_imports_go_downwards():
    level = levels(FLOORS, ROOT)
    for path in ROOT.glob("*.py"):
        for target in imports(path):
            if (path.stem, target) in LATE:
                continue
            if target in level:
                assert level[target] < level[path.stem], f"{path.stem} imports {target}"
            else:
                allowed = path.stem == "demo" or (path.stem, target) in {("__init__", "adapters"), ("cli", "paper")}
                assert allowed, f"{path.stem} imports the room {target}"


@pytest.mark.parametrize(("name", "floors"), [("estimation", ESTIMATION), ("adapters", ADAPTERS), ("render", RENDER)])
def test_rooms_stand_on_the_ground_of_the_core(name, floors):
    room = ROOT / name
    level = levels(floors, room)
    for path in room.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dpverify."):
                parts = node.module.split(".")[1:]
                if parts[0] == name:
                    assert level[parts[1]] < level[path.stem], f"{path.stem} imports {parts[1]}"
                else:
                    below = BELOW_RENDER if name == "render" else GROUND
                    assert parts[0] in below or path.stem == "demo", f"{path.stem} imports {parts[0]}"


def test_the_paper_stands_on_everything_else_and_on_itself_downwards():
    room = ROOT / "paper"
    level = levels(PAPER, room)
    for path in room.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpverify.paper"):
                parts = node.module.split(".")[2:]
                for name in parts or [alias.name for alias in node.names]:
                    assert level[name] < level[path.stem], f"{path.stem} imports {name}"


def test_public_names_exist_and_are_sorted():
    assert list(dpv.__all__) == sorted(dpv.__all__)
    for name in dpv.__all__:
        assert hasattr(dpv, name)


def test_no_room_is_crowded():
    for path in ROOT.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 350, path.name


def test_importing_brings_no_optional_package():
    code = "import sys, dpverify; print([m for m in ('jax', 'matplotlib', 'jinja2', 'rich') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


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
