"""Reads catalogue writes from client documents and applies them to stored items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from shared.domain.attributes import MOST_NAMES, Kind, Value, check_attributes
from shared.domain.errors import Invalid

MOST_AT_ONCE = 10_000
_FIELDS = frozenset({"item", "attributes", "available"})


@dataclass(frozen=True)
class ItemWrite:
    """Write of one item. `available` None leaves the availability unchanged; an attribute with the value None is deleted."""

    item: int
    attributes: Mapping[str, Value | None]
    available: bool | None = None


def read_write(document: Any, declared: Mapping[str, Kind]) -> ItemWrite:
    if not isinstance(document, Mapping):
        raise Invalid('expected an object such as {"item": 1, "attributes": {"price": 3}}')
    unknown = sorted(str(name) for name in document if name not in _FIELDS)
    if unknown:
        raise Invalid(f"unknown field '{unknown[0][:80]}'; known: item, attributes, available")
    item, available = document.get("item"), document.get("available")
    if isinstance(item, bool) or not isinstance(item, int) or not -(2**63) <= item < 2**63:
        raise Invalid("item: expected the item's key, a 64-bit integer")
    if available is not None and not isinstance(available, bool):
        raise Invalid("available: expected true or false")
    attributes = document.get("attributes")
    return ItemWrite(item, {} if attributes is None else check_attributes(attributes, declared), available)


class Before(Protocol):
    @property
    def attributes(self) -> Mapping[str, Value]: ...
    @property
    def available(self) -> bool: ...
    @property
    def deleted(self) -> bool: ...


def written(before: Before | None, write: ItemWrite, overwrite: bool) -> tuple[dict[str, Value], bool]:
    """Returns the attributes and the availability after a write. With `overwrite` the write replaces everything, else it changes only what
    it names. A write to a deleted item starts from an empty item."""
    named = {name: value for name, value in write.attributes.items() if value is not None}
    if overwrite or before is None or before.deleted:
        return named, write.available is not False
    unchanged = {name: value for name, value in before.attributes.items() if name not in write.attributes}
    if len(unchanged) + len(named) > MOST_NAMES:
        raise Invalid(f"item {write.item} would have {len(unchanged) + len(named)} attributes; at most {MOST_NAMES} are allowed")
    return {**unchanged, **named}, before.available if write.available is None else write.available


def seeded(before: Before | None, updated_at: datetime | None, row: Mapping[str, Value], at: datetime) -> dict[str, Value] | None:
    """Returns the attributes after a row of the items table, as of `at`; None for a deleted item, which stays deleted. The table sets its
    attributes, but only those that the item lacks if the item was written after `at`. Attributes beyond `MOST_NAMES` are left out."""
    if before is None:
        return dict(row)
    if before.deleted:
        return None
    is_newer = updated_at is not None and updated_at > at
    attributes = dict(before.attributes)
    for name, value in row.items():
        if (not is_newer) if name in attributes else len(attributes) < MOST_NAMES:
            attributes[name] = value
    return attributes


def alike(item: Before, other: Before) -> bool:
    """Returns whether both items are stored in the same form: 1, 1.0 and true are different."""
    return (item.available, item.deleted) == (other.available, other.deleted) and _plain(item) == _plain(other)


def _plain(item: Before) -> str:
    return repr(sorted((name, list(value) if isinstance(value, tuple) else value) for name, value in item.attributes.items()))
