"""Figures and HTML pages. Needs the extra `dpverify[report]` (matplotlib and MarkupSafe).

A page of one's own is a `Page` of a few kinds of blocks: `Sentence`, `Section`, `Table`, `Figures`, `Items`, `Code` and
`Links`. A figure is a `Drawing`: `with styled(): figure = canvas(height)`, then matplotlib, with the named colours. The
functions `format_lower` and `format_upper` round bounds to the safe side.
"""

import importlib
from typing import Any

# The module of every public name; each is imported when it is first used, because it needs matplotlib and MarkupSafe.
PUBLIC_NAMES = {
    "render.builder": ("Cell", "Code", "Column", "Figures", "Items", "Links", "Page", "Section", "Sentence", "Table"),
    "render.figures": (
        *("BEYOND", "CELLS", "FIRST", "INK", "MUTED", "PAPER", "PROVED", "RULE", "SECOND", "WITNESS"),
        *("Bar", "Bounds", "Drawing", "Key", "Series", "bars", "canvas", "chart", "complete_figure", "draw_bounds"),
        *("heat_map", "label", "styled", "tradeoff"),
    ),
    "render.pages": ("report_page",),
    "util.formatting": ("format_count", "format_lower", "format_number", "format_percent", "format_upper"),
}
__all__ = sorted(name for names in PUBLIC_NAMES.values() for name in names)  # pyright: ignore


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    for module, names in PUBLIC_NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"dpverify.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
