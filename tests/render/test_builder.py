"""The parts of a page: escaped text, tables, figures, as HTML and as Markdown."""

import json
import re
from html import unescape

import pytest

from dpverify.render import (
    INK,
    Cell,
    Code,
    Column,
    Drawing,
    Figures,
    Items,
    Links,
    Page,
    Section,
    Sentence,
    Table,
    canvas,
    styled,
)
from dpverify.render.builder import PageContext

BAD = '<script>alert("x")</script> & |'


def drawing():
    with styled():
        figure = canvas(1.0)
        figure.add_subplot().plot([0, 1], [0, 1], color=INK)
    return Drawing(figure, "A line", "It rises.")


def test_text_from_outside_is_escaped_everywhere():
    blocks = (
        Sentence(BAD, label=BAD, badge=BAD),
        Table([BAD, Column(BAD, True)], [[Cell(BAD, BAD), BAD], [BAD]], caption=BAD),
        Table([BAD], [[Cell(BAD, link=f'"{BAD}')]], sortable=True),
        Items([BAD]),
        Code(BAD),
        Links([(BAD, f'"{BAD}')]),
        Section(BAD, (Sentence(f"`{BAD}`"),), anchor=f'"{BAD}'),
    )
    page = Page(BAD, blocks, BAD, BAD, BAD)
    html = page.html()
    assert "<script>alert" not in html
    assert html.count("<script>") == 1  # the script that sorts tables
    assert html.count("&lt;script&gt;alert") > 15
    markdown = page.markdown()
    outside_code = re.sub(r"```.*?```|`[^`]*`", "", markdown, flags=re.DOTALL)
    assert "<script" not in outside_code


def test_a_table_has_groups_numbers_and_links():
    rows = [["a group"], [Cell("x", "below", style="REFUTED", link="#x"), Cell("1.5", sort=1.5)]]
    table = Table(["name", Column("value", True)], rows, sortable=True)
    html = table.html(PageContext())
    assert '<th scope="rowgroup" colspan="2">a group</th>' in html
    assert '<strong class="REFUTED"><a href="#x">x</a></strong><span>below</span>' in html
    assert '<td class="n" data-sort="1.5">1.5</td>' in html
    assert table.markdown(None).splitlines() == [
        "| name | value |",
        "|---|---:|",
        "| **a group** | |",
        "| [x (below)](#x) | 1.5 |",
    ]


def test_code_stands_between_backticks():
    sentence = Sentence("run `a < b`")
    assert "run <code>a &lt; b</code>" in sentence.html(PageContext())
    assert sentence.markdown(None) == "run `a < b`"


def test_figures_have_names_of_their_own_and_become_files(tmp_path):
    page = Page("Two figures", (Figures((drawing(), drawing())), Section("More", (Figures((drawing(),), "named"),))))
    html = page.html()
    assert [f'aria-labelledby="figure{number}-title' in html for number in range(4)] == [True, True, True, False]
    assert "prefers-color-scheme: dark" in html
    text = page.markdown(tmp_path / "files", "files")
    assert re.findall(r"\]\((.*?)\)", text) == ["files/figure-0.png", "files/figure-1.png", "files/named.png"]
    assert len(list((tmp_path / "files").iterdir())) == 3


def test_equal_pages_are_equal_texts(tmp_path):
    pages = [Page("Title", (Sentence("One."), Section("Figures", (Figures((drawing(),)),)))) for _ in range(2)]
    pages[0].to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == pages[1].html()


@pytest.mark.parametrize("style", ["", "lead", "small", "quote", "emphasis"])
def test_every_style_of_a_sentence(style):
    assert "text" in Sentence("text", style=style).html(PageContext())
    assert "text" in Sentence("text", style=style).markdown(None)


def test_a_term_is_a_link_to_its_explanation_where_it_occurs_first():
    glossary = {"cells": "Parts.", "over the cells": "For unions of cells."}
    html = Page("Title", (Sentence("cells & <cells>, over the cells"),), glossary=glossary).html()
    assert html.count('class="term"') == 2
    assert '<a class="term" href="#term-over-the-cells">over the cells</a>' in html
    assert '<div id="term-cells" tabindex="-1"><dt>cells</dt>' in html
    assert "<details>" in html


def test_a_folded_section_and_what_is_read_out():
    read_out = drawing()._replace(readout=((0.5, None, "half"), (1.0, 1.0, 'a "corner"')))
    html = Page("Title", (Section("More", (Figures((read_out,)),), folded=True),)).html()
    assert "<details><summary><h2>More</h2></summary>" in html
    (points,) = re.findall(r'data-readout="([^"]*)"', html)
    assert json.loads(unescape(points))[1][2] == 'a "corner"'
    assert '<p class="readout"' in html
