"""Pages in headless Chromium: no errors, no requests, accessibility, keyboard, slider, read-outs and print."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from streams import laplace_stream
from test_page import EVIL, REPORTS, ROWS

import dpverify as dpv
from dpverify import Report
from dpverify.render import Bounds, Cell, Column, Figures, Page, Section, Table, draw_bounds, heat_map, tradeoff

AXE = importlib.util.find_spec("axe_core_python")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or AXE is None, reason="needs Chromium and axe-core-python"),
]
SIZES = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
OPEN = "document.querySelectorAll('details').forEach((part) => { part.open = true; }); 0"
# What axe finds: contrast, names of controls and figures, headings, tables. It reads no colours inside a figure.
VIOLATIONS = "axe.run().then((found) => found.violations.map((one) => one.id + ': ' + one.nodes[0].html).join())"
# The smallest text of a figure on the screen, in pixels.
FONT_SIZE = """Math.min(...[...document.querySelectorAll("figure text")].map((e) =>
  parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.clientWidth
  / e.ownerSVGElement.viewBox.baseVal.width))"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as instance:
        yield instance


def violations(browser):
    browser.value((Path(AXE.submodule_search_locations[0]) / "axe.min.js").read_text() + "; 0")
    return browser.value(VIOLATIONS)


def check_page(browser, path, width, scheme):
    browser.open(path, width, scheme)
    browser.value(OPEN)
    assert browser.problems == []
    assert browser.requests == [path.resolve().as_uri()]
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert violations(browser) == ""
    if browser.value("document.querySelectorAll('figure text').length"):
        assert browser.value(FONT_SIZE) >= 11
    dark = browser.value("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 254)"
    assert dark == (scheme == "dark")
    wide = "[...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth)"
    assert browser.value(f"{wide}.every((e) => e.tabIndex === 0)")  # the keyboard scrolls it


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_opens_without_errors_and_its_slider_works(browser, name, tmp_path):
    report = REPORTS[name]()
    report.to_html(tmp_path / "live.html")
    report.to_json(tmp_path / "report.json")
    Report.from_json(tmp_path / "report.json").to_html(tmp_path / "again.html")
    for width, scheme in SIZES:
        check_page(browser, tmp_path / "live.html", width, scheme)
        if not report.voiding:
            assert browser.value("document.querySelector('.quote').textContent") == report.witness.text
            check_slider(browser)
    assert (tmp_path / "again.html").read_text() == (tmp_path / "live.html").read_text()


def check_slider(browser):
    """At both ends and in the middle the page shows the stored numbers, and the cursors move."""
    columns = json.loads(browser.value("document.getElementById('numbers').textContent"))["columns"]
    last = len(columns[0]) - 1
    cursors = set()
    for position in (0, last // 2, last):
        browser.value(f"slider.value = {position}; slider.dispatchEvent(new Event('input')); 0")
        for number, texts in enumerate(columns):
            assert browser.value(f"document.getElementById('value{number}').textContent") == texts[position]
        places = "[...document.querySelectorAll('.along .cursor')].map((c) => c.getAttribute('x1')).join()"
        cursors.add(browser.value(places))
    assert len(cursors) == 3


def press(browser, key, code):
    text = "\r" if key == "Enter" else ""
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)


def test_definitions_and_folded_parts_are_reached_by_keyboard(browser, tmp_path):
    REPORTS["line"]().to_html(tmp_path / "page.html")
    browser.open(tmp_path / "page.html", 390, "light")
    focused, seen = "document.activeElement.tagName + '.' + document.activeElement.className", []
    for _ in range(40):
        press(browser, "Tab", 9)
        seen.append(browser.value(focused))
        if seen[-1] == "A.term":
            break
    assert seen[-1] == "A.term", seen
    press(browser, "Enter", 13)
    assert browser.value("document.querySelector(':target').closest('details').open")  # the glossary has opened
    assert browser.value("document.querySelector(':target').getBoundingClientRect().top") < 900
    assert browser.value("document.querySelectorAll('summary').length") == 2
    summaries = "[...document.querySelectorAll('summary, a, button, input')].every((e) => e.tabIndex >= 0)"
    assert browser.value(summaries)


def test_the_value_under_the_pointer_is_read_out(browser, tmp_path):
    REPORTS["line"]().to_html(tmp_path / "page.html")
    browser.open(tmp_path / "page.html", 1280, "light")
    box = browser.value("JSON.stringify(document.querySelector('svg[data-readout]').getBoundingClientRect())")
    box, texts = json.loads(box), set()
    for share in (0.3, 0.6):
        x, y = box["left"] + share * box["width"], box["top"] + 0.5 * box["height"]
        browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        texts.add(browser.value("document.querySelector('.readout').textContent"))
    assert len(texts) == 2
    assert all("of the first" in text for text in texts)


def test_a_printed_page_shows_what_is_folded(browser, tmp_path):
    REPORTS["line"]().to_html(tmp_path / "page.html")
    browser.open(tmp_path / "page.html", 1280, "dark")
    browser.value("dispatchEvent(new Event('beforeprint')); 0")
    assert browser.value("[...document.querySelectorAll('details')].every((part) => part.open)")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 254)"
    browser.ask("Emulation.setEmulatedMedia", media="")


def many_page():
    columns = [Column("verdict"), *(Column(f"parameter {number}", True) for number in range(8))]
    row = [Cell("NO ANSWER", style="NO_ANSWER"), *["1.234"] * 8]
    bounds = draw_bounds([Bounds("a", 1.0, 2.0), Bounds("b", float("nan"), float("nan"))], "Bounds on ε", "", 0.5)
    return Page("None.", (Section("All", (Table(columns, [row], sortable=True), Figures([bounds]))),)).html()


def stream_page():
    streams = np.zeros((3, 1)), np.ones((3, 1))
    result = dpv.privacy_over_time(laplace_stream, *streams, epsilon=0.5, select_runs=1000, test_runs=4000)
    return result.page().html()


def records_page():
    pairs = dpv.neighbours.one_reading(np.zeros((14, 1)), 3.0, steps=[0, 5])
    return dpv.privacy_over_time(laplace_stream, pairs=pairs, select_runs=1000, test_runs=4000).page().html()


def figures_page():
    many = heat_map([EVIL, "b"], list("012"), np.array([[0.0, 1.0, 2.0], [np.nan] * 3]), "Map", claim=1.5)
    return Page(EVIL, (Section("Figures", (Figures([tradeoff(ROWS), many]),)),)).html()


@pytest.mark.parametrize("make", [many_page, stream_page, records_page, figures_page])
def test_other_pages_open_without_errors(browser, tmp_path, make):
    (tmp_path / "page.html").write_text(make())
    for width, scheme in SIZES:
        check_page(browser, tmp_path / "page.html", width, scheme)


def test_a_table_is_sorted_by_its_headings(browser, tmp_path):
    rows = [[Cell(str(x), sort=x)] for x in (2.0, 10.0, 1.0)]
    (tmp_path / "page.html").write_text(Page("T", (Table([Column("x", True)], rows, sortable=True),)).html())
    browser.open(tmp_path / "page.html", 1280, "light")
    cells = "[...document.querySelectorAll('td')].map((e) => e.textContent).join()"
    for expected in ("1.0,2.0,10.0", "10.0,2.0,1.0"):
        browser.value("document.querySelector('th button').click()")
        assert browser.value(cells) == expected


def test_errors_requests_and_pale_text_of_a_page_are_detected(browser, tmp_path):
    """Checks the checks: the tests above must not pass because the browser reports nothing."""
    (tmp_path / "loud.html").write_text(
        "<!DOCTYPE html><title>loud</title><body style='background: #fff'><p style='color: #aaa'>pale</p>"
        "<img src='missing.png'>"
        "<script>console.error('a'); nothing.here</script>"
    )
    browser.open(tmp_path / "loud.html", 390, "light")
    assert len(browser.problems) >= 2
    assert any(address.endswith("missing.png") for address in browser.requests)
    assert {"color-contrast", "image-alt"} <= {word.split(":")[0] for word in violations(browser).split(",")}
