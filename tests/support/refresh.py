"""Write the real output of the documentation's examples into its pages: python tests/support/refresh.py [PAGE ...]

A ```text block that follows a ```python block shows what this Python block prints. A ```text block that follows a
```sh block with `python examples/NAME.py` shows the output of that script. All Python blocks of a page run in order in
one namespace, as a reader would paste them. Blocks with a comment before them (`pytest`, `needs: ...`, `not run: ...`)
are skipped. Without arguments every page with such a block is refreshed. With --check nothing is written, and a page
that would change is an error.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?:<!-- (?P<mark>.+?) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)```", re.DOTALL)
SCRIPT = re.compile(r"python (examples/\w+\.py)")


def outputs(text):
    """The printed text of each ```text block of a page that shows the output of an example, by its start position."""
    printed, results = None, {}
    scope = {"__name__": "page"}
    sys.path.insert(0, os.getcwd())  # as for a script in this folder
    for block in BLOCK.finditer(text):
        code, language = block["code"], block["language"]
        if language == "text":
            if printed is not None:
                results[block.start("code")] = printed
            printed = None
        elif language == "python" and not block["mark"]:
            with contextlib.redirect_stdout(io.StringIO()) as stdout:
                exec(code.replace('__name__ == "__main__"', "True"), scope)
            printed = stdout.getvalue()
        elif language == "sh" and (script := SCRIPT.search(code)):
            command = [sys.executable, PROJECT / script[1]]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        else:
            printed = None
    sys.path.pop(0)
    return results


def refreshed(text):
    """The text of a page with the real output of its examples."""
    pieces, end = [], 0
    for start, printed in outputs(text).items():
        stop = text.index("```", start)
        pieces += [text[end:start], printed.strip() + "\n"]
        end = stop
    return "".join([*pieces, text[end:]])


def main(names):
    check = "--check" in names
    names = [name for name in names if name != "--check"]
    pages = [Path(name).resolve() for name in names] or [PROJECT / "README.md", *sorted(PROJECT.glob("docs/*.md"))]
    for page in pages:
        text = page.read_text()
        if "```python" not in text or "```text" not in text:
            continue
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "examples").symlink_to(PROJECT / "examples")
            before = Path.cwd()
            os.chdir(folder)
            try:
                new = refreshed(text)
            finally:
                os.chdir(before)
        if not check:
            page.write_text(new)
        elif new != text:
            sys.exit(f"{page.relative_to(PROJECT)}: the examples print something else than the page shows")
        print("changed" if new != text else "unchanged", page.relative_to(PROJECT))


if __name__ == "__main__":
    main(sys.argv[1:])
