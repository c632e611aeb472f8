"""The documentation site: it has every public name, loads nothing from a network, and opens from disk."""

import inspect
import re
import subprocess
import sys
import time

import pytest
from pages import PROJECT

import dpverify
from dpverify.cli.commands import COMMANDS

SITE = PROJECT / "site"
sys.path[:0] = [str(PROJECT / "docs" / "site"), str(PROJECT / "tests" / "render")]

DOCSTRING = """Return a bound.

More about it.

Parameters
----------
counts : tuple of int
    The counts, first dataset first.
    A second line.
delta : float

Returns
-------
float
    The bound.

Examples
--------
>>> 1 + 1
2

Then another one.
"""
MARKDOWN = """Return a bound.

More about it.

**Parameters**

- `counts` (tuple of int): The counts, first dataset first.
    A second line.
- `delta` (float)

**Returns**

- `float`: The bound.

**Examples**

```pycon
>>> 1 + 1
2
```

Then another one."""


def test_reference_has_every_public_name_once():
    import reference

    listed = " ".join(reference.GROUPS.values()).split()
    assert sorted(listed) == sorted(name for name in dpverify.__all__ if not inspect.ismodule(getattr(dpverify, name)))
    pages = reference.pages()
    for name, module in reference.MODULES.items():
        page = pages[f"reference-{name.rpartition('.')[2]}.md"]
        assert all(f"\n### {member}\n" in page for member, _ in reference.public_members(module))
    assert " object at 0x" not in "".join(pages.values())


def test_every_command_has_its_help_and_every_status_its_meaning():
    import reference

    page = reference.pages()["commands.md"]
    assert all(f"\n## {command.name}\n" in page for command in COMMANDS)
    assert re.findall(r"^\| (\d) \|", page, re.MULTILINE) == ["2", "1", "3", "0"]


def test_every_public_method_has_a_docstring():
    import reference

    classes = [value for name in dpverify.__all__ if inspect.isclass(value := getattr(dpverify, name))]
    for kind in [*classes, *reference.REPORT_PARTS]:
        assert kind.__doc__, kind.__name__
        for name, item in reference.class_members(kind):
            function = reference.underlying_function(item)
            assert not inspect.isfunction(function) or function.__doc__, f"{kind.__name__}.{name}"


def test_numpydoc_sections_become_markdown():
    from docstrings import to_markdown

    assert to_markdown(DOCSTRING) == MARKDOWN


class Documented:
    """A class with two methods."""

    def first(self, x: int) -> int:
        """Return x.

        Parameters
        ----------
        x : int
            A number.
        """
        return x

    def second(self) -> None:
        """Do nothing."""


def test_methods_are_items_of_one_list():
    """A blank line ends the list of parameters, so that the next method is not an item of it."""
    import reference

    entry = reference.entry("Documented", Documented)
    assert "\n- `first(x: int) -> int`: Return x.\n\n    **Parameters**\n\n    - `x` (int): A number.\n\n" in entry
    assert "\n\n- `second()`: Do nothing.\n" in entry


def test_loaded_files_and_missing_targets_are_found(tmp_path):
    """Negative control of the check that every build makes."""
    from build import find_problems

    (tmp_path / "a.html").write_text("<p id=x><a href='b.html'>b</a><script src='https://c.example/d.js'></script>")
    (tmp_path / "e.html").write_text(
        "<a href='a.html#x'>x</a><a href='a.html#y'>y</a><a href='https://f.example'>f</a>"
    )
    assert sorted(find_problems(tmp_path)) == [
        "a.html links to b.html, which does not exist",
        "a.html loads https://c.example/d.js",
        "e.html links to a.html#y, which does not exist",
    ]


@pytest.fixture(scope="module")
def site():
    pytest.importorskip("zensical", reason="needs dpverify[docs]")
    subprocess.run([sys.executable, PROJECT / "docs" / "site" / "build.py"], check=True)
    return SITE


@pytest.mark.slow
def test_every_page_opens_from_disk_without_errors_and_the_search_works(site):
    from browser import CHROMIUM, Browser

    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with Browser() as browser:
        for page in sorted(set(site.rglob("*.html")) - {site / "404.html"}):
            for width, scheme in ((1280, "light"), (390, "dark")):
                browser.open(page, width, scheme)
                assert browser.problems == [], page.name
                assert all(url.startswith((site.as_uri(), "data:")) for url in browser.requests)
                assert browser.value("document.documentElement.scrollWidth") <= width, page.name
        browser.open(site / "index.html", 1280, "light")
        assert any("/workers/search" in url for url in requests_until(browser, "/workers/search"))
        assert browser.problems == []


def requests_until(browser, word, seconds=30.0):
    """Wait until the page has requested an address with this word; the search starts after the page has loaded."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not any(word in url for url in browser.requests):
        browser.value("0")
        time.sleep(0.1)
    return browser.requests
