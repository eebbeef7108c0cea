"""Routes in SQL: current routes, their history, and the gateways' reports of what they serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, delete, func, insert, or_, select, union_all, update
from sqlalchemy.exc import IntegrityError

from services.store.change_counter import Cached, raise_mark
from services.store.deletion_guard import refuse_deleted
from services.store.locks import take_turn
from services.store.registry import refuse_collected
from services.store.resources import demand_unchanged
from services.store.tables import collected_versions, gateways, recommenders, route_history, routes
from shared.domain.route import Route
from shared.ports import GatewayReport, RolloutRecord, RouteEntry

_FORGOTTEN = timedelta(days=1)
"""The row of a gateway that is silent for this long is deleted: a restarted gateway has another name."""

_WRITTEN_EVERY = timedelta(seconds=10)
"""Interval of written heartbeats if no other process reads them."""

_past = route_history.c


class SqlRoutes:
    """Implements RouteStore."""

    def __init__(self, engine: Engine, *, alone: bool = False) -> None:
        """`alone`: no other process reads the heartbeats, so only a few are written."""
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        self._beats = engine.execution_options(quiet=True)
        self._alone = alone
        self._heard: dict[str, tuple[datetime, datetime]] = {}
        """By gateway of this process: the last written heartbeat, and the last heartbeat."""
        self._all = Cached(_all)

    def get(self, recommender: str) -> Route | None:
        with self._reads.connect() as connection:
            return _present(connection, recommender)

    def all(self) -> Mapping[str, Route]:
        with self._reads.connect() as connection:
            return self._all.of(connection)

    def put(self, recommender: str, route: Route, now: datetime, actor: str, reason: str, during: RolloutRecord | None = None) -> Route:
        with self._engine.begin() as connection:
            take_turn(connection, "versions", recommender)  # also the registry's lock: no routed version is collected
            if during is not None:
                demand_unchanged(connection, "rollout", during)
            before = _present(connection, recommender)
            if before is not None and replace(route, generation=before.generation, since=before.since) == before:
                return before
            refuse_deleted(connection, recommender)
            for version in sorted(route.named()):
                refuse_collected(connection, recommender, version)
            newest = select(func.max(_past.generation)).where(_past.recommender == recommender)
            route = replace(route, generation=(connection.execute(newest).scalar() or 0) + 1, since=now)
            if before is None:
                connection.execute(insert(routes).values(recommender=recommender, **vars(route)))
            else:
                connection.execute(update(routes).where(routes.c.recommender == recommender).values(vars(route)))
            entry = {"recommender": recommender, "actor": actor, "reason": reason, **vars(route)}
            connection.execute(insert(route_history).values(entry))
            raise_mark(connection)
            return route

    def history(self, recommender: str, limit: int = 100, before: int | None = None) -> Sequence[RouteEntry]:
        return self._entries(recommender, limit, *((_past.generation < before,) if before is not None else ()))

    def at(self, recommender: str, at: datetime) -> RouteEntry | None:
        entries = self._entries(recommender, 1, _past.since <= at)
        return entries[0] if entries and (entries[0].until is None or at < entries[0].until) else None

    def _entries(self, recommender: str, limit: int, *where: ColumnElement[bool]) -> Sequence[RouteEntry]:
        after = route_history.alias("after")
        joined = (after.c.recommender == _past.recommender) & (after.c.generation == _past.generation + 1)
        query = (
            select(route_history, func.coalesce(_past.ended, after.c.since).label("until"))
            .select_from(route_history.outerjoin(after, joined))
            .where(_past.recommender == recommender, *where)
            .order_by(_past.generation.desc())
            .limit(limit)
        )
        with self._reads.connect() as connection:
            return [RouteEntry(_route(row), row.until, row.actor, row.reason) for row in connection.execute(query)]

    def left(self, recommender: str) -> Mapping[int, datetime]:
        """Returns when each version left: with the generation after the last generation that named it, or with the recommender's
        deletion. Versions of the current route are left out."""
        condition = _past.recommender == recommender
        named = union_all(
            select(_past.stable.label("version"), _past.generation).where(condition),
            select(_past.candidate, _past.generation).where(condition, _past.candidate.is_not(None)),
        ).subquery()
        last = select(named.c.version, func.max(named.c.generation).label("generation")).group_by(named.c.version).subquery()
        follower = select(last.c.version, _past.since).where(condition, _past.generation == last.c.generation + 1)
        ended = select(last.c.version, _past.ended).where(condition, _past.generation == last.c.generation, _past.ended.is_not(None))
        with self._reads.connect() as connection:
            departures = {row.version: row.since for row in connection.execute(follower)}
            return departures | {row.version: row.ended for row in connection.execute(ended)}

    def serving_since(self, recommender: str, version: int) -> datetime | None:
        before = route_history.alias("before")
        joined = (before.c.recommender == _past.recommender) & (before.c.generation == _past.generation - 1)
        query = (
            select(_past.since)
            .select_from(route_history.outerjoin(before, joined))
            .where(_past.recommender == recommender, _past.stable == version)
            .where(or_(before.c.stable.is_(None), before.c.stable != version, before.c.ended.is_not(None)))
            .order_by(_past.generation.desc())
            .limit(1)
        )
        with self._reads.connect() as connection:
            return connection.execute(query).scalar()

    def previous(self, recommender: str) -> int | None:
        """Returns what was stable before the present version first was. This leaves out versions that were rolled back,
        versions from before a deletion of the recommender, and collected versions."""
        of_recommender = _past.recommender == recommender
        begun = select(func.coalesce(func.max(_past.generation), 0)).where(of_recommender, _past.ended.is_not(None)).scalar_subquery()
        in_lifetime = of_recommender & (_past.generation > begun)
        present = select(routes.c.stable).where(routes.c.recommender == recommender).scalar_subquery()
        first = select(func.min(_past.generation)).where(in_lifetime, _past.stable == present).scalar_subquery()
        marked = collected_versions.c
        gone = select(marked.number).where(marked.recommender == recommender)
        query = select(_past.stable).where(in_lifetime, _past.generation < first, _past.stable.not_in(gone))
        query = query.order_by(_past.generation.desc()).limit(1)
        with self._reads.connect() as connection:
            return connection.execute(query).scalar()

    def closed(self) -> Mapping[str, datetime]:
        query = select(recommenders.c.name, recommenders.c.deleted_at).where(recommenders.c.deleted_at.is_not(None))
        with self._reads.connect() as connection:
            return {row.name: row.deleted_at for row in connection.execute(query.order_by(recommenders.c.name))}

    def heard(self, gateway: str, now: datetime) -> bool:
        written = self._heard.get(gateway)
        if written is not None and timedelta(0) <= now - written[0] < _WRITTEN_EVERY:
            self._heard[gateway] = written[0], now
            return True
        with self._beats.begin() as connection:
            is_known = connection.execute(update(gateways).where(gateways.c.gateway == gateway).values(heard_at=now)).rowcount > 0
        if is_known and self._alone:
            self._heard[gateway] = now, now
        return is_known

    def report(self, gateway: str, served: Mapping[str, int], now: datetime) -> None:
        self._heard.pop(gateway, None)
        values = {"served": dict(served), "heard_at": now}
        statement = update(gateways).where(gateways.c.gateway == gateway).values(values)
        with self._engine.begin() as connection:
            if connection.execute(statement).rowcount:
                return
        try:
            with self._engine.begin() as connection:
                connection.execute(delete(gateways).where(gateways.c.heard_at < now - _FORGOTTEN))
                connection.execute(insert(gateways).values(gateway=gateway, **values))
        except IntegrityError:  # the gateway has sent its first report twice
            with self._engine.begin() as connection:
                connection.execute(statement)

    def reports(self, recommender: str, since: datetime) -> Mapping[str, int]:
        return {report.name: report.served.get(recommender, 0) for report in self.gateways(since)}

    def gateways(self, since: datetime) -> Sequence[GatewayReport]:
        written = since - _WRITTEN_EVERY if self._alone else since
        query = select(gateways).where(gateways.c.heard_at >= written).order_by(gateways.c.gateway)
        with self._reads.connect() as connection:
            rows = connection.execute(query).all()
        heard = {row.gateway: max((row.heard_at, *self._heard.get(row.gateway, ()))) for row in rows}
        reports = [GatewayReport(row.gateway, row.served if isinstance(row.served, dict) else {}, heard[row.gateway]) for row in rows]
        return [report for report in reports if report.heard_at >= since]


def _all(connection: Connection) -> Mapping[str, Route]:
    return {row.recommender: _route(row) for row in connection.execute(select(routes).order_by(routes.c.recommender))}


def _present(connection: Connection, recommender: str) -> Route | None:
    row = connection.execute(select(routes).where(routes.c.recommender == recommender)).one_or_none()
    return None if row is None else _route(row)


def _route(row: Row[Any]) -> Route:
    return Route(row.stable, row.candidate, row.weight, row.salt, row.step, row.shadow, row.generation, row.since)
