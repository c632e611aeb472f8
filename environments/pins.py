"""Writes the pins of constraints.txt: the versions that pip would install today for all extras (`make pins`).

A pin is a name and a version, without the address it is downloaded from. With `--check`, pip resolves under the present
pins; nothing is written, and missing or superfluous pins are printed.
"""

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent
PINS = PROJECT / "constraints.txt"
NOT_PINNED = ("dpverify", "pip", "setuptools")  # the project itself, and what every environment starts with


def resolve(*options: str) -> list[str]:
    """Return name==version of every package that pip would install for the development environment."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    result = subprocess.run([*command, *options, f"{PROJECT}[dev]"], check=True, stdout=subprocess.PIPE, text=True)
    packages = [item["metadata"] for item in json.loads(result.stdout)["install"]]
    lines = [f"{package['name']}=={package['version']}" for package in packages if package["name"] not in NOT_PINNED]
    return sorted(lines, key=str.lower)


def main(check: bool) -> int:
    """Print the differences to the present pins; write the new pins unless `check`. Return the exit status."""
    before = PINS.read_text().split()
    after = resolve("--constraint", str(PINS)) if check else resolve()
    for line in sorted(set(before) - set(after), key=str.lower):
        print("-", line)
    for line in sorted(set(after) - set(before), key=str.lower):
        print("+", line)
    if not check:
        PINS.write_text("\n".join(after) + "\n")
    return int(check and before != after)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
