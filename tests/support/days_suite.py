"""Conformance suite of EventDays; a test module provides `log` and `days` on one set of events."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from shared.contracts.archive import COLUMNS, TABLES, EventTable
from shared.domain.pages import page_key
from shared.ports import EventDays, EventLog
from shared.testing.event_suite import ATTRIBUTION, LARGEST, T0, did, shown

DAY = date(2026, 3, 1)
MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
BEFORE, AFTER = MIDNIGHT - timedelta(microseconds=1), MIDNIGHT + timedelta(days=1)
FUTURE = MIDNIGHT + timedelta(days=9)
OLD = datetime(1969, 12, 31, 23, tzinfo=UTC)


def dumped(days: EventDays, table: EventTable, day: date, folder: Path) -> list[dict[str, Any]]:
    path = folder / "day.ndjson"
    count = days.dump("films", table, day, path)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == count
    assert [file.name for file in folder.glob("*day*")] == [path.name]
    return rows


class EventDaysSuite:
    def test_a_day_begins_at_midnight_in_utc(self, log: EventLog, days: EventDays, tmp_path: Path) -> None:
        moments = [BEFORE, MIDNIGHT, T0, AFTER - timedelta(microseconds=1), AFTER, OLD]
        log.impressions([shown(f"r{n}", at) for n, at in enumerate(moments)])
        log.interactions([did(n, at) for n, at in enumerate(moments)], [True] * 6, ATTRIBUTION)
        for table in TABLES:
            counts = days.counts("films", table, FUTURE)
            assert counts == {date(2026, 2, 28): 1, DAY: 3, date(2026, 3, 2): 1}
            assert days.counts("films", table, AFTER) == {date(2026, 2, 28): 1, DAY: 3}
            assert days.counts("films", table, T0) == {date(2026, 2, 28): 1, DAY: 1}
            assert len(dumped(days, table, DAY, tmp_path)) == 3
            assert dumped(days, table, date(2026, 3, 5), tmp_path) == []

    def test_actions_are_listed_page_by_page_without_views_of_pages(self, log: EventLog, days: EventDays) -> None:
        events = [
            did(1, T0, id="a", kind="page"),  # of a kind that is called so
            did(2, T0, value=4.5, kind="rating", revenue=1.25, request_id="q"),
            did(3, OLD, user_id="ada", item_id="é"),
            did(4, AFTER),
        ]
        left_out = [did(page_key("home"), T0, kind="page"), did(recommender="books")]
        log.interactions([*events, *left_out], [True] * 6, ATTRIBUTION)
        stored_events = []
        while page := days.page("films", 2, stored_events[-1].place if stored_events else None):
            stored_events += page
        assert [stored.event for stored in stored_events] == [events[2], events[0], events[1], events[3]]
        assert days.page("music", 2) == []

    def test_recommenders_are_apart(self, log: EventLog, days: EventDays, tmp_path: Path) -> None:
        log.impressions([shown("a"), shown("b", recommender="books")])
        log.interactions([did(), did(recommender="books")], [True] * 2, ATTRIBUTION)
        for table in TABLES:
            assert days.counts("films", table, FUTURE) == days.counts("books", table, FUTURE) == {DAY: 1}
            assert days.counts("music", table, FUTURE) == {}
            assert len(dumped(days, table, DAY, tmp_path)) == 1

    def test_a_dump_holds_what_was_sent(self, log: EventLog, days: EventDays, tmp_path: Path) -> None:
        strange = 'a "name",\n\\ ünd \u2028 more'
        event = did(
            LARGEST,
            T0 + timedelta(microseconds=7),
            user=-LARGEST - 1,
            id=strange,
            kind="purchase",
            value=4.35,
            revenue=-0.1,
            request_id="é",
            user_id=strange,
            item_id="ü",
        )
        log.interactions([event, did()], [True, False], ATTRIBUTION)
        rows = sorted(dumped(days, "interactions", DAY, tmp_path), key=lambda row: row["at"])
        assert all(row.keys() == COLUMNS["interactions"].keys() for row in rows)
        at = int(T0.timestamp()) * 1_000_000
        assert len({row.pop("seq") for row in rows}) == 2
        nothing = dict.fromkeys(("id", "kind", "value", "revenue", "request_id", "user_id", "item_id"))
        assert rows == [
            {"user": 1, "item": 10, "positive": False, "at": at} | nothing,
            event.model_dump(exclude={"recommender"}) | {"positive": True, "at": at + 7},
        ]

    def test_a_dump_holds_what_was_shown(self, log: EventLog, days: EventDays, tmp_path: Path) -> None:
        impression = shown(
            "é",
            items=(-LARGEST, 7),
            propensities=(0.975, 1e-7),
            slices=("old", "new"),
            fallback="x",
            bucket=3,
            score=0.1,
            step=2,
            variant="candidate",
        )
        log.impressions([impression, shown("b")])
        rows = {row["request_id"]: row for row in dumped(days, "impressions", DAY, tmp_path)}
        assert all(row.keys() == COLUMNS["impressions"].keys() for row in rows.values())
        expected = impression.model_dump(exclude={"recommender"}) | {
            "items": [-LARGEST, 7],
            "propensities": [0.975, 1e-7],
            "slices": ["old", "new"],
            "at": int(T0.timestamp()) * 1_000_000,
        }
        assert rows["é"] == expected
        assert [rows["b"][name] for name in ("propensities", "fallback", "bucket", "score")] == [None] * 4
        assert rows["b"]["slices"] == []
