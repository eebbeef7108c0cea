"""Worlds on databases of their own: migrated once, copied for each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from tests.servers.postgres_server import Server
from tests.unit.control.world import Parts, World

NewWorld = Callable[..., World]


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "eyas.db"
    engine = open_engine(sqlite_url(path))
    upgrade(engine)
    engine.dispose()
    return path


@pytest.fixture
def new_world(tmp_path: Path, database: Path) -> Iterator[NewWorld]:
    worlds: list[World] = []

    def make(parts: Parts | None = None) -> World:
        folder = tmp_path / f"world-{len(worlds)}"
        folder.mkdir()
        shutil.copyfile(database, folder / "eyas.db")
        worlds.append(World(folder, sqlite_url(folder / "eyas.db"), parts))
        return worlds[-1]

    yield make
    for one in worlds:
        one.close()


@pytest.fixture
def new_postgres_world(tmp_path: Path, postgres: Server) -> Iterator[NewWorld]:
    """Slower to make: for samples of what every world is put through."""
    worlds: list[World] = []

    def make(parts: Parts | None = None) -> World:
        worlds.append(World(tmp_path / f"world-{len(worlds)}", postgres.new_database(), parts))
        return worlds[-1]

    yield make
    for one in worlds:
        one.close()
        postgres.drop_database(one.url)


@pytest.fixture
def world(new_world: NewWorld) -> World:
    return new_world()


@pytest.fixture
def postgres_world(new_postgres_world: NewWorld) -> World:
    return new_postgres_world()
