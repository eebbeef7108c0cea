"""Forgotten users leave the archive of events, and training reads all other rows as before, whatever happens on the way."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.data.forgotten import ForgottenUserFilter
from services.control.archive import EventArchive
from services.control.garbage_collector import GarbageCollector
from shared.artifacts import FsspecTrash
from shared.artifacts.backups import BackupStore
from shared.contracts.archive import TABLES
from shared.contracts.backup import DatabaseKind, Tables
from shared.contracts.stage import FORGOTTEN_USERS, Failure, File, Manifest, StageSpec
from shared.domain.archive import DAY
from shared.domain.retention import Retention
from shared.testing.event_suite import ATTRIBUTION, did
from tests.support.compaction import EVERY, NOW, Place
from tests.support.compaction_deaths import Fate, Mortal
from tests.support.event_pair import Pair, aged_pair
from tests.support.garbage_collection import Clock as GarbageClock
from tests.support.garbage_collection import NoRollouts, Rows
from tests.support.simulated_platform import Death

pytestmark = pytest.mark.requirement("U-11")
AGES = [timedelta(days=days) for days in (1, 1, 2, 2, 3, 3, 4, 4, 5, 5)]
"""Two events of each of the users 0 to 4."""


def archived_users(place: Place) -> set[int]:
    return users_of_files(place.folder / "artifacts")


def empty_dump(path: Path) -> tuple[DatabaseKind, Tables]:
    path.write_text("no database")
    return "sqlite", Tables(revision="none", readable_by="none")


def users_of_files(folder: Path) -> set[int]:
    """Returns the users of all Parquet files in a folder, whatever names them."""
    users: set[int] = set()
    for path in folder.rglob("*"):
        if path.is_file() and path.read_bytes()[:4] == b"PAR1":
            users.update(pl.read_parquet(path)["user"].to_list())
    return users


def test_a_forgotten_user_is_in_no_file_of_the_archive_and_all_others_stay(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.happens(*AGES)
    pair.compact()
    assert archived_users(pair.place) == {0, 1, 2, 3, 4}
    pair.forget(1)
    pair.compact()
    assert archived_users(pair.place) == {0, 2, 3, 4}
    assert pair.place.forgotten.pending() == []
    pair.place.check(NOW.date())
    assert pair.same() and len(pair.place.read()) == 8


def test_the_archive_is_written_again_at_once_and_not_at_the_next_turn(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.happens(*AGES)
    pair.compact()
    pair.forget(1)
    for _ in range(3):
        pair.compactor.step()
    assert archived_users(pair.place) == {0, 2, 3, 4}
    assert [spec.mode for spec in pair.place.executor.started] == ["compact", "forget"]


def test_days_that_the_database_has_deleted_are_written_again_too(tmp_path: Path) -> None:
    pair = aged_pair(tmp_path, *AGES)
    pair.rest(4)
    assert [pair.stored(table) for table in TABLES] == [[], []]
    pair.forget(1)
    pair.compact()
    assert archived_users(pair.place) == {0, 2, 3, 4}
    assert pair.same() and len(pair.place.read(None, pair.now)) == 8


def test_a_user_who_was_everything_of_a_day_leaves_no_file_of_it(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.happens(timedelta(days=1))
    pair.compact()
    pair.forget(1)
    pair.compact()
    assert archived_users(pair.place) == set()
    assert not list((tmp_path / "place/artifacts/events").rglob("*.parquet"))
    pair.place.check(NOW.date())


def test_users_who_come_back_are_new_users(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.happens(*AGES)
    pair.forget(1)
    for log in (pair.place.log, pair.twin.log):
        log.interactions([did(10, NOW + EVERY, user=1)], [True], ATTRIBUTION)
    pair.place.clock.time += 3 * DAY
    pair.compact()
    assert archived_users(pair.place) == {0, 1, 2, 3, 4}
    assert pair.same() and len(pair.place.read(None, pair.now)) == 9


def test_until_the_archive_is_written_again_etl_leaves_the_user_out(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.happens(*AGES)
    pair.compact()
    pair.place.executor.lost = 1_000
    pair.forget(1)
    rows = pair.place.read()
    snapshots = pair.place.snapshots()
    path = pair.place.store.fetch(snapshots.forgotten("films")[FORGOTTEN_USERS], tmp_path / FORGOTTEN_USERS)
    kept_rows = ForgottenUserFilter.read(path).without(rows.lazy(), "user", pl.col("time")).collect()
    assert set(kept_rows["user"]) == {0, 2, 3, 4} and len(kept_rows) == 8


def test_a_late_result_of_a_lost_compaction_does_not_bring_a_user_back(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.happens(*AGES)
    pair.place.executor.lost = 1
    pair.compactor.step()
    (lost,) = pair.place.executor.started
    pair.forget(1)
    pair.place.executor.publish(lost, lost.attempt)
    pair.compact()
    assert archived_users(pair.place) == {0, 2, 3, 4}
    assert pair.same()


@pytest.mark.parametrize("same_bytes", [True, False])
def test_what_a_lost_compaction_publishes_after_the_forgetting_is_collected_and_in_no_backup(tmp_path: Path, same_bytes: bool) -> None:
    """With the same bytes it brings back a blob that an accepted compaction names, and that was erased."""
    pair = Pair(tmp_path)
    pair.happens(*AGES)
    pair.place.executor.lost = 1
    pair.compactor.step()
    (lost,) = pair.place.executor.started
    if same_bytes:
        pair.compact()
    pair.forget(1)
    pair.compact()
    assert archived_users(pair.place) == {0, 2, 3, 4}
    pair.place.executor.publish(lost, lost.attempt)
    assert 1 in archived_users(pair.place)
    backup = BackupStore(str(tmp_path / "backups")).take("test", pair.place.store.url, empty_dump, list, dict)
    assert not backup.missing and users_of_files(tmp_path / "backups") == {0, 2, 3, 4}
    rows, clock = Rows(GarbageClock()), GarbageClock()
    stores: Any = (rows, rows, rows, NoRollouts(), (rows, rows))
    for _ in range(3):
        clock.time += 2 * DAY
        GarbageCollector(FsspecTrash(pair.place.store.url), *stores, clock, Retention()).sweep()
    assert archived_users(pair.place) == {0, 2, 3, 4}
    pair.place.check(NOW.date())


def test_forgetting_that_dies_between_two_calls_is_finished_by_the_next_compactor(tmp_path: Path) -> None:
    assert 5 < len(list(deaths(tmp_path))) < 60


def test_a_late_event_of_another_user_is_read_while_the_archive_has_a_forgotten_one(tmp_path: Path) -> None:
    """A forgotten row and a late one make the numbers of rows equal."""
    pair = Pair(tmp_path)
    pair.happens(timedelta(days=1), timedelta(days=1))
    pair.compact()
    pair.forget(1)
    for log in (pair.place.log, pair.twin.log):
        log.interactions([did(10, NOW - DAY, user=3)], [True], ATTRIBUTION)
    assert pair.same() and len(pair.place.read()) == 2


def test_frequent_forgettings_and_new_days_take_turns(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    for user in range(4):
        pair.happens((user + 1) * DAY)
        pair.forget(user)
        pair.place.clock.time += EVERY
        pair.compactor.step()
        pair.compactor.step()
    modes = [spec.mode for spec in pair.place.executor.started]
    assert modes[:4] == ["forget", "compact", "forget", "compact"]
    pair.compact()
    assert pair.place.forgotten.pending() == [] and pair.same()


def test_after_a_start_only_the_newest_compaction_is_settled_again(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.happens(*AGES)
    pair.compact()
    for user in (1, 2):
        pair.forget(user)
        pair.compact()
    store = pair.place.store
    erased: list[File] = []
    store.erase = erased.append  # type: ignore[method-assign]
    pair.place.settle(pair.place.compactor(store))
    replaced = EventArchive(store).compactions("films")[-1].facts["replaces"]
    assert len(erased) == len(replaced) > 0


def test_a_try_that_fails_waits_for_the_next_turn(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.happens(*AGES)
    pair.compact()
    publish = pair.place.executor.publish

    def fails(spec: StageSpec, attempt: str) -> None:
        failure = Failure(kind="data", message="a damaged file")
        pair.place.store.publish(Manifest(stage="etl", run=spec.run, attempt=attempt, started=NOW, ended=NOW, failure=failure))

    pair.place.executor.publish = fails
    pair.forget(1)
    for _ in range(10):
        pair.compactor.step()
    assert [spec.attempt for spec in pair.place.executor.started[1:]] == ["compact-films-1-etl-1"]
    pair.place.executor.publish = publish
    pair.compact()
    assert archived_users(pair.place) == {0, 2, 3, 4}


def deaths(folder: Path) -> Iterator[int]:
    """Dies at every sixth call of the artifact store, until the compaction ends before."""
    for at in itertools.count(1, 6):
        pair = Pair(folder / str(at))
        pair.happens(*AGES)
        pair.compact()
        pair.forget(1)
        fate = Fate(at)
        with contextlib.suppress(Death):
            pair.place.settle(pair.place.compactor(Mortal(pair.place.store, fate)))
        pair.place.settle(pair.place.compactor())
        assert archived_users(pair.place) == {0, 2, 3, 4}
        assert pair.place.forgotten.pending() == [] and pair.same()
        if fate.left > 0:
            return
        yield at


def test_days_are_not_deleted_from_the_database_while_the_archive_has_a_forgotten_user(tmp_path: Path) -> None:
    """A late event and a forgotten one could make the numbers of rows equal."""
    pair = aged_pair(tmp_path, *AGES)
    pair.rest(1)
    pair.forget(1)
    pair.rest(4)
    assert [len(pair.stored(table)) for table in TABLES] == [8, 8]
    pair.compact()
    pair.rest(2)
    assert [pair.stored(table) for table in TABLES] == [[], []]
    assert pair.same() and archived_users(pair.place) == {0, 2, 3, 4}


ages = st.lists(st.integers(0, 29 * 86_400).map(lambda seconds: timedelta(seconds=seconds)), max_size=4)
users = st.integers(0, 4).map(lambda user: ("forget", user))
acts = st.lists(st.one_of(ages, st.just("compact"), users, st.integers(1, 20)), min_size=4, max_size=14)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=acts)
def test_training_reads_exactly_the_rows_of_other_users(tmp_path_factory: pytest.TempPathFactory, acts: list[Any]) -> None:
    pair = Pair(tmp_path_factory.mktemp("pair"))
    for act in acts:
        match act:
            case "compact":
                pair.compact()
            case int():
                pair.rest(act)
            case ("forget", int(user)):
                pair.forget(user)
                pair.compact()
            case _:
                pair.happens(*act)
        assert pair.same()
    assert pair.place.forgotten.pending() == []
