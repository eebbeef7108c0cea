"""Lists and pages read a few rows from an index, however many rows are stored."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, insert

from services.store.resources import SqlResources
from services.store.tables import history, resources
from shared.contracts.codec import encode
from shared.contracts.records import RolloutSpec, RunSpec
from shared.domain.rollout import RolloutStatus
from shared.domain.run import RunStatus
from shared.ports import Record
from shared.testing.records import RUN_SPEC
from tests.support.query_plans import assert_flat, plans, statements
from tests.support.resource_suite import NOW, SECOND, rollout


@pytest.fixture
def store(engine: Engine) -> SqlResources[RolloutStatus, RolloutSpec]:
    return SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)


def count_of(engine: Engine, postgresql: int) -> int:
    """PostgreSQL chooses a plan by the number of rows, SQLite does not."""
    return postgresql if engine.dialect.name == "postgresql" else 200


def fill(engine: Engine, rows: list[dict[str, Any]]) -> None:
    with engine.begin() as connection:
        connection.execute(insert(resources), rows)
    analyse(engine)


def analyse(engine: Engine) -> None:
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            connection.exec_driver_sql("ANALYZE resources")


def rollouts(count: int) -> list[dict[str, Any]]:
    """Rows of ten recommenders: one in a hundred is active."""
    return [
        {
            "kind": "rollout",
            "id": f"ro-{n}",
            "recommender": f"films-{n % 10}",
            "spec": {"version": n, "document": {}},
            "status": {"state": "promoted"},
            "state": "promoted" if n % 100 else "canary",
            "revision": 1,
            "finished": bool(n % 100),
            "created_at": NOW - n * SECOND,
            "due_at": NOW,
        }
        for n in range(count)
    ]


@pytest.mark.requirement("C-01")
def test_dead_letter_runs_are_found_among_many_failed_runs(engine: Engine) -> None:
    runs = SqlResources(engine, "run", RunStatus, RunSpec)
    count = count_of(engine, 5_000)
    fixed = {"kind": "run", "recommender": "films", "spec": encode(RunSpec, RUN_SPEC), "status": {"state": "failed"}, "state": "failed"}
    times = {"revision": 1, "finished": True, "due_at": NOW}
    fill(engine, [{**fixed, **times, "id": f"r{n}", "created_at": NOW - n * SECOND} for n in range(count)])
    record = runs.create(Record("gave-up", "films", RUN_SPEC, RunStatus("etl"), NOW - count * SECOND * 4 / 5, NOW), "ada")
    ended = RunStatus("failed", dead_letter=True)
    runs.commit(record, ended, due_at=NOW, entry=None, finished=True, clear_request=False)
    analyse(engine)
    for narrowed in ({}, {"states": {"failed"}}, {"recommender": "films"}, {"among": {"films", "books"}}):
        assert [one.id for one in runs.list(dead_letter=True, limit=26, **narrowed)] == ["gave-up"]  # type: ignore[arg-type]
        assert_flat(engine, plans(engine, lambda narrowed=narrowed: runs.list(dead_letter=True, limit=26, **narrowed)), False)
    others = [one.id for one in runs.list(dead_letter=False, limit=count + 1)]
    assert len(others) == count
    assert "gave-up" not in others


def test_a_page_of_a_long_history_reads_its_own_rows_only(engine: Engine, store: SqlResources[RolloutStatus, RolloutSpec]) -> None:
    store.create(rollout(), "ada")
    count = count_of(engine, 5_000)
    entry = {"kind": "rollout", "id": "ro-1", "at": NOW, "source": "", "target": "", "reason": "", "actor": ""}
    with engine.begin() as connection:
        connection.execute(insert(history), [entry] * count)
    middle = store.history("ro-1", count // 2)[-1].seq
    for page in (lambda: store.history("ro-1", 5, middle), lambda: store.latest("ro-1", 5, middle)):
        sent = statements(engine, page)
        assert len(sent) == 1
        assert "LIMIT" in sent[0][0]
        plan = " ".join(plans(engine, page))
        assert "history_of" in plan or "history_pkey" in plan
        assert "B-TREE" not in plan and "Sort" not in plan
        assert len(page()) == 5


def test_lists_are_read_from_an_index_however_many_rows_are_stored(engine: Engine, store: SqlResources[RolloutStatus, RolloutSpec]) -> None:
    fill(engine, rollouts(count_of(engine, 20_000)))
    lists: list[dict[str, Any]] = [
        {},
        {"active": True},
        {"active": False},
        {"states": ["promoted"]},
        {"states": ["paused", "canary", "unknown"]},
        {"before": "ro-100"},
        {"states": ["aborted", "promoted"], "before": "ro-100"},
    ]
    for recommender in (None, "films-3"):
        for wanted in lists:
            plan = plans(engine, lambda wanted=wanted, recommender=recommender: store.list(recommender, limit=5, **wanted))  # type: ignore[misc]
            assert_flat(engine, plan, narrowed=bool(recommender or wanted))
    assert_flat(engine, plans(engine, lambda: store.oldest_active("films-3")), narrowed=True)
    assert_flat(engine, plans(engine, lambda: store.due(NOW, 5)), narrowed=True)
