"""Ports for garbage collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol


@dataclass(frozen=True)
class StoredObject:
    """A blob by its digest, or a manifest by its attempt."""

    name: str
    size: int
    written_at: datetime


@dataclass(frozen=True)
class BlobPin:
    """Protects blobs that an attempt is about to need."""

    name: str
    attempt: str
    blobs: frozenset[str]
    written_at: datetime


Shelf = Literal["manifests", "blobs"]


@dataclass(frozen=True)
class TrashItem:
    shelf: Shelf
    name: str
    size: int
    at: datetime
    place: str


class Trash(Protocol):
    """The artifact store for the garbage collector."""

    def pins(self) -> Sequence[BlobPin]: ...

    def shelf(self, shelf: Shelf) -> Sequence[StoredObject]: ...

    def trash(self) -> Sequence[TrashItem]: ...

    def named(self, attempt: str) -> frozenset[str]:
        """Returns the blobs that a manifest names, also of one in the trash; raises Damaged if it cannot be read."""

    def superseded(self) -> frozenset[str]:
        """Returns the blobs of archives of events that are not needed, though manifests name them, as far as `named` has read these."""

    def discard(self, shelf: Shelf, file: StoredObject, now: datetime) -> bool:
        """Moves a file to the trash; returns False if the file was written again since it was listed, or is gone."""

    def restore(self, discarded: TrashItem) -> None: ...

    def erase(self, discarded: TrashItem) -> None: ...

    def hide(self, place: str) -> None:
        """Removes a name that `show` gave."""

    def unpin(self, pin: BlobPin) -> None: ...

    def live(self) -> Sequence[str]:
        """Returns the attempts with progress or checkpoints."""

    def drop_live(self, attempt: str) -> None: ...


LogName = Literal["history", "audit"]
"""`history`: transitions of runs, rollouts and retrainers; their newest state stays."""


class ExpiringRows(Protocol):
    """Rows with a limited lifetime."""

    def reusable(self) -> frozenset[str]:
        """Returns the attempts that a later run may reuse."""

    def forget(self, outputs_before: datetime, answers_before: datetime) -> int:
        """Deletes older rows of reusable stages and of stored responses."""

    def forget_log(self, log: LogName, before: datetime) -> int:
        """Deletes the entries before a time, in small steps; returns rows."""
