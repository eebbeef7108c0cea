"""Registered versions: numbered one after the other within a recommender, one a run, never changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Engine, Row, func, insert, select

from services.store.tables import versions
from services.store.turns import take_turn
from shared.contracts.codec import decode, encode
from shared.contracts.stage import Files
from shared.domain.errors import NotFound
from shared.ports import Version


class SqlRegistry:
    """Implements Registry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)

    def register(self, version: Version) -> Version:
        with self._engine.begin() as connection:
            take_turn(connection, "versions", version.recommender)
            return _of_run(connection, version.run) or _append(connection, version)

    def get(self, recommender: str, number: int) -> Version:
        query = select(versions).where(versions.c.recommender == recommender, versions.c.number == number)
        with self._reads.connect() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFound(f"recommender '{recommender}' has no version {number}")
        return _version(row)

    def of_run(self, run: str) -> Version | None:
        with self._reads.connect() as connection:
            return _of_run(connection, run)

    def list(self, recommender: str) -> Sequence[Version]:
        """By number."""
        query = select(versions).where(versions.c.recommender == recommender).order_by(versions.c.number)
        with self._reads.connect() as connection:
            return [_version(row) for row in connection.execute(query)]


def _of_run(connection: Connection, run: str) -> Version | None:
    row = connection.execute(select(versions).where(versions.c.run == run)).one_or_none()
    return None if row is None else _version(row)


def _append(connection: Connection, version: Version) -> Version:
    newest = select(func.max(versions.c.number)).where(versions.c.recommender == version.recommender)
    version = replace(version, number=(connection.execute(newest).scalar() or 0) + 1)
    values = {
        "recommender": version.recommender,
        "number": version.number,
        "run": version.run,
        "digest": version.digest,
        "files": encode(Files, version.files),
        "metrics": dict(version.metrics),
        "lineage": dict(version.lineage),
        "parent": version.parent,
        "created_at": version.created_at,
    }
    connection.execute(insert(versions).values(values))
    return version


def _version(row: Row[Any]) -> Version:
    return Version(
        recommender=row.recommender,
        number=row.number,
        run=row.run,
        digest=row.digest,
        files=decode(Files, row.files),
        metrics=row.metrics,
        lineage=row.lineage,
        parent=row.parent,
        created_at=row.created_at,
    )
