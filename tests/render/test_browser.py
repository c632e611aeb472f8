"""Pages in headless Chromium: no errors, no requests, sufficient contrast in light and dark, a working slider."""

import json

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from streams import laplace_stream
from test_page import EVIL, REPORTS, ROWS

import dpverify as dpv
from dpverify import Report
from dpverify.over_time import curve_page
from dpverify.render.bounds import Bounds, draw_bounds
from dpverify.render.figures import privacy_map
from dpverify.render.page import comparison, report_page
from dpverify.render.results import Cell, Column, ResultsContent, results_page
from dpverify.report.page import page_content

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
SIZES = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
# The smallest contrast between any text and the background, by the formula of WCAG.
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
    with Browser() as instance:
        yield instance


@pytest.fixture(scope="module", params=REPORTS)
def pages(request, tmp_path_factory):
    """Return a report and two pages of it: directly, and from its JSON file."""
    folder, report = tmp_path_factory.mktemp("pages"), REPORTS[request.param]()
    report.to_html(folder / "live.html")
    report.to_json(folder / "report.json")
    Report.from_json(folder / "report.json").to_html(folder / "again.html")
    return report, (folder / "live.html", folder / "again.html")


def check_page(browser, path, width, scheme):
    browser.open(path, width, scheme)
    assert browser.problems == []
    assert browser.requests == [path.resolve().as_uri()]
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(CONTRAST) >= 4.5
    dark = browser.value("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 254)"
    assert dark == (scheme == "dark")


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_page_opens_without_errors_and_its_slider_works(browser, pages, width, scheme):
    report, both = pages
    for path in both:
        check_page(browser, path, width, scheme)
        assert browser.value("document.querySelectorAll('figure svg[role=img] > title').length") >= 3
        assert browser.value("[...document.querySelectorAll('figure svg[role=img]')].every(s => s.clientWidth > 250)")
        assert browser.value("document.querySelector('strong').textContent") == report.name
        assert browser.value("document.querySelector('.quote').textContent") == report.witness.text
        check_slider(browser)


def check_slider(browser):
    """At both ends and in the middle the page shows the stored numbers, and the cursors move."""
    numbers = json.loads(browser.value("document.getElementById('numbers').textContent"))
    last = len(numbers["epsilon"]) - 1
    cursor_positions = set()
    for position in (0, last // 2, last):
        browser.value(f"slider.value = {position}; slider.dispatchEvent(new Event('input')); 0")
        shown = {
            name: browser.value(f"document.getElementById('{name}').textContent")
            for name in ("at", "p-first", "p-second", "delta-lower", "delta-upper", "outcome")
        }
        assert float(shown["at"]) == numbers["epsilon"][position]
        for name in ("p-first", "p-second", "delta-lower", "delta-upper"):
            column = name.replace("-", "_")
            assert float(shown[name].lstrip("≤≥ ")) == numbers[column][position]
        p_values = numbers["p_first"][position], numbers["p_second"][position]
        tested = min(p_values)
        assert ("not be refuted" not in shown["outcome"]) == (tested <= numbers["alpha"])
        crossed = numbers["delta_lower"][position] > numbers["delta_upper"][position]
        assert browser.value("getComputedStyle(document.getElementById('crossed')).display !== 'none'") == crossed
        cursor_positions.add(
            browser.value("[...document.querySelectorAll('.cursor')].map(c => c.getAttribute('x1')).join()")
        )
    assert len(cursor_positions) == 3


def test_crossed_bounds_are_explained_where_the_slider_shows_them(browser, tmp_path):
    content = page_content(REPORTS["line"]())
    found = content.findings
    slider = found.slider
    crossed = slider._replace(delta_lower=[0.9999, *slider.delta_lower[1:]], delta_upper=[0.5, *slider.delta_upper[1:]])
    (tmp_path / "page.html").write_text(report_page(content._replace(findings=found._replace(slider=crossed))))
    browser.open(tmp_path / "page.html", 1280, "light")
    check_slider(browser)


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_comparison_opens_without_errors(browser, tmp_path, width, scheme):
    chart = privacy_map([[0, 0], [1, 1]], [1.0, 2.0], names=[EVIL, "b"])
    (tmp_path / "page.html").write_text(comparison(ROWS, title=EVIL, drawings=[chart]))
    check_page(browser, tmp_path / "page.html", width, scheme)
    assert browser.value("document.querySelector('h1').textContent") == EVIL


def study_page():
    columns = [Column("verdict"), *(Column(f"parameter {number}", True) for number in range(8))]
    columns.append(Column("ε at most (over the cells)", True))
    row = tuple(Cell("NOT REFUTED", "0") for _ in columns)
    content = ResultsContent("a study", "over", "NOT_REFUTED", "NOT REFUTED", "None.", (), tuple(columns), (row,))
    return results_page(content, [draw_bounds([Bounds("a", 1.0, 2.0)], "Bounds on ε", "", 1.5)])


def stream_page():
    streams = np.zeros((3, 1)), np.ones((3, 1))
    return curve_page(dpv.privacy_over_time(laplace_stream, *streams, select_runs=1000, test_runs=4000))


@pytest.mark.parametrize("make", [study_page, stream_page])
@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_single_figure_has_its_legend_beside_it_on_a_wide_screen(browser, tmp_path, make, width, scheme):
    (tmp_path / "page.html").write_text(make())
    check_page(browser, tmp_path / "page.html", width, scheme)
    picture, legend = (
        json.loads(browser.value(f"JSON.stringify(document.querySelector('{name}').getBoundingClientRect())"))
        for name in ("figure > svg", "figure > .keys")
    )
    if width == 1280:
        assert legend["left"] > picture["right"]
        assert legend["right"] > 1100
        assert picture["width"] > 550
    else:
        assert legend["bottom"] <= picture["top"]
        assert picture["width"] > 350


def test_a_table_of_answers_has_headings_of_one_line_on_a_phone(browser, tmp_path):
    """A heading of many lines that is scrolled out of sight would leave a gap above the visible ones."""
    (tmp_path / "page.html").write_text(study_page())
    browser.open(tmp_path / "page.html", 390, "light")
    assert browser.value("document.querySelector('.answers thead').clientHeight") < 45


def test_errors_and_requests_of_a_page_are_detected(browser, tmp_path):
    """Checks the checks: the tests above must not pass because the browser reports nothing."""
    (tmp_path / "loud.html").write_text(
        "<title>loud</title><body><img src='missing.png'><script>console.error('a'); nothing.here</script>"
    )
    browser.open(tmp_path / "loud.html", 390, "light")
    assert len(browser.problems) >= 2
    assert any(address.endswith("missing.png") for address in browser.requests)
