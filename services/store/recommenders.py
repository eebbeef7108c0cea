"""Recommenders: a name, its latest spec, and every spec that it ever had."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Row, insert, select, update

from services.store.tables import recommender_history, recommenders
from services.store.turns import take_turn
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.errors import Invalid, no_such
from shared.ports import Recommender

log = logging.getLogger(__name__)


class SqlRecommenders:
    """Implements RecommenderStore."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        self._unreadable: set[tuple[str, int]] = set()

    def put(self, spec: RecommenderSpec, now: datetime, actor: str) -> Recommender:
        table = recommenders.c
        with self._engine.begin() as connection:
            take_turn(connection, "recommender", spec.name)
            row = connection.execute(select(recommenders).where(table.name == spec.name)).one_or_none()
            before = None if row is None else self._readable(row)
            if before is not None and before.spec == spec:
                return before
            generation = row.generation + 1 if row else 1
            values = {"generation": generation, "spec": spec.document(), "updated_at": now}
            if row is None:
                connection.execute(insert(recommenders).values(name=spec.name, created_at=now, **values))
            else:
                connection.execute(update(recommenders).where(table.name == spec.name).values(values))
            entry = {"name": spec.name, "generation": generation, "spec": spec.document(), "at": now, "actor": actor}
            connection.execute(insert(recommender_history).values(entry))
        return Recommender(spec.name, generation, spec, row.created_at if row else now, now)

    def get(self, name: str) -> Recommender:
        with self._reads.connect() as connection:
            row = connection.execute(select(recommenders).where(recommenders.c.name == name)).one_or_none()
        if row is None:
            raise no_such("recommender", name)
        return _recommender(row)

    def list(self) -> Sequence[Recommender]:
        """By name, without those whose stored spec this version of the platform can't read: one of them stops no other."""
        with self._reads.connect() as connection:
            rows = connection.execute(select(recommenders).order_by(recommenders.c.name)).all()
        return [found for found in map(self._readable, rows) if found is not None]

    def _readable(self, row: Row[Any]) -> Recommender | None:
        """None where the stored spec can't be read, which is said once of each generation."""
        try:
            return _recommender(row)
        except Invalid as error:
            if (row.name, row.generation) not in self._unreadable:
                self._unreadable.add((row.name, row.generation))
                log.error("recommender '%s' is left out until its spec is applied again: %s", row.name, error)
            return None


def _recommender(row: Row[Any]) -> Recommender:
    spec = read(RecommenderSpec, row.spec, f"stored spec of '{row.name}'")
    return Recommender(row.name, row.generation, spec, row.created_at, row.updated_at)
