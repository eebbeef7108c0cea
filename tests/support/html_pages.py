"""A page taken apart: which tags it has, whether they are closed, and what it would fetch."""

from __future__ import annotations

from html.parser import HTMLParser

_ALONE = {"meta", "br", "line", "circle", "polyline", "rect", "path", "hr", "input"}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.foreign: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    @property
    def balanced(self) -> bool:
        return not self.open and not self.wrong

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.foreign += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "action") and value]
        if tag not in _ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _ALONE:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag in _ALONE:
            return
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.wrong.append(tag)
