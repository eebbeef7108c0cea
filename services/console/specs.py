"""Specs as YAML, short or with all defaults, and their line-by-line comparison."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import yaml

from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.domain.errors import EyasError

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
