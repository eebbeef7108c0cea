"""Audit log: every requested write, its actor and its outcome."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from services.api.access import RoleRouter, Who
from services.api.dependencies import With
from services.api.paging import Page, Pages
from shared.domain.access import Role

room = RoleRouter("access")


class AuditView(BaseModel):
    seq: int
    at: datetime
    actor: str
    token: str = Field(description="Id of the token.")
    action: str = Field(description="Method and route of the request.", examples=["POST /v1/runs/{id}:cancel"])
    target: str = Field(description="Path of the request.")
    recommender: str | None
    status: int | None = Field(description="Status of the answer; null during the request, or if the process died during it.")
    detail: str = Field(description="Reason that the caller gave.")


@room.get("/v1/audit", Role.ADMIN)
def list_audit(
    parts: With,
    who: Who,
    pages: Pages,
    actor: Annotated[str | None, Query(max_length=200, description="Entries of this actor: a token's name.")] = None,
    recommender: Annotated[str | None, Query(max_length=200, description="Entries about this recommender.")] = None,
    action: Annotated[str | None, Query(max_length=200, description="Entries with this method and route.")] = None,
    since: Annotated[AwareDatetime | None, Query(description="Entries from this time on.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Entries before this time.")] = None,
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
