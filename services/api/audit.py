"""The audit log: every write that was asked for, by whom, and how it was answered."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from services.api.access import Room, Who
from services.api.parts import With
from services.api.views import Page
from shared.domain.access import Role

room = Room("access")

Word = Annotated[str | None, Field(max_length=200)]


class Wanted(BaseModel):
    """The query."""

    actor: Word = None
    recommender: Word = None
    action: Annotated[str | None, Field(max_length=200, description="Method and route, as the entries have it.")] = None
    since: AwareDatetime | None = None
    until: Annotated[AwareDatetime | None, Field(description="Excluded.")] = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    before: Annotated[int | None, Field(ge=1, lt=2**63, description="The `seq` of the last one of the previous page.")] = None


class AuditView(BaseModel):
    seq: int
    at: datetime
    actor: str
    token: str = Field(description="The id of the token that was used.")
    action: str = Field(description="Method and route.", examples=["POST /v1/runs/{id}:cancel"])
    target: str = Field(description="The path that was asked for.")
    recommender: str | None
    status: int | None = Field(description="How it was answered; null while under way, and for ever if the process died in the middle.")
    detail: str = Field(description="The reason that was given.")


@room.get("/v1/audit", Role.ADMIN)
def read_audit(parts: With, who: Who, wanted: Annotated[Wanted, Query()]) -> Page[AuditView]:
    """The newest first. A scoped admin reads what concerns its recommenders."""
    scope = who.principal.recommenders
    if wanted.recommender is not None:
        scope = frozenset({wanted.recommender}) if who.sees(wanted.recommender) else frozenset()
    found = parts.audit.list(
        recommenders=scope,
        actor=wanted.actor,
        action=wanted.action,
        since=wanted.since,
        until=wanted.until,
        limit=wanted.limit + 1,
        before=wanted.before,
    )
    items = [AuditView.model_validate(one, from_attributes=True) for one in found[: wanted.limit]]
    return Page(items=items, next=items[-1].seq if len(found) > wanted.limit else None)
