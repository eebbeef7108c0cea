"""Who may do what: roles, the scope of a token, and the form of a token's text.

A token is `eyas_<id>_<secret>`: a form that secret scanners can look for. The id is no secret; the secret has 256 bits from the
operating system, so a plain SHA-256 of the text is all that needs to be kept: nobody guesses such a secret, however fast
the hash. (Slow hashes protect what people choose.)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    CLIENT = "client"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


INCLUDES: dict[Role, frozenset[Role]] = {
    Role.CLIENT: frozenset({Role.CLIENT}),
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.OPERATOR: frozenset({Role.CLIENT, Role.VIEWER, Role.OPERATOR}),
    Role.ADMIN: frozenset(Role),
}
"""Viewer < operator < admin; beside them the client: an application, which asks for recommendations and reports what users did.

A viewer is no client, for whoever can send events can decide a canary; a client is no viewer, for a shop's front end has no
business with specs, logs and metrics."""

DUTIES: dict[Role, str] = {
    Role.CLIENT: "an application: asks for recommendations, sends events",
    Role.VIEWER: "reads everything but tokens and the audit log; changes nothing",
    Role.OPERATOR: "what client and viewer may, and changes recommenders, runs, rollouts and versions",
    Role.ADMIN: "everything: also deletes recommenders, makes and revokes tokens, and reads the audit log",
}


@dataclass(frozen=True)
class Principal:
    """Whoever holds a token. `recommenders` is its scope: None is all of them."""

    name: str
    token_id: str
    role: Role
    recommenders: frozenset[str] | None = None
    expires_at: datetime | None = None

    def sees(self, recommender: str) -> bool:
        return self.recommenders is None or recommender in self.recommenders


def may(principal: Principal, needed: Role | None, recommender: str | None = None) -> bool:
    """`needed` None: any token will do. `recommender` None: the action concerns none in particular."""
    if needed is not None and needed not in INCLUDES[principal.role]:
        return False
    return recommender is None or principal.sees(recommender)


def may_grant(principal: Principal, role: Role, recommenders: Collection[str] | None, expires_at: datetime | None) -> bool:
    """Nobody makes a token that is mightier than the own one: in role, in scope, or by living longer."""
    if not INCLUDES[role] <= INCLUDES[principal.role]:
        return False
    if principal.recommenders is not None and (recommenders is None or not principal.recommenders.issuperset(recommenders)):
        return False
    return principal.expires_at is None or (expires_at is not None and expires_at <= principal.expires_at)


_FORM = re.compile(r"eyas_([a-z0-9]{1,40})_[0-9a-f]{64}")


def token_text(id: str, secret: bytes) -> str:
    if len(secret) != 32:
        raise ValueError("a token's secret has 32 bytes")
    return f"eyas_{id}_{secret.hex()}"


def token_id(text: str) -> str | None:
    """None where the text can't be a token's."""
    match = _FORM.fullmatch(text)
    return match.group(1) if match else None


def digest(text: str) -> str:
    """Of the whole text, so that a secret is good for its own id alone."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Token:
    """What is kept of a token."""

    id: str
    name: str
    digest: str
    role: Role
    recommenders: frozenset[str] | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None

    def refusal(self, now: datetime) -> str | None:
        """Why it is no longer good; at the instant of its expiry it isn't."""
        if self.revoked_at is not None:
            return "was revoked"
        if self.expires_at is not None and now >= self.expires_at:
            return "has expired"
        return None

    @property
    def principal(self) -> Principal:
        return Principal(self.name, self.id, self.role, self.recommenders, self.expires_at)


OWNER = Principal("owner", "bootstrap", Role.ADMIN)
"""The holder of the token that the platform starts with. It stands in a file, in no table: deleting the file revokes it."""

RESERVED = frozenset({OWNER.name, "eyas", "anonymous", "bootstrap"})
"""Names that no token may take, for in a history they mean somebody else."""
