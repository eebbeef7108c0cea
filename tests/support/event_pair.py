"""Two logs with the same events. The first deletes old events and forgotten users; the second deletes forgotten users only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
from sqlalchemy import select

from services.control.event_retention import EventRetention
from services.control.snapshots import Snapshots
from services.eventlog.tables import impressions, interactions
from shared.contracts.archive import EventTable
from shared.contracts.spec import parse_spec
from shared.contracts.stage import Files
from shared.domain.entity_ids import IdHash
from shared.ports import Recommender
from shared.testing.event_suite import ATTRIBUTION, did, shown
from tests.support.compaction import EVERY, NOW, Place, Recommenders

OF = {"interactions": interactions, "impressions": impressions}


class ChangeableRecommenders(Recommenders):
    keep: Mapping[str, str] | None = None

    def get(self, name: str) -> Recommender:
        recommender = super().get(name)
        spec = recommender.spec if self.keep is None else parse_spec(json.dumps(recommender.spec.document() | {"keep": self.keep}))
        return replace(recommender, spec=spec)


class Pair:
    """A log with a retention, and a twin that gets the same events and deletes none."""

    def __init__(self, folder: Path) -> None:
        self.place, self.twin = Place(folder / "place"), Place(folder / "twin")
        self.compactor = self.place.compactor()
        self.recommenders: Any = ChangeableRecommenders()
        self.retention = self.make_retention()
        self._number = 0

    def make_retention(self, deletion: Any = None, artifacts: Any = None) -> EventRetention:
        deletion, artifacts = deletion or self.place.deletion, artifacts or self.place.store
        stores = (self.place.days, deletion, self.place.forgotten, artifacts)
        return EventRetention(self.recommenders, *stores, self.place.clock, EVERY, sleep=lambda _: None)

    @property
    def now(self) -> datetime:
        return self.place.clock.time

    def happens(self, *ages: timedelta) -> None:
        """Writes an impression and an interaction for each age."""
        for age in ages:
            self._number += 1
            at, user = self.now - age, self._number % 5
            for log in (self.place.log, self.twin.log):
                log.impressions([shown(f"q{self._number}", at, user=user)])
                log.interactions([did(10, at, user=user, value=self._number + 0.5, kind="rating")], [True], ATTRIBUTION)

    def forget(self, user: int) -> None:
        for place in (self.place, self.twin):
            place.forgotten.forget("films", user, lambda: self.now)

    def compact(self) -> None:
        self.place.settle(self.compactor)

    def rest(self, days: int, retention: EventRetention | None = None) -> None:
        """Lets days pass, with a look of the retention every six hours."""
        for _ in range(4 * days):
            self.place.clock.time += timedelta(hours=6)
            (retention or self.retention).step()

    def same(self, since: datetime | None = None) -> bool:
        until = self.now + timedelta(seconds=1)
        return self.place.read(since, until).equals(self.twin.plain(since, until)) and self._shown(self.place) == self._shown(self.twin)

    def _shown(self, place: Place) -> list[str]:
        until = self.now + timedelta(seconds=1)
        snapshots = Snapshots(place.log, place.days, place.deletion, place.store, IdHash(b"test"), place.forgotten)
        files = snapshots.answers("films", NOW - timedelta(days=1000), until, None)
        frames = [self._frame(place, files, name) for name in files if name.startswith("impressions/")]
        return sorted(pl.concat(frames)["request_id"].to_list()) if frames else []

    @staticmethod
    def _frame(place: Place, files: Files, name: str) -> pl.DataFrame:
        path = place.store.fetch(files[name], place.folder / "answers")
        return (pl.read_ndjson if name.endswith(".ndjson") else pl.read_parquet)(path).select("request_id")

    def stored(self, table: EventTable, place: Place | None = None) -> list[int]:
        with (place or self.place).engine.connect() as connection:
            return sorted(connection.execute(select(OF[table].c.at)).scalars())


def aged_pair(folder: Path, *ages: timedelta) -> Pair:
    """Returns a pair whose events are archived, and now 40 days older."""
    pair = Pair(folder)
    pair.happens(*ages)
    pair.compact()
    pair.place.clock.time += timedelta(days=40)
    return pair
