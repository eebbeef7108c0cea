"""Sessions of the console: a secret that expires and is renewed, so that a browser stores neither a token nor a provider's JWT.

A session's text is a token's text whose id begins with `s`. Its secret has two halves: the first stays the same, so that forms remain
valid, the second is new at each renewal.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.domain.access import token_id, token_text

PREFIX = "s"
LIFE = timedelta(hours=12)
"""After this time the user signs in again."""
IDLE = timedelta(hours=1)
"""Lifetime of a secret that no request renews."""
RENEWED_AFTER = timedelta(minutes=15)
OVERLAP = timedelta(minutes=1)
"""Time for which the previous secret is valid after the first use of the new one, for requests that were sent at the same time."""


@dataclass(frozen=True)
class Identity:
    """A user or a service whom an identity provider has authenticated."""

    subject_id: str
    """Stable id, made of the issuer and the provider's own id of the subject."""
    name: str
    groups: frozenset[str]
    expires_at: datetime


@dataclass(frozen=True)
class Session:
    """Stored data of a session. It belongs either to a token or to an identity, whose id is `token_id`."""

    id: str
    digest: str
    renewed_at: datetime
    expires_at: datetime
    token_id: str | None = None
    token_digest: str | None = None
    identity: Identity | None = None
    previous_digest: str | None = None
    previous_until: datetime | None = None
    """None until the newest secret is used for the first time: its response may have been lost."""

    def is_alive(self, now: datetime) -> bool:
        return now < min(self.expires_at, self.renewed_at + IDLE)

    def accepts(self, digest: str, now: datetime) -> bool:
        if not self.is_alive(now):
            return False
        if hmac.compare_digest(digest, self.digest):
            return True
        is_previous = self.previous_digest is not None and hmac.compare_digest(digest, self.previous_digest)
        return is_previous and (self.previous_until is None or now < self.previous_until)

    @property
    def renewable_at(self) -> datetime:
        return self.renewed_at + RENEWED_AFTER


def session_text(id: str, stable: bytes, renewed: bytes) -> str:
    """Each half has 16 random bytes."""
    return token_text(id, stable + renewed)


def renewed_text(text: str, renewed: bytes) -> str:
    """Returns the session's text with a new second half."""
    return text[: -2 * len(renewed)] + renewed.hex()


def session_id(text: str) -> str | None:
    """Returns None if the text is not a session's."""
    id = token_id(text)
    return id if id is not None and id.startswith(PREFIX) else None


def stable_half(text: str) -> str:
    """Returns the part of the secret that no renewal changes."""
    return text[:-32]
