"""Old events leave the database, and training reads the same rows as if they had stayed, whatever dies on the way."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.eventlog import deletion
from services.eventlog.tables import instant, interactions, length
from shared.contracts.archive import KEYS, TABLES
from shared.contracts.events import Interaction
from shared.domain.archive import DAY, REFUSAL_LEAD, start_of, stretches, too_old_before
from shared.domain.errors import Damaged
from shared.telemetry import metrics
from shared.testing.event_suite import ATTRIBUTION, did, shown
from tests.support.compaction import NOW, SPEC, Place
from tests.support.compaction_deaths import Fate, Mortal
from tests.support.event_pair import OF, Pair, aged_pair
from tests.support.simulated_platform import Death

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
    pair.rest(3)
    for table in TABLES:
        stored, limit = pair.stored(table), instant(too_old_before(pair.now, SPEC.horizon(table)))
        younger = [at for at in pair.stored(table, pair.twin) if at >= limit]
        assert [at for at in stored if at >= limit] == younger, "nothing younger is deleted"
        assert all(at >= limit - length(2 * DAY) for at in stored), "everything older is, within two days"
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
        assert max(newest) <= 3 * (SPEC.horizon(table).days + 4)
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
    pair = aged_pair(folder / str(at), timedelta(days=1), timedelta(days=2))
    fate = Fate(at)
    dying = pair.make_retention(Mortal(pair.place.deletion, fate), Mortal(pair.place.store, fate))
    try:
        pair.rest(3, dying)
    except Death:
        assert pair.same(pair.now - timedelta(days=41, hours=9))
    pair.rest(3, pair.make_retention())
    assert [pair.stored(table) for table in TABLES] == [[], []] and pair.same()
    return fate.left <= 0


def test_days_are_kept_while_the_archive_lacks_rows_or_files_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair(tmp_path)
    pair.happens(timedelta(days=2), timedelta(days=1))
    pair.place.clock.time += timedelta(days=45)
    with caplog.at_level(logging.INFO):
        pair.rest(5)
    assert [len(pair.stored(table)) for table in TABLES] == [2, 2]
    assert "day stays in the database recommender=films table=interactions day=2026-03-18 stored=1 archived=0" in caplog.text
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
    pair = aged_pair(tmp_path, timedelta(days=1))
    pair.rest(2)
    assert pair.place.deletion.marks("films", "interactions").refused_before == date(2026, 3, 25)
    with pair.place.engine.begin() as late:
        values = {"recommender": "films", "user": 9, "item": 10, "positive": True, "at": instant(NOW - DAY), "kind": "click"}
        late.execute(interactions.insert().values(values))
    pair.twin.log.interactions([Interaction(recommender="films", user=9, item=10, kind="click", at=NOW - DAY)], [True], ATTRIBUTION)
    pair.rest(2)
    assert [len(pair.stored(table)) for table in TABLES] == [2, 0] and pair.same()
    pair.compact()
    pair.rest(1)
    assert [len(pair.stored(table)) for table in TABLES] == [0, 0] and pair.same()


def test_events_of_a_refused_day_are_left_out_counted_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair(tmp_path)
    pair.happens(timedelta(days=1))
    pair.place.clock.time += timedelta(days=45)
    pair.rest(1)
    pair.place.clock.time += timedelta(hours=6)
    pair.retention.step()
    refused = {table: start_of(pair.place.deletion.marks("films", table).refused_before or NOW.date()) for table in TABLES}
    assert refused == {table: too_old_before(pair.now, SPEC.horizon(table)) for table in TABLES}
    before = metrics.TOO_OLD.labels("films")._value.get()
    log, least = pair.place.log, timedelta(microseconds=1)
    at = refused["interactions"]
    result = log.interactions([did(1, at - least, id="a"), did(2, at, id="b"), did(2, at, id="b")], [True] * 3, ATTRIBUTION)
    assert (result.new, result.duplicates, result.too_old) == (1, 1, 1)
    log.impressions([shown("old", refused["impressions"] - least), shown("young", refused["impressions"])])
    log.impressions([shown("older", refused["impressions"] - DAY)])
    assert metrics.TOO_OLD.labels("films")._value.get() == before + 3
    assert "event log: events of refused days are left out recommender=films table=interactions events=1" in caplog.text
    assert len(pair.stored("interactions")) == len(pair.stored("impressions")) == 2


def test_a_snapshot_is_read_again_if_days_are_deleted_meanwhile(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.happens(timedelta(days=1), timedelta(days=2))
    pair.place.clock.time += timedelta(days=40)
    pair.rest(2)
    pair.place.clock.time += REFUSAL_LEAD
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


def test_days_are_deleted_a_day_after_they_are_refused_and_refused_a_day_after_they_are_noticed(tmp_path: Path) -> None:
    pair = aged_pair(tmp_path, timedelta(days=1))
    begin, hour = pair.now, timedelta(hours=1)
    for hours in range(50):
        pair.place.clock.time = begin + hours * hour
        pair.retention.step()
        marks = pair.place.deletion.marks("films", "interactions")
        assert (marks.refused_before == date(1970, 1, 1)) == (hours < 24), "noticed only"
        assert (marks.deleted_before is not None) == (hours >= 48)
        assert (pair.stored("interactions") == []) == (hours >= 48)


def test_a_longer_time_in_the_spec_stops_a_deletion_that_has_not_begun(tmp_path: Path) -> None:
    pair = aged_pair(tmp_path, timedelta(days=1), timedelta(days=10))
    pair.rest(2)
    assert pair.place.deletion.marks("films", "interactions").refused_before == date(2026, 3, 25)
    pair.recommenders.keep = {"impressions": "400d", "interactions": "400d"}
    pair.rest(10)
    assert [len(pair.stored(table)) for table in TABLES] == [2, 2]
    assert pair.place.log.interactions([did(1, pair.now - timedelta(days=300))], [True], ATTRIBUTION).new == 1


def test_a_clock_that_was_ahead_deletes_no_event_that_is_not_archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path)
    monkeypatch.setattr(deletion, "time", SimpleNamespace(time_ns=lambda: 1000 * instant(pair.now)))
    pair.happens(timedelta(days=1), timedelta(days=2))
    pair.compact()
    before = pair.now
    pair.place.clock.time += timedelta(days=800)
    pair.rest(3)
    assert pair.stored("interactions") == [] and pair.same()
    pair.place.clock.time = before + timedelta(hours=1)
    pair.happens(timedelta(0), timedelta(minutes=30), timedelta(days=3))
    pair.rest(3, pair.make_retention())
    assert len(pair.stored("interactions")) == 3 and pair.same()
    pair.compact()
    pair.rest(2)
    assert len(pair.stored("interactions")) == 3 and pair.same()


def test_an_archive_without_its_compactions_stops_training(tmp_path: Path) -> None:
    pair = aged_pair(tmp_path, timedelta(days=1))
    pair.rest(3)
    assert pair.same() and pair.stored("interactions") == []
    for manifest in (pair.place.folder / "artifacts/manifests").glob("compacted-films-*"):
        manifest.unlink()
    message = r"the artifact store has 0 compactions, but the days before 2026-03-\d\d were deleted from the database after 1; restore"
    with pytest.raises(Damaged, match=message):
        pair.same()


def test_a_run_does_not_need_files_of_days_that_it_does_not_read(tmp_path: Path) -> None:
    pair = aged_pair(tmp_path, timedelta(days=1))
    pair.rest(3)
    pair.happens(timedelta(days=1))
    blob_of(pair.place, "interactions/date=2026-03-19/part-00000.parquet").unlink()
    assert pair.place.read(pair.now - timedelta(days=5), pair.now).height == 1


def test_a_deleted_day_that_contains_the_begin_comes_from_its_files() -> None:
    first, rows = NOW.date(), {NOW.date(): 3}
    noon, end = start_of(first) + timedelta(hours=12), start_of(first) + 5 * DAY
    parts = list(stretches(noon, end, rows, rows, first + DAY))
    assert [(part.since, part.until, part.day) for part in parts] == [
        (noon, start_of(first) + DAY, first),
        (start_of(first) + DAY, end, None),
    ]
    assert [part.day for part in stretches(noon, end, rows, rows, first)] == [None]


def test_keys_of_the_archive_are_those_of_the_tables() -> None:
    assert {table: [column.name for column in OF[table].primary_key] for table in TABLES} == {table: [KEYS[table]] for table in TABLES}
