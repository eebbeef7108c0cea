"""Lines of a spec's text: where each fault of a spec is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from shared.contracts.spec import MAX_SPEC
from shared.contracts.yaml12 import MAX_NODES, compose
from shared.domain.errors import Invalid

_MOST_WORDS = 3
_QUOTED = re.compile(r"'([^']{1,200})'")
_ADVICE = re.compile(r"\b(?:check|set) ([a-z_]+(?:\.[a-z_]+)+)")
_FIELDS = re.compile(r"[a-z_]+(?:\.\w+)*(?=[: ])")


@dataclass(frozen=True)
class PlacedFault:
    """`line`: None if no line of the text is the place."""

    line: int | None
    field: str
    message: str


def placed_faults(text: str, faults: Iterable[tuple[str, str]]) -> list[PlacedFault]:
    """Returns the faults, given by field and message, in the order of their lines."""
    nodes = _nodes(text)
    placed = [PlacedFault(_line(nodes, field, message) if nodes else None, field, message) for field, message in faults]
    return sorted(placed, key=lambda fault: fault.line or 0)


def _nodes(text: str) -> yaml.MappingNode | None:
    try:
        node = compose(text, "spec", MAX_NODES) if len(text) <= MAX_SPEC else None
    except Invalid:
        return None
    return node if isinstance(node, yaml.MappingNode) else None


def _line(nodes: yaml.MappingNode, field: str, message: str) -> int | None:
    """Returns the line of a field or of its nearest parent; below it, of the first value or key that the message quotes. A message without
    a field may advise to check one, or begin with the name of a file."""
    start, advice = _FIELDS.match(message), _ADVICE.search(message)
    line, node = _nearest(nodes, field or (start[0] if start else ""))
    places = [node] if line is not None else []
    if not field:
        places += [_nearest(nodes, section)[1] for section in ("schema", "features", "serve")] + [nodes]
    for word in _QUOTED.findall(message)[:_MOST_WORDS]:
        for place in places:
            if (quoted := _holding(place, word)) is not None:
                return quoted
    if line is not None or field:
        return line
    advised = _nearest(nodes, advice[1])[0] if advice is not None else None
    return advised if advised is not None else _holding(nodes, message.partition(": ")[0])


def _holding(node: Any, word: str) -> int | None:
    """Returns the line of the first value or key that is a word, else of the first one that has the word in it."""
    exact = next((scalar for scalar in _scalars(node) if scalar.value == word), None)
    inner = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    scalar = exact or next((scalar for scalar in _scalars(node) if inner.search(scalar.value)), None)
    return None if scalar is None else scalar.start_mark.line + 1


def _nearest(node: Any, field: str) -> tuple[int | None, Any]:
    nearest: int | None = None
    for part in field.split("."):
        line, inner = _step(node, part)
        if line is None:
            break
        nearest, node = line, inner
    return nearest, node


def _step(node: Any, part: str) -> tuple[int | None, Any]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        return node.value[int(part)].start_mark.line + 1, node.value[int(part)]
    return None, node


def _scalars(node: Any) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from (*_scalars(key), *_scalars(value))
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _scalars(value)
