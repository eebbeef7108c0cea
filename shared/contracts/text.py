"""Which strings can be kept: not every database takes a NUL, and half a character is no text anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_BAD = re.compile("[\0\ud800-\udfff]")
Place = tuple[str | int, ...]


def unkeepable(value: Any) -> list[tuple[Place, str]]:
    """Where in a parsed document stands a string that can't be kept, and what it holds; in the document's order."""
    found: list[tuple[Place, str]] = []
    waiting: list[tuple[Place, Any]] = [((), value)]
    while waiting:
        place, one = waiting.pop()
        if isinstance(one, str):
            said = _said(one)
            if said:
                found.append((place, said))
        elif isinstance(one, Mapping):
            waiting += [((*place, key), inner) for key, inner in reversed(list(one.items())) if not (isinstance(key, str) and _said(key))]
            found += [(place, f"a name in it {said}") for said in (_said(key) for key in one if isinstance(key, str)) if said]
        elif isinstance(one, Sequence) and not isinstance(one, bytes):
            waiting += [((*place, index), inner) for index, inner in reversed(list(enumerate(one)))]
    return found


def _said(text: str) -> str:
    bad = _BAD.search(text)
    if bad is None:
        return ""
    what = "a NUL character" if bad.group() == "\0" else f"half of a character (U+{ord(bad.group()):04X})"
    return f"holds {what}, which can't be stored: leave it out"
