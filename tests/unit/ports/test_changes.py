"""A process that alone writes to its database knows without a query that nothing has changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, text

from services.store.changes import Changes
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from services.store.recommenders import SqlRecommenders
from services.store.routes import SqlRoutes
from shared.contracts.spec import RecommenderSpec
from shared.domain.route import Route
from tests.support.platform_world import quick_spec

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    engine = open_engine(sqlite_url(tmp_path / "eyas.db"))
    upgrade(engine)
    engine.dispose()
    return sqlite_url(tmp_path / "eyas.db")


@pytest.fixture
def engine(url: str):
    found = open_engine(url)
    yield found
    found.dispose()


def statements(engine: Engine) -> list[str]:
    found: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: found.append(statement))
    return found


def write(engine: Engine, **options: bool) -> None:
    with engine.execution_options(**options).begin() as connection:
        connection.execute(text("UPDATE change_counters SET value = value + 1"))


def test_reads_and_heartbeats_are_no_change_and_a_commit_is(engine: Engine) -> None:
    changes = Changes(engine, alone=True)
    told: list[object] = []
    changes.listen(lambda: told.append(changes.mark()))
    before = changes.mark()
    routes = SqlRoutes(engine, alone=True)
    routes.all()
    write(engine, quiet=True)
    assert (changes.mark(), told) == (before, [])
    write(engine)
    assert changes.mark() != before
    assert told == [changes.mark()], "whoever listens is told after the commit, once"


def test_who_is_told_reads_what_was_committed(engine: Engine) -> None:
    changes = Changes(engine, alone=True)
    seen: list[int] = []

    def read() -> None:
        with engine.execution_options(read_only=True).connect() as connection:
            seen.append(connection.execute(text("SELECT value FROM change_counters WHERE name = 'state'")).scalar_one())

    read()
    changes.listen(read)
    write(engine)
    assert seen[1] == seen[0] + 1


def test_a_transaction_that_is_still_open_is_no_change_yet(engine: Engine) -> None:
    changes = Changes(engine, alone=True)
    before = changes.mark()
    with engine.begin() as connection:
        connection.execute(text("UPDATE change_counters SET value = value + 1"))
        assert changes.mark() == before
    assert changes.mark() != before


def test_where_other_processes_write_anything_may_have_changed_at_any_time(engine: Engine) -> None:
    changes = Changes(engine, alone=False)
    assert changes.mark() != changes.mark()


def test_heartbeats_that_no_other_process_reads_are_remembered_and_seldom_written(engine: Engine) -> None:
    routes = SqlRoutes(engine, alone=True)
    routes.report("embedded", {"m": 1}, NOW)
    said = statements(engine)
    for beat in range(20):
        assert routes.heard("embedded", NOW + timedelta(seconds=(beat + 1) / 2))
    assert sum(one.startswith("UPDATE gateways") for one in said) == 1
    (found,) = routes.gateways(NOW + timedelta(seconds=8))
    assert (found.heard_at, found.served) == (NOW + timedelta(seconds=10), {"m": 1})
    assert routes.reports("m", NOW + timedelta(seconds=11)) == {}, "one that fell silent is not waited for"
    assert routes.heard("embedded", NOW + timedelta(seconds=10.5))
    assert sum(one.startswith("UPDATE gateways") for one in said) == 2


def test_a_heartbeat_of_a_gateway_that_never_reported_is_refused(engine: Engine) -> None:
    assert not SqlRoutes(engine, alone=True).heard("embedded", NOW)


def test_heartbeats_that_others_read_are_all_written(engine: Engine) -> None:
    routes = SqlRoutes(engine)
    routes.report("g", {}, NOW)
    said = statements(engine)
    for beat in range(5):
        routes.heard("g", NOW + timedelta(seconds=beat / 2))
    assert sum(one.startswith("UPDATE gateways") for one in said) == 5


def test_a_route_is_a_change(engine: Engine, tmp_path: Path) -> None:
    SqlRecommenders(engine).put(RecommenderSpec.model_validate(quick_spec(tmp_path, name="m")), NOW, "test")
    changes, routes = Changes(engine, alone=True), SqlRoutes(engine, alone=True)
    before = changes.mark()
    routes.put("m", Route(1), NOW, "test", "")
    assert changes.mark() != before
