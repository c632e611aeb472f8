"""Pins are names and versions, in order, and cover what is asked for; lower bounds are real ones."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT / "environments"))
from lowest import lowest  # noqa: E402

PINS = (PROJECT / "constraints.txt").read_text().splitlines()


def release(version):
    return [int(part) for part in re.match(r"[\d.]+", version)[0].strip(".").split(".")]


def test_pins_are_names_and_versions_in_order():
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line) for line in PINS)
    assert sorted(PINS, key=str.lower) == PINS


def test_everything_that_is_asked_for_is_pinned_above_its_lower_bound():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    pinned = {line.split("==")[0].lower(): line.split("==")[1] for line in PINS}
    for line in lines:
        if not line.startswith("dpverify["):
            name, least = line.split(">=")
            assert release(pinned[name.lower()]) >= release(least), name


def test_the_lowest_versions_are_exact():
    lines = lowest()
    assert {line.split("==")[0] for line in lines} >= {"numpy", "scipy", "jax", "matplotlib", "Jinja2", "pytest"}
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[\d.]+", line) for line in lines)
