"""Events over HTTP: feedback of users, and what a front end showed by itself."""

from __future__ import annotations

from dataclasses import replace

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field

from services.api.access import Room, Who
from services.api.dependencies import Online
from services.api.eventbodies import EVENTS_BODY, LISTED, EventsBody, Refused
from services.api.rate_limits import BULK
from services.gateway import Recorded
from shared.domain.access import Role

room = Room("online")


class RefusedLine(BaseModel):
    line: int = Field(description="Counted from 1.")
    message: str = Field(description="What is wrong with it, the field first.")


class EventsAccepted(BaseModel):
    accepted: int = Field(description="Events that were taken in, or were there already.")
    duplicates: int | None = Field(description="Those that were there already; null where that is found out later.")
    conflicts: int | None = Field(
        description="Duplicates that say something else than the first event of their id: the first one stands. Null where that is found "
        "out later."
    )
    hits: int | None = Field(description="Answers that earned their first positive by these events; null where that is found out later.")
    refused: int = Field(description="Lines of NDJSON that were not taken in; 0 for a batch.")
    lines: list[RefusedLine] = Field(description=f"The first {LISTED} of them.")


@room.create("/v1/events", Role.CLIENT, audited=False, status_code=202, openapi_extra=EVENTS_BODY, work=BULK)
def take_events(gateway: Online, who: Who, sent: EventsBody) -> EventsAccepted:
    """Accepts events; they are durable when answered. A JSON batch is accepted as a whole or not at all: the problem names the bad events.
    Of NDJSON, good lines are accepted and bad lines are named; without a good line, the answer is a problem."""
    if sent.lines is None:
        return _accepted(gateway.record(sent.events, who.sees), ())
    recorded = gateway.record(sent.events, who.sees, partial=True)
    late = [Refused(sent.lines[refusal.index], refusal.message) for refusal in recorded.refused]
    refused = sorted([*sent.refused, *late], key=lambda refusal: refusal.line)
    if refused and not recorded.accepted:
        raise RequestValidationError(
            [{"type": "line", "loc": ("body", "lines", refusal.line), "msg": refusal.message} for refusal in refused[:LISTED]]
        )
    return _accepted(replace(recorded, refused=()), refused)


def _accepted(recorded: Recorded, refused: list[Refused] | tuple[()]) -> EventsAccepted:
    return EventsAccepted(
        accepted=recorded.accepted,
        duplicates=recorded.duplicates,
        conflicts=recorded.conflicts,
        hits=recorded.hits,
        refused=len(refused),
        lines=[RefusedLine(line=refusal.line, message=refusal.message) for refusal in refused[:LISTED]],
    )
