"""Makes items that were added to the catalogue after a version's training candidates of this version.

A new item gets a row behind the version's own rows: its attributes become the inputs of the graph, other inputs are unknown. So the version
scores it as an item of the training that nobody liked. An item that is older than the version's items table is not new: the table has
removed it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from services.gateway.attributes import Attributes, Ints, nothing, places_in_runs
from services.gateway.loaded_version import Array, LoadedVersion
from shared.contracts.items_table import AttributeInput, NewItems
from shared.serving.nearest import Rows
from shared.serving.signature import BLANK, DataType
from shared.telemetry.outages import Outages

log = logging.getLogger(__name__)

MOST, FEWEST = 10_000, 1_000
"""Maximum new items of a version: as many as it has own items, but between these bounds."""
RETRY = 1.0
"""Seconds after a failure until the next attempt."""
REST, SHORT = 9.0, 0.02
"""Pause after new columns were made, as a multiple of the seconds that it took, unless it was short: the same thread reads routes."""
_LARGEST = 2.0**63
_RANGE = 10.0
"""A number is unknown if it is this many times larger than all of the version's: a network gives no usable score for it."""
_NO_WORD = "\uffff"
"""A character that no text has: words of it are unknown to every version."""


@dataclass(frozen=True, eq=False)
class Extension:
    """The new items of a version, and what they were made of."""

    state: Attributes
    absent: Rows
    """Slots of all items that the version does not have."""
    slots: Rows
    """Slots of the new items, the newest first, with their revisions and their values for each item input."""
    revisions: Ints
    columns: Mapping[str, Array]
    extended: LoadedVersion | None = None
    """None: the version itself, without new items."""
    rests_until: float = 0.0
    stale: bool = False
    """Whether changes wait for the end of the rest."""


@dataclass(frozen=True, eq=False)
class CatalogueView:
    """A state of a catalogue, and the served versions with its new items."""

    attributes: Attributes
    extensions: Mapping[LoadedVersion, Extension]

    def unit(self, unit: LoadedVersion) -> LoadedVersion:
        """Returns the version with the new items."""
        extension = self.extensions.get(unit)
        return unit if extension is None or extension.extended is None else extension.extended

    @property
    def stale(self) -> bool:
        return any(extension.stale for extension in self.extensions.values())


EMPTY = CatalogueView(nothing(), {})
_NOTHING: Rows = np.empty(0, np.intp)
_FAILED = Extension(EMPTY.attributes, _NOTHING, _NOTHING, np.empty(0, np.int64), {}, stale=True)


class CatalogueViews:
    """Makes the views, on one thread."""

    def __init__(self) -> None:
        self._outages = Outages(log)

    def view(
        self, name: str, units: Collection[LoadedVersion], attributes: Attributes, wanted: bool, former: CatalogueView
    ) -> CatalogueView:
        """Never raises: a version whose new items cannot be read stays without them."""
        extensions: dict[LoadedVersion, Extension] = {}
        for unit in units if wanted else ():
            if unit.new_items is None:
                continue
            key = (name, unit.version)
            try:
                extensions[unit] = _extension(unit, unit.new_items, attributes, former.extensions.get(unit))
                self._outages.succeed(key, "new items: recovered recommender=%s version=%d", *key)
            except Exception as error:
                self._outages.fail(key, "new items: left out recommender=%s version=%d error=%s", *key, error, error=error)
                extensions[unit] = replace(_FAILED, rests_until=time.monotonic() + RETRY)
        made = CatalogueView(attributes, extensions)
        for unit in units:
            attributes.slots.align(made.unit(unit))  # so that no request waits for it
        return made


def _extension(unit: LoadedVersion, reading: NewItems, state: Attributes, former: Extension | None) -> Extension:
    if former is not None and former.state is state and not former.stale:
        return former
    same_slots = former is not None and former.state.slots is state.slots
    absent = former.absent if former is not None and same_slots else state.slots.of[~unit.has(state.slots.keys)]
    slots = _newest(absent, state, reading.since.timestamp(), min(MOST, max(FEWEST, unit.own_rows)))
    revisions = state.revisions[slots]
    if former is not None:
        former = replace(former, state=state, absent=absent, stale=False)
        if np.array_equal(slots, former.slots) and np.array_equal(revisions, former.revisions):
            return former
        if time.monotonic() < former.rests_until:
            return replace(former, stale=True)
    began = time.monotonic()
    columns = _columns(unit, reading, state, slots)
    extended = None
    if former is not None and _equal(columns, former.columns):
        extended = former.extended  # clients cache its columns
    elif len(slots):
        ids = [state.ids[slot] for slot in slots.tolist()] if unit.item_ids is not None else []
        extended = unit.with_new_items(columns, ids)
    ended = time.monotonic()
    rests_until = ended + REST * (ended - began) if ended - began > SHORT else 0.0
    return Extension(state, absent, slots, revisions, columns, extended, rests_until)


def _equal(columns: Mapping[str, Array], others: Mapping[str, Array]) -> bool:
    return all(name in others and column.tobytes() == others[name].tobytes() for name, column in columns.items())


def _newest(absent: Rows, state: Attributes, since: float, most: int) -> Rows:
    """Returns the slots of available new items, the newest first."""
    new = absent[state.available[absent] & (state.created[absent] > since)]
    newest: Rows = new[np.lexsort((new, -state.created[new]))][:most]
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
    text = own.dtype.kind == "U"
    if own.ndim == 2 and source.separator is None:
        return _lists(own, column, source.attribute, state, slots)
    scalars = state.scalars.get((source.attribute, "text" if text or own.ndim == 2 else "number"))
    if scalars is None:
        return column
    if own.ndim == 1:
        return _words(own, state, scalars[slots]) if text else _numbers(own, scalars[slots])
    codes, inverse = np.unique(scalars[slots], return_inverse=True)
    distinct = np.full((len(codes), own.shape[1]), _blank(own), own.dtype)
    for row, code in enumerate(codes.tolist()):
        words = [_word(own, word) for word in state.words[code].split(source.separator) if word] if code >= 0 else []
        distinct[row, : len(words)] = words[: own.shape[1]]
    return distinct[inverse]


def _lists(own: Array, column: Array, attribute: str, state: Attributes, slots: Rows) -> Array:
    """Fills the column with the values of a list attribute, in their order."""
    text = own.dtype.kind == "U"
    pairs = state.lists.get((attribute, "texts" if text else "numbers"))
    if pairs is None:
        return column
    row_of = np.full(len(state.available), -1, np.intp)
    row_of[slots] = np.arange(len(slots))
    rows = row_of[pairs.slots]
    chosen = np.flatnonzero(rows >= 0)
    chosen = chosen[np.lexsort((pairs.places[chosen], rows[chosen]))]
    values = _words(own, state, pairs.values[chosen]) if text else _numbers(own, pairs.values[chosen])
    there = values != _blank(own)
    rows, values = rows[chosen][there], values[there]
    places = places_in_runs(rows)
    fits = places < own.shape[1]
    column[rows[fits], places[fits]] = values[fits]
    return column


def _words(own: Array, state: Attributes, codes: Array) -> Array:
    distinct, inverse = np.unique(codes, return_inverse=True)
    words = np.array([_word(own, state.words[code]) if code >= 0 else "" for code in distinct.tolist()], own.dtype)
    return words[inverse]


def _numbers(own: Array, values: Array) -> Array:
    if own.dtype == np.float32:
        largest = np.abs(own[np.isfinite(own)]).max(initial=0)
        return np.where(np.abs(values) <= _RANGE * largest, values, np.nan).astype(np.float32)
    floors = np.floor(values)
    there = np.abs(floors) < _LARGEST
    numbers = np.full(len(values), _blank(own), np.int64)
    numbers[there] = floors[there].astype(np.int64)
    return numbers


def _word(own: Array, text: str) -> str:
    """Returns the text, or an unknown word if it is longer than all texts of the version: a wider column would make all rows wider."""
    longest = own.dtype.itemsize // 4
    return text if len(text) <= longest else _NO_WORD * longest


def _blank(own: Array) -> int | float | str:
    kinds: Mapping[str, DataType] = {"U": "string", "i": "int64", "f": "float32"}
    return BLANK[kinds[own.dtype.kind]]
