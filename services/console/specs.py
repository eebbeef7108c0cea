"""Specs as YAML, short or with all defaults, and their line-by-line comparison."""

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
"""Longest compared text in lines."""


@dataclass(frozen=True)
class DiffLine:
    """Line of a comparison. `mark`: `+` and `-` for a line of one text only, `@` for a gap."""

    mark: str
    text: str


def full_text(document: Any) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def short(document: Any) -> str:
    """YAML without defaults; with defaults if the short text would not give the same spec."""
    try:
        spec = RecommenderSpec.model_validate(document)
        text = full_text(spec.model_dump(mode="json", by_alias=True, exclude_defaults=True))
        return text if parse_spec(text) == spec else full_text(document)
    except (EyasError, ValueError):
        return full_text(document)


def changes(before: str, after: str) -> list[DiffLine]:
    """Changed lines with three lines of context. Long texts are not compared, because the time grows faster than their length."""
    if before != after and max(before.count("\n"), after.count("\n")) > MOST_LINES:
        return [DiffLine("@", f"more than {MOST_LINES} lines: compare them with another tool")]
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3))[2:]
    changed_lines = [DiffLine("@", "\u22ef") if line.startswith("@@") else DiffLine(line[:1], line[1:]) for line in lines]
    return changed_lines[1:] if lines[:1] and lines[0].startswith("@@ -1,") else changed_lines


def nodes_of(text: str) -> yaml.MappingNode | None:
    """Parsed YAML mapping; None if the text is not a spec's mapping."""
    try:
        node = compose(text, "spec", MAX_NODES) if len(text) <= MAX_SPEC else None
    except Invalid:
        return None
    return node if isinstance(node, yaml.MappingNode) else None


def line_of(node: Any, field: str) -> int | None:
    """Line number of a field, or of its nearest existing parent."""
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
    """Errors of a spec, sorted by line."""
    nodes = nodes_of(text) if errors else None
    faults = [{"line": line_of(nodes, error["field"]), "field": error["field"], "message": error["message"]} for error in errors]
    return sorted(faults, key=lambda fault: fault["line"] or 0)
