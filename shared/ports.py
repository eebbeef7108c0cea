"""The ports: what the decisions need of the world, each as small as its callers allow.

Adapters implement them (services/store, executors, triton, eventlog; shared/artifacts); shared/testing holds one conformance
suite a port and a fake that passes it. A port is here when something calls it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from shared.contracts.archive import EventTable
from shared.contracts.events import Impression, Interaction
from shared.contracts.progress import Progress
from shared.contracts.sources import Contents
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import File, Files, Manifest, StageSpec
from shared.domain.access import Token
from shared.domain.attributes import Value
from shared.domain.catalogue import ItemWrite
from shared.domain.drift.reading import Look
from shared.domain.earned import Earned, Part
from shared.domain.machine import Request
from shared.domain.queue import Queued
from shared.domain.reuse import StageOutput
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.domain.run import Job, RunStatus
from shared.domain.spread import Showings
from shared.domain.stored import StoredRow
from shared.domain.traffic import Mirror, Traffic
from shared.domain.triggers import RetrainerStatus
from shared.domain.verdict import Sample

if TYPE_CHECKING:
    import numpy as np

S = TypeVar("S")


class Clock(Protocol):
    def now(self) -> datetime: ...


@dataclass(frozen=True)
class Record(Generic[S]):
    """A row of something that is reconciled. `asked` is the user's side, `status` and `intent` are the controller's.

    `revision` rises with every write; whoever commits names the one that was read. `intent` is the decision under way
    ({"next": status, "effects": [...]}): written before its effects start, cleared by the commit that ends it.
    """

    id: str
    recommender: str
    spec: Mapping[str, Any]
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


class ResourceStore(Protocol[S]):
    """Rows of one kind (runs, rollouts or retrainers), with compare-and-swap and a history."""

    def create(self, record: Record[S], actor: str) -> Record[S]:
        """Inserts; a row with that id is adopted: returned as it stands."""

    def get(self, id: str) -> Record[S]:
        """Unreadable, if its row is damaged, or from code that is newer than this."""

    def due(self, now: datetime, limit: int, holder: str | None = None) -> Sequence[Due]:
        """Rows that aren't finished and whose time has come, the longest waiting first; with a holder: those that it holds."""

    def claim(self, holder: str, now: datetime, replicas: int) -> int:
        """Makes the holder's share of the unfinished rows its own: so many of those that no live replica holds that it has one
        part in `replicas` of all; what it holds beyond that it lets go. Returns how many rows changed hands.

        A replica lives while it holds the lease `replica_lease(holder)`. A claim only saves double work and leaves `revision`
        as it is: whoever commits is still checked by that. What is settled is not written again.
        """

    def list(
        self,
        recommender: str | None = None,
        *,
        active: bool | None = None,
        states: Collection[str] | None = None,
        among: Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> Sequence[Record[S]]:
        """The newest first (by created_at, then id); `before` is the id of the last row of the previous page, `among` are names of
        recommenders, `until` is excluded.

        A row that can't be read is left out, which is said in the log: it hides no other.
        """

    def oldest_active(self, recommender: str) -> str | None:
        """The id of the unfinished row that was created first: whose turn it is."""

    def queued(self) -> Sequence[Queued]:
        """Every unfinished row, light: whoever has left `pending`, or has an intent to, is active."""

    def write_intent(self, record: Record[S], intent: Mapping[str, Any]) -> Record[S]:
        """Stale if the row has moved on since `record` was read; so with the next two."""

    def commit(
        self, record: Record[S], status: S, *, due_at: datetime, entry: HistoryEntry | None, finished: bool, clear_request: bool
    ) -> Record[S]:
        """Writes the status, clears the intent and, if told so, the request; appends to the history."""

    def prioritise(self, record: Record[S], priority: int, entry: HistoryEntry) -> Record[S]:
        """Another place in the queue, for a row that is as it was read."""

    def ask(self, id: str, request: Request, now: datetime, expected: Container[int] | None = None) -> Record[S]:
        """Leaves a request for the reconciler and makes the row due; a request that is still open is a Conflict, a row that has
        none of the expected revisions is Changed."""

    def history(self, id: str, limit: int | None = None, after: int | None = None) -> Sequence[HistoryEntry]:
        """The first entry first; `after` is the `seq` of the last one of the previous page."""

    def latest(self, id: str, limit: int, before: int | None = None) -> Sequence[HistoryEntry]:
        """The last entry first; `before` is the `seq` of the last one of the previous page."""


class Leases(Protocol):
    """What only one at a time holds, until it lets go or its term is over. Clocks of holders should agree to a small part of a term."""

    def hold(self, name: str, holder: str, now: datetime, term: timedelta) -> bool:
        """Takes a lease that is free or over, or renews one's own, until `now + term`; false while another holds it."""

    def release(self, name: str, holder: str) -> None:
        """Lets go at once; what another holds stays as it is."""

    def live(self, prefix: str, now: datetime) -> Sequence[str]:
        """The names of leases that begin so and are held now, sorted."""


REPLICAS = "replica/"


def replica_lease(holder: str) -> str:
    """The lease that a control plane holds as long as it lives."""
    return REPLICAS + holder


RunStore = ResourceStore[RunStatus]
RolloutStore = ResourceStore[RolloutStatus]
RetrainerStore = ResourceStore[RetrainerStatus]


@dataclass(frozen=True)
class Recommender:
    """A name and its latest spec; `generation` rises with each change of the spec. A new one was created when it was updated."""

    name: str
    generation: int
    spec: RecommenderSpec
    created_at: datetime
    updated_at: datetime


class RecommenderStore(Protocol):
    def put(self, spec: RecommenderSpec, now: datetime, actor: str, expected: Container[int] | None = None) -> Recommender:
        """Creates or changes; an equal spec changes nothing. `updated_at` is `now` exactly if this call changed it. Changed if it
        has none of the expected generations; one that isn't there has 0."""

    def get(self, name: str) -> Recommender: ...

    def list(self) -> Sequence[Recommender]: ...

    def delete(self, name: str, now: datetime) -> None:
        """Takes it, and with it its route, from everybody's sight, in one step; one that is deleted stays so. Conflict while a run or a
        rollout of it is unfinished, and no such thing begins afterwards. Its histories stay, and its name may be taken again: its
        generations go on."""


@dataclass(frozen=True)
class Version:
    """A registered model: immutable. `parent` is the version that it was warm-started from."""

    recommender: str
    number: int
    run: str
    digest: str
    files: Files
    metrics: Mapping[str, float]
    lineage: Mapping[str, Any]
    parent: int | None
    created_at: datetime


class Registry(Protocol):
    """Versions are never changed. Each read holds a row's files against its digest: Damaged for one that was tampered with."""

    def register(self, version: Version) -> Version:
        """Gives the next number of its recommender (the given number is ignored); a run that has registered is adopted."""

    def get(self, recommender: str, number: int) -> Version: ...

    def of_run(self, run: str) -> Version | None: ...

    def list(self, recommender: str) -> Sequence[Version]:
        """By number; without those that were tampered with: one of them hides no other."""

    def tag(self, recommender: str, number: int, tag: str, now: datetime, actor: str) -> int | None:
        """Puts the tag on this version and takes it from where it was: returns that number. A collected version is a Conflict."""

    def untag(self, recommender: str, number: int, tag: str) -> None:
        """NotFound where the version has no such tag."""

    def tags(self, recommender: str) -> Mapping[str, int]: ...

    def everything(self) -> Sequence[Version]:
        """Of all recommenders; Damaged if any row was tampered with, for who collects must know every reference."""

    def collect(self, recommender: str, number: int, now: datetime) -> bool:
        """Marks the version's files as given up, for good; false, and no mark, where a tag or the present route names it."""

    def collected(self, recommender: str) -> Mapping[int, datetime]:
        """The versions whose files were given up, and when."""


@dataclass(frozen=True)
class RouteEntry:
    """One generation of a route: what answered from `route.since` to `until` (None: still), and who decided it."""

    route: Route
    until: datetime | None
    actor: str
    reason: str


class StageOutputs(Protocol):
    """What published stages were made of, so that an equal one isn't run again. A lost line only makes a stage run."""

    def find(self, recommender: str, stage: str, digest: str) -> StageOutput | None: ...

    def newest(self, recommender: str, stage: str) -> StageOutput | None: ...

    def put(self, output: StageOutput) -> None:
        """The newest attempt stands for its digest."""


class DataSource(Protocol):
    def fingerprint(self, uri: str, contents: Contents = "rows") -> Mapping[str, str]:
        """What tells whether the files behind a uri have changed, by file; empty where they can't be seen from here."""


class RouteStore(Protocol):
    def get(self, recommender: str) -> Route | None: ...

    def all(self) -> Mapping[str, Route]: ...

    def put(
        self, recommender: str, route: Route, now: datetime, actor: str, reason: str, during: Record[RolloutStatus] | None = None
    ) -> Route:
        """Makes it the route with the next generation; equal but for generation and since: nothing changes. Conflict for a
        version whose files were given up; Stale if the rollout that says so has moved on since it was read."""

    def history(self, recommender: str, limit: int = 100, before: int | None = None) -> Sequence[RouteEntry]:
        """The newest generation first; `before` is the last generation of the previous page."""

    def at(self, recommender: str, at: datetime) -> RouteEntry | None:
        """What answered then; None before the first route."""

    def left(self, recommender: str) -> Mapping[int, datetime]:
        """When each version that was ever routed and no longer is left the routes."""

    def serving_since(self, recommender: str, version: int) -> datetime | None:
        """When the version last became the stable one."""

    def previous(self, recommender: str) -> int | None:
        """The version to go back to: stable before the present one first became it, and still with its files; None where
        there is none. What served before a deletion isn't gone back to."""

    def closed(self) -> Mapping[str, datetime]:
        """The recommenders that were deleted, and when: they have no route."""

    def report(self, gateway: str, served: Mapping[str, int], now: datetime) -> None:
        """A gateway says which generation of each recommender it serves: its heartbeat."""

    def reports(self, recommender: str, since: datetime) -> Mapping[str, int]:
        """The generation that each gateway heard from since then serves (0 where it serves none)."""


class TokenStore(Protocol):
    def add(self, token: Token) -> None:
        """Conflict if a token that isn't revoked has that name, or any has that id."""

    def get(self, id: str) -> Token: ...

    def list(self, *, limit: int = 100, before: str | None = None) -> Sequence[Token]:
        """The newest first (by id); `before` is the id of the last one of the previous page."""

    def revoke(self, id: str, now: datetime, actor: str) -> Token:
        """For good; one that is revoked already stays as it is."""


@dataclass(frozen=True)
class Audited:
    """One write that somebody asked for, refused ones too. `status` is None until it was answered: for ever, if the process died."""

    at: datetime
    actor: str
    token: str
    action: str
    """Method and route, such as 'POST /v1/runs/{id}:cancel'."""
    target: str
    """The path that was asked for, quoted."""
    recommender: str | None = None
    status: int | None = None
    detail: str = ""
    seq: int = 0


class AuditLog(Protocol):
    """Appended before the write starts, so that nothing is done that isn't written here."""

    def begin(self, entry: Audited) -> int:
        """Durable when it returns; gives the entry's number."""

    def end(self, seq: int, status: int, recommender: str | None, detail: str) -> None:
        """What became of it."""

    def list(
        self,
        *,
        recommenders: frozenset[str] | None = None,
        actor: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> Sequence[Audited]:
        """The newest first; `recommenders` None is all entries, else those that concern one of them; `until` is excluded."""


@dataclass(frozen=True)
class Answer:
    """A request that carries an Idempotency-Key, and what became of it. `status` is None while it is under way."""

    request: str
    """A digest of all that it asks for."""
    at: datetime
    """When it came first."""
    taken_at: datetime
    """When somebody last began to do it."""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


class Answers(Protocol):
    """By token and key; only one at a time does a request."""

    def take(self, token: str, key: str, request: str, now: datetime, stale: timedelta, kept: timedelta) -> tuple[bool, Answer]:
        """True: the caller is to do it, since it is new, or was begun `stale` ago and never answered. Forgets what is older than `kept`."""

    def keep(self, token: str, key: str, taken_at: datetime, status: int, headers: Mapping[str, str], body: str) -> None:
        """By whoever took it then; one who was overtaken changes nothing. So with `release`."""

    def release(self, token: str, key: str, taken_at: datetime) -> None:
        """No answer to keep: whoever asks next does it again."""


class Executor(Protocol):
    """Runs stages. A name is used once; starting it again adopts what is there."""

    def start(self, spec: StageSpec) -> None: ...

    def observe(self, attempt: str) -> Job | None:
        """None: never started here."""

    def stop(self, attempt: str) -> None:
        """Ends it and everything that it started; stopping what isn't there is fine."""

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        """Text from a byte offset on, and the offset to go on from."""


class ArtifactStore(Protocol):
    url: str

    def put(self, path: Path) -> File: ...

    def pin(self, attempt: str, files: Iterable[File]) -> None:
        """Keeps an attempt's inputs from being collected until its run has ended; NotFound where one isn't there."""

    def fetch(self, file: File, to: Path) -> Path: ...

    def read(self, file: File) -> bytes: ...

    def show(self, file: File, place: str) -> None:
        """Gives a file a name for people to find it by; nothing reads it there."""

    def holds(self, file: File) -> bool:
        """It is there in its full size; its content is checked by whoever fetches it."""

    def publish(self, manifest: Manifest) -> None: ...

    def manifest(self, attempt: str) -> Manifest | None: ...

    def keep_log(self, attempt: str, path: Path) -> None:
        """Keeps what an attempt printed, for when the place where it ran is gone."""

    def kept_log(self, attempt: str, offset: int, most: int) -> bytes | None:
        """At most `most` bytes of it, from a byte offset on; None if none is kept."""

    def told(self, attempt: str) -> Progress | None:
        """How far an attempt is that works; None where it hasn't told, or has ended."""


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


class Attic(Protocol):
    """What the collector sees of an artifact store, and the few things that it does there."""

    def pins(self) -> Sequence[Pin]: ...

    def shelf(self, shelf: Shelf) -> Sequence[Stored]: ...

    def trash(self) -> Sequence[Discarded]: ...

    def named(self, attempt: str) -> frozenset[str]:
        """The blobs that a manifest names, wherever it lies; Damaged where it can't be read."""

    def discard(self, shelf: Shelf, one: Stored, now: datetime) -> bool:
        """Moves it to the trash; false where it was written anew since it was seen, or is gone."""

    def restore(self, one: Discarded) -> None: ...

    def erase(self, one: Discarded) -> None: ...

    def unpin(self, pin: Pin) -> None: ...

    def live(self) -> Sequence[str]:
        """Attempts that left something for while they work: how far they are, and checkpoints."""

    def drop_live(self, attempt: str) -> None: ...


class Leftovers(Protocol):
    """Rows that serve for a while."""

    def reusable(self) -> frozenset[str]:
        """The attempts that a later run may reuse."""

    def forget(self, outputs_before: datetime, answers_before: datetime) -> int:
        """Deletes what is older: from the index of reusable stages, and of the answers to requests that may be sent again."""


@dataclass(frozen=True)
class ServedUnit:
    """A version as the model server needs it."""

    recommender: str
    number: int
    files: Files


@dataclass(frozen=True)
class ServerReplica:
    """One of the servers behind the port."""

    name: str
    state: Literal["ready", "loading", "down"]
    versions: tuple[tuple[str, int], ...]
    """What it serves: recommender and version."""
    fault: str | None


@dataclass(frozen=True)
class ServerInfo:
    version: str
    models: tuple[Mapping[str, str], ...]
    """The repository index: name, version, state, and the recommender that the model is of; empty for what is of none."""
    replicas: tuple[ServerReplica, ...] = ()


class Scorer(Protocol):
    def score(
        self, recommender: str, number: int, feed: Mapping[str, np.ndarray[Any, Any]], patience: float | None = None
    ) -> np.ndarray[Any, Any]:
        """One score a row; Unavailable when the version doesn't answer, or not within so many seconds (None: the server's own limit)."""


class ModelServer(Scorer, Protocol):
    """Triton, whatever form it has. Versions stand side by side; the caller always names one."""

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        """Makes exactly these versions answer, without disturbing those that stay; idempotent.

        Returns the versions that can't be loaded with the reason of each: they are left out, the others serve.
        """

    def answering(self, recommender: str) -> frozenset[int]:
        """The versions that answered a real inference just now, on every replica that is waited for."""

    def successes(self) -> Mapping[tuple[str, int], int]:
        """Successful requests of (recommender, version) so far, over restarts and removals of versions."""

    def info(self) -> ServerInfo: ...


@dataclass(frozen=True)
class Taken:
    """What became of interactions that were sent."""

    new: int = 0
    duplicates: int | None = 0
    """Of an id that was there already: left out. None, as below, where that is found out later: then `new` are all."""
    conflicts: int | None = 0
    """Those duplicates that say something else than the first one did (their time aside)."""
    hits: int | None = 0
    """Impressions that became hits."""


class CandidateIndex(Protocol):
    """The items of one version by their vectors: which of them meet a query best."""

    def nearest(self, queries: np.ndarray[Any, Any], k: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """For each query (float32, one a row) the rows of the `k` items with the largest inner products, and these; best first, equal
        ones by key. All items where there are fewer than `k`."""


class Indexes(Protocol):
    def open(self, keys: np.ndarray[Any, Any], vectors: np.ndarray[Any, Any], content: bytes | None) -> CandidateIndex:
        """Of the items with these keys and vectors (float32), row by row. `content` is what export built for them, if it did; BadData
        where that is damaged, or of other vectors."""


class EventLog(Protocol):
    """What was shown and what users did: appended, never changed."""

    def impressions(self, impressions: Sequence[Impression]) -> None:
        """Durable when it returns; a request id that is there already is left as it is. A positive that came before the impression
        that it reacts to is attributed now."""

    def interactions(self, interactions: Sequence[Interaction], positive: Sequence[bool], attribution: timedelta) -> Taken:
        """Appends, once for each id in a recommender, and attributes each positive to the impression that it reacts to: by request
        id and item, or else by user and item, the newest within `attribution`. What follows from a set of events is the same in
        whatever order they come, and however often those with an id do. Durable when it returns."""

    def seen(
        self, recommender: str, users: Collection[int], since: datetime | None = None, limit: int = 1000
    ) -> Mapping[int, Mapping[int, datetime]]:
        """By user, items with a positive of theirs at `since` or later, each with the time of the newest one; the newest `limit` of
        each user's. Who has none isn't there."""

    def count(self, recommender: str, since: datetime, until: datetime, limit: int) -> int:
        """How many interactions there are in [since, until); counting ends at `limit`."""

    def export(self, recommender: str, since: datetime | None, until: datetime, to: Path) -> int:
        """Writes events.csv (user,item,value,time,kind: epoch seconds; value and kind may be empty), the oldest first; returns rows."""


class EventDays(Protocol):
    """What the event log holds, by the day (UTC) on which it happened; what happened before 1970 is on none."""

    def counts(self, recommender: str, what: EventTable, until: datetime) -> Mapping[date, int]:
        """How many there are of each day before `until`; a day without any isn't there."""

    def dump(self, recommender: str, what: EventTable, day: date, to: Path) -> int:
        """Writes all of a day, one JSON object a line with the columns of `shared.contracts.archive`, in any order; returns rows."""


@dataclass(frozen=True)
class HitRate:
    answers: int
    hits: int

    @property
    def rate(self) -> float:
        return self.hits / self.answers if self.answers else 0.0


class KpiSource(Protocol):
    """What the answers earned. Only answers older than the attribution window count."""

    def samples(self, recommender: str, generation: int, window: timedelta, attribution: timedelta, now: datetime) -> Mapping[str, Sample]:
        """By variant: users whose window under this generation of the route has closed, each with the hit rate of the answers
        given within `window` of the user's first one. Fallback answers don't count."""

    def traffic(self, recommender: str, generation: int, now: datetime) -> Mapping[str, Traffic]:
        """By variant, what the answers under this generation of the route looked like up to now, whether or not their windows have
        closed; what nobody answered is left out. Coverage is that of the newest answers that a version scored itself, of each
        variant as many as of the other, for the more one looks at the more one sees."""

    def hit_rate(self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta) -> HitRate:
        """Of the answers of a version that were given in [since, until)."""

    def earned(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> Earned:
        """Of the answers of a version that were given in [since, until); `conversions` are the kinds that are one."""

    def parts(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> Mapping[Part, Earned]:
        """The same, by variant, fallback and slices; parts without an answer are left out."""

    def steps(
        self,
        recommender: str,
        version: int,
        since: datetime,
        until: datetime,
        every: timedelta,
        attribution: timedelta,
        conversions: Collection[str],
    ) -> Mapping[int, Earned]:
        """The same, by step of so much time from `since` on (0, 1, ...); steps without an answer are left out."""

    def showings(self, recommender: str, version: int, since: datetime, until: datetime, limit: int) -> Showings:
        """What the newest `limit` of those answers showed: of one moment, those of the greater request ids."""

    def liked(self, recommender: str, until: datetime, limit: int) -> Mapping[int, int]:
        """By item, how many of the newest `limit` positives before `until` are of it."""


@dataclass(frozen=True)
class Like:
    """A positive."""

    user: int
    item: int
    at: datetime


@dataclass(frozen=True)
class Scored:
    """The mean score of what an answer showed."""

    user: int
    score: float
    at: datetime


class Sightings(Protocol):
    """What drift is measured on. The first ones come oldest first, the newest ones newest first."""

    def likes(self, recommender: str, since: datetime, count: int, newest: bool) -> Sequence[Like]:
        """The first or the newest `count` positives from `since` on."""

    def scores(self, recommender: str, version: int, since: datetime, count: int, newest: bool) -> Sequence[Scored]:
        """Of the first or the newest `count` answers of a version's own from `since` on; one without a score is left out."""

    def blocks(
        self, recommender: str, version: int, since: datetime, until: datetime, every: timedelta, attribution: timedelta
    ) -> Mapping[int, Sample]:
        """What a version's own answers in [since, until) earned, by stretch of so much time from `since` on (0, 1, ...); a user's answers
        of one stretch are one observation. Stretches without an answer are left out."""


@dataclass(frozen=True)
class CatalogueItem:
    """What is known of an item. One that was deleted stays as a sign of that: it isn't available, and has no attributes."""

    item: int
    attributes: Mapping[str, Value]
    available: bool = True
    deleted: bool = False
    revision: int = 0
    """Rises with every change of any item of the recommender; no two items have the same."""
    updated_at: datetime | None = None


@dataclass(frozen=True)
class CatalogueHead:
    revision: int
    """Of the newest change."""
    cleared: int
    """The revision at which all was forgotten: a copy that is older begins anew."""


class Catalogue(Protocol):
    """Items of recommenders with their attributes. One call is one change: a reader sees all of it or nothing."""

    def put(self, recommender: str, writes: Sequence[ItemWrite], now: datetime, whole: bool) -> int:
        """Whole: an item is then what is said of it, and available unless told otherwise. Else only what is named changes, and an
        item that isn't there is made. Of two writes of one item the last one counts, or builds upon the first. What changes
        nothing writes nothing: returns how many items changed. NotFound where the recommender was deleted."""

    def delete(self, recommender: str, items: Sequence[int], now: datetime) -> int:
        """Returns how many were there; what isn't there is fine. NotFound as above."""

    def get(self, recommender: str, item: int) -> CatalogueItem:
        """NotFound where there is none, or none any more."""

    def page(self, recommender: str, limit: int, after: int | None = None) -> Sequence[CatalogueItem]:
        """In the order of their keys, without those that were deleted."""

    def heads(self) -> Mapping[str, CatalogueHead]:
        """Of each recommender that ever had items."""

    def changes(self, recommender: str, since: int, limit: int) -> Sequence[CatalogueItem]:
        """Items as they are now that have changed after that revision, in the order of their revisions, deleted ones too."""


@dataclass(frozen=True)
class Found:
    """What a feature store says of keys at a moment, by view and key. What it says nothing of isn't there."""

    rows: Mapping[tuple[str, int], StoredRow]
    expired: Mapping[tuple[str, int], datetime]
    """What is there and too old to be a value, with its event time."""


class FeatureStore(Protocol):
    """The newest values of each key, to be read while somebody waits. A view here is a name alone; `NAME@7` holds what version 7 was
    published with. What stands follows from the rows written, whatever their order and however often they are."""

    def write(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        """A row stands unless there is one of its key with a greater rank; whole, never in part. Marks the view with 0 where it has no
        mark. Returns how many stand now that didn't before."""

    def read(self, recommender: str, views: Mapping[str, timedelta | None], keys: Collection[int], now: datetime) -> Found:
        """In one round trip. By view, how old a value may be; one whose time is still to come isn't there yet."""

    def mark(self, recommender: str, view: str, count: int) -> None:
        """Notes how far something has been loaded, in the place of what was noted. Durable as the rows are: who loses these loses it."""

    def marks(self) -> Mapping[tuple[str, str], int]:
        """Every view that holds or held anything, by recommender and view."""

    def forget(self, recommender: str, view: str) -> None:
        """Its rows and its mark."""


class FeatureHistory(Protocol):
    """What was ever written to views, so that training sees what serving saw."""

    def append(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        """Durable when it returns; of two rows of a key and time the one of the greater rank stays. Returns how many are new."""

    def as_of(
        self, recommender: str, view: str, asked: Sequence[tuple[int, datetime]], ttl: timedelta | None
    ) -> Sequence[StoredRow | None]:
        """For each key and time what counted then: the newest row at or before it, unless it was older than `ttl` by then."""

    def latest(self, recommender: str, view: str, limit: int, after: int | None = None) -> Sequence[StoredRow]:
        """The newest row of each key, by ascending key; `after` is the last key of the previous page."""

    def views(self) -> Collection[tuple[str, str]]:
        """Every recommender and view that it holds anything of."""

    def export(self, recommender: str, view: str, until: datetime, to: Path) -> int:
        """Writes all rows before `until` as JSON lines (key, at in microseconds since 1970, values), by key and time; returns rows."""

    def trim(self, recommender: str, before: datetime) -> int:
        """Drops what has been out of date since then: rows before it that have a successor at or before it. So what counted at any later
        moment still does. Returns how many."""

    def forget(self, recommender: str) -> None: ...


class Mirrors(Protocol):
    """What gateways saw of shadows."""

    def add(self, recommender: str, generation: int, gateway: str, mirror: Mirror) -> None:
        """A gateway's totals so far, in the place of those that it gave before: telling them again changes nothing. A gateway that
        has started anew counts from nothing, so it has another name."""

    def total(self, recommender: str, generation: int) -> Mirror:
        """Of all gateways."""


@dataclass(frozen=True)
class Signals:
    """What the world says about a serving version: None where there isn't enough to say anything."""

    drift: Look | None = None
    kpi: Look | None = None
    snapshot: datetime | None = None
    """When the version's data was cut."""
    events: int | None = None
    """How many events have come since; counted up to what the spec's triggers ask for."""


class SignalSource(Protocol):
    def signals(self, recommender: str) -> Signals: ...
