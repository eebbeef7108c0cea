"""Feedback over HTTP: what users did."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from services.api.parts import With
from shared.contracts.events import Interaction

router = APIRouter(tags=["online"])


class Batch(BaseModel):
    model_config = ConfigDict(extra="forbid")

    events: Annotated[list[Interaction], Field(max_length=1000)]


class Taken(BaseModel):
    accepted: int
    hits: int = Field(description="Answers that earned their first positive by these events.")


@router.post("/v1/events", status_code=202)
def take(parts: With, batch: Batch) -> Taken:
    """All or none: one bad event refuses the batch, and the problem names it."""
    found = parts.gateway.record(batch.events)
    return Taken(accepted=found.accepted, hits=found.hits)
