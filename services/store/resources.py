"""ResourceStore in SQL: reconciled rows (runs, rollouts, retrainers) of one kind.

A write names the revision that the writer has read, and fails if the row has another revision. So a request that arrives during
a pass makes the commit of the pass a Conflict and is never lost, and two controllers can't both end a step.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    and_,
    case,
    false,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.exc import IntegrityError

from services.store.columns import sound
from services.store.deletion_guard import refuse_deleted
from services.store.lease_time import is_live, lease_time
from services.store.locks import take_turn
from services.store.tables import history, leases, resources
from shared.contracts.codec import decode, encode
from shared.domain.errors import Changed, Conflict, QueueFull, Stale, Unreadable, no_such
from shared.domain.machine import HasState, Request
from shared.domain.queue import UnfinishedRun
from shared.ports import REPLICAS, Due, HistoryEntry, Record
from shared.telemetry import metrics

log = logging.getLogger(__name__)

S = TypeVar("S", bound=HasState)
P = TypeVar("P")

_REQUEST, _INTENT = Request | None, dict[str, Any] | None
_LONGEST_REST = timedelta(days=1)
"""A row that is due later was written with a wrong clock, and is due now."""


class SqlResources(Generic[S, P]):
    """Implements ResourceStore for rows of `kind` with a `status_type` and a `spec_type`."""

    def __init__(self, engine: Engine, kind: str, status_type: type[S], spec_type: type[P], max_pending: int | None = None) -> None:
        """`max_pending`: maximum number of rows of a recommender in the state `pending`."""
        self._engine = engine
        self._max_pending = max_pending
        self._reads = engine.execution_options(read_only=True)
        self._kind = kind
        self._status_type, self._spec_type = status_type, spec_type
        self._unreadable: dict[str, int] = {}

    def create(self, record: Record[S, P], actor: str) -> Record[S, P]:
        try:
            with self._engine.begin() as connection:
                if self._max_pending is not None:
                    take_turn(connection, "recommender", record.recommender)
                existing = self.find(connection, record.id)
                if existing is not None:
                    return existing
                refuse_deleted(connection, record.recommender)
                return self.insert(connection, record, actor)
        except IntegrityError:  # on PostgreSQL another writer may be faster
            return self.get(record.id)

    def get(self, id: str) -> Record[S, P]:
        with self._reads.connect() as connection:
            record = self.find(connection, id)
        if record is None:
            raise no_such(self._kind, id)
        return record

    def due(self, now: datetime, limit: int, holder: str | None = None) -> Sequence[Due]:
        later = resources.c.due_at.between(now + timedelta(microseconds=1), now + _LONGEST_REST)
        query = select(resources.c.id, resources.c.revision).where(self._unfinished, not_(later))
        if holder is not None:
            query = query.where(resources.c.holder == holder)
        with self._reads.connect() as connection:
            rows = connection.execute(query.order_by(resources.c.due_at, resources.c.id).limit(limit))
            return [Due(row.id, row.revision) for row in rows]

    def claim(self, holder: str, replicas: int) -> int:
        free = _free(lease_time(self._engine))
        counts = select(
            func.count().label("all"),
            func.coalesce(func.sum(case((resources.c.holder == holder, 1), else_=0)), 0).label("mine"),
            func.coalesce(func.sum(case((free, 1), else_=0)), 0).label("free"),
        ).where(self._unfinished)
        with self._reads.connect() as connection:
            totals = connection.execute(counts).one()
        share = -(-totals.all // max(replicas, 1))
        if totals.mine > share:
            owned = select(resources.c.id).where(self._unfinished, resources.c.holder == holder)
            return self._hand(owned.order_by(resources.c.due_at.desc(), resources.c.id.desc()), totals.mine - share, None)
        if totals.free and totals.mine < share:
            wanted = select(resources.c.id).where(self._unfinished, free).order_by(resources.c.due_at, resources.c.id)
            return self._hand(wanted, share - totals.mine, holder)
        return 0

    def list(  # noqa: PLR0913  each is a filter
        self,
        recommender: str | None = None,
        *,
        active: bool | None = None,
        states: Collection[str] | None = None,
        among: Collection[str] | None = None,
        dead_letter: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> Sequence[Record[S, P]]:
        """Queries each state separately, so that each part comes sorted from an index, for any number of rows."""
        conditions = [resources.c.kind == self._kind]
        if recommender is not None:
            conditions.append(resources.c.recommender == recommender)
        if among is not None:
            conditions.append(resources.c.recommender.in_(sorted(among)))
        if dead_letter is not None:
            conditions.append(resources.c.dead_letter if dead_letter else not_(resources.c.dead_letter))
        if since is not None:
            conditions.append(resources.c.created_at >= since)
        if until is not None:
            conditions.append(resources.c.created_at < until)
        if active is not None:
            conditions.append(resources.c.finished.is_(not active))
        records: builtins.list[Record[S, P]] = []
        while len(records) < limit:
            place = [] if before is None else [tuple_(resources.c.created_at, resources.c.id) < self._place(before)]
            with self._reads.connect() as connection:
                rows = connection.execute(_chosen([*conditions, *place], states, limit)).all()
            records += [record for record in map(self._readable, rows) if record is not None]
            if len(rows) < limit:
                break
            before = rows[-1].id  # an unreadable row must not end the list
        return records[:limit]

    def oldest_active(self, recommender: str) -> str | None:
        query = (
            select(resources.c.id)
            .where(self._unfinished, resources.c.recommender == recommender)
            .order_by(resources.c.created_at, resources.c.id)
            .limit(1)
        )
        with self._reads.connect() as connection:
            return connection.execute(query).scalar()

    def queued(self) -> Sequence[UnfinishedRun]:
        begun = (resources.c.state != "pending") | resources.c.intent.is_not(None)
        light = (resources.c.id, resources.c.recommender, resources.c.priority, resources.c.created_at, begun.label("active"))
        query = select(*light).where(resources.c.kind == self._kind, resources.c.finished.is_(False))
        with self._reads.connect() as connection:
            return [
                UnfinishedRun(row.id, row.recommender, row.priority, row.created_at, bool(row.active)) for row in connection.execute(query)
            ]

    def write_intent(self, record: Record[S, P], intent: Mapping[str, Any]) -> Record[S, P]:
        with self._engine.begin() as connection:
            self._advance(connection, record, intent=dict(intent))
        return replace(record, intent=intent, revision=record.revision + 1)

    def commit(
        self, record: Record[S, P], status: S, *, due_at: datetime, entry: HistoryEntry | None, finished: bool, clear_request: bool
    ) -> Record[S, P]:
        request = None if clear_request else record.request
        written = {"status": encode(self._status_type, status), "state": status.state, "intent": None, "request": encode(_REQUEST, request)}
        written["dead_letter"] = getattr(status, "dead_letter", False)
        with self._engine.begin() as connection:
            self._advance(connection, record, **written, due_at=due_at, finished=finished)
            if entry is not None:
                self._append(connection, record.id, entry)
        return replace(record, status=status, intent=None, request=request, due_at=due_at, revision=record.revision + 1)

    def prioritise(self, record: Record[S, P], priority: int, entry: HistoryEntry) -> Record[S, P]:
        with self._engine.begin() as connection:
            self._advance(connection, record, priority=priority)
            self._append(connection, record.id, entry)
        return replace(record, priority=priority, revision=record.revision + 1)

    def ask(self, id: str, request: Request, now: datetime, expected: Container[int] | None = None) -> Record[S, P]:
        """Stores a request; raises Conflict for a finished row, where no controller would read the request."""
        with self._engine.begin() as connection:
            row = connection.execute(select(resources).where(*self._named(id)).with_for_update()).one_or_none()
            if row is None:
                raise no_such(self._kind, id)
            if expected is not None and row.revision not in expected:
                is_now = f"{row.state} at revision {row.revision}"
                raise Changed(f"{self._kind} '{id}' has changed: it is {is_now}; read it again, then decide")
            if row.finished:
                raise Conflict(f"{self._kind} '{id}' has ended ({row.state}): cannot {request.verb} it")
            record = self._record(row)
            if record.request is not None:
                raise Conflict(f"{self._kind} '{id}' has an open request ({record.request.verb}): retry when it is done")
            due_at = min(record.due_at, now)
            self._advance(connection, record, request=encode(_REQUEST, request), due_at=due_at)
        return replace(record, request=request, due_at=due_at, revision=record.revision + 1)

    def history(self, id: str, limit: int | None = None, after: int | None = None) -> Sequence[HistoryEntry]:
        query = select(history) if after is None else select(history).where(history.c.seq > after)
        return self._entries(id, query.order_by(history.c.seq).limit(limit))

    def latest(self, id: str, limit: int, before: int | None = None) -> Sequence[HistoryEntry]:
        query = select(history) if before is None else select(history).where(history.c.seq < before)
        return self._entries(id, query.order_by(history.c.seq.desc()).limit(limit))

    def _entries(self, id: str, query: Select[Any]) -> Sequence[HistoryEntry]:
        with self._reads.connect() as connection:
            rows = connection.execute(query.where(history.c.kind == self._kind, history.c.id == id)).all()
        if not rows:
            self.get(id)
        return [HistoryEntry(row.at, row.source, row.target, row.reason, row.actor, row.seq) for row in rows]

    @property
    def _unfinished(self) -> ColumnElement[bool]:
        return and_(resources.c.kind == self._kind, resources.c.finished.is_(False))

    def _hand(self, rows: Select[tuple[str]], count: int, holder: str | None) -> int:
        """Assigns up to `count` rows to the holder; skips rows that another transaction is writing."""
        chosen = rows.limit(count).with_for_update(skip_locked=True).cte("chosen")  # chosen once, for any query plan
        with self._engine.begin() as connection:
            conditions = (resources.c.kind == self._kind, resources.c.id.in_(select(chosen.c.id)))
            return len(connection.execute(update(resources).where(*conditions).values(holder=holder).returning(resources.c.id)).all())

    def _place(self, id: str) -> ColumnElement[Any]:
        """Returns the sort position of a row in lists."""
        with self._reads.connect() as connection:
            created_at = connection.execute(select(resources.c.created_at).where(*self._named(id))).scalar()
        if created_at is None:
            raise no_such(self._kind, id)
        return tuple_(literal(created_at, resources.c.created_at.type), literal(id))

    def _named(self, id: str) -> builtins.list[ColumnElement[bool]]:
        return [resources.c.kind == self._kind, resources.c.id == id]

    def find(self, connection: Connection, id: str) -> Record[S, P] | None:
        row = connection.execute(select(resources).where(*self._named(id))).one_or_none()
        return None if row is None else self._record(row)

    def insert(self, connection: Connection, record: Record[S, P], actor: str) -> Record[S, P]:
        """Inserts a row. With `max_pending` the caller holds the recommender's lock, so that no other writer adds a row."""
        self._refuse_full(connection, record.recommender)
        values = vars(record) | {"spec": encode(self._spec_type, record.spec), "status": encode(self._status_type, record.status)}
        values |= {
            "kind": self._kind,
            "state": record.status.state,
            "request": encode(_REQUEST, record.request),
            "finished": False,
            "dead_letter": False,
        }
        connection.execute(insert(resources).values(values))
        created = HistoryEntry(record.created_at, "", record.status.state, record.status.reason or "created", actor)
        self._append(connection, record.id, created)
        return record

    def _refuse_full(self, connection: Connection, recommender: str) -> None:
        if self._max_pending is None:
            return
        waiting = (self._unfinished, resources.c.recommender == recommender, resources.c.state == "pending")
        count = connection.execute(select(func.count()).where(*waiting)).scalar_one()
        if count >= self._max_pending:
            metrics.LIMITED.labels("runs").inc()
            raise QueueFull(
                f"recommender '{recommender}' has {count} pending {self._kind}s, at most {self._max_pending} may wait: wait until some "
                "have begun, cancel some, or raise EYAS_MAX_PENDING_RUNS"
            )

    def _advance(self, connection: Connection, record: Record[S, P], **values: Any) -> None:
        statement = (
            update(resources)
            .where(*self._named(record.id), resources.c.revision == record.revision)
            .values(**values, revision=record.revision + 1)
        )
        if connection.execute(statement).rowcount == 0:
            raise _stale(self._kind, record.id)

    def _append(self, connection: Connection, id: str, entry: HistoryEntry) -> None:
        values = {"at": entry.at, "source": entry.source, "target": entry.target, "reason": entry.reason, "actor": entry.actor}
        connection.execute(insert(history).values(kind=self._kind, id=id, **values))

    def _readable(self, row: Row[Any]) -> Record[S, P] | None:
        """Returns None for an unreadable row, and logs each revision once."""
        try:
            return self._record(row)
        except Unreadable as error:
            if self._unreadable.get(row.id) != row.revision:
                self._unreadable[row.id] = row.revision
                log.error("%s: unreadable, left out of lists id=%s error=%s", self._kind, row.id, error)
            return None

    def _record(self, row: Row[Any]) -> Record[S, P]:
        try:
            return Record(
                row.id,
                row.recommender,
                decode(self._spec_type, sound(row).spec),
                decode(self._status_type, row.status),
                row.created_at,
                row.due_at,
                row.revision,
                decode(_REQUEST, row.request),
                decode(_INTENT, row.intent),
                row.priority,
            )
        except ValueError as error:
            message = " ".join(str(error).split())[:300]
            raise Unreadable(f"{self._kind} '{row.id}' ({row.state}) has a stored form that this release cannot read: {message}") from error


def _chosen(conditions: Sequence[ColumnElement[bool]], states: Collection[str] | None, limit: int) -> Select[Any]:
    if states is None:
        return _newest(conditions, limit)
    parts = [select(_newest([*conditions, resources.c.state == state], limit).subquery()) for state in sorted(set(states))]
    if not parts:
        return _newest([*conditions, false()], limit)
    rows = union_all(*parts).subquery()
    return select(rows).order_by(rows.c.created_at.desc(), rows.c.id.desc()).limit(limit)


def demand_unchanged(connection: Connection, kind: str, record: Record[Any, Any]) -> None:
    """Raises Stale if the row has changed since it was read; locks the row until the transaction ends."""
    query = select(resources.c.revision).where(resources.c.kind == kind, resources.c.id == record.id)
    if connection.execute(query.with_for_update(read=True)).scalar() != record.revision:
        raise _stale(kind, record.id)


def _stale(kind: str, id: str) -> Stale:
    return Stale(f"{kind} '{id}' has changed since it was read: read it again")


def _newest(conditions: Sequence[ColumnElement[bool]], limit: int) -> Select[Any]:
    return select(resources).where(*conditions).order_by(resources.c.created_at.desc(), resources.c.id.desc()).limit(limit)


def _free(now: ColumnElement[datetime]) -> ColumnElement[bool]:
    """Returns the condition of rows without a holder whose replica is alive."""
    living = select(leases.c.name).where(leases.c.name == literal(REPLICAS) + resources.c.holder, is_live(leases.c.until, now))
    return or_(resources.c.holder.is_(None), ~living.exists())
