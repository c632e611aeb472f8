"""The coverage table: every item of the paper, where it is in dpverify, and its status.

`coverage.toml` is the data. `python -m dpverify.paper.coverage` prints the page docs/coverage.md that is made from it.
"""

from __future__ import annotations

import functools
import tomllib
from typing import NamedTuple

from dpverify.paper.plan import FOLDER

INTRODUCTION = """# Coverage of the paper

This table lists every definition, equation, lemma, theorem, algorithm, figure, table and claim of *A Numerical
Verification Framework for Differential Privacy in Estimation* (Han and Martínez), and its systems and estimators, in
the order of the paper. Numbers are those of the paper. Sections in the column "where" are those of
[the method](method.md). `src/dpverify/paper/coverage.toml` is the source of this page. A test checks that every name
exists. [Reproducing the paper](reproduce.md) has the measured numbers.
"""
ROMAN = ("", "I", "II", "III", "IV", "V")


class CoveredItem(NamedTuple):
    """One item of the paper.

    Attributes
    ----------
    item, place, what : str
        Its number or short name, where it stands in the paper, and what it is.
    where : tuple of str
        Functions and classes of dpverify, as "module:name".
    section : tuple of str
        Sections of docs/method.md.
    status : str
        One of the statuses of `coverage.toml`.
    note : str
        What a reader should know.
    """

    item: str
    place: str
    what: str
    where: tuple[str, ...]
    section: tuple[str, ...]
    status: str
    note: str = ""


class Coverage(NamedTuple):
    """All items, the meaning of each status, and how many items of each kind the paper numbers."""

    items: tuple[CoveredItem, ...]
    statuses: dict[str, str]
    numbered: dict[str, int]

    @property
    def expected_numbers(self) -> set[str]:
        """The number of every numbered item of the paper, for instance "Lemma 3" or "Table II"."""
        return {
            f"{kind} {ROMAN[number] if kind == 'Table' else number}"
            for kind, count in self.numbered.items()
            for number in range(1, count + 1)
        }


@functools.cache
def read_coverage() -> Coverage:
    """Return the contents of `coverage.toml`."""
    document = tomllib.loads((FOLDER / "coverage.toml").read_text(encoding="utf-8"))
    items = tuple(
        CoveredItem(**table | {"where": tuple(table["where"]), "section": tuple(table["section"])})
        for table in document["items"]
    )
    return Coverage(items, document["statuses"], document["numbered"])


def coverage_page() -> str:
    """Return the page docs/coverage.md."""
    coverage = read_coverage()
    lines = [INTRODUCTION, "| status | meaning | items |", "|---|---|---|"]
    for status, meaning in coverage.statuses.items():
        lines.append(f"| {status} | {meaning} | {sum(item.status == status for item in coverage.items)} |")
    lines += ["", "| paper | status | what | where |", "|---|---|---|---|"]
    for item in coverage.items:
        names = "<br>".join(f"`{name.removeprefix('dpverify.').replace(':', '.')}`" for name in item.where)
        note = f". {item.note}" if item.note else ""
        sections = f"section {', '.join(item.section)}"
        lines.append(f"| **{item.item}**, {item.place} | {item.status} | {item.what}{note} | {names}<br>{sections} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(coverage_page(), end="")
