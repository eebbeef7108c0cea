"""Tables of events. Times are whole microseconds since 1970, so that SQL can subtract them on every database.

Each index serves one query and holds every column that this query needs. Migrations in services/store create the tables;
a test compares both.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, ColumnElement, Float, Index, Integer, MetaData, Table, Text, or_, text

from shared.contracts.events import NOTHING_LEFT
from shared.domain.errors import Invalid

metadata = MetaData()

_with_id, _naming, _answering = (text(f"{column} IS NOT NULL") for column in ("event", "request_id", "answer"))

impressions = Table(
    "impressions",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("recommender", Text, nullable=False),
    Column("user", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("variant", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("items", Text, nullable=False),  # JSON list in the order shown
    Column("fallback", Text),
    Column("at", BigInteger, nullable=False),
    Column("hit_at", BigInteger),  # time of the earliest positive of this answer
    Column("bucket", Integer),  # bucket of the scoring latency; null if the version wasn't asked, or the latency is unknown
    Column("score", Float),  # mean score of the items shown
    Column("size", Integer, nullable=False),  # number of items
    Column("propensities", Text),  # JSON list of the items' propensities; null without exploration
    Column("slices", Text),  # names separated by spaces, in order; null without slices
    Index("impressions_by_user", "recommender", "user", "at"),
    Index("impressions_by_version", "recommender", "version", "at", "hit_at", "size", "request_id", "variant", "fallback", "slices"),
    Index("impressions_by_route", "recommender", "generation", "variant", "user", "fallback", "at", "hit_at"),
    Index("impressions_by_latency", "recommender", "generation", "variant", "fallback", "bucket", "score", "at"),
)

interactions = Table(
    "interactions",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("recommender", Text, nullable=False),
    Column("user", BigInteger, nullable=False),
    Column("item", BigInteger, nullable=False),
    Column("value", Float),
    Column("positive", Boolean, nullable=False),
    Column("request_id", Text),
    Column("at", BigInteger, nullable=False),
    Column("event", Text),  # the client's id of the event
    Column("kind", Text),
    Column("revenue", BigInteger),  # in millionths of the currency unit
    Column("within", BigInteger),  # of a positive: maximum age of an answer that the event doesn't name
    Column("answer", Text),  # request id of the answer, if known
    Column("position", Integer),  # place of the item in the answer
    Column("user_id", Text),  # the user's id if it is text; `user` is its key
    Column("item_id", Text),
    Index("interactions_by_user", "recommender", "user", "positive", "at", "item"),
    Index("interactions_by_time", "recommender", "at", "seq", "positive", "item"),
    Index("interactions_by_event", "recommender", "event", unique=True, sqlite_where=_with_id, postgresql_where=_with_id),
    Index("interactions_by_name", "request_id", sqlite_where=_naming, postgresql_where=_naming),
    Index("interactions_by_answer", "answer", "kind", "position", "at", "revenue", sqlite_where=_answering, postgresql_where=_answering),
    sqlite_autoincrement=True,
)


# Days before which events are refused and deleted, as instants. A table without a row keeps all events.
event_deletions = Table(
    "event_deletions",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("events", Text, primary_key=True),  # interactions or impressions
    Column("refused_before", BigInteger, nullable=False),
    Column("refused_at", BigInteger, nullable=False),
    Column("deleted_before", BigInteger),
    Column("compactions", Integer),  # number of compactions in the archive when days were last marked as deleted
)

# Users whose data was deleted: a digest of each, and until when its data is forgotten. One row for each time that a user was forgotten.
forgotten_users = Table(
    "forgotten_users",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("archived", Boolean, nullable=False),  # whether the archive of events lacks the user
    Index("forgotten_users_by_time", "recommender", "at"),
)


def answered_by_version(fallback: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the answer is the version's own, empty or not."""
    return or_(fallback.is_(None), fallback == NOTHING_LEFT)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def instant(at: datetime) -> int:
    """Returns the stored form of a time."""
    if at.tzinfo is None:
        raise Invalid(f"event time without a time zone: {at.isoformat()}")
    return (at - _EPOCH) // _MICROSECOND


def moment(at: int) -> datetime:
    """Returns the time of a stored value."""
    return _EPOCH + at * _MICROSECOND


def length(span: timedelta) -> int:
    """Returns a duration in the unit of `instant`."""
    return span // _MICROSECOND
