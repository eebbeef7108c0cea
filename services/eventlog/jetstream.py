"""Event log on NATS JetStream: writes return when the stream has the events; reads come from the database that the joiner fills.

Gateways publish. A control plane's joiner reads the stream, writes to SQL what the SQL event log would write, and only then
acknowledges. After a crash the message is delivered again, and events that are already stored count once. So KPIs stay exact
SQL queries, and a slow or unavailable database doesn't block the gateways.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from services.eventlog.messages import Parcel, of_impressions, of_interactions, read_parcel
from services.eventlog.nats import JetStream
from services.eventlog.sql import SqlEventLog
from shared.contracts.events import Impression, Interaction
from shared.domain.errors import Invalid, Unavailable, Unreadable
from shared.ports import IngestResult
from shared.telemetry import metrics

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = logging.getLogger(__name__)

AT_ONCE = 100
"""Maximum number of messages that are stored together."""
_WAIT = 0.5
_AGAIN = 5.0
"""Seconds until a message that couldn't be stored is delivered again."""


class JetStreamEventLog:
    """Implements EventLog."""

    def __init__(self, stream: JetStream, joined: SqlEventLog) -> None:
        self._stream = stream
        self._joined = joined

    def impressions(self, impressions: Sequence[Impression]) -> None:
        for impression in impressions:
            if impression.at.tzinfo is None:
                raise Invalid(f"event time without a time zone: {impression.at.isoformat()}")
        if impressions:
            self._stream.publish(list(of_impressions(impressions)))

    def interactions(self, interactions: Sequence[Interaction], positive: Sequence[bool], attribution: timedelta) -> IngestResult:
        pairs = list(zip(interactions, positive, strict=True))
        if any(interaction.at is None for interaction, _ in pairs):
            raise Invalid("interaction without a time: set the client's time, or the time of arrival")
        if pairs:
            self._stream.publish(list(of_interactions(interactions, positive, attribution)))
        return IngestResult(len(pairs), None, None, None)

    def seen_items(
        self, recommender: str, users: Collection[int], since: datetime | None = None, limit: int = 1000
    ) -> Mapping[int, Mapping[int, datetime]]:
        return self._joined.seen_items(recommender, users, since, limit)

    def count(self, recommender: str, since: datetime, until: datetime, limit: int) -> int:
        return self._joined.count(recommender, since, until, limit)

    def export(self, recommender: str, since: datetime | None, until: datetime, to: Path) -> int:
        return self._joined.export(recommender, since, until, to)


@dataclass(frozen=True)
class JoinedMessages:
    messages: int = 0
    new: int = 0
    duplicates: int = 0
    conflicts: int = 0
    hits: int = 0


class Joiner:
    """Writes the stream's events to the database. Several processes may do so: a message goes to one process at a time."""

    def __init__(self, stream: JetStream, joined: SqlEventLog, at_once: int = AT_ONCE) -> None:
        self._stream = stream
        self._joined = joined
        self._at_once = at_once

    def step(self) -> None:
        """Stores all waiting messages; called repeatedly."""
        while self.join().messages == self._at_once:
            pass
        metrics.EVENTS_WAITING.set(self._stream.waiting())

    def join(self, wait: float = _WAIT) -> JoinedMessages:
        """Stores one batch of messages."""
        messages = self._stream.fetch(self._at_once, wait)
        if not messages:
            return JoinedMessages()
        parcels, unread = _read(messages)
        try:
            stored = self._store([parcel for _, parcel in parcels])
        except Unavailable:
            self._stream.give_back(messages, _AGAIN)
            raise
        except Exception:
            log.exception("event log: storing a batch failed, storing its messages one by one messages=%d", len(parcels))
            stored = self._one_by_one(parcels)
        else:
            self._stream.acknowledge([message for message, _ in parcels])
        if unread:
            self._stream.give_back(unread, _AGAIN * 12)
        return JoinedMessages(len(messages), stored.new, stored.duplicates or 0, stored.conflicts or 0, stored.hits or 0)

    def _store(self, parcels: Sequence[Parcel]) -> IngestResult:
        """Stores impressions first, so that hits are counted with their positives."""
        self._joined.impressions([impression for parcel in parcels for impression in parcel.impressions])
        total: Counter[str] = Counter()
        for attribution in sorted({parcel.attribution for parcel in parcels if parcel.interactions}):
            some = [parcel for parcel in parcels if parcel.interactions and parcel.attribution == attribution]
            done = [interaction for parcel in some for interaction in parcel.interactions]
            stored = self._joined.interactions(done, [good for parcel in some for good in parcel.positive], attribution)
            total.update(new=stored.new, duplicates=stored.duplicates or 0, conflicts=stored.conflicts or 0, hits=stored.hits or 0)
        metrics.JOINED.inc(total["new"])
        return IngestResult(total["new"], total["duplicates"], total["conflicts"], total["hits"])

    def _one_by_one(self, parcels: Sequence[tuple[Msg, Parcel]]) -> IngestResult:
        """Stores messages separately: a message that can't be stored stays in the stream and blocks no other message."""
        total: Counter[str] = Counter()
        for message, parcel in parcels:
            try:
                stored = self._store([parcel])
            except Exception as error:
                log.error("event log: storing a message failed, it stays in the stream error=%s", error)
                self._stream.give_back([message], _AGAIN * 12)
                continue
            total.update(new=stored.new, duplicates=stored.duplicates or 0, conflicts=stored.conflicts or 0, hits=stored.hits or 0)
            self._stream.acknowledge([message])
        return IngestResult(total["new"], total["duplicates"], total["conflicts"], total["hits"])


def _read(messages: Sequence[Msg]) -> tuple[list[tuple[Msg, Parcel]], list[Msg]]:
    parcels, unread = [], []
    for message in messages:
        try:
            parcels.append((message, read_parcel(message.data)))
        except Unreadable as error:
            log.error("event log: unreadable message, it stays in the stream error=%s", error)
            unread.append(message)
    return parcels, unread
