"""The databases that cells are played on: made and migrated once, fresh for each cell."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Table, insert, select

from services.eventlog.tables import metadata as events
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from services.store.tables import metadata as state
from tests.crash.matrix.subject import Subject

TABLES = (*state.sorted_tables, *events.sorted_tables)


@dataclass(frozen=True)
class Template:
    """How a life begins: the file of a database, and the artifacts that are there already."""

    file: Path
    artifacts: Path

    def contents(self) -> list[tuple[Table, list[dict[str, Any]]]]:
        """By table, without the numbers that a database gives by itself."""
        engine = open_engine(sqlite_url(self.file))
        found = []
        with engine.connect() as connection:
            for table in TABLES:
                rows = [dict(row) for row in connection.execute(select(table)).mappings()]
                given = table.autoincrement_column
                if given is not None:
                    rows = [{name: value for name, value in row.items() if name != given.name} for row in rows]
                if rows:
                    found.append((table, rows))
        engine.dispose()
        return found


Templates = Mapping[tuple[str, str], Template]
"""By subject and life."""


def templates(subjects: Iterable[Subject], folder: Path) -> Templates:
    folder.mkdir(parents=True)
    empty = folder / "empty.db"
    engine = open_engine(sqlite_url(empty))
    upgrade(engine)
    engine.dispose()
    found = {}
    for subject in subjects:
        for number, (name, life) in enumerate(subject.lives().items()):
            place = folder / subject.name / str(number)
            place.mkdir(parents=True)
            made = found[subject.name, name] = Template(place / "eyas.db", place / "artifacts")
            shutil.copyfile(empty, made.file)
            engine = open_engine(sqlite_url(made.file))
            subject.prepare(engine, made.artifacts, life)
            engine.dispose()
    return found


def _lay_out(template: Template, folder: Path) -> None:
    if template.artifacts.exists():
        shutil.copytree(template.artifacts, folder / "artifacts")


class Sqlite:
    """A file."""

    name = "sqlite"

    def __init__(self, templates: Templates, file: Path) -> None:
        self._templates = templates
        self._file = file
        self._engine = open_engine(sqlite_url(file))

    def fresh(self, subject: str, life: str, folder: Path) -> None:
        for end in ("", "-wal", "-shm"):
            self._file.with_name(self._file.name + end).unlink(missing_ok=True)
        template = self._templates[subject, life]
        shutil.copyfile(template.file, self._file)
        _lay_out(template, folder)

    def open(self) -> Engine:
        self._engine.dispose(close=False)
        return self._engine

    def ours(self) -> Engine:
        return self._engine

    def leave(self) -> None:
        self._engine.dispose()


class Postgres:
    """A database of a server; emptied for each cell."""

    name = "postgresql"

    def __init__(self, templates: Templates, url: str) -> None:
        self._templates = templates
        self._contents: dict[Template, list[tuple[Table, list[dict[str, Any]]]]] = {}
        self._theirs = open_engine(url)
        self._ours = open_engine(url)
        self._empty = "; ".join(f"DELETE FROM {table.name}" for table in TABLES)

    def fresh(self, subject: str, life: str, folder: Path) -> None:
        template = self._templates[subject, life]
        if template not in self._contents:
            self._contents[template] = template.contents()
        with self._ours.begin() as connection:
            connection.exec_driver_sql(self._empty)
            for table, rows in self._contents[template]:
                connection.execute(insert(table), rows)
        _lay_out(template, folder)

    def open(self) -> Engine:
        return self._theirs

    def ours(self) -> Engine:
        return self._ours

    def leave(self) -> None:
        """What the victim's session may still hold ends with it."""
