"""Ids of users and items: integers or text. Inside the platform every id is an int64 key.

An integer is its own key. The key of a text is a hash of its UTF-8 bytes, version 1: the first 63 bits of BLAKE2b with 8 bytes of digest,
the personalisation `eyas-id-1`, and a secret of the installation as key. Without the secret nobody can search for two texts with equal
keys; by chance, two of n texts have equal keys with a probability of about n * n / 2**64. Text is not normalised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from shared.domain.errors import Invalid

Id = int | str
IdKind = Literal["integer", "text"]
LONGEST_ID = 256
"""Maximum bytes of a text id in UTF-8."""
BITS = 63
KEY_BYTES = 32
_VERSION = b"eyas-id-1"


def text_fault(text: str) -> str:
    """Returns why a text cannot be an id; empty if it can."""
    if not text:
        return "an id cannot be empty"
    if "\0" in text:
        return "an id cannot have a NUL character"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "an id cannot have half of a surrogate pair"
    return f"an id has at most {LONGEST_ID} bytes in UTF-8, this one has {size}" if size > LONGEST_ID else ""


def check_id(value: object) -> Id:
    """Returns the value if it is an id; raises ValueError otherwise."""
    if type(value) is int:
        if -(2**63) <= value < 2**63:
            return value
        raise ValueError("an integer id has at most 64 bits")
    if not isinstance(value, str):
        raise ValueError("expected an id: an integer or a text")
    fault = text_fault(value)
    if fault:
        raise ValueError(fault)
    return value


class IdHash:
    """Hash from text ids to keys."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._start = blake2b(digest_size=8, key=secret, person=_VERSION)

    def key(self, text: str) -> int:
        state = self._start.copy()
        state.update(text.encode())
        return int.from_bytes(state.digest()) >> (64 - BITS)

    def keys(self, texts: Iterable[str]) -> list[int]:
        return [self.key(text) for text in texts]


@dataclass(frozen=True)
class IdKinds:
    """Kinds of a recommender's ids; None: not fixed yet."""

    user: IdKind | None = None
    item: IdKind | None = None

    def of(self, entity: str) -> IdKind | None:
        """Returns the kind of `user` or of `item`."""
        return {"user": self.user, "item": self.item}[entity]


UNFIXED = IdKinds()


def kind_of(id: Id) -> IdKind:
    return "text" if isinstance(id, str) else "integer"


@dataclass(frozen=True)
class IdReader:
    """Keys of ids that clients send; raises Invalid for an id of the other kind."""

    kinds: IdKinds
    hash: IdHash

    def assuming(self, user: Id | None = None, item: Id | None = None) -> IdReader:
        """Takes kinds that are not fixed yet from the first ids of a request."""
        user_kind, item_kind = (None if id is None else kind_of(id) for id in (user, item))
        return IdReader(IdKinds(self.kinds.user or user_kind, self.kinds.item or item_kind), self.hash)

    def user(self, id: Id, field: str = "user") -> int:
        return self._key(id, self.kinds.user, field, "users")

    def item(self, id: Id, field: str = "item") -> int:
        return self._key(id, self.kinds.item, field, "items")

    def items(self, ids: Iterable[Id], field: str = "items") -> list[int]:
        return [self._key(id, self.kinds.item, f"{field}.{place}", "items") for place, id in enumerate(ids)]

    def _key(self, id: Id, kind: IdKind | None, field: str, entities: str) -> int:
        if isinstance(id, str):
            if kind == "integer":
                raise Invalid(f"{field}: {id[:40]!r} is text, but {entities} of this recommender have integer ids; send an integer")
            return self.hash.key(id)
        if kind == "text":
            raise Invalid(f'{field}: {id} is an integer, but {entities} of this recommender have text ids; send text, such as "{id}"')
        return id


def read_id(text: str, kind: IdKind | None) -> Id:
    """Reads an id of a command line or a URL; raises Invalid if it is not of the kind. Without a kind, a decimal integer is an integer."""
    if kind != "text":
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is not None and str(number) == text and -(2**63) <= number < 2**63:
            return number
        if kind == "integer":
            raise Invalid(f"{text[:40]!r} is not an integer id of 64 bits, as this recommender has")
    fault = text_fault(text)
    if fault:
        raise Invalid(fault)
    return text
