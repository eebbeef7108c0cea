"""Sessions of the console: started with a token or a JWT, renewed while pages are open, ended at sign-out or with the token."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Annotated

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from services.api.access import HOLDER, RoleRouter
from services.api.auth import bearer
from services.api.dependencies import AtDoor
from shared.domain.access import Role, digest
from shared.domain.errors import Invalid
from shared.domain.ids import new_id
from shared.domain.sessions import PREFIX, renewed_text, session_id, session_text

room = RoleRouter("access")


class NewSession(BaseModel):
    model_config = ConfigDict(extra="forbid")

    nonce: Annotated[str, Field(max_length=200)] | None = Field(None, description="Nonce of the sign-in that an ID token must have.")


class MadeSession(BaseModel):
    session: str | None = Field(description="Secret of the session, for `Authorization: Bearer`; null if it is not renewed yet.")
    expires_at: datetime


class EndedSessions(BaseModel):
    ended: int = Field(description="Number of sessions that ended.")


@room.post("/v1/sessions", HOLDER, status_code=201)
def start_session(door: AtDoor, request: Request, response: Response, new: NewSession | None = None) -> MadeSession:
    """Starts a session of at most 12 hours for the holder of the token or JWT in `Authorization`."""
    now = door.clock.now()
    id = new_id(PREFIX, now, secrets.randbits(30))
    text = session_text(id, secrets.token_bytes(16), secrets.token_bytes(16))
    session = door.credentials.new_session(
        bearer(request.headers.getlist("authorization")), None if new is None else new.nonce, id, digest(text)
    )
    door.sessions.add(session, now)
    response.headers["Cache-Control"] = "no-store"
    return MadeSession(session=text, expires_at=session.expires_at)


@room.post("/v1/sessions/current:renew", HOLDER, audited=False)
def renew_session(door: AtDoor, request: Request, response: Response) -> MadeSession:
    """Replaces the session's secret if it is older than 15 minutes. A secret that is not renewed for an hour is not valid any more."""
    text = _session_of(request)
    session, now = door.credentials.session(text), door.clock.now()
    renewed = renewed_text(text, secrets.token_bytes(16))
    due = now >= session.renewable_at
    changed = due and door.sessions.renew(session.id, digest(text), digest(renewed), session.renewed_at, now)
    response.headers["Cache-Control"] = "no-store"
    return MadeSession(session=renewed if changed else None, expires_at=session.expires_at)


@room.delete("/v1/sessions/current", HOLDER, status_code=204)
def end_session(door: AtDoor, request: Request) -> None:
    """Ends the session: its secrets are not valid any more."""
    door.sessions.end(door.credentials.session(_session_of(request)).id)


@room.delete("/v1/sessions/{id}", Role.ADMIN, scoped=False)
def end_sessions(door: AtDoor, id: str) -> EndedSessions:
    """Ends all sessions of a token or an identity, by the id that the audit log has as `token`."""
    return EndedSessions(ended=door.sessions.end_of(id))


def _session_of(request: Request) -> str:
    text = bearer(request.headers.getlist("authorization"))
    if session_id(text) is None:
        raise Invalid("this credential is not a session")
    return text
