"""Validators of text with a pattern, and of list entries that name their kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import AfterValidator

from shared.contracts.strict import Strict, unknown_name


def written(pattern: str, wanted: str) -> Any:
    """Validates text by a pattern; the error says in words what is expected."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {wanted}, got {value!r}")
        return value

    return AfterValidator(check)


def entry(noun: str, kinds: Mapping[str, type[Strict]], planned: frozenset[str], example: str) -> Callable[[Any], Any]:
    """Reads an entry of a list by the one kind that it names."""

    def read_entry(value: Any) -> Any:
        if isinstance(value, Strict):
            return value
        if not isinstance(value, dict) or not value:
            raise ValueError(f"expected one {noun} such as {example}")
        named = [name for name in value if name in kinds]
        if len(named) > 1:
            raise ValueError(f"expected one {noun} per entry, got {' and '.join(named)}")
        if not named:
            raise unknown_name(noun, str(next(iter(value))), kinds, planned)
        return kinds[named[0]].model_validate(value)

    return read_entry
