"""Fake EventDays over the fake event log; passes the suite of the port."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from shared.contracts.archive import EventTable
from shared.testing.fake_events import FakeEvents

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FakeDays:
    """Implements EventDays over FakeEvents."""

    def __init__(self, events: FakeEvents) -> None:
        self._events = events

    def counts(self, recommender: str, table: EventTable, until: datetime) -> Mapping[date, int]:
        return Counter(at.astimezone(UTC).date() for at, _ in self._rows(recommender, table) if _EPOCH <= at < until)

    def dump(self, recommender: str, table: EventTable, day: date, to: Path) -> int:
        rows = [row for at, row in self._rows(recommender, table) if at.astimezone(UTC).date() == day]
        to.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return len(rows)

    def _rows(self, recommender: str, table: EventTable) -> Iterator[tuple[datetime, dict[str, Any]]]:
        if table == "impressions":
            for shown in self._events.shown.values():
                if shown.recommender == recommender:
                    yield shown.at, shown.model_dump(exclude={"recommender"}) | {"at": _instant(shown.at)}
            return
        for seq, (done, at, good) in enumerate(self._events.done):
            if done.recommender == recommender:
                yield at, {"seq": seq} | done.model_dump(exclude={"recommender"}) | {"positive": good, "at": _instant(at)}


def _instant(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
