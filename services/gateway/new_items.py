"""Items that the catalogue got after a version's training, as candidates of this version.

A new item gets a row behind the version's own rows: its attributes become the inputs of the graph, other inputs are unknown. So the version
scores it as an item of the training that nobody liked. An item that is older than the version's items table is not new: the table has
removed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from services.gateway.attributes import Attributes, ListAttribute, Slots
from services.gateway.loaded_version import Array, LoadedVersion
from shared.contracts.items_table import AttributeInput, NewItems
from shared.serving.nearest import Rows
from shared.serving.signature import BLANK, DataType

MOST = 10_000
"""Maximum new items of a version."""
_LARGEST = 2.0**63
_UNHEARD = "\uffff"
"""Character of a word that no version knows."""


@dataclass(frozen=True, eq=False)
class _Extended:
    """A version with new items, and what they were made of."""

    state: Attributes
    absent: Rows
    """Slots of all items that the version does not have."""
    columns: Mapping[str, Array]
    unit: LoadedVersion


class ExtendedVersions:
    """One thread follows, any thread reads."""

    def __init__(self) -> None:
        self._extended: WeakKeyDictionary[LoadedVersion, _Extended] = WeakKeyDictionary()

    def of(self, unit: LoadedVersion) -> LoadedVersion:
        """Returns the version with the new items of the catalogue."""
        extended = self._extended.get(unit)
        return unit if extended is None else extended.unit

    def follow(self, unit: LoadedVersion, state: Attributes, wanted: bool) -> None:
        """Takes the new items of a state. Costs little if they are the same as before."""
        if unit.new_items is None or not wanted:
            self._extended.pop(unit, None)
        else:
            self._follow(unit, unit.new_items, state)
        state.slots.align(self.of(unit))  # so that no request waits for it

    def _follow(self, unit: LoadedVersion, reading: NewItems, state: Attributes) -> None:
        former = self._extended.get(unit)
        if former is not None and former.state is state:
            return
        absent = former.absent if former is not None and former.state.slots is state.slots else _absent(unit, state.slots)
        slots = _newest(absent, state, reading.since.timestamp())
        columns = _columns(unit, reading, state, slots)
        before = {name: column[:0] for name, column in unit.columns.items()} if former is None else former.columns
        extended = unit if former is None else former.unit
        if any(column.tobytes() != before[name].tobytes() for name, column in columns.items()):
            ids = [state.ids[slot] for slot in slots.tolist()] if unit.item_ids is not None else []
            extended = unit.with_new_items(columns, ids) if len(slots) else unit
        self._extended[unit] = _Extended(state, absent, columns, extended)


def _absent(unit: LoadedVersion, slots: Slots) -> Rows:
    return slots.of[~unit.has(slots.keys)]


def _newest(absent: Rows, state: Attributes, since: float) -> Rows:
    """Returns the slots of the new items, newest first, without unavailable ones."""
    new = absent[state.available[absent] & (state.written[absent] > since)]
    newest: Rows = new[np.lexsort((new, -state.written[new]))][:MOST]
    return newest


def _columns(unit: LoadedVersion, reading: NewItems, state: Attributes, slots: Rows) -> Mapping[str, Array]:
    """Returns the value of each item input for the items in these slots."""
    sources = {source.input: source for source in reading.inputs}
    keys = np.empty(len(state.slots.of), np.int64)
    keys[state.slots.of] = state.slots.keys
    return {
        name: keys[slots] if name == unit.item_input else _column(own, sources.get(name), state, slots)
        for name, own in unit.columns.items()
    }


def _column(own: Array, source: AttributeInput | None, state: Attributes, slots: Rows) -> Array:
    """Returns an input's values, unknown without a source; `own` has the values of the version's items."""
    column = np.full((len(slots), *own.shape[1:]), _blank(own), own.dtype)
    if source is None:
        return column
    kind = "text" if own.dtype.kind == "U" else "number"
    if own.ndim == 2 and source.separator is None:
        pairs = state.lists.get((source.attribute, "texts" if kind == "text" else "numbers"))
        values = {} if pairs is None else _lists(pairs, slots)
        for row, slot in enumerate(slots.tolist()):
            _fill(column[row], [_word(own, state.words[int(value)]) if kind == "text" else value for value in values.get(slot, ())])
        return column
    scalars = state.scalars.get((source.attribute, "text" if own.ndim == 2 or kind == "text" else "number"))
    if scalars is None:
        return column
    if own.ndim == 1 and kind == "number":
        return _numbers(scalars[slots], own, column)
    for row, code in enumerate(scalars[slots].tolist()):
        text = state.words[code] if code >= 0 else ""
        if own.ndim == 1:
            column[row] = _word(own, text)
        else:
            _fill(column[row], [_word(own, word) for word in text.split(source.separator) if word])
    return column


def _lists(pairs: ListAttribute, slots: Rows) -> Mapping[int, list[float]]:
    """Returns the values of each slot."""
    lists: dict[int, list[float]] = {}
    chosen = np.isin(pairs.slots, slots)
    for slot, value in zip(pairs.slots[chosen].tolist(), pairs.values[chosen].tolist(), strict=True):
        lists.setdefault(slot, []).append(value)
    return lists


def _fill(row: Array, values: Sequence[str | float]) -> None:
    count = min(len(values), len(row))
    row[:count] = values[:count]


def _numbers(values: Array, own: Array, blank: Array) -> Array:
    if own.dtype == np.float32:
        with np.errstate(over="ignore"):
            return values.astype(np.float32)
    floors = np.floor(values)
    there = np.abs(floors) < _LARGEST
    blank[there] = floors[there].astype(np.int64)
    return blank


def _word(own: Array, text: str) -> str:
    """Returns the text, or an unknown word if it is longer than all texts of the version: a wider column would make all rows wider."""
    longest = own.dtype.itemsize // 4
    return text if len(text) <= longest else _UNHEARD * longest


def _blank(own: Array) -> int | float | str:
    kinds: Mapping[str, DataType] = {"U": "string", "i": "int64", "f": "float32"}
    return BLANK[kinds[own.dtype.kind]]
