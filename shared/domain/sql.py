"""Checks that a text is a single SELECT, for an early and clear error.

This is not a protection: the permissions of the database user limit what a query can do.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
      (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
    | (?P<word> [A-Za-z_]\w* )
    | (?P<end> ; )
    | \s+ | .
    """,
    re.VERBOSE | re.DOTALL,
)


def not_one_select(query: str) -> str | None:
    """Returns why a text is not a single SELECT; None if it is."""
    first = None
    for token in _TOKEN.finditer(query):
        if token.lastgroup == "comment" or token.group().isspace():
            continue
        if token.lastgroup == "end":
            return "expected one SELECT, without ';'"
        if first is None:
            first = token.group().upper()
    if first is None:
        return "empty: expected one SELECT"
    return None if first in ("SELECT", "WITH") else f"begins with {first[:20]!r}: expected one SELECT (WITH may precede it)"
