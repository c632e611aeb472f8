"""Prints the lowest versions that pyproject.toml allows, in the form that pip reads (`make lowest`).

The list covers the core, `estimation` and `report`. Of the test requirements it has only what the tests of the core
import, without the packages that serve as oracles.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent
NEEDED_BY_TESTS = ("pytest", "hypothesis", "pytest-xdist", "jsonschema")


def lowest_versions() -> list[str]:
    """Return a line name==version for each requirement, with its lower bound as the version."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["estimation"], *extras["report"]]
    requirements += [line for line in extras["test"] if re.split(r"[\[>]", line)[0] in NEEDED_BY_TESTS]
    return [re.sub(r"^([\w.-]+)>=([\d.]+)$", r"\1==\2", line) for line in requirements]


if __name__ == "__main__":
    print("\n".join(lowest_versions()))
