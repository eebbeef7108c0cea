"""A recommender's catalogue as columns: a filter tests thousands of items in a few array operations.

Each item has a slot, in the order of arrival; the slot after the last one belongs to all items that the catalogue does not know. A column
holds one attribute of one kind: numbers (NaN: unknown), codes of texts or truth values (-1: unknown), or lists as pairs of value and slot,
sorted by value. A state is immutable and shares unchanged columns with the next state. Codes of texts never change, so all states
share one list of words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from services.gateway.loaded_version import LoadedVersion
from services.gateway.sorted_keys import Mask, find
from shared.domain.attributes import Kind, kinds_of
from shared.ports import CatalogueItem
from shared.serving.nearest import Keys, Rows

Column = np.ndarray[Any, Any]
Ints = np.ndarray[Any, np.dtype[np.int64]]

NOBODYS = 2**31 - 1
"""Code of a text that no item has."""
_CROWDED = 100_000
"""Number of words from which unused words are removed, each time the number has doubled."""
_CACHED_CONDITIONS = 16
_SCALARS: Mapping[Kind, tuple[Any, float]] = {
    "number": (np.float64, np.nan),
    "text": (np.int32, -1),
    "boolean": (np.int8, -1),
}
"""Dtype of a kind, and its value for unknown."""
DTYPES: Mapping[Kind, Any] = {kind: dtype for kind, (dtype, _) in _SCALARS.items()}
_LISTS: Mapping[Kind, Any] = {"numbers": np.float64, "texts": np.int32}


@dataclass(frozen=True, eq=False)
class TextOrder:
    """The order of texts. Places of texts are odd, so an unknown text gets an even place between two of them."""

    places: Ints
    """By code."""
    texts: Sequence[str]
    """Sorted."""

    def place(self, text: str) -> int:
        position = bisect_left(self.texts, text)
        return 2 * position + (position < len(self.texts) and self.texts[position] == text)


class TextCodes:
    """Texts by code. One thread appends; any thread may read."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = list(texts)
        self._codes = {text: code for code, text in enumerate(self._texts)}
        self._order: TextOrder | None = None

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, code: int) -> str:
        return self._texts[code]

    def add(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code = len(self._texts)
            self._texts.append(text)
            self._codes[text] = code
        return code

    def code(self, text: str) -> int:
        return self._codes.get(text, NOBODYS)

    def order(self, count: int) -> TextOrder:
        """The order of at least the first `count` codes."""
        current_order = self._order
        if current_order is None or len(current_order.texts) < count:
            texts = self._texts[:]
            order = sorted(range(len(texts)), key=texts.__getitem__)
            places = np.empty(len(texts), np.int64)
            places[order] = np.arange(len(texts)) * 2 + 1
            self._order = current_order = TextOrder(places, [texts[code] for code in order])
        return current_order

    def keep_order(self) -> None:
        """Rebuilds the order before requests need it, if it was ever used."""
        if self._order is not None:
            self.order(len(self._texts))


@dataclass(frozen=True, eq=False)
class ListAttribute:
    """A list attribute: each value of each item, sorted by value."""

    has_value: Mask
    values: Column
    slots: Rows
    places: Column
    """Place of each value in its item's list."""
    _having: dict[float, Mask] = field(default_factory=dict)

    def having(self, value: float) -> Mask:
        """Returns which slots have the value. Repeated values, such as a region, are cached with the state."""
        mask = self._having.get(value)
        if mask is None:
            if len(self._having) >= _CACHED_CONDITIONS:
                self._having.clear()
            self._having[value] = mask = self._find(value)
        return mask

    def _find(self, value: float) -> Mask:
        mask = np.zeros(len(self.has_value), bool)
        begin, end = np.searchsorted(self.values, value, "left"), np.searchsorted(self.values, value, "right")
        mask[self.slots[begin:end]] = True
        return mask


@dataclass(frozen=True, eq=False)
class Slots:
    """Slots by item key, and for the rows of units."""

    keys: Keys
    """Sorted."""
    of: Rows
    _aligned: WeakKeyDictionary[LoadedVersion, Rows] = field(default_factory=WeakKeyDictionary)

    def align(self, unit: LoadedVersion) -> Rows:
        """Returns the slot of each row; -1 (the slot after the last one) for items that the catalogue does not know."""
        aligned = self._aligned.get(unit)
        if aligned is None:
            self._aligned[unit] = aligned = self._find(unit.items)
        return aligned

    def _find(self, items: Keys) -> Rows:
        places, there = find(self.keys, items)
        slots: Rows = np.full(len(items), -1, np.intp)
        slots[there] = self.of[places[there]]
        return slots


@dataclass(frozen=True, eq=False)
class Attributes:
    """One state of a catalogue."""

    slots: Slots
    words: TextCodes
    texts: int
    """Number of words that this state may use."""
    available: Mask
    created: Column
    """Time of each item's first write, in seconds since 1970."""
    revisions: Ints
    """Revision of each item's newest change."""
    ids: Sequence[str]
    """Id of each item, empty if ids are not text; states share the list."""
    scalars: Mapping[tuple[str, Kind], Column]
    lists: Mapping[tuple[str, Kind], ListAttribute]

    def __len__(self) -> int:
        return len(self.slots.keys)

    @property
    def size(self) -> int:
        """Bytes of the arrays."""
        arrays = [self.available, self.created, self.revisions, self.slots.keys, self.slots.of, *self.scalars.values()]
        arrays += [part for pairs in self.lists.values() for part in (pairs.has_value, pairs.values, pairs.slots, pairs.places)]
        return sum(array.nbytes for array in arrays)


def nothing() -> Attributes:
    """Returns the empty catalogue: each item is available and has no attributes."""
    none = np.empty(0, np.int64)
    return Attributes(Slots(none, none.astype(np.intp)), TextCodes(), 0, np.ones(1, bool), np.zeros(1), np.zeros(1, np.int64), (), {}, {})


class AttributeBuilder:
    """Builds each state from the one before. For one thread."""

    def __init__(self, crowded: int = _CROWDED) -> None:
        self._slots: dict[int, int] = {}
        self._ids: list[str] = []
        self._crowded = crowded
        self.state = nothing()

    def take(self, changes: Sequence[CatalogueItem]) -> Attributes:
        """Returns the state after these changes, oldest first; the last change of an item wins."""
        latest = {change.item: change for change in changes}
        if not latest:
            return self.state
        before = len(self._slots)
        changed = np.fromiter((self._slots.setdefault(item, len(self._slots)) for item in latest), np.intp, len(latest))
        count, words = len(self._slots) + 1, self.state.words
        new_values = _NewValues(words)
        for slot, change in zip(changed.tolist(), latest.values(), strict=True):
            new_values.add(slot, change)
        available = _grown(self.state.available, count, True)
        available[changed] = [change.available and not change.deleted for change in latest.values()]
        created = _grown(self.state.created, count, 0.0)
        created[changed] = [change.created_at.timestamp() if change.created_at else 0.0 for change in latest.values()]
        revisions = _grown(self.state.revisions, count, 0)
        revisions[changed] = [change.revision for change in latest.values()]
        self._ids += [change.id or "" for slot, change in zip(changed.tolist(), latest.values(), strict=True) if slot >= before]
        scalars = {
            key: _scalar(self.state.scalars.get(key), key[1], count, changed, new_values.scalars.get(key))
            for key in new_values.all_scalars(self.state)
        }
        lists = {
            key: _pairs(self.state.lists.get(key), key[1], count, changed, new_values.lists.get(key))
            for key in new_values.all_lists(self.state)
        }
        self.state = Attributes(
            slots=self.state.slots if count == before + 1 else self._sorted(),
            words=words,
            texts=len(words),
            available=available,
            created=created,
            revisions=revisions,
            ids=self._ids,
            scalars={key: column for key, column in scalars.items() if column is not None},
            lists={key: pairs for key, pairs in lists.items() if pairs is not None},
        )
        if len(words) > self._crowded:
            self.state = _tidied(self.state)
            self._crowded = max(self._crowded, 2 * len(self.state.words))
        self.state.words.keep_order()
        return self.state

    def _sorted(self) -> Slots:
        keys = np.fromiter(self._slots, np.int64, len(self._slots))
        order = np.argsort(keys, kind="stable")
        return Slots(keys[order], order)


def _tidied(state: Attributes) -> Attributes:
    """Returns the state without unused words."""
    scalars = {key: column for key, column in state.scalars.items() if key[1] == "text"}
    lists = {key: pairs for key, pairs in state.lists.items() if key[1] == "texts"}
    used = np.unique(np.concatenate([*scalars.values(), *(pairs.values for pairs in lists.values()), np.array([-1])]))[1:]
    codes = np.full(len(state.words) + 1, -1, np.int32)  # the last code maps -1 to -1
    codes[used] = np.arange(len(used))
    words = TextCodes(state.words[code] for code in used.tolist())
    return replace(
        state,
        words=words,
        texts=len(words),
        scalars={**state.scalars, **{key: codes[column] for key, column in scalars.items()}},
        lists={
            **state.lists,
            **{key: ListAttribute(pairs.has_value, codes[pairs.values], pairs.slots, pairs.places) for key, pairs in lists.items()},
        },  # the order of the pairs stays valid
    )


class _NewValues:
    """Values of the changes, by attribute and kind."""

    def __init__(self, words: TextCodes) -> None:
        self._words = words
        self.scalars: dict[tuple[str, Kind], tuple[list[int], list[Any]]] = {}
        self.lists: dict[tuple[str, Kind], tuple[list[int], list[int], list[Any]]] = {}

    def add(self, slot: int, change: CatalogueItem) -> None:
        for name, value in change.attributes.items() if not change.deleted else ():
            for kind in kinds_of(value):
                if kind in _SCALARS:
                    slots, values = self.scalars.setdefault((name, kind), ([], []))
                    slots.append(slot)
                    values.append(self._words.add(value) if isinstance(value, str) else value)
                elif isinstance(value, Sequence):
                    item_slots, slots, values = self.lists.setdefault((name, kind), ([], [], []))
                    item_slots.append(slot)
                    slots += [slot] * len(value)
                    values += [self._words.add(each) if isinstance(each, str) else each for each in value]

    def all_scalars(self, state: Attributes) -> Iterable[tuple[str, Kind]]:
        return {**state.scalars, **self.scalars}

    def all_lists(self, state: Attributes) -> Iterable[tuple[str, Kind]]:
        return {**state.lists, **self.lists}


def _scalar(former: Column | None, kind: Kind, count: int, changed: Rows, new_values: tuple[list[int], list[Any]] | None) -> Column | None:
    """Returns None if no item has the attribute any more."""
    dtype, unknown = _SCALARS[kind]
    column = np.full(count, unknown, dtype) if former is None else _grown(former, count, unknown)
    column[changed] = unknown
    if new_values is not None:
        column[new_values[0]] = new_values[1]
    return column if new_values is not None or has_value(column).any() else None


def _pairs(
    former: ListAttribute | None, kind: Kind, count: int, changed: Rows, new_values: tuple[list[int], list[int], list[Any]] | None
) -> ListAttribute | None:
    has_value = np.zeros(count, bool) if former is None else _grown(former.has_value, count, False)
    has_value[changed] = False
    values, slots, places = np.empty(0, _LISTS[kind]), np.empty(0, np.intp), np.empty(0, np.int16)
    if former is not None:
        touched = np.zeros(count, bool)
        touched[changed] = True
        stays = ~touched[former.slots]
        values, slots, places = former.values[stays], former.slots[stays], former.places[stays]
    if new_values is not None:
        has_value[new_values[0]] = True
        values = np.concatenate((values, np.asarray(new_values[2], _LISTS[kind])))
        new_slots = np.asarray(new_values[1], np.intp)
        slots, places = np.concatenate((slots, new_slots)), np.concatenate((places, places_in_runs(new_slots)))
        order = np.argsort(values, kind="stable")
        values, slots, places = values[order], slots[order], places[order]
    return ListAttribute(has_value, values, slots, places) if has_value.any() else None


def places_in_runs(numbers: Ints | Rows) -> Column:
    """Returns each element's place, from 0, in its run of equal numbers."""
    begins = np.flatnonzero(np.diff(numbers, prepend=-1) != 0)
    lengths = np.diff(begins, append=len(numbers))
    places: Column = (np.arange(len(numbers)) - np.repeat(begins, lengths)).astype(np.int16)
    return places


def has_value(column: Column) -> Mask:
    """Returns where a scalar column has a value."""
    mask: Mask = ~np.isnan(column) if column.dtype == np.float64 else column >= 0
    return mask


def _grown(column: Column, count: int, unknown: float) -> Column:
    """Returns a longer copy; new slots are unknown."""
    grown = np.full(count, unknown, column.dtype)
    grown[: len(column)] = column
    return grown
