"""Roles, the scope of a token, and the format of a token's text.

A token is `eyas_<id>_<secret>`, a format that secret scanners can search for. The id is public. The secret has 256 random bits from the
operating system, so a plain SHA-256 of the text is enough to store: a fast hash does not make such a secret guessable. (Slow hashes protect
passwords that people choose.)
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
"""Roles that each role includes. Viewer < operator < admin; client, the role of an application, is separate.

A viewer is not a client, because events can decide a canary. A client needs no access to specs, logs and metrics.
"""

DUTIES: dict[Role, str] = {
    Role.CLIENT: "an application: asks for recommendations, sends events",
    Role.VIEWER: "reads everything except tokens and the audit log; changes nothing",
    Role.OPERATOR: "all rights of client and viewer; changes recommenders, runs, rollouts and versions",
    Role.ADMIN: "all rights: also deletes recommenders, creates and revokes tokens, reads the audit log",
}


@dataclass(frozen=True)
class Principal:
    """Holder of a token, or an identity of a provider. `recommenders` is the scope; None means all recommenders."""

    name: str
    token_id: str
    role: Role
    recommenders: frozenset[str] | None = None
    expires_at: datetime | None = None
    is_identity: bool = False
    """Whether an identity provider authenticated it. Such a principal may create tokens that are valid longer than its JWT or session."""
    renewable_at: datetime | None = None
    """For a session: when its secret can be renewed."""

    def sees(self, recommender: str) -> bool:
        return self.recommenders is None or recommender in self.recommenders


@dataclass(frozen=True)
class RoleRule:
    """Role of a group of the identity provider. `recommenders` is the scope; None means all recommenders."""

    group: str
    role: Role
    recommenders: frozenset[str] | None = None


_HIGHEST_FIRST = (Role.ADMIN, Role.OPERATOR, Role.VIEWER, Role.CLIENT)


def granted(rules: Collection[RoleRule], groups: Collection[str]) -> tuple[Role, frozenset[str] | None] | None:
    """Returns the highest role that the groups have, with the scopes of all groups that have this role; None without a role."""
    matching = [rule for rule in rules if rule.group in groups]
    if not matching:
        return None
    role = min((rule.role for rule in matching), key=_HIGHEST_FIRST.index)
    scopes = [rule.recommenders for rule in matching if rule.role is role]
    limited = [scope for scope in scopes if scope is not None]
    return role, frozenset().union(*limited) if len(limited) == len(scopes) else None


def may(principal: Principal, needed: Role | None, recommender: str | None = None) -> bool:
    """Checks the role and the scope. `needed` None: any token is enough. `recommender` None: no scope is checked."""
    if needed is not None and needed not in INCLUDES[principal.role]:
        return False
    return recommender is None or principal.sees(recommender)


def may_grant(principal: Principal, role: Role, recommenders: Collection[str] | None, expires_at: datetime | None) -> bool:
    """Returns whether the principal may create such a token: role, scope and expiry must not exceed the principal's."""
    if not INCLUDES[role] <= INCLUDES[principal.role]:
        return False
    if principal.recommenders is not None and (recommenders is None or not principal.recommenders.issuperset(recommenders)):
        return False
    if principal.expires_at is None or principal.is_identity:
        return True
    return expires_at is not None and expires_at <= principal.expires_at


_FORM = re.compile(r"eyas_([a-z0-9]{1,40})_[0-9a-f]{64}")


def token_text(id: str, secret: bytes) -> str:
    if len(secret) != 32:
        raise ValueError("a token's secret has 32 bytes")
    return f"eyas_{id}_{secret.hex()}"


def token_id(text: str) -> str | None:
    """Returns None if the text is not a valid token."""
    match = _FORM.fullmatch(text)
    return match.group(1) if match else None


def digest(text: str) -> str:
    """Hashes the whole text, so a secret is valid only together with its own id."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Token:
    """Stored data of a token; the secret is not stored."""

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
        """Returns why the token is not valid, or None. A token is invalid from the instant of its expiry."""
        if self.revoked_at is not None:
            return "was revoked"
        if self.expires_at is not None and now >= self.expires_at:
            return "has expired"
        return None

    @property
    def principal(self) -> Principal:
        return Principal(self.name, self.id, self.role, self.recommenders, self.expires_at)


OWNER = Principal("owner", "bootstrap", Role.ADMIN)
"""Holder of the platform's first token. That token is stored in a file, not in a table; deleting the file revokes it."""

RESERVED = frozenset({OWNER.name, "eyas", "anonymous", "bootstrap"})
"""Names that no token may have, because an audit history uses them for other actors."""
