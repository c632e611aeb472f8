"""The pins of constraints.txt, made anew: what pip would install today for all extras (`make pins`).

Names and versions alone: where they came from is no part of the project. `--check` resolves under the pins as they are,
writes nothing, and says what is missing or too much.
"""

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent
PINS = PROJECT / "constraints.txt"
OURS = ("dpverify", "pip", "setuptools")  # what is pinned, and what every environment begins with


def resolve(*options: str) -> list[str]:
    """name==version of everything that the development environment needs, as pip settles it without installing."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    done = subprocess.run([*command, *options, f"{PROJECT}[dev]"], check=True, stdout=subprocess.PIPE, text=True)
    found = [item["metadata"] for item in json.loads(done.stdout)["install"]]
    return sorted((f"{one['name']}=={one['version']}" for one in found if one["name"] not in OURS), key=str.lower)


def main(check: bool) -> int:
    before = PINS.read_text().split()
    after = resolve("--constraint", str(PINS)) if check else resolve()
    for sign, lines in (("-", before), ("+", after)):
        for line in sorted(set(lines) - set(after if sign == "-" else before), key=str.lower):
            print(sign, line)
    if not check:
        PINS.write_text("\n".join(after) + "\n")
    return int(check and before != after)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
