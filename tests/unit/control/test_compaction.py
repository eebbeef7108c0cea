"""Closed days of events become Parquet, each row once, whatever dies; and what etl reads doesn't depend on it."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from services.control.archive import EventArchive
from shared.contracts.events import Interaction
from shared.contracts.stage import Manifest
from shared.domain.archive import DAY, closed_before, due, start_of, stretches
from shared.domain.errors import Damaged, NotFound
from shared.testing.event_suite import ATTRIBUTION, did, shown
from tests.support.compaction import EVERY, NOW, Place
from tests.support.compaction_deaths import FIRST, LAST, day, is_finished_after_death, some

NAME = "interactions/date=2026-03-16/part-00000.parquet"


moments = st.one_of(
    st.integers(0, 5 * 86_400_000_000 - 1).map(lambda n: FIRST + timedelta(microseconds=n)),
    st.sampled_from([FIRST, FIRST + DAY, FIRST + DAY - timedelta(microseconds=1), datetime(1969, 5, 1, tzinfo=FIRST.tzinfo)]),
)
interactions = st.builds(
    lambda user, item, value, kind, at: Interaction(recommender="films", user=user, item=item, value=value, kind=kind, at=at),
    *(st.integers(1, 4), st.integers(1, 5), st.one_of(st.none(), st.floats(-1e9, 1e9))),
    *(st.sampled_from([None, "click", "purchase", "rating", "view", "forgotten"]), moments),
)
batches = st.lists(interactions, min_size=0, max_size=6)
acts = st.lists(st.one_of(batches, st.just("compact")), max_size=12)
spans = st.tuples(st.one_of(st.none(), moments), moments).map(lambda one: (None if one[0] is None else min(one[0], one[1]), one[1]))


@pytest.mark.requirement("G-05")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=acts, span=spans)
def test_etl_reads_the_same_rows_in_the_same_order_whatever_was_compacted_and_when(
    tmp_path_factory: pytest.TempPathFactory, acts: list[Any], span: tuple[datetime | None, datetime]
) -> None:
    place = Place(tmp_path_factory.mktemp("place"))
    compactor, names = place.compactor(), 0
    for act in acts:
        if act == "compact":
            place.settle(compactor)
            place.check(LAST)
        elif act:
            place.log.interactions(act, [True] * len(act), ATTRIBUTION)
            place.log.impressions([shown(f"q{names + n}", one.at) for n, one in enumerate(act)])
            names += len(act)
        assert place.read().equals(place.plain())
        assert place.read(*span).equals(place.plain(*span))
    assert place.read(None, NOW).height == len(place.plain())


def test_a_straggler_becomes_a_part_of_its_own_and_no_part_changes(tmp_path: Path) -> None:
    place, compactor = Place(tmp_path), None
    some(place, 0.1, 0.2, 1.5)
    compactor = place.compactor()
    place.settle(compactor)
    files = sorted((tmp_path / "artifacts/events").rglob("*.parquet"))
    before = {path: path.read_bytes() for path in files}
    assert [str(path.relative_to(tmp_path / "artifacts/events/films/interactions")) for path in files if "interactions" in str(path)] == [
        "date=2026-03-16/part-00000.parquet",
        "date=2026-03-17/part-00000.parquet",
    ]
    some(place, 0.15)
    assert place.read().equals(place.plain()), "before it is compacted too"
    place.settle(compactor)
    after = sorted((tmp_path / "artifacts/events").rglob("*.parquet"))
    assert {path.name for path in set(after) - set(files)} == {"part-00001.parquet"} and len(after) == len(files) + 2
    assert {path: path.read_bytes() for path in files} == before
    place.check(LAST)
    assert place.read().equals(place.plain())
    assert place.in_folders("impressions").sort("at")["items"].to_list() == [[10, 11, 12]] * 4


def test_compacted_days_are_not_exported_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    some(place, *(n / 4 for n in range(18)))
    place.settle()
    exported: list[tuple[Any, Any]] = []
    export = place.log.export

    def counted(recommender: str, since: datetime | None, until: datetime, to: Path) -> int:
        exported.append((since, until))
        return export(recommender, since, until, to)

    place.log.export = counted  # type: ignore[method-assign]
    assert place.read().height == 18
    assert exported == [(None, FIRST), (day(4), NOW)]


def test_the_day_under_way_and_one_that_may_still_be_reacted_to_are_left_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.clock.time = day(1) + ATTRIBUTION + timedelta(minutes=59)
    some(place, 0.5, 1.001)
    compactor = place.compactor()
    compactor.step()
    assert place.executor.started == []
    place.clock.time = day(1) + ATTRIBUTION + timedelta(hours=1)
    place.settle(place.compactor())
    assert set(place.written("interactions")) == {date(2026, 3, 16)}


def test_where_nothing_happened_nothing_is_started_or_written(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.settle()
    place.log.interactions([did(10, day(0.5)), did(11, day(3.5))], [True] * 2, ATTRIBUTION)
    place.settle()
    assert [sorted(spec.inputs["days"]) for spec in place.executor.started] == [
        ["interactions/2026-03-16.ndjson", "interactions/2026-03-19.ndjson"]
    ]
    place.settle()
    assert len(place.executor.started) == 1
    assert place.written("impressions") == {}
    assert place.read().equals(place.plain())


def test_many_days_are_compacted_some_at_a_time_the_oldest_first(tmp_path: Path) -> None:
    place = Place(tmp_path)
    some(place, *(-n for n in range(70)))
    place.settle()
    assert [len(spec.inputs["days"]) for spec in place.executor.started] == [60, 60, 20]
    place.check(LAST)


def test_a_compaction_that_dies_between_two_calls_is_finished_by_the_next_one(tmp_path: Path) -> None:
    """At some of its calls; `tests/crash` goes through all of them."""
    for at in (1, 6, 11, 16, 21, 26):
        assert is_finished_after_death(tmp_path / str(at), at)


def test_of_two_control_planes_that_compact_the_same_days_one_does(tmp_path: Path) -> None:
    place = Place(tmp_path)
    some(place, 0.1, 1.5)
    place.compactor().step()
    spec = place.executor.started[0]
    some(place, 0.2)
    place.executor.publish(spec, "compact-films-0-etl-2")  # of one that took the first for lost
    first, second = place.compactor(), place.compactor()
    for _ in range(5):
        first.step()
        second.step()
    place.settle(first)
    place.settle(second)
    place.check(LAST)
    assert place.read().equals(place.plain())


def test_a_try_that_was_lost_is_followed_by_another_one_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    some(place, 0.1)
    place.executor.lost = 2
    compactor = place.compactor()
    for _ in range(5):
        compactor.step()
    assert [spec.attempt for spec in place.executor.started] == [f"compact-films-0-etl-{n}" for n in (1, 2, 3)]
    place.check(LAST)


def test_a_try_that_failed_waits_for_the_next_turn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path)
    some(place, 0.1, 0.2)
    place.settle()
    with place.engine.begin() as connection:
        connection.execute(text("DELETE FROM impressions WHERE request_id = 'q0'"))
    some(place, 0.3, 0.4, 0.5)
    compactor = place.compactor()
    for turn in range(3):
        place.clock.time += EVERY
        for _ in range(5):
            compactor.step()
        assert len(place.executor.started) == 2 + turn
    assert "impressions/2026-03-16.ndjson: the database lacks 1 rows that were written before; is it an older copy?" in caplog.text
    assert place.read().equals(place.plain()), "what the log has is what counts"


@pytest.mark.parametrize("files", [{"train.parquet": 3}, {"interactions/date=2026-03-16/part-00007.parquet": 3}, {NAME: None}, {NAME: "3"}])
def test_what_is_no_day_of_events_is_never_added(tmp_path: Path, files: dict[str, Any]) -> None:
    place = Place(tmp_path)
    content = tmp_path / "content"
    content.write_text("content")
    rows = {name: count for name, count in files.items() if count is not None}
    named = dict.fromkeys(files, place.store.put(content))
    done = Manifest(stage="etl", run="r", attempt="r-etl-1", started=NOW, ended=NOW, files=named, facts={"rows": rows})
    message = "unexpected file name" if "train.parquet" in files else "r-etl-1: published files are not days of events"
    with pytest.raises(Damaged, match=message):
        EventArchive(place.store).add("films", 0, done)
    assert EventArchive(place.store).compactions("films") == []


def test_a_file_of_the_archive_that_is_gone_is_read_out_of_the_log(tmp_path: Path) -> None:
    place = Place(tmp_path)
    some(place, 0.1, 1.5)
    place.settle()
    part = next(iter((tmp_path / "artifacts/events/films/interactions").rglob("*.parquet")))
    blob = next(one for one in (tmp_path / "artifacts/blobs").rglob("*") if one.is_file() and one.samefile(part))
    blob.unlink()
    assert place.read().equals(place.plain())


def test_what_people_find_in_the_folder_cannot_be_written_to_and_names_stay_inside(tmp_path: Path) -> None:
    place = Place(tmp_path)
    some(place, 0.1)
    place.settle()
    paths = list((tmp_path / "artifacts/events").rglob("*.parquet"))
    assert paths and all(path.stat().st_mode & 0o222 == 0 for path in paths)
    file = place.store.put(paths[0])
    for name in ("../x", "/x", "a/../../x", "a//b", "A", ""):
        with pytest.raises(Exception, match="is not a valid path"):
            place.store.show(file, name)
    with pytest.raises(NotFound):
        place.store.show(file.model_copy(update={"sha256": "0" * 64}), "events/x")


def test_days_are_closed_a_grace_after_the_last_reaction_to_them() -> None:
    noon = datetime(2026, 3, 20, 12, tzinfo=NOW.tzinfo)
    assert closed_before(noon, timedelta(minutes=30)) == start_of(date(2026, 3, 20))
    assert closed_before(noon, timedelta(hours=11)) == start_of(date(2026, 3, 20))
    assert closed_before(noon, timedelta(hours=11, microseconds=1)) == start_of(date(2026, 3, 19))


def test_a_day_is_due_while_it_has_more_than_was_written() -> None:
    a, b, c = (date(2026, 3, n) for n in (1, 2, 3))
    assert due({c: 2, a: 1, b: 5}, {b: 5, c: 1}) == [a, c]
    assert due({a: 1}, {a: 2}) == []


def test_stretches_cover_the_time_once_and_in_order() -> None:
    days = [date(2026, 3, 16) + timedelta(days=n) for n in range(5)]
    stored = dict.fromkeys(days, 3)
    found = list(stretches(day(0.5), day(4.5), stored, stored | {days[2]: 2}))
    assert [(one.since, one.until, one.day) for one in found] == [
        (day(0.5), day(1), None),
        (day(1), day(2), days[1]),
        (day(2), day(3), None),
        (day(3), day(4), days[3]),
        (day(4), day(4.5), None),
    ]
    assert [one.day for one in stretches(None, day(1), stored, stored)] == [None, days[0]]
    assert [one.day for one in stretches(day(1), day(1), {}, {})] == []
