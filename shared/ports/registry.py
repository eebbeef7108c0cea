"""Ports for recommenders, their versions and their routes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from shared.contracts.records import Lineage
from shared.contracts.sources import Contents
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files
from shared.domain.entity_ids import UNFIXED, IdKinds
from shared.domain.route import Route
from shared.domain.stage_reuse import StageOutput
from shared.ports.state import RolloutRecord, RunRecord


@dataclass(frozen=True)
class Recommender:
    """Name with its latest spec; `generation` rises with each change. `created_at` equals `updated_at` for a new recommender."""

    name: str
    generation: int
    spec: RecommenderSpec
    created_at: datetime
    updated_at: datetime
    ids: IdKinds = UNFIXED


@dataclass(frozen=True)
class Writing:
    """One generation of a spec: author, time, and its document, which the current platform may no longer be able to read."""

    generation: int
    at: datetime
    actor: str
    document: Mapping[str, Any]


@dataclass(frozen=True)
class PutResult:
    """Result of a put of a spec. `run`: the run of this request, stored by this call or by an earlier call with the same run id."""

    recommender: Recommender
    changed: bool
    """Whether this call changed the spec."""
    run: RunRecord | None = None


MakeRun = Callable[[Recommender], RunRecord]
"""Makes the run of a changed spec, without input or output: the store calls it inside its transaction."""


class RecommenderStore(Protocol):
    def put(
        self, spec: RecommenderSpec, now: datetime, actor: str, expected: Container[int] | None = None, make_run: MakeRun | None = None
    ) -> PutResult:
        """Creates or changes a recommender; an equal spec changes nothing. Raises Changed if its generation is not expected; a missing
        recommender has generation 0. With `make_run`, the spec and its run are stored in one transaction. If the run id is stored already,
        nothing changes: returns that run and its generation."""

    def get(self, name: str) -> Recommender: ...

    def list(self) -> Sequence[Recommender]: ...

    def heads(self) -> Mapping[str, int]:
        """Returns all generations by name, also of unreadable specs. Returns the same object until a route or recommender changes; callers
        must not change it."""

    def writings(self, name: str, limit: int, before: int | None = None) -> Sequence[Writing]:
        """Returns all generations of the spec, newest first; only those below `before`, if given."""

    def writing(self, name: str, generation: int) -> Writing: ...

    def fix_ids(self, name: str, kinds: IdKinds) -> IdKinds:
        """Fixes kinds of ids that are not fixed yet; returns the recommender's kinds. Raises Conflict, and changes nothing, if another kind
        is fixed."""

    def delete(self, name: str, now: datetime) -> None:
        """Deletes the recommender and its route atomically; idempotent. Raises Conflict while one of its runs or rollouts is unfinished;
        none can start afterwards. The history stays. The name may be used again; its generations continue."""


@dataclass(frozen=True)
class Version:
    """Registered model: immutable. `parent` is the version that it was warm-started from."""

    recommender: str
    number: int
    run: str
    digest: str
    files: Files
    metrics: Mapping[str, float]
    lineage: Lineage
    parent: int | None
    created_at: datetime


class Registry(Protocol):
    """Registry of immutable versions. Each read verifies a row's files by its digest and raises Damaged on a mismatch."""

    def register(self, version: Version) -> Version:
        """Assigns the next number (the given number is ignored); returns the existing version of a run that has registered."""

    def get(self, recommender: str, number: int) -> Version: ...

    def of_run(self, run: str) -> Version | None: ...

    def list(self, recommender: str) -> Sequence[Version]:
        """Returns the versions by number, without damaged ones."""

    def tag(self, recommender: str, number: int, tag: str, now: datetime, actor: str) -> int | None:
        """Moves the tag to this version; returns the number that had it. Raises Conflict for a collected version."""

    def untag(self, recommender: str, number: int, tag: str) -> None:
        """Raises NotFound if the version does not have the tag."""

    def tags(self, recommender: str) -> Mapping[str, int]: ...

    def everything(self) -> Sequence[Version]:
        """Returns all versions; raises Damaged for any damaged row, because garbage collection needs every reference."""

    def collect(self, recommender: str, number: int, now: datetime) -> bool:
        """Marks the version's files as collected, permanently; returns False without a mark if a tag or the current route names it."""

    def collected(self, recommender: str) -> Mapping[int, datetime]:
        """Returns the versions whose files were collected, and when."""

    def all_collected(self) -> Mapping[str, Mapping[int, datetime]]:
        """The same for every recommender with such versions."""


@dataclass(frozen=True)
class RouteEntry:
    """One generation of a route: active from `route.since` to `until` (None: still active), with its actor and reason."""

    route: Route
    until: datetime | None
    actor: str
    reason: str


@dataclass(frozen=True)
class GatewayReport:
    """Last report of a gateway."""

    name: str
    served: Mapping[str, int]
    """Generation that the gateway serves, by recommender."""
    heard_at: datetime


class StageOutputs(Protocol):
    """Index of published stages by their inputs, for stage reuse. A lost entry only makes a stage run again."""

    def find(self, recommender: str, stage: str, digest: str) -> StageOutput | None: ...

    def newest(self, recommender: str, stage: str) -> StageOutput | None: ...

    def put(self, output: StageOutput) -> None:
        """Stores an output; the newest attempt of a digest replaces earlier ones."""


class DataSource(Protocol):
    def fingerprint(self, uri: str, contents: Contents = "rows", version: int | None = None) -> Mapping[str, str]:
        """Returns a fingerprint by file that changes with the files of a uri; empty if this process cannot see them."""


class RouteStore(Protocol):
    def get(self, recommender: str) -> Route | None: ...

    def all(self) -> Mapping[str, Route]:
        """Returns the routes by name; the same object until a route or recommender changes. Callers must not change it."""

    def put(self, recommender: str, route: Route, now: datetime, actor: str, reason: str, during: RolloutRecord | None = None) -> Route:
        """Sets the route with the next generation; a route that differs only in generation and since changes nothing. Raises Conflict for a
        collected version, and Stale if the rollout `during` has changed since it was read."""

    def history(self, recommender: str, limit: int = 100, before: int | None = None) -> Sequence[RouteEntry]:
        """Returns the newest generation first; `before` is the last generation of the previous page."""

    def at(self, recommender: str, at: datetime) -> RouteEntry | None:
        """Returns the route at that time; None before the first route."""

    def left(self, recommender: str) -> Mapping[int, datetime]:
        """Returns when each version that is no longer routed left the route."""

    def serving_since(self, recommender: str, version: int) -> datetime | None:
        """Returns when the version last became the stable one."""

    def previous(self, recommender: str) -> int | None:
        """Returns the version for a rollback: the last stable one before the current, with files; None if there is none. Versions from
        before a deletion do not count."""

    def closed(self) -> Mapping[str, datetime]:
        """Returns the deleted recommenders, which have no route, and when they were deleted."""

    def report(self, gateway: str, served: Mapping[str, int], now: datetime) -> None:
        """Records the generations that a gateway serves, as its heartbeat."""

    def heard(self, gateway: str, now: datetime) -> bool:
        """Records a heartbeat of a gateway whose report is unchanged; returns False if the gateway is unknown and must report."""

    def reports(self, recommender: str, since: datetime) -> Mapping[str, int]:
        """Returns the generation that each gateway with a heartbeat since then serves (0 for none)."""

    def gateways(self, since: datetime) -> Sequence[GatewayReport]:
        """Returns the gateways with a heartbeat since then, by name."""
