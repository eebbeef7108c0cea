"""Garbage collection rules: which versions, attempts, blobs and pins are old enough and not needed.

Pure. The caller reads references after ages, and checks again after it has moved something to the trash
(docs/adr/0011-garbage-collection-with-pins-and-trash.md explains why this is safe).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

_PREVIOUS = "previous"
"""Alias of the version that a rollback returns to."""


@dataclass(frozen=True)
class Retention:
    """Retention settings of the operator."""

    versions: int = 10
    """Newest versions of each recommender that are always kept."""
    served: timedelta = timedelta(days=30)
    """Time to keep a version after it left the route."""
    runs: timedelta = timedelta(days=30)
    """Time to keep the output of an ended run, for inspection and for reuse by later runs."""
    grace: timedelta = timedelta(days=1)
    """Minimum age for removal, and minimum time in the trash. Longer than any process takes from a lookup to its reference."""
    answers: timedelta = timedelta(days=1)
    """Time during which a request may be repeated with its idempotency key."""
    history: timedelta | None = None
    """Time to keep the transitions of runs, rollouts and retrainers; None: no limit."""
    audit: timedelta | None = None
    """Time to keep entries of the audit log; None: no limit."""
    forgotten: timedelta = timedelta(days=30)
    """Time after which nothing is left that may know a forgotten user."""

    @property
    def forgotten_kept(self) -> timedelta:
        """Time after a user is forgotten until its removal begins. Manifests are in the trash for one grace period, then their blobs for
        another; the third is for the time between sweeps."""
        return self.forgotten - 3 * self.grace


@dataclass
class Sweep:
    """Result of a garbage collection, or of a dry run."""

    versions: list[tuple[str, int]] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    blobs: int = 0
    bytes: int = 0
    """Bytes of the blobs that were moved to the trash."""
    restored: int = 0
    erased: int = 0
    erased_bytes: int = 0
    """Bytes freed from the trash after the grace period."""
    rows: int = 0
    """Removed rows: of reusable stages, stored responses, histories and the audit log."""


@dataclass(frozen=True)
class VersionFacts:
    number: int
    created_at: datetime
    holders: tuple[str, ...] = ()
    """Current references: an alias, a tag, a rollout, a run."""
    left_at: datetime | None = None
    """Time when the version left the route; None if it is on the route, or never was."""
    learned_at: datetime | None = None
    """Time when its oldest data was read."""

    def knows(self, forgotten_at: datetime | None) -> bool:
        """Returns whether the version may have learned from a user who was forgotten then; None: nobody was."""
        return forgotten_at is not None and self.learned_at is not None and self.learned_at <= forgotten_at


@dataclass(frozen=True)
class AttemptFacts:
    attempt: str
    written_at: datetime

    @property
    def run(self) -> str:
        return run_of(self.attempt)


def run_of(attempt: str) -> str:
    return attempt.rsplit("-", 2)[0]


def versions_to_go(
    versions: Sequence[VersionFacts], retention: Retention, now: datetime, forgotten_at: datetime | None = None
) -> tuple[int, ...]:
    """Versions that know a user who was forgotten at `forgotten_at` go however new they are, also the previous version."""
    newest = {version.number for version in sorted(versions, key=lambda version: -version.number)[: retention.versions]}

    def goes(version: VersionFacts) -> bool:
        is_due = version.knows(forgotten_at)
        holders = set(version.holders) - ({_PREVIOUS} if is_due else set())
        if holders or now - version.created_at <= retention.grace or (version.number in newest and not is_due):
            return False
        served = timedelta(0) if is_due else retention.served
        return version.left_at is None or now - version.left_at > max(served, retention.grace)

    return tuple(sorted(version.number for version in versions if goes(version)))


def attempts_to_go(
    attempts: Sequence[AttemptFacts],
    needed: frozenset[str],
    ended: Callable[[str], bool],
    knows_forgotten: Callable[[str], bool],
    retention: Retention,
    now: datetime,
) -> tuple[str, ...]:
    """`ended` returns whether a run is known and ended; outputs of other platforms in the same store are kept. `knows_forgotten` returns
    whether a run may have read a user whose forgetting is due: its outputs go at any age."""
    old = max(retention.runs, retention.grace)

    def goes(attempt: AttemptFacts) -> bool:
        if attempt.attempt in needed or not (now - attempt.written_at > old or knows_forgotten(attempt.run)):
            return False
        return ended(attempt.run)

    return tuple(attempt.attempt for attempt in attempts if goes(attempt))


def blobs_to_go(blobs: Mapping[str, datetime], needed: frozenset[str], grace: timedelta, now: datetime) -> tuple[str, ...]:
    return tuple(name for name, written_at in blobs.items() if name not in needed and now - written_at > grace)


def pin_holds(attempt: str, written_at: datetime, ended: Callable[[str], bool], grace: timedelta, now: datetime) -> bool:
    return now - written_at <= grace or (attempt != "" and not ended(run_of(attempt)))
