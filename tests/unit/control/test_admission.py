"""A run that was let in counts as active before its row says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from services.control.admission import Admissions
from shared.domain.queue import UnfinishedRun

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def record(id: str) -> Any:
    return SimpleNamespace(id=id, status=SimpleNamespace(reason=""))


def test_an_urgent_run_does_not_overtake_one_that_was_let_in() -> None:
    clock: Any = SimpleNamespace(now=lambda: NOW + clock.passed, passed=timedelta())
    rows = [UnfinishedRun("first", "films", 0, NOW)]
    store: Any = SimpleNamespace(queued=lambda: list(rows))
    turns = Admissions(store, clock, limit=1)
    assert turns.wait(record("first")) is None
    rows.append(UnfinishedRun("urgent", "books", 9, NOW + timedelta(seconds=1)))
    clock.passed = timedelta(seconds=1)
    assert turns.wait(record("urgent")) == "1 of 1 runs are active"
    assert turns.wait(record("first")) is None
    assert list(turns.come()) == []
    rows[0] = UnfinishedRun("first", "films", 0, NOW, active=True)
    clock.passed = timedelta(seconds=2)
    assert turns.wait(record("urgent")) == "1 of 1 runs are active"
    del rows[0]
    clock.passed = timedelta(seconds=3)
    assert list(turns.come()) == ["urgent"]
    assert turns.wait(record("urgent")) is None
