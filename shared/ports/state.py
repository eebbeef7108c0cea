"""What is reconciled: rows with a revision, the queue of what is due, and who works on it."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from shared.contracts.records import RetrainerSpec, RolloutSpec, RunSpec
from shared.domain.machine import Request
from shared.domain.queue import Queued
from shared.domain.rollout import RolloutStatus
from shared.domain.run import RunStatus
from shared.domain.triggers import RetrainerStatus

S = TypeVar("S")
P = TypeVar("P")


@dataclass(frozen=True)
class Record(Generic[S, P]):
    """A row of something that is reconciled. `asked` is the user's side, `status` and `intent` are the controller's.

    `revision` rises with every write; whoever commits names the one that was read. `intent` is the decision under way
    ({"next": status, "effects": [...]}): written before its effects start, cleared by the commit that ends it.
    """

    id: str
    recommender: str
    spec: P
    status: S
    created_at: datetime
    due_at: datetime
    revision: int = 0
    asked: Request | None = None
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
    """Rises from each entry of a row to the next; the store gives it."""


@dataclass(frozen=True)
class Due:
    """A row whose time has come, as little of it as tells whether to look at it."""

    id: str
    revision: int


class ResourceStore(Protocol[S, P]):
    """Rows of one kind (runs, rollouts or retrainers), with compare-and-swap and a history."""

    def create(self, record: Record[S, P], actor: str) -> Record[S, P]:
        """Inserts; a row with that id is adopted: returned as it stands."""

    def get(self, id: str) -> Record[S, P]:
        """Unreadable, if its row is damaged, or from code that is newer than this."""

    def due(self, now: datetime, limit: int, holder: str | None = None) -> Sequence[Due]:
        """Rows that aren't finished and whose time has come, the longest waiting first; with a holder: those that it holds.

        A row that is due more than a day later was written by a clock that was wrong, and is due."""

    def claim(self, holder: str, replicas: int) -> int:
        """Makes the holder's share of the unfinished rows its own: so many of those that no live replica holds that it has one
        part in `replicas` of all; what it holds beyond that it lets go. Returns how many rows changed hands.

        A replica lives while it holds the lease `replica_lease(holder)`. A claim only saves double work and leaves `revision`
        as it is: whoever commits is still checked by that. What is settled is not written again.
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
        """The newest first (by created_at, then id); `before` is the id of the last row of the previous page, `among` are names of
        recommenders, `dead_letter` tells runs that gave up from others, `until` is excluded.

        A row that can't be read is left out, which is said in the log: it hides no other.
        """

    def oldest_active(self, recommender: str) -> str | None:
        """The id of the unfinished row that was created first: whose turn it is."""

    def queued(self) -> Sequence[Queued]:
        """Every unfinished row, light: whoever has left `pending`, or has an intent to, is active."""

    def write_intent(self, record: Record[S, P], intent: Mapping[str, Any]) -> Record[S, P]:
        """Stale if the row has moved on since `record` was read; so with the next two."""

    def commit(
        self, record: Record[S, P], status: S, *, due_at: datetime, entry: HistoryEntry | None, finished: bool, clear_request: bool
    ) -> Record[S, P]:
        """Writes the status, clears the intent and, if told so, the request; appends to the history."""

    def prioritise(self, record: Record[S, P], priority: int, entry: HistoryEntry) -> Record[S, P]:
        """Another place in the queue, for a row that is as it was read."""

    def ask(self, id: str, request: Request, now: datetime, expected: Container[int] | None = None) -> Record[S, P]:
        """Leaves a request for the reconciler and makes the row due; a request that is still open is a Conflict, a row that has
        none of the expected revisions is Changed."""

    def history(self, id: str, limit: int | None = None, after: int | None = None) -> Sequence[HistoryEntry]:
        """The first entry first; `after` is the `seq` of the last one of the previous page."""

    def latest(self, id: str, limit: int, before: int | None = None) -> Sequence[HistoryEntry]:
        """The last entry first; `before` is the `seq` of the last one of the previous page."""


LONGEST_TERM = timedelta(minutes=1)
"""Of a lease: one that lasts longer was granted by a clock that was wrong, and is over."""


class Leases(Protocol):
    """What only one at a time holds, until it lets go or its term is over. The store's clock says when that is, for all holders."""

    def hold(self, name: str, holder: str, term: timedelta) -> bool:
        """Takes a lease that is free or over, or renews one's own, for at most `LONGEST_TERM`; false while another holds it."""

    def release(self, name: str, holder: str) -> None:
        """Lets go at once; what another holds stays as it is."""

    def live(self, prefix: str) -> Sequence[str]:
        """The names of leases that begin so and are held now, sorted."""


REPLICAS = "replica/"


def replica_lease(holder: str) -> str:
    """The lease that a control plane holds as long as it lives."""
    return REPLICAS + holder


RunRecord = Record[RunStatus, RunSpec]
RolloutRecord = Record[RolloutStatus, RolloutSpec]
RetrainerRecord = Record[RetrainerStatus, RetrainerSpec]
RunStore = ResourceStore[RunStatus, RunSpec]
RolloutStore = ResourceStore[RolloutStatus, RolloutSpec]
RetrainerStore = ResourceStore[RetrainerStatus, RetrainerSpec]
