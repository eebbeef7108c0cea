"""Reads catalogue writes from client documents and applies them to stored items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from shared.domain.attributes import MOST_NAMES, Kind, Value, check_attributes
from shared.domain.entity_ids import Id, check_id
from shared.domain.errors import Invalid

MOST_AT_ONCE = 10_000
_FIELDS = frozenset({"item", "attributes", "available"})


@dataclass(frozen=True)
class ItemWrite:
    """Write of one item. `available` None leaves the availability unchanged; an attribute with the value None is deleted."""

    item: int
    attributes: Mapping[str, Value | None]
    available: bool | None = None
    id: str | None = None
    """The item's id if it is text; `item` is its key."""


def read_write(document: Any, declared: Mapping[str, Kind], key_of: Callable[[Id], int]) -> ItemWrite:
    """Reads a write of a client; `key_of` returns the key of an id."""
    if not isinstance(document, Mapping):
        raise Invalid('expected an object such as {"item": 1, "attributes": {"price": 3}}')
    unknown = sorted(str(name) for name in document if name not in _FIELDS)
    if unknown:
        raise Invalid(f"unknown field '{unknown[0][:80]}'; known: item, attributes, available")
    available = document.get("available")
    try:
        item = check_id(document.get("item"))
    except ValueError as error:
        raise Invalid(f"item: {error}") from None
    if available is not None and not isinstance(available, bool):
        raise Invalid("available: expected true or false")
    attributes = document.get("attributes")
    values = {} if attributes is None else check_attributes(attributes, declared)
    return ItemWrite(key_of(item), values, available, item if isinstance(item, str) else None)


Times = Mapping[str, int]
"""Newest write of a client by attribute, in microseconds since 1970. `EACH_NAME` is for all attributes without a later time."""
EACH_NAME = ""
_MOST_TIMES = 2 * MOST_NAMES


class Before(Protocol):
    @property
    def attributes(self) -> Mapping[str, Value]: ...
    @property
    def times(self) -> Times: ...
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


def times_after(before: Before | None, write: ItemWrite, overwrite: bool, now: int) -> Times:
    """Returns the times after a write: with `overwrite` it sets all attributes, also those that it does not name."""
    if overwrite:
        return {EACH_NAME: now}
    times = {**({} if before is None else before.times), **dict.fromkeys(write.attributes, now)}
    return times if len(times) <= _MOST_TIMES else {EACH_NAME: now}


def seeded(before: Before | None, row: Mapping[str, Value], at: int) -> dict[str, Value] | None:
    """Returns the attributes after a row of the items table, as of `at`; None for a deleted item, which stays deleted. The table sets each
    attribute that no client has written or removed later. Attributes beyond `MOST_NAMES` are left out."""
    if before is None:
        return dict(row)
    if before.deleted:
        return None
    attributes = dict(before.attributes)
    for name, value in row.items():
        is_newer = max(before.times.get(name, at), before.times.get(EACH_NAME, at)) > at
        if not is_newer and (name in attributes or len(attributes) < MOST_NAMES):
            attributes[name] = value
    return attributes


def alike(item: Before, other: Before) -> bool:
    """Returns whether both items are stored in the same form: 1, 1.0 and true are different."""
    return (item.available, item.deleted) == (other.available, other.deleted) and _plain(item) == _plain(other)


def _plain(item: Before) -> str:
    return repr(sorted((name, list(value) if isinstance(value, tuple) else value) for name, value in item.attributes.items()))
