"""The documents as HTML pages: `make docs` checks links and anchors, and writes the pages to var/docs. They load nothing from the network.

The source is Markdown, parsed by the rules of GitHub. docs/index.md is the table of contents: it must list every document, in an order
that suits readers. A broken link is a fault, and then no page is written.
"""

from __future__ import annotations

import copy
import html
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
    found = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    return {name: read(name, path.read_text()) for path in found for name in [str(path.relative_to(root))]}


def _headings(tokens: list[Token]) -> Iterator[Heading]:
    """Yields headings with GitHub's anchors: lower case, only letters, digits, - and _, spaces as -, a number after a repeated anchor."""
    seen: Counter[str] = Counter()
    for opened, inline in pairwise(tokens):
        if opened.type == "heading_open":
            text = "".join(one.content for one in inline.children or () if one.type in ("text", "code_inline"))
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = seen[anchor]
            seen[anchor] += 1
            yield Heading(int(opened.tag[1]), text, f"{anchor}-{number}" if number else anchor)


def _links(tokens: list[Token]) -> Iterator[Link]:
    for token in tokens:
        for one in token.children or ():
            target = one.attrs.get("href") if one.type == "link_open" else one.attrs.get("src") if one.type == "image" else None
            if target is not None:
                yield Link(token.map[0] + 1 if token.map else 1, unquote(str(target)))


def faults(found: Mapping[str, Document], root: Path = ROOT) -> list[str]:
    """Returns broken links and anchors, and documents without a link in the table of contents."""
    said = [f"{one.name}:{link.line}: {why}" for one in found.values() for link in one.links if (why := _wrong(one, link, found, root))]
    if CONTENTS not in found:
        return [*said, f"{CONTENTS} is missing"]
    listed = {_resolved(found[CONTENTS], link.target)[0] for link in found[CONTENTS].links}
    records = {name for name in found if name.startswith("docs/adr/")}
    return said + [f"{CONTENTS} has no link to {name}" for name in found if name not in listed | records | {CONTENTS}]


def _resolved(document: Document, target: str) -> tuple[str, str]:
    path, _, anchor = target.partition("#")
    parts: list[str] = list(Path(document.name).parent.parts) if path else list(Path(document.name).parts)
    for part in Path(path).parts:
        if part == "..":
            if not parts:
                return "..", anchor
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts), anchor


def _wrong(document: Document, link: Link, found: Mapping[str, Document], root: Path) -> str:
    if _ELSEWHERE.match(link.target):
        return ""
    name, anchor = _resolved(document, link.target)
    if name == ".." or link.target.startswith("/") or not (root / name).exists():
        return f"{link.target}: file not found"
    if anchor and (name not in found or anchor not in {one.anchor for one in found[name].headings}):
        return f"{link.target}: {name} has no heading with the anchor '{anchor}'"
    return ""


def write(folder: Path, found: Mapping[str, Document], root: Path = ROOT) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for one in found.values():
        path = folder / one.page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_page(one, found))
        for link in one.links:
            name, _ = _resolved(one, link.target)
            if not _ELSEWHERE.match(link.target) and name not in found:
                _put(folder / _beside(name), name, found, root)
    colours = [
        HtmlFormatter(style="friendly").get_style_defs("pre"),
        "@media (prefers-color-scheme: dark) {" + HtmlFormatter(style="native").get_style_defs("pre") + "}",
    ]
    (folder / "docs.css").write_text((ROOT / "docs/pages.css").read_text() + "\n".join(colours) + "\n")


def _put(target: Path, name: str, found: Mapping[str, Document], root: Path) -> None:
    """Copies a linked file to the site; for a folder, writes a page that lists its documents."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if (root / name).is_file():
        shutil.copy(root / name, target)
        return
    inside = [one for one in found.values() if one.name.startswith(f"{name}/")]
    listed = "".join(f"- [{one.title}]({one.name.removeprefix(name + '/')})\n" for one in inside)
    page = read(f"{name}/index.md", f"# {name}\n\n{listed}")
    target.mkdir(exist_ok=True)
    (target / "index.html").write_text(_page(page, found))


def _beside(name: str) -> str:
    """Returns the path in the site of a file that is not a document."""
    return name.removeprefix("docs/") if name.startswith("docs/") else f"files/{name}"


def _page(document: Document, found: Mapping[str, Document]) -> str:
    up = "../" * document.page.count("/")
    anchors = iter(document.headings)
    tokens = copy.deepcopy(document.tokens)
    for token in tokens:
        if token.type == "heading_open":
            token.attrSet("id", next(anchors).anchor)
        elif token.type == "fence" and (name := token.info.strip().partition(" ")[2]) and not token.info.startswith("console"):
            token.attrSet("title", name)
        for one in token.children or ():
            for attribute in ("href", "src"):
                if attribute in one.attrs:
                    one.attrSet(attribute, _address(document, str(one.attrs[attribute]), found, up))
    body = str(parser().renderer.render(tokens, parser().options, {}))
    body = body.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n'
        f'<title>{html.escape(document.title)}: Eyas</title>\n<link rel="stylesheet" href="{up}docs.css">\n</head>\n<body>\n'
        f'<nav aria-label="Contents">\n{_contents(document, found, up)}</nav>\n<main>\n{body}</main>\n</body>\n</html>\n'
    )


def _address(document: Document, target: str, found: Mapping[str, Document], up: str) -> str:
    if _ELSEWHERE.match(target):
        return target
    name, anchor = _resolved(document, unquote(target))
    if name in found:
        return up + found[name].page + (f"#{anchor}" if anchor else "")
    return up + _beside(name) + ("/index.html" if (ROOT / name).is_dir() else "")


def _contents(document: Document, found: Mapping[str, Document], up: str) -> str:
    """Returns the navigation: the headings of the table of contents, each with its links."""
    lines, listed = [], set()
    contents = found[CONTENTS]
    lines.append(f'<a class="home" href="{up}{contents.page}">Eyas</a>\n')
    headings = iter(contents.headings)
    for token in contents.tokens:
        if token.type == "heading_open":
            heading = next(headings)
            if heading.level > 1:
                lines.append(f"<p>{html.escape(heading.text)}</p>\n")
        for one, text in pairwise(token.children or ()):
            if one.type != "link_open":
                continue
            name = _resolved(contents, str(one.attrs["href"]))[0]
            if name in found and name not in listed and name != CONTENTS:
                listed.add(name)
                here = ' aria-current="page"' if name == document.name else ""
                lines.append(f'<a href="{up}{found[name].page}"{here}>{html.escape(text.content)}</a>\n')
    return "".join(lines)


def main() -> int:
    found = documents()
    wrong = faults(found)
    for fault in wrong:
        sys.stderr.write(f"{fault}\n")
    if wrong:
        return 1
    folder = ROOT / "var/docs"
    write(folder, found)
    sys.stdout.write(f"{len(found)} pages: {(folder / 'index.html').relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
