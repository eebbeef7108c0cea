"""Recommenders, their versions, and which of them answer."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from shared.contracts.records import Lineage
from shared.contracts.sources import Contents
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files
from shared.domain.route import Route
from shared.domain.stage_reuse import StageOutput
from shared.ports.state import RolloutRecord, RunRecord


@dataclass(frozen=True)
class Recommender:
    """A name and its latest spec; `generation` rises with each change of the spec. A new one was created when it was updated."""

    name: str
    generation: int
    spec: RecommenderSpec
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class Writing:
    """One generation of a spec: who wrote it, when, and its document as it was then, which today's platform may not read any more."""

    generation: int
    at: datetime
    actor: str
    document: Mapping[str, Any]


@dataclass(frozen=True)
class PutResult:
    """What a put of a spec did. `run`: the run of this request, stored by this call or by an earlier call with the same run id."""

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
        """Creates or changes; an equal spec changes nothing. Changed if it has none of the expected generations; one that isn't
        there has 0. With `make_run`, the spec and its run are stored in one transaction. A call whose run id is stored already
        changes nothing: it returns that run and the generation that the run was made for."""

    def get(self, name: str) -> Recommender: ...

    def list(self) -> Sequence[Recommender]: ...

    def heads(self) -> Mapping[str, int]:
        """The generation of each, by name, those included whose spec can't be read; the same object while no route and no recommender
        has changed. Not to be changed by who reads it."""

    def writings(self, name: str, limit: int, before: int | None = None) -> Sequence[Writing]:
        """Every generation that its spec ever had, the newest first, and of those below `before` if that is given."""

    def writing(self, name: str, generation: int) -> Writing: ...

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
    lineage: Lineage
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

    def all_collected(self) -> Mapping[str, Mapping[int, datetime]]:
        """The same of every recommender that has such versions."""


@dataclass(frozen=True)
class RouteEntry:
    """One generation of a route: what answered from `route.since` to `until` (None: still), and who decided it."""

    route: Route
    until: datetime | None
    actor: str
    reason: str


@dataclass(frozen=True)
class GatewayReport:
    """What a gateway said last."""

    name: str
    served: Mapping[str, int]
    """The generation of each recommender that it serves."""
    heard_at: datetime


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

    def all(self) -> Mapping[str, Route]:
        """By name; the same object while no route and no recommender has changed. Not to be changed by who reads it."""

    def put(self, recommender: str, route: Route, now: datetime, actor: str, reason: str, during: RolloutRecord | None = None) -> Route:
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

    def heard(self, gateway: str, now: datetime) -> bool:
        """The same heartbeat, of a gateway that serves what it said last; false where nothing is known of it: it has to report."""

    def reports(self, recommender: str, since: datetime) -> Mapping[str, int]:
        """The generation that each gateway heard from since then serves (0 where it serves none)."""

    def gateways(self, since: datetime) -> Sequence[GatewayReport]:
        """Those that were heard from since then, by name."""
