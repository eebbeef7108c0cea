"""The suites of shared.testing assert like tests: their failures show values. And the databases that tests run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from tests.servers.postgres_server import Server, postgres_server

pytest_plugins = ["tests.sampling"]
pytest.register_assert_rewrite("shared.testing")
# How long an example takes is the machine's affair.
hypothesis.settings.register_profile("eyas", deadline=None)
hypothesis.settings.load_profile("eyas")

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One server for the whole session; whoever stops or restarts servers makes one of their own."""
    with postgres_server() as server:
        yield server


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated database of each kind, that nobody else uses."""
    if request.param == "sqlite":
        url = sqlite_url(tmp_path / "state" / "eyas.db")
        engine = open_engine(url)
        upgrade(engine)
        engine.dispose()
        yield url
    else:
        server: Server = request.getfixturevalue("postgres")
        url = server.new_database()
        yield url
        server.drop_database(url)
