"""Who may, who did, and what was answered before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from shared.domain.access import Token


class TokenStore(Protocol):
    def add(self, token: Token) -> None:
        """Conflict if a token that isn't revoked has that name, or any has that id."""

    def get(self, id: str) -> Token: ...

    def list(self, *, limit: int = 100, before: str | None = None) -> Sequence[Token]:
        """The newest first (by id); `before` is the id of the last one of the previous page."""

    def revoke(self, id: str, now: datetime, actor: str) -> Token:
        """For good; one that is revoked already stays as it is."""


@dataclass(frozen=True)
class Audited:
    """One write that somebody asked for, refused ones too. `status` is None until it was answered: for ever, if the process died."""

    at: datetime
    actor: str
    token: str
    action: str
    """Method and route, such as 'POST /v1/runs/{id}:cancel'."""
    target: str
    """The path that was asked for, quoted."""
    recommender: str | None = None
    status: int | None = None
    detail: str = ""
    seq: int = 0


class AuditLog(Protocol):
    """Appended before the write starts, so that nothing is done that isn't written here."""

    def begin(self, entry: Audited) -> int:
        """Durable when it returns; gives the entry's number."""

    def end(self, seq: int, status: int, recommender: str | None, detail: str) -> None:
        """What became of it."""

    def list(
        self,
        *,
        recommenders: frozenset[str] | None = None,
        actor: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> Sequence[Audited]:
        """The newest first; `recommenders` None is all entries, else those that concern one of them; `until` is excluded."""


@dataclass(frozen=True)
class Answer:
    """A request that carries an Idempotency-Key, and what became of it. `status` is None while it is under way."""

    request: str
    """A digest of all that it asks for."""
    at: datetime
    """When it came first."""
    taken_at: datetime
    """When somebody last began to do it."""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


class Answers(Protocol):
    """By token and key; only one at a time does a request."""

    def take(self, token: str, key: str, request: str, now: datetime, stale: timedelta, retention: timedelta) -> tuple[bool, Answer]:
        """True: the caller is to do it, since it is new, or was begun `stale` ago and never answered.

        Forgets what is older than `retention`."""

    def keep(self, token: str, key: str, taken_at: datetime, status: int, headers: Mapping[str, str], body: str) -> None:
        """By whoever took it then; one who was overtaken changes nothing. So with `release`."""

    def release(self, token: str, key: str, taken_at: datetime) -> None:
        """No answer to keep: whoever asks next does it again."""
