"""Readiness check: whether the database accepts writes."""

from __future__ import annotations

from sqlalchemy import Engine

from services.store.change_counter import raise_mark
from services.store.database_files import files_of


class Disk:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def check(self) -> None:
        """Raises Unavailable while the disk is full. Writes only during this fault, to detect its end."""
        files = files_of(self._engine)
        if files is not None and files.full:
            with self._engine.begin() as connection:
                raise_mark(connection)
            files.check_room()
