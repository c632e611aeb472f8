"""Pins are sorted names and versions that satisfy the requirements; the lowest versions are exact."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT / "environments"))
from lowest import lowest_versions  # noqa: E402

PINS = (PROJECT / "constraints.txt").read_text().splitlines()


def release(version):
    """Return the numbers of a version."""
    return [int(part) for part in re.match(r"[\d.]+", version)[0].strip(".").split(".")]


def test_pins_are_names_and_versions_in_order():
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line) for line in PINS)
    assert sorted(PINS, key=str.lower) == PINS


def test_every_requirement_is_pinned_at_or_above_its_lower_bound():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    pinned = {line.split("==")[0].lower(): line.split("==")[1] for line in PINS}
    for line in lines:
        if not line.startswith("dpverify["):
            name, lower_bound = line.split(">=")
            assert release(pinned[name.lower()]) >= release(lower_bound), name


def test_the_lowest_versions_are_exact():
    lines = lowest_versions()
    assert {line.split("==")[0] for line in lines} >= {"numpy", "scipy", "jax", "matplotlib", "MarkupSafe", "pytest"}
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[\d.]+", line) for line in lines)
