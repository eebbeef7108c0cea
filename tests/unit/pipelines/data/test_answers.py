"""Logged answers as evaluate reads them: liked where the event log counted hits, whatever was compacted of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.data.answers import AnswerLog, read_log, usable
from services.control import snapshots as taking
from services.control.snapshots import Snapshots
from services.eventlog.kpis import SqlKpis
from shared.contracts.events import UNKNOWN_USER
from shared.domain.entity_ids import IdHash
from shared.domain.errors import BadData
from shared.testing.event_oracle import Oracle
from shared.testing.event_suite import ATTRIBUTION, did, shown
from tests.support.compaction import NOW, Place

START = datetime(2026, 3, 17, 22, tzinfo=NOW.tzinfo)


def read(place: Place, since: datetime = START - timedelta(days=1), liked_since: datetime | None = None) -> AnswerLog:
    place._reads += 1
    snapshots = Snapshots(place.log, place.days, place.deletion, place.store, IdHash(b"test"), place.forgotten)
    files = snapshots.answers("films", since, NOW, liked_since)
    folder = place.folder / f"log-{place._reads}"
    return read_log({name: place.store.fetch(file, folder / name) for name, file in files.items()}, ATTRIBUTION)


def minutes(n: float) -> datetime:
    return START + timedelta(minutes=n)


answers = st.builds(
    lambda n, user, items, at, version: ("shown", {"user": user, "items": tuple(items), "version": version}, n, at),
    st.integers(0, 9),
    st.integers(1, 2),
    st.lists(st.integers(1, 4), max_size=4),
    st.integers(0, 200),
    st.integers(1, 2),
)
reactions = st.builds(
    lambda user, item, at, named: ("did", {"user": user, "item": item, **({} if named is None else {"request_id": f"q{named}"})}, 0, at),
    st.integers(1, 2),
    st.integers(1, 4),
    st.integers(0, 200),
    st.one_of(st.none(), st.integers(0, 10)),
)


@pytest.mark.requirement("G-10")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(answers, reactions, st.just(("compact", {}, 0, 0))), max_size=25))
def test_what_is_liked_is_what_the_log_counts_as_a_hit(tmp_path_factory: pytest.TempPathFactory, acts: list[Any]) -> None:
    place, shows, events = Place(tmp_path_factory.mktemp("place")), {}, []
    compactor = place.compactor()
    for what, changes, n, at in acts:
        if what == "compact":
            place.settle(compactor)
        elif what == "shown":
            impression = shown(f"q{n}", minutes(at), **changes)
            shows.setdefault(impression.request_id, impression)
            place.log.impressions([impression])
        else:
            events.append(did(changes.pop("item"), minutes(at), **changes))
            place.log.interactions(events[-1:], [True], ATTRIBUTION)
    answers = read(place).answers
    told = {name for name, liked in answers.select("request_id", "liked").iter_rows() if liked}
    reactions = Oracle(shows.values(), events, ATTRIBUTION).reactions
    assert told == {name for name, of_answer in reactions.items() if any(reaction.delay <= ATTRIBUTION for reaction in of_answer)}
    kpis = SqlKpis(place.engine)
    hits = [kpis.hit_rate("films", version, START - timedelta(days=1), NOW, ATTRIBUTION).hits for version in (1, 2)]
    assert len(told) == sum(hits)
    assert set(answers["request_id"]) == set(shows)
    for name, items, liked in answers.select("request_id", "items", "liked").iter_rows():
        done = {event.item for event in events}
        assert all(items[at] in done for at in liked), name


def test_a_version_s_own_answers_with_chances_are_what_counts(tmp_path: Path) -> None:
    place = Place(tmp_path)
    good = {"propensities": (0.9, 0.9, 1e-3)}
    place.log.impressions(
        [
            shown("good", minutes(10), **good),
            shown("another version's", minutes(10), version=2, **good),
            shown("early", minutes(-10), **good),
            shown("late", minutes(100), **good),
            shown("a stranger's", minutes(10), fallback=UNKNOWN_USER, **good),
            shown("by a front end", minutes(10)),
            shown("nothing left", minutes(10), items=(), propensities=()),
        ]
    )
    place.log.interactions([did(12, minutes(11)), did(12, minutes(12)), did(10, minutes(11), request_id="good")], [True] * 3, ATTRIBUTION)
    kept, left = usable(read(place), 1, START, minutes(60))
    assert kept.select("request_id", "items", "liked").rows() == [("good", [10, 11, 12], [0, 2])]
    assert left == {"older than the candidate's newest training row": 1, "fallbacks": 1, "empty": 1, "without propensities": 1}


def test_likes_from_before_the_answers_are_there_as_far_back_as_asked(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.log.impressions([shown("q", minutes(0))])
    days = [START - timedelta(days=n) for n in (0, 1, 9)]
    place.log.interactions([did(n, at) for n, at in enumerate(days)] + [did(7, days[0])], [True] * 3 + [False], ATTRIBUTION)
    assert sorted(read(place).likes["item"]) == [0, 1, 2]
    assert sorted(read(place, liked_since=START - timedelta(days=2)).likes["item"]) == [0, 1]


def test_of_too_many_answers_the_newest_days_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    place.log.impressions([shown(f"q{n}", NOW - timedelta(days=1 + n // 4, minutes=n)) for n in range(12)])
    monkeypatch.setattr(taking, "MOST_ANSWERS", 9)
    assert sorted(read(place, START - timedelta(days=30)).answers["request_id"]) == sorted(f"q{n}" for n in range(8))
    monkeypatch.setattr(taking, "MOST_ANSWERS", 1)
    assert len(read(place, START - timedelta(days=30)).answers) == 4, "of one day all"


def test_no_log_at_all_is_no_answers() -> None:
    log = read_log({}, ATTRIBUTION)
    assert (len(log.answers), len(log.likes)) == (0, 0)
    assert log.answers.schema["liked"] == pl.List(pl.Int64)


def test_a_damaged_day_is_named(tmp_path: Path) -> None:
    path = tmp_path / "day.ndjson"
    path.write_text('{"request_id": "a", "user": \n')
    with pytest.raises(BadData, match=r"impressions/2026-03-17.ndjson: cannot be read"):
        read_log({"impressions/2026-03-17.ndjson": path}, ATTRIBUTION)
