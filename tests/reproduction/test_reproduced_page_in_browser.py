"""The page of the reproduction in headless Chromium: it fits both widths, and no two labels of a figure overlap."""

import sys

import pytest
from pages import PROJECT

sys.path.append(str(PROJECT / "tests" / "render"))
from browser import CHROMIUM, Browser
from test_browser import check_page

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]
# Pairs of texts in one figure whose boxes overlap by more than a pixel in both directions.
OVERLAPS = """(() => {
  const found = [];
  for (const figure of document.querySelectorAll("figure svg[role=img]")) {
    const texts = [...figure.querySelectorAll("text")].filter((t) => t.textContent.trim());
    const boxes = texts.map((t) => t.getBoundingClientRect());
    for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
      const [a, b] = [boxes[i], boxes[j]];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const along = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && along > 2)
        found.push(`${figure.querySelector("title").textContent}: ${texts[i].textContent} / ${texts[j].textContent}`);
    }
  }
  return found;
})()"""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_fits_and_labels_do_not_overlap(written, width, scheme):
    with Browser() as browser:
        check_page(browser, written / "index.html", width, scheme)
        assert browser.value("document.querySelectorAll('figure svg[role=img]').length") >= 7
        assert browser.value(OVERLAPS) == []


def test_overlapping_labels_are_noticed(tmp_path):
    """Negative control of the check above."""
    path = tmp_path / "page.html"
    path.write_text(
        "<figure><svg role=img width=200 height=50><title>t</title><text x=5 y=20>one</text>"
        "<text x=8 y=22>two</text></svg></figure>"
    )
    with Browser() as browser:
        browser.open(path, 390, "light")
        assert browser.value(OVERLAPS) == ["t: two / one"]
