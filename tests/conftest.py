"""What every suite shares: the suites' rules, and the databases that tests run on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine

from services.store import sqlite
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from shared.telemetry import logs
from tests.servers.postgres_server import Server, postgres_server

pytest_plugins = ["tests.support.suite_rules"]
pytest.register_assert_rewrite(
    "shared.testing",
    *(f"tests.support.{path.stem}" for path in (Path(__file__).parent / "support").glob("*_suite.py")),
)

_ENGINES: list[Engine] = []
_open = sqlite.open_engine


def _open_and_remember(url: URL) -> Engine:
    engine = _open(url)
    _ENGINES.append(engine)
    return engine


sqlite.open_engine = _open_and_remember


@pytest.fixture(autouse=True)
def _close_databases() -> Iterator[None]:
    """Closes the databases that the test opened, because Python 3.13 reports open ones. An engine of a wider fixture stays usable."""
    yield
    while _ENGINES:
        _ENGINES.pop().dispose()


@pytest.fixture(autouse=True)
def _forget_process_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the ids of a stage that a test runs in its own process out of the log records of the next test."""
    monkeypatch.setattr(logs, "_process_ids", {})


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One server for the whole session. A test that stops or restarts a server starts its own."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to copy: a migration takes longer than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "eyas.db"
    engine = open_engine(sqlite_url(path))
    upgrade(engine)
    engine.dispose()
    return path


@pytest.fixture
def database_url(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Iterator[str]:
    """A migrated database of the kind that `--database` names, for one test."""
    if database == "sqlite":
        path = tmp_path / "state" / "eyas.db"
        path.parent.mkdir()
        shutil.copyfile(request.getfixturevalue("migrated_sqlite"), path)
        yield sqlite_url(path)
    else:
        server: Server = request.getfixturevalue("postgres")
        url = server.new_database()
        yield url
        server.drop_database(url)
