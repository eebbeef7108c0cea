"""The documents as HTML pages: `make docs` checks links and anchors, and writes the pages to var/docs. They load nothing from the network.

The source is Markdown, parsed by the rules of GitHub. docs/index.md is the table of contents: it must list every document, in an order
that suits readers. A broken link is a fault, and then no page is written.
"""

from __future__ import annotations

import copy
import html
import posixpath
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

ROOT = Path(__file__).parents[1]
CONTENTS = "docs/index.md"
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")
_PLOT = re.compile(r"^<!-- plot: .* -->$", re.MULTILINE)
"""Comment for docs/plots.py, which draws the plots of docs/benchmarks; not shown."""
_LANGUAGES = {"diff": "diff", "mermaid": "text"}


@dataclass(frozen=True)
class Link:
    line: int
    target: str


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Document:
    """One Markdown file with its link targets."""

    name: str
    tokens: list[Token]
    headings: tuple[Heading, ...]
    links: tuple[Link, ...]

    @property
    def title(self) -> str:
        return self.headings[0].text if self.headings else self.name

    @property
    def page(self) -> str:
        """Path of the page in the site."""
        return self.name.removeprefix("docs/").removesuffix(".md").replace("README", "readme").lower() + ".html"


def parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "highlight": _coloured}).enable(["table", "strikethrough"])


def _coloured(code: str, language: str, _: str) -> str:
    try:
        lexer = get_lexer_by_name(_LANGUAGES.get(language, language))
    except ClassNotFound:
        return ""
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True)))


def read(name: str, text: str) -> Document:
    tokens = parser().parse(_PLOT.sub("", text))
    return Document(name, tokens, tuple(_headings(tokens)), tuple(_links(tokens)))


def documents(root: Path = ROOT) -> dict[str, Document]:
    paths = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    return {name: read(name, path.read_text()) for path in paths for name in [str(path.relative_to(root))]}


def _headings(tokens: list[Token]) -> Iterator[Heading]:
    """Yields headings with GitHub's anchors: lower case, only letters, digits, - and _, spaces as -, a number after a repeated anchor."""
    anchors: Counter[str] = Counter()
    for opened, inline in pairwise(tokens):
        if opened.type == "heading_open":
            text = "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = anchors[anchor]
            anchors[anchor] += 1
            yield Heading(int(opened.tag[1]), text, f"{anchor}-{number}" if number else anchor)


def _links(tokens: list[Token]) -> Iterator[Link]:
    for token in tokens:
        for child in token.children or ():
            target = child.attrs.get({"link_open": "href", "image": "src"}.get(child.type, ""))
            if target is not None:
                yield Link(token.map[0] + 1 if token.map else 1, unquote(str(target)))


def faults(pages: Mapping[str, Document], root: Path = ROOT) -> list[str]:
    """Returns broken links and anchors, and documents without a link in the table of contents."""
    broken = [
        f"{page.name}:{link.line}: {why}" for page in pages.values() for link in page.links if (why := _wrong(page, link, pages, root))
    ]
    if CONTENTS not in pages:
        return [*broken, f"{CONTENTS} is missing"]
    listed = {_resolved(pages[CONTENTS], link.target)[0] for link in pages[CONTENTS].links}
    records = {name for name in pages if name.startswith("docs/adr/")}
    return broken + [f"{CONTENTS} has no link to {name}" for name in pages if name not in listed | records | {CONTENTS}]


def _resolved(document: Document, target: str) -> tuple[str, str]:
    """Returns the path from the root, and the anchor; the path `..` is outside of the root."""
    path, _, anchor = target.partition("#")
    name = posixpath.normpath(posixpath.join(posixpath.dirname(document.name), path)) if path else document.name
    return (".." if name.startswith("..") else name), anchor


def _wrong(document: Document, link: Link, pages: Mapping[str, Document], root: Path) -> str:
    if _ELSEWHERE.match(link.target):
        return ""
    name, anchor = _resolved(document, link.target)
    if name == ".." or link.target.startswith("/") or not (root / name).exists():
        return f"{link.target}: file not found"
    if anchor and (name not in pages or anchor not in {heading.anchor for heading in pages[name].headings}):
        return f"{link.target}: {name} has no heading with the anchor '{anchor}'"
    return ""


def write(folder: Path, pages: Mapping[str, Document], root: Path = ROOT) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for document in pages.values():
        path = folder / document.page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_page(document, pages))
        for link in document.links:
            name, _ = _resolved(document, link.target)
            if not _ELSEWHERE.match(link.target) and name not in pages:
                _put(folder / _beside(name), name, pages, root)
    colours = [
        HtmlFormatter(style="friendly").get_style_defs("pre"),
        "@media (prefers-color-scheme: dark) {" + HtmlFormatter(style="native").get_style_defs("pre") + "}",
    ]
    (folder / "docs.css").write_text((ROOT / "docs/pages.css").read_text() + "\n".join(colours) + "\n")


def _put(target: Path, name: str, pages: Mapping[str, Document], root: Path) -> None:
    """Copies a linked file to the site; for a folder, writes a page that lists its documents."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if (root / name).is_file():
        shutil.copy(root / name, target)
        return
    inside = [document for document in pages.values() if document.name.startswith(f"{name}/")]
    listed = "".join(f"- [{document.title}]({document.name.removeprefix(name + '/')})\n" for document in inside)
    page = read(f"{name}/index.md", f"# {name}\n\n{listed}")
    target.mkdir(exist_ok=True)
    (target / "index.html").write_text(_page(page, pages))


def _beside(name: str) -> str:
    """Returns the path in the site of a file that is not a document."""
    return name.removeprefix("docs/") if name.startswith("docs/") else f"files/{name}"


def _page(document: Document, pages: Mapping[str, Document]) -> str:
    up = "../" * document.page.count("/")
    anchors = iter(document.headings)
    tokens = copy.deepcopy(document.tokens)
    for token in tokens:
        if token.type == "heading_open":
            token.attrSet("id", next(anchors).anchor)
        elif token.type == "fence" and (name := token.info.strip().partition(" ")[2]) and not token.info.startswith("console"):
            token.attrSet("title", name)
        for child in token.children or ():
            for attribute in child.attrs.keys() & {"href", "src"}:
                child.attrSet(attribute, _address(document, str(child.attrs[attribute]), pages, up))
    body = str(parser().renderer.render(tokens, parser().options, {}))
    body = body.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n'
        f'<title>{html.escape(document.title)}: Eyas</title>\n<link rel="stylesheet" href="{up}docs.css">\n</head>\n<body>\n'
        f'<nav aria-label="Contents">\n{_contents(document, pages, up)}</nav>\n<main>\n{body}</main>\n</body>\n</html>\n'
    )


def _address(document: Document, target: str, pages: Mapping[str, Document], up: str) -> str:
    if _ELSEWHERE.match(target):
        return target
    name, anchor = _resolved(document, unquote(target))
    if name in pages:
        return up + pages[name].page + (f"#{anchor}" if anchor else "")
    return up + _beside(name) + ("/index.html" if (ROOT / name).is_dir() else "")


def _contents(document: Document, pages: Mapping[str, Document], up: str) -> str:
    """Returns the navigation: the headings of the table of contents, each with its links."""
    contents, listed = pages[CONTENTS], {CONTENTS}
    lines = [f'<a class="home" href="{up}{contents.page}">Eyas</a>\n']
    headings = iter(contents.headings)
    for token in contents.tokens:
        if token.type == "heading_open":
            heading = next(headings)
            if heading.level > 1:
                lines.append(f"<p>{html.escape(heading.text)}</p>\n")
        for link, text in pairwise(token.children or ()):
            name = _resolved(contents, str(link.attrs["href"]))[0] if link.type == "link_open" else ""
            if name in pages and name not in listed:
                listed.add(name)
                here = ' aria-current="page"' if name == document.name else ""
                lines.append(f'<a href="{up}{pages[name].page}"{here}>{html.escape(text.content)}</a>\n')
    return "".join(lines)


def main() -> int:
    pages = documents()
    if broken := faults(pages):
        sys.stderr.writelines(f"{fault}\n" for fault in broken)
        return 1
    folder = ROOT / "var/docs"
    write(folder, pages)
    sys.stdout.write(f"{len(pages)} pages: {(folder / 'index.html').relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
