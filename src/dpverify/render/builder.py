"""Pages from a few kinds of blocks, as HTML and as Markdown: a headline, sentences, tables and figures.

All text is escaped. A page is one file that loads nothing from a network, in a light and a dark palette.
"""

from __future__ import annotations

import itertools
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple, Protocol

from markupsafe import Markup

from dpverify.render.bounds import complete_figure
from dpverify.render.page import drawn, render
from dpverify.render.results import SCRIPT
from dpverify.render.style import Drawing, svg
from dpverify.util.files import write_text

FIGURE_DPI = 150  # of the files beside a Markdown page


class Block(Protocol):
    """A part of a page."""

    def html(self, names: Iterator[str]) -> Markup:
        """Return the block as HTML; `names` gives a prefix for the identifiers of each figure."""
        ...

    def markdown(self, figures: FigureFiles) -> str:
        """Return the block as Markdown; `figures` names the file of each figure."""
        ...


class FigureFiles:
    """The files of the figures of a Markdown page. Each is written when it is named.

    Parameters
    ----------
    folder : Path
        Where they are written.
    address : str
        The folder relative to the page.
    """

    def __init__(self, folder: Path, address: str):
        self.folder, self.address, self.count = folder, address, itertools.count()

    def write(self, drawing: Drawing, name: str) -> str:
        """Write a figure, with its title and legend inside, and return its address."""
        file = f"{name or f'figure-{next(self.count)}'}.png"
        self.folder.mkdir(parents=True, exist_ok=True)
        complete_figure(drawing).savefig(self.folder / file, dpi=FIGURE_DPI)
        return f"{self.address}/{file}"


@dataclass(frozen=True)
class Sentence:
    """A paragraph.

    Attributes
    ----------
    text : str
        The text; what stands between two backticks is code.
    label : str
        What stands before it in bold.
    style : {"", "lead", "small", "quote", "emphasis"}
        How it looks: "lead" is larger, "small" smaller and grey, "quote" has a bar on its left.
    badge, verdict : str
        A short text in a frame before it, and the verdict whose colour it has.
    """

    text: str
    label: str = ""
    style: str = ""
    badge: str = ""
    verdict: str = ""

    def html(self, names: Iterator[str]) -> Markup:
        classes = {"small": "say small"}.get(self.style, self.style)
        return Markup('<p class="{}">{}{}{}</p>\n').format(
            classes or "text",
            Markup('<span class="badge {}">{}</span>').format(self.verdict, self.badge) if self.badge else "",
            Markup("<strong>{}</strong> ").format(self.label) if self.label else "",
            _with_code(self.text),
        )

    def markdown(self, figures: FigureFiles) -> str:
        label = f"**{escape_markdown(self.label)}** " if self.label else ""
        badge = f"*{escape_markdown(self.badge)}:* " if self.badge else ""
        text = escape_markdown(self.text)
        return (
            f"{'> ' if self.style == 'quote' else ''}{badge}{label}{f'*{text}*' if self.style == 'emphasis' else text}"
        )


@dataclass(frozen=True)
class Section:
    """Blocks below a heading; `anchor` is its address on the page."""

    title: str
    blocks: Sequence[Block]
    anchor: str = ""

    def html(self, names: Iterator[str]) -> Markup:
        anchor = Markup(' id="{}"').format(self.anchor) if self.anchor else ""
        content = Markup("").join(block.html(names) for block in self.blocks)
        return Markup("<section{}>\n<h2>{}</h2>\n{}</section>\n").format(anchor, self.title, content)

    def markdown(self, figures: FigureFiles) -> str:
        anchor = [f'<a id="{_address(self.anchor)}"></a>'] if self.anchor else []
        parts = [*anchor, f"## {escape_markdown(self.title)}", *(block.markdown(figures) for block in self.blocks)]
        return "\n\n".join(parts)


class Column(NamedTuple):
    """A column of a table: its heading, and whether it holds numbers."""

    header: str
    is_number: bool = False


class Cell(NamedTuple):
    """A cell of a table.

    Attributes
    ----------
    text, below : str
        Its text, and a smaller text below it.
    style : str
        The verdict whose colour it has, or nothing.
    link : str
        The address that it leads to, or nothing.
    sort : object
        What a sortable table is sorted by; None is the text.
    """

    text: str
    below: str = ""
    style: str = ""
    link: str = ""
    sort: object = None


@dataclass(frozen=True)
class Table:
    """A table. A row with a single cell is the heading of the rows below it.

    Attributes
    ----------
    columns : sequence of Column or str
        The columns.
    rows : sequence
        The cells of each row, `Cell` or str.
    caption : str
        A heading above the table.
    sortable : bool
        Whether the reader can sort it.
    """

    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell | str]]
    caption: str = ""
    sortable: bool = False

    def _content(self) -> tuple[list[Column], list[list[Cell]]]:
        columns = [one if isinstance(one, Column) else Column(one) for one in self.columns]
        return columns, [[one if isinstance(one, Cell) else Cell(one) for one in row] for row in self.rows]

    def html(self, names: Iterator[str]) -> Markup:
        columns, rows = self._content()
        head = Markup("").join(
            Markup('<th scope="col"{}>{}</th>').format(
                Markup(' class="n"' if column.is_number else ""),
                Markup('<button type="button">{}</button>' if self.sortable else "{}").format(column.header),
            )
            for column in columns
        )
        body = Markup("\n").join(Markup("<tr>{}</tr>").format(self._row(columns, row)) for row in rows)
        caption = Markup("<h3>{}</h3>\n").format(self.caption) if self.caption else ""
        kind = Markup("sortable" if self.sortable else "paper gallery")
        return Markup(
            '{}<div class="wide{}"><table class="{}">\n<thead><tr>{}</tr></thead>\n<tbody>{}</tbody></table></div>\n'
        ).format(caption, " answers" if self.sortable else "", kind, head, body)

    def _row(self, columns: list[Column], row: list[Cell]) -> Markup:
        if len(row) == 1 < len(columns):
            return Markup('<th scope="rowgroup" colspan="{}">{}</th>').format(len(columns), _linked(row[0]))
        return Markup("").join(
            Markup('<td class="{}" data-sort="{}">{}{}</td>').format(
                "n" if column.is_number else "",
                _sort_key(cell),
                Markup('<strong class="{}">{}</strong>').format(cell.style, _linked(cell))
                if cell.style
                else _linked(cell),
                Markup("<span>{}</span>").format(cell.below) if cell.below else "",
            )
            for column, cell in zip(columns, row, strict=True)
        )

    def markdown(self, figures: FigureFiles) -> str:
        columns, rows = self._content()
        rule = "".join("|---:" if column.is_number else "|---" for column in columns) + "|"
        lines = [f"| {' | '.join(escape_markdown(column.header) for column in columns)} |", rule]
        for row in rows:
            if len(row) == 1 < len(columns):
                lines.append(f"| **{_markdown_cell(row[0])}** |{' |' * (len(columns) - 1)}")
            else:
                lines.append(f"| {' | '.join(map(_markdown_cell, row))} |")
        return "\n".join(([f"**{escape_markdown(self.caption)}**", ""] if self.caption else []) + lines)


def _linked(cell: Cell) -> Markup:
    return Markup('<a href="{}">{}</a>').format(cell.link, cell.text) if cell.link else Markup.escape(cell.text)


def _sort_key(cell: Cell) -> str:
    return str(cell.text if cell.sort is None else cell.sort).replace("inf", "1e999")


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text) + (f" ({escape_markdown(cell.below)})" if cell.below else "")
    return f"[{text}]({_address(cell.link)})" if cell.link else text


@dataclass(frozen=True)
class Figures:
    """Figures side by side; `name` is that of the files beside a Markdown page."""

    drawings: Sequence[Drawing]
    name: str = ""

    def html(self, names: Iterator[str]) -> Markup:
        parts = [drawn(drawing, Markup(svg(drawing, next(names)))) for drawing in self.drawings]
        one = " one" if len(parts) == 1 else ""
        return Markup('<div class="figures{}">\n{}</div>\n').format(one, Markup("\n").join(parts))

    def markdown(self, figures: FigureFiles) -> str:
        several = len(self.drawings) > 1
        files = [
            f"{self.name}-{number}" if several and self.name else self.name for number in range(len(self.drawings))
        ]
        return "\n\n".join(
            f"![{escape_markdown(drawing.title)}]({figures.write(drawing, file)})"
            for drawing, file in zip(self.drawings, files, strict=True)
        )


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    items: Sequence[Sentence | str]

    def _sentences(self) -> list[Sentence]:
        return [item if isinstance(item, Sentence) else Sentence(item) for item in self.items]

    def html(self, names: Iterator[str]) -> Markup:
        lines = [item.html(names) for item in self._sentences()]
        return Markup('<ul class="notes">{}</ul>\n').format(Markup("").join(map(Markup("<li>{}</li>\n").format, lines)))

    def markdown(self, figures: FigureFiles) -> str:
        return "\n".join(f"- {item.markdown(figures)}" for item in self._sentences())


@dataclass(frozen=True)
class Code:
    """Code or a command."""

    text: str
    language: str = "sh"

    def html(self, names: Iterator[str]) -> Markup:
        return Markup("<pre><code>{}</code></pre>\n").format(self.text)

    def markdown(self, figures: FigureFiles) -> str:
        return f"```{self.language}\n{self.text}\n```"


@dataclass(frozen=True)
class Links:
    """Links in one paragraph: pairs of a text and an address."""

    links: Sequence[tuple[str, str]]

    def html(self, names: Iterator[str]) -> Markup:
        links = [Markup('<a href="{}">{}</a>').format(address, text) for text, address in self.links]
        return Markup('<nav class="small">{}</nav>\n').format(Markup(" · ").join(links))

    def markdown(self, figures: FigureFiles) -> str:
        return " · ".join(f"[{escape_markdown(text)}]({_address(address)})" for text, address in self.links)


@dataclass(frozen=True)
class Page:
    """A page: a headline and blocks.

    Attributes
    ----------
    title : str
        The headline.
    blocks : sequence
        What follows it: `Sentence`, `Section`, `Table`, `Figures`, `Items`, `Code`, `Links`.
    over : str
        A line above the headline.
    badge, verdict : str
        A short text in a frame before that line, and the verdict whose colour it has.

    Examples
    --------
    >>> from dpverify.render import Page, Sentence, Table
    >>> page = Page("One claim is false", (Sentence("Of two."), Table(["claim"], [["a < b"]])))
    >>> "a &lt; b" in page.html()
    True
    >>> print(page.markdown())
    # One claim is false
    <BLANKLINE>
    Of two.
    <BLANKLINE>
    | claim |
    |---|
    | a &lt; b |
    """

    title: str
    blocks: Sequence[Block]
    over: str = ""
    badge: str = ""
    verdict: str = ""

    def html(self) -> str:
        """Return the page as one HTML file."""
        names = (f"figure{number}" for number in itertools.count())
        return render(
            "builder.html.j2",
            SCRIPT,
            title=self.title,
            head=[block.html(names) for block in self.blocks if not isinstance(block, Section)],
            sections=[block.html(names) for block in self.blocks if isinstance(block, Section)],
            over=self.over,
            badge=self.badge,
            verdict=self.verdict,
        )

    def markdown(self, figures: str | PathLike[str] = "figures", address: str = "figures") -> str:
        """Return the page as Markdown, and write its figures to the folder `figures`, which it names `address`."""
        files = FigureFiles(Path(figures), address)
        parts = [f"# {escape_markdown(self.title)}", *([escape_markdown(self.over)] if self.over else [])]
        return "\n\n".join([*parts, *(block.markdown(files) for block in self.blocks)])

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write the page as an HTML file."""
        write_text(path, self.html())


def _with_code(text: str) -> Markup:
    """Return text as HTML, with code between backticks."""
    kinds = itertools.cycle([Markup("{}"), Markup("<code>{}</code>")])
    return Markup("").join(kind.format(part) for kind, part in zip(kinds, text.split("`"), strict=False))


def _address(text: str) -> str:
    """Return an address for Markdown: nothing in it ends the link or begins a tag."""
    return urllib.parse.quote(text, safe="/#:?=&%.,~@+-_")


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, except for code between backticks: no HTML, no columns of a table."""
    parts = text.replace("|", "\\|").replace("\n", " ").split("`")
    parts[::2] = [part.replace("&", "&amp;").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)
