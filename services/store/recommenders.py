"""Recommenders in SQL: a name, the current spec, and all earlier specs."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, func, insert, select, update

from services.store.catalogue import forget
from services.store.change_counter import Cached, raise_mark
from services.store.columns import sound
from services.store.locks import take_turn
from services.store.resources import SqlResources
from services.store.tables import recommender_history, recommenders, resources, route_history, routes
from shared.contracts.records import RunSpec
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.entity_ids import UNFIXED, IdKinds
from shared.domain.errors import Changed, Conflict, Invalid, NotFound, Unreadable, no_such
from shared.domain.run import RunStatus
from shared.ports import MakeRun, PutResult, Recommender, RunRecord, Writing

log = logging.getLogger(__name__)

_past = recommender_history


class SqlRecommenders:
    """Implements RecommenderStore."""

    def __init__(self, engine: Engine, max_pending_runs: int | None = None) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        self._unreadable: set[tuple[str, int]] = set()
        self._heads = Cached(_heads)
        self._runs = SqlResources(engine, "run", RunStatus, RunSpec, max_pending_runs)

    def put(
        self, spec: RecommenderSpec, now: datetime, actor: str, expected: Container[int] | None = None, make_run: MakeRun | None = None
    ) -> PutResult:
        table = recommenders.c
        with self._engine.begin() as connection:
            take_turn(connection, "recommender", spec.name)
            row = connection.execute(select(recommenders).where(table.name == spec.name)).one_or_none()
            living = row is not None and row.deleted_at is None
            created_at, kinds = (row.created_at, _kinds(row)) if row is not None and living else (now, UNFIXED)
            after = Recommender(spec.name, row.generation + 1 if row else 1, spec, created_at, now, kinds)
            run = None if make_run is None else make_run(after)
            if run is not None and row is not None and (stored_run := self._runs.find(connection, run.id)) is not None:
                return PutResult(_generation_of(connection, stored_run, row, spec), False, stored_run)
            present = row.generation if row is not None and living else 0
            if expected is not None and present not in expected:
                is_now = f"has generation {present}" if present else "does not exist"
                raise Changed(f"recommender '{spec.name}' has changed: it {is_now}; read it again, then decide")
            before = None if row is None else self._readable(row)
            if living and before is not None and before.spec == spec:
                return PutResult(before, False)
            _write(connection, after, actor, is_new=row is None)
            if run is not None:
                self._runs.insert(connection, run, actor)
            raise_mark(connection)
        return PutResult(after, True, run)

    def get(self, name: str) -> Recommender:
        with self._reads.connect() as connection:
            row = connection.execute(select(recommenders).where(recommenders.c.name == name)).one_or_none()
        if row is None or row.deleted_at is not None:
            raise no_such("recommender", name)
        return _recommender(row)

    def list(self) -> Sequence[Recommender]:
        """Returns the recommenders by name, without those whose stored spec this version of the platform can't read."""
        with self._reads.connect() as connection:
            living = select(recommenders).where(recommenders.c.deleted_at.is_(None))
            rows = connection.execute(living.order_by(recommenders.c.name)).all()
        return [recommender for recommender in map(self._readable, rows) if recommender is not None]

    def heads(self) -> Mapping[str, int]:
        with self._reads.connect() as connection:
            return self._heads.of(connection)

    def writings(self, name: str, limit: int, before: int | None = None) -> Sequence[Writing]:
        query = select(_past).where(_past.c.name == name).order_by(_past.c.generation.desc()).limit(limit)
        if before is not None:
            query = query.where(_past.c.generation < before)
        with self._reads.connect() as connection:
            return [_writing(row) for row in connection.execute(query)]

    def writing(self, name: str, generation: int) -> Writing:
        query = select(_past).where(_past.c.name == name, _past.c.generation == generation)
        with self._reads.connect() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFound(f"recommender '{name}' has no spec of generation {generation}")
        return _writing(row)

    def fix_ids(self, name: str, kinds: IdKinds) -> IdKinds:
        table = recommenders.c
        conditions = (table.name == name, table.deleted_at.is_(None))
        values = {"user_ids": func.coalesce(table.user_ids, kinds.user), "item_ids": func.coalesce(table.item_ids, kinds.item)}
        with self._engine.begin() as connection:
            connection.execute(update(recommenders).where(*conditions).values(values))
            row = connection.execute(select(table.user_ids, table.item_ids).where(*conditions)).one_or_none()
            if row is None:
                raise no_such("recommender", name)
            fixed = _kinds(row)
            for entity in ("user", "item"):
                if kinds.of(entity) not in (None, fixed.of(entity)):
                    raise Conflict(f"recommender '{name}' has {fixed.of(entity)} ids of {entity}s, not {kinds.of(entity)} ids")
        return fixed

    def delete(self, name: str, now: datetime) -> None:
        """Deletes in one transaction. A run's start or a route's change locks the row shared, so one of the two sees the other."""
        with self._engine.begin() as connection:
            row = connection.execute(select(recommenders.c.deleted_at).where(recommenders.c.name == name).with_for_update()).one_or_none()
            if row is None:
                raise no_such("recommender", name)
            if row.deleted_at is not None:
                return
            _refuse_busy(connection, name)
            newest = select(routes.c.generation).where(routes.c.recommender == name).scalar_subquery()
            last = (route_history.c.recommender == name, route_history.c.generation == newest)
            connection.execute(update(route_history).where(*last).values(ended=now))
            connection.execute(delete(routes).where(routes.c.recommender == name))
            forget(connection, name)
            connection.execute(update(recommenders).where(recommenders.c.name == name).values(deleted_at=now))
            raise_mark(connection)

    def _readable(self, row: Row[Any]) -> Recommender | None:
        """Returns None for an unreadable spec, and logs each generation once."""
        try:
            return _recommender(row)
        except (Invalid, Unreadable) as error:
            if (row.name, row.generation) not in self._unreadable:
                self._unreadable.add((row.name, row.generation))
                log.error("recommender: left out until its spec is applied again recommender=%s error=%s", row.name, error)
            return None


def _heads(connection: Connection) -> Mapping[str, int]:
    living = select(recommenders.c.name, recommenders.c.generation).where(recommenders.c.deleted_at.is_(None))
    return {row.name: row.generation for row in connection.execute(living.order_by(recommenders.c.name))}


def _write(connection: Connection, recommender: Recommender, actor: str, is_new: bool) -> None:
    """Writes the row and the history entry."""
    entry = {"generation": recommender.generation, "spec": recommender.spec.document()}
    values = entry | {"created_at": recommender.created_at, "updated_at": recommender.updated_at, "deleted_at": None}
    values |= {"user_ids": recommender.ids.user, "item_ids": recommender.ids.item}
    if is_new:
        connection.execute(insert(recommenders).values(name=recommender.name, **values))
    else:
        connection.execute(update(recommenders).where(recommenders.c.name == recommender.name).values(values))
    connection.execute(insert(recommender_history).values(name=recommender.name, at=recommender.updated_at, actor=actor, **entry))


def _generation_of(connection: Connection, run: RunRecord, row: Row[Any], spec: RecommenderSpec) -> Recommender:
    """Returns the recommender at the run's generation; the recommender may have changed since."""
    generation = run.spec.generation
    at = connection.execute(select(_past.c.at).where(_past.c.name == row.name, _past.c.generation == generation)).scalar_one()
    return Recommender(row.name, generation, spec, min(row.created_at, at), at, _kinds(row))


def _refuse_busy(connection: Connection, name: str) -> None:
    table = resources.c
    unfinished = (table.recommender == name, table.kind.in_(("run", "rollout")), table.finished.is_(False))
    query = select(table.kind, table.id).where(*unfinished).order_by(table.kind.desc(), table.created_at, table.id)
    work = [f"{row.kind} {row.id}" for row in connection.execute(query)]
    if work:
        raise Conflict(f"recommender '{name}' has work under way: {', '.join(work)}; cancel runs and abort rollouts first")


def _kinds(row: Any) -> IdKinds:
    return IdKinds(row.user_ids, row.item_ids)


def _recommender(row: Row[Any]) -> Recommender:
    try:
        sound(row)
    except ValueError as error:
        raise Unreadable(f"the stored spec of '{row.name}' is damaged: {error}; apply it again") from None
    spec = read(RecommenderSpec, row.spec, f"stored spec of '{row.name}'")
    return Recommender(row.name, row.generation, spec, row.created_at, row.updated_at, _kinds(row))


def _writing(row: Row[Any]) -> Writing:
    """Returns a damaged spec as an empty document, so that the entry with its author stays visible."""
    return Writing(row.generation, row.at, row.actor, row.spec if isinstance(row.spec, dict) else {})
