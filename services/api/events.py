"""Events over HTTP: feedback of users, and what a front end showed by itself."""

from __future__ import annotations

from dataclasses import replace

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field

from services.api.access import RoleRouter, Who
from services.api.dependencies import Online
from services.api.eventbodies import EVENTS_BODY, LISTED, EventsBody, InvalidLine
from services.api.rate_limits import BULK
from services.gateway import IntakeResult
from shared.domain.access import Role

room = RoleRouter("online")


class RefusedLine(BaseModel):
    line: int = Field(description="Number of the line, from 1.")
    message: str = Field(description="Fault of the line, the field first.")


class EventsAccepted(BaseModel):
    accepted: int = Field(description="Events that are stored, now or since an earlier request.")
    duplicates: int | None = Field(description="Events that were stored earlier; null if this is determined later.")
    conflicts: int | None = Field(
        description="Duplicates that differ from the first event with their id, which stays; null if this is determined later."
    )
    hits: int | None = Field(description="Answers that got their first positive by these events; null if this is determined later.")
    refused: int = Field(description="Refused lines of NDJSON; 0 for a batch.")
    lines: list[RefusedLine] = Field(description=f"The first {LISTED} refused lines.")


@room.create("/v1/events", Role.CLIENT, audited=False, status_code=202, openapi_extra=EVENTS_BODY, work=BULK)
def take_events(gateway: Online, who: Who, sent: EventsBody) -> EventsAccepted:
    """Accepts events; they are durable when answered. A JSON batch is accepted as a whole or not at all: the problem names the bad events.
    Of NDJSON, good lines are accepted and bad lines are named; without a good line, the answer is a problem."""
    if sent.lines is None:
        return _accepted(gateway.record(sent.events, who.sees), ())
    recorded = gateway.record(sent.events, who.sees, partial=True)
    late = [InvalidLine(sent.lines[refusal.index], refusal.message) for refusal in recorded.refused]
    refused = sorted([*sent.refused, *late], key=lambda refusal: refusal.line)
    if refused and not recorded.accepted:
        raise RequestValidationError(
            [{"type": "line", "loc": ("body", "lines", refusal.line), "msg": refusal.message} for refusal in refused[:LISTED]]
        )
    return _accepted(replace(recorded, refused=()), refused)


def _accepted(recorded: IntakeResult, refused: list[InvalidLine] | tuple[()]) -> EventsAccepted:
    return EventsAccepted(
        accepted=recorded.accepted,
        duplicates=recorded.duplicates,
        conflicts=recorded.conflicts,
        hits=recorded.hits,
        refused=len(refused),
        lines=[RefusedLine(line=refusal.line, message=refusal.message) for refusal in refused[:LISTED]],
    )
