"""Attribution of positives to answers, computed when either arrives, so that a hit rate is a count.

The stored result depends on the events, not on their order: a positive may arrive before its answer, and a newer answer, or the
answer that the positive names, takes the positive over when it arrives. Each positive stores its answer, and each answer the time
of its earliest positive; the reader applies the attribution window. Writers of one user take a lock (`locks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import BigInteger, Connection, Row, Select, bindparam, func, or_, select, update

from services.eventlog.impression_lookup import Positive, StoredImpression, named, portions, targets
from services.eventlog.tables import impressions, interactions
from shared.contracts.events import Impression

_shown, _done = impressions.c, interactions.c

_HIT = (
    update(impressions)
    .where(_shown.request_id == bindparam("name"), or_(_shown.hit_at.is_(None), _shown.hit_at > bindparam("when")))
    .values(hit_at=bindparam("when"))
)
_HIT_ANEW = update(impressions).where(_shown.request_id == bindparam("name")).values(hit_at=bindparam("when", type_=BigInteger))
_GIVEN_TO = update(interactions).where(_done.seq == bindparam("row")).values(answer=bindparam("name"), position=bindparam("place"))
_positives: Select[Any] = select(
    _done.seq, _done.recommender, _done.user, _done.item, _done.request_id, _done.at, _done.within, _done.answer
).where(_done.positive.is_(True), _done.within.is_not(None))
_OF_USERS = _positives.where(
    _done.recommender == bindparam("recommender"), _done.user.in_(bindparam("users", expanding=True)), _done.at >= bindparam("since")
)
_NAMING = _positives.where(_done.request_id.in_(bindparam("names", expanding=True)))
_EARLIEST = (
    select(_done.answer, func.min(_done.at).label("at")).where(_done.answer.in_(bindparam("names", expanding=True))).group_by(_done.answer)
)


def attribute(connection: Connection, events: Sequence[Positive], attribution: int) -> tuple[list[StoredImpression | None], int]:
    """Writes the hits of new positives; returns each positive's answer, and how many answers became hits within `attribution`."""
    answers = targets(connection, events)
    before: dict[str, StoredImpression] = {}
    after: dict[str, StoredImpression] = {}
    for event, answer in zip(events, answers, strict=True):
        if answer is not None:
            so_far = after.get(answer.request_id) or before.setdefault(answer.request_id, answer)
            after[answer.request_id] = _earlier(so_far, event.at)
    _hit(connection, after)
    hits = sum(hit.hit_within(attribution) and not before[name].hit_within(attribution) for name, hit in after.items())
    return answers, hits


def attribute_earlier(connection: Connection, shown: Sequence[Impression], instants: Sequence[int]) -> None:
    """Attributes the positives that arrived before these impressions; usually there are none."""
    waiting = _waiting(connection, shown, instants)
    moved = [
        (event, answer)
        for event, answer in zip(waiting, targets(connection, waiting), strict=True)
        if answer is not None and answer.request_id != event.answer
    ]
    if not moved:
        return
    rows = [{"row": event.seq, "name": answer.request_id, "place": answer.showed[event.item]} for event, answer in moved]
    connection.execute(_GIVEN_TO, rows)
    gained: dict[str, StoredImpression] = {}
    for event, answer in moved:
        gained[answer.request_id] = _earlier(gained.get(answer.request_id, answer), event.at)
    _hit(connection, gained)
    _count_anew(connection, [event for event, _ in moved if event.answer is not None])


def _waiting(connection: Connection, shown: Sequence[Impression], instants: Sequence[int]) -> list[Positive]:
    """Returns the positives that may belong to these impressions: by request id, and by user since the time of the impression."""
    positives: dict[int, Positive] = {}
    since: dict[str, dict[int, int]] = {}
    for impression, at in zip(shown, instants, strict=True):
        earliest = since.setdefault(impression.recommender, {})
        earliest[impression.user] = min(at, earliest.get(impression.user, at))
    for recommender, users in since.items():
        for some in portions(sorted(users)):
            bounds = {"recommender": recommender, "users": some, "since": min(users[user] for user in some)}
            positives |= {row.seq: _positive(row) for row in connection.execute(_OF_USERS, bounds) if row.at >= users[row.user]}
    for names in portions(sorted({impression.request_id for impression in shown})):
        positives |= {row.seq: _positive(row) for row in connection.execute(_NAMING, {"names": names})}
    return [positives[seq] for seq in sorted(positives)]


def _count_anew(connection: Connection, left: Sequence[Positive]) -> None:
    """Sets the hit of each answer that lost its earliest positive to the earliest remaining positive."""
    answers = named(connection, {event.answer for event in left if event.answer is not None})
    lost = {
        event.answer for event in left if event.answer in answers and answers[event.answer].hit_at == answers[event.answer].hit_by(event.at)
    }
    for names in portions(sorted(name for name in lost if name is not None)):
        earliest = {row.answer: row.at for row in connection.execute(_EARLIEST, {"names": names})}
        rows = [{"name": name, "when": answers[name].hit_by(earliest[name]) if name in earliest else None} for name in names]
        connection.execute(_HIT_ANEW, rows)


def _hit(connection: Connection, answers: Mapping[str, StoredImpression]) -> None:
    if answers:
        connection.execute(_HIT, [{"name": name, "when": answer.hit_at} for name, answer in answers.items()])


def _earlier(answer: StoredImpression, at: int) -> StoredImpression:
    at = answer.hit_by(at)
    return answer if answer.hit_at is not None and answer.hit_at <= at else replace(answer, hit_at=at)


def _positive(row: Row[Any]) -> Positive:
    return Positive(row.recommender, row.user, row.item, row.request_id, row.at, row.within, row.seq, row.answer)
