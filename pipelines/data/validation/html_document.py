"""HTML document around the parts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def document(title: str, style: str, parts: Sequence[str]) -> str:
    """Returns a page with the title as its heading; the parts are HTML."""
    lines = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head><body>',
        f"<h1>{escape(title)}</h1>",
    ]
    return "\n".join([*lines, *parts, "</body></html>"]) + "\n"
