"""Registry in SQL: versions are numbered within a recommender, one per run, and never change.

A row is valid only while its files match its digest. Tags and collected versions have their own tables; a writer that tags,
collects or routes a version takes the recommender's lock, so that each sees the others' writes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, func, insert, or_, select

from services.store.columns import sound
from services.store.locks import take_turn
from services.store.tables import collected_versions, routes, version_tags, versions
from shared.contracts.codec import decode, encode
from shared.contracts.records import Lineage
from shared.contracts.stage import Files, digest_of
from shared.domain.errors import Conflict, Damaged, Invalid, NotFound
from shared.ports import Version

log = logging.getLogger(__name__)


class SqlRegistry:
    """Implements Registry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        self._damaged: set[tuple[str, int]] = set()

    def register(self, version: Version) -> Version:
        if digest_of(version.files) != version.digest:
            raise Invalid(f"run '{version.run}' cannot be registered: its files do not match the digest {version.digest[:12]}")
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
        """Returns the undamaged versions by number."""
        query = select(versions).where(versions.c.recommender == recommender).order_by(versions.c.number)
        with self._reads.connect() as connection:
            rows = connection.execute(query).all()
        return [version for version in map(self._sound, rows) if version is not None]

    def tag(self, recommender: str, number: int, tag: str, now: datetime, actor: str) -> int | None:
        conditions = (version_tags.c.recommender == recommender, version_tags.c.tag == tag)
        with self._engine.begin() as connection:
            take_turn(connection, "versions", recommender)
            _demand(connection, recommender, number)
            refuse_collected(connection, recommender, number)
            before = connection.execute(select(version_tags.c.number).where(*conditions)).scalar()
            if before != number:
                connection.execute(delete(version_tags).where(*conditions))
                values = {"recommender": recommender, "tag": tag, "number": number, "at": now, "actor": actor}
                connection.execute(insert(version_tags).values(values))
            return before

    def untag(self, recommender: str, number: int, tag: str) -> None:
        conditions = (version_tags.c.recommender == recommender, version_tags.c.tag == tag, version_tags.c.number == number)
        with self._engine.begin() as connection:
            if not connection.execute(delete(version_tags).where(*conditions)).rowcount:
                raise NotFound(f"version {number} of '{recommender}' has no tag '{tag}'")

    def tags(self, recommender: str) -> Mapping[str, int]:
        query = select(version_tags).where(version_tags.c.recommender == recommender).order_by(version_tags.c.tag)
        with self._reads.connect() as connection:
            return {row.tag: row.number for row in connection.execute(query)}

    def everything(self) -> Sequence[Version]:
        with self._reads.connect() as connection:
            rows = connection.execute(select(versions).order_by(versions.c.recommender, versions.c.number)).all()
        return [_version(row) for row in rows]

    def collect(self, recommender: str, number: int, now: datetime) -> bool:
        tagged = select(version_tags).where(version_tags.c.recommender == recommender, version_tags.c.number == number)
        named = or_(routes.c.stable == number, routes.c.candidate == number)
        routed = select(routes).where(routes.c.recommender == recommender, named)
        marked = select(collected_versions).where(collected_versions.c.recommender == recommender, collected_versions.c.number == number)
        with self._engine.begin() as connection:
            take_turn(connection, "versions", recommender)
            _demand(connection, recommender, number)
            if connection.execute(tagged).first() or connection.execute(routed).first():
                return False
            if not connection.execute(marked).first():
                connection.execute(insert(collected_versions).values(recommender=recommender, number=number, at=now))
        return True

    def collected(self, recommender: str) -> Mapping[int, datetime]:
        query = select(collected_versions).where(collected_versions.c.recommender == recommender)
        with self._reads.connect() as connection:
            return {row.number: row.at for row in connection.execute(query.order_by(collected_versions.c.number))}

    def all_collected(self) -> Mapping[str, Mapping[int, datetime]]:
        collected: dict[str, dict[int, datetime]] = {}
        query = select(collected_versions).order_by(collected_versions.c.recommender, collected_versions.c.number)
        with self._reads.connect() as connection:
            for row in connection.execute(query):
                collected.setdefault(row.recommender, {})[row.number] = row.at
        return collected

    def _sound(self, row: Row[Any]) -> Version | None:
        """Returns None for a damaged row, and logs each version once."""
        try:
            return _version(row)
        except Damaged as error:
            if (row.recommender, row.number) not in self._damaged:
                self._damaged.add((row.recommender, row.number))
                log.error("version: damaged recommender=%s version=%d error=%s", row.recommender, row.number, error)
            return None


def _demand(connection: Connection, recommender: str, number: int) -> None:
    conditions = (versions.c.recommender == recommender, versions.c.number == number)
    if connection.execute(select(versions.c.number).where(*conditions)).first() is None:
        raise NotFound(f"recommender '{recommender}' has no version {number}")


def refuse_collected(connection: Connection, recommender: str, number: int) -> None:
    """Raises Conflict for a collected version. The caller holds the recommender's lock: no version is collected meanwhile."""
    marked = collected_versions.c
    at = connection.execute(select(marked.at).where(marked.recommender == recommender, marked.number == number)).scalar()
    if at is not None:
        raise Conflict(f"version {number} of '{recommender}' was collected on {at:%Y-%m-%d}: its files are deleted; start a new run")


def _of_run(connection: Connection, run: str) -> Version | None:
    row = connection.execute(select(versions).where(versions.c.run == run)).one_or_none()
    return None if row is None else _version(row)


def _append(connection: Connection, version: Version) -> Version:
    newest = select(func.max(versions.c.number)).where(versions.c.recommender == version.recommender)
    version = replace(version, number=(connection.execute(newest).scalar() or 0) + 1)
    values = vars(version) | {"files": encode(Files, version.files), "lineage": encode(Lineage, version.lineage)}
    connection.execute(insert(versions).values(values))
    return version


def _version(row: Row[Any]) -> Version:
    try:
        files: Files = decode(Files, sound(row).files)
        lineage: Lineage = decode(Lineage, row.lineage)
        fault = "" if digest_of(files) == row.digest else f"the files in its row do not match its digest {row.digest[:12]}"
    except ValueError as error:
        fault = f"its row cannot be read ({' '.join(str(error).split())[:200]})"
    if fault:
        raise Damaged(f"version {row.number} of '{row.recommender}' is damaged: {fault}; restore its row from a backup")
    return Version(**row._asdict() | {"files": files, "lineage": lineage})
