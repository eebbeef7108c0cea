"""Event log in SQL: each append is one transaction, and exports are streamed."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Select, bindparam, desc, func, insert, literal, select
from sqlalchemy.dialects import postgresql, sqlite

from services.eventlog.attribution import attribute, attribute_earlier
from services.eventlog.dedup import unknown
from services.eventlog.deletion import without_refused
from services.eventlog.files import complete
from services.eventlog.forgetting import without_forgotten
from services.eventlog.impression_lookup import Positive
from services.eventlog.locks import take_turns
from services.eventlog.tables import impressions as shown
from services.eventlog.tables import instant, length, moment
from services.eventlog.tables import interactions as done
from shared.contracts.events import Impression, Interaction
from shared.domain.earned import MILLIONTHS
from shared.domain.errors import Invalid
from shared.domain.forgetting import UserDigest
from shared.ports import IngestResult

_ROWS_AT_ONCE = 10_000


class SqlEventLog:
    """Implements EventLog with one transaction per call."""

    def __init__(self, engine: Engine, digest: UserDigest | None = None) -> None:
        """`digest`: of users, to refuse events of forgotten ones; None: no user is ever forgotten."""
        self._engine = engine
        self._digest = digest
        self._reads = engine.execution_options(read_only=True)
        new = postgresql.insert(shown) if engine.dialect.name == "postgresql" else sqlite.insert(shown)
        self._insert_new = new.on_conflict_do_nothing(index_elements=[shown.c.request_id])

    def impressions(self, impressions: Sequence[Impression]) -> None:
        ordered = sorted(impressions, key=lambda impression: impression.request_id)  # sorted, so that writers don't deadlock
        if not ordered:
            return
        with self._engine.begin() as connection:
            take_turns(connection, {(impression.recommender, impression.user) for impression in ordered})
            accepted = without_refused(connection, "impressions", ordered, lambda shown: (shown.recommender, instant(shown.at)))
            if self._digest is not None:
                accepted = without_forgotten(
                    connection, self._digest, accepted, lambda shown: (shown.recommender, shown.user, instant(shown.at))
                )
            rows = [_impression(impression) for impression in accepted]
            if rows:
                connection.execute(self._insert_new, rows)
                attribute_earlier(connection, accepted, [row["at"] for row in rows])

    def interactions(self, interactions: Sequence[Interaction], positive: Sequence[bool], attribution: timedelta) -> IngestResult:
        received = [_interaction(interaction, good, attribution) for interaction, good in zip(interactions, positive, strict=True)]
        if not received:
            return IngestResult()
        with self._engine.begin() as connection:
            take_turns(
                connection, {(row["recommender"], row[key]) for row in received for key in ("user", "event") if row[key] is not None}
            )
            accepted = without_refused(connection, "interactions", received, lambda row: (row["recommender"], row["at"]))
            if self._digest is not None:
                accepted = without_forgotten(connection, self._digest, accepted, lambda row: (row["recommender"], row["user"], row["at"]))
            rows, conflicts = unknown(connection, accepted)
            good = [row for row in rows if row["positive"]]
            answers, hits = attribute(connection, [_positive(row) for row in good], length(attribution))
            for row, answer in zip(good, answers, strict=True):
                if answer is not None:
                    row |= {"answer": answer.request_id, "position": answer.showed[row["item"]]}
            if rows:
                connection.execute(insert(done), rows)
        return IngestResult(len(rows), len(accepted) - len(rows), conflicts, hits, len(received) - len(accepted))

    def seen_items(
        self, recommender: str, users: Collection[int], since: datetime | None = None, limit: int = 1000
    ) -> Mapping[int, Mapping[int, datetime]]:
        histories: dict[int, dict[int, datetime]] = {}
        if users:
            bounds = {
                "recommender": recommender,
                "users": list(set(users)),
                "since": _EVER if since is None else instant(since),
                "limit": limit,
            }
            with self._reads.connect() as connection:
                for user, item, at in connection.execute(_SEEN_ITEMS, bounds):
                    histories.setdefault(user, {})[item] = moment(at)
        return histories

    def count(self, recommender: str, since: datetime, until: datetime, limit: int) -> int:
        conditions = (done.c.recommender == recommender, done.c.at >= instant(since), done.c.at < instant(until))
        some = select(literal(1)).select_from(done).where(*conditions).limit(limit).subquery()
        with self._reads.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(some)).scalar_one())

    def export(self, recommender: str, since: datetime | None, until: datetime, to: Path) -> int:
        """Writes the events in [since, until) in batches, so that memory doesn't grow with the log; the file is complete or absent."""
        columns = (done.c.user, done.c.item, done.c.value, done.c.at, done.c.kind, done.c.user_id, done.c.item_id)
        query = select(*columns).where(done.c.recommender == recommender)
        query = query.where(done.c.at < instant(until)).order_by(done.c.at, done.c.seq)
        if since is not None:
            query = query.where(done.c.at >= instant(since))
        count = 0
        with complete(to) as part, self._reads.connect() as connection, part.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(("user", "item", "value", "time", "kind", "user_id", "item_id"))
            rows = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query)
            for batch in rows.partitions():
                writer.writerows((user, item, value, _seconds(at), kind, *ids) for user, item, value, at, kind, *ids in batch)
                count += len(batch)
        return count


def _seen_query() -> Select[Any]:
    """Builds the query; called once, because building takes longer than running."""
    conditions = (
        done.c.recommender == bindparam("recommender"),
        done.c.user.in_(bindparam("users", expanding=True)),
        done.c.positive.is_(True),
    )
    newest = (
        select(done.c.user, done.c.item, func.max(done.c.at).label("last"))
        .where(*conditions, done.c.at >= bindparam("since"))
        .group_by(done.c.user, done.c.item)
        .subquery()
    )
    place = func.row_number().over(partition_by=newest.c.user, order_by=desc(newest.c.last)).label("place")
    ranked = select(newest, place).subquery()
    query = select(ranked.c.user, ranked.c.item, ranked.c.last).where(ranked.c.place <= bindparam("limit"))
    return query.order_by(ranked.c.user, ranked.c.place)


_EVER = -(2**63)
_SEEN_ITEMS = _seen_query()


def _impression(impression: Impression) -> dict[str, Any]:
    items = json.dumps(impression.items, separators=(",", ":"))
    propensities = None if impression.propensities is None else _chances(impression.propensities)
    row = impression.model_dump(exclude={"items", "slices", "at", "propensities"})
    slices = " ".join(impression.slices) or None
    return row | {
        "items": items,
        "size": len(impression.items),
        "at": instant(impression.at),
        "propensities": propensities,
        "slices": slices,
    }


@lru_cache(1024)
def _chances(propensities: tuple[float, ...]) -> str:
    """Cached, because most answers have the same propensities."""
    return json.dumps([float(f"{chance:.9g}") for chance in propensities], separators=(",", ":"))


def _interaction(interaction: Interaction, positive: bool, attribution: timedelta) -> dict[str, Any]:
    if interaction.at is None:
        raise Invalid("interaction without a time: set the client's time, or the time of arrival")
    return {
        "recommender": interaction.recommender,
        "user": interaction.user,
        "item": interaction.item,
        "value": interaction.value,
        "positive": positive,
        "request_id": interaction.request_id,
        "at": instant(interaction.at),
        "event": interaction.id,
        "kind": interaction.kind,
        "revenue": None if interaction.revenue is None else round(interaction.revenue * MILLIONTHS),
        "within": length(attribution) if positive else None,
        "answer": None,
        "position": None,
        "user_id": interaction.user_id,
        "item_id": interaction.item_id,
    }


def _positive(row: Mapping[str, Any]) -> Positive:
    return Positive(row["recommender"], row["user"], row["item"], row["request_id"], row["at"], row["within"])


def _seconds(at: int) -> str:
    seconds, rest = divmod(at, 1_000_000)
    return f"{seconds}.{rest:06d}" if rest else str(seconds)
