"""Conversion of numpydoc docstrings to Markdown.

A section is a title underlined with dashes. Sections of entries (Parameters, Returns, ...) become lists, examples
become code blocks, and other sections keep their text.
"""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

ENTRY_SECTIONS = ("Parameters", "Other Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns", "See Also")
INDENT = "    "  # of a block inside a list item


class Section(NamedTuple):
    """A titled section of a docstring; the summary and the text before the first title have the title ""."""

    title: str
    lines: list[str]


def to_markdown(docstring: str) -> str:
    """Return a docstring (as `inspect.getdoc` returns it) as Markdown."""
    parts = []
    for section in split_sections(docstring):
        if section.title:
            parts.append(f"**{section.title}**")
        if section.title in ENTRY_SECTIONS:
            parts.append("\n".join(entry_item(entry) for entry in split_entries(section.lines)))
        elif section.title == "Examples":
            parts.append(fence_examples(section.lines))
        else:
            parts.append(fence_examples(section.lines).strip("\n"))
    return "\n\n".join(part for part in parts if part)


def split_sections(docstring: str) -> list[Section]:
    """Split a docstring at its underlined titles."""
    sections = [Section("", [])]
    lines = docstring.splitlines()
    for number, line in enumerate(lines):
        below = lines[number + 1] if number + 1 < len(lines) else ""
        is_title = line.strip() and re.fullmatch(r"-{3,}", below.strip()) and not line.startswith(" ")
        is_underline = number > 0 and sections[-1].title == lines[number - 1].strip() and re.fullmatch(r"-{3,}", line)
        if is_title:
            sections.append(Section(line.strip(), []))
        elif not is_underline:
            sections[-1].lines.append(line)
    return sections


def split_entries(lines: list[str]) -> list[tuple[str, str]]:
    """Return (head, description) of each entry; a head is not indented, its description is."""
    entries: list[tuple[str, list[str]]] = []
    for line in lines:
        if line and not line.startswith(" "):
            entries.append((line.strip(), []))
        elif entries:
            entries[-1][1].append(line)
    return [(head, textwrap.dedent("\n".join(description)).strip()) for head, description in entries]


def entry_item(entry: tuple[str, str]) -> str:
    """Return an entry as a list item: "name : type" becomes the name as code and the type in parentheses."""
    head, description = entry
    name, _, kind = head.partition(" : ")
    label = f"`{name}`" + (f" ({kind})" if kind else "")
    return indent_after_first_line(f"- {label}: {description}" if description else f"- {label}")


def fence_examples(lines: list[str]) -> str:
    """Return lines with every doctest in a code block."""
    parts: list[str] = []
    inside = False
    for line in lines:
        starts = line.startswith(">>>")
        if starts and not inside:
            parts.append("```pycon")
            inside = True
        elif inside and not line.strip():
            parts.append("```")
            inside = False
        parts.append(line)
    if inside:
        parts.append("```")
    return "\n".join(parts).strip("\n")


def indent_after_first_line(text: str) -> str:
    """Indent every line but the first, so that a list item keeps its paragraphs and blocks."""
    first, *others = text.splitlines()
    return "\n".join([first, *(INDENT + line if line else line for line in others)])
