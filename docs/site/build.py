"""Builds the documentation into site/, a folder that opens from disk without a network: python docs/site/build.py"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import reference

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
STAGE, SITE = PROJECT / "build" / "docs", PROJECT / "site"
LANGUAGES = {".py": "python", ".c": "c", ".pl": "perl", ".m": "matlab"}


def stage() -> None:
    """The pages as the generator wants them: those of docs/, one from the code, one from the examples."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = STAGE / "pages"
    shutil.copytree(PROJECT / "docs", pages, ignore=shutil.ignore_patterns("site", "*.py"))
    texts = {str(page.relative_to(pages)): page.read_text() for page in pages.rglob("*.md")}
    texts |= {"reference.md": reference.page(), "examples.md": examples()}
    for name, text in texts.items():
        (pages / name).write_text(linked(text, set(texts)))
    for name in ("site.css", "iframe-worker.js"):
        shutil.copy(HERE / name, pages)
    lines = (HERE / "zensical.toml").read_text().splitlines()
    kept = [line for line in lines if not (found := re.search(r'= "(\S+\.md)"', line)) or found[1] in texts]
    (STAGE / "zensical.toml").write_text("\n".join(kept))


def linked(text: str, present: set[str]) -> str:
    """Sections of the README where a page asks for them; examples on their page, each with its name for an anchor.

    Pages that measurements write may not be there yet: what would lead to them is plain text until they are.
    """
    text = re.sub(r"<!-- from README: (.+?) -->", lambda found: section(found[1]), text)
    text = re.sub(r"\]\(\.\./examples/([\w.]+)\)", lambda found: f"](examples.md#{anchor(found[1])})", text)
    return re.sub(r"\[([^\]]+)\]\(([\w/]+\.md)\)", lambda found: found[0] if found[2] in present else found[1], text)


def section(title: str) -> str:
    return (PROJECT / "README.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def anchor(name: str) -> str:
    return name.replace(".", "-")


def examples() -> str:
    """Every file of examples/, on one page."""
    parts = ["# Examples\n\nThese files lie in the folder `examples`; the tests run all of them.\n"]
    for path in sorted(PROJECT.glob("examples/*.*")):
        heading = f"## {path.name} {{ #{anchor(path.name)} }}"
        parts.append(f"{heading}\n\n```{LANGUAGES[path.suffix]}\n{path.read_text().strip()}\n```\n")
    return "\n".join(parts)


class Links(HTMLParser):
    """What a page refers to, and which places in it can be referred to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        self.places |= {has.get("id") or "", has.get("name") or ""}
        target = has.get("href") if tag in ("a", "link") else has.get("src")
        if target:
            (self.targets if tag == "a" else self.fetched).append(target)


def problems(site: Path) -> list[str]:
    """Links that lead nowhere, and whatever a page would fetch from a network."""
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    found = []
    for page, links in pages.items():
        found += [f"{page.name} fetches {url}" for url in links.fetched if urlsplit(url).netloc]
        for url in links.targets + links.fetched:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].places if target in pages else {""}
            if not target.exists() or (target.suffix == ".html" and unquote(parts.fragment) not in known):
                found.append(f"{page.name} links to {url}, which is not there")
    return found


def main() -> None:
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    generator = Path(sys.executable).with_name("zensical")
    subprocess.run([generator, "build", "--clean", "--config-file", STAGE / "zensical.toml"], check=True)
    shutil.move(STAGE / "site", SITE)
    found = problems(SITE)
    if found:
        raise SystemExit("\n".join(found))
    print(f"the site: {SITE / 'index.html'}")


if __name__ == "__main__":
    main()
