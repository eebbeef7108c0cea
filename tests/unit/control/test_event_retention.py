"""Old events leave the database, and training reads the same rows as if they had stayed, whatever dies on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from services.control.event_retention import EventRetention
from services.control.snapshots import Snapshots
from services.eventlog.tables import impressions, instant, interactions, length
from shared.contracts.archive import KEYS, TABLES, EventTable
from shared.contracts.events import Interaction
from shared.contracts.stage import Files
from shared.domain.archive import DAY, PAUSE, start_of, too_old_before
from shared.domain.entity_ids import IdHash
from shared.domain.errors import Damaged
from shared.telemetry import metrics
from shared.testing.event_suite import ATTRIBUTION, did, shown
from tests.support.compaction import EVERY, NOW, SPEC, Place, Recommenders
from tests.support.compaction_deaths import Fate, Mortal
from tests.support.simulated_platform import Death

OF = {"interactions": interactions, "impressions": impressions}


class Pair:
    """A log with a retention, and a twin that gets the same events and deletes none."""

    def __init__(self, folder: Path) -> None:
        self.place, self.twin = Place(folder / "place"), Place(folder / "twin")
        self.compactor = self.place.compactor()
        self.retention = self.make_retention()
        self._number = 0

    def make_retention(self, deletion: Any = None, artifacts: Any = None) -> EventRetention:
        deletion, artifacts = deletion or self.place.deletion, artifacts or self.place.store
        recommenders: Any = Recommenders()
        return EventRetention(recommenders, self.place.days, deletion, artifacts, self.place.clock, EVERY, sleep=lambda _: None)

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
        snapshots = Snapshots(place.log, place.days, place.deletion, place.store, IdHash(b"test"))
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


ages = st.lists(st.integers(0, 29 * 86_400).map(lambda seconds: timedelta(seconds=seconds)), max_size=4)
acts = st.lists(st.one_of(ages, st.just("compact"), st.integers(1, 20)), min_size=4, max_size=14)


@pytest.mark.requirement("U-11")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=acts, back=st.integers(0, 80 * 24))
def test_training_reads_the_same_rows_whatever_was_deleted_and_when(
    tmp_path_factory: pytest.TempPathFactory, acts: list[Any], back: int
) -> None:
    pair = Pair(tmp_path_factory.mktemp("pair"))
    for act in acts:
        if act == "compact":
            pair.compact()
        elif isinstance(act, int):
            pair.rest(act)
            assert pair.same(pair.now - timedelta(hours=back))
        else:
            pair.happens(*act)
    pair.rest(2)
    pair.compact()
    pair.rest(2)
    for table in TABLES:
        stored, limit = pair.stored(table), instant(too_old_before(pair.now, SPEC.keep.of(table)))
        younger = [at for at in pair.stored(table, pair.twin) if at >= limit]
        assert [at for at in stored if at >= limit] == younger, "nothing younger is deleted"
        assert all(at >= limit - length(DAY) for at in stored), "everything older is, within a day"
    assert pair.same()


@pytest.mark.requirement("U-11")
def test_the_database_stays_as_large_as_the_kept_days_under_steady_load(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    rows = []
    for _ in range(50):
        pair.happens(timedelta(hours=1), timedelta(hours=7), timedelta(hours=13))
        pair.rest(1)
        pair.compact()
        rows.append(tuple(len(pair.stored(table)) for table in TABLES))
    for number, table in enumerate(TABLES):
        newest = [row[number] for row in rows[-12:]]
        assert max(newest) - min(newest) <= 3, "flat after the horizon"
        assert max(newest) <= 3 * (SPEC.keep.of(table).days + 3)
    assert rows[20] == (63, 63)
    assert len(pair.place.read(None, pair.now)) == 150 and pair.same()


def test_a_deletion_that_dies_between_two_calls_is_finished_by_the_next_one(tmp_path: Path) -> None:
    """At every fifth of its calls: before, between and after the changes of the marks and of the rows."""
    numbers = itertools.count(1, 5)
    while dies_and_is_finished(tmp_path, next(numbers)):
        pass
    assert next(numbers) > 40


def dies_and_is_finished(folder: Path, at: int) -> bool:
    """Returns False if the deletion ended before the call of this number."""
    pair = Pair(folder / str(at))
    pair.happens(timedelta(days=1), timedelta(days=2))
    pair.compact()
    pair.place.clock.time += timedelta(days=40)
    fate = Fate(at)
    dying = pair.make_retention(Mortal(pair.place.deletion, fate), Mortal(pair.place.store, fate))
    try:
        pair.rest(1, dying)
    except Death:
        assert pair.same(pair.now - timedelta(days=41, hours=12))
    pair.rest(1, pair.make_retention())
    assert [pair.stored(table) for table in TABLES] == [[], []] and pair.same()
    return fate.left <= 0


def test_days_are_kept_while_the_archive_lacks_rows_or_files_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair(tmp_path)
    pair.happens(timedelta(days=2), timedelta(days=1))
    pair.place.clock.time += timedelta(days=45)
    pair.rest(3)
    assert [len(pair.stored(table)) for table in TABLES] == [2, 2]
    assert "events: kept, the archive lacks rows recommender=films table=interactions day=2026-03-18" in caplog.text
    pair.compact()
    blob = blob_of(pair.place, "impressions/date=2026-03-19/part-00000.parquet")
    content = blob.read_bytes()
    blob.unlink()
    pair.rest(1)
    assert [len(pair.stored(table)) for table in TABLES] == [0, 1]
    assert pair.same()
    blob.write_bytes(content)
    pair.rest(1)
    assert [len(pair.stored(table)) for table in TABLES] == [0, 0] and pair.same()
    blob.unlink()
    with pytest.raises(
        Damaged, match=r"the file impressions/date=2026-03-19/part-00000\.parquet is missing, and the database does not have"
    ):
        pair.same()


def blob_of(place: Place, name: str) -> Path:
    part = place.folder / "artifacts/events/films" / name
    return next(path for path in (place.folder / "artifacts/blobs").rglob("*") if path.is_file() and path.samefile(part))


def test_an_event_that_arrives_in_the_pause_is_archived_before_its_day_is_deleted(tmp_path: Path) -> None:
    """A transaction that began before the refusal may end after it."""
    pair = Pair(tmp_path)
    pair.happens(timedelta(days=1))
    pair.compact()
    pair.place.clock.time += timedelta(days=40)
    pair.retention.step()
    with pair.place.engine.begin() as late:
        values = {"recommender": "films", "user": 9, "item": 10, "positive": True, "at": instant(NOW - DAY), "kind": "click"}
        late.execute(interactions.insert().values(values))
    pair.twin.log.interactions([Interaction(recommender="films", user=9, item=10, kind="click", at=NOW - DAY)], [True], ATTRIBUTION)
    pair.rest(1)
    assert [len(pair.stored(table)) for table in TABLES] == [2, 0] and pair.same()
    pair.compact()
    pair.rest(1)
    assert [len(pair.stored(table)) for table in TABLES] == [0, 0] and pair.same()


def test_events_of_a_refused_day_are_left_out_counted_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair(tmp_path)
    pair.happens(timedelta(days=1))
    pair.place.clock.time += timedelta(days=45)
    pair.retention.step()
    refused = {table: start_of(pair.place.deletion.marks("films", table).refused_before or NOW.date()) for table in TABLES}
    assert refused == {table: too_old_before(pair.now, SPEC.keep.of(table)) for table in TABLES}
    before = metrics.TOO_OLD.labels("films")._value.get()
    log, least = pair.place.log, timedelta(microseconds=1)
    at = refused["interactions"]
    result = log.interactions([did(1, at - least, id="a"), did(2, at, id="b"), did(2, at, id="b")], [True] * 3, ATTRIBUTION)
    assert (result.new, result.duplicates) == (1, 1)
    log.impressions([shown("old", refused["impressions"] - least), shown("young", refused["impressions"])])
    log.impressions([shown("older", refused["impressions"] - DAY)])
    assert metrics.TOO_OLD.labels("films")._value.get() == before + 3
    assert "event log: events of a deleted day are left out recommender=films table=interactions events=1" in caplog.text
    assert len(pair.stored("interactions")) == len(pair.stored("impressions")) == 2


def test_a_snapshot_is_read_again_if_days_are_deleted_meanwhile(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.happens(timedelta(days=1), timedelta(days=2))
    pair.place.clock.time += timedelta(days=40)
    pair.retention.step()
    pair.place.clock.time += PAUSE
    counts, busy = pair.place.days.counts, []

    def meanwhile(*parameters: Any) -> Any:
        """Compacts and deletes after the snapshot has seen days that are not compacted."""
        rows = counts(*parameters)
        if not busy:
            busy.append(True)
            pair.compact()
            pair.rest(1)
        return rows

    export: Callable[..., int] = pair.place.log.export

    def late(*parameters: Any) -> int:
        meanwhile("films", "interactions", pair.now)
        return export(*parameters)

    pair.place.log.export = late  # type: ignore[method-assign]
    assert pair.same()
    assert busy and pair.stored("interactions") == []


def test_keys_of_the_archive_are_those_of_the_tables() -> None:
    assert {table: [column.name for column in OF[table].primary_key] for table in TABLES} == {table: [KEYS[table]] for table in TABLES}
