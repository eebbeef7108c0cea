"""Check for strings that cannot be stored: some databases reject NUL, and a lone surrogate is not valid text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_BAD = re.compile("[\0\ud800-\udfff]")
Place = tuple[str | int, ...]


def unkeepable(value: Any) -> list[tuple[Place, str]]:
    """Returns the locations and faults of strings that cannot be stored, in the document's order."""
    problems: list[tuple[Place, str]] = []
    waiting: list[tuple[Place, Any]] = [((), value)]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, str):
            problem = _problem(node)
            if problem:
                problems.append((place, problem))
        elif isinstance(node, Mapping):
            waiting += [
                ((*place, key), inner) for key, inner in reversed(list(node.items())) if not (isinstance(key, str) and _problem(key))
            ]
            problems += [(place, f"a key {problem}") for problem in (_problem(key) for key in node if isinstance(key, str)) if problem]
        elif isinstance(node, Sequence) and not isinstance(node, bytes):
            waiting += [((*place, index), inner) for index, inner in reversed(list(enumerate(node)))]
    return problems


def _problem(text: str) -> str:
    bad = _BAD.search(text)
    if bad is None:
        return ""
    content = "a NUL character" if bad.group() == "\0" else f"a lone surrogate (U+{ord(bad.group()):04X})"
    return f"contains {content}, which cannot be stored; remove it"
