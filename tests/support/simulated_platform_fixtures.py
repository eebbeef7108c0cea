"""Fixtures of suites that run simulated platforms; a `conftest.py` imports them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from services.store.engine import sqlite_url
from tests.servers.postgres_server import Server
from tests.support.simulated_platform import Parts, World

NewWorld = Callable[..., World]


@pytest.fixture
def new_world(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Iterator[NewWorld]:
    """Makes a platform on a migrated database of its own, as often as a test calls it."""
    count = 0

    def make(parts: Parts | None = None) -> World:
        nonlocal count
        folder = tmp_path / f"world-{count}"
        folder.mkdir()
        count += 1
        if database == "postgresql":
            server: Server = request.getfixturevalue("postgres")
            url = server.new_database()
            stack.callback(server.drop_database, url)
        else:
            url = sqlite_url(folder / "eyas.db")
            shutil.copyfile(request.getfixturevalue("migrated_sqlite"), folder / "eyas.db")
        world = World(folder, url, parts)
        stack.callback(world.close)
        return world

    with ExitStack() as stack:
        yield make


@pytest.fixture
def world(new_world: NewWorld) -> World:
    return new_world()
