"""What becomes of an item when somebody writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from shared.domain.attributes import MOST_NAMES, Value
from shared.domain.errors import Invalid


class Before(Protocol):
    @property
    def attributes(self) -> Mapping[str, Value]: ...
    @property
    def available(self) -> bool: ...
    @property
    def deleted(self) -> bool: ...


class Said(Protocol):
    @property
    def item(self) -> int: ...
    @property
    def attributes(self) -> Mapping[str, Value | None]: ...
    @property
    def available(self) -> bool | None: ...


def written(before: Before | None, said: Said, whole: bool) -> tuple[dict[str, Value], bool]:
    """The attributes and the availability after a write. A whole one says everything; another one only what changes; who writes an
    item that was deleted begins with nothing."""
    named = {name: value for name, value in said.attributes.items() if value is not None}
    if whole or before is None or before.deleted:
        return named, said.available is not False
    kept = {name: value for name, value in before.attributes.items() if name not in said.attributes}
    if len(kept) + len(named) > MOST_NAMES:
        raise Invalid(f"item {said.item} would have {len(kept) + len(named)} attributes with these; one has at most {MOST_NAMES}")
    return {**kept, **named}, before.available if said.available is None else said.available


def alike(one: Before, other: Before) -> bool:
    """As they are stored: 1, 1.0 and true are not the same."""
    return (one.available, one.deleted) == (other.available, other.deleted) and _plain(one) == _plain(other)


def _plain(one: Before) -> str:
    return repr(sorted((name, list(value) if isinstance(value, tuple) else value) for name, value in one.attributes.items()))
