"""The documentation as a site: it has every public name, needs no network, and opens in a browser from disk."""

import inspect
import subprocess
import sys
import time

import pytest
from pages import PROJECT

import dpverify

SITE = PROJECT / "site"
sys.path[:0] = [str(PROJECT / "docs" / "site"), str(PROJECT / "tests" / "render")]


def test_the_reference_has_every_public_name_once():
    import reference

    listed = " ".join(reference.GROUPS.values()).split()
    assert sorted(listed) == sorted(dpverify.__all__)
    page = reference.page()
    assert all(f"\n### {name}\n" in page for room in reference.PLACES.values() for name, _ in reference.public(room))
    assert " object at 0x" not in page


def test_every_method_that_is_offered_says_what_it_does():
    import reference

    classes = [value for name in dpverify.__all__ if inspect.isclass(value := getattr(dpverify, name))]
    for kind in [*classes, *reference.PARTS]:
        assert kind.__doc__, kind.__name__
        for name, item in reference.members(kind):
            plain = getattr(item, "fget", None) or getattr(item, "func", None) or getattr(item, "__func__", item)
            assert not inspect.isfunction(plain) or plain.__doc__, f"{kind.__name__}.{name}"


def test_what_is_fetched_or_missing_is_found(tmp_path):
    """Negative control of the check that every build makes."""
    from build import problems

    (tmp_path / "a.html").write_text("<p id=x><a href='b.html'>b</a><script src='https://c.example/d.js'></script>")
    (tmp_path / "e.html").write_text(
        "<a href='a.html#x'>x</a><a href='a.html#y'>y</a><a href='https://f.example'>f</a>"
    )
    assert sorted(problems(tmp_path)) == [
        "a.html fetches https://c.example/d.js",
        "a.html links to b.html, which is not there",
        "e.html links to a.html#y, which is not there",
    ]


@pytest.fixture(scope="module")
def site():
    pytest.importorskip("zensical", reason="needs dpverify[docs]")
    subprocess.run([sys.executable, PROJECT / "docs" / "site" / "build.py"], check=True)
    return SITE


@pytest.mark.slow
def test_every_page_opens_quietly_from_disk_and_the_search_works(site):
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
        assert any("/workers/search" in url for url in wait(browser, "/workers/search"))
        assert browser.problems == []


def wait(browser, word, seconds=30.0):
    """The search sets out when the page has settled: by way of our stand-in for a worker."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not any(word in url for url in browser.requests):
        browser.value("0")
        time.sleep(0.1)
    return browser.requests
