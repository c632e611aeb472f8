"""Builds the documentation into the folder site/, which opens from disk without a network.

Run: python docs/site/build.py (some 20 seconds; needs dpverify[docs]).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import reference

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parent.parent
STAGE, SITE = PROJECT / "build" / "docs", PROJECT / "site"
LANGUAGES = {".py": "python", ".c": "c", ".pl": "perl", ".m": "matlab"}
EXAMPLES = "readme.py rounding.py w2mhe.py nile.py pendulum.py tracker.py smoother.c smoother.m smoother.pl"


def stage_pages() -> None:
    """Copy docs/ to the staging folder, and add the pages that the code and other files give."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = STAGE / "pages"
    shutil.copytree(PROJECT / "docs", pages, ignore=shutil.ignore_patterns("site", "*.py"))
    texts = {str(page.relative_to(pages)): page.read_text() for page in pages.rglob("*.md")}
    texts |= {**reference.pages(), "examples.md": examples_page(), "contributing.md": contributing_page()}
    for name, text in texts.items():
        (pages / name).write_text(resolve_links(text, set(texts)))
    for name in ("site.css", "iframe-worker.js"):
        shutil.copy(FOLDER / name, pages)
    listed = r'"([\w-]+\.md)",? ?'  # a page that is written by measurements may be missing
    menu = re.sub(listed, lambda match: match[0] if match[1] in texts else "", (FOLDER / "zensical.toml").read_text())
    (STAGE / "zensical.toml").write_text(menu)


def contributing_page() -> str:
    """Return CONTRIBUTING.md with links to pages; links to other files of the clone become plain text."""
    text = (PROJECT / "CONTRIBUTING.md").read_text().replace("](docs/", "](")
    return re.sub(r"\[([^\]]+)\]\((?!https?:|[\w-]+\.md)[^)]*\)", r"\1", text)


def resolve_links(text: str, pages: set[str]) -> str:
    """Turn links to example files into anchors; a link to a page that is not there becomes plain text."""
    text = re.sub(r"\]\(\.\./examples/([\w./]+)\)", lambda match: f"](examples.md#{anchor(match[1])})", text)
    return re.sub(r"\[([^\]]+)\]\(([\w/]+\.md)\)", lambda match: match[0] if match[2] in pages else match[1], text)


def anchor(name: str) -> str:
    """Return the anchor of an example file."""
    return name.replace(".", "-").replace("/", "-")


def examples_page() -> str:
    """Return a page with every file of examples/."""
    parts = ["# Examples\n\nThese files are in the folder `examples` of a clone; the tests run all of them.\n"]
    for name in EXAMPLES.split():
        path = PROJECT / "examples" / name
        heading = f"## {name} {{ #{anchor(name)} }}"
        parts.append(f"{heading}\n\n```{LANGUAGES[path.suffix]}\n{path.read_text().strip()}\n```\n")
    return "\n".join(parts)


class Links(HTMLParser):
    """The links of a page, the files it loads, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.anchors |= {attributes.get("id") or "", attributes.get("name") or ""}
        target = attributes.get("href") if tag in ("a", "link") else attributes.get("src")
        if target:
            (self.targets if tag == "a" else self.loaded).append(target)


def find_problems(site: Path) -> list[str]:
    """Return a line for each link without a target, and for each file that a page would load from a network."""
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    problems = []
    for page, links in pages.items():
        problems += [f"{page.name} loads {url}" for url in links.loaded if urlsplit(url).netloc]
        for url in links.targets + links.loaded:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else {""}
            if not target.exists() or (target.suffix == ".html" and unquote(parts.fragment) not in anchors):
                problems.append(f"{page.name} links to {url}, which does not exist")
    return problems


def main() -> None:
    """Build the site, and fail if a link has no target."""
    stage_pages()
    shutil.rmtree(SITE, ignore_errors=True)
    generator = Path(sys.executable).with_name("zensical")
    subprocess.run([generator, "build", "--clean", "--config-file", STAGE / "zensical.toml"], check=True)
    shutil.move(STAGE / "site", SITE)
    problems = find_problems(SITE)
    if problems:
        raise SystemExit("\n".join(problems))
    print(f"the site: {SITE / 'index.html'}")


if __name__ == "__main__":
    main()
