"""Feedback over HTTP: what users did."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from services.api.access import Room, Who
from services.api.parts import Online
from shared.contracts.events import Interaction
from shared.domain.access import Role

room = Room("online")


class Batch(BaseModel):
    model_config = ConfigDict(extra="forbid")

    events: Annotated[list[Interaction], Field(max_length=1000)]


class Taken(BaseModel):
    accepted: int
    hits: int = Field(description="Answers that earned their first positive by these events.")


@room.create("/v1/events", Role.CLIENT, audited=False, status_code=202)
def take_events(gateway: Online, who: Who, batch: Batch) -> Taken:
    """All or none: one bad event refuses the batch, and the problem names it."""
    found = gateway.record(batch.events, who.sees)
    return Taken(accepted=found.accepted, hits=found.hits)
