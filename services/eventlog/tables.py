"""The tables of events. Times are whole microseconds since 1970, so that SQL can subtract them on every database.

Each index answers one question, and answers it alone (it holds every column that the question needs). Migrations make the
tables, in services/store; a test compares the two.
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
    Column("items", Text, nullable=False),  # a JSON list, in the order shown
    Column("fallback", Text),
    Column("at", BigInteger, nullable=False),
    Column("hit_at", BigInteger),  # of the earliest positive that reacts to it
    Column("bucket", Integer),  # of the latency of scoring; none where the version wasn't asked, or nobody noted it
    Column("score", Float),  # mean of the items shown
    Column("size", Integer),  # how many items; none where nobody noted it
    Column("chances", Text),  # a JSON list: of each item, that it was shown in its place; none where nothing was left to chance
    Column("slices", Text),  # names with a space between them, in order; none where there are none
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
    Column("event", Text),  # the client's own id
    Column("kind", Text),
    Column("revenue", BigInteger),  # in millionths
    Column("within", BigInteger),  # of a positive: how old an answer may be that it reacts to without naming it
    Column("answer", Text),  # that it reacts to, as far as is known by now
    Column("position", Integer),  # of the item in that answer
    Index("interactions_by_user", "recommender", "user", "positive", "at", "item"),
    Index("interactions_by_time", "recommender", "at", "seq", "positive", "item"),
    Index("interactions_by_event", "recommender", "event", unique=True, sqlite_where=_with_id, postgresql_where=_with_id),
    Index("interactions_by_name", "request_id", sqlite_where=_naming, postgresql_where=_naming),
    Index("interactions_by_answer", "answer", "kind", "position", "at", "revenue", sqlite_where=_answering, postgresql_where=_answering),
    sqlite_autoincrement=True,
)


def answered_by_version(fallback: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the answer is the version's own, empty or not."""
    return or_(fallback.is_(None), fallback == NOTHING_LEFT)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def instant(at: datetime) -> int:
    """A time as it is stored."""
    if at.tzinfo is None:
        raise Invalid(f"an event's time needs a zone: {at.isoformat()}")
    return (at - _EPOCH) // _MICROSECOND


def moment(at: int) -> datetime:
    """The time that is stored so."""
    return _EPOCH + at * _MICROSECOND


def length(span: timedelta) -> int:
    """A stretch of time, in the unit of `instant`."""
    return span // _MICROSECOND
