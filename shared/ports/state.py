"""Ports for the state of the control loops: rows with a revision, the queue of due rows, and claims."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from shared.contracts.records import RetrainerSpec, RolloutSpec, RunSpec
from shared.domain.machine import Request
from shared.domain.queue import UnfinishedRun
from shared.domain.rollout import RolloutStatus
from shared.domain.run import RunStatus
from shared.domain.triggers import RetrainerStatus

S = TypeVar("S")
P = TypeVar("P")


@dataclass(frozen=True)
class Record(Generic[S, P]):
    """Row of a resource that a control loop handles. The user writes `request`, the control loop writes `status` and `intent`.

    `revision` rises with every write; a commit names the revision that was read. `intent` is the decision in progress ({"next": status,
    "effects": [...]}): written before its effects start, cleared by the commit that ends it.
    """

    id: str
    recommender: str
    spec: P
    status: S
    created_at: datetime
    due_at: datetime
    revision: int = 0
    request: Request | None = None
    intent: Mapping[str, Any] | None = None
    priority: int = 0


@dataclass(frozen=True)
class HistoryEntry:
    at: datetime
    source: str
    target: str
    reason: str
    actor: str
    seq: int = field(default=0, compare=False)
    """Rises from entry to entry of a row; assigned by the store."""


@dataclass(frozen=True)
class Due:
    """A due row, with only the fields to decide whether to read it."""

    id: str
    revision: int


class ResourceStore(Protocol[S, P]):
    """Rows of one kind (runs, rollouts or retrainers), with compare-and-swap and a history."""

    def create(self, record: Record[S, P], actor: str) -> Record[S, P]:
        """Inserts a row; returns an existing row with that id unchanged."""

    def get(self, id: str) -> Record[S, P]:
        """Raises Unreadable if the row is damaged, or written by newer code."""

    def due(self, now: datetime, limit: int, holder: str | None = None) -> Sequence[Due]:
        """Returns unfinished rows that are due, the longest waiting first; with a holder: only rows that it has claimed.

        A due time more than a day ahead comes from a wrong clock, so such a row is due.
        """

    def claim(self, holder: str, replicas: int) -> int:
        """Claims rows for the holder until it has 1 / `replicas` of all unfinished rows, from those that no live replica has claimed;
        releases the surplus. Returns how many rows changed their claim.

        A replica is live while it holds the lease `replica_lease(holder)`. A claim only avoids duplicate work and does not change
        `revision`, which still guards each commit. Unchanged claims are not written again.
        """

    def list(  # noqa: PLR0913  each narrows it
        self,
        recommender: str | None = None,
        *,
        active: bool | None = None,
        states: Collection[str] | None = None,
        among: Collection[str] | None = None,
        dead_letter: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> Sequence[Record[S, P]]:
        """Returns the newest rows first (by created_at, then id). `before` is the id of the last row of the previous page, `among` are
        names of recommenders, `dead_letter` selects runs that gave up, `until` is exclusive.

        An unreadable row is left out and logged, so that it does not hide others.
        """

    def oldest_active(self, recommender: str) -> str | None:
        """Returns the id of the oldest unfinished row, which is the next to work."""

    def queued(self) -> Sequence[UnfinishedRun]:
        """Returns a summary of every unfinished row; rows that have left `pending`, or have an intent to leave it, are active."""

    def write_intent(self, record: Record[S, P], intent: Mapping[str, Any]) -> Record[S, P]:
        """Raises Stale if the row has changed since `record` was read; so do the next two methods."""

    def commit(
        self, record: Record[S, P], status: S, *, due_at: datetime, entry: HistoryEntry | None, finished: bool, clear_request: bool
    ) -> Record[S, P]:
        """Writes the status, clears the intent and optionally the request, and appends to the history."""

    def prioritise(self, record: Record[S, P], priority: int, entry: HistoryEntry) -> Record[S, P]:
        """Changes the priority of an unchanged row."""

    def ask(self, id: str, request: Request, now: datetime, expected: Container[int] | None = None) -> Record[S, P]:
        """Writes a request for the control loop and makes the row due. Raises Conflict if a request is open, and Changed if the row's
        revision is not expected."""

    def history(self, id: str, limit: int | None = None, after: int | None = None) -> Sequence[HistoryEntry]:
        """Returns the first entry first; `after` is the last `seq` of the previous page."""

    def latest(self, id: str, limit: int, before: int | None = None) -> Sequence[HistoryEntry]:
        """Returns the last entry first; `before` is the last `seq` of the previous page."""


LONGEST_TERM = timedelta(minutes=1)
"""Maximum term of a lease: a longer one comes from a wrong clock and is void."""


class Leases(Protocol):
    """Leases: exclusive rights until release or expiry. The store's clock decides the expiry for all holders."""

    def hold(self, name: str, holder: str, term: timedelta) -> bool:
        """Takes a free or expired lease, or renews the holder's own, for at most `LONGEST_TERM`; returns False if another holds it."""

    def release(self, name: str, holder: str) -> None:
        """Releases the lease at once; the lease of another holder stays."""

    def live(self, prefix: str) -> Sequence[str]:
        """Returns the names of active leases with the prefix, sorted."""


REPLICAS = "replica/"


def replica_lease(holder: str) -> str:
    """Returns the lease that a live control plane holds."""
    return REPLICAS + holder


RunRecord = Record[RunStatus, RunSpec]
RolloutRecord = Record[RolloutStatus, RolloutSpec]
RetrainerRecord = Record[RetrainerStatus, RetrainerSpec]
RunStore = ResourceStore[RunStatus, RunSpec]
RolloutStore = ResourceStore[RolloutStatus, RolloutSpec]
RetrainerStore = ResourceStore[RetrainerStatus, RetrainerSpec]
