"""Databases for the tests of this suite."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from services.store.engine import open_engine, sqlite_url


@pytest.fixture
def sqlite_file(migrated_sqlite: Path, tmp_path: Path) -> Path:
    """A migrated SQLite file, whatever `--database` names."""
    return Path(shutil.copyfile(migrated_sqlite, tmp_path / "eyas.db"))


@pytest.fixture
def sqlite_engine(sqlite_file: Path) -> Iterator[Engine]:
    engine = open_engine(sqlite_url(sqlite_file))
    yield engine
    engine.dispose()
