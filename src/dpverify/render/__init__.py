"""Figures and HTML pages. Needs the extra `dpverify[report]` (matplotlib and Jinja2).

A page of one's own is a `Page` of a few kinds of blocks: `Sentence`, `Section`, `Table`, `Figures`, `Items`, `Code` and
`Links`. A figure is a `Drawing`: `with styled(): figure = canvas(height)`, then matplotlib, with the named colours. The
functions `format_lower` and `format_upper` round bounds to the safe side.

This package draws plain data: it does not import `dpverify.report`. `dpverify.report.page` turns a report into the data
that `render.page.report_page` draws.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpverify.render.bounds import Bounds, complete_figure, draw_bounds
    from dpverify.render.builder import Cell, Code, Column, Figures, Items, Links, Page, Section, Sentence, Table
    from dpverify.render.figures import privacy_map
    from dpverify.render.style import (
        CELLS,
        FIRST,
        INK,
        MUTED,
        PAPER,
        PROVED,
        RULE,
        SECOND,
        WITNESS,
        Drawing,
        Key,
        canvas,
        label,
        styled,
    )
    from dpverify.util.formatting import format_count, format_lower, format_number, format_percent, format_upper

__all__ = [
    "CELLS",
    "FIRST",
    "INK",
    "MUTED",
    "PAPER",
    "PROVED",
    "RULE",
    "SECOND",
    "WITNESS",
    "Bounds",
    "Cell",
    "Code",
    "Column",
    "Drawing",
    "Figures",
    "Items",
    "Key",
    "Links",
    "Page",
    "Section",
    "Sentence",
    "Table",
    "canvas",
    "complete_figure",
    "draw_bounds",
    "format_count",
    "format_lower",
    "format_number",
    "format_percent",
    "format_upper",
    "label",
    "privacy_map",
    "styled",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, because it needs matplotlib and Jinja2."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in ("util.formatting", "render.builder", "render.style", "render.bounds", "render.figures"):
        found = importlib.import_module(f"dpverify.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AssertionError(name)
