"""Specs as people read them: YAML, short or with every default, and in what two of them differ, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from shared.contracts.spec import MAX_SPEC, RecommenderSpec, parse_spec
from shared.contracts.yaml12 import MAX_NODES, compose
from shared.domain.errors import EyasError, Invalid

MOST_LINES = 4_000
"""Of a text that is compared."""


@dataclass(frozen=True)
class Changed:
    """A line of a comparison. `mark`: `+` and `-` are in one of the two alone, `@` says where it goes on."""

    mark: str
    text: str


def full_text(document: Any) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def short(document: Any) -> str:
    """Without what is said by default; all of it where today's platform reads another spec out of the short one, or none at all."""
    try:
        spec = RecommenderSpec.model_validate(document)
        text = full_text(spec.model_dump(mode="json", by_alias=True, exclude_defaults=True))
        return text if parse_spec(text) == spec else full_text(document)
    except (EyasError, ValueError):
        return full_text(document)


def changes(before: str, after: str) -> list[Changed]:
    """Three lines around each change; nothing where there is none. Long texts are not compared: that takes more than their length."""
    if before != after and max(before.count("\n"), after.count("\n")) > MOST_LINES:
        return [Changed("@", f"more than {MOST_LINES} lines: compare them with a tool of your own")]
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3))[2:]
    changed_lines = [Changed("@", "\u22ef") if line.startswith("@@") else Changed(line[:1], line[1:]) for line in lines]
    return changed_lines[1:] if lines[:1] and lines[0].startswith("@@ -1,") else changed_lines


def nodes_of(text: str) -> yaml.MappingNode | None:
    """None where the text is no mapping, or no spec would be read out of it."""
    try:
        node = compose(text, "spec", MAX_NODES) if len(text) <= MAX_SPEC else None
    except Invalid:
        return None
    return node if isinstance(node, yaml.MappingNode) else None


def line_of(node: Any, field: str) -> int | None:
    """In which line of a YAML text a field stands, or what it would stand in."""
    nearest_line: int | None = None
    for part in field.split("."):
        line, inner = _step(node, part)
        if line is None:
            break
        nearest_line, node = line, inner
    return nearest_line


def _step(node: Any, part: str) -> tuple[int | None, Any]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        return node.value[int(part)].start_mark.line + 1, node.value[int(part)]
    return None, node


def placed(text: str, errors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The faults of a spec in the order of their lines."""
    nodes = nodes_of(text) if errors else None
    faults = [{"line": line_of(nodes, error["field"]), "field": error["field"], "message": error["message"]} for error in errors]
    return sorted(faults, key=lambda fault: fault["line"] or 0)
