"""Whether a text is one SELECT and nothing beside it, said early and plainly.

What a database lets its reader do is the database's to guard: this is no defence.
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
    """Why a text is not a single SELECT; None where it is."""
    first = None
    for token in _TOKEN.finditer(query):
        if token.lastgroup == "comment" or token.group().isspace():
            continue
        if token.lastgroup == "end":
            return "one SELECT is expected, without ';'"
        if first is None:
            first = token.group().upper()
    if first is None:
        return "it is empty: one SELECT is expected"
    return None if first in ("SELECT", "WITH") else f"it begins with {first[:20]!r}: one SELECT is expected (WITH may stand before it)"
