"""The lowest versions that pyproject.toml allows, as pip takes them (`make lowest`): the core, estimation and report.

And of what the tests need, the runner alone: oracles and other extras stay away.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent
RUNNER = ("pytest", "hypothesis", "pytest-xdist")


def lowest() -> list[str]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["estimation"], *extras["report"]]
    wanted += [line for line in extras["test"] if re.split(r"[\[>]", line)[0] in RUNNER]
    return [re.sub(r"^([\w.-]+)>=([\d.]+)$", r"\1==\2", line) for line in wanted]


if __name__ == "__main__":
    print("\n".join(lowest()))
