"""Worlds on databases of their own: migrated once, copied for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
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
        worlds.append(World(tmp_path / f"world-{len(worlds)}", database, parts))
        return worlds[-1]

    yield make
    for one in worlds:
        one.close()


@pytest.fixture
def world(new_world: NewWorld) -> World:
    return new_world()
