"""Audit log: every requested write, its actor and its outcome."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from services.api.access import Room, Who
from services.api.dependencies import With
from services.api.paging import Page, Pages
from shared.domain.access import Role

room = Room("access")


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
def list_audit(
    parts: With,
    who: Who,
    pages: Pages,
    actor: Annotated[str | None, Query(max_length=200, description="Who asked, by the token's name.")] = None,
    recommender: Annotated[str | None, Query(max_length=200, description="What it was about.")] = None,
    action: Annotated[str | None, Query(max_length=200, description="Method and route, as the entries have it.")] = None,
    since: Annotated[AwareDatetime | None, Query(description="Included.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Excluded.")] = None,
) -> Page[AuditView]:
    """Lists audit entries, the newest first. A scoped admin reads the entries of its recommenders."""
    scope = who.principal.recommenders
    if recommender is not None:
        scope = frozenset({recommender}) if who.sees(recommender) else frozenset()
    entries = parts.audit.list(
        recommenders=scope,
        actor=actor,
        action=action,
        since=since,
        until=until,
        limit=pages.more,
        before=pages.number,
    )
    return pages.page(entries, lambda entry: entry.seq, lambda entry: AuditView.model_validate(entry, from_attributes=True))
