"""Tokens: created, listed, revoked; and the caller's own.

A scoped admin manages tokens whose scope lies within its own. Only the answer that creates a token has the secret.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from services.api.access import HOLDER, Caller, RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.paging import Page, Pages
from shared.contracts.quantities import parse_duration
from shared.domain.access import OWNER, RESERVED, Role, Token, digest, may_grant, token_text
from shared.domain.errors import Conflict, Forbidden, Invalid, no_such
from shared.domain.ids import new_id
from shared.domain.naming import NAME

room = RoleRouter("access")

_LABEL = re.compile(r"[a-z0-9][a-z0-9._@-]{0,59}")
_LONGEST = timedelta(days=3660)


class NewToken(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=60, description="Holder's name, for histories and the audit log.", examples=["shop", "ada@example.org"])
    role: Role
    recommenders: Annotated[list[str], Field(max_length=1000)] | None = Field(None, description="Scope; null for all recommenders.")
    expires_in: str | None = Field("90d", max_length=20, description="Lifetime, such as 12h or 90d; null for a token that never expires.")


class TokenView(BaseModel):
    id: str
    name: str
    role: Role
    recommenders: list[str] | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None

    @classmethod
    def of(cls, token: Token) -> TokenView:
        scope = None if token.recommenders is None else sorted(token.recommenders)
        fields = {name: getattr(token, name) for name in cls.model_fields if name != "recommenders"}
        return cls(recommenders=scope, **fields)


class MadeToken(BaseModel):
    about: TokenView
    token: str = Field(description="Text of the token. It is shown only once, because only its digest is stored.")


class Self(BaseModel):
    name: str
    token: str = Field(description="Id of the token, or of the identity.")
    role: Role
    recommenders: list[str] | None = Field(description="Scope of the token; null for all recommenders.")
    expires_at: datetime | None
    renewable_at: datetime | None = Field(description="For a session: time from which its secret can be renewed.")


@room.get("/v1/whoami", HOLDER)
def whoami(who: Who) -> Self:
    """Returns name, role, scope and expiry of the caller's credential: a token, a session, or a JWT of the identity provider."""
    me = who.principal
    scope = None if me.recommenders is None else sorted(me.recommenders)
    return Self(name=me.name, token=me.token_id, role=me.role, recommenders=scope, expires_at=me.expires_at, renewable_at=me.renewable_at)


@room.get("/v1/tokens", Role.ADMIN)
def list_tokens(parts: With, who: Who, pages: Pages) -> Page[TokenView]:
    """Lists tokens, the newest first, including revoked and expired ones."""

    def ask(after: str | None) -> Sequence[Token]:
        return parts.tokens.list(limit=pages.more, before=after)

    tokens = pages.filtered(ask, lambda token: token.id, pages.text, lambda token: _manages(who, token))
    return pages.page(tokens, lambda token: token.id, TokenView.of)


@room.post("/v1/tokens", Role.ADMIN, status_code=201)
def create_token(parts: With, who: Who, new: NewToken, response: Response) -> MadeToken:
    """Creates a token. Its role, scope and expiry cannot exceed those of the caller's token."""
    now = parts.clock.now()
    scope, expires_at = _scope(new.recommenders), _expiry(new.expires_in, now)
    who.says(f"{new.role.value} '{_label(new.name)}' for {', '.join(sorted(scope)) if scope is not None else 'all recommenders'}")
    if not may_grant(who.principal, new.role, scope, expires_at):
        raise Forbidden("a token cannot exceed the token that creates it: not in role, recommenders or expiry")
    id = new_id("t", now, secrets.randbits(30))
    text = token_text(id, secrets.token_bytes(32))
    token = Token(id, new.name, digest(text), new.role, scope, now, who.name, expires_at)
    parts.tokens.add(token)
    response.headers["Cache-Control"] = "no-store"
    return MadeToken(about=TokenView.of(token), token=text)


@room.get("/v1/tokens/{id}", Role.ADMIN)
def get_token(parts: With, who: Who, id: str) -> TokenView:
    """Returns a token without its text."""
    return TokenView.of(_managed(parts, who, id))


@room.delete("/v1/tokens/{id}", Role.ADMIN)
def revoke_token(parts: With, who: Who, id: str) -> TokenView:
    """Revokes a token for good, from the next request on; repeating it changes nothing."""
    if id == OWNER.token_id:
        raise Conflict("the platform's first token cannot be revoked here: delete its file, or change its Secret, and restart")
    _managed(parts, who, id)
    return TokenView.of(parts.tokens.revoke(id, parts.clock.now(), who.name))


def _managed(parts: ControlParts, who: Caller, id: str) -> Token:
    token = parts.tokens.get(id)
    if not _manages(who, token):
        raise no_such("token", id)
    return token


def _manages(who: Caller, token: Token) -> bool:
    own = who.principal.recommenders
    return own is None or (token.recommenders is not None and token.recommenders <= own)


def _label(name: str) -> str:
    if not _LABEL.fullmatch(name):
        raise Invalid("name: expected lower-case letters, digits, '.', '-', '_' and '@', a letter or digit first, at most 60 characters")
    if name in RESERVED:
        raise Invalid(f"name: '{name}' is reserved; choose another name")
    return name


def _scope(names: list[str] | None) -> frozenset[str] | None:
    if names is None:
        return None
    if not names:
        raise Invalid("recommenders: expected at least one name; leave the field out for all recommenders")
    for index, name in enumerate(names):
        if not NAME.fullmatch(name):
            raise Invalid(f"recommenders.{index}: {name[:80]!r} is not a recommender's name")
    return frozenset(names)


def _expiry(text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        life = parse_duration(text)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"expires_in: {error}") from None
    if not timedelta(0) < life <= _LONGEST:
        raise Invalid(f"expires_in: expected more than 0 and at most {_LONGEST.days} days, got '{text}'")
    return now + life
