"""Forgotten users: their data is deleted, and later trainings leave out what sources still have of them.

What stays of a forgotten user is a digest of its key, made with a secret of the installation, and the time. Without the secret nobody can
find out whether an id was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")
_PERSON = b"eyas-forgotten-1"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class ForgottenUser:
    """`at`: all data of the user up to this time is forgotten; what comes later is data of a new user. `archived`: whether the archive
    of events lacks the user."""

    digest: str
    at: datetime
    archived: bool = False

    @property
    def instant(self) -> int:
        """Returns the time as microseconds since 1970."""
        return (self.at - _EPOCH) // _MICROSECOND


def moment(instant: int) -> datetime:
    return _EPOCH + instant * _MICROSECOND


class UserDigest:
    """Digest of a user's key."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._start = blake2b(digest_size=16, key=secret, person=_PERSON)

    @classmethod
    def of_installation(cls, id_key: bytes) -> UserDigest:
        """Derives the secret from the key of text ids: stages get it without this key."""
        return cls(blake2b(digest_size=32, key=id_key, person=_PERSON).digest())

    def of(self, key: int) -> str:
        state = self._start.copy()
        state.update(key.to_bytes(8, signed=True))
        return state.hexdigest()

    def of_text(self, text: str) -> str:
        """Returns a digest of any text, for logs."""
        state = self._start.copy()
        state.update(b"text:" + text.encode())
        return state.hexdigest()

    def matches(self, keys: Iterable[int], users: Mapping[str, T]) -> dict[int, T]:
        """Returns the keys whose digest is a key of `users`, each with the value of that digest."""
        if not users:
            return {}
        return {key: users[digest] for key in keys if (digest := self.of(key)) in users}
