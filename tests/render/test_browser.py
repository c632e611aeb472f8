"""The page in headless Chromium, where it is installed: quiet, alone, legible in light and dark, the slider works."""

import json

import pytest
from browser import CHROMIUM, Browser
from test_page import EVIL, REPORTS, ROWS

from dpverify import Report
from dpverify.render.figures import privacy_map
from dpverify.render.page import comparison

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
SIZES = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
# The least contrast of any text with what is behind it, by the accessibility guidelines' formula.
CONTRAST = """(() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return Math.min(...[...document.querySelectorAll("h1, h2, h3, p, th, td, dt, dd, li, figcaption, text, .words *")]
    .map((e) => light(getComputedStyle(e)[e.tagName === "text" ? "fill" : "color"]))
    .map((ink) => (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05)));
})()"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as one:
        yield one


@pytest.fixture(scope="module", params=REPORTS)
def pages(request, tmp_path_factory):
    """A report's page, live and by way of JSON."""
    place, report = tmp_path_factory.mktemp("pages"), REPORTS[request.param]()
    report.to_html(place / "live.html")
    report.to_json(place / "report.json")
    Report.from_json(place / "report.json").to_html(place / "again.html")
    return report, (place / "live.html", place / "again.html")


def look(browser, path, width, scheme):
    browser.open(path, width, scheme)
    assert browser.complaints == []
    assert browser.requests == [path.resolve().as_uri()]
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(CONTRAST) >= 4.5
    dark = browser.value("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 254)"
    assert dark == (scheme == "dark")


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_page_opens_quietly_and_reads_off(browser, pages, width, scheme):
    report, both = pages
    for path in both:
        look(browser, path, width, scheme)
        assert browser.value("document.querySelectorAll('figure svg[role=img] > title').length") >= 3
        assert browser.value("[...document.querySelectorAll('figure svg[role=img]')].every(s => s.clientWidth > 250)")
        assert browser.value("document.querySelector('strong').textContent") == report.name
        assert browser.value("document.querySelector('.quote').textContent") == report.witness.text
        slide(browser)


def slide(browser):
    """Both ends and the middle: every read-out is the number that is embedded, and the cursors move."""
    numbers = json.loads(browser.value("document.getElementById('numbers').textContent"))
    last = len(numbers["epsilon"]) - 1
    seen = set()
    for at in (0, last // 2, last):
        browser.value(f"slider.value = {at}; slider.dispatchEvent(new Event('input')); 0")
        shown = {
            name: browser.value(f"document.getElementById('{name}').textContent")
            for name in ("at", "p-first", "p-second", "delta-lower", "delta-upper", "outcome")
        }
        assert float(shown["at"]) == numbers["epsilon"][at]
        columns = {"p-first": "first", "p-second": "second", "delta-lower": "lower", "delta-upper": "upper"}
        for name, column in columns.items():
            assert float(shown[name].lstrip("≤≥ ")) == numbers[column][at]
        p = numbers["first" if numbers["direction"] == 1 else "second"][at]
        assert ("not be refuted" not in shown["outcome"]) == (p <= numbers["alpha"])
        seen.add(browser.value("[...document.querySelectorAll('.cursor')].map(c => c.getAttribute('x1')).join()"))
    assert len(seen) == 3


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_comparison_opens_quietly(browser, tmp_path, width, scheme):
    chart = privacy_map([[0, 0], [1, 1]], [1.0, 2.0], names=[EVIL, "b"])
    (tmp_path / "page.html").write_text(comparison(ROWS, title=EVIL, drawings=[chart]))
    look(browser, tmp_path / "page.html", width, scheme)
    assert browser.value("document.querySelector('h1').textContent") == EVIL


def test_the_browser_hears_a_page_that_is_not_quiet(browser, tmp_path):
    """Without this the tests above could pass deaf."""
    (tmp_path / "loud.html").write_text(
        "<title>loud</title><body><img src='missing.png'><script>console.error('a'); nothing.here</script>"
    )
    browser.open(tmp_path / "loud.html", 390, "light")
    assert len(browser.complaints) >= 2
    assert any(address.endswith("missing.png") for address in browser.requests)
