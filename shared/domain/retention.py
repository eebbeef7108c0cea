"""What may go: versions, attempts, blobs and pins that nothing needs and that are old enough.

Pure. Whoever calls it reads references after ages, and looks once more after it has moved something to the trash
(docs/adr/0011-garbage-collection-with-pins-and-trash.md says why that is safe).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Retention:
    """The operator's wishes."""

    versions: int = 10
    """The newest ones of each recommender that stay in any case."""
    served: timedelta = timedelta(days=30)
    """How long a version stays after it left the route."""
    runs: timedelta = timedelta(days=30)
    """How long what an ended run published stays, for people to look at and for later runs to reuse."""
    grace: timedelta = timedelta(days=1)
    """Nothing younger goes, and nothing leaves the trash sooner. Longer than anybody takes from looking something up to naming it."""
    answers: timedelta = timedelta(days=1)
    """How long a request may be sent again under its idempotency key."""


@dataclass
class Sweep:
    """What a sweep did, or would do."""

    versions: list[tuple[str, int]] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    blobs: int = 0
    bytes: int = 0
    """Of the blobs that went to the trash."""
    restored: int = 0
    erased: int = 0
    erased_bytes: int = 0
    """What was freed: what had lain in the trash for the grace."""
    rows: int = 0
    """Of the index of reusable stages, and of kept answers."""


@dataclass(frozen=True)
class VersionFacts:
    number: int
    created_at: datetime
    holders: tuple[str, ...] = ()
    """What names it now: an alias, a tag, a rollout, a run."""
    left_at: datetime | None = None
    """When it left the route; None: it is there, or never was."""


@dataclass(frozen=True)
class AttemptFacts:
    attempt: str
    written_at: datetime

    @property
    def run(self) -> str:
        return run_of(self.attempt)


def run_of(attempt: str) -> str:
    return attempt.rsplit("-", 2)[0]


def versions_to_go(versions: Sequence[VersionFacts], wish: Retention, now: datetime) -> tuple[int, ...]:
    newest = {version.number for version in sorted(versions, key=lambda version: -version.number)[: wish.versions]}

    def goes(version: VersionFacts) -> bool:
        if version.number in newest or version.holders or now - version.created_at <= wish.grace:
            return False
        return version.left_at is None or now - version.left_at > max(wish.served, wish.grace)

    return tuple(sorted(version.number for version in versions if goes(version)))


def attempts_to_go(
    attempts: Sequence[AttemptFacts], needed: frozenset[str], ended: Callable[[str], bool], wish: Retention, now: datetime
) -> tuple[str, ...]:
    """`ended` tells of a run that it is known and over: what another platform published in the same store isn't ours to judge."""
    old = max(wish.runs, wish.grace)
    return tuple(
        attempt.attempt for attempt in attempts if now - attempt.written_at > old and attempt.attempt not in needed and ended(attempt.run)
    )


def blobs_to_go(blobs: Mapping[str, datetime], needed: frozenset[str], grace: timedelta, now: datetime) -> tuple[str, ...]:
    return tuple(name for name, written_at in blobs.items() if name not in needed and now - written_at > grace)


def pin_holds(attempt: str, written_at: datetime, ended: Callable[[str], bool], grace: timedelta, now: datetime) -> bool:
    return now - written_at <= grace or (attempt != "" and not ended(run_of(attempt)))
