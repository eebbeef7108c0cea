"""Days of events out of SQL, and out of the fake, keep the port's promises; counts come from an index alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from services.eventlog.days import SqlEventDays
from services.eventlog.sql import SqlEventLog
from shared.contracts.archive import COLUMNS, TABLES
from shared.contracts.events import Impression, Interaction
from shared.ports import EventLog
from shared.testing.event_suite import shown
from tests.support.days_suite import DAY, FUTURE, EventDaysSuite, dumped
from tests.support.query_plans import statements
from tests.support.sql_rows import damage


class TestSqlEventDays(EventDaysSuite):
    @pytest.fixture
    def log(self, engine: Engine) -> EventLog:
        return SqlEventLog(engine)

    @pytest.fixture
    def days(self, engine: Engine) -> SqlEventDays:
        return SqlEventDays(engine)

    def test_what_an_answer_showed_may_be_unreadable(
        self, engine: Engine, log: EventLog, days: SqlEventDays, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        log.impressions([shown("a"), shown("b")])
        damage(engine, "impressions", "items", "[1, 2", "request_id = 'a'")
        rows = {row["request_id"]: row["items"] for row in dumped(days, "impressions", DAY, tmp_path)}
        assert rows == {"a": None, "b": [10, 11, 12]}
        assert "impression: unreadable items, left out request=a" in caplog.text

    def test_a_dump_that_fails_leaves_nothing(self, log: EventLog, days: SqlEventDays, tmp_path: Path) -> None:
        (tmp_path / "day.ndjson").mkdir()
        with pytest.raises(OSError, match="day"):
            days.dump("films", "interactions", DAY, tmp_path / "day.ndjson")
        assert [found.name for found in tmp_path.glob("*day*")] == ["day.ndjson"]

    def test_counts_read_an_index_alone(self, engine: Engine, days: SqlEventDays) -> None:
        sent = statements(engine, lambda: [days.counts("films", table, FUTURE) for table in TABLES])
        selects = [one for one in sent if one[0].startswith("SELECT")]
        assert len(selects) == len(TABLES)
        with engine.connect() as connection:
            for statement, values in selects:
                if engine.dialect.name == "sqlite":
                    plan = str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all())
                    assert "COVERING INDEX" in plan, plan
                else:  # on a table without rows PostgreSQL would read them all, if it may
                    connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
                    connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
                    plan = str(connection.exec_driver_sql(f"EXPLAIN {statement}", values).all())
                    assert "Index Only Scan" in plan, plan


def test_every_field_of_an_event_has_its_column() -> None:
    assert set(COLUMNS["impressions"]) == Impression.model_fields.keys() - {"recommender"}
    assert set(COLUMNS["interactions"]) == Interaction.model_fields.keys() - {"recommender"} | {"seq", "positive"}
