"""docs/coverage.md lists every numbered item of the paper, and names only what exists."""

import importlib
import re
from operator import attrgetter

import pytest
from pages import PROJECT

NUMBERED = {
    "Definition": 3,
    "Equation": 2,
    "Lemma": 5,
    "Theorem": 1,
    "Algorithm": 5,
    "Figure": 6,
    "Table": 2,
    "Claim": 4,
}
ROMAN = ("", "I", "II")
LINES = re.findall(
    r"^\| \*\*(.+?)\*\*, .*? \| (.+?) \| .* \| (.+?)<br>section (.+?) \|$",
    (PROJECT / "docs/coverage.md").read_text(),
    re.M,
)


def test_every_numbered_item_of_the_paper_is_listed_once():
    items = [item for item, *_ in LINES]
    assert len(items) == len(set(items))
    kinds = "|".join(NUMBERED)
    wanted = {f"{k} {ROMAN[n] if k == 'Table' else n}" for k, last in NUMBERED.items() for n in range(1, last + 1)}
    assert {item for item in items if re.match(rf"({kinds}) [\dIV]+$", item)} == wanted


def find(name):
    """Return what a name of the page stands for: `reproduction.measure.measure_pairs`, or without `dpverify.`."""
    parts = name.split(".")
    root = parts[:1] if parts[0] == "reproduction" else ["dpverify", *parts[:1]]
    for end in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join([*root, *parts[1:end]]))
        except ModuleNotFoundError:
            continue
        return attrgetter(".".join(parts[end:]))(module)
    raise AttributeError(name)


@pytest.mark.parametrize(("item", "status", "names", "sections"), LINES, ids=[line[0] for line in LINES])
def test_every_named_function_section_and_status_exists(item, status, names, sections):
    for name in re.findall("`(.+?)`", names):
        find(name)
    headings = re.findall(r"^#+ (\d+(?:\.\d+)?) ", (PROJECT / "docs" / "method.md").read_text(), re.M)
    assert set(sections.split(", ")) <= set(headings)
    assert f"| {status} | " in (PROJECT / "docs/coverage.md").read_text().split("| paper |")[0]


def test_a_missing_name_is_noticed():
    """Negative control of the test above."""
    with pytest.raises(AttributeError):
        find("pipeline.no_such_function")
