"""Ports for the catalogue and for feature values that answers need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from shared.domain.attributes import Value
from shared.domain.catalogue import ItemWrite, Times
from shared.domain.feature_values import StoredRow


@dataclass(frozen=True)
class CatalogueItem:
    """Item of the catalogue. A deleted item stays as a tombstone: not available, and without attributes."""

    item: int
    attributes: Mapping[str, Value]
    available: bool = True
    deleted: bool = False
    revision: int = 0
    """Rises with every change of any item of the recommender; unique for each item."""
    updated_at: datetime | None = None
    id: str | None = None
    """The item's id if it is text; `item` is its key."""
    times: Times = field(default_factory=dict, compare=False)
    created_at: datetime | None = field(default=None, compare=False)
    """Time of the first write, after the last deletion if there was one; of an item of the items table, the time of the table."""


@dataclass(frozen=True)
class SeedRow:
    """Item of the items table with its known attributes."""

    attributes: Mapping[str, Value]
    id: str | None = None


@dataclass(frozen=True)
class CatalogueHead:
    revision: int
    """Revision of the newest change."""
    cleared: int
    """Revision at which the catalogue was cleared; an older copy must start again."""


@dataclass(frozen=True)
class SeedProgress:
    """Newest seed of a catalogue: the attributes of the items table that were published with a version."""

    version: int
    digest: str
    left: int
    """Number of parts that are not applied yet."""


class Catalogue(Protocol):
    """Items of recommenders with their attributes. Each call is atomic for readers."""

    def put(self, recommender: str, writes: Sequence[ItemWrite], now: datetime, overwrite: bool) -> int:
        """Writes items; returns how many changed. With `overwrite` a write replaces the item, which is available by default; else only
        named attributes change, and missing items are created. Several writes of one item apply in order. Of an unchanged item
        only the times of the write are stored. Raises NotFound if the recommender was deleted, and Invalid if items with different ids have
        one key."""

    def delete(self, recommender: str, items: Sequence[int], now: datetime) -> int:
        """Deletes items; returns how many existed. Raises NotFound as above."""

    def get(self, recommender: str, item: int) -> CatalogueItem:
        """Raises NotFound if the item does not exist or was deleted."""

    def page(self, recommender: str, limit: int, after: int | None = None) -> Sequence[CatalogueItem]:
        """Returns items sorted by key, without deleted ones."""

    def seed(self, recommender: str, rows: Mapping[int, SeedRow], at: datetime) -> int:
        """Applies attributes of the items table as of `at` by `shared.domain.catalogue.seeded`; returns how many items changed. Raises
        NotFound and Invalid as above."""

    def mark_seed(self, recommender: str, progress: SeedProgress) -> None: ...

    def seeds(self) -> Mapping[str, SeedProgress]:
        """Returns the newest seed of each recommender that has one."""

    def names(self, recommender: str) -> Collection[str]:
        """Returns the names of all attributes that any item has or had."""

    def heads(self) -> Mapping[str, CatalogueHead]:
        """Returns the head of each recommender that ever had items."""

    def changes(self, recommender: str, since: int, limit: int) -> Sequence[CatalogueItem]:
        """Returns the current state of items that changed after the revision, sorted by revision, with deleted ones."""


@dataclass(frozen=True)
class FeatureRows:
    """Feature values of keys at a moment, by view and key. Keys without values are left out."""

    rows: Mapping[tuple[str, int], StoredRow]
    expired: Mapping[tuple[str, int], datetime]
    """Event times of values that are too old."""


class FeatureStore(Protocol):
    """Newest values of each key, for reads during answers. A view is only a name; `NAME@7` has the values that version 7 was published
    with. The state does not depend on the order or the repetition of writes."""

    def write(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        """Writes each row as a whole, unless a row of its key with a greater rank exists. A view without a mark gets the mark 0. Returns
        how many rows are new."""

    def read(self, recommender: str, views: Mapping[str, timedelta | None], keys: Collection[int], now: datetime) -> FeatureRows:
        """Reads in one round trip. `views` has the time to live of each view; values with a future event time are left out."""

    def mark(self, recommender: str, view: str, count: int) -> None:
        """Sets the load progress of a view. Equally durable as the rows, so that rows and mark are lost together."""

    def marks(self) -> Mapping[tuple[str, str], int]:
        """Returns the marks of all views that have or had rows, by recommender and view."""

    def forget(self, recommender: str, view: str) -> None:
        """Deletes the rows and the mark of a view."""

    def forget_key(self, recommender: str, view: str, key: int) -> int:
        """Deletes the row of a key; returns rows."""

    def keys(self, recommender: str, view: str) -> Collection[int]:
        """Returns all keys of a view."""


class FeatureHistory(Protocol):
    """All values ever written to views, so that training sees the values that serving saw."""

    def append(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        """Appends durably; of rows with equal key and time the greatest rank stays. Returns how many rows are new."""

    def as_of(
        self, recommender: str, view: str, lookups: Sequence[tuple[int, datetime]], ttl: timedelta | None
    ) -> Sequence[StoredRow | None]:
        """Returns the value valid at each key and time: the newest row at or before the time, unless it was older than `ttl`."""

    def latest(self, recommender: str, view: str, limit: int, after: int | None = None) -> Sequence[StoredRow]:
        """Returns the newest row of each key, by ascending key; `after` is the last key of the previous page."""

    def views(self) -> Collection[tuple[str, str]]:
        """Returns every recommender and view with rows."""

    def export(self, recommender: str, view: str, until: datetime, to: Path) -> int:
        """Writes all rows before `until` as JSON lines (key, at in microseconds since 1970, values), by key and time; returns rows."""

    def trim(self, recommender: str, before: datetime) -> int:
        """Deletes rows before `before` that have a successor at or before it, so lookups at later times do not change. Returns how many."""

    def forget(self, recommender: str) -> None: ...

    def forget_key(self, recommender: str, key: int) -> int:
        """Deletes the rows of a key in all views; returns rows."""

    def keys(self, recommender: str) -> Collection[int]:
        """Returns the keys that have rows in any view."""
