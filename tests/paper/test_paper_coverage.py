"""The coverage table names every numbered item of the paper, and only names that exist."""

import importlib
import re
from operator import attrgetter

import pytest
from pages import PROJECT

from dpverify.paper.coverage import coverage_page, read_coverage

COVERAGE = read_coverage()


def test_every_numbered_item_of_the_paper_is_listed_once():
    items = [item.item for item in COVERAGE.items]
    assert len(items) == len(set(items))
    assert COVERAGE.expected_numbers <= set(items)
    kinds = "|".join(COVERAGE.numbered)
    assert {item for item in items if re.match(rf"({kinds}) [\dIV]+$", item)} == COVERAGE.expected_numbers
    assert {"Algorithm 5", "Lemma 5", "Theorem 1", "Figure 6", "Table II", "Claim 4"} <= COVERAGE.expected_numbers


@pytest.mark.parametrize("item", COVERAGE.items, ids=lambda item: item.item)
def test_every_named_function_section_and_status_exists(item):
    assert item.where, "every item names a place"
    for name in item.where:
        module, _, attribute = name.partition(":")
        attrgetter(attribute)(importlib.import_module(module))
    headings = re.findall(r"^#+ (\d+(?:\.\d+)?) ", (PROJECT / "docs" / "method.md").read_text(), re.MULTILINE)
    assert set(item.section) <= set(headings)
    assert item.status in COVERAGE.statuses


def test_a_missing_name_is_noticed():
    """Negative control of the test above."""
    with pytest.raises(AttributeError):
        attrgetter("no_such_function")(importlib.import_module("dpverify.pipeline"))


def test_the_documentation_page_is_generated_from_the_data_file():
    assert (PROJECT / "docs" / "coverage.md").read_text() == coverage_page()
