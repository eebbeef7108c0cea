"""The clock of all who share a database: the database's on PostgreSQL, the machine's on SQLite."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from sqlalchemy import Engine

from services.store import clock as module
from services.store.clock import DatabaseClock

SECOND = timedelta(seconds=1)


class Astray:
    """Stands for the class `datetime` in a process whose clock is wrong."""

    def __init__(self, ahead: timedelta) -> None:
        self.ahead = ahead

    def now(self, zone: tzinfo) -> datetime:
        return datetime.now(zone) + self.ahead


@pytest.mark.parametrize(("days", "said"), [(100, "seconds_ahead=86"), (-100, "seconds_ahead=-86")])
def test_on_postgresql_a_wrong_clock_decides_nothing(
    engine: Engine, database: str, days: int, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    wrong = Astray(timedelta(days=days))
    monkeypatch.setattr(module, "datetime", wrong)
    clock = DatabaseClock(engine)
    clock.synchronise()
    if database == "sqlite":
        assert abs(clock.now() - datetime.now(UTC) - wrong.ahead) < 10 * SECOND
        assert caplog.messages == []
        return
    assert abs(clock.now() - datetime.now(UTC)) < 10 * SECOND
    assert [one for one in caplog.messages if said in one] == [caplog.messages[0]]
    wrong.ahead = timedelta(0)
    assert abs(clock.now() - datetime.now(UTC)) < 10 * SECOND, "a clock that is set right changes nothing"
    clock.synchronise()
    assert caplog.messages[1:] == ["clock: agrees with the database's clock again"]
