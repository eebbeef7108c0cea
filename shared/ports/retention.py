"""What is stored and nobody refers to any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol


@dataclass(frozen=True)
class Stored:
    """A blob by its digest, or a manifest by its attempt."""

    name: str
    size: int
    written_at: datetime


@dataclass(frozen=True)
class Pin:
    """Somebody is about to need these blobs, for that attempt."""

    name: str
    attempt: str
    blobs: frozenset[str]
    written_at: datetime


Shelf = Literal["manifests", "blobs"]


@dataclass(frozen=True)
class Discarded:
    shelf: Shelf
    name: str
    size: int
    at: datetime
    place: str


class Trash(Protocol):
    """What the collector sees of an artifact store, and the few things that it does there."""

    def pins(self) -> Sequence[Pin]: ...

    def shelf(self, shelf: Shelf) -> Sequence[Stored]: ...

    def trash(self) -> Sequence[Discarded]: ...

    def named(self, attempt: str) -> frozenset[str]:
        """The blobs that a manifest names, wherever it lies; Damaged where it can't be read."""

    def discard(self, shelf: Shelf, file: Stored, now: datetime) -> bool:
        """Moves it to the trash; false where it was written anew since it was seen, or is gone."""

    def restore(self, discarded: Discarded) -> None: ...

    def erase(self, discarded: Discarded) -> None: ...

    def unpin(self, pin: Pin) -> None: ...

    def live(self) -> Sequence[str]:
        """Attempts that left something for while they work: how far they are, and checkpoints."""

    def drop_live(self, attempt: str) -> None: ...


class ExpiringRows(Protocol):
    """Rows that serve for a while."""

    def reusable(self) -> frozenset[str]:
        """The attempts that a later run may reuse."""

    def forget(self, outputs_before: datetime, answers_before: datetime) -> int:
        """Deletes what is older: from the index of reusable stages, and of the answers to requests that may be sent again."""
