"""Events as messages of a stream: each message can be stored again without counting twice."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError

from services.eventlog.nats import Message
from shared.contracts.events import Impression, Interaction
from shared.domain.errors import Unreadable

FORMAT = 1
_EVENTS = 500
_ITEMS = 20_000
"""Maximum per message, which keeps a message well below the server's limit of one megabyte."""

_impressions, _interactions = TypeAdapter(tuple[Impression, ...]), TypeAdapter(tuple[Interaction, ...])


@dataclass(frozen=True)
class Parcel:
    """Content of a message: impressions, or interactions with their `positive` flags and attribution window."""

    impressions: Sequence[Impression] = ()
    interactions: Sequence[Interaction] = ()
    positive: Sequence[bool] = ()
    attribution: timedelta = timedelta(0)


def of_impressions(impressions: Sequence[Impression]) -> Iterator[Message]:
    batch: list[Impression] = []
    weight = 0
    for impression in impressions:
        if batch and (len(batch) == _EVENTS or weight + len(impression.items) > _ITEMS):
            yield _written(Parcel(impressions=batch), [shown.request_id for shown in batch])
            batch, weight = [], 0
        batch.append(impression)
        weight += len(impression.items)
    if batch:
        yield _written(Parcel(impressions=batch), [shown.request_id for shown in batch])


def of_interactions(interactions: Sequence[Interaction], positive: Sequence[bool], attribution: timedelta) -> Iterator[Message]:
    """Yields messages. Events without an id get an id, because a message may be delivered twice. Messages with the same events have
    the same id, independent of the times of arrival; another content under the same event ids is another message."""
    for start in range(0, len(interactions), _EVENTS):
        some, good = interactions[start : start + _EVENTS], positive[start : start + _EVENTS]
        named = [
            interaction if interaction.id is not None else interaction.model_copy(update={"id": uuid.uuid4().hex}) for interaction in some
        ]
        identities = [interaction.model_dump_json(exclude={"at"}) for interaction in named]
        yield _written(Parcel(interactions=named, positive=good, attribution=attribution), identities)


def read_parcel(payload: bytes) -> Parcel:
    try:
        value = json.loads(payload)
        if value["format"] != FORMAT:
            raise Unreadable(f"message format {value['format']!r}, expected {FORMAT}: a newer release wrote it")
        microseconds = timedelta(microseconds=1)
        return Parcel(
            _impressions.validate_json(json.dumps(value["impressions"])),
            _interactions.validate_json(json.dumps(value["interactions"])),
            [bool(flag) for flag in value["positive"]],
            value["attribution"] * microseconds,
        )
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise Unreadable(f"not a message of Eyas: {type(error).__name__}") from None


def _written(parcel: Parcel, identities: Sequence[str]) -> Message:
    head: dict[str, Any] = {"format": FORMAT, "attribution": parcel.attribution // timedelta(microseconds=1)}
    start = json.dumps(head | {"positive": list(parcel.positive)})[:-1].encode()
    shown = _impressions.dump_json(tuple(parcel.impressions))
    done = _interactions.dump_json(tuple(parcel.interactions))
    id = hashlib.sha256("\n".join(identities).encode()).hexdigest()
    return Message(id, start + b', "impressions": ' + shown + b', "interactions": ' + done + b"}")
