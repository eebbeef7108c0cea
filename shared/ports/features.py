"""What is known of items and users while requests are answered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from shared.domain.attributes import Value
from shared.domain.catalogue import ItemWrite
from shared.domain.feature_values import StoredRow


@dataclass(frozen=True)
class CatalogueItem:
    """What is known of an item. One that was deleted stays as a sign of that: it isn't available, and has no attributes."""

    item: int
    attributes: Mapping[str, Value]
    available: bool = True
    deleted: bool = False
    revision: int = 0
    """Rises with every change of any item of the recommender; no two items have the same."""
    updated_at: datetime | None = None


@dataclass(frozen=True)
class CatalogueHead:
    revision: int
    """Of the newest change."""
    cleared: int
    """The revision at which all was forgotten: a copy that is older begins anew."""


class Catalogue(Protocol):
    """Items of recommenders with their attributes. One call is one change: a reader sees all of it or nothing."""

    def put(self, recommender: str, writes: Sequence[ItemWrite], now: datetime, overwrite: bool) -> int:
        """`overwrite`: an item is then what is said of it, and available unless told otherwise. Else only what is named changes, and an
        item that isn't there is made. Of two writes of one item the last one counts, or builds upon the first. What changes
        nothing writes nothing: returns how many items changed. NotFound where the recommender was deleted."""

    def delete(self, recommender: str, items: Sequence[int], now: datetime) -> int:
        """Returns how many were there; what isn't there is fine. NotFound as above."""

    def get(self, recommender: str, item: int) -> CatalogueItem:
        """NotFound where there is none, or none any more."""

    def page(self, recommender: str, limit: int, after: int | None = None) -> Sequence[CatalogueItem]:
        """In the order of their keys, without those that were deleted."""

    def heads(self) -> Mapping[str, CatalogueHead]:
        """Of each recommender that ever had items."""

    def changes(self, recommender: str, since: int, limit: int) -> Sequence[CatalogueItem]:
        """Items as they are now that have changed after that revision, in the order of their revisions, deleted ones too."""


@dataclass(frozen=True)
class FeatureRows:
    """What a feature store says of keys at a moment, by view and key. What it says nothing of isn't there."""

    rows: Mapping[tuple[str, int], StoredRow]
    expired: Mapping[tuple[str, int], datetime]
    """What is there and too old to be a value, with its event time."""


class FeatureStore(Protocol):
    """The newest values of each key, to be read while somebody waits. A view here is a name alone; `NAME@7` holds what version 7 was
    published with. What stands follows from the rows written, whatever their order and however often they are."""

    def write(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        """A row stands unless there is one of its key with a greater rank; whole, never in part. Marks the view with 0 where it has no
        mark. Returns how many stand now that didn't before."""

    def read(self, recommender: str, views: Mapping[str, timedelta | None], keys: Collection[int], now: datetime) -> FeatureRows:
        """In one round trip. By view, how old a value may be; one whose time is still to come isn't there yet."""

    def mark(self, recommender: str, view: str, count: int) -> None:
        """Notes how far something has been loaded, in the place of what was noted. Durable as the rows are: who loses these loses it."""

    def marks(self) -> Mapping[tuple[str, str], int]:
        """Every view that holds or held anything, by recommender and view."""

    def forget(self, recommender: str, view: str) -> None:
        """Its rows and its mark."""


class FeatureHistory(Protocol):
    """What was ever written to views, so that training sees what serving saw."""

    def append(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        """Durable when it returns; of two rows of a key and time the one of the greater rank stays. Returns how many are new."""

    def as_of(
        self, recommender: str, view: str, lookups: Sequence[tuple[int, datetime]], ttl: timedelta | None
    ) -> Sequence[StoredRow | None]:
        """For each key and time what counted then: the newest row at or before it, unless it was older than `ttl` by then."""

    def latest(self, recommender: str, view: str, limit: int, after: int | None = None) -> Sequence[StoredRow]:
        """The newest row of each key, by ascending key; `after` is the last key of the previous page."""

    def views(self) -> Collection[tuple[str, str]]:
        """Every recommender and view that it holds anything of."""

    def export(self, recommender: str, view: str, until: datetime, to: Path) -> int:
        """Writes all rows before `until` as JSON lines (key, at in microseconds since 1970, values), by key and time; returns rows."""

    def trim(self, recommender: str, before: datetime) -> int:
        """Drops what has been out of date since then: rows before it that have a successor at or before it. So what counted at any later
        moment still does. Returns how many."""

    def forget(self, recommender: str) -> None: ...
