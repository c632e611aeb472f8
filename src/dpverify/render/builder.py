"""Pages from a few kinds of blocks, as HTML and as Markdown: a headline, sentences, tables and figures.

All text is escaped. A page is one file that loads nothing from a network, in a light and a dark palette. The only
script is `page.js`; the content security policy of the page allows it by its hash, so that no other script runs.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import NamedTuple, Protocol

from markupsafe import Markup

from dpverify.render.figures import Drawing, Key, complete_figure, svg
from dpverify.util.files import write_text

FIGURE_DPI = 150  # of the files beside a Markdown page
TEMPLATE, STYLE_SHEET, SCRIPT = (
    Markup(Path(__file__).with_name(name).read_text(encoding="utf-8")) for name in ("page.html", "page.css", "page.js")
)
SCRIPT_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()


WriteFigure = Callable[[Drawing, str], str]  # a figure and its name to its address


class PageContext:
    """What the blocks of one HTML page share: the numbers of its figures, and the terms that it has not explained yet.

    Parameters
    ----------
    glossary : mapping of str to str
        The terms that the page explains, and their explanations.
    """

    def __init__(self, glossary: Mapping[str, str] | None = None):
        self.figures = itertools.count()
        self.terms = set(glossary or ())
        longest_first = sorted(self.terms, key=len, reverse=True)
        self.pattern = re.compile(rf"\b({'|'.join(map(re.escape, longest_first))})\b") if self.terms else None

    def text(self, text: str) -> Markup:
        """Return text as HTML: code between backticks, and a link to the glossary where a term occurs first."""
        parts = list(map(Markup.escape, text.split("`")))
        parts[1::2] = map(Markup("<code>{}</code>").format, parts[1::2])
        if self.pattern is not None:
            parts[::2] = [Markup(self.pattern.sub(self._link, part)) for part in parts[::2]]
        return Markup("").join(parts)

    def _link(self, match: re.Match[str]) -> str:
        term = match[0]
        if term not in self.terms:
            return term
        self.terms.remove(term)
        return f'<a class="term" href="#{term_anchor(term)}">{term}</a>'


class Block(Protocol):
    """A part of a page."""

    def html(self, context: PageContext) -> Markup:
        """Return the block as HTML."""
        ...

    def markdown(self, write: WriteFigure) -> str:
        """Return the block as Markdown; `write` writes a figure and returns its address."""
        ...


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

    def html(self, context: PageContext) -> Markup:
        return Markup('<p class="{}">{}{}{}</p>\n').format(
            self.style or "text",
            _badge(self.badge, self.verdict),
            Markup("<strong>{}</strong> ").format(self.label) if self.label else "",
            context.text(self.text),
        )

    def markdown(self, write: WriteFigure) -> str:
        label = f"**{escape_markdown(self.label)}** " if self.label else ""
        badge = f"*{escape_markdown(self.badge)}:* " if self.badge else ""
        text = escape_markdown(self.text)
        return (
            f"{'> ' if self.style == 'quote' else ''}{badge}{label}{f'*{text}*' if self.style == 'emphasis' else text}"
        )


@dataclass(frozen=True)
class Section:
    """Blocks below a heading; `anchor` is its address on the page. A reader opens a folded section if needed."""

    title: str
    blocks: Sequence[Block]
    anchor: str = ""
    folded: bool = False

    def html(self, context: PageContext) -> Markup:
        anchor = Markup(' id="{}"').format(self.anchor) if self.anchor else ""
        content = Markup("").join(block.html(context) for block in self.blocks)
        frame = "<section{}>\n<h2>{}</h2>\n{}</section>\n"
        if self.folded:
            frame = "<section{}>\n<details><summary><h2>{}</h2></summary>\n{}</details></section>\n"
        return Markup(frame).format(anchor, self.title, content)

    def markdown(self, write: WriteFigure) -> str:
        anchor = [f'<a id="{_address(self.anchor)}"></a>'] if self.anchor else []
        parts = [*anchor, f"## {escape_markdown(self.title)}", *(block.markdown(write) for block in self.blocks)]
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
        The verdict whose colour it has, or nothing. NO_ANSWER has a hollow mark.
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

    def html(self) -> Markup:
        """Return the content of the cell as HTML."""
        text = Markup('<a href="{}">{}</a>').format(self.link, self.text) if self.link else Markup.escape(self.text)
        text = Markup('<strong class="{}">{}</strong>').format(self.style, text) if self.style else text
        return text + (Markup("<span>{}</span>").format(self.below) if self.below else "")

    def markdown(self) -> str:
        """Return the content of the cell as Markdown."""
        text = escape_markdown(self.text) + (f" ({escape_markdown(self.below)})" if self.below else "")
        return f"[{text}]({_address(self.link)})" if self.link else text


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

    def html(self, context: PageContext) -> Markup:
        columns, rows = self._content()
        head = Markup("").join(
            Markup('<th scope="col"{}>{}</th>').format(
                Markup(' class="n"' if column.is_number else ""),
                Markup('<button type="button">{}</button>' if self.sortable else "{}").format(column.header),
            )
            for column in columns
        )
        body = Markup("\n").join(Markup("<tr>{}</tr>").format(self._row(columns, row)) for row in rows)
        return Markup(
            '{}<div class="wide" tabindex="0" role="region" aria-label="{}"><table{}>\n'
            "<thead><tr>{}</tr></thead>\n<tbody>{}</tbody></table></div>\n"
        ).format(
            Markup("<h3>{}</h3>\n").format(self.caption) if self.caption else "",
            self.caption or f"Table of {columns[0].header or 'results'}",
            Markup(' class="sortable"' if self.sortable else ""),
            head,
            body,
        )

    def _row(self, columns: list[Column], row: list[Cell]) -> Markup:
        if len(row) == 1 < len(columns):
            return Markup('<th scope="rowgroup" colspan="{}">{}</th>').format(len(columns), row[0].html())
        return Markup("").join(
            Markup("<td{}{}>{}</td>").format(
                Markup(' class="n"' if column.is_number else ""),
                Markup(' data-sort="{}"').format(_sort_key(cell)) if self.sortable else "",
                cell.html(),
            )
            for column, cell in zip(columns, row, strict=True)
        )

    def markdown(self, write: WriteFigure) -> str:
        columns, rows = self._content()
        rule = "".join("|---:" if column.is_number else "|---" for column in columns) + "|"
        lines = [f"| {' | '.join(escape_markdown(column.header) for column in columns)} |", rule]
        for row in rows:
            if len(row) == 1 < len(columns):
                lines.append(f"| **{row[0].markdown()}** |{' |' * (len(columns) - 1)}")
            else:
                lines.append(f"| {' | '.join(cell.markdown() for cell in row)} |")
        return "\n".join(([f"**{escape_markdown(self.caption)}**", ""] if self.caption else []) + lines)


def _sort_key(cell: Cell) -> str:
    """Return what a cell is sorted by; an infinite or missing number comes last."""
    if cell.sort is None and not cell.text:
        return "1e999"
    return str(cell.text if cell.sort is None else cell.sort).replace("inf", "1e999")


@dataclass(frozen=True)
class Figures:
    """Figures side by side; `name` is that of the files beside a Markdown page."""

    drawings: Sequence[Drawing]
    name: str = ""

    def html(self, context: PageContext) -> Markup:
        parts = Markup("\n").join(_figure(drawing, f"figure{next(context.figures)}") for drawing in self.drawings)
        one = " one" if len(self.drawings) == 1 else ""
        return Markup('<div class="figures{}">\n{}</div>\n').format(one, parts)

    def markdown(self, write: WriteFigure) -> str:
        several = len(self.drawings) > 1
        files = [
            f"{self.name}-{number}" if several and self.name else self.name for number in range(len(self.drawings))
        ]
        return "\n\n".join(
            f"![{escape_markdown(drawing.title)}]({write(drawing, file)})"
            for drawing, file in zip(self.drawings, files, strict=True)
        )


def _figure(drawing: Drawing, name: str) -> Markup:
    """Return a figure as HTML, with its title, its legend, its caption and the line that shows what is read out."""
    keys = Markup("").join(map(_legend_entry, drawing.keys))
    return Markup(
        '<figure>\n<h3>{}</h3>\n<ul class="keys">{}</ul>\n<div class="drawing">{}{}</div>\n'
        "<figcaption>{}</figcaption>\n</figure>"
    ).format(
        drawing.title,
        keys,
        Markup(svg(drawing, name)),
        Markup('<p class="readout" aria-hidden="true">&nbsp;</p>') if drawing.readout else "",
        drawing.caption,
    )


def _legend_entry(key: Key) -> Markup:
    entry = '<li><svg aria-hidden="true" style="color: var(--{})"><use href="#key-{}"/></svg>{}</li>'
    return Markup(entry).format(key.colour, key.mark, key.text)


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    items: Sequence[Sentence | str]

    def _sentences(self) -> list[Sentence]:
        return [item if isinstance(item, Sentence) else Sentence(item) for item in self.items]

    def html(self, context: PageContext) -> Markup:
        lines = [item.html(context) for item in self._sentences()]
        return Markup('<ul class="notes">{}</ul>\n').format(Markup("").join(map(Markup("<li>{}</li>\n").format, lines)))

    def markdown(self, write: WriteFigure) -> str:
        return "\n".join(f"- {item.markdown(write)}" for item in self._sentences())


@dataclass(frozen=True)
class Code:
    """Code or a command."""

    text: str
    language: str = "sh"

    def html(self, context: PageContext) -> Markup:
        return Markup("<pre><code>{}</code></pre>\n").format(self.text)

    def markdown(self, write: WriteFigure) -> str:
        return f"```{self.language}\n{self.text}\n```"


@dataclass(frozen=True)
class Links:
    """Links in one paragraph: pairs of a text and an address."""

    links: Sequence[tuple[str, str]]

    def html(self, context: PageContext) -> Markup:
        links = [Markup('<a href="{}">{}</a>').format(address, text) for text, address in self.links]
        return Markup('<nav class="small">{}</nav>\n').format(Markup(" · ").join(links))

    def markdown(self, write: WriteFigure) -> str:
        return " · ".join(f"[{escape_markdown(text)}]({_address(address)})" for text, address in self.links)


@dataclass(frozen=True)
class Page:
    """A page: a headline and blocks.

    Attributes
    ----------
    title : str
        The headline: the finding.
    blocks : sequence
        What follows it: `Sentence`, `Section`, `Table`, `Figures`, `Items`, `Code`, `Links`.
    over : str
        A line above the headline.
    badge, verdict : str
        A short text in a frame before that line, and the verdict whose colour it has.
    footer : str
        A line at the end, for example the digest of what the page shows.
    glossary : mapping of str to str
        Terms that the page explains at its end. Where a term occurs first it is a link to its explanation.

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
    footer: str = ""
    glossary: Mapping[str, str] = field(default_factory=dict)

    def html(self) -> str:
        """Return the page as one HTML file."""
        context = PageContext(self.glossary)
        parts = {
            kind: Markup("").join(block.html(context) for block in self.blocks if isinstance(block, Section) == kind)
            for kind in (False, True)
        }
        over = Markup('<p class="over">{}{}</p>\n').format(_badge(self.badge, self.verdict), self.over)
        return TEMPLATE.format(
            hash=SCRIPT_HASH,
            title=self.title,
            style=STYLE_SHEET,
            over=over if self.over or self.badge else "",
            head=parts[False],
            sections=parts[True] + _glossary(self.glossary),
            footer=Markup("<footer>{}</footer>\n").format(context.text(self.footer)) if self.footer else "",
            script=SCRIPT,
        )

    def markdown(self, figures: str | PathLike[str] = "figures", address: str = "figures") -> str:
        """Return the page as Markdown, and write its figures to the folder `figures`, which it names `address`."""
        count = itertools.count()

        def write(drawing: Drawing, name: str) -> str:
            """Write a figure, with its title and legend inside, and return its address."""
            file = f"{name or f'figure-{next(count)}'}.png"
            Path(figures).mkdir(parents=True, exist_ok=True)
            complete_figure(drawing).savefig(Path(figures) / file, dpi=FIGURE_DPI)
            return f"{address}/{file}"

        parts = [f"# {escape_markdown(self.title)}", *([escape_markdown(self.over)] if self.over else [])]
        return "\n\n".join([*parts, *(block.markdown(write) for block in self.blocks)])

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write the page as an HTML file."""
        write_text(path, self.html())


def _badge(text: str, verdict: str) -> Markup:
    return Markup('<span class="badge {}">{}</span>').format(verdict, text) if text else Markup("")


def term_anchor(term: str) -> str:
    """Return the address of the explanation of a term."""
    return "term-" + re.sub(r"\W+", "-", term)


def _glossary(glossary: Mapping[str, str]) -> Markup:
    """Return the explanations of all terms, as a folded section; a link to a term opens it."""
    entries = [
        Markup('<div id="{}" tabindex="-1"><dt>{}</dt><dd>{}</dd></div>\n').format(term_anchor(term), term, text)
        for term, text in glossary.items()
    ]
    section = (
        '<section>\n<details><summary><h2>Glossary</h2></summary>\n<dl class="terms">\n{}</dl></details></section>\n'
    )
    return Markup(section).format(Markup("").join(entries)) if entries else Markup("")


def _address(text: str) -> str:
    """Return an address for Markdown: nothing in it ends the link or begins a tag."""
    return urllib.parse.quote(text, safe="/#:?=&%.,~@+-_")


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, except for code between backticks: no HTML, no columns of a table."""
    parts = text.replace("|", "\\|").replace("\n", " ").split("`")
    parts[::2] = [part.replace("&", "&amp;").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)
