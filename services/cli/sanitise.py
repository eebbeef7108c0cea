"""Sanitises untrusted text for a terminal: removes escape sequences and bidirectional controls."""

from __future__ import annotations

import re
import unicodedata

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""Escape sequences for colours, cursor moves and window titles."""
_BREAK = re.compile("\r\n|[\n\r\t\v\f\x85\u2028\u2029]")
_HARMLESS = {"\n", "\t"}
_TURNING = {*map(chr, (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))}
_WIDE = {"W", "F"}
_UNSEEN = {"Mn", "Me", "Cf"}


def plain(text: str) -> str:
    """Removes escape sequences; replaces other unprintable characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if _printable(character) else "\ufffd" for character in _SEQUENCE.sub("", text))


def cell(text: str) -> str:
    """Sanitises a table cell; line breaks and tabs become blanks."""
    return plain(_BREAK.sub(" ", text))


def width(text: str) -> int:
    """Returns the number of terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(character) in _WIDE else unicodedata.category(character) not in _UNSEEN for character in text
    )


def _printable(character: str) -> bool:
    return character in _HARMLESS or (unicodedata.category(character) != "Cc" and character not in _TURNING)
