"""Ports for tokens, the audit log, and stored responses of idempotent requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from shared.domain.access import Token
from shared.domain.sessions import Identity, Session


class TokenStore(Protocol):
    def add(self, token: Token) -> None:
        """Raises Conflict if a token with the id exists, or a token with the name that is not revoked."""

    def get(self, id: str) -> Token: ...

    def list(self, *, limit: int = 100, before: str | None = None) -> Sequence[Token]:
        """Returns the newest tokens first (by id); `before` is the last id of the previous page."""

    def revoke(self, id: str, now: datetime, actor: str) -> Token:
        """Revokes the token permanently; a revoked token stays unchanged."""


class SessionStore(Protocol):
    def add(self, session: Session, now: datetime) -> None:
        """Also deletes expired sessions."""

    def get(self, id: str) -> Session: ...

    def renew(self, id: str, used: str, digest: str, last_renewal: datetime, now: datetime) -> bool:
        """Replaces the secret, unless the session was renewed after `last_renewal`: of two renewals at the same time only the first counts.

        `digest` is that of the new secret, `used` that of the caller's, which stays valid until the new one is used.
        """

    def confirm(self, id: str, digest: str, until: datetime) -> None:
        """Records the first use of the newest secret: the previous one is valid `until` then."""

    def end(self, id: str) -> None: ...

    def end_of(self, token_id: str) -> int:
        """Ends all sessions of a token or an identity; returns their number."""


class IdentityProvider(Protocol):
    """OIDC provider that authenticates users and services."""

    def identity(self, text: str, nonce: str | None = None) -> Identity:
        """Verifies a JWT. Raises Unauthenticated with one line that says what is wrong, Unavailable if the keys cannot be read.

        `nonce` is for the ID token of a sign-in to the console; other JWTs have none.
        """

    def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        """Returns the provider's address for a sign-in with PKCE."""

    async def exchange(self, code: str, verifier: str) -> str:
        """Returns the ID token for the code of a sign-in. Raises Unauthenticated if the provider refuses the code."""


@dataclass(frozen=True)
class Audited:
    """One requested write, also if rejected. `status` is None until the response; it stays None if the process died."""

    at: datetime
    actor: str
    token: str
    action: str
    """Method and route, such as 'POST /v1/runs/{id}:cancel'."""
    target: str
    """The requested path, quoted."""
    recommender: str | None = None
    status: int | None = None
    detail: str = ""
    seq: int = 0


class AuditLog(Protocol):
    """Audit log. An entry is appended before the write starts, so that every write has an entry."""

    def begin(self, entry: Audited) -> int:
        """Appends the entry durably; returns its number."""

    def end(self, seq: int, status: int, recommender: str | None, detail: str) -> None:
        """Records the result of the write."""

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
        """Returns the newest entries first. `recommenders` None: all entries, else those of these recommenders; `until` is exclusive."""


class AuditOutbox(Protocol):
    """Entries of the audit log for its export."""

    def unexported(self, limit: int) -> Sequence[Audited]:
        """Returns the oldest entries to export, sorted by number: those that are not exported, and those whose outcome came after their
        export. A later call returns no new entry with a smaller number."""

    def mark_exported(self, entries: Sequence[Audited]) -> None:
        """An entry without an outcome comes again when it has one."""

    def backlog(self) -> tuple[int, datetime | None]:
        """Returns the number of entries to export, at most 10,000, and the time of the oldest."""


@dataclass(frozen=True)
class StoredResponse:
    """Request with an Idempotency-Key, and its response. `status` is None while the request is in progress."""

    request: str
    """Digest of the whole request."""
    at: datetime
    """Time of the first request."""
    taken_at: datetime
    """Time when a process last began to handle the request."""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


class StoredResponses(Protocol):
    """Stored responses by token and key; only one process at a time handles a request."""

    def take(
        self, token: str, key: str, request: str, now: datetime, stale: timedelta, retention: timedelta
    ) -> tuple[bool, StoredResponse]:
        """Returns True if the caller must handle the request: it is new, or it was taken `stale` ago without a response.

        Deletes responses older than `retention`.
        """

    def keep(self, token: str, key: str, taken_at: datetime, status: int, headers: Mapping[str, str], body: str) -> None:
        """Stores the response; ignored if another process took the request after `taken_at`, as in `release`."""

    def release(self, token: str, key: str, taken_at: datetime) -> None:
        """Stores no response; the next request is handled again."""
