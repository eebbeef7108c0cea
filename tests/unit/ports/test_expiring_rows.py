"""Entries of histories and of the audit log are deleted from the oldest on, up to a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, insert, select

from services.store import expiring_rows
from services.store.expiring_rows import SqlExpiringRows
from services.store.tables import audit, history
from shared.ports import LogName

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TABLES = {"history": history, "audit": audit}


@pytest.mark.requirement("U-11")
@pytest.mark.parametrize("log", ["history", "audit"])
def test_older_entries_go_in_portions_and_younger_ones_stay(engine: Engine, monkeypatch: pytest.MonkeyPatch, log: LogName) -> None:
    monkeypatch.setattr(expiring_rows, "_AT_ONCE", 7)
    with engine.begin() as connection:
        for number in range(30):
            at = NOW + number * HOUR
            connection.execute(insert(history).values(kind="run", id="r1", at=at, source="a", target="b", reason="", actor="x"))
            connection.execute(insert(audit).values(at=at, actor="x", token="t", action="POST /", target="/", detail=""))
    rows = SqlExpiringRows(engine)
    assert rows.forget_log(log, NOW) == 0
    assert rows.forget_log(log, NOW + 20 * HOUR) == 20
    assert rows.forget_log(log, NOW + 20 * HOUR) == 0
    other = "audit" if log == "history" else "history"
    with engine.connect() as connection:
        left = {name: connection.execute(select(table.c.at).order_by(table.c.at)).scalars().all() for name, table in TABLES.items()}
    assert left[log] == [NOW + number * HOUR for number in range(20, 30)] and len(left[other]) == 30
